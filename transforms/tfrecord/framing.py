"""The TFRecord container: length, masked CRC-32C of the length, data, masked CRC-32C of the data.

A frame is one record with the header before it and the footer after it. Other modules interpret the records.

A checksum is updated after bytes of a record were changed or appended, without reading the rest of it. It is linear: if
four bytes of a message change, its checksum changes by the difference of those bytes, as a polynomial over GF(2), times
x^8 for each byte that follows, modulo the checksum's polynomial. Bits are reflected, as in the Castagnoli CRC: the
highest bit of a number is the coefficient of x^0.

Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from ..errors import InputError, unreadable
from ..io.limits import LIMITS, Limits
from .wire import FOOTER_SIZE, HEADER_SIZE, crc32c, follow_frames, frame, shift_checksums, skim_frames

PADDING = 8
"""Bytes after the last frame of `Frames`, so that words can be read across its end."""

ALL_ROWS = 1 << 62
"""End of a range of rows that has none."""

_MASK_DELTA = np.uint32(0xA282EAD8)


@dataclass(frozen=True, eq=False)
class Frames:
    """Consecutive records as they stand in a TFRecord file. Iterating gives the records.

    Attributes:
      content: The frames, possibly with other bytes before and after them; at least `PADDING` bytes follow the last.
      bounds: Offset of each frame in `content`, then the end of the last one. Shape (n + 1,), int64.
    """

    content: bytes | memoryview
    bounds: np.ndarray

    @classmethod
    def of(cls, records: Sequence[bytes]) -> Frames:
        """Frames the records, from offset 0 on."""
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        return cls(frame(records) + bytes(PADDING), np.append(0, np.cumsum(lengths + HEADER_SIZE + FOOTER_SIZE)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.records())

    def records(self) -> list[bytes]:
        """Copies the n records without their frames."""
        content = self.content
        return [
            bytes(content[start:stop]) for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        ]

    def select(self, rows: np.ndarray) -> Frames:
        """Copies the frames of the records with indices `rows`, ascending, shape (m,), from offset 0 on."""
        content, starts, stops = self.content, self.bounds[:-1][rows], self.bounds[1:][rows]
        parts = [content[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        return Frames(b"".join((*parts, bytes(PADDING))), np.append(0, np.cumsum(stops - starts)))

    @property
    def octets(self) -> np.ndarray:
        """The content, shape (m,), uint8."""
        return np.frombuffer(self.content, np.uint8)

    @property
    def starts(self) -> np.ndarray:
        """Offset of each record's first byte, shape (n,), int64."""
        return self.bounds[:-1] + HEADER_SIZE

    @property
    def stops(self) -> np.ndarray:
        """Offset after each record's last byte, shape (n,), int64."""
        return self.bounds[1:] - FOOTER_SIZE


def read_records(
    file: BinaryIO,
    source: str,
    batch_size: int,
    sizes: Callable[[Frames], np.ndarray] | None = None,
    rows: range | None = None,
    limits: Limits = LIMITS,
) -> Iterator[Frames]:
    """Reads a decompressed TFRecord file and verifies both checksums of every record.

    Yields batches of `batch_size` >= 1 records in order, smaller ones at the end and where records are large. By
    `sizes` of records in bytes, shape (n,), int64, batches of large records end early; None stands for the sizes in the
    file. They decide the number of records in a batch, so they must not depend on labels. `rows` are the rows to read,
    from the position of `file` on; None stands for all from there to the end, the first being row 0. A range up to
    `ALL_ROWS` reads to the end, too. Raises InputError if the file is corrupt, truncated or cannot be read, or a record
    is too large. It names the source and the first bad record by its row, never by an offset, which depends on how many
    bytes labels take.
    """
    rows = rows or range(ALL_ROWS)
    content, row, bounds = memoryview(bytes(PADDING)), rows.start, np.zeros(1, np.int64)
    measured, ended, chunk, most_bytes = np.zeros(0, np.int64), False, limits.chunk_bytes, limits.frames_bytes
    while not ended:
        first, size = (
            int(bounds[0]),
            max(chunk, len(content) - int(bounds[-1]), _missing(bounds, batch_size, most_bytes)),
        )
        content, ended = _continued(file, source, content[first:], size)
        bounds = bounds - first
        while not ended:
            most = min(batch_size, rows.stop - row)
            if not most:
                return
            bounds, corrupt = _followed(content, bounds, most)
            # The checksum of the header after a whole batch is not known yet.
            large = _first_large(content, bounds, corrupt or len(bounds) > most, limits.record_bytes)
            if large is not None:
                raise InputError(
                    f"{source}: the record at row {row + large} has more than {limits.record_bytes >> 20} MiB: write "
                    "it with smaller features"
                )
            if corrupt:
                raise InputError(f"{source}: corrupt TFRecord at row {row + len(bounds) - 1}")
            measured = _measured(Frames(content, bounds), measured, sizes, most_bytes)
            taken = _batch_length(measured, len(bounds) - 1, most, most_bytes)
            if not taken:
                break
            yield Frames(content, bounds[: taken + 1])
            row, bounds, measured = row + taken, bounds[taken:], measured[taken:]
    if bounds[-1] + PADDING < len(content) or rows.stop < ALL_ROWS:
        raise InputError(f"{source}: truncated TFRecord at row {row + len(bounds) - 1}")
    if len(bounds) > 1:
        yield Frames(content, bounds)


