"""k-ary randomized response: keep the label, or report another one at random.

Source: Warner 1965; Kairouz, Oh, Viswanath 2014 for k labels; Ghazi et al. 2022, Appendix D, as a baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np

from ..core.alias_table import MAX_CELLS, TOTAL
from ..core.budget import check_epsilon
from ..core.exact_bounds import exp_below
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
    """Reports a label's own output with probability E / (E + d - 1), each other one with 1 / (E + d - 1).

    The integers nearest to that on the private side: the other outputs' weight is rounded up and the own output
    gets the rest, so that the ratio is below E = exp(epsilon).

    labels: (k,). outputs: (d,). output_of_label: (k,) integers in [0, d).
    Raises ValueError when epsilon is so small, or d so large, that 2^62 cannot hold the ratio.
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
    """Randomized response over the whole domain; the prior's weights play no part."""

    name: ClassVar[str] = "rr"

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The label itself with probability E / (E + k - 1), else another one."""
        return randomized_response(prior.labels, prior.labels, np.arange(len(prior.labels)), epsilon, self.name)
