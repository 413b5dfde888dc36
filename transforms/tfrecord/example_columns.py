"""Features of the tf.Examples of one source: columns of single values, and sizes without the labels.

Decodes only records that are not in the canonical form of `wire`, and encodes them again first. Content that
a parser ignores is thereby removed from them, and their features come in the order of their names. Integer labels are
widened to float32, the type of the labels that are released: only the label's map entry and the lengths around it
change, and all other bytes are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .encoded_batches import EncodedRecords, binary_array
from .example_decoder import ExampleDecoder, changed_type, undecodable
from .example_encoder import encode_examples
from .example_values import FoundValues, Values, content_offsets, decode_varints, find_values, varint, varint_sizes
from .framing import PADDING, Frames, frame_headers
from .wire import BYTES, FLOAT, FOOTER_SIZE, INT64, join_texts, write_footers

# The value of a map entry: Feature, FloatList, one packed float32 of 0.
_FLOAT_VALUE = b"\x12\x08\x12\x06\x0a\x04" + bytes(4)
_FLOAT_OFFSET = len(_FLOAT_VALUE) - 4


class ExampleColumns:
    """Reads some features of the records of one source, batch after batch."""

    def __init__(self, source: str, names: Sequence[str]):
        """Starts a source, named in error messages; `names` are the wanted features."""
        self._source = source
        self._names = tuple(names)
        self._decoder = ExampleDecoder(source)
        self._kinds: dict[str, int] = {}

    def canonical(self, frames: Frames) -> tuple[Frames, pa.RecordBatch]:
        """Makes all records of a batch canonical, and reads the features.

        Returns the columns of `read`, and raises InputError as `read` does.
        """
        frames, found = self._found(frames)
        return frames, pa.RecordBatch.from_pydict(self._columns(frames, found))

    def read(self, frames: Frames) -> pa.RecordBatch:
        """Reads a flat column of float32, int64 or binary for each feature that occurs.

        Nulls stand for no value or several. Raises InputError if a record is not a tf.Example, or a feature changes its
        type.
        """
        return pa.RecordBatch.from_pydict(self._columns(*self._found(frames)))

    def read_encoded(self, frames: Frames, labels: Sequence[str]) -> tuple[pa.RecordBatch, EncodedRecords]:
        """Reads the columns of `read` and carries the records along.

        `labels` are the wanted features that are going to be replaced, at least one. Raises InputError as `read` does.
        """
        frames, found = self._found(frames)
        columns = pa.RecordBatch.from_pydict(self._columns(frames, found))
        for label in labels:
            if (found.values[label].kinds == INT64).any():
                frames, offsets = widen_integer_labels(frames, label, found.values[label])
                if len(labels) == 1:
                    return columns, EncodedRecords.of(frames, {label: offsets})
                # The other labels have moved.
                found = self._found(frames)[1]
        places = {label: found.values[label] for label in labels}
        label_offsets = {
            label: np.where(values.kinds == FLOAT, values.starts - frames.bounds[:-1], -1)
            for label, values in places.items()
        }
        return columns, EncodedRecords.of(frames, label_offsets)

    def _found(self, frames: Frames) -> tuple[Frames, FoundValues]:
        """The records, all made canonical, and the positions of their values."""
        found = find_values(frames.content, frames.starts, frames.stops, self._names)
        odd = np.flatnonzero(~found.canonical)
        if not len(odd):
            return frames, found
        records = frames.records()
        decoded = self._decoder.decode([records[row] for row in odd.tolist()])
        for row, record in zip(odd.tolist(), encode_examples(decoded, with_nulls=False), strict=True):
            records[row] = record
        reencoded = Frames.of(records)
        again = find_values(reencoded.content, reencoded.starts[odd], reencoded.stops[odd], self._names)
        if not again.canonical.all():
            raise undecodable(self._source)
        moved = reencoded.bounds[:-1] - frames.bounds[:-1]
        for name, values in found.values.items():
            values.starts[:] += moved
            values.stops[:] += moved
            values.put(odd, **vars(again.values[name]))
        return reencoded, found

    def _columns(self, frames: Frames, found: FoundValues) -> dict[str, pa.Array]:
        return {name: self._column(frames, name, values) for name, values in found.values.items() if values.kinds.any()}

    def _column(self, frames: Frames, name: str, values: Values) -> pa.Array:
        kinds, starts, stops = values.kinds, values.starts, values.stops
        mask, kind = None, int(kinds[0])
        if kind <= 0 or (kinds != kind).any():
            mask = kinds <= 0
            present = kinds[~mask]
            if not len(present):
                return pa.nulls(len(frames))
            kind = int(present[0])
            if (present != kind).any():
                raise changed_type(self._source, name)
            starts, stops = (np.where(mask, 0, offsets) for offsets in (starts, stops))
        if kind != self._kinds.setdefault(name, kind):
            raise changed_type(self._source, name)
        if kind == FLOAT:
            return pa.array(np.ndarray(len(frames.content) - 3, "<f4", frames.content, strides=(1,))[starts], mask=mask)
        if kind == INT64:
            return pa.array(decode_varints(frames.octets, starts, stops), mask=mask)
        bounds = np.empty(len(frames) + 1, np.int64)
        texts = binary_array(pa.py_buffer(join_texts(frames.content, starts, stops, bounds)), bounds)
        return texts if mask is None else _masked(texts, mask)


def _masked(texts: pa.Array, mask: np.ndarray) -> pa.Array:
    """The texts, null where the mask is True."""
    _, bounds, data = texts.buffers()
    valid = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(texts.type, len(texts), [valid, bounds, data])


class FeatureSizes:
    """Measures the records of one source."""

    def __init__(self, source: str, labels: Sequence[str]):
        """Starts a source; `labels` are the private features."""
        self._source = source
        self._labels = labels

    def __call__(self, frames: Frames) -> np.ndarray:
        """Bytes of the features of each record, shape (n,), int64.

        They are the same whatever the record's labels are. Records that are no tf.Examples have their own size.
        """
        found = find_values(frames.content, frames.starts, frames.stops, self._labels)
        # Labels of several values have other sizes, too.
        canonical = found.canonical & ~np.any([found.values[label].kinds < 0 for label in self._labels], axis=0)
        sizes = frames.stops - frames.starts
        contents = np.minimum(content_offsets(frames.octets, frames.starts), frames.stops)
        sizes[canonical] = (frames.stops - contents)[canonical]
        for label in self._labels:
            values = found.values[label]
            # A float label takes the same bytes whatever its value.
            for kind, entries_of in ((INT64, _integer_entries), (BYTES, _text_entries)):
                varying = canonical & (values.kinds == kind)
                sizes[varying] -= values.stops[varying] - entries_of(frames, label, values, varying)[0]
        for row in np.flatnonzero(~canonical).tolist():
            sizes[row] = self._size_alone(bytes(frames.content[frames.starts[row] : frames.stops[row]]))
        return sizes

    def _size_alone(self, record: bytes) -> int:
        """Bytes of a record that is not canonical, encoded anew without its labels."""
        try:
            batch = ExampleDecoder(self._source).decode([record])
        except InputError:
            return len(record)
        names = [name for name in batch.schema.names if name not in self._labels]
        columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
        return len(encode_examples(pa.RecordBatch.from_arrays(columns, names), with_nulls=False)[0]) if names else 0


def widen_integer_labels(frames: Frames, label: str, values: Values) -> tuple[Frames, np.ndarray]:
    """Replaces each integer label by a float32 of 0.

    The records are canonical; `values` are the positions of the labels. Returns the new frames, and the offset of the
    float32 in each of them, -1 for records without an integer label; shape (n,), int64.
    """
    chosen = values.kinds == INT64
    entries, keys, features = _integer_entries(frames, label, values, chosen)
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


_EntryOffsets = tuple[np.ndarray, np.ndarray, np.ndarray]


def _integer_entries(frames: Frames, label: str, values: Values, chosen: np.ndarray) -> _EntryOffsets:
    """Finds the map entries of integer labels, each of which ends with its value.

    The chosen records, a mask, have an integer label and are canonical; `values` are the positions of the labels.
    Returns (entries, keys, features): offset of each integer label's map entry, of the key in it and of the Feature
    after the key; shape (m,), int64.
    """
    starts, stops = values.starts[chosen], values.stops[chosen]
    # The list's tag is three bytes before an unpacked varint, and four bytes before a packed one.
    packed = frames.octets[starts - 3] != INT64
    return _entries_before(label, starts - np.where(packed, 6, 5), stops)


def _text_entries(frames: Frames, label: str, values: Values, chosen: np.ndarray) -> _EntryOffsets:
    """Finds the map entries of labels that are one text, as `_integer_entries` does."""
    features, stops = values.starts[chosen], values.stops[chosen]
    # Before the text are the tags and lengths of its field, of the list and of the Feature.
    for _ in range(3):
        features = features - 1 - varint_sizes(stops - features)
    return _entries_before(label, features, stops)


def _entries_before(label: str, features: np.ndarray, stops: np.ndarray) -> _EntryOffsets:
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
