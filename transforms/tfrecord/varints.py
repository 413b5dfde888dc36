"""Base-128 varints of the protocol buffer wire format, for many records at a time.

Functions that read take `octets` with at least `framing.PADDING` bytes after the last record, because varints are read
as words of eight bytes, which may reach across its end.

Source: the protocol buffer encoding specification.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# The smallest numbers of 2, 3, ..., 9 bytes.
_SIZE_LIMITS = 1 << 7 * np.arange(1, 9)


def varint(value: int) -> bytes:
    """Encodes one number >= 0 in as few bytes as possible."""
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])


def encode_varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encodes int64 numbers of shape (n,), negative ones as 64-bit two's complement.

    Returns (octets, sizes): the varints one after the other, uint8, and the number of bytes of each, shape (n,), int64.
    """
    unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
    sizes = np.ones(len(unsigned), np.int64)
    largest = int(unsigned.max(initial=0))
    for place in range(1, 10):
        if largest >> (7 * place):
            sizes += (unsigned >> np.uint64(7 * place)) > 0
    width = int(sizes.max(initial=0))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    octets = ((unsigned[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    octets[np.arange(width) < sizes[:, None] - 1] |= 0x80
    return octets[np.arange(width) < sizes[:, None]], sizes


def varint_sizes(values: np.ndarray) -> np.ndarray:
    """Bytes of minimal varints of numbers from 0 to 2^63 - 1; shape (n,), int64."""
    return np.searchsorted(_SIZE_LIMITS, values, side="right") + 1


def decode_varints(octets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Decodes one varint per record, shape (n,), int64.

    `octets` is padded, uint8; `starts` and `stops` are the offsets of each varint's first byte and after its last,
    shape (n,), int64.
    """
    words, sizes = sliding_words(octets), stops - starts
    values = np.zeros(len(starts), np.int64)
    for place in range(int(sizes.max(initial=0))):
        values |= np.where(place < sizes, words[np.minimum(starts + place, len(words) - 1)] & 0x7F, 0) << 7 * place
    return values


def sliding_words(octets: np.ndarray) -> np.ndarray:
    """View of the eight bytes from every offset on, each as one little-endian number.

    `octets` has shape (m,), uint8; the view, without a copy, has shape (max(m - 7, 0),), int64.
    """
    return np.ndarray((max(len(octets) - 7, 0),), "<i8", octets, strides=(1,))


def read_lengths(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decodes varints of at most five bytes, as lengths of fields are.

    `words` begin with a varint each, shape (n,), int64. Returns (values, sizes, minimal), each of shape (n,): the
    numbers, their sizes in bytes, and whether each is a complete varint in as few bytes as possible.
    """
    sizes: Any = 1
    values, more = words & 0x7F, words >> 7 & 1
    for place in range(1, 5):
        sizes = sizes + more
        values = values | (words >> 8 * place & 0x7F) * more << 7 * place
        more = words >> 8 * place + 7 & more
    return values, sizes, (more == 0) & ((sizes == 1) | (values >> 7 * (sizes - 1) > 0))


def content_offsets(octets: np.ndarray, fields: np.ndarray) -> np.ndarray:
    """Offsets of the content of length-delimited fields with a tag of one byte, shape (n,), int64.

    `octets` is padded, uint8; `fields` are the offsets of the tags, shape (n,), int64. The content begins after the
    field's length.
    """
    return fields + 1 + read_lengths(sliding_words(octets)[fields] >> 8)[1]
