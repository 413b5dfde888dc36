"""Second implementation of TFRecord files and of tf.Example: checksums, then the label and further features of records.

Uses numpy, which pyarrow depends on, beside the standard library, and shares no code with writer and encoder. Checksums
are computed for all records of a chunk at once, two bytes of each in one step. Most records of a file differ in their
values only, so one record is parsed, and where the others have equal bytes outside the values, they parse alike.

A record is read as protocol buffers read it: the last of several entries under one key counts, and so does the last of
several lists. But what they overwrite or skip is refused: an unknown field could hide a true label from every reader.

Sources: tensorflow/core/lib/io/record_writer.h for the framing, with gzip or without; RFC 3720, appendix B.4, for the
polynomial of CRC-32C; tensorflow/core/example/example.proto and feature.proto, and the protocol buffer wire format.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .documents import RefusedDocument

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reflected
_MASK_DELTA = np.uint32(0xA282EAD8)
CHUNK_BYTES = 4 << 20
"""Bytes that are read at a time."""
_HEADER, _FOOTER = 12, 4
_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")  # no name, no time, unknown system
_LONGEST = 1 << 31  # protocol buffers are shorter

# Longer messages are cut into rows of this many bytes, so that one long record does not cost a step for each byte.
_ROW = 512

_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST_VARINT = 10

# A parsed record that fewer than one in this many others resemble is not worth a comparison with all of them.
_RARE = 50


class Records(NamedTuple):
    """Records with correct checksums, as they stand in a part of a file.

    Attributes:
      content: The part.
      starts: Offset of the first byte of each of n records, shape (n,), int64.
      lengths: Bytes of each record, shape (n,), int64.
    """

    content: bytes
    starts: np.ndarray
    lengths: np.ndarray


def read_tfrecords(path: Path) -> Iterator[Records]:
    """Reads a regular TFRecord file and verifies both checksums of every record; gzip if its name ends with .gz.

    Yields consecutive records, some megabytes at a time. Raises RefusedDocument if the file is truncated, corrupt or
    cannot be read. The message has the byte offset of the record in the decompressed file.
    """
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            rest, base = b"", 0
            while chunk := file.read(max(CHUNK_BYTES, len(rest))):
                content = rest + chunk
                records, end = _verified(content, base)
                yield records
                rest, base = content[end:], base + end
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RefusedDocument("is truncated or is not gzip") from None
    except OSError as error:
        raise RefusedDocument(f"cannot be read: {error.strerror}") from None
    if rest:
        raise RefusedDocument(f"is truncated: the record at byte {base} is not complete")


def check_gzip(path: Path) -> None:
    """Checks that a file is one stream of gzip, with the header of the writer and nothing after it.

    Raises RefusedDocument if not. The file was read before.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_GZIP_HEADER)) != _GZIP_HEADER:
                raise RefusedDocument("has a name, a time or a comment in its gzip header")
            file.seek(0)
            stream = zlib.decompressobj(wbits=31)
            while not stream.eof and (chunk := file.read(CHUNK_BYTES)):
                rest = chunk
                while rest and not stream.eof:
                    stream.decompress(rest, CHUNK_BYTES)
                    rest = stream.unconsumed_tail
            if stream.unused_data or file.read(1):
                raise RefusedDocument("has more than one gzip stream")
    except (OSError, zlib.error):
        raise RefusedDocument("is truncated or is not gzip") from None


def _verified(content: bytes, base: int) -> tuple[Records, int]:
    """The complete records of the content, and the offset after the last of them; base is the content's own offset."""
    bounds, position, size = [], 0, len(content)
    while position + _HEADER <= size:
        bounds.append(position)
        (length,) = struct.unpack_from("<Q", content, position)
        position += _HEADER + length + _FOOTER
    frames = np.array(bounds, np.int64)
    # Before a length is used: a wrong one could make the loop skip records, or wait for bytes that never come.
    wrong = checksums(content, frames, np.full(len(frames), 8)) != _numbers(content, frames + 8)
    if wrong.any():
        raise RefusedDocument(f"has a wrong checksum of a length at byte {base + bounds[wrong.argmax()]}")
    lengths = [struct.unpack_from("<Q", content, frame)[0] for frame in bounds]
    if lengths and max(lengths) >= _LONGEST:
        raise RefusedDocument("has a record of 2 GiB or more")
    if position > size:
        position = bounds.pop()
        lengths.pop()
    starts, sizes = np.array(bounds, np.int64) + _HEADER, np.array(lengths, np.int64)
    wrong = checksums(content, starts, sizes) != _numbers(content, starts + sizes)
    if wrong.any():
        raise RefusedDocument(f"has a wrong checksum of the record at byte {base + bounds[wrong.argmax()]}")
    return Records(content, starts, sizes), position


