"""Privacy budgets: the range of epsilon, its split between histogram and labels, and exact bounds for both.

The split is that of Ghazi et al. 2022, Algorithm 4 and Theorem 7. Exact rationals bound exponentials and logarithms of
epsilon, floats are rounded away from what they must not exceed, and a float that a person wrote means its decimal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

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
CLASS_SHARE = Fraction(1, 32)
"""Least bound of the share for classes: the histogram tells models and verdicts how frequent they are."""
LEAST_RESIDUAL_SHARE, RESIDUAL_SHARE = Fraction(1, 32), Fraction(1, 8)
"""Least and largest share around a center, where the histogram of the residuals decides their range: at a large epsilon
a coarse histogram costs more than the noise of the labels (`benchmarks/ranges.py`)."""
CELL_RESIDUAL_SHARE = Fraction(1, 2)
"""Largest share around a center of cells, after which so little is left that the least share is one of the whole
epsilon: labels add nearly nothing then, and the histogram states what the center misses."""

# Decimal digits of exp and ln. The decimal module rounds both correctly (to half a unit in the last place), so the next
# decimal below or above the result is a bound.
_DIGITS = 60
_DECIMAL_DIGITS = 10
"""Digits of a budget that a person writes. Of computed bounds, one in a million is the float of such a decimal."""


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


def whole_grains(epsilon: float) -> float:
    """Rounds a budget down to a small fraction, of which differences are exact; the smallest ones stay as they are."""
    return float(Fraction(epsilon) // _SPLIT_GRAIN * _SPLIT_GRAIN) or epsilon


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


def decimal_value(number: float) -> Fraction:
    """Reads a budget, a finite float or an integer, as it was written.

    The result is the decimal of at most ten significant digits that the float was read from, such as 1/10 of 0.1. It is
    the float itself if there is none: a computed bound counts as it is.
    """
    number = float(number)
    decimal = Decimal(repr(number))
    return Fraction(decimal) if len(decimal.normalize().as_tuple().digits) <= _DECIMAL_DIGITS else Fraction(number)


def within_decimal(number: float) -> float:
    """Largest float that is neither above a finite number nor above its `decimal_value`."""
    return round_down(min(Fraction(number), decimal_value(number)))


def shown_above(exact: Fraction) -> float:
    """Rounds a sum of budgets to a float that is written as no less.

    The result is the nearest float if its `decimal_value` is at least the sum, such as 0.3 for 3/10; else the next one
    above.
    """
    nearest = float(exact)
    return nearest if decimal_value(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """Largest float that is not above a rational, which is within the range of floats."""
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def round_up(exact: Fraction) -> float:
    """Smallest float that is not below a rational, which is within the range of floats."""
    return 0.0 - round_down(-exact)


def exp_below(exponent: Fraction) -> Fraction:
    """Rational >= 1 that is proven not to be above exp(exponent), for an exponent >= 0.

    Its relative error is at most 10^-50.
    """
    if exponent == 0:
        return Fraction(1)
    below = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    argument = below.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return max(Fraction(below.next_minus(below.exp(argument))), Fraction(1))


def log_above(ratio: Fraction) -> float:
    """Smallest float that is proven not to be below ln(ratio), for a ratio >= 1."""
    if ratio == 1:
        return 0.0
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    argument = above.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return round_up(Fraction(above.next_plus(above.ln(argument))))


def satisfies_epsilon(ratio: Fraction, epsilon: float) -> bool:
    """True if ln(ratio) <= epsilon is proven, for a likelihood ratio >= 1 and an epsilon >= 0."""
    return ratio <= exp_below(Fraction(epsilon))
