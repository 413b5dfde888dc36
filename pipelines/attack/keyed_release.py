"""Release of records in memory along the keyed path of a job: digest, noise key, noisy prior, words, alias table.

It calls the functions that the stages of a job call, in the same order, without Beam. A test compares it with the
stages.
"""

from __future__ import annotations

import numpy as np

from ...mechanisms.center.group_ranges import GroupRanges
from ...mechanisms.center.residuals import ResidualDomain
from ...mechanisms.core.budget import BudgetSplit
from ...mechanisms.core.label_grid import NEAREST, LabelRounder
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.noise.input_digest import digest_sums, input_digest
from ...mechanisms.noise.keyed_words import Identities, derive_noise_key, first_repeated, integer_identities, words
from ...mechanisms.noise.noisy_histogram import noisy_counts
from ...mechanisms.release.unit_bound import UnitBound, over_limit, priorities, unit_words

COLUMN, ID_COLUMN, CENTER_COLUMN, GROUP_COLUMN = "label", "id", "center", "group"
"""Names of the label column, the id column, the center column and that of the groups, to which the noise is bound."""
UNIT_COLUMN = "unit"
"""Namespace of the units; their real column is that of the file, to which the noise is bound."""


class KeyedRelease:
    """Release function of a mechanism file, as `apply` and `privatize` release records with an id column.

    Attributes:
      randomizer: The randomizer.
      prior_epsilon: Epsilon of the released histogram; 0 for a public prior, which is not released again.
      residuals: Residuals of the label domain, some of which the randomizer takes; None for labels without a center.
      unit: Privacy unit; None for single records.
    """

    def __init__(
        self,
        randomizer: Randomizer,
        prior_epsilon: float,
        residuals: ResidualDomain | None = None,
        unit: UnitBound | None = None,
    ):
        """Makes the release function. Raises ValueError if the epsilon of the prior is out of range."""
        self.randomizer = randomizer
        self.prior_epsilon = prior_epsilon
        self._budget = BudgetSplit(prior_epsilon, randomizer.epsilon)
        self.residuals = residuals
        self.unit = unit
        self._request_of_unit = None if unit is None else unit.request
        self._domain = randomizer.labels if residuals is None else residuals.labels
        self._rounder = LabelRounder(self._domain)
        self._ranges = None if randomizer.group_ranges is None else GroupRanges(randomizer.group_ranges)
        if self._ranges is not None and residuals is not None:
            self._table = self._ranges.outputs(randomizer, residuals)

    def __call__(
        self,
        labels: np.ndarray,
        ids: np.ndarray,
        key: bytes,
        centers: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        units: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases n records, as labels of shape (n,), NaN beyond the bounds of their units, and the noised histogram.

        The histogram is given as weights, shape (k,), or None. With a center, there are the noised counts of the cells
        of residuals in place of the weights, with groups group after group. The prior is not estimated from the
        histogram: that would take longer, and says no more than the counts, which are released as well.

        Labels and centers are finite, float64; ids, numbers of groups and numbers of units are int64; all of them have
        shape (n,). The key has 32 bytes. Raises ValueError if two records have the same id, or there are centers but no
        residuals or the reverse, or groups but no ranges or the reverse, or units but no bound or the reverse.
        """
        identities = integer_identities(ID_COLUMN, ids)
        if first_repeated(identities.blocks) is not None:
            raise ValueError("two records have the same id")
        if (centers is None) != (self.residuals is None):
            raise ValueError("a mechanism of residuals takes centers, and no other does")
        if (groups is None) != (self._ranges is None):
            raise ValueError("a mechanism of groups takes groups, and no other does")
        if (units is None) != (self.unit is None):
            raise ValueError("a mechanism of privacy units takes units, and no other does")
        if units is None or self.unit is None:
            return self._release(labels, identities, key, centers, groups)
        hashes = unit_words(key, integer_identities(UNIT_COLUMN, units))
        kept = ~over_limit(hashes, priorities(key, identities), self.unit.max_records)
        released = np.full(len(labels), np.nan)
        centers, groups = (None if values is None else values[kept] for values in (centers, groups))
        of_kept = integer_identities(ID_COLUMN, ids[kept])
        released[kept], histogram = self._release(labels[kept], of_kept, key, centers, groups)
        return released, histogram

    def _release(
        self,
        labels: np.ndarray,
        identities: Identities,
        key: bytes,
        centers: np.ndarray | None,
        groups: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Releases records within the bounds of their units."""
        randomizer, indices = self.randomizer, self._rounder.nearest(labels)
        request = (COLUMN, self._domain, self._budget, NEAREST)
        if centers is None or self.residuals is None:
            request = (*request, None, None, self._request_of_unit)
            sums = digest_sums(key, COLUMN, identities, labels)
            noise_key = derive_noise_key(key, input_digest(key, sums, *request), *request)
            released = randomizer.sample(indices, words(noise_key, randomizer.fingerprint, identities))
            if self.prior_epsilon == 0:
                return released, None
            counts = np.bincount(indices, minlength=len(randomizer.labels))
            noised = noisy_counts(counts, self.prior_epsilon, noise_key)
            return released, Prior.from_counts(randomizer.labels, noised).weights
        places, around = self._rounder.nearest(centers), (*request, CENTER_COLUMN, None, self._request_of_unit)
        if groups is not None and self._ranges is not None:
            return self._release_groups(labels, identities, key, places, groups)
        sums = digest_sums(key, COLUMN, identities, labels, (CENTER_COLUMN, places))
        noise_key = derive_noise_key(key, input_digest(key, sums, *around), *around)
        first = self.residuals.place(randomizer.labels) - self.residuals.most
        clipped = np.clip(indices - places - first, 0, len(randomizer.labels) - 1)
        drawn = randomizer.sample(clipped, words(noise_key, randomizer.fingerprint, identities))
        counts = self.residuals.count(indices - places)
        return self._domain[places] + drawn, noisy_counts(counts, self.prior_epsilon, noise_key)

    def _release_groups(
        self, labels: np.ndarray, identities: Identities, key: bytes, places: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Releases records of groups, around the centers of some indices."""
        residuals, ranges, randomizer = self.residuals, self._ranges, self.randomizer
        indices = self._rounder.nearest(labels)
        assert residuals is not None
        assert ranges is not None
        size = len(ranges.ends)
        declared = GROUP_COLUMN, tuple(map(str, range(size - 1)))
        request = (COLUMN, self._domain, self._budget, NEAREST, CENTER_COLUMN, declared, self._request_of_unit)
        sums = digest_sums(key, COLUMN, identities, labels, (CENTER_COLUMN, places * size + groups))
        noise_key = derive_noise_key(key, input_digest(key, sums, *request), *request)
        coins = words(key, f"position {COLUMN}".encode(), identities)
        positions = ranges.find(indices - places, groups, len(randomizer.labels), coins)
        drawn = randomizer.draw(positions, words(noise_key, randomizer.fingerprint, identities))
        cells = groups * residuals.cells + residuals.cells_of(indices - places)
        counts = np.bincount(cells, minlength=size * residuals.cells)
        released = self._domain[places] + self._table[groups, drawn]
        return released, noisy_counts(counts, self.prior_epsilon, noise_key)
