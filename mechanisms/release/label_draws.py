"""Draws of released labels, one for each record, with the random word of the record."""

from __future__ import annotations

import numpy as np

from ..core.randomizer import Randomizer
from ..noise.keyed_words import labelled_words, words
from ..noise.record_identities import Identities
from .label_column import LabelColumn


def draw_labels(
    values: np.ndarray,
    identities: Identities,
    column: LabelColumn,
    randomizer: Randomizer,
    noise_key: bytes,
    secret: bytes,
    streaming: bool = False,
    centers: np.ndarray | None = None,
) -> np.ndarray:
    """Replaces each label by a draw with the random word of its record.

    Args:
      values: Labels, shape (n,), finite float64.
      identities: Identities of the n records.
      column: The private column.
      randomizer: The randomizer, over the domain of the column; with a center, over consecutive residuals.
      noise_key: Noise key of the release, 32 bytes.
      secret: Secret key, 32 bytes, for randomized rounding.
      streaming: True if the noise key is that of a StreamBinding. Words are then bound to labels and centers as well.
      centers: Centers as indices into the domain, shape (n,), integers; None without a center column.

    Returns:
      The released labels, shape (n,), float64.
    """
    indices = column.indices(values, identities, secret)
    if streaming:
        drawn = labelled_words(noise_key, randomizer.fingerprint, identities, values, centers)
    else:
        drawn = words(noise_key, randomizer.fingerprint, identities)
    if centers is None:
        outputs = randomizer.sample(indices, drawn)
    else:
        first = column.residuals.place(randomizer.labels) - column.residuals.most
        clipped = np.clip(indices - centers - first, 0, len(randomizer.labels) - 1)
        outputs = column.labels[centers] + randomizer.sample(clipped, drawn)
    return outputs


def fits(column: LabelColumn, randomizer: Randomizer) -> bool:
    """Compares the domain of a randomizer with that of a column.

    Args:
      column: The private column.
      randomizer: The randomizer.

    Returns:
      True if the randomizer takes the labels of the column, or residuals of them around its center.
    """
    if column.center is None:
        return tuple(randomizer.labels.tolist()) == column.domain
    try:
        column.residuals.place(randomizer.labels)
    except ValueError:
        return False
    return True
