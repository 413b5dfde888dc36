"""Search of the least noisy randomizer with which all labels of a privacy unit satisfy (epsilon, delta)-DP.

The labels of a unit pass through one randomizer, with independent noise, and all of them may change. Without a delta,
each label gets epsilon / records. With one, `closed_form` gives each label more, whatever the mechanism; and the loss
distribution of the solved randomizer itself may allow still more. The search decides by the integers of
`loss_distribution` alone, so a repeated run finds the same randomizer on every CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..core.alias_table import BITS
from ..core.exact_bounds import round_up
from ..core.randomizer import Randomizer
from .closed_form import optimal_label_epsilon
from .loss_curve import response_curve, worst_pair_curve
from .loss_distribution import loss_distribution

LEAST_DELTA = 1e-15
"""Least delta > 0. Masses of losses are rounded up to multiples of 10^-30, some hundred thousand of them."""

DELTA_MARGIN = Fraction(1, 1 << 20)
"""Share of delta that the search leaves, so that an audit that rounds elsewhere comes to the same verdict."""

_GROWTH = 1 + 2.0**-6
# Limits of the auditor (`pipelines/audit/unit_divergence.py`), in pure Python: what it cannot check is not used.
_MOST_SEGMENTS = 512
_MOST_PAIRS_OF_RUNS = 1 << 22


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
