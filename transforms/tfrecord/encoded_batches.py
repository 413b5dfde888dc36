"""Encoded batches: batches that carry each record as it stands in its TFRecord file, so features need not be decoded.

Besides the columns that the job reads, an encoded batch has internal columns: the frames of the records, and for each
label the offset in each frame of its four bytes. Replacing the labels overwrites those bytes and the frame's
checksum; the writer then copies the frames to its file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .framing import (
    Frames,
    appended_footers,
    frame_headers,
    overwrite_words,
    restarted_footers,
)
from .varints import encode_varints, varint, varint_sizes
from .wire import FEATURES_TAG, FOOTER_SIZE, HEADER_SIZE

# No flag can name these columns, because arguments of a process cannot contain a NUL character.
_FRAMES, _LABEL_OFFSETS = "\0frames", "\0label offsets"


def encoded_batch(
    frames: Frames, label_offsets: Mapping[str, np.ndarray], columns: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Builds an encoded batch.

    Args:
      frames: The n records.
      label_offsets: For each label, the offset of its float32 in each frame, -1 where there is none. Shape (n,), int64.
      columns: The columns that the job reads, each of length n.

    Returns:
      The columns and the internal ones.
    """
    first, last = int(frames.bounds[0]), int(frames.bounds[-1])
    data = pa.py_buffer(frames.content).slice(first, last - first)
    return pa.RecordBatch.from_arrays(
        [*columns.values(), *map(pa.array, label_offsets.values()), binary_array(data, frames.bounds - first)],
        [*columns, *map(_offsets_of, label_offsets), _FRAMES],
    )


def binary_array(data: pa.Buffer, offsets: np.ndarray) -> pa.Array:
    """Arrow array of consecutive parts of a buffer, without a copy.

    Args:
      data: The buffer.
      offsets: Bounds of the n parts, ascending, shape (n + 1,), int64.

    Returns:
      A large_binary array of length n.
    """
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), data]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def is_encoded(schema: pa.Schema) -> bool:
    """Tests whether batches of this schema carry frames.

    Args:
      schema: Schema of a batch.

    Returns:
      True for encoded batches.
    """
    return schema.get_field_index(_FRAMES) >= 0


def with_label(batch: pa.RecordBatch, label: str, values: np.ndarray) -> pa.RecordBatch:
    """Replaces one label of an encoded batch, in its column and in the frames.

    Args:
      batch: An encoded batch of n records whose values of this label were not replaced yet.
      label: Name of the label's column.
      values: The new labels, shape (n,), float64; rounded to float32.

    Returns:
      An encoded batch, which `framed_records` accepts if this was the last of its labels.

    Raises:
      ValueError: If a record has no label.
    """
    label_offsets = batch.column(batch.schema.get_field_index(_offsets_of(label))).to_numpy()
    if label_offsets.min(initial=0) < 0:
        raise ValueError("a record without a label cannot have its label replaced")
    data, bounds = _frames(batch)
    octets = data.copy()
    labels = values.astype("<f4")
    overwrite_words(octets, bounds, bounds[:-1] + label_offsets, labels)
    columns = {
        name: batch.column(place)
        for place, name in enumerate(batch.schema.names)
        if name not in (_FRAMES, _offsets_of(label))
    }
    columns[label] = pa.array(labels)
    columns[_FRAMES] = binary_array(pa.py_buffer(octets), bounds)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def with_feature(batch: pa.RecordBatch, name: str, values: np.ndarray, example: bytes) -> pa.RecordBatch:
    """Adds a feature of one float to an encoded batch, as a column and as the last map entry of every record.

    Args:
      batch: An encoded batch of n records without a feature of this name, in the canonical form of `wire_reference`.
      name: Name of the feature.
      values: Shape (n,), float64; rounded to float32.
      example: A canonical tf.Example of this feature alone, with any float, whose four bytes are the last ones.

    Returns:
      An encoded batch with one more column. Its records are canonical as well.
    """
    numbers = values.astype("<f4")
    return with_columns(batch, {**_appended(batch, example, numbers), name: pa.array(numbers)})


def with_constants(batch: pa.RecordBatch, columns: Mapping[str, pa.Array], example: bytes) -> pa.RecordBatch:
    """Adds features to an encoded batch that have the same values in all records.

    Args:
      batch: An encoded batch of n records without features of these names, canonical as for `with_feature`.
      columns: The features as columns, each of length n.
      example: A canonical tf.Example of these features alone; at least one has a value.

    Returns:
      An encoded batch with these columns; the features are the last map entries of every record. Its records are
      canonical as well.
    """
    ending = np.frombuffer(example[-4:], "<f4")
    return with_columns(batch, {**_appended(batch, example, np.repeat(ending, batch.num_rows)), **columns})


