"""Widening of integer labels in serialized tf.Examples to float32, the type of the labels that are released.

Only the label's map entry and the lengths around it change; all other bytes are copied.

Source: as for `wire_reference`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from .encoded_batches import binary_array
from .example_values import Values
from .framing import PADDING, Frames, frame_headers
from .varints import content_offsets, varint, varint_sizes
from .wire import FOOTER_SIZE, INT64, write_footers

# The value of a map entry: Feature, FloatList, one packed float32 of 0.
_FLOAT_VALUE = b"\x12\x08\x12\x06\x0a\x04" + bytes(4)
_FLOAT_OFFSET = len(_FLOAT_VALUE) - 4


def widen_integer_labels(frames: Frames, label: str, values: Values) -> tuple[Frames, np.ndarray]:
    """Replaces each integer label by a float32 of 0.

    The records are canonical; `values` are the positions of the labels. Returns the new frames, and the offset of the
    float32 in each of them, -1 for records without an integer label; shape (n,), int64.
    """
    chosen = values.kinds == INT64
    entries, keys, features = integer_entries(frames, label, values)
    stops, record_starts, record_stops = values.stops[chosen], frames.starts[chosen], frames.stops[chosen]
    key_size = _key_size(label)
    first_entries = content_offsets(frames.octets, record_starts)
    entry_length = key_size + len(_FLOAT_VALUE)
    new_entry = b"\x0a" + varint(entry_length)
    lengths = entries - first_entries + len(new_entry) + entry_length + record_stops - stops

    # Each frame is cut into seven pieces, of which every second one is kept. A frame without an integer label is kept
    # as one piece.
    cuts = np.repeat(frames.bounds[:-1, None], 7, axis=1)
    cuts[:, 2:] = frames.bounds[1:, None]
    cuts[chosen, 1:] = np.stack([first_entries, entries, keys, features, stops, record_stops], axis=1)
    old = binary_array(pa.py_buffer(frames.content), np.append(cuts.ravel(), frames.bounds[-1]))
    prefixes, prefix_indices = _for_each_distinct(lengths, _frame_prefix)
    constants = pa.array([b"", new_entry, _FLOAT_VALUE, bytes(FOOTER_SIZE)], pa.large_binary())
    order = np.full(cuts.shape, len(old))
    order[:, 1::2] = np.arange(len(old)).reshape(cuts.shape)[:, 1::2]
    order[chosen, 2:7:2] = len(old) + np.arange(1, 4)
    order[chosen, 0] = len(old) + len(constants) + prefix_indices
    made = pa.concat_arrays([old, constants, prefixes]).take(pa.array(order.ravel()))

    _, piece_offsets, data = made.buffers()
    bounds = np.frombuffer(piece_offsets, np.int64)[: len(made) + 1]
    label_offsets = np.where(chosen, bounds[4:-1:7] + _FLOAT_OFFSET - bounds[:-1:7], -1)
    octets = np.frombuffer(data, np.uint8)[: bounds[-1]].copy()
    frames_bounds = np.ascontiguousarray(bounds[::7])
    write_footers(octets, frames_bounds)
    return Frames(octets.tobytes() + bytes(PADDING), frames_bounds), label_offsets


def integer_entries(frames: Frames, label: str, values: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the map entries of integer labels, each of which ends with its value.

    Records with an integer label are canonical; `values` are the positions of the labels. Returns (entries, keys,
    features): offset of each integer label's map entry, of the key in it and of the Feature after the key; shape (m,),
    int64.
    """
    chosen = values.kinds == INT64
    starts, stops = values.starts[chosen], values.stops[chosen]
    # The list's tag is three bytes before an unpacked varint, and four bytes before a packed one.
    packed = frames.octets[starts - 3] != INT64
    features = starts - np.where(packed, 6, 5)
    keys = features - _key_size(label)
    return keys - 1 - varint_sizes(stops - keys), keys, features


def _key_size(label: str) -> int:
    """Bytes of the key's field in a map entry."""
    return len(label.encode()) + len(varint(len(label.encode()))) + 1


def _for_each_distinct(numbers: np.ndarray, content: Callable[[int], bytes]) -> tuple[pa.Array, np.ndarray]:
    """The content for each distinct number, and for each number the index of its content."""
    distinct, indices = np.unique(numbers, return_inverse=True)
    return pa.array([content(number) for number in distinct.tolist()], pa.large_binary()), indices


def _frame_prefix(length: int) -> bytes:
    """All bytes of a frame before the record's map entries, which have that length together."""
    prefix = b"\x0a" + varint(length)
    return frame_headers(np.array([len(prefix) + length]))[0].tobytes() + prefix
