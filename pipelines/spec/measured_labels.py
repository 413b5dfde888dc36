"""Share of the true labels that features explain, measured on released ones. Loads no Beam."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...mechanisms.analysis.channel import Channel
from ...mechanisms.analysis.explained import (
    Measured,
    estimated_classes,
    estimated_labels,
    measure,
    records_of,
)
from ...mechanisms.analysis.utility import clipped_utility, utility
from ...mechanisms.center.feature_rows import Columns
from ...mechanisms.release.drawing import Drawing
from ...mechanisms.release.label_column import LabelColumn
from .mechanism_file import MechanismFile

# Numbers of estimated indicators of classes in memory.
_MOST_INDICATORS = 1 << 24


def channel_of(drawing: Drawing) -> tuple[Channel, tuple[float, float] | None]:
    """Channel of released labels, and the line that debiases numbers: (0, 1) if they need none, None without one."""
    randomizer, prior, whole = drawing.randomizer, drawing.prior, drawing.whole
    before = (whole.labels, whole.weights) if whole else None
    channel = Channel(randomizer.labels, randomizer.outputs, randomizer.probabilities(), prior.weights, before)
    own = utility(randomizer, prior)
    moments = clipped_utility(randomizer, whole) if whole else own
    return channel, (0.0, 1.0) if own.unbiased else moments.line


def measured(
    mechanism: MechanismFile,
    released: np.ndarray,
    centers: np.ndarray | None,
    columns: Columns,
    positions: Sequence[np.ndarray] = (),
) -> Measured | None:
    """Measures a ridge on released labels, and positions, as of `share_by_position`.

    Labels, of classes their places, have shape (n,), and so have the centers; None for classes that a center draws.
    """
    if mechanism.drawing.solved is None:
        return None
    channel, line = channel_of(mechanism.drawing)
    drawn, around, domain = released, None, np.array(mechanism.domain)
    if centers is not None:
        column = LabelColumn("label", mechanism.domain, center="center")
        around = domain[column.center_indices(centers)[0]]
        drawn = released - around
    places = np.searchsorted((channel.outputs[1:] + channel.outputs[:-1]) / 2, drawn)
    if mechanism.classes is not None:
        every = np.s_[:: max(-(-len(places) * len(domain) // _MOST_INDICATORS), 1)]
        kept = [position[every] for position in positions]
        return measure(estimated_classes(channel, places[every]), records_of(columns, every), kept)
    labels = estimated_labels(channel, line, places, around, mechanism.drawing.histogram)
    return measure(labels, columns, positions)
