"""Draws of classes from the probabilities that a center of classes predicts, and the column of these."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from ..mechanisms.center.class_center import PROBABILITY_UNIT, ClassCenter
from ..mechanisms.center.class_model import drawn_by, drawn_classes
from ..mechanisms.release.label_column import LabelColumn
from .batches import LabelledBatch, replace_label
from .center.feature_columns import center_columns
from .center.fit_center import check_features
from .errors import InputError
from .label_summary import UsableRecords


def draw_batch(records: UsableRecords, center: ClassCenter, noise_key: bytes) -> LabelledBatch:
    """Draws the classes of a batch, each with the random word of its record, and adds their probabilities.

    The column of probabilities has a list of K floats for each record: multiples of 1 / 65,536, which float32 holds
    exactly, that add up to 1. Raises InputError if there is a column of its name, or a feature is the label.
    """
    batch, column = records.batch, records.labels.column
    check_features(column, center.map)
    fingerprint, probabilities = drawn_by(center), center.probabilities(center_columns(batch, center.map))
    drawn = drawn_classes(center, probabilities, noise_key, records.labels.identities)
    replaced = replace_label(batch, column.name, drawn, column.classes)
    mechanism = fingerprint if batch.mechanism is None else f"{batch.mechanism},{fingerprint}"
    return dataclasses.replace(_with_probabilities(replaced, probabilities, column), mechanism=mechanism)


def _with_probabilities(batch: LabelledBatch, probabilities: np.ndarray, column: LabelColumn) -> LabelledBatch:
    """Adds the column of probabilities. Raises InputError if there is one of its name."""
    name = column.center
    assert name is not None
    if batch.column(name) is not None:
        raise InputError(
            f"{batch.source}: there is a column {name!r} already: name the new column of probabilities with "
            "--center_column"
        )
    records, classes = probabilities.shape
    offsets = pa.array(np.arange(records + 1, dtype=np.int32) * np.int32(classes))
    shares = (probabilities.ravel() / PROBABILITY_UNIT).astype(np.float32)
    lists = pa.ListArray.from_arrays(offsets, pa.array(shares))
    schema = batch.batch.schema.append(pa.field(name, lists.type))
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays([*batch.batch.columns, lists], schema=schema))
