"""File formats of shards: TFRecord of tf.Example, and Parquet.

The same batches give the same bytes on every runner. Segments of Parquet shards are Parquet files if they may become
shards, and Arrow IPC streams otherwise.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..arrow_values import record_bytes
from ..batches import LabelledBatch
from ..errors import InputError
from ..io.limits import LIMITS, Limits
from ..tfrecord.encoded_batches import EncodedRecords
from ..tfrecord.example_encoder import encode_frames, frame_array
from .keyed_order import sorted_records, without_words
from .shard_writer import COPY_BYTES, Layout, Segment, SegmentWriter, WriteShards, open_segment_file

_GZIP_LEVEL = 6
_FRAMES = pa.schema([("frame", pa.large_binary())])
# Records that are read at a time.
_READ_ROWS = 1 << 14
# Values of a column that are looked at. If half of those of a row group are distinct, a 64th of these repeat.
_SAMPLE = 1 << 10


class WriteTFRecords(WriteShards):
    """Writes TFRecord shards of tf.Example.

    Takes a PCollection of LabelledBatch; gives a ShardFile for each shard. The same batches give the same bytes on
    every runner.

    Attributes:
      directory: Folder in which complete shards appear: part-00000-of-00004.tfrecord and so on.
      temp_directory: Folder for unfinished files of privatized records, on the same filesystem. Delete it when the job
        has ended.
      num_shards: Number of shards, of each folder if there are several, >= 1; all of them are written.
      compression: none or gzip.
      partitions: Folders that records go to by the partition columns of their files. The columns are left out of the
        shards. By default all shards are in `directory` itself.
      rows: Rows of the sources, from `CountRows` over an earlier pass that read the same records, or what `DivideRows`
        makes of them for these shards, carried by the batches; None if unknown.
      left_out: Columns, or features, that are left out of the shards.
      labels: Private columns, without which the metric `bytes_written` counts; None counts encoded records only.
      order: Keyed order, by which records go to shards and are sorted in them; None for that of files and rows.
      limits: Sizes of row groups, of blocks of rows and of what is open at a time.
    """

    def _layout(self) -> Layout:
        return _TFRecordLayout(self.compression)


@dataclass(frozen=True)
class _TFRecordLayout:
    compression: str

    @property
    def suffix(self) -> str:
        return "tfrecord.gz" if self.compression == "gzip" else "tfrecord"

    def open_segment(self, path: str, batch: LabelledBatch, whole: bool) -> SegmentWriter:
        return _TFRecordSegment(path, whole and self.compression == "gzip")

    def columns(self, batch: LabelledBatch) -> pa.RecordBatch:
        frames = frame_array(batch.batch) if batch.encoded is None else batch.encoded.replaced_frames()
        return pa.RecordBatch.from_arrays([frames], schema=_FRAMES)

    def open_unsorted(self, path: str) -> SegmentWriter:
        return _UnsortedSegment(path)

    def assemble_sorted(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        found = (batch for segment in segments for batch in _batches(segment))
        frames = sorted_records(found, _FRAMES, _conformed).column(0)
        with compressed_file(file) if self.compression == "gzip" else contextlib.nullcontext(file) as target:
            for chunk in frames.chunks:
                target.write(EncodedRecords(chunk, {}).framed())

    def is_shard(self, segments: list[Segment], schemas: frozenset[bytes]) -> bool:
        # gzip of several pieces has other bytes than that of the whole.
        return self.compression == "none" or (len(segments) == 1 and segments[0].final)

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        if self.compression == "gzip":
            with compressed_file(file) as compressed:
                self._copy(segments, compressed)
        else:
            self._copy(segments, file)

    @staticmethod
    def _copy(segments: list[Segment], file: BinaryIO | gzip.GzipFile) -> None:
        for segment in segments:
            with open_segment_file(segment) as source:
                records = gzip.GzipFile(fileobj=source) if segment.final else source
                while chunk := records.read(COPY_BYTES):
                    file.write(chunk)


def compressed_file(file: BinaryIO) -> gzip.GzipFile:
    """Opens a compressed shard for writing over a file."""
    # No file name and no time in the header, so that the same records give the same bytes.
    return gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0)


class _TFRecordSegment(SegmentWriter):
    """Records as they stand in a shard; compressed ones if the shard probably has no other segment."""

    def __init__(self, path: str, compressed: bool):
        super().__init__(path)
        self._compressed = compressed_file(self._file) if compressed else None

    def write(self, batch: LabelledBatch) -> None:
        framed = encode_frames(batch.batch) if batch.encoded is None else batch.encoded.framed()
        (self._compressed or self._file).write(framed)

    def _finish(self) -> None:
        if self._compressed is not None:
            self._compressed.close()

    def is_final(self) -> bool:
        return self._compressed is not None


class WriteParquet(WriteShards):
    """Writes Parquet shards with row groups of 65,536 records.

    Takes a PCollection of LabelledBatch; gives a ShardFile for each shard. The same batches give the same bytes on
    every runner.

    Attributes:
      directory: Folder in which complete shards appear: part-00000-of-00004.parquet and so on.
      temp_directory: Folder for unfinished files of privatized records, on the same filesystem. Delete it when the job
        has ended.
      num_shards: Number of shards, of each folder if there are several, >= 1; all of them are written.
      compression: none or gzip, of column chunks.
      partitions: Folders that records go to by the partition columns of their files. The columns are left out of the
        shards. By default all shards are in `directory` itself.
      rows: Rows of the sources, from `CountRows` over an earlier pass that read the same records, or what `DivideRows`
        makes of them for these shards, carried by the batches; None if unknown.
      left_out: Columns, or features, that are left out of the shards.
      labels: Private columns, without which the metric `bytes_written` counts; None counts encoded records only.
      order: Keyed order, by which records go to shards and are sorted in them; None for that of files and rows.
      limits: Sizes of row groups, of blocks of rows and of what is open at a time.
    """

    def _layout(self) -> Layout:
        return _ParquetLayout(self.compression, self.limits)


@dataclass(frozen=True)
class _ParquetLayout:
    compression: str
    limits: Limits

    @property
    def suffix(self) -> str:
        return "parquet"

    def open_segment(self, path: str, batch: LabelledBatch, whole: bool) -> SegmentWriter:
        if batch.encoded is not None:
            raise ValueError("encoded records can only be written as TFRecords")
        schema = batch.batch.schema
        if whole and all(_returns(field.type) for field in schema):
            return _ParquetSegment(path, schema, self.compression, self.limits)
        return _ArrowSegment(path)

    def columns(self, batch: LabelledBatch) -> pa.RecordBatch:
        return batch.batch

    def open_unsorted(self, path: str) -> SegmentWriter:
        return _UnsortedSegment(path)

    def assemble_sorted(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        schema = _common_schema(schemas)
        found = (batch for segment in segments for batch in _batches(segment))
        with GroupWriter(file, schema, self.compression, self.limits) as writer:
            for batch in sorted_records(found, schema, _conformed).to_batches():
                writer.write(batch)

    def is_shard(self, segments: list[Segment], schemas: frozenset[bytes]) -> bool:
        return len(segments) == 1 and segments[0].final and segments[0].schemas == schemas

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        # Every shard has the schema of all shards, even without records, because readers take it from any file.
        with GroupWriter(file, _common_schema(schemas), self.compression, self.limits) as writer:
            for segment in segments:
                for batch in _batches(segment):
                    writer.write(_conformed(batch, writer.schema))


class GroupWriter:
    """Writes a Parquet file with row groups that follow from its records, whatever the batches.

    They have `group_rows` records, and fewer at the end of the file and where records are large.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, compression: str, limits: Limits = LIMITS):
        self._most_rows, self._most_bytes = limits.group_rows, limits.group_bytes
        self.schema = schema
        self._file = file
        self._compression = compression
        self._opened: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._size = 0

    def __enter__(self) -> GroupWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._opened is not None:
            self._opened.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends records of the schema."""
        while batch.num_rows:
            taken = batch.slice(0, self._most_rows - self._rows)
            sizes = self._size + np.cumsum(record_bytes(taken))
            taken = taken.slice(0, int(np.searchsorted(sizes, self._most_bytes)) + 1)
            batch = batch.slice(taken.num_rows)
            self._pending.append(taken)
            self._rows, self._size = self._rows + taken.num_rows, int(sizes[taken.num_rows - 1])
            if self._rows == self._most_rows or self._size >= self._most_bytes:
                self._write_group(pa.Table.from_batches(self._pending))
                self._pending, self._rows, self._size = [], 0, 0

    def close(self) -> None:
        """Writes the records that are left, and the end of the file."""
        if self._rows:
            self._write_group(pa.Table.from_batches(self._pending))
        self._writer(self.schema.empty_table()).close()

    def _write_group(self, group: pa.Table) -> None:
        group = group.combine_chunks()
        self._writer(group).write_table(group, row_group_size=self._most_rows)

    def _writer(self, group: pa.Table) -> pq.ParquetWriter:
        """The writer, which is opened with the first group: that decides which columns get dictionaries."""
        if self._opened is None:
            leaves = [leaf for name in group.schema.names for leaf in _leaves(name, group.column(name))]
            self._opened = pq.ParquetWriter(
                pa.PythonFile(self._file, "w"),
                self.schema,
                compression=self._compression,
                use_dictionary=[path for path, values in leaves if _repeats(values)],
            )
        return self._opened


def _leaves(path: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray | None]]:
    """Columns of Parquet that a column of Arrow takes, by their paths; None for values in more than one list."""
    kind = column.type
    is_list = any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))
    if is_list and not pa.types.is_nested(kind.value_type):
        yield f"{path}.list.element", pc.list_flatten(column)  # type: ignore[attr-defined]
    elif pa.types.is_nested(kind):
        yield from ((leaf, None) for leaf in _paths(path, kind))
    else:
        yield path, column


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Paths of the Parquet columns of a nested type."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _paths(f"{path}.key_value.key", kind.key_type)
        yield from _paths(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _paths(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _repeats(values: pa.ChunkedArray | None) -> bool:
    """Tells whether a dictionary pays: it takes six times as long, and saves nothing where few values repeat."""
    if values is None or not _countable(values.type):
        return True
    sample = values.slice(0, _SAMPLE)
    return 64 * pc.count_distinct(sample).as_py() <= 63 * len(sample)  # type: ignore[attr-defined]


def _countable(kind: pa.DataType) -> bool:
    """Whether Arrow counts distinct values of a type."""
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    numbers = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_temporal)
    return any(test(kind) for test in (*texts, *numbers)) and not pa.types.is_interval(kind)


class _ParquetSegment(SegmentWriter):
    """Records of one schema as they stand in a shard."""

    def __init__(self, path: str, schema: pa.Schema, compression: str, limits: Limits):
        super().__init__(path)
        self._writer = GroupWriter(self._file, schema, compression, limits)

    def takes(self, schema: pa.Schema) -> bool:
        return schema.equals(self._writer.schema)

    def write(self, batch: LabelledBatch) -> None:
        self._writer.write(batch.batch)

    def _finish(self) -> None:
        self._writer.close()

    def is_final(self) -> bool:
        return True

    def schemas(self) -> frozenset[bytes]:
        return frozenset([self._writer.schema.serialize().to_pybytes()])


class _ArrowSegment(SegmentWriter):
    """Arrow streams one after the other; a new one begins where the schema changes."""

    def __init__(self, path: str):
        super().__init__(path)
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None
        self._schemas: set[bytes] = set()

    def write(self, batch: LabelledBatch) -> None:
        schema = batch.batch.schema
        if self._writer is None or not schema.equals(self._schema):
            if self._writer is not None:
                self._writer.close()
            self._schema = schema
            self._schemas.add(schema.serialize().to_pybytes())
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), schema)
        self._writer.write_batch(batch.batch)

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def schemas(self) -> frozenset[bytes]:
        return frozenset(self._schemas)


class _UnsortedSegment(_ArrowSegment):
    """Records after their words."""

    def schemas(self) -> frozenset[bytes]:
        return frozenset(map(without_words, self._schemas))


def _returns(kind: pa.DataType) -> bool:
    """Tells whether values read back from Parquet have this type again, and are written as the same bytes."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _returns(kind.value_type)
    return (
        types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _batches(segment: Segment) -> Iterator[pa.RecordBatch]:
    """The records of a segment, in pieces of any size."""
    with open_segment_file(segment) as file:
        if segment.final:
            source = pa.PythonFile(file, "r")
            yield from batches_of_groups(pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True))
            return
        source = pa.PythonFile(file, "r")
        while True:
            try:
                reader = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                # Raised at the end of the file, whose size has been checked.
                return
            yield from reader


def batches_of_groups(parquet: pq.ParquetFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The records of a shard, in batches of no more than a row group, so of no more than `group_bytes`."""
    for group in range(parquet.num_row_groups):
        yield from parquet.iter_batches(_READ_ROWS, row_groups=[group], columns=columns)


def _common_schema(schemas: frozenset[bytes]) -> pa.Schema:
    # Sorted, so that the order of fields does not depend on the order of workers.
    found = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in sorted(schemas)]
    try:
        return pa.unify_schemas(found) if found else pa.schema([])
    except pa.ArrowException:
        kinds: dict[str, set[pa.DataType]] = {}
        for field in (field for schema in found for field in schema if not pa.types.is_null(field.type)):
            kinds.setdefault(field.name, set()).add(field.type)
        names = ", ".join(repr(name) for name, types in sorted(kinds.items()) if len(types) > 1)
        raise InputError(
            f"column {names} changes its type between files: Parquet output needs one type per column"
        ) from None


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of a schema, of nulls where it has none."""
    columns = [
        pa.nulls(batch.num_rows, field.type)
        if (place := batch.schema.get_field_index(field.name)) < 0
        else batch.column(place).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
