"""Draws of released labels, one for each record, with the random word of the record."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..core.randomizer import Randomizer
from ..noise.keyed_words import labelled_words, words
from .label_column import LabelColumn
from .label_records import LabelRecords


@dataclass(frozen=True, eq=False)
class LabelSampler:
    """Sampler of one release: its randomizer and its keys, of 32 bytes each.

    Attributes:
      randomizer: Randomizer over the domain of the column; with a center, over consecutive residuals.
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
        first = column.residuals.place(randomizer.labels) - column.residuals.most
        clipped = np.clip(indices - centers - first, 0, len(randomizer.labels) - 1)
        return column.labels[centers] + randomizer.sample(clipped, drawn)


def fits(column: LabelColumn, randomizer: Randomizer) -> bool:
    """True if a randomizer takes the labels of the column, or residuals of them around its center."""
    if column.classes is not None and not set(randomizer.outputs.tolist()) <= set(column.domain):
        return False
    if not column.around_center:
        return tuple(randomizer.labels.tolist()) == column.domain
    try:
        column.residuals.place(randomizer.labels)
    except ValueError:
        return False
    return True
