"""Debiased randomized response: randomized response over outputs whose mean is the label.

Source: Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label Differential Privacy",
Algorithm 2 and Definition 23 (dbRR).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ..core.integer_weights import TOTAL
from ..core.label_grid import RANDOMIZED
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .randomized_response import randomized_response


@dataclass(frozen=True)
class DebiasedResponse:
    """k-ary randomized response with outputs Phi(y) such that E[M(y)] = y. It ignores the prior's weights.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
    """

    name: ClassVar[str] = "debiased_rr"
    rounding: ClassVar[str] = RANDOMIZED

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Reports Phi(y) with probability E / (E + k - 1), E = exp(epsilon), else another label's output. Cost O(k^2).

        Raises ValueError if epsilon is out of range or too small for k labels and weights of 2^62, or the outputs
        exceed the range of floats.
        """
        labels = prior.labels
        weights = randomized_response(labels, labels, np.arange(len(labels)), epsilon, self.name).weights
        other = int(weights[0, -1]) if len(labels) > 1 else 0
        return Randomizer(labels, _debiased_outputs(labels, other), weights, epsilon, self.name)


def _debiased_outputs(labels: np.ndarray, other: int) -> np.ndarray:
    """Phi(y) = ((E + k - 1) y - sum of labels) / (E - 1), shape (k,), where E is the ratio own / other of the integers.

    In integers: own + (k - 1) other is the total 2^62, so Phi(y) = (2^62 y - other * sum) / (2^62 - k other). Each
    output is exact except for one rounding to a float, so the bias is that of the rounding.
    """
    exact = [Fraction(label) for label in labels.tolist()]
    common = other * sum(exact, Fraction(0))
    difference = TOTAL - len(exact) * other
    if difference <= 0:
        raise ValueError(f"epsilon is too small for {len(exact)} labels and weights of 2^62")
    try:
        return np.array([float((TOTAL * label - common) / difference) for label in exact])
    except OverflowError:
        raise ValueError("the debiased outputs exceed the range of floats: scale the labels down") from None
