"""The functions of `wire.c` in Python, a hundred times slower, with which the tests compare them; see `_wire.pyi`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import google_crc32c
import numpy as np
from labeldp.transforms.tfrecord.wire import (
    BYTES,
    FEATURES_TAG,
    FLOAT,
    FOOTER_SIZE,
    HEADER_SIZE,
    INT64,
    hash_texts_without_compiler,
)

hash_texts = hash_texts_without_compiler

# Tags of the other fields.
_ENTRY = _KEY = _ITEMS = 0x0A
_VALUE = 0x12
_UNPACKED_FLOAT, _UNPACKED_INT64 = 0x0D, 0x08
# Most bytes of the length of a field, and of a varint.
_LONGEST_LENGTH, _LONGEST_VARINT = 5, 10
_LOW = (1 << 64) - 1
_POLYNOMIAL = 0x82F63B78
# No file has one; offsets beyond it fit into a word.
_LONGEST_RECORD = 1 << 48


def crc32c(content: bytes) -> int:
    return google_crc32c.value(bytes(content))


def follow_frames(content: bytes | memoryview, position: int, stop: int, ends: np.ndarray) -> tuple[int, bool]:
    for count in range(len(ends)):
        if stop - position < HEADER_SIZE:
            return count, False
        header = bytes(content[position : position + HEADER_SIZE])
        if _masked(crc32c(header[:8])) != int.from_bytes(header[8:], "little"):
            return count, True
        start = position + HEADER_SIZE
        end = start + int.from_bytes(header[:8], "little")
        if end + FOOTER_SIZE > stop:
            return count, False
        if _masked(crc32c(bytes(content[start:end]))) != int.from_bytes(content[end : end + FOOTER_SIZE], "little"):
            return count, True
        ends[count] = position = end + FOOTER_SIZE
    return len(ends), False


def skim_frames(content: bytes, starts: np.ndarray) -> tuple[int, int, bool]:
    position = 0
    for count in range(len(starts)):
        header = content[position : position + HEADER_SIZE]
        if len(header) < HEADER_SIZE:
            return count, position, False
        size = int.from_bytes(header[:8], "little")
        if _masked(crc32c(header[:8])) != int.from_bytes(header[8:], "little") or size >= _LONGEST_RECORD:
            return count, position, True
        starts[count] = position
        position += HEADER_SIZE + size + FOOTER_SIZE
    return len(starts), position, False


def frame(records: Sequence[bytes]) -> bytes:
    parts = []
    for record in records:
        header = len(record).to_bytes(8, "little")
        parts += (header, _footer(header), record, _footer(record))
    return b"".join(parts)


def write_footers(octets: np.ndarray, bounds: np.ndarray) -> None:
    starts, stops = bounds[:-1] + HEADER_SIZE, bounds[1:] - FOOTER_SIZE
    if len(starts) and (bounds.min() < 0 or bounds.max() > len(octets) or (stops < starts).any()):
        raise ValueError("bounds beyond the content")
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        octets[stop : stop + FOOTER_SIZE] = np.frombuffer(_footer(octets[start:stop].tobytes()), np.uint8)


def shift_checksums(checksums: np.ndarray, counts: np.ndarray) -> None:
    if len(checksums) != len(counts):
        raise ValueError("as many counts as checksums are needed")
    if len(counts) and not 0 <= counts.min() <= counts.max() < 1 << 33:
        raise ValueError("counts are from 0 to 2^33 - 1")
    for place, count in enumerate(counts.tolist()):
        checksums[place] = _product(int(checksums[place]), _byte_power(count))


@functools.lru_cache(1 << 12)
def _byte_power(count: int) -> int:
    """x^8 to the power of count."""
    power, square = 1 << 31, 1 << 23
    while count:
        if count & 1:
            power = _product(power, square)
        square, count = _product(square, square), count >> 1
    return power


def _product(one: int, two: int) -> int:
    """Product of polynomials, modulo the checksum's polynomial."""
    product = 0
    for bit in range(31, -1, -1):
        product ^= two * (one >> bit & 1)
        two = two >> 1 ^ _POLYNOMIAL * (two & 1)
    return product


