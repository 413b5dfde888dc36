"""Share of the true labels that features explain, measured on released ones. Loads no Beam."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...mechanisms.analysis.channel import Channel
from ...mechanisms.analysis.explained import (
    Measured,
    NoisedHistogram,
    estimated_classes,
    estimated_labels,
    measure,
    records_of,
)
from ...mechanisms.analysis.utility import clipped_utility, utility
from ...mechanisms.center.feature_rows import Columns
from ...mechanisms.release.label_column import LabelColumn
from .mechanism_file import MechanismFile

# Numbers of estimated indicators of classes in memory.
_MOST_INDICATORS = 1 << 24


def channel_of(mechanism: MechanismFile) -> tuple[Channel, tuple[float, float] | None]:
    """Channel of released labels, and the line that debiases numbers: (0, 1) if they need none, None without one."""
    randomizer, prior = mechanism.randomizer, mechanism.prior
    center = None if mechanism.center is None else mechanism.center.prior
    whole = None if center is None else (center.labels, center.weights)
    channel = Channel(randomizer.labels, randomizer.outputs, randomizer.probabilities(), prior.weights, whole)
    if mechanism.classes is not None:
        return channel, None
    own = utility(randomizer, prior)
    moments = own if center is None else clipped_utility(randomizer, center)
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
    if mechanism.class_center is not None:
        return None
    channel, line = channel_of(mechanism)
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
    histogram = None
    if mechanism.center is not None:
        histogram = NoisedHistogram(domain, np.array(mechanism.center.counts), mechanism.prior_epsilon)
    elif mechanism.noised is not None and mechanism.prior_epsilon > 0:
        histogram = NoisedHistogram(domain, np.array(mechanism.noised.counts), mechanism.prior_epsilon)
    return measure(estimated_labels(channel, line, places, around, histogram), columns, positions)
