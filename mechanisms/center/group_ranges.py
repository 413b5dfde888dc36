"""Ranges to which the residuals of groups are clipped before they are randomized.

The objective of `truncation`, summed over all records, is

    sum_g w_g (E_g (t(r) - r)^2 + q L_g^2)

for the share w_g of group g in the records, its range of length L_g, and the error q = (E b^2 + p / n E v) / L^2 of the
randomizer of positions, for a range of length 1. Given q, each group has its own best range, and no mechanism is solved
to find it. q changes little with the ranges: it is taken from the best range of all records together, and twice more
from the ranges that were found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.prior import Prior
from ..registry import Mechanism
from .group_positions import GroupRanges
from .grouped_histogram import GroupedHistogram
from .truncation import (
    COARSE,
    MODEL_PARAMETERS,
    candidate_ranges,
    choose_range,
    clipped_prior,
    clipping_error,
    mechanism_error,
    noise_share,
)

_ROUNDS = 2


@dataclass(frozen=True)
class ChosenRanges:
    """Ranges to which the residuals of groups are clipped, and the error that they were chosen for.

    The error is infinite if the mechanism supports no range that was tried.
    """

    ranges: GroupRanges
    error: float


def choose_group_ranges(
    histogram: GroupedHistogram, mechanism: Mechanism, epsilon: float, parameters: int = MODEL_PARAMETERS
) -> ChosenRanges:
    """Chooses the ranges of the residuals of groups for a mechanism of the positions and its budget.

    `parameters` is the number p of parameters of the model, >= 1.
    """
    records, groups, most = sum(histogram.records), len(histogram.records), histogram.residuals.most
    pooled = choose_range(histogram.pooled, mechanism, epsilon, records, parameters)
    ranges = GroupRanges(((pooled.first - most, pooled.last - most),) * groups)
    share = noise_share(records, parameters)
    prior = clipped_prior(histogram.pooled, pooled.first, pooled.last)
    quotient = _quotient(prior, mechanism, epsilon, share)
    if not math.isfinite(quotient):
        return ChosenRanges(ranges, math.inf)
    for _ in range(_ROUNDS):
        chosen = {id(prior): _best(prior, quotient) for prior in histogram.priors}
        ends = (chosen[id(prior)] for prior in histogram.priors)
        ranges = GroupRanges(tuple((first - most, last - most) for first, last in ends))
        prior = histogram.position_prior(ranges)
        quotient = _quotient(prior, mechanism, epsilon, share)
        if not math.isfinite(quotient):
            return ChosenRanges(ranges, math.inf)
    noise = quotient * float(prior.labels[-1] - prior.labels[0]) ** 2
    return ChosenRanges(ranges, histogram.clipping(ranges).squared + noise)


def _quotient(prior: Prior, mechanism: Mechanism, epsilon: float, share: float) -> float:
    """Error of a mechanism in a model, divided by the square of its range."""
    noise, bias = mechanism_error(prior, mechanism, epsilon, COARSE)
    return (bias + share * noise) / float(prior.labels[-1] - prior.labels[0]) ** 2


def _best(prior: Prior, quotient: float) -> tuple[int, int]:
    """Indices of the ends of the best range of a distribution of residuals."""
    ranges = list(candidate_ranges(prior))
    labels = prior.labels
    errors = [
        clipping_error(prior, float(labels[first]), float(labels[last])).squared
        + quotient * float(labels[last] - labels[first]) ** 2
        for first, last in ranges
    ]
    return ranges[int(np.argmin(errors))]
