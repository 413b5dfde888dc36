"""Conversion between Beam rows, as Beam YAML and SQL use them, and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.typehints.arrow_type_compatibility import arrow_schema_from_beam_schema
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_tuple_to_schema

from ..mechanisms.core.label_classes import LabelClasses
from .arrow_values import plain_schema
from .batches import LabelledBatch
from .class_values import coded_classes
from .errors import InputError, redact_errors
from .shown_transform import ShownTransform

_MOST_ROWS = 1 << 13
"""Largest number of rows in a batch."""

_SOURCE = "rows"


def row_fields(rows: PCollection[Any], *needed: str) -> dict[str, Any]:
    """Reads the schema of a PCollection of rows.

    Args:
      rows: Rows with a schema.
      *needed: Names of required fields.

    Returns:
      The type of each field, by name.

    Raises:
      InputError: If the elements have no schema, or a required field is missing.
    """
    found: Any = rows.element_type
    kind = RowTypeConstraint.from_user_type(found) or found
    if not isinstance(kind, RowTypeConstraint):
        raise InputError(f"the rows have no schema: their type is {found}")
    fields = dict(kind._fields)
    for name in needed:
        if name not in fields:
            raise InputError(f"the rows have no field {name!r}; they have: {', '.join(fields)}")
    return fields


@dataclass
class RowsToBatches(ShownTransform):
    """Converts rows to record batches: a PCollection of rows with a schema to one of LabelledBatch, window by window.

    The input may be bounded or unbounded. Rows have no order and no place in a file, so only an id column identifies
    them: use the same one as `LabelColumn.id_column`.

    Attributes:
      id_column: Field of unique ids.
      classes: Classes of private fields by name, as which they are read.
    """

    id_column: str
    classes: Mapping[str, LabelClasses] = field(default_factory=dict)

    def expand(self, rows: PCollection[Any]) -> PCollection[LabelledBatch]:
        """Raises InputError if the rows have no schema or no id field."""
        fields = row_fields(rows, self.id_column)
        kind = RowTypeConstraint.from_fields(list(fields.items()))
        schema = arrow_schema_from_beam_schema(named_tuple_to_schema(kind.user_type))
        return (
            rows
            | "Gather" >> beam.BatchElements(min_batch_size=1, max_batch_size=_MOST_ROWS)
            | "ToArrow" >> beam.ParDo(_ToArrow(plain_schema(schema), self.classes)).with_output_types(LabelledBatch)
        )


class _ToArrow(beam.DoFn):
    def __init__(self, schema: pa.Schema, classes: Mapping[str, LabelClasses]):
        self._schema = schema
        self._classes = classes

    @redact_errors("gathering rows")
    def process(self, rows: list[Any]) -> Iterator[LabelledBatch]:
        columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in self._schema]
        for place, name in enumerate(self._schema.names):
            if name in self._classes:
                columns[place] = coded_classes(columns[place], self._classes[name], name, _SOURCE)
        yield LabelledBatch.whole(
            _SOURCE, 0, pa.RecordBatch.from_arrays(columns, [field.name for field in self._schema])
        )


@dataclass
class BatchesToRows(ShownTransform):
    """Converts privatized batches to rows: a PCollection of LabelledBatch to one of rows with a schema.

    Attributes:
      fields: Type of each field by name, as `row_fields` returns it for the original rows.
      private: Name of the label field, which is float64 in the output unless it holds classes.
      classes: Whether it does, and keeps its type.
    """

    fields: dict[str, Any]
    private: str
    classes: bool = False

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[Any]:
        fields = self.fields if self.classes else {**self.fields, self.private: np.float64}
        kind = RowTypeConstraint.from_fields(list(fields.items()))
        return batches | "ToRows" >> beam.FlatMap(_rows).with_output_types(kind)


def _rows(batch: LabelledBatch) -> Iterator[beam.Row]:
    names = batch.batch.schema.names
    for values in zip(*(column.to_pylist() for column in batch.batch.columns), strict=True):
        yield beam.Row(**dict(zip(names, values, strict=True)))
