"""Second implementation of tf.Example: reads the label, and further features, out of serialized records.

A record is read as protocol buffers read it: the last of several entries under one key counts, and so does the last of
several lists. But what they overwrite or skip is refused: an unknown field could hide a true label from every reader.
Uses numpy beside the standard library and shares no code with the encoder: most records of a file differ in their
values only, so one record is parsed, and where the others have equal bytes outside the values, they parse alike.

Source: tensorflow/core/example/example.proto and feature.proto, and the protocol buffer wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..documents import RefusedDocument
from .tfrecord_shards import Records

_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST_VARINT = 10

# A parsed record that fewer than one in this many others resemble is not worth a comparison with all of them.
_RARE = 50


def read_labels(records: Records, label: bytes, first: int) -> np.ndarray:
    """Reads the label of every record, shape (n,), float32, as `read_features` does."""
    return read_centered_labels(records, label, first, None)[0]


def read_centered_labels(
    records: Records, label: bytes, first: int, center: bytes | None
) -> tuple[np.ndarray, np.ndarray]:
    """Reads the labels, shape (n,), float32, and the centers, shape (n,), float64, as `read_features` does.

    A center is NaN where there is not exactly one number, and everywhere if no feature is named.
    """
    labels, found = read_features(records, label, first, [] if center is None else [center])
    return labels, np.full(len(labels), np.nan) if center is None else found[center].numbers


@dataclass(frozen=True, eq=False)
class Feature:
    """Values of one feature.

    Attributes:
      numbers: The single number of each of n records, shape (n,), float64; NaN where there is none.
      floats: Records in which the feature is a single float, shape (n,), bool.
      values: The single value of each record that has one and is a text or an integer, by record number.
    """

    numbers: np.ndarray
    floats: np.ndarray
    values: dict[int, str | int]


def read_features(
    records: Records, label: bytes, first: int, names: Sequence[bytes]
) -> tuple[np.ndarray, dict[bytes, Feature]]:
    """Reads the label of every record, shape (n,), float32, and further features, by name.

    A feature with no value or several has none. `first` is the number of the first record in its file, for messages.
    Raises RefusedDocument, with the number of the record, if a record is not a tf.Example, has no single float as its
    label, or has bytes that no reader sees.
    """
    octets, starts = np.frombuffer(records.content, np.uint8), records.starts
    places = np.empty(len(starts), np.int64)
    found = {name: Feature(np.full(len(starts), np.nan), np.zeros(len(starts), bool), {}) for name in names}
    floats = np.ndarray((max(len(records.content) - 3, 0),), "<f4", records.content, strides=(1,))

    def keep(parsed: _Parsed, rows: np.ndarray) -> None:
        places[rows] = starts[rows] + parsed.place
        for name, feature in found.items():
            kind, spans = parsed.features.get(name, (None, []))
            if kind == _FLOAT_LIST and len(spans) == 1:
                feature.numbers[rows] = floats[starts[rows] + spans[0][0]]
                feature.floats[rows] = True
            elif kind == _INT64_LIST or (kind == _BYTES_LIST and len(spans) == 1):
                for row, start in zip(rows.tolist(), starts[rows].tolist(), strict=True):
                    parts = [records.content[start + a : start + b] for a, b in spans]
                    if kind == _BYTES_LIST:
                        feature.values[row] = parts[0].decode(errors="surrogateescape")
                    elif (value := _single_integer(parts)) is not None:
                        feature.numbers[row] = feature.values[row] = value

    distinct, group = np.unique(records.lengths, return_inverse=True)
    order = np.argsort(group, kind="stable")
    for of_one_length in np.split(order, np.searchsorted(group[order], np.arange(1, len(distinct)))):
        rows = of_one_length
        while rows.size:
            parsed = _parse(records, int(rows[0]), label, first)
            fixed = np.flatnonzero(~parsed.values)
            same = (octets[starts[rows][:, None] + fixed] == octets[starts[rows[0]] + fixed]).all(axis=1)
            keep(parsed, rows[same])
            rare, rows = _RARE * same.sum() < rows.size, rows[~same]
            if rare:
                for row in rows.tolist():
                    keep(_parse(records, row, label, first), np.array([row]))
                break
    return floats[places], found


def _single_integer(parts: list[bytes]) -> int | None:
    """The integer that the parts of a list hold, if it is one alone."""
    content = b"".join(parts)
    value = 0
    for i, byte in enumerate(content):
        value |= (byte & 0x7F) << 7 * i
    ends = sum(byte < 0x80 for byte in content)
    if ends != 1 or content[-1] >= 0x80:
        return None
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


@dataclass
class _Parsed:
    """A parsed record. place: offset of the label's four bytes. values: (length,) bool, bytes that are values.

    features: by name, the number of the list that the feature holds, and where the items of that list start and stop.
    """

    values: np.ndarray
    place: int = -1
    features: dict[bytes, tuple[int | None, list[tuple[int, int]]]] = field(default_factory=dict)


def _parse(records: Records, row: int, label: bytes, first: int) -> _Parsed:
    start, length = int(records.starts[row]), int(records.lengths[row])
    parser = _Parser(records.content[start : start + length])
    try:
        features = parser.example()
        kind, items = features.get(label, (None, []))
    except (ValueError, IndexError):
        raise RefusedDocument(f"record {first + row} is not a tf.Example") from None
    if parser.hidden:
        raise RefusedDocument(f"record {first + row} has bytes that readers of tf.Examples do not see")
    if kind != _FLOAT_LIST or len(items) != 1:
        raise RefusedDocument(f"the label of record {first + row} is not one float")
    return _Parsed(parser.values, items[0][0], features)


@dataclass
class _Parser:
    """Parser of one record. It looks at no byte that it marks as a value."""

    record: bytes
    hidden: bool = False
    values: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.values = np.zeros(len(self.record), bool)

    def example(self) -> dict[bytes, tuple[int | None, list[tuple[int, int]]]]:
        """Features by name: the number of the list that the Feature holds, and where its numbers start and stop.

        Packed integers are one item.
        """
        features: dict[bytes, tuple[int | None, list[tuple[int, int]]]] = {}
        for number, wire, start, stop in self._fields(0, len(self.record)):
            if (number, wire) != (1, _TEXT):
                self.hidden = True
                continue
            for entry, wire_of_entry, begin, end in self._fields(start, stop):
                if (entry, wire_of_entry) != (1, _TEXT):
                    self.hidden = True
                    continue
                key, feature = self._entry(begin, end)
                self.hidden |= key in features
                features[key] = feature
        return features

    def _entry(self, start: int, stop: int) -> tuple[bytes, tuple[int | None, list[tuple[int, int]]]]:
        key, feature, seen = b"", (None, []), []
        for number, wire, begin, end in self._fields(start, stop):
            self.hidden |= number in seen or number not in (1, 2) or wire != _TEXT
            seen.append(number)
            if (number, wire) == (1, _TEXT):
                key = self.record[begin:end]
                key.decode()
            elif (number, wire) == (2, _TEXT):
                feature = self._feature(begin, end)
        return key, feature

    def _feature(self, start: int, stop: int) -> tuple[int | None, list[tuple[int, int]]]:
        kind, items = None, []
        for number, wire, begin, end in self._fields(start, stop):
            if number not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST) or wire != _TEXT:
                self.hidden = True
                continue
            if number != kind:
                self.hidden |= kind is not None
                kind, items = number, []
            items += self._list(number, begin, end)
        return kind, items

    def _list(self, kind: int, start: int, stop: int) -> list[tuple[int, int]]:
        numbers: list[tuple[int, int]] = []
        for number, wire, begin, end in self._fields(start, stop):
            unpacked = {_BYTES_LIST: _TEXT, _FLOAT_LIST: _FIXED32, _INT64_LIST: _VARINT}[kind]
            if number != 1 or wire not in (_TEXT, unpacked):
                self.hidden = True
                continue
            if kind == _FLOAT_LIST:
                if (end - begin) % 4:
                    raise ValueError("a packed float has not four bytes")
                numbers += [(place, place + 4) for place in range(begin, end, 4)]
            else:
                numbers.append((begin, end))
            if wire != _VARINT:  # a varint was read, to find its end
                self.values[begin:end] = True
        return numbers

    def _fields(self, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Fields of a message: number, wire type, and where the content starts and stops."""
        while position < stop:
            tag, position = self._varint(position, stop)
            number, wire = tag >> 3, tag & 7
            if wire == _TEXT:
                length, position = self._varint(position, stop)
            elif wire in (_FIXED64, _FIXED32):
                length = 8 if wire == _FIXED64 else 4
            elif wire == _VARINT:
                before = self.hidden
                length = self._varint(position, stop)[1] - position
                self.hidden = before  # an integer may have more bytes than it needs
            else:
                raise ValueError("groups are no part of a tf.Example")
            if number == 0 or length > stop - position:
                raise ValueError("a field is not complete")
            yield number, wire, position, position + length
            position += length

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        """The number, and the offset after it. Bytes that add nothing to it are hidden ones."""
        if position < stop and (byte := self.record[position]) < 0x80:  # most have one byte
            return byte, position + 1
        value = 0
        for i in range(min(_LONGEST_VARINT, stop - position)):
            byte = self.record[position + i]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                self.hidden |= i > 0 and byte == 0
                return value, position + i + 1
        raise ValueError("a varint is not complete")
