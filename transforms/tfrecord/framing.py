"""The TFRecord container: length, masked CRC-32C of the length, data, masked CRC-32C of the data.

Source: tensorflow/core/lib/io/record_writer.h. What the records mean is `tf_example`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from ..errors import InputError
from .crc32c import changed_checksums

HEAD, TAIL = 12, 4
"""How many bytes a frame has before and after its record."""


PADDING = 8
"""How many bytes follow the last frame of `Frames`, so that words can be read across its end."""


_CHUNK = 4 << 20


# Shorter runs of frames of one size are not worth a search; after one, so many frames are taken one by one.
_LEAST_RUN, _STEPS = 16, 512


_MASK_DELTA = np.uint32(0xA282EAD8)


@dataclass(frozen=True, eq=False)
class Frames:
    """Consecutive records as they stand in a TFRecord file. Iterating gives the records.

    content: their frames, maybe other bytes before and behind, and at least `PADDING` bytes behind. bounds: (n + 1,)
    int64, where each frame begins in it, and where the last one ends.
    """

    content: bytes
    bounds: np.ndarray

    @classmethod
    def of(cls, records: Sequence[bytes]) -> Frames:
        """New frames."""
        return cls(frame(records) + bytes(PADDING), bounds_of(np.fromiter(map(len, records), np.int64, len(records))))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.records())

    def records(self) -> list[bytes]:
        """The records themselves."""
        content = self.content
        return [content[start:stop] for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]

    @property
    def octets(self) -> np.ndarray:
        """The content as (m,) uint8."""
        return np.frombuffer(self.content, np.uint8)

    @property
    def starts(self) -> np.ndarray:
        """(n,) int64, where each record begins."""
        return self.bounds[:-1] + HEAD

    @property
    def stops(self) -> np.ndarray:
        """(n,) int64, where each record ends."""
        return self.bounds[1:] - TAIL


def bounds_of(lengths: np.ndarray) -> np.ndarray:
    """The bounds of frames that begin at 0. lengths: (n,) int64, of the records."""
    return np.append(0, np.cumsum(lengths + HEAD + TAIL))


def checksums(parts: Iterable[bytes]) -> np.ndarray:
    """The masked CRC-32C of each part; (n,) uint32."""
    # Part of the extra `tfx`: the core does not need it.
    import google_crc32c

    value = google_crc32c.value
    return _masked(np.array([value(part) for part in parts], np.uint32))


def _masked(crc: np.ndarray) -> np.ndarray:
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + _MASK_DELTA


def _unmasked(masked: np.ndarray) -> np.ndarray:
    rotated = masked - _MASK_DELTA
    return rotated >> np.uint32(17) | rotated << np.uint32(15)


def heads(lengths: np.ndarray) -> np.ndarray:
    """What stands before records of these lengths. Returns (n, 12) uint8."""
    distinct, place = np.unique(lengths, return_inverse=True)
    octets = np.empty((len(distinct), HEAD), np.uint8)
    octets[:, :8] = distinct.astype("<u8").view(np.uint8).reshape(-1, 8)
    octets[:, 8:] = _octets(checksums([length.tobytes() for length in octets[:, :8]]))
    return octets[place]


def _octets(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype("<u4").view(np.uint8).reshape(-1, 4)


def frame(records: Sequence[bytes]) -> bytes:
    """The records as they stand in a TFRecord file, one after the other."""
    if not records:
        return b""
    head_bytes = heads(np.fromiter(map(len, records), np.int64, len(records))).tobytes()
    tail_bytes = _octets(checksums(records)).tobytes()
    parts = []
    for i, record in enumerate(records):
        parts += (head_bytes[HEAD * i : HEAD * i + HEAD], record, tail_bytes[TAIL * i : TAIL * i + TAIL])
    return b"".join(parts)


def seal(octets: np.ndarray, bounds: np.ndarray) -> None:
    """Writes the checksum of every record behind it. octets, bounds: as in `Frames`, but writable."""
    frames = Frames(octets.tobytes(), bounds)
    _words(octets)[frames.stops] = checksums(frames.records())


def write_over(octets: np.ndarray, bounds: np.ndarray, places: np.ndarray, words: np.ndarray) -> None:
    """Replaces four bytes of every record, and its checksum by the one that it has then.

    octets, bounds: as in `Frames`, but writable. places: (n,) int64, where in octets. words: (n,) of four bytes each.
    """
    content, words, stops = _words(octets), words.view("<u4"), bounds[1:] - TAIL
    before, claimed = content[places], content[stops]
    content[places] = words
    content[stops] = _masked(changed_checksums(_unmasked(claimed), before, words, stops - places - 4))


def _words(content: bytes | np.ndarray) -> np.ndarray:
    """The four bytes at every place, as one little-endian number."""
    return np.ndarray((max(len(content) - 3, 0),), "<u4", content, strides=(1,))  # type: ignore[arg-type]


def read_records(file: BinaryIO, source: str, batch_size: int) -> Iterator[Frames]:
    """The records of a TFRecord stream, at most batch_size at a time, less where they are large. Checks both checksums.

    Raises InputError, naming the source and the byte offset of the record, where the file is corrupt or truncated.
    """
    content, base, bounds = bytes(PADDING), 0, np.zeros(1, np.int64)
    heads = _Heads(source)
    while chunk := _read(file, source, base + len(content) - PADDING, max(_CHUNK, len(content) - int(bounds[-1]))):
        first = int(bounds[0])
        content = b"".join((memoryview(content)[first:-PADDING], chunk, bytes(PADDING)))
        base, bounds = base + first, bounds - first
        while True:
            bounds = np.append(bounds, heads.follow(content, int(bounds[-1]), batch_size + 1 - len(bounds), base))
            if len(bounds) <= batch_size and bounds[-1] - bounds[0] < _CHUNK:
                break
            yield _verified(content, bounds, source, base)
            bounds = bounds[-1:]
    if bounds[-1] + PADDING < len(content):
        raise InputError(f"{source}: truncated TFRecord at byte offset {base + bounds[-1]}")
    if len(bounds) > 1:
        yield _verified(content, bounds, source, base)


def _read(file: BinaryIO, source: str, offset: int, size: int) -> bytes:
    try:
        return file.read(size)
    except Exception:
        raise InputError(f"{source}: cannot be read or decompressed after byte offset {offset}") from None


class _Heads:
    """Follows frames from head to head. Records repeat their lengths: each head is checked once."""

    def __init__(self, source: str):
        self._source = source
        self._sizes: dict[bytes, int] = {}

    def follow(self, content: bytes, position: int, most: int, base: int) -> np.ndarray:
        """Where the next frames end, at most so many, as far as there is content.

        position: where they begin. base: the content's byte offset in the file.
        """
        found, end = [np.empty(0, np.int64)], len(content) - PADDING
        while most > 0:
            size = self._size(content, position, end, base)
            if size is None:
                break
            room = min(most, (end - position) // size)
            if room >= _LEAST_RUN and _run(content, position, size, _LEAST_RUN) == _LEAST_RUN:
                ends = position + size * np.arange(1, _run(content, position, size, room) + 1)
            else:
                ends = self._one_by_one(content, position, min(most, _STEPS), end, base)
            found.append(ends)
            position, most = int(ends[-1]), most - len(ends)
        return np.concatenate(found)

    def _one_by_one(self, content: bytes, position: int, most: int, end: int, base: int) -> np.ndarray:
        ends: list[int] = []
        known = self._sizes.get
        for _ in range(most):
            size = known(content[position : position + HEAD]) or self._size(content, position, end, base)
            if size is None or position + size > end:
                break
            position += size
            ends.append(position)
        return np.array(ends)

    def _size(self, content: bytes, position: int, end: int, base: int) -> int | None:
        """Of the frame at the position; None if it is not there as a whole."""
        head = content[position : position + HEAD]
        size = self._sizes.get(head)
        if size is None:
            if position + HEAD > end:
                return None
            if checksums([head[:8]])[0] != int.from_bytes(head[8:], "little"):
                raise InputError(f"{self._source}: corrupt TFRecord at byte offset {base + position}")
            size = self._sizes[head] = HEAD + int.from_bytes(head[:8], "little") + TAIL
        return size if position + size <= end else None


def _run(content: bytes, position: int, size: int, most: int) -> int:
    """How many frames of that size follow each other. most: as many as there is room for; at least 1."""
    lengths = np.ndarray((most,), "<u8", content, position, (size,))
    checks = np.ndarray((most,), "<u4", content, position + 8, (size,))
    same = (lengths == lengths[0]) & (checks == checks[0])
    return most if same.all() else int(same.argmin())


def _verified(content: bytes, bounds: np.ndarray, source: str, base: int) -> Frames:
    frames = Frames(content, bounds)
    wrong = np.flatnonzero(checksums(frames.records()) != _words(content)[frames.stops])
    if wrong.size:
        raise InputError(f"{source}: corrupt TFRecord at byte offset {base + bounds[wrong[0]]}")
    return frames
