"""TFRecord files of tf.Examples to record batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ..tfrecord.example_wire import ValueFinder
from ..tfrecord.framing import read_records
from .input_format import BATCH_ROWS
from .open_input import open_input


@dataclass
class Learned:
    """What files taught about those after them, for one set of columns. csv_types: by first file. finder: of TFRecords'
    values."""

    csv_types: dict[str, dict[str, pa.DataType]] = field(default_factory=dict)
    finder: ValueFinder | None = None


def read_tfrecord(
    path: str, wanted: list[str] | None, replaced: str | None, learned: Learned
) -> Iterator[pa.RecordBatch]:
    """replaced: the label of records that are carried along as they stand in the file; None for columns alone."""
    # The extra `tfx`, loaded only where TFRecords are.
    from ..tfrecord.example_columns import ExampleColumns
    from ..tfrecord.example_decoder import ExampleDecoder

    finder = learned.finder = learned.finder or ValueFinder(wanted or ())
    decoder, columns = ExampleDecoder(path), ExampleColumns(path, finder)
    with open_input(path) as file:
        for frames in read_records(file, path, BATCH_ROWS):
            if replaced is not None:
                yield columns.read_encoded(frames, replaced)
            else:
                batch = decoder.decode(frames.records()) if wanted is None else columns.read(frames)
                yield _as_long_as(batch, len(frames))


def _as_long_as(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """A batch without columns forgets how many records it has; a column of nulls remembers."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [""])
