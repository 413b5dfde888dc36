"""Second implementation of TFRecord files: framing, gzip and CRC-32C checksums.

Uses numpy, which pyarrow depends on, beside the standard library: checksums are computed for all records of a chunk at
once, two bytes of each in one step. Shares no code with the writer.

Source: tensorflow/core/lib/io/record_writer.h for the framing; RFC 3720, appendix B.4, for the polynomial.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..documents import RefusedDocument

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reflected
_MASK_DELTA = np.uint32(0xA282EAD8)
_CHUNK = 4 << 20
_HEADER, _FOOTER = 12, 4
_LONGEST = 1 << 31  # protocol buffers are shorter

# Longer messages are cut into rows of this many bytes, so that one long record does not cost a step for each byte.
_ROW = 512


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
            while chunk := file.read(max(_CHUNK, len(rest))):
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
