"""Privacy budgets: the range of epsilon, and its split between the label histogram and the randomizer.

Source: Ghazi et al. 2022, Algorithm 4 and Theorem 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from .exact_bounds import round_down, round_up, within_decimal

MIN_EPSILON = 1e-9
MAX_EPSILON = 30.0
"""Largest epsilon. Outside [MIN_EPSILON, MAX_EPSILON], 64-bit weights cannot represent the ratios precisely enough."""

# Default splits are multiples of this, so that the noise scale is a small fraction, from which sampling is fast.
_SPLIT_GRAIN = Fraction(1, 1 << 24)

LABEL_SHARE = Fraction(1, 2)
"""Largest share of epsilon for the histogram of a mechanism of least loss of each label, such as rr_on_bins."""
UNBIASED_SHARE = Fraction(1, 128)
"""Largest share for mechanisms without bias. Their variance falls with the square of epsilon or faster, so a share s
costs at least 2 s of it; the prior only decides which labels get more of the variance than others."""
PUBLIC_SHARE = Fraction(1, 256)
"""Largest share for mechanisms that do not depend on the prior. The histogram then only serves to state the expected
loss and to audit the labels."""
LEAST_RESIDUAL_SHARE, RESIDUAL_SHARE = Fraction(1, 32), Fraction(1, 8)
"""Least and largest share around a center, where the histogram of the residuals decides their range: at a large epsilon
a coarse histogram costs more than the noise of the labels (`benchmarks/ranges.py`)."""


def check_epsilon(epsilon: float) -> None:
    """Raises ValueError unless 1e-9 <= epsilon <= 30."""
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon must be between {MIN_EPSILON:g} and {MAX_EPSILON:g}, not {epsilon:g}")


@dataclass(frozen=True)
class BudgetSplit:
    """Epsilon of a release, in its two sequential parts.

    Attributes:
      prior: Epsilon of the label histogram, >= 0; 0 for a public prior.
      labels: Epsilon of the randomizer, in [1e-9, 30].
    """

    prior: float
    labels: float

    def __post_init__(self) -> None:
        """Raises ValueError for a part out of range."""
        if not 0 <= self.prior < math.inf:
            raise ValueError(f"the epsilon of the prior must be finite and not negative, not {self.prior:g}")
        check_epsilon(self.labels)

    @property
    def total(self) -> float:
        """Epsilon of both parts together, rounded up."""
        return round_up(Fraction(self.prior) + Fraction(self.labels))


def decimal_budget(epsilon: float) -> float:
    """Rounds a budget down to the decimal that was written, but for the smallest budgets, whose floats are above it.

    The result is the largest float that is neither above the budget nor above its decimal; at least 2e-9 where the
    budget is.
    """
    return max(within_decimal(epsilon), min(epsilon, 2 * MIN_EPSILON))


def remaining_epsilon(epsilon: float, spent: float) -> float:
    """Epsilon less what was spent, rounded down, so that both together are at most `epsilon` in exact arithmetic."""
    return epsilon if spent == 0 else round_down(Fraction(epsilon) - Fraction(spent))


def split_budget(
    epsilon: float,
    labels: int,
    records: int,
    prior_epsilon: float | None = None,
    most: Fraction = LABEL_SHARE,
    least: Fraction = Fraction(0),
) -> BudgetSplit:
    """Splits a budget between the label histogram and the randomizer.

    By default the histogram gets sqrt(k / n) (Ghazi et al. 2022, Theorem 7), but at most a share of epsilon that
    depends on the mechanism: `registry.prior_share`. `benchmarks/splits.py` compares this rule with the best splits.

    Args:
      epsilon: Total budget, in [1e-9, 30].
      labels: Number of labels k of the domain.
      records: Number of records n, >= 1.
      prior_epsilon: Budget of the histogram instead of the default, in [1e-9, epsilon).
      most: Largest share of epsilon that the default gives to the histogram.
      least: Least share of epsilon that the default gives to it, at most `most`.

    Returns:
      A split whose sum is at most `epsilon` in exact arithmetic.

    Raises:
      ValueError: If there are no records, `epsilon` or `prior_epsilon` is out of range, or less than 1e-9 remains for
        the labels.
    """
    check_epsilon(epsilon)
    if records < 1:
        raise ValueError("there must be at least one record")
    if prior_epsilon is None:
        if Fraction(epsilon) < 2 * Fraction(MIN_EPSILON):
            raise ValueError(
                f"epsilon must be at least {2 * MIN_EPSILON:g} for a histogram and labels, {MIN_EPSILON:g} each, not "
                f"{epsilon:g}: 64-bit weights cannot represent smaller differences of probabilities"
            )
        total = Fraction(epsilon)
        rule = max(min(Fraction(math.sqrt(labels / records)), total * most), total * least, Fraction(MIN_EPSILON))
        grains = rule // _SPLIT_GRAIN
        first = grains * _SPLIT_GRAIN if grains else rule
    else:
        if not MIN_EPSILON <= prior_epsilon < epsilon:
            raise ValueError(
                f"prior_epsilon must be at least {MIN_EPSILON:g} and below epsilon {epsilon:g}, not {prior_epsilon:g}"
            )
        first = Fraction(prior_epsilon)
    second = Fraction(epsilon) - first
    if second < Fraction(MIN_EPSILON):
        raise ValueError(f"prior_epsilon {float(first):g} leaves too little of epsilon {epsilon:g} for the labels")
    return BudgetSplit(float(first), round_down(second))
