"""Release of classes in memory that are drawn from a center of the features, as the passes of a job do it. No Beam."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...mechanisms.center.class_center import (
    PROBABILITY_UNIT,
    ClassCenter,
    design_class_cells,
    design_classes,
    draw_classes,
)
from ...mechanisms.center.class_model import center_fingerprint
from ...mechanisms.center.feature_rows import MappedColumns, RowMap
from ...mechanisms.noise.keyed_words import words
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.center_release import CenterFeatures, add_moments
from ...mechanisms.release.class_release import (
    ClassCounts,
    add_class_cells,
    count_class_cells,
    release_class_counts,
    release_class_sums,
    release_classes,
    sum_class_rows,
)
from ...mechanisms.release.label_records import LabelRecords
from ...transforms.center.feature_columns import NO_FEATURES, center_columns
from ..spec.label import Label
from .feature_frames import FeatureFrame
from .memory_release import MemoryRecords, blocks_of, feature_sample


def fit_classes(
    label: Label, features: FeatureFrame, chosen: CenterFeatures, records: MemoryRecords, secret: bytes
) -> tuple[ClassCounts, ClassCenter]:
    """Releases the counts of the classes, and the center.

    Raises ValueError if there are too few records, or no feature tells records apart.
    """
    column = records.released.column
    counts = release_class_counts(records.summary(secret), column, label.record_budget.epsilon, secret)
    sample = feature_sample(features, chosen, records, secret).columns
    design = design_classes(sample, counts.counts, counts.parts)
    if design is None:
        raise ValueError(NO_FEATURES.replace("--", ""))
    labels, kept = replace(records.released, unusable=0), features.keep(records.kept)

    def blocks() -> Iterator[tuple[LabelRecords, MappedColumns]]:
        return _blocks(labels, kept, design.map)

    moments = add_moments(sum_class_rows(own, design.map.rows(found), secret) for own, found in blocks())
    linear = release_class_sums(moments, column, design, secret)
    cells = design_class_cells(sample, linear, counts.counts, counts.parts)
    summary = None
    if cells is not None:
        summary = add_class_cells(count_class_cells(own, found, linear, cells, secret) for own, found in blocks())
    return counts, release_classes(summary, column, counts, linear, cells, secret)


def _blocks(labels: LabelRecords, kept: FeatureFrame, row_map: RowMap) -> Iterator[tuple[LabelRecords, MappedColumns]]:
    for start, block in blocks_of(kept):
        mask = np.zeros(len(labels), bool)
        mask[start : start + len(block)] = True
        yield labels.keep(mask), center_columns(block, row_map)


def class_probabilities(center: ClassCenter, features: FeatureFrame) -> np.ndarray:
    """Predicts the coded probabilities of each record, shape (n, K), int64.

    Raises ValueError, which names the column, if a feature is missing or has the wrong type.
    """
    row_map = center.linear.design.map
    features.check(row_map)
    parts = [center.probabilities(center_columns(block, row_map)) for _, block in blocks_of(features)]
    return np.concatenate([np.zeros((0, len(center.counts)), np.int64), *parts])


def as_shares(probabilities: np.ndarray) -> np.ndarray:
    """Coded probabilities as floats that add up to 1."""
    return probabilities / PROBABILITY_UNIT


def draw_class_labels(
    records: MemoryRecords, center: ClassCenter, probabilities: np.ndarray, binding: NoiseBinding, secret: bytes
) -> Any:
    """Draws classes from the probabilities of all records, and puts them where the true ones were."""
    values = np.full(len(records.kept), np.nan)
    fingerprint, noise_key = center_fingerprint(center), binding.noise_key(secret)
    drawn = words(noise_key, fingerprint.encode(), records.released.identities)
    values[records.kept] = draw_classes(probabilities[records.kept], drawn)
    return records.labels.restore(values)
