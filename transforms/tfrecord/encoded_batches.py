"""Encoded records: records as they stand in their TFRecord file, so that features need not be decoded.

A batch of these has besides them the columns that the job reads. Replacing a label overwrites its four bytes in each
frame, and the frame's checksum; the writer then copies the frames to its file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .example_values import encode_varints, varint, varint_sizes
from .framing import (
    Frames,
    appended_footers,
    frame_headers,
    overwrite_words,
    restarted_footers,
)
from .wire import FEATURES_TAG, FOOTER_SIZE, HEADER_SIZE, drop_entries


@dataclass(frozen=True, eq=False)
class EncodedRecords:
    """The n records of a batch as they stand in their file, or with labels and features of the job in them.

    Attributes:
      frames: The frame of each record, a large_binary array without nulls.
      label_offsets: For each label that was not replaced yet, the offset of its float32 in each frame, -1 where there
        is none. Shape (n,), int64.
    """

    frames: pa.Array
    label_offsets: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, frames: Frames, label_offsets: Mapping[str, np.ndarray]) -> EncodedRecords:
        """Makes them of frames, without a copy; `label_offsets` for all labels."""
        first, last = int(frames.bounds[0]), int(frames.bounds[-1])
        data = pa.py_buffer(frames.content).slice(first, last - first)
        return cls(binary_array(data, frames.bounds - first), label_offsets)

    def take(self, indices: np.ndarray) -> EncodedRecords:
        """Copies the records of some indices, integers of shape (m,)."""
        offsets = {label: offsets[indices] for label, offsets in self.label_offsets.items()}
        return EncodedRecords(self.frames.take(pa.array(indices)), offsets)

    def slice(self, start: int, stop: int) -> EncodedRecords:
        """Selects the records from `start` to `stop`, exclusive, without a copy."""
        offsets = {label: offsets[start:stop] for label, offsets in self.label_offsets.items()}
        return EncodedRecords(self.frames.slice(start, stop - start), offsets)

    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """Frames in one piece, without a copy: bytes, shape (m,), uint8; bounds, shape (n + 1,), int64."""
        return _packed(self.frames)

    @property
    def nbytes(self) -> int:
        """Size of the frames and of the offsets of labels, in bytes."""
        return self.frames.nbytes + sum(offsets.nbytes for offsets in self.label_offsets.values())

    def with_label(self, label: str, values: np.ndarray) -> EncodedRecords:
        """Replaces a label that was not replaced yet by `values`, shape (n,), float64, rounded to float32.

        Raises ValueError if a record has no label.
        """
        offsets = self.label_offsets[label]
        if offsets.min(initial=0) < 0:
            raise ValueError("a record without a label cannot have its label replaced")
        data, bounds = self.packed()
        octets = data.copy()
        overwrite_words(octets, bounds, bounds[:-1] + offsets, values.astype("<f4"))
        others = {name: offsets for name, offsets in self.label_offsets.items() if name != label}
        return EncodedRecords(binary_array(pa.py_buffer(octets), bounds), others)

    def with_feature(self, values: np.ndarray, example: bytes) -> EncodedRecords:
        """Adds a feature of one float as the last map entry of every record.

        `values` has shape (n,), float64, rounded to float32. `example` is a canonical tf.Example of this feature alone
        with any float, whose four bytes are the last ones. The records have no feature of its name; they are in the
        canonical form of `wire` before and after.
        """
        return _appended(self, example, values.astype("<f4"))

    def with_constants(self, example: bytes) -> EncodedRecords:
        """Adds features that have the same values in all records, as their last map entries.

        `example` is a canonical tf.Example of these features alone; at least one has a value. The records have no
        features of these names, and are canonical before and after.
        """
        return _appended(self, example, np.repeat(np.frombuffer(example[-4:], "<f4"), len(self.frames)))

    def without(self, names: Sequence[str]) -> EncodedRecords:
        """Drops features from the records, which stay canonical. Raises ValueError if a label was not replaced."""
        self._check_replaced()
        data, bounds = self.packed()
        ends = np.empty(len(bounds), np.int64)
        kept = drop_entries(data, np.ascontiguousarray(bounds), tuple(name.encode() for name in names), ends)
        return EncodedRecords(binary_array(pa.py_buffer(kept), ends), {})

    def replaced_frames(self) -> pa.Array:
        """Frame of each record, as large_binary. Raises ValueError if a label was not replaced."""
        self._check_replaced()
        return self.frames

    def framed(self) -> pa.Buffer:
        """Frames of all records, as they stand in a TFRecord file. Raises ValueError if a label was not replaced."""
        self._check_replaced()
        return pa.py_buffer(self.packed()[0])

    def _check_replaced(self) -> None:
        if self.label_offsets:
            raise ValueError("the labels of these records have not been replaced")


def binary_array(data: pa.Buffer, offsets: np.ndarray) -> pa.Array:
    """Views consecutive parts of a buffer as a large_binary array of length n, without a copy.

    `offsets` are the bounds of the parts, ascending, shape (n + 1,), int64.
    """
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), data]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _appended(records: EncodedRecords, example: bytes, numbers: np.ndarray) -> EncodedRecords:
    """The records with the map entries of an example added to each.

    numbers: the last four bytes of the example in each record, (n,), <f4.
    """
    entry = example[int(_prefix_sizes(np.array([len(example)]))[0]) :]
    frames = records.frames
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
    offsets = {
        label: np.where(offsets < 0, offsets, offsets + gaps) for label, offsets in records.label_offsets.items()
    }
    return dataclasses.replace(records, frames=binary_array(pa.py_buffer(octets), longer), label_offsets=offsets)


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


def _packed(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The values of a large_binary array as (m,) uint8, and their (n + 1,) bounds in it."""
    if not len(column):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]
