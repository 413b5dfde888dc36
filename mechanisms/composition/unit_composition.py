"""Composition over the labels of a privacy unit: the epsilon of each label, and the least noisy randomizer of all.

The labels of a unit pass through one randomizer, with independent noise, and all of them may change. Without a delta,
each label gets epsilon / records. With one, a closed form gives each label more, whatever the mechanism; and the loss
distribution of the solved randomizer itself may allow still more. The search decides by the integers of
`loss_distribution` alone, so a repeated run finds the same randomizer on every CPU.

The closed form is optimal: Kairouz, Oh, Viswanath 2015, "The composition theorem for differential privacy", Theorem
3.3. Whatever the mechanisms are, M of them with e-DP each, also chosen adaptively, have at most the divergences of M
binary randomized responses,

    delta(epsilon) = sum over l of C(M, l) max(0, X^(M - l) - exp(epsilon) X^l) / (1 + X)^M,    X = exp(e),

and binary randomized response attains them. The sum is exact for an X that is rounded up and an exp(epsilon) that is
rounded down.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..core.budget import MAX_EPSILON, check_epsilon, exp_above, exp_below, round_down, round_up
from ..core.integer_weights import BITS
from ..core.randomizer import Randomizer
from .loss_distribution import MAX_RECORDS, loss_distribution, response_curve, worst_pair_curve

LEAST_DELTA = 1e-15
"""Least delta > 0. Masses of losses are rounded up to multiples of 10^-30, some hundred thousand of them."""

DELTA_MARGIN = Fraction(1, 1 << 20)
"""Share of delta that the search leaves, so that an audit that rounds elsewhere comes to the same verdict."""

_FRACTION_BITS = 96
_PRECISION = 2.0**-20
_GROWTH = 1 + 2.0**-6
# Limits of the auditor (`labeldp/audit/unit_divergence.py`), in pure Python: what it cannot check is not used.
_MOST_SEGMENTS = 512
_MOST_PAIRS_OF_RUNS = 1 << 22


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
    unit = 1 << _FRACTION_BITS
    x = math.ceil(exp_above(Fraction(label_epsilon)) * unit)
    factor = int(exp_below(Fraction(epsilon)) * unit)

    def is_zero(flips: int) -> bool:
        more = records - 2 * flips
        return x**more * unit <= factor << _FRACTION_BITS * more

    # Terms are positive up to some number of flips.
    terms = bisect.bisect_left(range(records // 2 + 1), True, key=is_zero)
    choices = [1]
    for flips in range(terms - 1):
        choices.append(choices[-1] * (records - flips) // (flips + 1))
    # Both sums by Horner's rule, in units of 2^(-_FRACTION_BITS (records + 1)).
    first = second = 0
    for flips in range(terms):
        first = first * x + (choices[flips] << _FRACTION_BITS * flips)
        second = second * x + (choices[terms - 1 - flips] << _FRACTION_BITS * flips)
    rest = records + 1 - terms
    total = (first * x**rest << _FRACTION_BITS) - (factor * second << _FRACTION_BITS * rest)
    return total, (x + unit) ** records << _FRACTION_BITS


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


@dataclass(frozen=True)
class UnitRandomizer:
    """A randomizer for each label of a unit, and what it guarantees to the unit.

    Attributes:
      randomizer: Randomizer of each label.
      records: Largest number of records of a unit.
      epsilon: Requested epsilon of the unit.
      delta: Requested delta of the unit; 0 for pure DP.
      proven_epsilon: Epsilon that is proven with `delta`; not above `epsilon`.
      proven_delta: Delta that is proven with `epsilon`; not above `delta`.
    """

    randomizer: Randomizer
    records: int
    epsilon: float
    delta: float
    proven_epsilon: float
    proven_delta: float


def solve_for_unit(solve: Callable[[float], Randomizer], epsilon: float, delta: float, records: int) -> UnitRandomizer:
    """Solves for the largest epsilon of each label that is proven for the unit.

    Epsilons of labels are those of the closed form times powers of 1 + 1/64, up to `epsilon`. Their steps double until
    one is refused, then the gap is halved: two solves if the closed form is best, about fifteen at most. Randomizers
    that are too large for an audit of their loss distribution get the epsilon of the closed form: one solve.

    `solve` maps the epsilon of a label to its randomizer, which satisfies pure label DP. `epsilon`, in [1e-9, 30], and
    `delta`, 0 or from 1e-15 to below 1, are those of the unit; `records` is the largest number of its records, from 1
    to 1000. Raises ValueError if an argument is out of range, less than 1e-9 is left for each label, or a randomizer
    has a delta of its own.
    """
    if not (delta == 0 or LEAST_DELTA <= delta < 1):
        raise ValueError(f"delta must be 0, or at least {LEAST_DELTA:g} and below 1, not {delta!r}")
    least = optimal_label_epsilon(epsilon, _wanted(delta), records)
    found = _proven(solve(least), epsilon, delta, records)
    if found is None:
        raise ValueError(f"the randomizer does not satisfy epsilon {least!r} of each label")
    if delta == 0 or least >= epsilon or not _auditable(found.randomizer.weights):
        return found
    tried = [least]
    while tried[-1] < epsilon:
        tried.append(min(tried[-1] * _GROWTH, epsilon))
    held, stride, refused = 0, 1, len(tried)
    while refused - held > 1:
        place = min(held + stride, (held + refused) // 2 if refused < len(tried) else len(tried) - 1)
        better = _proven(solve(tried[place]), epsilon, delta, records)
        if better is None:
            refused = place
        else:
            held, found, stride = place, better, 2 * stride
    return found


def _wanted(delta: float) -> Fraction:
    return Fraction(delta) * (1 - DELTA_MARGIN)


def _proven(randomizer: Randomizer, epsilon: float, delta: float, records: int) -> UnitRandomizer | None:
    """Guarantee of a randomizer to a unit; None if that is less than (epsilon, delta)-DP with the margin."""
    if not randomizer.pure:
        raise ValueError("labels of several records of a unit need a mechanism of pure label DP, without a delta")
    own = randomizer.certificate().epsilon
    if delta == 0:
        total = round_up(records * Fraction(own))
        return UnitRandomizer(randomizer, records, epsilon, 0.0, total, 0.0) if total <= epsilon else None
    weights = randomizer.weights
    curve = worst_pair_curve(weights, BITS) if _auditable(weights) else response_curve(own)
    losses = loss_distribution(curve).composed(records)
    total = losses.delta(epsilon)
    if total > _wanted(delta):
        return None
    # With a delta, a margin of it is left, so `delta` itself is proven at an epsilon slightly below the requested one.
    proven = min(losses.epsilon(delta), round_up(records * Fraction(own)), epsilon)
    return UnitRandomizer(randomizer, records, epsilon, delta, proven, round_up(total))


def _auditable(weights: np.ndarray) -> bool:
    """True if the auditor computes the loss distribution of these weights."""
    changes = weights[1:] != weights[:-1]
    runs = changes.sum(axis=0) + 1
    return 1 + changes.any(axis=1).sum() <= _MOST_SEGMENTS and (runs**2).sum() <= _MOST_PAIRS_OF_RUNS
