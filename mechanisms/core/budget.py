"""Privacy budgets: the range of epsilon, and its split between the label histogram and the randomizer.

Source: Ghazi et al. 2022, Algorithm 4 with Theorem 7.
"""

from __future__ import annotations

import math
from fractions import Fraction

from .exact_bounds import round_down

MIN_EPSILON = 1e-9


MAX_EPSILON = 30.0
"""Outside these, 64-bit weights cannot hold the ratios with a useful precision."""


# Splits are multiples of this, so that the noise's scale is a small fraction and sampling stays cheap.
_SPLIT_GRAIN = Fraction(1, 1 << 24)


def check_epsilon(epsilon: float) -> None:
    """Raises ValueError unless 1e-9 <= epsilon <= 30."""
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon must be between {MIN_EPSILON:g} and {MAX_EPSILON:g}, not {epsilon:g}")


def split_budget(epsilon: float, labels: int, records: int, prior_epsilon: float | None = None) -> tuple[float, float]:
    """What the histogram and the randomizer may spend: e1 = sqrt(k / n), never more than epsilon / 2.

    Ghazi et al. 2022, Theorem 7. labels: k. records: n. prior_epsilon: overrides e1.
    Returns (e1, e2), floats with e1 + e2 <= epsilon in exact arithmetic.
    Raises ValueError for no records, an epsilon out of range or too small to split, or a prior_epsilon that is not
    in (0, epsilon).
    """
    check_epsilon(epsilon)
    if records < 1:
        raise ValueError("there must be at least one record")
    if prior_epsilon is None:
        rule = min(Fraction(math.sqrt(labels / records)), Fraction(epsilon) / 2)
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
    return float(first), round_down(second)
