"""Integer labels in serialized tf.Examples make room for the float32 labels that are released.

Source: as for `example_wire`. Only the label's map entry and the lengths around it change; all else is copied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from .encoded_batches import binary_array
from .example_encoder import varint
from .example_wire import INT64, Values, content_begins
from .framing import PADDING, TAIL, Frames, heads, seal

# The value of a map entry: Feature, FloatList, one packed float.
_FLOAT_VALUE = b"\x12\x08\x12\x06\x0a\x04" + bytes(4)


_FLOAT_AT = len(_FLOAT_VALUE) - 4


_VARINT_LIMITS = 1 << 7 * np.arange(1, 9)


def with_room_for_floats(frames: Frames, label: str, values: Values) -> tuple[Frames, np.ndarray]:
    """The frames with a float32 0 in place of each integer label, and where in each frame it is, -1 for none.

    values: where the labels are, in canonical records.
    """
    chosen = values.kinds == INT64
    starts, stops = values.starts[chosen], values.stops[chosen]
    record_starts, record_stops = frames.starts[chosen], frames.stops[chosen]
    key_size = len(label.encode()) + len(varint(len(label.encode()))) + 1
    # Packed, the varint is in one more field: it stands three bytes behind that list's tag, or else four.
    packed = frames.octets[starts - 3] != INT64
    features = starts - np.where(packed, 6, 5)
    keys = features - key_size
    entries = keys - 1 - _varint_sizes(stops - keys)
    first_entries = content_begins(frames.octets, record_starts)
    entry_length = key_size + len(_FLOAT_VALUE)
    new_entry = b"\x0a" + varint(entry_length)
    lengths = entries - first_entries + len(new_entry) + entry_length + record_stops - stops

    # What is kept of each frame is every second of these pieces; a frame without such a label is kept as one.
    cuts = np.repeat(frames.bounds[:-1, None], 7, axis=1)
    cuts[:, 2:] = frames.bounds[1:, None]
    cuts[chosen, 1:] = np.stack([first_entries, entries, keys, features, stops, record_stops], axis=1)
    old = binary_array(pa.py_buffer(frames.content), np.append(cuts.ravel(), frames.bounds[-1]))
    outer, outer_places = _each(lengths, _outer)
    constants = pa.array([b"", new_entry, _FLOAT_VALUE, bytes(TAIL)], pa.large_binary())
    order = np.full(cuts.shape, len(old))
    order[:, 1::2] = np.arange(len(old)).reshape(cuts.shape)[:, 1::2]
    order[chosen, 2:7:2] = len(old) + np.arange(1, 4)
    order[chosen, 0] = len(old) + len(constants) + outer_places
    made = pa.concat_arrays([old, constants, outer]).take(pa.array(order.ravel()))

    _, offsets, data = made.buffers()
    bounds = np.frombuffer(offsets, np.int64)[: len(made) + 1]
    places = np.where(chosen, bounds[4:-1:7] + _FLOAT_AT - bounds[:-1:7], -1)
    octets = np.frombuffer(data, np.uint8)[: bounds[-1]].copy()
    seal(octets, bounds[::7])
    return Frames(octets.tobytes() + bytes(PADDING), bounds[::7]), places


def _each(numbers: np.ndarray, content: Callable[[int], bytes]) -> tuple[pa.Array, np.ndarray]:
    """What belongs to each distinct number, and where in that each number's is."""
    distinct, places = np.unique(numbers, return_inverse=True)
    return pa.array([content(number) for number in distinct.tolist()], pa.large_binary()), places


def _outer(length: int) -> bytes:
    """All that comes before a record's entries, of that length together."""
    prefix = b"\x0a" + varint(length)
    return heads(np.array([len(prefix) + length]))[0].tobytes() + prefix


def _varint_sizes(lengths: np.ndarray) -> np.ndarray:
    return np.searchsorted(_VARINT_LIMITS, lengths, side="right") + 1
