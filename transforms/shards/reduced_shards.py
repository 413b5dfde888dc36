"""Complete shards without some of their records.

The frames of the other TFRecords are copied, and the other rows of a Parquet shard are written as the job wrote all of
them, so that the shard has the bytes that it would have if the others had never been there. A shard that loses nothing
is copied byte for byte.
"""

from __future__ import annotations

import base64
import gzip
import shutil
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, named_file, system_text
from ..io.filesystems import complete_file, open_file, open_input
from ..progress_log import Progress
from ..tfrecord.framing import Frames, read_records
from .shard_formats import GroupWriter, batches_of_groups, compressed_file
from .shard_writer import COPY_BYTES

_ROWS = 1 << 14


class ShardForm(NamedTuple):
    """Form in which a shard is written: tfrecord or parquet, none or gzip, and the columns of Parquet, else None."""

    format: str
    compression: str
    schema: pa.Schema | None


class ColumnBatch(NamedTuple):
    """Number of consecutive records of a shard, and their values in a column; None without one, or if not asked for."""

    rows: int
    values: pa.Array | None


def shard_form(path: str) -> ShardForm:
    """Reads how a shard, Parquet or TFRecord, is written. Raises InputError if it is damaged or cannot be read."""
    if not path.endswith(".parquet"):
        return ShardForm("tfrecord", "gzip" if path.endswith(".gz") else "none", None)
    with open_input(path) as file:
        parquet = _parquet_file(file, path)
        return ShardForm("parquet", _compression(parquet), _written_schema(parquet, path))


def read_column(path: str, name: str | None) -> Iterator[ColumnBatch]:
    """Reads a column of a shard in batches of consecutive records, or with None only counts these.

    Raises InputError if the shard is damaged or cannot be read.
    """
    if path.endswith(".parquet"):
        yield from _parquet_column(path, name)
        return
    # Imported late: loads protobuf.
    from ..tfrecord.example_columns import ExampleColumns

    columns = None if name is None else ExampleColumns(path, [name])
    for frames in _frames(path):
        found = None if columns is None else columns.read(frames)
        place = -1 if found is None or name is None else found.schema.get_field_index(name)
        yield ColumnBatch(len(frames), None if found is None or place < 0 else found.column(place))


def _parquet_column(path: str, name: str | None) -> Iterator[ColumnBatch]:
    with open_input(path) as file:
        parquet = _parquet_file(file, path)
        if name is None or name not in parquet.schema_arrow.names:
            yield ColumnBatch(parquet.metadata.num_rows, None)
            return
        for batch in _batches(parquet, path, [name]):
            yield ColumnBatch(batch.num_rows, batch.column(0))


def write_reduced(source: str, target: str, temp: str, dropped: np.ndarray, progress: Progress) -> None:
    """Writes a shard without some of its records, or copies a file that loses none.

    The new one has the same file name; `temp` is the temporary folder of the run, as in `complete_file`, and `dropped`
    has the rows to leave out, ascending, shape (m,), int64. `progress` counts the records that are written anew. Raises
    InputError if the shard is damaged or cannot be read, and StageError if the new one cannot be written.
    """
    with named_file("writing", target), complete_file(target, temp) as file:
        if len(dropped):
            _write_kept(source, file, dropped, progress)
            return
        with open_file(source) as copied:
            shutil.copyfileobj(copied, file, COPY_BYTES)


def select_records(source: str, target: str, chosen: np.ndarray) -> None:
    """Writes some records of a shard, by rows as in `write_reduced`, into a local file of the same name.

    Its folder exists. Raises InputError if the shard is damaged or cannot be read.
    """
    records = sum(batch.rows for batch in read_column(source, None))
    with open(target, "wb") as file:
        _write_kept(source, file, np.setdiff1d(np.arange(records), chosen), Progress("selected"))


def _write_kept(source: str, file: BinaryIO, dropped: np.ndarray, progress: Progress) -> None:
    if source.endswith(".parquet"):
        _write_parquet(source, file, dropped, progress)
    elif source.endswith(".gz"):
        with compressed_file(file) as compressed:
            _write_frames(source, compressed, dropped, progress)
    else:
        _write_frames(source, file, dropped, progress)


def _frames(path: str) -> Iterator[Frames]:
    with open_input(path) as file:
        yield from read_records(file, path, _ROWS, None)


def _write_frames(source: str, file: BinaryIO | gzip.GzipFile, dropped: np.ndarray, progress: Progress) -> None:
    first = 0
    for frames in _frames(source):
        kept = frames.select(_kept(first, len(frames), dropped))
        file.write(kept.content[: int(kept.bounds[-1])])
        first += len(frames)
        progress.add(len(frames))


def _write_parquet(source: str, file: BinaryIO, dropped: np.ndarray, progress: Progress) -> None:
    first = 0
    with open_input(source) as opened:
        parquet = _parquet_file(opened, source)
        schema = _written_schema(parquet, source)
        with GroupWriter(file, schema, _compression(parquet)) as writer:
            for batch in _batches(parquet, source):
                columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
                whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                writer.write(whole.take(pa.array(_kept(first, batch.num_rows, dropped))))
                first += batch.num_rows
                progress.add(batch.num_rows)


def _kept(first: int, rows: int, dropped: np.ndarray) -> np.ndarray:
    """Indices of the records that stay, in a batch of `rows` records from row `first` on."""
    low, high = np.searchsorted(dropped, [first, first + rows])
    stays = np.full(rows, True)
    stays[dropped[low:high] - first] = False
    return np.flatnonzero(stays)


def _parquet_file(file: BinaryIO, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.PythonFile(file, "r"), pre_buffer=False, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _batches(parquet: pq.ParquetFile, path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches_of_groups(parquet, columns)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: str, error: Exception) -> InputError:
    return InputError(f"{path}: cannot be read as Parquet: {system_text(error) or 'it is truncated or corrupt'}")


def _written_schema(parquet: pq.ParquetFile, path: str) -> pa.Schema:
    """Schema that the shard was written with, which names the values of lists otherwise than the one read back."""
    stored = (parquet.metadata.metadata or {}).get(b"ARROW:schema")
    if stored is None:
        return parquet.schema_arrow
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise _damaged(path, error) from None


def _compression(parquet: pq.ParquetFile) -> str:
    """Compression of the column chunks, by the name that shards are written with."""
    groups = parquet.metadata.num_row_groups
    name = parquet.metadata.row_group(0).column(0).compression if groups and len(parquet.schema_arrow) else "GZIP"
    return "none" if name == "UNCOMPRESSED" else name.lower()
