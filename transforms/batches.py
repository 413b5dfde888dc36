"""Batches of labelled records on their way through Beam: where each record came from, and its Arrow columns."""

from __future__ import annotations

import json
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import pyarrow as pa

from ..mechanisms.noise.record_identities import Identities, integer_identities, packed_identities, row_identities
from .errors import InputError
from .tfrecord.encoded_batches import is_encoded, with_label

_METADATA = b"labeldp.batch"


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """Records of one source, in order.

    source: the file they came from. start, stop: the rows [start, stop) of it that this batch answers for.
    rows: (n,) int64, the row of each record, ascending, within [start, stop); rows that were dropped leave gaps.
    batch: n records as Arrow columns.
    """

    source: str
    start: int
    stop: int
    rows: np.ndarray
    batch: pa.RecordBatch

    @classmethod
    def whole(cls, source: str, start: int, batch: pa.RecordBatch) -> LabelledBatch:
        """Records without gaps, the first of them row `start`."""
        stop = start + batch.num_rows
        return cls(source, start, stop, np.arange(start, stop), batch)

    def keep(self, mask: np.ndarray) -> LabelledBatch:
        """Only the records where mask is true; they keep their row numbers. mask: (n,) bool."""
        if mask.all():
            return self
        return LabelledBatch(
            self.source, self.start, self.stop, self.rows[mask], filter_batch(self.batch, np.flatnonzero(mask))
        )

    def column(self, name: str) -> pa.Array | None:
        """The column of that name, or None."""
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)


def filter_batch(batch: pa.RecordBatch, indices: np.ndarray) -> pa.RecordBatch:
    """The records at these places. Returns a batch of its own, not a view."""
    return pa.RecordBatch.from_arrays([column.take(pa.array(indices)) for column in batch.columns], schema=batch.schema)


class LabelledBatchCoder(beam.coders.Coder):
    """A LabelledBatch as one Arrow IPC stream. A slice is written alone, without its parent's buffers."""

    def encode(self, value: LabelledBatch) -> bytes:
        place = {"source": value.source, "start": value.start, "stop": value.stop}
        fields = [pa.field("row", pa.int64()), *value.batch.schema]
        table = pa.RecordBatch.from_arrays(
            [pa.array(value.rows), *value.batch.columns],
            schema=pa.schema(fields, metadata={**(value.batch.schema.metadata or {}), _METADATA: json.dumps(place)}),
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(table)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> LabelledBatch:
        with pa.ipc.open_stream(pa.py_buffer(encoded)) as reader:
            table = reader.read_next_batch()
        metadata = dict(table.schema.metadata)
        place = json.loads(metadata.pop(_METADATA))
        schema = pa.schema(list(table.schema)[1:], metadata=metadata or None)
        batch = pa.RecordBatch.from_arrays(table.columns[1:], schema=schema)
        return LabelledBatch(place["source"], place["start"], place["stop"], table.column(0).to_numpy(), batch)

    def estimate_size(self, value: LabelledBatch) -> int:
        """Without encoding: runners ask for most batches, also where none is encoded."""
        return value.batch.nbytes + value.rows.nbytes

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type[LabelledBatch]:
        return LabelledBatch


beam.coders.registry.register_coder(LabelledBatch, LabelledBatchCoder)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def only_values(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The single value of each record, from a flat column or from a column of lists.

    Returns (values, present): present (n,) bool tells which records have exactly one non-null value; values is an
    Arrow array of those alone.
    """
    if not _is_list(column.type):
        present = np.asarray(column.is_valid())
        return column.filter(pa.array(present)), present
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    present = lengths == 1
    firsts = column.offsets.to_numpy(zero_copy_only=False)[:-1][present]
    values = column.values.take(pa.array(firsts))
    valid = np.asarray(values.is_valid())
    present[np.flatnonzero(present)] = valid
    return values.filter(pa.array(valid)), present


def check_label_type(kind: pa.DataType, label: str, source: str) -> None:
    """Raises InputError unless labels of this type are numbers, or lists of numbers."""
    value = kind.value_type if _is_list(kind) else kind
    if not (_is_number(value) or pa.types.is_null(value)):
        raise InputError(f"{source}: label column {label!r} holds {value}, not numbers: name another with --label")


def label_values(batch: LabelledBatch, label: str) -> np.ndarray:
    """The label of each record, NaN where it has none that can be used: missing, several, NaN or infinite.

    Returns (n,) float64. Raises InputError when the column is not numeric.
    """
    values = np.full(batch.batch.num_rows, np.nan)
    column = batch.column(label)
    if column is None:
        return values
    check_label_type(column.type, label, batch.source)
    found, present = only_values(column)
    if present.any():
        values[present] = float_values(found)
    values[~np.isfinite(values)] = np.nan
    return values


def float_values(values: pa.Array) -> np.ndarray:
    """Numbers as (n,) float64. values: integers, floats or decimals without nulls."""
    if not pa.types.is_floating(values.type):
        values = values.cast(pa.float64(), safe=False)
    return values.to_numpy(zero_copy_only=False).astype(np.float64)


def replace_label(batch: pa.RecordBatch, label: str, values: np.ndarray) -> pa.RecordBatch:
    """The batch with its label column's values replaced, in its place: float64, or lists of one float32.

    What the file said about its columns is dropped: writers keep statistics and samples of values there. Records that
    the batch carries along as they stand in their file get the labels, too.
    """
    if is_encoded(batch.schema):
        return with_label(batch, label, values)
    place = batch.schema.get_field_index(label)
    if _is_list(batch.schema.field(place).type):
        offsets = pa.array(np.arange(len(values) + 1), pa.int64())
        column = pa.LargeListArray.from_arrays(offsets, pa.array(values.astype(np.float32)))
    else:
        column = pa.array(values, pa.float64())
    columns = list(batch.columns)
    columns[place] = column
    schema = batch.schema.set(place, pa.field(label, column.type)).remove_metadata()
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_BYTES_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _packed(values: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all values, one after the other, and (n + 1,) offsets into them."""
    _, offsets, data = values.buffers()
    first, last = values.offset, values.offset + len(values) + 1
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return whole, np.frombuffer(offsets, np.int64)[first:last] if offsets is not None else np.zeros(1, np.int64)


def record_identities(batch: LabelledBatch, id_column: str | None) -> Identities:
    """What makes each record itself: its source and row, or the value of its id column.

    Raises InputError, naming the row, when a record has no id or the column holds neither integers nor text.
    """
    if id_column is None:
        return row_identities(batch.source, batch.rows)
    column = batch.column(id_column)
    if column is None:
        if not batch.batch.num_rows:
            return integer_identities(np.array([], np.int64))
        raise InputError(f"{batch.source}: there is no column {id_column!r}: name another with --id_column")
    values, present = only_values(column)
    if not present.all():
        row = batch.rows[np.argmin(present)]
        raise InputError(f"{batch.source}: row {row} does not have one id in {id_column!r} (--id_column)")
    if pa.types.is_integer(values.type):
        return integer_identities(values.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
    if any(is_type(values.type) for is_type in _BYTES_TYPES):
        return packed_identities(*_packed(values.cast(pa.large_binary())))
    raise InputError(
        f"{batch.source}: id column {id_column!r} holds {values.type}, not integers or text: "
        "name another with --id_column"
    )