def _followed(content: memoryview, bounds: np.ndarray, batch_size: int) -> tuple[np.ndarray, bool]:
    """Bounds of the frames that are complete, at most a batch, and whether a frame with a wrong checksum follows."""
    ends = np.empty(batch_size + 1 - len(bounds), np.int64)
    count, corrupt = follow_frames(content, int(bounds[-1]), len(content) - PADDING, ends)
    return np.append(bounds, ends[:count]), corrupt


def _first_large(content: memoryview, bounds: np.ndarray, passed: bool, largest: int) -> int | None:
    """Place of the first record that is too large, of those that are complete and the next, unless that is passed."""
    header = content[int(bounds[-1]) : len(content) - PADDING][:HEADER_SIZE]
    sizes = np.diff(bounds) - HEADER_SIZE - FOOTER_SIZE
    if not passed and len(header) == HEADER_SIZE and int.from_bytes(header[:8], "little") > largest:
        sizes = np.append(sizes, largest + 1)
    return int(np.argmax(sizes > largest)) if np.any(sizes > largest) else None


def _missing(bounds: np.ndarray, batch_size: int, most_bytes: int) -> int:
    """Bytes that a batch of records like those seen would still take, so that few blocks are joined to one batch."""
    size = int(bounds[-1] - bounds[0])
    return min(size * (batch_size + 1) // max(len(bounds) - 1, 1), most_bytes) - size


def _continued(file: BinaryIO, source: str, before: memoryview, size: int) -> tuple[memoryview, bool]:
    """Padded bytes, with at most `size` more of the file before the padding; and whether the file has no more."""
    # numpy asks the kernel for large pages, and leaves them unwritten.
    octets, start = np.empty(len(before) + size, np.uint8).data, len(before) - PADDING
    free = octets[start : start + size]
    try:
        if isinstance(file, io.BufferedIOBase):
            count = file.readinto(free)
        else:
            found = file.read(size)
            count = len(found)
            free[:count] = found
    except Exception as error:
        raise unreadable(source, error, "cannot be read or decompressed") from None
    if not count:
        return before, True
    octets[:start], stop = before[:start], start + count + PADDING
    octets[stop - PADDING : stop] = bytes(PADDING)
    return octets[:stop].toreadonly(), False


def _measured(
    frames: Frames, known: np.ndarray, sizes: Callable[[Frames], np.ndarray] | None, most_bytes: int
) -> np.ndarray:
    """Sizes of the first records, or of all if they are large enough for a batch. known: those measured before."""
    if frames.bounds[-1] - frames.bounds[0] < most_bytes or len(known) == len(frames):
        return known
    others = Frames(frames.content, frames.bounds[len(known) :])
    return np.append(known, sizes(others) if sizes else np.diff(others.bounds))


def _batch_length(measured: np.ndarray, records: int, batch_size: int, most_bytes: int) -> int:
    """Number of records in the next batch; 0 if it takes more records than these."""
    totals = np.cumsum(measured)
    if len(totals) and totals[-1] >= most_bytes:
        return int(np.searchsorted(totals, most_bytes)) + 1
    return batch_size if records == batch_size else 0


def batch_offsets(file: BinaryIO, rows: int, chunk_bytes: int = LIMITS.chunk_bytes) -> tuple[int, np.ndarray]:
    """Finds the offsets of records in a TFRecord file that can seek, by the headers alone.

    Returns (records, offsets): the number of records, up to the first corrupt header, and the offset of every `rows`-th
    one from the first on, shape (m,), int64.
    """
    starts, position, count, found = np.empty(chunk_bytes // (HEADER_SIZE + FOOTER_SIZE), np.int64), 0, 0, []
    while True:
        file.seek(position)
        content = file.read(chunk_bytes)
        followed, length, corrupt = skim_frames(content, starts)
        found.append(position + starts[-count % rows : followed : rows])
        count, position = count + followed, position + length
        if corrupt or not followed:
            return count, np.concatenate(found)


def skip_records(file: BinaryIO, count: int, chunk_bytes: int = LIMITS.chunk_bytes) -> bool:
    """Moves a TFRecord file that can seek beyond `count` >= 0 records, by their headers alone.

    Returns False if the file has fewer, up to the first corrupt header.
    """
    starts, position = np.empty(chunk_bytes // (HEADER_SIZE + FOOTER_SIZE), np.int64), file.tell()
    while count:
        followed, length, _ = skim_frames(file.read(chunk_bytes), starts)
        if not followed:
            return False
        position += int(starts[count]) if count < followed else length
        count -= min(count, followed)
        file.seek(position)
    return True


def checksums(parts: Iterable[bytes]) -> np.ndarray:
    """Masked CRC-32C of each of n messages, shape (n,), uint32."""
    return _masked(np.array([crc32c(part) for part in parts], np.uint32))


def _masked(crc: np.ndarray) -> np.ndarray:
    return (crc >> np.uint32(15) | crc << np.uint32(17)) + _MASK_DELTA


def _unmasked(masked: np.ndarray) -> np.ndarray:
    rotated = masked - _MASK_DELTA
    return rotated >> np.uint32(17) | rotated << np.uint32(15)


def frame_headers(lengths: np.ndarray) -> np.ndarray:
    """Headers of records of the given lengths in bytes, int64; shape (n, 12), uint8."""
    distinct, place = np.unique(lengths, return_inverse=True)
    octets = np.empty((len(distinct), HEADER_SIZE), np.uint8)
    octets[:, :8] = distinct.astype("<u8").view(np.uint8).reshape(-1, 8)
    octets[:, 8:] = _octets(checksums([length.tobytes() for length in octets[:, :8]]))
    return octets[place]


def _octets(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype("<u4").view(np.uint8).reshape(-1, 4)


def overwrite_words(octets: np.ndarray, bounds: np.ndarray, offsets: np.ndarray, words: np.ndarray) -> None:
    """Replaces four bytes of every record in place, and updates its checksum.

    `octets` are the frames, shape (m,), uint8, with `bounds` as in `Frames`. `offsets` are the offsets in `octets` of
    the four bytes, shape (n,), int64; `words` are the new bytes, shape (n,), any dtype of four bytes. A record whose
    checksum was wrong before has a wrong one after.
    """
    content, words, stops = _words(octets), words.view("<u4"), bounds[1:] - FOOTER_SIZE
    before, claimed = content[offsets], content[stops]
    content[offsets] = words
    content[stops] = _masked(changed_checksums(_unmasked(claimed), before, words, stops - offsets - 4))


def appended_footers(footers: np.ndarray, ending: bytes, last: np.ndarray) -> np.ndarray:
    """Footers of records, shape (n, 4), uint8, after an ending was appended.

    The endings differ in their last four bytes only: `last` holds these, shape (n,), any dtype of four bytes, and they
    are not looked at in `ending`. A record whose checksum was wrong before has a wrong one after.
    """
    claimed = _unmasked(np.ascontiguousarray(footers).view("<u4").ravel())
    alike = int(_unmasked(checksums([ending[:-4] + bytes(4)]))[0])
    return _octets(_masked(appended_checksums(claimed, alike, last.view("<u4"), len(ending))))


def restarted_footers(
    footers: np.ndarray, before: Sequence[bytes], after: Sequence[bytes], places: np.ndarray, behind: np.ndarray
) -> np.ndarray:
    """Footers of records, shape (n, 4), uint8, after their first bytes were replaced.

    `before` are the u distinct starts of records and `after` the u starts that take their place, perhaps longer or
    shorter. `places` is the index of each record's start in `before`, and `behind` the number of bytes after the start,
    both of shape (n,), int64. A record whose checksum was wrong before has a wrong one after.
    """
    claimed = _unmasked(np.ascontiguousarray(footers).view("<u4").ravel())
    one, other = (_unmasked(checksums(starts))[places] for starts in (before, after))
    return _octets(_masked(restarted_checksums(claimed, one, other, behind)))


def _words(content: np.ndarray) -> np.ndarray:
    """View of the four bytes from every offset on, each as one little-endian number."""
    return np.ndarray((max(len(content) - 3, 0),), "<u4", content, strides=(1,))


def changed_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Unmasked CRC-32C of messages after four bytes of each changed, shape (n,), uint32.

    `before` and `after` are those bytes, little-endian uint32; `behind` is the number of message bytes after them,
    int64, below 2^32 - 4.
    """
    return checksums ^ _shifted(before ^ after, behind + 4)


def appended_checksums(checksums: np.ndarray, ending: int, last: np.ndarray, size: int) -> np.ndarray:
    """Unmasked CRC-32C of messages after an ending of `size` >= 4 bytes, shape (n,), uint32.

    The endings differ in their last four bytes only: `last` holds these, little-endian uint32, and `ending` is the
    unmasked CRC-32C of an ending in which they are 0.
    """
    return _shifted(checksums, size) ^ _shifted(last, 4) ^ np.uint32(ending)


def restarted_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Unmasked CRC-32C of messages after their first bytes were replaced, shape (n,), uint32.

    `before` and `after` are the unmasked CRC-32C of the first bytes alone, which may differ in length; `behind` is the
    number of message bytes after them, int64, below 2^32.
    """
    return checksums ^ _shifted(before ^ after, behind)


def _shifted(values: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Products of the values and x^8 to the power of count."""
    products = values.astype(np.uint32)
    shift_checksums(products, np.array(np.broadcast_to(count, values.shape), np.int64))
    return products
