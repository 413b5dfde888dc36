"""Reads TFRecord files of tf.Examples into record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from ..batches import filter_batch
from ..errors import InputError
from ..tfrecord.entry_forms import EntryForms
from ..tfrecord.example_values import ValueFinder
from ..tfrecord.framing import Frames, read_records
from .filesystems import GZIP_MAGIC, GZIP_WITHOUT_NAME, open_input
from .input_format import BATCH_ROWS, FilePart

SCHEMA_RECORDS = 1 << 10
"""Records of a file that are read for its schema."""


@dataclass(frozen=True, eq=False)
class SelectedRecords:
    """Some of the records of a batch.

    Attributes:
      rows: Their places in the batch, shape (m,), int64, ascending.
      total: Number of records of the batch, n.
      batch: The m records.
    """

    rows: np.ndarray
    total: int
    batch: pa.RecordBatch


class TFRecordReader:
    """Reads TFRecord files, one after the other; learns the form of records on the way."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        labels: Sequence[str],
        encoded: bool,
        where: str | None = None,
        matches: Callable[[pa.RecordBatch], np.ndarray] | None = None,
    ):
        """Prepares for a set of columns.

        Args:
          columns: Features to read; None reads all.
          labels: Private features, whose bytes do not count for the end of a batch.
          encoded: Whether batches carry the records as well; needs `columns` and `labels`.
          where: Feature that decides which records are read; None reads all.
          matches: Tests which records of a batch with that feature are read, (n,) bool. Only these are decoded further.
        """
        self._matches = matches
        # What one file teaches about records serves for the next.
        self._forms = EntryForms()
        self._where = None if where is None else ValueFinder([where], self._forms)
        self._columns = columns
        self._labels = labels
        self._encoded = encoded
        self._finder = ValueFinder(columns or (), self._forms)

    def read(self, part: FilePart) -> Iterator[SelectedRecords]:
        """Reads one file.

        Args:
          part: A whole file.

        Yields:
          Batches of `BATCH_ROWS` records in order, fewer at the end and where features are large.

        Raises:
          InputError: If the file cannot be opened, is corrupt or truncated, or holds other records than tf.Examples.
        """
        # All import the extra `tfrecord`, which only TFRecord input needs.
        from ..tfrecord.example_columns import ExampleColumns
        from ..tfrecord.example_decoder import ExampleDecoder
        from ..tfrecord.feature_sizes import FeatureSizes

        decoder, columns = ExampleDecoder(part.path, self._forms), ExampleColumns(part.path, self._finder)
        where = ExampleColumns(part.path, self._where) if self._where is not None else None
        sizes = FeatureSizes(part.path, self._labels, self._forms) if self._labels else None
        with open_input(part.path) as file:
            for frames in _read_frames(file, part.path, sizes):
                chosen, rows = frames, np.arange(len(frames))
                if where is not None and self._matches is not None and self._columns is not None:
                    chosen, column = where.canonical(frames)
                    rows = np.flatnonzero(self._matches(_with_length(column, len(frames))))
                    chosen = chosen.select(rows) if len(rows) < len(frames) else chosen
                if self._encoded:
                    batch = columns.read_encoded(chosen, self._labels)
                elif self._columns is not None:
                    batch = _with_length(columns.read(chosen), len(chosen))
                else:
                    batch = _with_length(decoder.decode_frames(frames), len(frames))
                    if self._matches is not None:
                        rows = np.flatnonzero(self._matches(batch))
                        batch = filter_batch(batch, rows)
                yield SelectedRecords(rows, len(frames), batch)


def _read_frames(
    file: BinaryIO, path: str, sizes: Callable[[Frames], np.ndarray] | None, count: int | None = None
) -> Iterator[Frames]:
    """The records, and an error that names gzip if the file is that instead."""
    first = True
    try:
        for frames in read_records(file, path, count or BATCH_ROWS, sizes):
            first = False
            yield frames
    except InputError:
        # Only then: a TFRecord may begin with the same bytes.
        if first and _is_gzip(path):
            raise InputError(f"{path}: {GZIP_WITHOUT_NAME}") from None
        raise


def _is_gzip(path: str) -> bool:
    with open_input(path) as file:
        try:
            return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        except Exception:
            return False


def tfrecord_schema(path: str, labels: Sequence[str]) -> pa.Schema:
    """Finds the features of the first 1,024 records of a file, without looking at a label.

    Args:
      path: The file.
      labels: Names of the private features.

    Returns:
      The features in the order of their names; a label that occurs has the type null.

    Raises:
      InputError: If the file cannot be opened or is corrupt, or a record is not a tf.Example.
    """
    from ..tfrecord.example_decoder import ExampleDecoder

    with open_input(path) as file:
        for frames in _read_frames(file, path, None, SCHEMA_RECORDS):
            bounds = zip(frames.starts.tolist(), frames.stops.tolist(), strict=True)
            return ExampleDecoder(path).schema([frames.content[start:stop] for start, stop in bounds], labels)
    return pa.schema([])


def _with_length(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """The batch. One without columns has no length, so it gets a column of nulls."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [""])
