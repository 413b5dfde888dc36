"""Split of a budget between several labels of a record: what each needs depends on how many labels its domain has.

All labels of a record may change at once, so their epsilons add up. The split is chosen from public facts alone, the
label domains, before any label is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..center.truncation import COARSE, coarse_randomizer
from ..core.exact_bounds import round_down, within_decimal
from ..core.losses import SQUARED
from ..core.prior import Prior
from ..core.reproducible import dot
from ..registry import Mechanism

_STEPS = 32
"""Steps of epsilon that are compared, at least; and at least so many for each label."""
_STEPS_A_LABEL = 4
_DIGITS = 9
"""Decimal digits of an error that are compared, so that the last bits of a sum decide nothing."""


def label_shares(epsilon: float, domains: Sequence[np.ndarray], mechanism: Mechanism) -> list[Fraction]:
    """Chooses the share of each label for which the sum of the relative errors is least.

    The relative error of a label is E (z - y)^2 / Var y, for a released label z of a label y that is equally often
    each one of its domain: 1 where z says as little as a constant. Labels whose domains have the same shape get equal
    shares, so labels that are all alike get 1 / m each. Between shapes, all splits in steps of epsilon / 32 are
    compared, because errors need not be convex in epsilon. Each label gets at least 1 / (2 m): of a mechanism with bias
    it could be best to give up a label, but it was asked for.

    `epsilon` is the budget of all labels of a record together; the m domains have shapes (k,), ascending float64. The m
    shares are positive, sum to 1 and are the same on every machine.
    """
    shapes = [_shape(domain) for domain in domains]
    sizes = Counter(shapes)
    if len(sizes) == 1:
        return [Fraction(1, len(domains))] * len(domains)
    steps = max(_STEPS, _STEPS_A_LABEL * len(domains))
    # By steps that are spent: the least error, and the steps of each shape so far.
    least = {shape: math.ceil(Fraction(steps * size, 2 * len(domains))) for shape, size in sizes.items()}
    spare = steps - sum(least.values())
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for shape, size in sizes.items():
        domain = domains[shapes.index(shape)]
        errors = {
            number: size * _relative_error(domain, mechanism, epsilon * number / (steps * size))
            for number in range(least[shape], least[shape] + spare + 1)
        }
        extended: dict[int, tuple[float, tuple[int, ...]]] = {}
        for spent, (error, numbers) in best.items():
            for number, own in errors.items():
                candidate = float(f"{error + own:.{_DIGITS}e}"), (*numbers, number)
                if spent + number <= steps and candidate < extended.get(spent + number, (math.inf, ())):
                    extended[spent + number] = candidate
        best = extended
    numbers = dict(zip(sizes, best[steps][1], strict=True))
    return [Fraction(numbers[shape], steps * sizes[shape]) for shape in shapes]


def _shape(domain: np.ndarray) -> tuple[float, ...]:
    """The domain moved and scaled to [0, 1], on which relative errors do not depend."""
    width = domain[-1] - domain[0]
    return tuple(np.round((domain - domain[0]) / width, _DIGITS).tolist()) if width else (0.0,)


def _relative_error(domain: np.ndarray, mechanism: Mechanism, epsilon: float) -> float:
    if len(domain) == 1:
        return 0.0
    try:
        prior, randomizer = coarse_randomizer(Prior(domain, np.ones(len(domain))), mechanism, epsilon, COARSE)
    except ValueError:
        return math.inf
    spread = dot(prior.weights, (prior.labels - dot(prior.weights, prior.labels)) ** 2)
    return randomizer.expected_loss(prior, SQUARED) / spread


def split_exactly(total: float, shares: Sequence[Fraction]) -> list[float]:
    """Splits an epsilon or delta >= 0 so that the parts add up to at most the total, in exact arithmetic.

    The shares are positive and sum to 1. The exact sum of the parts, rounded up to a float, is the total, or the float
    below if the total is above the decimal that it was read from.
    """
    total = within_decimal(total)
    parts = [round_down(Fraction(total) * share) for share in shares[:-1]]
    return [*parts, round_down(Fraction(total) - sum(map(Fraction, parts)))]
