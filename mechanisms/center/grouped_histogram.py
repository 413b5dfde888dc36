"""Residuals of groups of records: their noised histograms, and what is estimated from them.

Residuals are counted per group, in the cells of `residuals`. A record is in one group, whatever its label is, so a
changed label changes two counts by one, as without groups, and the noise of each count is the same. The number of
records of a group is public.

The distribution of all records is estimated from the sum of all histograms, whose noise grows with their number. So
only the largest groups have histograms of their own, as many as the number of records allows, and the others have one
together. Which ones depends on public numbers alone.

Groups with histograms are put into classes of similar spread, and the distribution of a class is estimated from the
counts of all of its groups. The spread of a group is the factor by which the distribution of all records must be
stretched to come closest to the noised counts, in squared distance; powers of the square root of 2 are compared. The
factor is 1 unless another one is closer by more than noise explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..core.prior import Prior
from ..core.reproducible import dot
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from .group_positions import GroupRanges
from .residuals import ResidualDomain
from .truncation import ClippingError, clipping_error

# H histograms need this many records times H^1.5 for each unit of 1 / epsilon.
_RECORDS_NEEDED = 150
# Exponents of the factors sqrt(2)^j.
_FACTORS = range(-8, 9)
# A factor must lower the squared distance by this many times the variance of the noise of a count, at least.
_SIGNIFICANT = 16


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

    def _prior_of(self, members: list[int]) -> Prior:
        """Distribution of the residuals of the records of some histograms."""
        # The sum of H draws of noise has the variance of one with a scale of sqrt(H) times that of each.
        epsilon = self.prior_epsilon / float(np.sqrt(len(members)))
        return self.residuals.prior(self.counts[members].sum(axis=0), epsilon)

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
