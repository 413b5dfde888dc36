"""Reads TFRecord files of tf.Examples into record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ..tfrecord.example_values import ValueFinder
from ..tfrecord.framing import read_records
from .filesystems import open_input
from .input_format import BATCH_ROWS, FilePart


class TFRecordReader:
    """Reads TFRecord files, one after the other; learns the form of records on the way."""

    def __init__(self, columns: Sequence[str] | None, label: str | None, encoded: bool):
        """Prepares for a set of columns.

        Args:
          columns: Features to read; None reads all.
          label: The label, whose bytes do not count for the end of a batch; None if there is none.
          encoded: Whether batches carry the records as well; needs `columns` and `label`.
        """
        self._columns = columns
        self._label = label
        self._encoded = encoded
        self._finder = ValueFinder(columns or ())

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
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

        decoder, columns = ExampleDecoder(part.path), ExampleColumns(part.path, self._finder)
        sizes = FeatureSizes(part.path, self._label) if self._label is not None else None
        with open_input(part.path) as file:
            for frames in read_records(file, part.path, BATCH_ROWS, sizes):
                if self._encoded and self._label is not None:
                    yield columns.read_encoded(frames, self._label)
                elif self._columns is None:
                    yield _with_length(decoder.decode_frames(frames), len(frames))
                else:
                    yield _with_length(columns.read(frames), len(frames))


def _with_length(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """The batch. One without columns has no length, so it gets a column of nulls."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [""])
