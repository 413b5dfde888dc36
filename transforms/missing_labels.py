"""Labels in place of missing ones, put in where files are read, before any stage sees which records had none.

A job with `--missing_label VALUE` counts a label as VALUE that is missing, several, NaN or infinite. So whether a
record has a label is protected as its label is. Batches show nothing of it: the column is flat and has no nulls, also
where no record of a batch has a label.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from ..mechanisms.release.label_column import LabelColumn
from .arrow_values import holds_numbers, single_numbers


def missing_advice(column: LabelColumn, setting: str) -> str:
    """Advice where most labels are missing; empty where they cannot count as a label.

    `setting` is how the caller gives the label, of which {} is the place. It is 0 where that is a label.
    """
    if column.others or column.missing_label is not None:
        return ""
    classes = column.classes
    zero = "0" in classes.values if classes else 0.0 in column.domain
    given = setting.format("0" if zero else "CLASS (one of the classes)" if classes else "LABEL (one of the domain)")
    return f"if a missing label means a value that is still to come, as no conversion yet, give {given}; otherwise "


def with_numbers(column: pa.Array, value: float) -> pa.Array:
    """The single numbers of a column, shape (n,), float64, with `value` where there is none.

    A column of anything but numbers stays as it is: the stages that read it refuse it.
    """
    if not holds_numbers(column.type):
        return column
    numbers = single_numbers(column, len(column))
    return pa.array(np.where(np.isnan(numbers), float(value), numbers))


def with_columns(batch: pa.RecordBatch, labels: Collection[str]) -> pa.RecordBatch:
    """The batch with a column of nulls for each label that it lacks, at its place among features in order of names."""
    for label in sorted(labels):
        if label not in batch.schema.names:
            place = bisect.bisect(batch.schema.names, label)
            columns, fields = [*batch.columns], [*batch.schema]
            columns.insert(place, pa.nulls(batch.num_rows))
            fields.insert(place, pa.field(label, pa.null()))
            batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return batch


def with_fields(schema: pa.Schema, labels: Collection[str]) -> pa.Schema:
    """The schema of `with_columns`."""
    for label in sorted(labels):
        if label not in schema.names:
            schema = schema.insert(bisect.bisect(schema.names, label), pa.field(label, pa.null()))
    return schema


def filled(batch: pa.RecordBatch, missing: Mapping[str, float]) -> pa.RecordBatch:
    """The batch with the value of each label of `missing` where it has no single number."""
    columns = [
        with_numbers(column, missing[name]) if name in missing else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
