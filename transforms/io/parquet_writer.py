"""Writes shards of Parquet. Segments are Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError
from ..tfrecord.encoded_batches import is_encoded
from .filesystems import create
from .shard_writer import (
    Layout,
    Segment,
    SegmentWriter,
    WriteShards,
    check_complete,
    open_segment_file,
)

_ROW_GROUP = 1 << 16


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
    """

    def _layout(self) -> Layout:
        return _ParquetLayout(self.compression)


@dataclass(frozen=True)
class _ParquetLayout:
    compression: str

    @property
    def suffix(self) -> str:
        return "parquet"

    def open_segment(self, path: str) -> SegmentWriter:
        return _ArrowSegment(path)

    def assemble(self, segments: list[Segment], schemas: frozenset[bytes], file: BinaryIO) -> None:
        # Every shard has the schema of all shards, even without records, because readers take it from any file.
        schema = _common_schema(schemas)
        with pq.ParquetWriter(pa.PythonFile(file, "w"), schema, compression=self.compression) as writer:
            for group in _row_groups(_conformed(segments, schema)):
                writer.write_table(group, row_group_size=_ROW_GROUP)


class _ArrowSegment:
    """Arrow streams one after the other; a new one begins where the schema changes. The size is in records."""

    def __init__(self, path: str):
        self._file = create(path)
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None
        self._schemas: set[bytes] = set()
        self._size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if is_encoded(batch.schema):
            raise ValueError("encoded batches can only be written as TFRecords")
        if self._writer is None or not batch.schema.equals(self._schema):
            if self._writer is not None:
                self._writer.close()
            self._schema = batch.schema
            self._schemas.add(batch.schema.serialize().to_pybytes())
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)
        self._size += batch.num_rows

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()

    def size(self) -> int:
        return self._size

    def schemas(self) -> frozenset[bytes]:
        return frozenset(self._schemas)


def _streams(path: str) -> Iterator[pa.ipc.RecordBatchStreamReader]:
    with open_segment_file(path) as file:
        source = pa.PythonFile(file, "r")
        while True:
            try:
                reader = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                # Raised at the end of the file. A truncated file is found by counting records.
                return
            yield reader


def _common_schema(schemas: frozenset[bytes]) -> pa.Schema:
    # Sorted, so that the order of fields does not depend on the order of workers.
    found = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in sorted(schemas)]
    try:
        return pa.unify_schemas(found) if found else pa.schema([])
    except pa.ArrowException:
        raise InputError("a column changes its type between files: Parquet output needs one type per column") from None


def _conformed(segments: list[Segment], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for segment in segments:
        found = 0
        for reader in _streams(segment.path):
            for batch in reader:
                columns = [
                    pa.nulls(batch.num_rows, field.type)
                    if (place := batch.schema.get_field_index(field.name)) < 0
                    else batch.column(place).cast(field.type)
                    for field in schema
                ]
                found += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        check_complete(segment, found)


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of exactly 65,536 rows, the last one shorter, whatever the batches."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        while rows >= _ROW_GROUP:
            table = pa.Table.from_batches(pending)
            yield table.slice(0, _ROW_GROUP).combine_chunks()
            pending = table.slice(_ROW_GROUP).to_batches()
            rows -= _ROW_GROUP
    if rows:
        yield pa.Table.from_batches(pending).combine_chunks()
