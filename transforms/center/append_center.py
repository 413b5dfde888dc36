"""Stage that adds the column of centers, which a linear center predicts from the features."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.release.label_column import LabelColumn
from ..batches import Carried, LabelledBatch, as_argument
from ..errors import InputError, redact_errors
from ..tfrecord.example_encoder import encode_examples
from .fit_center import center_columns


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
        super().__init__()
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
    name = column.center
    assert name is not None
    for label in column.private:
        if label in center.design.map.columns:
            raise InputError(f"the label column {label!r} is a feature of the center, which is released as it is")
    if batch.column(name) is not None:
        raise InputError(
            f"{batch.source}: there is a column {name!r} already: name the new column of centers with --center_column, "
            "or for apply remove that column from the input"
        )
    values = column.labels[center.indices(center_columns(batch, center.design.map))]
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
    def process(self, batch: LabelledBatch, center: Any) -> Iterator[LabelledBatch]:
        center = batch.resolve(center)
        if center.labels != len(self._column.domain):
            raise InputError("the center is for another label domain than the declared one")
        yield append_center(batch, center, self._column, self._only)
