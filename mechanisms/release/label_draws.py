"""Draws of released labels, one for each record, with the random word of the record.

The secret key and the noise key have 32 bytes.
"""

from __future__ import annotations

import numpy as np

from ..center.group_ranges import GroupRanges
from ..core.randomizer import Randomizer
from ..noise.keyed_words import Identities, labelled_words, words
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
    """Replaces each label by a draw with the random word of its record; shape (n,), float64.

    Labels have shape (n,), finite float64. The randomizer is over the domain of the column; with a center, over
    consecutive residuals, or with groups, over positions in their ranges. `streaming` tells that the noise key is that
    of a StreamBinding: words are then bound to labels and centers as well. The secret key serves randomized rounding.
    Centers are indices into the domain, shape (n,), integers, or with groups indices of pairs of center and group
    (`LabelColumn.split`); None without a center column.
    """
    indices = column.indices(values, identities, secret)
    if streaming:
        drawn = labelled_words(noise_key, randomizer.fingerprint, identities, values, centers)
    else:
        drawn = words(noise_key, randomizer.fingerprint, identities)
    if centers is None:
        outputs = randomizer.sample(indices, drawn)
    elif column.groups is not None:
        outputs = _grouped_outputs(indices, centers, identities, column, randomizer, drawn, secret)
    else:
        first = column.residuals.place(randomizer.labels) - column.residuals.most
        clipped = np.clip(indices - centers - first, 0, len(randomizer.labels) - 1)
        outputs = column.labels[centers] + randomizer.sample(clipped, drawn)
    return outputs


def _grouped_outputs(
    indices: np.ndarray,
    bound: np.ndarray,
    identities: Identities,
    column: LabelColumn,
    randomizer: Randomizer,
    drawn: np.ndarray,
    secret: bytes,
) -> np.ndarray:
    """Labels around centers, each in the range of its group; the arguments are those of `draw_labels`."""
    centers, groups = column.split(bound)
    assert groups is not None
    assert randomizer.group_ranges is not None
    ranges = GroupRanges(randomizer.group_ranges)
    # Like the coin of randomized rounding, this one need not be bound to the data.
    coins = words(secret, f"position {column.name}".encode(), identities)
    positions = ranges.find(indices - centers, groups, len(randomizer.labels), coins)
    table = ranges.outputs(randomizer, column.residuals)
    return column.labels[centers] + table[groups, randomizer.draw(positions, drawn)]


def fits(column: LabelColumn, randomizer: Randomizer) -> bool:
    """True if a randomizer takes the labels of the column, or residuals of them around its center."""
    if (column.groups is None) != (randomizer.group_ranges is None):
        return False
    if column.center is None:
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