def walk_examples(
    content: bytes | memoryview | np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    names: tuple[bytes, ...],
    canonical: np.ndarray,
    found: np.ndarray,
    listing: bool,
    seed: bytes,
) -> bytes:
    octets = bytes(content)
    entries: list[tuple[int, ...]] = []
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        try:
            if not 0 <= start <= stop <= len(octets):
                raise _NotCanonicalError
            fields = _read_record(octets, start, stop)
        except _NotCanonicalError:
            canonical[row] = False
            continue
        canonical[row] = True
        for key, (name, name_stop, at, kind, single, begin, end) in fields.items():
            if key in names:
                found[names.index(key), :, row] = kind if single else -1, begin, end
            if listing:
                entries.append((row, _hash(key, seed), name, name_stop, at, kind, begin, end))
    return np.array(entries, np.int64).tobytes()


def drop_entries(
    content: bytes | memoryview | np.ndarray, bounds: np.ndarray, names: tuple[bytes, ...], ends: np.ndarray
) -> bytes:
    octets, places = bytes(content), bounds.tolist()
    least = [place + HEADER_SIZE + FOOTER_SIZE for place in places[:-1]]
    if len(ends) != len(places) or not places:
        raise ValueError("arrays differ in length, or are empty")
    if any(place < low for place, low in zip(places, [0, *least], strict=True)) or max(places) > len(octets):
        raise ValueError("the frames do not hold canonical records")
    try:
        records = [
            _without(octets, start + HEADER_SIZE, stop - FOOTER_SIZE, names)
            for start, stop in itertools.pairwise(places)
        ]
    except _NotCanonicalError:
        raise ValueError("the frames do not hold canonical records") from None
    ends[:] = [0, *itertools.accumulate(HEADER_SIZE + len(record) + FOOTER_SIZE for record in records)]
    return frame(records)


def _without(octets: bytes, at: int, stop: int, names: tuple[bytes, ...]) -> bytes:
    kept = b""
    if at < stop:
        at, end = _field(octets, at, stop, FEATURES_TAG)
        _require(end == stop)
    while at < stop:
        begin, end = _field(octets, at, stop, _ENTRY)
        name, name_stop = _field(octets, begin, end, _KEY)
        kept += b"" if octets[name:name_stop] in names else octets[at:end]
        at = end
    size, length = len(kept), b""
    while size >= 0x80:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([FEATURES_TAG]) + length + bytes([size]) + kept if kept else b""


def read_varints(
    content: bytes | memoryview | np.ndarray, starts: np.ndarray, stops: np.ndarray, numbers: np.ndarray
) -> None:
    octets = bytes(content)
    for row, (start, stop) in enumerate(_places(octets, starts, stops, len(numbers))):
        if stop - start > _LONGEST_VARINT:
            raise ValueError("varints beyond the content")
        number = sum((octet & 0x7F) << 7 * place for place, octet in enumerate(octets[start:stop])) & _LOW
        numbers[row] = number - (1 << 64) if number >> 63 else number


def join_texts(
    content: bytes | memoryview | np.ndarray, starts: np.ndarray, stops: np.ndarray, bounds: np.ndarray
) -> bytes:
    octets = bytes(content)
    texts = [octets[start:stop] for start, stop in _places(octets, starts, stops, len(bounds) - 1)]
    bounds[:] = [0, *itertools.accumulate(map(len, texts))]
    return b"".join(texts)


def _places(octets: bytes, starts: np.ndarray, stops: np.ndarray, rows: int) -> list[tuple[int, int]]:
    if not len(starts) == len(stops) == rows:
        raise ValueError("arrays differ in length")
    places = list(zip(starts.tolist(), stops.tolist(), strict=True))
    if not all(0 <= start <= stop <= len(octets) for start, stop in places):
        raise ValueError("places beyond the content")
    return places


class _NotCanonicalError(Exception):
    pass


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _footer(record: bytes) -> bytes:
    return _masked(crc32c(record)).to_bytes(4, "little")


