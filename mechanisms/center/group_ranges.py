"""Residuals of groups of records: a range for each group, as labels of one randomizer, and its choice from histograms.

Positions. Records belong to groups by a public column. The residuals of group g are clipped to a range of their own,
[a_g, b_g] in steps of the label grid. One randomizer M takes K evenly spaced labels, the positions 0, ..., K - 1 in a
range. A residual r of group g has the position

    (clip(r) - a_g) (K - 1) / (b_g - a_g),

a rational number. If it is not an integer, one of its two neighbors is drawn with the probabilities that keep its mean.
An output of M is mapped back by the inverse line of the group, so labels are as unbiased as M is, and the noise of a
group is proportional to the length of its range.

Privacy. The random bits that decide between two neighbors may be any fixed function of a record's identity and a secret
key, by the proof in `label_grid`: for every value of the bits, the position is a function of the record's own label,
and M satisfies its epsilon for any two positions. The way back depends on the group alone, which is public.

Units. The labels of M are stated in units of the label. Their distance from the first to the last is the root mean
square length L of the ranges, over the records, and the residual 0 is where it is in the ranges on average. For a prior
of the positions in which a record of group g has a weight proportional to the square of its length L_g, the expected
squared loss of M is then the mean squared error of all records, sum_g w_g (L_g / L)^2 E_g[error^2] for the share w_g of
the records.

Histograms. Residuals are counted per group, in the cells of `residuals`. A record is in one group, whatever its label
is, so a changed label changes two counts by one, as without groups, and the noise of each count is the same. The number
of records of a group is public. The distribution of all records is estimated from the sum of all histograms, whose
noise grows with their number. So only the largest groups have histograms of their own, as many as the number of records
allows, and the others have one together. Which ones depends on public numbers alone.

Classes. Groups with histograms are put into classes of similar spread, and the distribution of a class is estimated
from the counts of all of its groups. The spread of a group is the factor by which the distribution of all records must
be stretched to come closest to the noised counts, in squared distance; powers of the square root of 2 are compared. The
factor is 1 unless another one is closer by more than noise explains.

Choice. The objective of a single range (see `residuals`), summed over all records, is

    sum_g w_g (E_g (t(r) - r)^2 + q L_g^2)

for the error q = (E b^2 + p / n E v) / L^2 of the randomizer of positions, for a range of length 1. Given q, each group
has its own best range, and no mechanism is solved to find it. q changes little with the ranges: it is taken from the
best range of all records together, and twice more from the ranges that were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot
from ..noise.keyed_words import Groups
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from ..registry import Mechanism
from .residuals import (
    COARSE,
    MODEL_PARAMETERS,
    ClippingError,
    Moment,
    ResidualDomain,
    candidate_ranges,
    choose_range,
    clipped_prior,
    clipping_error,
    mechanism_error,
    noise_share,
)

MOST_VALUES = 15
"""Largest number of declared values."""

MOST_POSITIONS = 129
"""Largest number K of positions. The variance of drawing a neighbor is at most (L_g / 256)^2, L_g^2 / 98,304 for
residuals that are spread over a whole range."""

# H histograms need this many records times H^1.5 for each unit of 1 / epsilon.
_RECORDS_NEEDED = 150
# Exponents of the factors sqrt(2)^j.
_FACTORS = range(-8, 9)
# A factor must lower the squared distance by this many times the variance of the noise of a count, at least.
_SIGNIFICANT = 16
_CHOICE_ROUNDS = 2


@dataclass(frozen=True)
class LabelGroups:
    """Groups of records: one for each declared value of a public column, then one for all other records.

    Attributes:
      column: Name of the column. It holds text, integers or booleans.
      values: The declared values as text, all different. Integers are written in decimal digits, booleans as 0 and 1.
    """

    column: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for no value, too many, or two equal ones."""
        if not 1 <= len(self.values) <= MOST_VALUES:
            raise ValueError(f"groups need 1 to {MOST_VALUES} values, not {len(self.values)}")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"two groups have the same value of {self.column!r}")

    @property
    def size(self) -> int:
        """Number of groups; the last one is that of all other values, and of records without a value."""
        return len(self.values) + 1

    @property
    def request(self) -> Groups:
        """The groups as noise is bound to them."""
        return self.column, self.values


