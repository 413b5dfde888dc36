"""Optimal composition of any mechanisms with one epsilon each, in closed form.

Kairouz, Oh, Viswanath 2015, "The composition theorem for differential privacy", Theorem 3.3: whatever the mechanisms
are, M of them with e-DP each, also chosen adaptively, have at most the divergences of M binary randomized responses,

    delta(epsilon) = sum over l of C(M, l) max(0, X^(M - l) - exp(epsilon) X^l) / (1 + X)^M,    X = exp(e),

and binary randomized response attains them. The sum is exact for an X that is rounded up and an exp(epsilon) that is
rounded down.
"""

from __future__ import annotations

import bisect
import math
from fractions import Fraction

from ..core.budget import MAX_EPSILON, check_epsilon
from ..core.exact_bounds import exp_above, exp_below, round_down
from .loss_distribution import MAX_RECORDS

_BITS = 96
_PRECISION = 2.0**-20


def optimal_delta(label_epsilon: float, records: int, epsilon: float) -> Fraction:
    """Bounds the delta of several records at an epsilon >= 0 of all of them, for any mechanism.

    It is an upper bound of the divergence, in [0, 1]; 0 if the epsilons of the records add up to at most `epsilon`.
    Raises ValueError unless `label_epsilon`, that of each record's label, is in [0, 30] and `records` from 1 to 1000.
    """
    if not 0 <= label_epsilon <= MAX_EPSILON:
        raise ValueError(f"label_epsilon must be between 0 and {MAX_EPSILON:g}, not {label_epsilon:g}")
    _check_records(records)
    return Fraction(*_delta_ratio(label_epsilon, records, epsilon))


def _delta_ratio(label_epsilon: float, records: int, epsilon: float) -> tuple[int, int]:
    """Returns numerator and denominator of `optimal_delta`, not reduced: that takes longer than the sum."""
    if records * Fraction(label_epsilon) <= Fraction(epsilon):
        return 0, 1
    unit = 1 << _BITS
    x = math.ceil(exp_above(Fraction(label_epsilon)) * unit)
    factor = int(exp_below(Fraction(epsilon)) * unit)

    def is_zero(flips: int) -> bool:
        more = records - 2 * flips
        return x**more * unit <= factor << _BITS * more

    # Terms are positive up to some number of flips.
    terms = bisect.bisect_left(range(records // 2 + 1), True, key=is_zero)
    choices = [1]
    for flips in range(terms - 1):
        choices.append(choices[-1] * (records - flips) // (flips + 1))
    # Both sums by Horner's rule, in units of 2^(-_BITS (records + 1)).
    first = second = 0
    for flips in range(terms):
        first = first * x + (choices[flips] << _BITS * flips)
        second = second * x + (choices[terms - 1 - flips] << _BITS * flips)
    rest = records + 1 - terms
    total = (first * x**rest << _BITS) - (factor * second << _BITS * rest)
    return total, (x + unit) ** records << _BITS


def optimal_label_epsilon(epsilon: float, delta: Fraction | float, records: int) -> float:
    """Computes the largest epsilon of each label with which the labels of a unit satisfy (epsilon, delta)-DP.

    It holds for every mechanism, and no larger one does, up to a relative 2^-20. It is rounded down, at least epsilon /
    records and at most `epsilon`. Raises ValueError unless `epsilon` is in [1e-9, 30], `delta` in [0, 1) and `records`,
    those of a unit, from 1 to 1000, or if less than 1e-9 is left for each label.
    """
    check_epsilon(epsilon)
    _check_records(records)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be at least 0 and below 1, not {float(delta)!r}")
    low, high = round_down(Fraction(epsilon) / records), epsilon
    check_epsilon(low)
    if delta == 0:
        return low
    most = Fraction(delta)
    while high - low > low * _PRECISION:
        middle = (low + high) / 2
        top, bottom = _delta_ratio(middle, records, epsilon)
        if top * most.denominator <= most.numerator * bottom:
            low = middle
        else:
            high = middle
    return low


def _check_records(records: int) -> None:
    """Raises ValueError for a number of records out of range."""
    if not 1 <= records <= MAX_RECORDS:
        raise ValueError(f"a composition takes 1 to {MAX_RECORDS} records, not {records}")
