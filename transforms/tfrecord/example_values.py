"""Positions of values in serialized tf.Examples, found without decoding them, and varints, for many records at a time.

Only records in the canonical form of `wire` are located; all others are left to the caller, who decodes them.
Integers and lengths are base-128 varints. Functions that read these take `octets` with at least `framing.PADDING` bytes
after the last record, because varints are read as words of eight bytes, which may reach across its end.

Source: the protocol buffer encoding specification.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .wire import read_varints, walk_examples

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Only hashes depend on it, and they leave no process.
_SEED = os.urandom(16)
# The smallest numbers of 2, 3, ..., 9 bytes.
_SIZE_LIMITS = 1 << 7 * np.arange(1, 9)


@dataclass(frozen=True, eq=False)
class Values:
    """Position of the single value of one feature in each of n records.

    Attributes:
      kinds: BYTES, FLOAT or INT64; 0 where the record lacks the feature, -1 where it has no value or several. Shape
        (n,), int64.
      starts: Offset of the value's first byte: of a text, of a float's four bytes, or of a varint. Undefined unless
        `kinds` is positive. Shape (n,), int64.
      stops: Offset after the value's last byte, where its map entry ends as well. Undefined as for `starts`.
    """

    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def put(self, rows: np.ndarray | slice, kinds: ArrayLike, starts: ArrayLike, stops: ArrayLike) -> None:
        """Sets the values of the records with indices `rows`."""
        self.kinds[rows], self.starts[rows], self.stops[rows] = kinds, starts, stops


@dataclass(frozen=True, eq=False)
class FoundValues:
    """Positions found in n records.

    Attributes:
      canonical: Records whose values were located, shape (n,), bool.
      values: Values by feature; of kind 0 in records that are not canonical.
    """

    canonical: np.ndarray
    values: dict[str, Values]


@dataclass(frozen=True, eq=False)
class Entries:
    """Map entries of several records. All arrays have shape (e,).

    Attributes:
      rows: Index of each entry's record, int64.
      hashes: Hash of its key, int64; equal keys have equal hashes in one process.
      names: Offset of the key's first byte, int64.
      names_stops: Offset after the key's last byte, int64.
      lists: Offset of the Feature's first byte, int64.
      kinds: Kind of its values, int64; 0 where there are none, or several texts.
      starts: Offset of the first byte of its values, int64.
      stops: Offset after the last one, where Feature and entry end as well, int64.
    """

    rows: np.ndarray
    hashes: np.ndarray
    names: np.ndarray
    names_stops: np.ndarray
    lists: np.ndarray
    kinds: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def find_values(
    content: bytes | memoryview, starts: np.ndarray, stops: np.ndarray, names: Sequence[str]
) -> FoundValues:
    """Locates the values of some features in a batch of records that are in canonical form.

    `starts` and `stops` are the offsets of each record's first byte and after its last byte in `content`, shape (n,),
    int64; other bytes may surround the records. The result holds offsets into `content`.
    """
    canonical, found = np.empty(len(starts), bool), np.zeros((len(names), 3, len(starts)), np.int64)
    walk_examples(content, starts, stops, tuple(name.encode() for name in names), canonical, found, False, _SEED)
    return FoundValues(canonical, {name: Values(*found[place]) for place, name in enumerate(names)})


def list_entries(content: bytes | memoryview, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, Entries]:
    """Lists the map entries of a batch of records; arguments as for `find_values`.

    Returns (canonical, entries): whether each record is in canonical form, shape (n,), bool, and the entries of those
    that are, record by record.
    """
    canonical = np.empty(len(starts), bool)
    found = np.zeros((0, 3, len(starts)), np.int64)
    listed = walk_examples(content, starts, stops, (), canonical, found, True, _SEED)
    return canonical, Entries(*np.ascontiguousarray(np.frombuffer(listed, np.int64).reshape(-1, 8).T))


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

    `octets` have the type uint8; `starts` and `stops` are the offsets of each varint's first byte and after its last,
    shape (n,), int64.
    """
    values = np.empty(len(starts), np.int64)
    read_varints(octets, starts, stops, values)
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
    sizes = np.ones(1, np.int64)
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