def _hash(key: bytes, seed: bytes) -> int:
    """SipHash-1-3 of a key, as a signed number."""
    first, second = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")
    v0, v1 = first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D
    v2, v3 = first ^ 0x6C7967656E657261, second ^ 0x7465646279746573

    def mix(rounds: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(rounds):
            v0, v2 = v0 + v1 & _LOW, v2 + v3 & _LOW
            v1, v3 = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
            v0 = _rotated(v0, 32)
            v2, v0 = v2 + v1 & _LOW, v0 + v3 & _LOW
            v1, v3 = _rotated(v1, 17) ^ v2, _rotated(v3, 21) ^ v0
            v2 = _rotated(v2, 32)

    padded = key + bytes(7 - len(key) % 8) + bytes([len(key) & 0xFF])
    for place in range(0, len(padded), 8):
        word = int.from_bytes(padded[place : place + 8], "little")
        v3 ^= word
        mix(1)
        v0 ^= word
    v2 ^= 0xFF
    mix(3)
    mixed = v0 ^ v1 ^ v2 ^ v3
    return mixed - (mixed >> 63 << 64)


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _LOW


def _read_record(octets: bytes, at: int, stop: int) -> dict[bytes, tuple[int, int, int, int, bool, int, int]]:
    """Entries of a record: offsets of the key and after it, of the Feature, kind, whether single, bounds of values."""
    entries: dict[bytes, tuple[int, int, int, int, bool, int, int]] = {}
    if at == stop:
        return entries
    at, end = _field(octets, at, stop, FEATURES_TAG)
    _require(end == stop)
    while at < stop:
        begin, at = _field(octets, at, stop, _ENTRY)
        name, name_stop = _field(octets, begin, at, _KEY)
        lists, end = _field(octets, name_stop, at, _VALUE)
        key = octets[name:name_stop]
        _require(end == at and key not in entries and _is_text(key))
        entries[key] = (name, name_stop, lists, *_list(octets, lists, at), at)
    return entries


def _list(octets: bytes, at: int, stop: int) -> tuple[int, bool, int]:
    """Content of a Feature: kind of its values, whether there is a single one, and where they begin."""
    if at == stop:
        return 0, False, stop
    kind = octets[at]
    _require(kind in (BYTES, FLOAT, INT64))
    items, end = _field(octets, at, stop, kind)
    _require(end == stop)
    if items == stop:
        return 0, False, stop
    if octets[items] == {FLOAT: _UNPACKED_FLOAT, INT64: _UNPACKED_INT64}.get(kind):
        single = stop - items == 5 if kind == FLOAT else _count_varints(octets, items + 1, stop) == 1
        _require(single)
        return kind, True, items + 1
    begin, end = _field(octets, items, stop, _ITEMS)
    if kind == BYTES and end < stop:
        while end < stop:
            _, end = _field(octets, end, stop, _ITEMS)
        return 0, False, stop
    _require(end == stop)
    if kind == BYTES:
        return kind, True, begin
    if kind == FLOAT:
        _require((stop - begin) % 4 == 0)
        return kind, stop - begin == 4, begin
    return kind, _count_varints(octets, begin, stop) == 1, begin


def _field(octets: bytes, at: int, stop: int, tag: int) -> tuple[int, int]:
    """Bounds of the content of a field with this tag and a minimal length."""
    # Without `_require`: most of the time goes to its calls.
    if stop - at < 2 or octets[at] != tag:
        raise _NotCanonicalError
    length = 0
    for place in range(_LONGEST_LENGTH):
        at += 1
        if at == stop:
            break
        octet = octets[at]
        length |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            if (place and not octet) or length > stop - at - 1:
                break
            return at + 1, at + 1 + length
    raise _NotCanonicalError


def _count_varints(octets: bytes, at: int, stop: int) -> int:
    """Number of varints that fill [at, stop)."""
    count = size = 0
    for octet in octets[at:stop]:
        size += 1
        _require(size <= _LONGEST_VARINT)
        if octet < 0x80:
            count, size = count + 1, 0
    _require(size == 0)
    return count


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _require(condition: bool) -> None:
    if not condition:
        raise _NotCanonicalError