def _numbers(content: bytes, offsets: np.ndarray) -> np.ndarray:
    """The little-endian number of four bytes at each offset."""
    return np.ndarray((max(len(content) - 3, 0),), "<u4", content, strides=(1,))[offsets]


def checksums(content: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Computes the masked CRC-32C of n parts of a text; shape (n,), uint32.

    `starts` and `lengths` are offset and bytes of each part, shape (n,), int64.
    """
    rows = np.maximum(-(-lengths // _ROW), 1)
    firsts = np.cumsum(rows) - rows
    # All rows but the first of a part are full.
    sizes = np.full(int(rows.sum()), _ROW)
    sizes[firsts] = lengths - (rows - 1) * _ROW
    places = np.repeat(starts - firsts * _ROW - (_ROW - sizes[firsts]), rows) + np.arange(len(sizes)) * _ROW
    places[firsts] = starts
    states = np.zeros(len(sizes), np.uint32)
    states[firsts] = 0xFFFFFFFF
    _advance(content, places, sizes, states)
    crcs = states[firsts]
    for part in np.flatnonzero(rows > 1).tolist():
        first = firsts[part]
        state = int(crcs[part])
        for row in states[first + 1 : first + rows[part]].tolist():
            state = _past_row(state) ^ row
        crcs[part] = state
    crcs = ~crcs
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + _MASK_DELTA


def _advance(content: bytes, starts: np.ndarray, lengths: np.ndarray, states: np.ndarray) -> None:
    """Feeds each row into its state, in place: rows in descending length, so that those not at their end come first."""
    bytewise, pairwise = _tables()
    order = np.argsort(-lengths, kind="stable")
    places, sizes, current = starts[order], lengths[order], states[order]
    odd = np.flatnonzero(sizes & 1)
    octets = np.frombuffer(content, np.uint8)
    current[odd] = bytewise[(current[odd] ^ octets[places[odd]]) & np.uint32(0xFF)] ^ current[odd] >> np.uint32(8)
    places = places + (sizes & 1)
    words = np.ndarray((max(len(content) - 1, 0),), "<u2", content, strides=(1,))
    pairs = sizes >> 1
    active = np.searchsorted(-pairs, -np.arange(int(pairs.max(initial=0))), "left")
    for step, count in enumerate(active.tolist()):
        state = current[:count]
        mixed = (state ^ words[places[:count] + 2 * step]) & np.uint32(0xFFFF)
        current[:count] = pairwise[mixed] ^ state >> np.uint32(16)
    states[order] = current


@cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """The states after one byte from each state below 2^8, and after two from each below 2^16."""
    states = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        states = states >> np.uint32(1) ^ np.uint32(_POLYNOMIAL) * (states & np.uint32(1))
    pairs = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        pairs = states[pairs & np.uint32(0xFF)] ^ pairs >> np.uint32(8)
    return states, pairs


def _past_row(state: int) -> int:
    """The state after a row of zeros."""
    first, second, third, fourth = _row_tables()
    return first[state & 0xFF] ^ second[state >> 8 & 0xFF] ^ third[state >> 16 & 0xFF] ^ fourth[state >> 24]


@cache
def _row_tables() -> list[list[int]]:
    """States after a row of zeros, for each value of each of the state's four bytes. The step is linear."""
    bytewise, _ = _tables()
    states = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    for _ in range(_ROW):
        states = bytewise[states & np.uint32(0xFF)] ^ states >> np.uint32(8)
    return states.tolist()


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
    records: Records, label: bytes, first: int, names: Sequence[bytes], absent: Sequence[bytes] = ()
) -> tuple[np.ndarray, dict[bytes, Feature]]:
    """Reads the label of every record, shape (n,), float32, and further features, by name.

    A feature with no value or several has none. `first` is the number of the first record in its file, for messages.
    Raises RefusedDocument, with the number of the record, if a record is not a tf.Example, has no single float as its
    label, has bytes that no reader sees, or a feature that is to be `absent`.
    """
    spans, features = _read(records, label, first, names, [label], True, absent)
    floats = np.ndarray((max(len(records.content) - 3, 0),), "<f4", records.content, strides=(1,))
    return floats[spans[label][0]], features


def read_messages(
    records: Records,
    label: bytes,
    first: int,
    names: Sequence[bytes],
    others: Sequence[bytes] = (),
    absent: Sequence[bytes] = (),
) -> tuple[list[list[bytes]], dict[bytes, Feature]]:
    """Reads the encoded Features of the label and of others of every record, and further features, by name.

    A Feature that a record does not have is empty. Otherwise as `read_features`, but for the label and the others,
    which may hold anything.
    """
    wanted = [label, *others]
    spans, features = _read(records, label, first, names, wanted, False, absent)
    messages = []
    for name in wanted:
        ends = zip(*(offsets.tolist() for offsets in spans[name]), strict=True)
        messages.append([records.content[start:stop] for start, stop in ends])
    return messages, features


