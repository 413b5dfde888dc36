"""k-ary randomized response: keeps the label, or reports another one at random.

Source: Warner 1965; Kairouz, Oh, Viswanath 2014 for k labels; Ghazi et al. 2022, Appendix D, as a baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np

from ..core.budget import check_epsilon, exp_below
from ..core.integer_weights import MAX_CELLS, TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer


def randomized_response(
    labels: np.ndarray,
    outputs: np.ndarray,
    output_of_label: np.ndarray,
    epsilon: float,
    mechanism: str,
    parameters: Mapping[str, Any] | None = None,
) -> Randomizer:
    """Builds randomized response over d outputs.

    A label's own output has probability E / (E + d - 1), each other one 1 / (E + d - 1), E = exp(epsilon). The integers
    are rounded towards privacy: the weight of the other outputs is rounded up and the own output gets the rest, so that
    the ratio is at most E.

    Labels have shape (k,), outputs (d,), both float64. `output_of_label` is the index of each label's own output, shape
    (k,), in [0, d). Raises ValueError if epsilon is out of range, or so small, or d so large, that weights of 2^62
    cannot express the ratio, or there are too many labels times outputs.
    """
    check_epsilon(epsilon)
    d = len(outputs)
    if len(labels) * d > MAX_CELLS:
        raise ValueError(f"{len(labels)} labels times {d} outputs is more than {MAX_CELLS}: use a larger label step")
    other = ceil(Fraction(TOTAL) / (exp_below(Fraction(epsilon)) + d - 1))
    own = TOTAL - (d - 1) * other
    if own < other:
        raise ValueError(f"epsilon {epsilon:g} is too small for {d} outputs and weights of 2^62")
    weights = np.full((len(labels), d), other, np.uint64)
    weights[np.arange(len(labels)), output_of_label] = own
    return Randomizer(labels, outputs, weights, epsilon, mechanism, parameters)


@dataclass(frozen=True)
class RandomizedResponse:
    """Randomized response over all labels of the domain. It ignores the prior's weights.

    Attributes:
      name: Name on the command line and in mechanism files.
    """

    name: ClassVar[str] = "rr"

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Reports the label with probability E / (E + k - 1), else another one, for E = exp(epsilon). Cost O(k^2)."""
        return randomized_response(prior.labels, prior.labels, np.arange(len(prior.labels)), epsilon, self.name)
