"""Batches that carry each record as it stands in its TFRecord file, so that features need not be decoded.

Beside the columns that somebody looks at there are two of their own: the frames of the records, and where in each
frame the four bytes of its label are. Replacing labels writes over those bytes, and over the frame's checksum; what
the writer then finds is a part of its file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from .framing import Frames, write_over

# No flag can name these.
_FRAMES, _PLACES = "\0frames", "\0label places"


def encoded_batch(frames: Frames, places: np.ndarray, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The frames as a batch. places: (n,) int64, where in each frame the label's float32 is, -1 where there is none.
    columns: what is known of the records."""
    first, last = int(frames.bounds[0]), int(frames.bounds[-1])
    data = pa.py_buffer(frames.content).slice(first, last - first)
    return pa.RecordBatch.from_arrays(
        [*columns.values(), pa.array(places), binary_array(data, frames.bounds - first)], [*columns, _PLACES, _FRAMES]
    )


def binary_array(data: pa.Buffer, offsets: np.ndarray) -> pa.Array:
    """Consecutive parts of the data. offsets: (n + 1,) int64, ascending."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), data]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def is_encoded(schema: pa.Schema) -> bool:
    """Whether batches of this schema carry frames."""
    return schema.get_field_index(_FRAMES) >= 0


def without_frames(schema: pa.Schema) -> list[str]:
    """The names of the columns that are known of the records."""
    return [name for name in schema.names if name not in (_FRAMES, _PLACES)]


def with_label(batch: pa.RecordBatch, label: str, values: np.ndarray) -> pa.RecordBatch:
    """The batch with its label replaced, in the column of that name and in the frames. values: (n,) float64.

    Raises ValueError when a record has no place for a label.
    """
    places = batch.column(batch.schema.get_field_index(_PLACES)).to_numpy()
    if places.min(initial=0) < 0:
        raise ValueError("only a record that has a label can have it replaced")
    data, offsets = _parts(batch)
    octets = data.copy()
    labels = values.astype("<f4")
    write_over(octets, offsets, offsets[:-1] + places, labels)
    columns = {name: batch.column(batch.schema.get_field_index(name)) for name in without_frames(batch.schema)}
    columns[label] = pa.array(labels)
    columns[_FRAMES] = binary_array(pa.py_buffer(octets), offsets)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def framed_records(batch: pa.RecordBatch) -> pa.Buffer:
    """The frames of all records, as they stand in a TFRecord file.

    Raises ValueError unless their labels were replaced.
    """
    if batch.schema.get_field_index(_PLACES) >= 0:
        raise ValueError("these records still have their labels")
    return pa.py_buffer(_parts(batch)[0])


def _parts(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """The frames as (m,) uint8, and their (n + 1,) bounds in it."""
    column = batch.column(batch.schema.get_field_index(_FRAMES))
    if not len(column):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]
