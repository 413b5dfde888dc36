"""Reads TFRecord files of tf.Examples into record batches."""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from ..batches import filter_batch
from ..errors import InputError, redact_errors
from ..io.filesystems import GZIP_MAGIC, GZIP_WITHOUT_NAME, archive_problem, not_opened, open_input
from ..io.input_format import FilePart, bounds_of_part, split_by_rows
from ..io.limits import LIMITS, Limits
from ..tfrecord.encoded_batches import EncodedRecords
from ..tfrecord.framing import ALL_ROWS, Frames, batch_offsets, read_records, skip_records

_ZLIB_BYTES = 1 << 10
SCHEMA_RECORDS = 1 << 10
"""Records of a file that are read for its schema."""
_OF_SCHEMA = Limits(batch_rows=SCHEMA_RECORDS)


@dataclass(frozen=True, eq=False)
class SelectedRecords:
    """Some of the records of a batch.

    Attributes:
      rows: Their places in the batch, shape (m,), int64, ascending.
      total: Number of records of the batch, n.
      batch: Columns of the m records.
      encoded: The m records as they stand in the file; None unless they were asked for, for output or undecoded.
    """

    rows: np.ndarray
    total: int
    batch: pa.RecordBatch
    encoded: EncodedRecords | None = None


class TFRecordReader:
    """Reads TFRecord files, one after the other."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        labels: Sequence[str],
        encoded: bool,
        where: str | None = None,
        matches: Callable[[pa.RecordBatch], np.ndarray] | None = None,
        undecoded: bool = False,
        limits: Limits = LIMITS,
    ):
        """Prepares for a set of features; None reads all.

        `labels` are the private features, whose bytes do not count for the end of a batch. If `encoded`, which needs
        both, batches carry the records as well. `where` is the feature that decides which records are read, None for
        all; `matches` tests which records of a batch with it are read, shape (n,), bool. Only these are decoded
        further. If `undecoded`, which needs columns, batches carry the records as well, but not for output: they may be
        encoded in any form.
        """
        self._matches = matches
        self._where = where
        self._columns = columns
        self._labels = labels
        self._encoded = encoded
        self._undecoded, self._limits = undecoded, limits

    def first_row(self, part: FilePart) -> int:
        """Row of the file at which a part begins. Raises InputError if the file cannot be read."""
        rows = _rows_of_part(part, self._limits)
        return 0 if rows is None else rows.start

    def read(self, part: FilePart) -> Iterator[SelectedRecords]:
        """Reads one file, or a part of it by `split_tfrecord`.

        Yields batches of `batch_rows` records in order, fewer at the end and where features are large. Raises
        InputError if the file cannot be opened, is corrupt or truncated, or holds other records than tf.Examples.
        """
        # Imported late: only TFRecord input needs them.
        from ..tfrecord.example_columns import ExampleColumns, FeatureSizes
        from ..tfrecord.example_decoder import ExampleDecoder

        decoder, columns = ExampleDecoder(part.path), ExampleColumns(part.path, self._columns or ())
        where = ExampleColumns(part.path, [self._where]) if self._where is not None else None
        sizes = FeatureSizes(part.path, self._labels) if self._labels else None
        rows = _rows_of_part(part, self._limits)
        if rows is not None and not rows:
            return
        with open_input(part.path) if rows is None else open(part.path, "rb") as file:
            if rows is not None:
                _go_to_row(file, part.path, rows.start, self._limits)
            for frames in _read_frames(file, part.path, sizes, rows, self._limits):
                chosen, rows, encoded = frames, np.arange(len(frames)), None
                if where is not None and self._matches is not None and self._columns is not None:
                    chosen, column = where.canonical(frames)
                    rows = np.flatnonzero(self._matches(_with_length(column, len(frames))))
                    chosen = chosen.select(rows) if len(rows) < len(frames) else chosen
                if self._encoded:
                    batch, encoded = columns.read_encoded(chosen, self._labels)
                elif self._undecoded:
                    encoded = EncodedRecords.of(chosen, {})
                    # Not even the keys of the features are looked at, unless a column is asked for.
                    batch = columns.read(chosen) if self._columns else pa.RecordBatch.from_pydict({})
                elif self._columns is not None:
                    batch = columns.read(chosen)
                else:
                    batch = decoder.decode_frames(frames)
                batch = _with_length(batch, len(chosen))
                if self._columns is None and self._matches is not None:
                    rows = np.flatnonzero(self._matches(batch))
                    batch = filter_batch(batch, rows)
                yield SelectedRecords(rows, len(frames), batch, encoded)


@redact_errors("reading")
def split_tfrecord(file: FilePart, limits: Limits = LIMITS) -> Iterator[FilePart]:
    """Splits a whole TFRecord file into parts that workers read in parallel, by its number of records.

    Yields parts in order, at least one. Raises InputError if the file cannot be read.
    """
    yield from split_by_rows(file, lambda: _index(file.path, limits)[0], limits)


def _rows_of_part(part: FilePart, limits: Limits) -> range | None:
    """Rows of a part, which are whole shards or whole batches; None for a whole file."""
    if part.parts == 1:
        return None
    first, stop = bounds_of_part(part, len(_index(part.path, limits)[1]), limits.batch_rows)
    # The last part reads to the end, to find what is wrong there.
    return range(first, ALL_ROWS if stop is None else stop)


def _go_to_row(file: BinaryIO, path: str, row: int, limits: Limits) -> None:
    """Moves to a record of a local file."""
    offsets = _index(path, limits)[1]
    batch = min(row // limits.batch_rows, len(offsets) - 1)
    file.seek(int(offsets[batch]))
    if not skip_records(file, row - batch * limits.batch_rows, limits.chunk_bytes):
        raise InputError(f"{path} has changed while the job ran: run again when the files are complete")


def _index(path: str, limits: Limits) -> tuple[int, np.ndarray]:
    """Number of records of a local file, and the offset of each batch."""
    try:
        facts = os.stat(path)
        return _index_of(path, limits, facts.st_size, facts.st_mtime_ns)
    except OSError as error:
        raise not_opened(path, error) from None


@functools.lru_cache(maxsize=256)
def _index_of(path: str, limits: Limits, size: int, changed: int) -> tuple[int, np.ndarray]:
    """As `_index`, kept for the next part. size, changed: a file that was changed is read again."""
    with open(path, "rb") as file:
        return batch_offsets(file, limits.batch_rows, limits.chunk_bytes)


def _read_frames(
    file: BinaryIO,
    path: str,
    sizes: Callable[[Frames], np.ndarray] | None,
    rows: range | None = None,
    limits: Limits = LIMITS,
) -> Iterator[Frames]:
    """The records, and an error that names gzip if the file is that instead."""
    first = True
    try:
        for frames in read_records(file, path, limits.batch_rows, sizes, rows, limits):
            first = False
            yield frames
    except InputError:
        # Only then: a TFRecord may begin with the same bytes.
        start = _first_bytes(path) if first else b""
        archive = archive_problem(start)
        if archive is not None:
            raise InputError(f"{path}: {archive}") from None
        if start.startswith(GZIP_MAGIC):
            raise InputError(f"{path}: {GZIP_WITHOUT_NAME}") from None
        if _is_zlib(start):
            raise InputError(
                f"{path}: is compressed with zlib, which is not read: write it with GZIP and a name in .gz, or "
                "decompress it"
            ) from None
        raise


def _first_bytes(path: str) -> bytes:
    with open_input(path) as file:
        try:
            return file.read(_ZLIB_BYTES)
        except Exception:
            return b""


def _is_zlib(start: bytes) -> bool:
    try:
        # A TFRecord of the same first two bytes is not likely to be text of zlib for long.
        return len(zlib.decompressobj().decompress(start, _ZLIB_BYTES)) > 0
    except zlib.error:
        return False


def tfrecord_schema(path: str, labels: Sequence[str]) -> pa.Schema:
    """Finds the features of the first 1,024 records of a file, without looking at a label.

    They are in the order of their names; a label that occurs has the type null. Raises InputError if the file cannot be
    opened or is corrupt, or a record is not a tf.Example.
    """
    from ..tfrecord.example_decoder import ExampleDecoder

    with open_input(path) as file:
        for frames in _read_frames(file, path, None, limits=_OF_SCHEMA):
            return ExampleDecoder(path).schema(frames.records(), labels)
    return pa.schema([])


def _with_length(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """The batch; one without columns gets the length that it lacks."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