def _read(
    records: Records,
    label: bytes,
    first: int,
    names: Sequence[bytes],
    wanted: Sequence[bytes],
    numeric: bool,
    absent: Sequence[bytes],
) -> tuple[dict[bytes, tuple[np.ndarray, np.ndarray]], dict[bytes, Feature]]:
    """Offsets of the label's number, or of wanted Features, in each record and those after them, and further features.

    All are by name.
    """
    octets, starts = np.frombuffer(records.content, np.uint8), records.starts
    ends = {name: (np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)) for name in wanted}
    features = {name: Feature(np.full(len(starts), np.nan), np.zeros(len(starts), bool), {}) for name in names}
    floats = np.ndarray((max(len(records.content) - 3, 0),), "<f4", records.content, strides=(1,))

    def keep(parsed: _Parsed, rows: np.ndarray) -> None:
        for name, (places, stops) in ends.items():
            place, stop = parsed.spans.get(name, (0, 0))
            places[rows], stops[rows] = starts[rows] + place, starts[rows] + stop
        for name, feature in features.items():
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
            parsed = _parse(records, int(rows[0]), label, first, numeric, absent)
            fixed = np.flatnonzero(~parsed.values)
            same = (octets[starts[rows][:, None] + fixed] == octets[starts[rows[0]] + fixed]).all(axis=1)
            keep(parsed, rows[same])
            rare, rows = _RARE * same.sum() < rows.size, rows[~same]
            if rare:
                for row in rows.tolist():
                    keep(_parse(records, row, label, first, numeric, absent), np.array([row]))
                break
    return ends, features


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
    """A parsed record. values: (length,) bool, bytes that are values.

    spans: by name, where the label's four bytes start and stop, or the Feature of each name.
    features: by name, the number of the list that the feature holds, and where the items of that list start and stop.
    """

    values: np.ndarray
    spans: dict[bytes, tuple[int, int]]
    features: dict[bytes, tuple[int | None, list[tuple[int, int]]]] = field(default_factory=dict)


def _parse(records: Records, row: int, label: bytes, first: int, numeric: bool, absent: Sequence[bytes]) -> _Parsed:
    start, length = int(records.starts[row]), int(records.lengths[row])
    parser = _Parser(records.content[start : start + length])
    try:
        features = parser.example()
    except (ValueError, IndexError):
        raise RefusedDocument(f"record {first + row} is not a tf.Example") from None
    if parser.hidden:
        raise RefusedDocument(f"record {first + row} has bytes that readers of tf.Examples do not see")
    if any(name in features for name in absent):
        raise RefusedDocument(f"record {first + row} has a feature that release.left_out says is left out")
    if not numeric:
        return _Parsed(parser.values, parser.messages, features)
    kind, items = features.get(label, (None, []))
    if kind != _FLOAT_LIST or len(items) != 1:
        raise RefusedDocument(f"the label of record {first + row} is not one float")
    return _Parsed(parser.values, {label: items[0]}, features)


@dataclass
class _Parser:
    """Parser of one record. It looks at no byte that it marks as a value.

    hidden: bytes were found that no reader sees, or sees only until others overwrite them.
    messages: by name, where the Feature starts and stops.
    """

    record: bytes
    hidden: bool = False
    messages: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    values: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.values = np.zeros(len(self.record), bool)

    def example(self) -> dict[bytes, tuple[int | None, list[tuple[int, int]]]]:
        """Features by name: the number of the list that the Feature holds, and where its numbers start and stop.

        Packed integers are one item.
        """
        features: dict[bytes, tuple[int | None, list[tuple[int, int]]]] = {}
        for _, of_features, end in self._messages(0, len(self.record), (1,)):
            for _, start, stop in self._messages(of_features, end, (1,)):
                key, feature = self._entry(start, stop)
                self.hidden |= key in features
                features[key] = feature
        return features

    def _entry(self, start: int, stop: int) -> tuple[bytes, tuple[int | None, list[tuple[int, int]]]]:
        key, feature, span, seen = b"", (None, []), (0, 0), []
        for number, begin, end in self._messages(start, stop, (1, 2)):
            self.hidden |= number in seen
            seen.append(number)
            if number == 1:
                key = self.record[begin:end]
                key.decode()
            else:
                feature, span = self._feature(begin, end), (begin, end)
        self.messages[key] = span
        return key, feature

    def _feature(self, start: int, stop: int) -> tuple[int | None, list[tuple[int, int]]]:
        kind, items = None, []
        for number, begin, end in self._messages(start, stop, (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST)):
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

    def _messages(self, start: int, stop: int, known: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
        """Number, start and stop of the known fields of a message that are messages or texts; others are hidden."""
        for number, wire, begin, end in self._fields(start, stop):
            if number in known and wire == _TEXT:
                yield number, begin, end
            else:
                self.hidden = True

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
