"""Draws of released labels, one for each record, with the random word of the record."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..center.group_ranges import GroupRanges
from ..core.randomizer import Randomizer
from ..noise.keyed_words import labelled_words, words
from .label_column import LabelColumn
from .label_records import LabelRecords


@dataclass(frozen=True, eq=False)
class LabelSampler:
    """Sampler of one release: its randomizer and its keys, of 32 bytes each.

    Attributes:
      randomizer: Randomizer over the domain of the column; with a center, over consecutive residuals, or with groups,
        over positions in their ranges.
      noise_key: Noise key of the release.
      secret: Secret key, for randomized rounding.
      streaming: Whether the noise key is that of a StreamBinding: words are then bound to labels and centers as well.
    """

    randomizer: Randomizer
    noise_key: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    streaming: bool = False

    def sample(self, records: LabelRecords) -> np.ndarray:
        """Replaces each label by a draw with the random word of its record.

        Args:
          records: The n records, with centers if their column has one.

        Returns:
          Released labels, shape (n,), float64.
        """
        randomizer, column, centers = self.randomizer, records.column, records.centers
        indices = records.indices(self.secret)
        if self.streaming:
            drawn = labelled_words(self.noise_key, randomizer.fingerprint, records.identities, records.values, centers)
        else:
            drawn = words(self.noise_key, randomizer.fingerprint, records.identities)
        if centers is None:
            return randomizer.sample(indices, drawn)
        if column.groups is not None:
            return self._sample_groups(records, indices, drawn)
        first = column.residuals.place(randomizer.labels) - column.residuals.most
        clipped = np.clip(indices - centers - first, 0, len(randomizer.labels) - 1)
        return column.labels[centers] + randomizer.sample(clipped, drawn)

    def _sample_groups(self, records: LabelRecords, indices: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Labels around centers, each in the range of its group, from labels on the domain and words of the records."""
        randomizer, column = self.randomizer, records.column
        assert records.centers is not None
        centers, groups = column.split(records.centers)
        assert groups is not None
        assert randomizer.group_ranges is not None
        ranges = GroupRanges(randomizer.group_ranges)
        # Like the coin of randomized rounding, this one need not be bound to the data.
        coins = words(self.secret, f"position {column.name}".encode(), records.identities)
        positions = ranges.find(indices - centers, groups, len(randomizer.labels), coins)
        table = ranges.outputs(randomizer, column.residuals)
        return column.labels[centers] + table[groups, randomizer.draw(positions, drawn)]


def fits(column: LabelColumn, randomizer: Randomizer) -> bool:
    """True if a randomizer takes the labels of the column, or residuals of them around its center."""
    if (column.groups is None) != (randomizer.group_ranges is None):
        return False
    if column.classes is not None and not set(randomizer.outputs.tolist()) <= set(column.domain):
        return False
    if not column.around_center:
        return tuple(randomizer.labels.tolist()) == column.domain
    try:
        if column.groups is None or randomizer.group_ranges is None:
            column.residuals.place(randomizer.labels)
        else:
            GroupRanges(randomizer.group_ranges).check(column.residuals)
            return len(randomizer.group_ranges) == column.groups.size
    except ValueError:
        return False
    return True