@dataclass(frozen=True)
class GroupRanges:
    """Ranges of the residuals of groups: the first and last residual of each group, in steps of the label grid."""

    ends: tuple[tuple[int, int], ...]

    def check(self, residuals: ResidualDomain) -> None:
        """Raises ValueError unless there are ranges, of at least two residuals each, and all within the domain."""
        if not self.ends or not all(-residuals.most <= low < high <= residuals.most for low, high in self.ends):
            raise ValueError("the ranges of the groups are not ranges of at least two residuals of the label domain")

    @property
    def lengths(self) -> np.ndarray:
        """Length of each range in steps, shape (groups,), int64."""
        return np.array([high - low for low, high in self.ends], np.int64)

    @property
    def positions(self) -> int:
        """Number of positions K: as many as the longest range has residuals, at most `MOST_POSITIONS`."""
        return int(min(self.lengths.max() + 1, MOST_POSITIONS))

    def find(self, steps: np.ndarray, groups: np.ndarray, positions: int, words: np.ndarray) -> np.ndarray:
        """Finds the positions of residuals, shape (n,), integers in [0, K).

        `steps` and `groups`, the residuals in steps and the group of each, have shape (n,), integers; `positions` is K,
        >= 2. `words` has one uniform random word for each residual, shape (n,), uint64. A residual between two
        positions goes to the upper one with a probability equal to its distance from the lower one, up to 2^-32.
        """
        whole, rest, length = self._divided(steps, groups, positions)
        return whole + (words % length.astype(np.uint64) < rest.astype(np.uint64))

    def spread(self, steps: np.ndarray, group: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Finds the two positions that each residual of a group may get.

        `steps`, the residuals in steps, has shape (m,), integers; `positions` is K, >= 2. The result is the lower
        position of each, shape (m,), integers, and the probability of the one above it, shape (m,).
        """
        whole, rest, length = self._divided(steps, np.full(len(steps), group), positions)
        return whole, rest / length

    def _divided(
        self, steps: np.ndarray, groups: np.ndarray, positions: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Quotients and remainders of positions, and their divisors."""
        low, high = np.array(self.ends, np.int64).T
        first, length = low[groups], (high - low)[groups]
        inside = np.minimum(np.maximum(np.asarray(steps, np.int64) - first, 0), length)
        whole, rest = np.divmod(inside * (positions - 1), length)
        return whole, rest, length

    def outputs(self, randomizer: Randomizer, residuals: ResidualDomain) -> np.ndarray:
        """Maps the outputs of a randomizer, whose labels are positions, back to the residuals of each group.

        The result has shape (groups, m), float64, in units of the label, and the same bits on every machine.
        """
        ends = residuals.grid[np.array(self.ends) + residuals.most]
        first, last = randomizer.labels[0], randomizer.labels[-1]
        scale = (ends[:, 1] - ends[:, 0]) / (last - first)
        return ends[:, :1] + (randomizer.outputs - first)[None, :] * scale[:, None]

    def labels(self, records: Sequence[int], residuals: ResidualDomain) -> np.ndarray:
        """Labels of a randomizer of positions, shape (K,), float64, ascending and evenly spaced, in units of the label.

        `records` has the number of records of each group; ranges count the same if there are none.
        """
        counts = [int(count) for count in records] if any(records) else [1] * len(self.ends)
        # In exact integers, so that only the last operations are rounded.
        squares = sum(count * (high - low) ** 2 for count, (low, high) in zip(counts, self.ends, strict=True))
        starts = sum(count * (high - low) * low for count, (low, high) in zip(counts, self.ends, strict=True))
        step = (residuals.labels[-1] - residuals.labels[0]) / residuals.most
        length = np.sqrt(squares / sum(counts)) * step
        start = length * (starts / squares)
        return start + length * (np.arange(self.positions) / (self.positions - 1))


def supports_histograms(histograms: int, records: int, prior_epsilon: float) -> bool:
    """True if records are enough for a number of histograms, >= 1; always True for one histogram.

    The noise of the sum of H histograms is as large as that of one with H^0.5 as large a scale, and each of them has
    about an H-th of the records. The number of records is public.
    """
    return histograms == 1 or bool(records * prior_epsilon >= _RECORDS_NEEDED * histograms * histograms**0.5)


def histogram_of_groups(records: Sequence[int], histograms: int) -> np.ndarray:
    """Assigns groups to histograms: the largest groups have one of their own, the others the last one together.

    The result is the histogram of each group, shape (groups,), integers, for at most as many histograms as groups. Of
    groups with equal numbers of records, the first counts as larger.
    """
    order = sorted(range(len(records)), key=lambda group: (-records[group], group))
    found = np.full(len(records), histograms - 1)
    # In the order of the groups, like everything that is stated for groups.
    found[sorted(order[: histograms - 1])] = np.arange(histograms - 1)
    return found


def merged_counts(counts: np.ndarray, records: Sequence[int], histograms: int) -> np.ndarray:
    """Adds up the counts of groups that share a histogram.

    Counts are per group and cell, group after group, shape (groups * cells,), integers; the result is per histogram and
    cell, shape (histograms * cells,), int64. `records` has the number of records of each group.
    """
    found = np.zeros((histograms, len(counts) // len(records)), np.int64)
    np.add.at(found, histogram_of_groups(records, histograms), np.reshape(counts, (len(records), -1)))
    return found.ravel()


class GroupedHistogram:
    """Noised histograms of the residuals of groups.

    Attributes:
      residuals: The residual domain.
      counts: Noised records per histogram and cell, shape (histograms, cells), int64.
      records: Number of records of each group, which is public.
      prior_epsilon: Budget of the histograms.
      of_group: Histogram of each group, shape (groups,), integers.
    """

    def __init__(self, residuals: ResidualDomain, counts: Sequence[int], records: Sequence[int], prior_epsilon: float):
        """Makes the histogram from counts, histogram after histogram, shape (histograms * cells,).

        Raises ValueError if there are not one to `groups` counts for each cell, or no records.
        """
        histograms, rest = divmod(len(counts), residuals.cells)
        if rest or not 1 <= histograms <= len(records):
            raise ValueError("there are not as many counts as cells of residuals, for one to all groups")
        if not any(records):
            raise ValueError("there must be at least one record")
        self.residuals = residuals
        self.counts = np.array(counts, np.int64).reshape(histograms, residuals.cells)
        self.records = tuple(int(count) for count in records)
        self.prior_epsilon = prior_epsilon
        self.of_group = histogram_of_groups(self.records, histograms)

    @cached_property
    def pooled(self) -> Prior:
        """Distribution of the residuals of all records."""
        return self._prior_of(list(range(len(self.counts))))

    @cached_property
    def mean_square(self) -> Moment:
        """Mean square of the residuals of all records (`ResidualDomain.mean_square`)."""
        return self.residuals.mean_square(*self._sum_of(list(range(len(self.counts)))))

    def _prior_of(self, members: list[int]) -> Prior:
        """Distribution of the residuals of the records of some histograms."""
        return self.residuals.prior(*self._sum_of(members))

    def _sum_of(self, members: list[int]) -> tuple[np.ndarray, float]:
        """Sum of some histograms, and an epsilon of a single one with the variance of its noise."""
        # The sum of H draws of noise has the variance of one with a scale of sqrt(H) times that of each.
        return self.counts[members].sum(axis=0), self.prior_epsilon / float(np.sqrt(len(members)))

    @cached_property
    def classes(self) -> tuple[int, ...]:
        """Class of each histogram: the exponent j of the factor sqrt(2)^j of its spread."""
        if len(self.counts) == 1:
            return (0,)
        shapes = {each: self._stretched(_factor(each)) for each in _FACTORS}
        limit = _SIGNIFICANT * 2 * (HISTOGRAM_SENSITIVITY / self.prior_epsilon) ** 2
        found = []
        for counts, records in zip(self.counts, self._records_of_histograms, strict=True):
            distances = {each: _squared(counts - records * shape) for each, shape in shapes.items()}
            best = min(distances, key=lambda each: (distances[each], abs(each)))
            found.append(best if distances[0] - distances[best] > limit else 0)
        return tuple(found)

    @cached_property
    def _records_of_histograms(self) -> list[int]:
        found = [0] * len(self.counts)
        for histogram, records in zip(self.of_group.tolist(), self.records, strict=True):
            found[histogram] += records
        return found

    def _stretched(self, factor: float) -> np.ndarray:
        """Share of each cell if all residuals were larger by a factor; residuals are spread over their steps."""
        most = self.residuals.most
        below = np.append(0.0, np.cumsum(self.pooled.weights))
        ends = np.clip((self.residuals.bounds - 0.5) / factor + (most + 0.5), 0, 2 * most + 1)
        whole = np.minimum(ends.astype(np.int64), 2 * most)
        shares = below[whole] + (ends - whole) * (below[whole + 1] - below[whole])
        # Residuals beyond the domain are at its ends.
        shares[0], shares[-1] = 0.0, below[-1]
        return np.diff(shares)

    @cached_property
    def priors(self) -> list[Prior]:
        """Distribution of the residuals of each group: that of the class of its histogram."""
        of_class: dict[int, Prior] = {}
        for name in dict.fromkeys(self.classes):
            members = [histogram for histogram, each in enumerate(self.classes) if each == name]
            of_class[name] = self._prior_of(members)
        return [of_class[self.classes[histogram]] for histogram in self.of_group.tolist()]

    def position_prior(self, ranges: GroupRanges) -> Prior:
        """Distribution of the positions, in which a record of a group has the square of its range as its weight.

        It is over the labels of a randomizer of positions (`GroupRanges.labels`).
        """
        labels = ranges.labels(self.records, self.residuals)
        return Prior(labels, self._position_weights(ranges, len(labels)))

    def _position_weights(self, ranges: GroupRanges, positions: int) -> np.ndarray:
        steps = np.arange(-self.residuals.most, self.residuals.most + 1)
        weights = np.zeros(positions)
        for group, (prior, records) in enumerate(zip(self.priors, self.records, strict=True)):
            below, chance = ranges.spread(steps, group, positions)
            scaled = prior.weights * float(records * int(ranges.lengths[group]) ** 2)
            weights += np.bincount(below, scaled * (1 - chance), positions)
            weights += np.bincount(np.minimum(below + 1, positions - 1), scaled * chance, positions)
        return weights

    def whole_prior(self, ranges: GroupRanges, labels: np.ndarray) -> Prior:
        """Distribution of residuals before they are clipped, in the frame of the labels of a randomizer of positions.

        Residuals in the range of their group are at the positions, those outside are beyond the ends. The labels have
        shape (K,). Each record has the square of the range of its group as its weight, as in `position_prior`.
        """
        steps = np.arange(-self.residuals.most, self.residuals.most + 1)
        places, weights = [labels], [self._position_weights(ranges, len(labels))]
        for group, (prior, records) in enumerate(zip(self.priors, self.records, strict=True)):
            low, high = ranges.ends[group]
            outside = np.flatnonzero(((steps < low) | (steps > high)) & (prior.weights > 0))
            if not records or not len(outside):
                continue
            scaled = prior.weights[outside] * float(records * (high - low) ** 2)
            scale = (labels[-1] - labels[0]) / (high - low)
            below = steps[outside] < low
            weights[0][0] -= scaled[below].sum()
            weights[0][-1] -= scaled[~below].sum()
            beyond = [labels[0] + (steps[outside] - low) * scale, labels[-1] + (steps[outside] - high) * scale]
            places.append(np.where(below, *beyond))
            weights.append(scaled)
        found, place = np.unique(np.concatenate(places), return_inverse=True)
        return Prior(found, np.maximum(np.bincount(place.ravel(), np.concatenate(weights), len(found)), 0.0))

    def clipping(self, ranges: GroupRanges) -> ClippingError:
        """Computes the error of clipping residuals to the ranges of their groups, over all records."""
        grid, most, total = self.residuals.grid, self.residuals.most, sum(self.records)
        share = bias = squared = 0.0
        for prior, records, (low, high) in zip(self.priors, self.records, ranges.ends, strict=True):
            error = clipping_error(prior, float(grid[low + most]), float(grid[high + most]))
            share += error.share * (records / total)
            bias += error.bias * (records / total)
            squared += error.squared * (records / total)
        return ClippingError(share, bias, squared)


def _factor(exponent: int) -> float:
    """sqrt(2)^j, from operations that are rounded correctly."""
    return float(np.sqrt(2.0 ** abs(exponent))) if exponent >= 0 else 1 / float(np.sqrt(2.0 ** abs(exponent)))


def _squared(differences: np.ndarray) -> float:
    return dot(differences, differences)


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
    for _ in range(_CHOICE_ROUNDS):
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
