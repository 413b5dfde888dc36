"""Column of centers in batches: what a linear center predicts for each record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.center.feature_rows import RowMap
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.release.label_column import LabelColumn
from ..batches import Argument, Carried, LabelledBatch, as_argument, check_new
from ..errors import InputError, redact_errors
from ..tfrecord.example_encoder import encode_examples
from .feature_columns import center_columns


def check_features(column: LabelColumn, map: RowMap) -> None:
    """Raises InputError if a label is among the features: a function of it would be released without noise."""
    for label in column.private:
        if label in map.columns:
            raise InputError(f"the label column {label!r} is a feature of the center, which is released as it is")


@dataclass
class AppendCenter(beam.PTransform):
    """Adds the column of centers to each batch: the label of the domain that the center predicts for the record.

    `center` is exactly one LinearCenter, as a PCollection, carried by the batches, or as a value. `column.center` is
    the name of the new column; `only` are the columns to keep besides it, None for all.
    """

    center: PCollection[LinearCenter] | Carried[LinearCenter] | LinearCenter
    column: LabelColumn
    only: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a column without a center."""
        if self.column.center is None:
            raise ValueError("the label column has no center")

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelledBatch]:
        return batches | "Append" >> beam.ParDo(
            _Append(self.column, self.only), as_argument(self.center)
        ).with_output_types(LabelledBatch)


def append_center(
    batch: LabelledBatch, center: LinearCenter, column: LabelColumn, only: tuple[str, ...] | None = None
) -> LabelledBatch:
    """Adds the column of centers to a batch.

    In a batch of encoded records, it is added to the records as well. `column.center` is the name of the new column;
    `only` are the columns to keep besides it, None for all. Raises InputError if there is a column of this name, the
    label is a feature of the center, or a feature has the wrong type.
    """
    check_features(column, center.design.map)
    indices = center.indices(center_columns(batch, center.design.map))
    return with_centers(batch, column.labels[indices], column, only)


def with_centers(
    batch: LabelledBatch, values: np.ndarray, column: LabelColumn, only: tuple[str, ...] | None = None
) -> LabelledBatch:
    """Adds a column of given centers to a batch, labels of the domain, shape (n,), float64; as `append_center` does.

    Raises InputError if there is a column of this name.
    """
    name = column.center
    assert name is not None
    check_new(
        batch,
        name,
        "name the new column of centers with `center_column`, or for apply remove that column from the input",
    )
    kept = (
        batch.batch if only is None else batch.batch.select([each for each in batch.batch.schema.names if each in only])
    )
    encoded, column_of_centers = batch.encoded, pa.array(values)
    if encoded is not None:
        encoded, column_of_centers = encoded.with_feature(values, _example(name)), pa.array(values.astype(np.float32))
    schema = kept.schema.append(pa.field(name, column_of_centers.type))
    columns = pa.RecordBatch.from_arrays([*kept.columns, column_of_centers], schema=schema)
    return dataclasses.replace(batch, batch=columns, encoded=encoded)


def _example(name: str) -> bytes:
    return encode_examples(pa.RecordBatch.from_arrays([pa.array([0.0], pa.float32())], [name]))[0]


class _Append(beam.DoFn):
    def __init__(self, column: LabelColumn, only: tuple[str, ...] | None):
        self._column = column
        self._only = only

    @redact_errors("computing centers")
    def process(self, batch: LabelledBatch, center: Argument[LinearCenter]) -> Iterator[LabelledBatch]:
        linear = batch.resolve(center)
        if linear.labels != len(self._column.domain):
            raise InputError("the center is for another label domain than the declared one")
        yield append_center(batch, linear, self._column, self._only)