def with_columns(batch: pa.RecordBatch, changed: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Adds or replaces columns of a batch. Encoded records stay as they are.

    Args:
      batch: n records.
      changed: Columns by name, each of length n.

    Returns:
      The batch with these columns.
    """
    columns = {**dict(zip(batch.schema.names, batch.columns, strict=True)), **changed}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _appended(batch: pa.RecordBatch, example: bytes, numbers: np.ndarray) -> dict[str, pa.Array]:
    """Columns of an encoded batch that change when the map entries of an example are added to each record.

    numbers: the last four bytes of the example in each record, (n,), <f4.
    """
    entry = example[int(_prefix_sizes(np.array([len(example)]))[0]) :]
    frames = batch.column(batch.schema.get_field_index(_FRAMES))
    lengths = np.diff(_packed(frames)[1]) - HEADER_SIZE - FOOTER_SIZE
    before = _prefix_sizes(lengths)
    bodies = lengths - before
    after = 1 + varint_sizes(bodies + len(entry))
    # The entry comes after the footer, which it then overwrites, with a new footer behind it. A longer prefix needs a
    # gap before the record.
    empty = pa.scalar(b"", pa.large_binary())
    parts, gaps = [frames, pa.scalar(entry, pa.large_binary())], after - before
    if gaps.any():
        sizes = pa.array([bytes(size) for size in range(int(gaps.max()) + 1)], pa.large_binary())
        parts.insert(0, sizes.take(pa.array(gaps)))
    joined = pc.binary_join_element_wise(*parts, empty)  # type: ignore[attr-defined]
    data, longer = _packed(joined)
    octets = data.copy()
    _parts(octets, HEADER_SIZE)[longer[:-1]] = _items(frame_headers(after + bodies + len(entry)))
    _write_prefixes(octets, longer[:-1] + HEADER_SIZE, bodies + len(entry))
    endings = np.tile(np.frombuffer(entry, np.uint8), (len(numbers), 1))
    endings[:, -numbers.itemsize :] = numbers.view(np.uint8).reshape(-1, numbers.itemsize)
    starts = longer[:-1] + HEADER_SIZE + after + bodies
    footers = _parts(octets, FOOTER_SIZE)[starts].view(np.uint8).reshape(-1, FOOTER_SIZE)
    footers = appended_footers(footers, entry, numbers)
    footers = restarted_footers(footers, *_prefix_change(bodies, before, len(entry)), bodies + len(entry))
    _parts(octets, len(entry))[starts] = _items(endings)
    _parts(octets, FOOTER_SIZE)[longer[1:] - FOOTER_SIZE] = _items(footers)
    changed = {_FRAMES: binary_array(pa.py_buffer(octets), longer)}
    for name in _offset_columns(batch.schema):
        offsets = batch.column(batch.schema.get_field_index(name)).to_numpy()
        changed[name] = pa.array(np.where(offsets < 0, offsets, offsets + gaps))
    return changed


def _prefix_sizes(lengths: np.ndarray) -> np.ndarray:
    """Bytes of tag and length before the map entries of canonical records; 0 for empty records."""
    # A guess that is too large by at most one gives the right size.
    sizes = varint_sizes(np.maximum(lengths - 1 - varint_sizes(np.maximum(lengths - 2, 0)), 0))
    return np.where(lengths > 0, 1 + sizes, 0)


def _write_prefixes(octets: np.ndarray, starts: np.ndarray, bodies: np.ndarray) -> None:
    """Writes tag and length at the start of every record; bodies: bytes of its map entries."""
    lengths, sizes = encode_varints(bodies)
    octets[starts] = FEATURES_TAG
    within = np.arange(len(lengths)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    octets[np.repeat(starts + 1, sizes) + within] = lengths


def _prefix_change(bodies: np.ndarray, before: np.ndarray, more: int) -> tuple[list[bytes], list[bytes], np.ndarray]:
    """Distinct prefixes of records, those after their map entries grow by `more` bytes, and each record's place."""
    # An empty record has no prefix.
    distinct, place = np.unique(np.where(before > 0, bodies, -1), return_inverse=True)
    tag = bytes([FEATURES_TAG])
    old = [tag + varint(body) if body >= 0 else b"" for body in distinct.tolist()]
    new = [tag + varint(max(body, 0) + more) for body in distinct.tolist()]
    return old, new, place


def _parts(octets: np.ndarray, size: int) -> np.ndarray:
    """View of the `size` bytes from every offset on, each as one item."""
    return np.ndarray((max(len(octets) - size + 1, 0),), f"V{size}", octets, strides=(1,))


def _items(rows: np.ndarray) -> np.ndarray:
    """Each row of bytes as one item."""
    return np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel()


def framed_records(batch: pa.RecordBatch) -> pa.Buffer:
    """Frames of all records, as they stand in a TFRecord file.

    Args:
      batch: An encoded batch all of whose labels were replaced by `with_label`.

    Returns:
      The frames, one after the other.

    Raises:
      ValueError: If the labels were not replaced.
    """
    if _offset_columns(batch.schema):
        raise ValueError("the labels of these records have not been replaced")
    return pa.py_buffer(_frames(batch)[0])


def _offsets_of(label: str) -> str:
    """Name of the internal column with the offsets of a label."""
    return f"{_LABEL_OFFSETS} {label}"


def _offset_columns(schema: pa.Schema) -> list[str]:
    """Names of the internal columns of labels that were not replaced yet."""
    return [name for name in schema.names if name.startswith(_LABEL_OFFSETS)]


def _frames(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """The frames as (m,) uint8, and their (n + 1,) bounds in it."""
    return _packed(batch.column(batch.schema.get_field_index(_FRAMES)))


def _packed(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The values of a large_binary array as (m,) uint8, and their (n + 1,) bounds in it."""
    if not len(column):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]
