"""Conversion between Beam rows, as Beam YAML and SQL use them, and batches."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.typehints.arrow_type_compatibility import arrow_schema_from_beam_schema
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import named_tuple_to_schema
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.core.label_classes import LabelClasses
from .batches import LabelledBatch
from .beam_internals import schema_fields
from .class_values import coded_classes
from .errors import InputError, redact_errors
from .missing_labels import with_numbers
from .shown_transform import ShownTransform

_MOST_ROWS = 1 << 13
"""Largest number of rows in a batch."""

_SOURCE = "rows"
_PASSED = pa.large_binary()
"""Type of columns whose values pass through; those of fields have another."""
_ANY_VALUE = beam.coders.FastPrimitivesCoder()


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
    fields = schema_fields(rows.element_type)
    if fields is None:
        raise InputError(
            f"the rows have no schema: their type is {rows.element_type}; convert them before, as in "
            "beam.Map(lambda row: beam.Row(id=int(row['id']), label=float(row['label'])))"
        )
    for name in needed:
        if name not in fields:
            raise InputError(f"the rows have no field {name!r}; they have: {', '.join(fields)}")
    return fields


def check_used(fields: Mapping[str, Any], names: Iterable[str]) -> None:
    """Checks that the job can read fields that it uses. Raises InputError, which names the field and its type."""
    for name in names:
        if _arrow_type(fields[name]) is None:
            raise InputError(
                f"the field {name!r} has the type {getattr(fields[name], '__name__', fields[name])}, and must have "
                "numbers or texts: convert it before, with int, float or str in a beam.Map to beam.Row"
            )


def _arrow_type(kind: type) -> pa.DataType | None:
    """Type of the column of a field; None if its values would come back as others, or Arrow has none."""
    try:
        row = RowTypeConstraint.from_fields([("field", kind)])
        found = arrow_schema_from_beam_schema(named_tuple_to_schema(row.user_type)).field(0).type
    except (NotImplementedError, ValueError, TypeError):
        return None
    if not pa.types.is_nested(found):
        return found
    lists = pa.types.is_list(found) and not pa.types.is_nested(found.value_type)
    return found if lists and typing.get_origin(kind) in (list, collections.abc.Sequence) else None


@dataclass
class RowsToBatches(ShownTransform):
    """Converts rows to record batches: a PCollection of rows with a schema to one of LabelledBatch, window by window.

    The input may be bounded or unbounded. Rows have no order and no place in a file, so only an id column identifies
    them: use the same one as `LabelColumn.id_column`. Fields of types that Arrow has not pass through as they are, but
    cannot be used. Event times and windows of rows are kept, and `BatchesToRows` gives them back.

    Attributes:
      id_column: Field of unique ids.
      classes: Classes of private fields by name, as which they are read.
      missing: Label that a missing one counts as by private field, of classes its place.
    """

    id_column: str
    classes: Mapping[str, LabelClasses] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)

    def expand(self, rows: PCollection[Any]) -> PCollection[LabelledBatch]:
        """Raises InputError if the rows have no schema or no id field, or its type is not one of ids."""
        fields = row_fields(rows, self.id_column)
        check_used(fields, [self.id_column, *self.classes, *self.missing])
        types = {name: _arrow_type(kind) for name, kind in fields.items()}
        to_arrow = beam.ParDo(_ToArrow(types, self.classes, self.missing))
        return rows | "ToArrow" >> to_arrow.with_output_types(LabelledBatch)


class _ToArrow(beam.DoFn):
    """Gathers the rows of a bundle by window. `types` are those of columns; None for values that pass through."""

    def __init__(
        self, types: Mapping[str, pa.DataType | None], classes: Mapping[str, LabelClasses], missing: Mapping[str, float]
    ):
        self._types = types
        self._classes = classes
        self._missing = missing

    def start_bundle(self) -> None:
        self._held: dict[Any, tuple[list[Any], list[Timestamp]]] = {}
        self._count = 0

    @redact_errors("gathering rows")
    def process(
        self, row: beam.Row, time: Any = beam.DoFn.TimestampParam, window: object = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue]:
        if window not in self._held:
            self._held[window] = [], []
        rows, times = self._held[window]
        rows.append(row)
        times.append(time)
        self._count += 1
        if self._count == _MOST_ROWS:
            yield from self._flush()

    @redact_errors("gathering rows")
    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from self._flush()

    def _flush(self) -> Iterator[WindowedValue]:
        held, self._held, self._count = self._held, {}, 0
        for window, (rows, times) in held.items():
            first = min(times)
            columns = pa.RecordBatch.from_pydict({name: self._column(name, rows) for name in self._types})
            batch = LabelledBatch.whole(_SOURCE, 0, columns)
            if max(times) > MIN_TIMESTAMP:
                batch = dataclasses.replace(batch, times=np.array([time.micros for time in times], np.int64))
            # At the earliest time of its rows, so that none of them is late when it comes back.
            yield WindowedValue(batch, first, (window,))

    def _column(self, name: str, rows: list[Any]) -> pa.Array:
        values, kind = [getattr(row, name) for row in rows], self._types[name]
        if kind is None:
            return pa.array(map(_ANY_VALUE.encode, values), _PASSED)
        try:
            column = pa.array(values, kind)
        except (pa.ArrowException, OverflowError):
            problem = f"a row has a value in the field {name!r} that is not of its declared type, {kind}"
        else:
            missing = self._missing.get(name)
            if name in self._classes:
                return coded_classes(column, self._classes[name], name, _SOURCE, missing)
            return column if missing is None else with_numbers(column, missing)
        raise InputError(f"{problem}: convert it before, or declare another type (with_output_types)")


@dataclass
class BatchesToRows(ShownTransform):
    """Converts privatized batches to rows with a schema, which keep their event times and windows.

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
        passed = frozenset(name for name, kind in fields.items() if _arrow_type(kind) is None)
        return batches | "ToRows" >> beam.ParDo(_ToRows(passed)).with_output_types(kind)


class _ToRows(beam.DoFn):
    """Makes rows of batches. `passed` are the fields that pass through."""

    def __init__(self, passed: frozenset[str]):
        self._passed = passed

    @redact_errors("making rows")
    def process(
        self, batch: LabelledBatch, window: object = beam.DoFn.WindowParam
    ) -> Iterator[beam.Row | WindowedValue]:
        names = batch.batch.schema.names
        # Values of files are never unpickled, whatever their type.
        passed = self._passed if batch.source == _SOURCE else frozenset[str]()
        columns = [
            list(map(_ANY_VALUE.decode, column.to_pylist()))
            if name in passed and column.type == _PASSED
            else column.to_pylist()
            for name, column in zip(names, batch.batch.columns, strict=True)
        ]
        rows = (beam.Row(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True))
        if batch.times is None:
            yield from rows
            return
        for row, time in zip(rows, batch.times.tolist(), strict=True):
            yield WindowedValue(row, Timestamp(micros=time), (window,))
