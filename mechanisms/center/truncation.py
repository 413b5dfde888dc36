"""Range to which residuals are clipped before they are randomized.

The noise of a mechanism grows with the square of its range, and few residuals are far from 0, so a shorter range gives
less noise. But noise averages out over the records that a model is trained on, and the bias of clipped residuals does
not. For a residual r, its clipped value t(r) and features x, the best model of the released labels is off by
E[t(r) - r | x], whose mean square is at most E (t(r) - r)^2, whatever the features are. A model with p parameters that
is trained on n records with noise of variance v has an error of p / n v (see `model_error`). The range is chosen to
minimize

    E (t(r) - r)^2 + E b(t(r))^2 + p / n E v(t(r))

for the bias b and the variance v of the mechanism. All of it is computed from the noised histogram of the residuals and
from public numbers, so it costs no budget.

If the error of the mechanism depends on the length of the range alone, its best ends [a, b] have equal expected
excesses: E max(r - b, 0) = E max(a - r, 0). So only such ranges are tried, and the whole domain.

Solving takes most of the time, and the error of a mechanism divided by the square of the length changes little from
one range to the next. So only ranges are solved that would be the best if this quotient were the smaller one of those
of the nearest solved ranges on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.prior import Prior
from ..core.quality import variances
from ..core.randomizer import Randomizer
from ..core.reproducible import dot
from ..registry import Mechanism

MODEL_PARAMETERS = 100
"""Parameters p of the model for which a range is chosen: between a linear model of few features and boosted trees."""

MOST_RESIDUALS = 1 << 12
"""Largest number of residuals of a domain, the most that `unbiased` supports: whether a mechanism supports a range must
not depend on the noised histogram, because a job that fails is not charged."""

COARSE = 33
"""Errors are computed on at most this many residuals."""

# Ranges are compared on fewer: the shape of the error does not need more.
_COARSEST = 17
# Ranges are not solved for less than this share of the least error.
_WORTH = 1 / 256
# Expected excesses that are tried: the largest one divided by powers of this.
_RATIO = 2**0.5
_LEVELS = 28


@dataclass(frozen=True)
class ClippingError:
    """Error of residuals that are clipped to a range, under a distribution of the residuals.

    Attributes:
      share: Share of the residuals outside the range.
      bias: Mean of the clipped residual minus the residual, in units of the label.
      squared: Mean of the square of that difference.
    """

    share: float
    bias: float
    squared: float


def clipping_error(prior: Prior, low: float, high: float) -> ClippingError:
    """Computes the error of residuals that are clipped to the range [low, high], in units of the label."""
    moved = np.clip(prior.labels, low, high) - prior.labels
    return ClippingError(
        dot(prior.weights, (moved != 0).astype(np.float64)), dot(prior.weights, moved), dot(prior.weights, moved**2)
    )


def clipped_prior(prior: Prior, first: int, last: int) -> Prior:
    """Moves the tails of a distribution to the ends of a range: it is then over the labels first, ..., last.

    Both are indices, `last` at least `first`.
    """
    weights = prior.weights[first : last + 1].copy()
    weights[0] += prior.weights[:first].sum()
    weights[-1] += prior.weights[last + 1 :].sum()
    return Prior(prior.labels[first : last + 1], weights)


@dataclass(frozen=True)
class ResidualRange:
    """Range to which residuals are clipped: the indices of its two ends, and the error that it was chosen for.

    Both ends are inclusive. The error is infinite if the mechanism supports no range that was tried.
    """

    first: int
    last: int
    error: float


def choose_range(
    prior: Prior, mechanism: Mechanism, epsilon: float, records: int, parameters: int = MODEL_PARAMETERS
) -> ResidualRange:
    """Chooses the range of the residuals for a mechanism of the clipped residuals and its budget.

    The prior is the distribution of the residuals, evenly spaced; noised or public. `records` is n, >= 1, and
    `parameters` the number p of parameters of the model, >= 1. If the mechanism supports no range, the result is the
    widest one that is tried.
    """
    ranges = list(candidate_ranges(prior))
    squares = np.array([(prior.labels[last] - prior.labels[first]) ** 2 for first, last in ranges])
    clipping = np.array([clipping_error(prior, *prior.labels[list(ends)].tolist()).squared for ends in ranges])
    share = noise_share(records, parameters)

    def error(place: int, most: int) -> float:
        noise, bias = mechanism_error(clipped_prior(prior, *ranges[place]), mechanism, epsilon, most)
        return bias + share * noise

    solved: dict[int, float] = {}
    place = 0
    while place not in solved:
        solved[place] = error(place, _COARSEST)
        if len(solved) == 1:
            # The other end.
            place = len(ranges) - 1
            continue
        known = np.array(sorted(solved))
        found = np.array([solved[each] for each in known.tolist()])
        # Nothing is known around a range that the mechanism does not support.
        quotients = np.where(np.isfinite(found), found, 0.0) / squares[known]
        after = np.searchsorted(known, np.arange(len(ranges)))
        expected = clipping + squares * np.minimum(quotients[np.maximum(after - 1, 0)], quotients[after])
        expected[known] = found + clipping[known]
        best = int(known[np.argmin(expected[known])])
        place = int(np.argmin(expected))
        if expected[place] >= (1 - _WORTH) * expected[best]:
            place = best
    return ResidualRange(*ranges[place], error(place, COARSE) + float(clipping[place]))


def training_error(
    prior: Prior, mechanism: Mechanism, epsilon: float, records: int, parameters: int = MODEL_PARAMETERS
) -> float:
    """Estimates the squared error that a mechanism causes in a model trained on its labels: E b^2 + p / n E v.

    It is computed on at most 33 labels, to which the prior is summed up. It is infinite if the mechanism does not
    support the prior or the epsilon. `records` is n, >= 1, and `parameters` p, >= 1.
    """
    noise, bias = mechanism_error(prior, mechanism, epsilon, COARSE)
    return bias + noise_share(records, parameters) * noise


def noise_share(records: int, parameters: int) -> float:
    """Share of the noise of the labels that is left in a model: p / n, at most 1, for p >= 1 and n >= 1."""
    return min(parameters / records, 1.0)


def candidate_ranges(prior: Prior) -> Iterator[tuple[int, int]]:
    """Yields the ranges that are tried: distinct ones of equal excess at both ends, from the widest to the narrowest.

    A range is the indices of its lower and of its upper end.
    """
    above, below = _excess(prior), _excess(Prior(-prior.labels[::-1], prior.weights[::-1]))
    last = len(prior.labels) - 1
    middle = min(int(np.searchsorted(np.cumsum(prior.weights), 0.5)), last)
    most = max(above[middle], below[last - middle])
    seen = {(0, last)}
    yield 0, last
    for level in reversed(range(_LEVELS)):
        limit = most * _RATIO**-level
        # Excesses fall with the residual; the first residual with at most the limit is the end.
        high = max(int(np.argmax(above <= limit)), middle)
        low = min(last - int(np.argmax(below <= limit)), middle)
        # A single residual would be a range without noise, and without anything about the label.
        found = [(low, high)] if low < high else [(low - 1, high + 1), (low - 1, high), (low, high + 1)]
        for ends in found:
            if ends not in seen and ends[0] >= 0 and ends[1] <= last:
                seen.add(ends)
                yield ends


def _excess(prior: Prior) -> np.ndarray:
    """E max(r - b, 0) for each residual b, shape (m,), falling to 0."""
    beyond = 1 - np.cumsum(prior.weights)
    steps = np.diff(prior.labels) * np.maximum(beyond[:-1], 0.0)
    return np.append(np.cumsum(steps[::-1])[::-1], 0.0)


def mechanism_error(prior: Prior, mechanism: Mechanism, epsilon: float, most: int) -> tuple[float, float]:
    """Computes variance and squared bias of a mechanism, approximately: for the prior on at most `most` labels.

    Both are means under the prior, whose labels are evenly spaced, and infinite if the mechanism does not support the
    prior or the epsilon.
    """
    try:
        prior, randomizer = coarse_randomizer(prior, mechanism, epsilon, most)
    except ValueError:
        return np.inf, np.inf
    return dot(prior.weights, variances(randomizer)), dot(prior.weights, randomizer.bias() ** 2)


def coarse_randomizer(prior: Prior, mechanism: Mechanism, epsilon: float, most: int) -> tuple[Prior, Randomizer]:
    """Solves a mechanism for a prior that is summed up to at most `most` labels; returns that prior, too.

    The labels of the prior are evenly spaced. Raises ValueError if the mechanism does not support the prior or the
    epsilon.
    """
    size = len(prior.labels)
    if size > most:
        position = np.arange(most) * ((size - 1) / (most - 1))
        below = np.minimum(position.astype(np.int64), size - 2)
        labels = prior.labels[below] + (position - below) * (prior.labels[below + 1] - prior.labels[below])
        place = (2 * np.arange(size) * (most - 1) + (size - 1)) // (2 * (size - 1))
        prior = Prior(labels, np.bincount(place, prior.weights, most))
    return prior, mechanism.solve(prior, epsilon)
