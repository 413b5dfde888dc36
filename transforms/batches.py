"""Batches of labeled records: Arrow columns with the source and row of each record, and their Beam coder.

Batches may carry side inputs to later stages (`Carried`). Runners in Java, such as that of Flink, never put a ParDo
with side inputs into one stage with what comes before it, and every batch would pass through Java and back there. The
stage that reads files has only their names before it: it takes the side inputs of the stages after it, too.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows

from ..mechanisms.core.label_classes import LabelClasses
from ..mechanisms.noise.keyed_words import Identities, integer_identities, row_identities
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.unit_bound import SINGLE, PrivacyUnit
from .arrow_values import (
    NotWholeError,
    check_label_type,
    column_identities,
    holds_numbers,
    is_list,
    is_text,
    label_lists,
    plain_batch,
    plain_schema,
    single_ids,
    single_numbers,
    single_values,
    value_type,
)
from .class_values import class_column, class_places
from .errors import InputError
from .tfrecord.encoded_batches import EncodedRecords, binary_array

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute

_LENGTH = struct.Struct("<Q")
# Arrow reads numbers in place from multiples of this.
_ALIGNMENT = 8

T = TypeVar("T")
_Records = TypeVar("_Records", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, eq=False)
class Carried(Generic[T]):
    """Side input that batches carry from the stage that reads them to the one that uses it.

    Give it to `ReadRecordBatches` or `LeaveOut`, and to a later stage in place of the PCollection.

    Attributes:
      name: Name of the value, which no other value of the same batches has.
      value: PCollection of exactly one element.
    """

    name: str
    value: PCollection[T]


def carried_inputs(carried: Sequence[Carried]) -> tuple[list[str], list[AsSingleton]]:
    """Splits what batches are to carry for a stage that calls `LabelledBatch.carry`.

    Returns the names, and the side inputs in the same order.
    """
    return [each.name for each in carried], [AsSingleton(each.value) for each in carried]


class _CarriedName(NamedTuple):
    """Reference to a value that batches carry, as the argument of a DoFn."""

    name: str


Argument: TypeAlias = _CarriedName | T
"""Argument of a DoFn over batches: a value, or a reference to one that they carry."""


def as_argument(value: object) -> object:
    """Makes an argument of a ParDo over batches, whose DoFn resolves it with `LabelledBatch.resolve`.

    `value` is a side input, one that batches carry, or a value.
    """
    if isinstance(value, Carried):
        return _CarriedName(value.name)
    return AsSingleton(value) if isinstance(value, PCollection) else value


def as_side_input(value: object) -> object:
    """Makes an argument of a ParDo over elements that carry nothing: a side input, or the value."""
    return as_argument(value.value if isinstance(value, Carried) else value)


@dataclass(frozen=True, eq=False)
class LabelledBatch:
    """Consecutive records of one source, in order.

    Attributes:
      source: File that the records were read from.
      start: First row of the source that this batch covers.
      stop: End of the covered rows, exclusive.
      rows: Row of each record, shape (n,), int64, ascending, in [start, stop). Rows that were left out leave gaps.
      batch: Columns of the n records, under the names that they have in the file or get by flags. No name and no
        metadata of them means anything to the job.
      mechanism: Fingerprint of the randomizer that drew the labels, in hexadecimal digits; of several private columns,
        their fingerprints in the order in which they were drawn, with commas. None for labels as read.
      unit: Bound that was put on the records of each unit (`UnitBound.request`); None if none was.
      left_out: Number of records of these rows that were left out for that bound.
      carried: Values of side inputs that later stages use, by name.
      encoded: The n records as they stand in their TFRecord file; None if they are written from the columns.
      times: Event time of each record in microseconds, shape (n,), int64; None if they have none, as those of files.
    """

    source: str
    start: int
    stop: int
    rows: np.ndarray
    # Arrow's text of a batch has values, which must not get into an error message.
    batch: pa.RecordBatch = field(repr=False)
    mechanism: str | None = None
    unit: tuple[str, int] | None = None
    left_out: int = 0
    carried: Mapping[str, Any] = field(default_factory=dict, repr=False)
    encoded: EncodedRecords | None = field(default=None, repr=False)
    times: np.ndarray | None = field(default=None, repr=False)

    @classmethod
    def whole(cls, source: str, start: int, batch: pa.RecordBatch) -> LabelledBatch:
        """Makes a batch without gaps.

        Args:
          source: File that the records were read from.
          start: Row of the first record.
          batch: The records.

        Returns:
          The batch that covers exactly these rows.
        """
        stop = start + batch.num_rows
        return cls(source, start, stop, np.arange(start, stop), batch)

    def keep(self, mask: np.ndarray) -> LabelledBatch:
        """Selects records, which keep their row numbers.

        Args:
          mask: Records to select, shape (n,), bool.

        Returns:
          A batch that covers the same rows.
        """
        if mask.all():
            return self
        indices = np.flatnonzero(mask)
        return dataclasses.replace(
            self,
            rows=self.rows[mask],
            batch=filter_batch(self.batch, indices),
            encoded=None if self.encoded is None else self.encoded.take(indices),
            times=None if self.times is None else self.times[mask],
        )

    def slice(self, start: int, stop: int) -> LabelledBatch:
        """Selects consecutive records, without a copy.

        Args:
          start: Index of the first one.
          stop: Index after the last one.

        Returns:
          A batch that covers the same rows.
        """
        return dataclasses.replace(
            self,
            rows=self.rows[start:stop],
            batch=self.batch.slice(start, stop - start),
            encoded=None if self.encoded is None else self.encoded.slice(start, stop),
            times=None if self.times is None else self.times[start:stop],
        )

    def without(self, names: Sequence[str]) -> LabelledBatch:
        """Drops columns, from records as they stand in their file as well. Labels of those must have been replaced.

        Args:
          names: Names of columns, which need not be there.

        Returns:
          A batch of the same records.
        """
        if not names:
            return self
        kept = [name for name in self.batch.schema.names if name not in names]
        encoded = None if self.encoded is None else self.encoded.without(names)
        return dataclasses.replace(self, batch=self.batch.select(kept), encoded=encoded)

    def carry(self, names: Sequence[str], values: Sequence[Any]) -> LabelledBatch:
        """Adds values for later stages.

        Args:
          names: Names of side inputs.
          values: The value of each.

        Returns:
          The batch with these values besides those that it has.
        """
        return dataclasses.replace(self, carried={**self.carried, **dict(zip(names, values, strict=True))})

    def resolve(self, argument: Argument[T]) -> T:
        """Finds the value of an argument of `as_argument`.

        Args:
          argument: The argument, as the DoFn gets it.

        Returns:
          The value that the batch carries, or the argument itself.
        """
        return self.carried[argument.name] if isinstance(argument, _CarriedName) else argument

    def column(self, name: str) -> pa.Array | None:
        """Looks up a column by name.

        Args:
          name: Name of the column.

        Returns:
          The column, or None if there is none of this name.
        """
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)


def slice_rows(records: _Records, first: int, wanted: range) -> _Records:
    """Takes those of consecutive rows that are wanted, possibly none.

    `first` is the number of the first row; `wanted` may lie outside.
    """
    start, stop = (min(max(row - first, 0), records.num_rows) for row in (wanted.start, wanted.stop))
    return records.slice(start, stop - start)


def filter_batch(batch: pa.RecordBatch, indices: np.ndarray) -> pa.RecordBatch:
    """Copies the records of some indices, integers of shape (n,); the result is not a view."""
    return batch.take(pa.array(indices))


class LabelledBatchCoder(beam.coders.Coder):
    """Coder of LabelledBatch. A slice is written without the rest of its parent's buffers.

    The length of a header comes first, then the header in JSON, then segments whose lengths it lists, each at a
    multiple of 8 bytes:

    1. the values that the batch carries, pickled as Beam pickles side inputs; empty if there are none
    2. rows
    3. columns, an Arrow IPC stream
    4. event times, if the header says so
    5. frames of encoded records, 6. their bounds, and the offsets of each label that the header names

    A segment is known by its place alone. What a file contains is in columns and frames, and as text in the header: it
    is never unpickled, and does not decide how a segment is read.
    """

    def encode(self, value: LabelledBatch) -> bytes:
        segments: list[Any] = [
            pickle.dumps(dict(value.carried)) if value.carried else b"",
            np.ascontiguousarray(value.rows, np.int64),
            _columns_to_stream(value.batch),
        ]
        if value.times is not None:
            segments.append(np.ascontiguousarray(value.times, np.int64))
        labels = None
        if value.encoded is not None:
            labels = list(value.encoded.label_offsets)
            segments += value.encoded.packed()
            segments += [np.ascontiguousarray(offsets, np.int64) for offsets in value.encoded.label_offsets.values()]
        header = {
            "source": value.source,
            "start": value.start,
            "stop": value.stop,
            "mechanism": value.mechanism,
            "unit": value.unit,
            "left_out": value.left_out,
            "times": value.times is not None,
            "labels": labels,
            "sizes": [memoryview(segment).nbytes for segment in segments],
        }
        head = json.dumps(header).encode()
        parts = [_LENGTH.pack(len(head))]
        for segment, size in zip([head, *segments], [len(head), *header["sizes"]], strict=True):
            parts += [segment, bytes(-size % _ALIGNMENT)]
        return b"".join(parts)

    def decode(self, encoded: bytes) -> LabelledBatch:
        whole = pa.py_buffer(encoded)
        (length,) = _LENGTH.unpack_from(encoded)
        header = json.loads(whole.slice(_LENGTH.size, length).to_pybytes())
        start, segments = _LENGTH.size + length + -length % _ALIGNMENT, []
        for size in header["sizes"]:
            segments.append(whole.slice(start, size))
            start += size + -size % _ALIGNMENT
        carried, rows, columns, *rest = segments
        times = np.frombuffer(rest.pop(0), np.int64) if header["times"] else None
        records = None
        if header["labels"] is not None:
            frames, bounds, *offsets = rest
            label_offsets = {
                label: np.frombuffer(each, np.int64) for label, each in zip(header["labels"], offsets, strict=True)
            }
            records = EncodedRecords(binary_array(frames, np.frombuffer(bounds, np.int64)), label_offsets)
        with pa.ipc.open_stream(columns) as reader:
            batch = reader.read_next_batch()
        return LabelledBatch(
            header["source"],
            header["start"],
            header["stop"],
            np.frombuffer(rows, np.int64),
            batch,
            header["mechanism"],
            None if header["unit"] is None else (header["unit"][0], header["unit"][1]),
            header["left_out"],
            # Only `encode` writes this segment, from values that stages of the job made.
            pickle.loads(carried) if carried.size else {},
            records,
            times,
        )

    def estimate_size(self, value: LabelledBatch) -> int:
        """Estimates the size in bytes without encoding: runners ask for it even where nothing is encoded."""
        return value.batch.nbytes + value.rows.nbytes + (0 if value.encoded is None else value.encoded.nbytes)

    def is_deterministic(self) -> bool:  # pyrefly: ignore[bad-override]
        return True

    def to_type_hint(self) -> type[LabelledBatch]:
        return LabelledBatch


def _columns_to_stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


beam.coders.registry.register_coder(LabelledBatch, LabelledBatchCoder)


def check_bounded(batch: LabelledBatch, unit: PrivacyUnit) -> None:
    """Checks that the records of each unit were bounded before their labels are used.

    Raises InputError if they were not, or by another bound.
    """
    if unit != SINGLE and batch.unit != unit.request:
        raise InputError(
            f"the records of each unit of {unit.column!r} were not bounded to {unit.max_records}: apply BoundUnits and "
            "LeaveOut, or BoundUnitsById, before the labels are used"
        )


def label_values(batch: LabelledBatch, label: str, classes: LabelClasses | None = None) -> np.ndarray:
    """Labels of a batch, shape (n,), float64; with classes, their places.

    They are NaN for records without a usable label (missing, several, NaN or infinite; of texts, an empty one). Raises
    InputError if the column is not numeric, or holds no classes.
    """
    column = batch.column(label)
    if classes is not None:
        return class_places(column, classes, label, batch.source, batch.batch.num_rows)
    if column is not None:
        check_label_type(column.type, label, batch.source)
    return single_numbers(column, batch.batch.num_rows)


def usable_labels(batch: LabelledBatch, column: LabelColumn) -> tuple[np.ndarray, np.ndarray]:
    """Extracts the labels of a batch, and tells which records are released, which is public.

    Returns the labels of the column, shape (n,), float64, as of `label_values`; and a mask of the records with a usable
    label in it and in all other private columns, shape (n,), bool. Raises InputError if a private column is not
    numeric.
    """
    values = label_values(batch, column.name, column.classes)
    usable = np.isfinite(values)
    for other in column.others:
        usable &= has_label(batch, other)
    return values, usable


def has_label(batch: LabelledBatch, label: str) -> np.ndarray:
    """Tells which records have a usable label, be it a number or a class, shape (n,), bool.

    Raises InputError if the column holds neither numbers nor text.
    """
    column = batch.column(label)
    if column is None or not is_text(value_type(column.type)):
        return np.isfinite(label_values(batch, label))
    values, present = single_values(column)
    present[present] = np.asarray(pc.binary_length(values)) > 0
    return present


def several_values(batch: LabelledBatch, label: str) -> int:
    """Counts the records with several labels, which is public, as is whether a record has a label.

    The number is 0 for a column that holds no lists. TFRecords of which only some features are read have none.
    """
    column = batch.column(label)
    if column is None or not is_list(column.type):
        return 0
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return int((lengths > 1).sum())


def check_new(batch: LabelledBatch, name: str, advice: str) -> None:
    """Checks that a batch has no column of the name of one that is added. Raises InputError, with advice, if it has."""
    if batch.column(name) is not None:
        raise InputError(f"{batch.source}: there is a column {name!r} already: {advice}")


def check_whole_input(records: PCollection[Any], transform: beam.PTransform) -> None:
    """Checks that a transform gets all records at once. Raises InputError for windows, or an unbounded input."""
    name = type(transform).__name__
    if not records.is_bounded:
        raise InputError(f"{name} takes all records at once: an unbounded input never ends, so give it a bounded part")
    if not isinstance(records.windowing.windowfn, GlobalWindows):
        raise InputError(
            f"{name} takes all records at once, without windows: apply beam.WindowInto(GlobalWindows()) before it, and "
            "your windows after it"
        )


def center_values(batch: LabelledBatch, center: str) -> np.ndarray:
    """Centers of a batch, shape (n,), float64.

    They are NaN for records without a usable one (missing, several, NaN or infinite). Raises InputError if the column
    is not numeric.
    """
    column = batch.column(center)
    if column is not None and not holds_numbers(column.type):
        raise InputError(
            f"{batch.source}: center column {center!r} holds {value_type(column.type)}, not numbers: "
            "name another column with `center_column` (for apply, another `mechanism_file`), or for a CSV file "
            f"whose first rows have no number give `csv_types` {center}=float64"
        )
    return single_numbers(column, batch.batch.num_rows)


def replace_label(
    batch: LabelledBatch, label: str, values: np.ndarray, classes: LabelClasses | None = None
) -> LabelledBatch:
    """Replaces the values of the label column, which keeps its position, and the labels within encoded records.

    Takes the new labels with shape (n,), float64, places with classes. Returns the batch with labels as float64, or as
    float32 if its records are encoded. If the column held lists, it holds lists of one label of the same kind, of
    float32 if they were of float32 or as tf.Examples have integers. Classes keep the type of the column.

    Metadata of the columns is dropped, because writers keep statistics and samples of values there.
    """
    place = batch.batch.schema.get_field_index(label)
    kind, column = batch.batch.schema.field(place).type, pa.array(values, pa.float64())
    encoded = batch.encoded
    if classes is not None:
        column = class_column(values.astype(np.int64), kind, classes)
    elif encoded is not None:
        encoded, column = encoded.with_label(label, values), pa.array(values.astype(np.float32))
    elif is_list(kind):
        column = label_lists(kind, values)
    columns = [column if number == place else each for number, each in enumerate(batch.batch.columns)]
    schema = plain_schema(batch.batch.schema.set(place, pa.field(label, column.type)))
    return dataclasses.replace(batch, batch=plain_batch(columns, schema), encoded=encoded)


def record_identities(batch: LabelledBatch, id_column: str | None) -> Identities:
    """Identity of each record: its source and row, or the value of its id column.

    `id_column` is None for source and row. Raises InputError if there is no such column, it holds neither integers,
    text nor bytes, or a record has no id; names the row.
    """
    if id_column is None:
        return row_identities(batch.source, batch.rows)
    column = batch.column(id_column)
    if column is None:
        if not batch.batch.num_rows:
            return integer_identities(id_column, np.array([], np.int64))
        raise InputError(f"{batch.source}: there is no column {id_column!r}: name another column with `id_column`")
    try:
        values, present = single_ids(column)
    except NotWholeError as error:
        problem = error.problem(f"the id in {id_column!r}")
        raise InputError(
            f"{batch.source}: row {batch.rows[error.index]}: {problem}: correct it, or name another column with "
            "`id_column`"
        ) from None
    if not present.all():
        row = batch.rows[np.argmin(present)]
        raise InputError(f"{batch.source}: row {row} must have exactly one id in {id_column!r} (`id_column`)")
    identities = column_identities(values, id_column)
    if identities is not None:
        return identities
    raise InputError(
        f"{batch.source}: id column {id_column!r} holds {values.type}, not integers, text or bytes: "
        "write it as integers or text, or name another column with `id_column`"
    )
