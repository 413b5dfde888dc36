"""What names a record: its file and row, or its id. Names are what keyed functions of records are functions of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

IDENTITY_BYTES = 16


_HASHED = 0x80


@dataclass(frozen=True, eq=False)
class Identities:
    """The names of some records: a space that they share, and a block of 16 bytes for each.

    space: a file, or that the names are ids. blocks: (n, 2) little-endian uint64. Two records have one name exactly
    when space and block are equal; whoever makes names sees to it that no two records do.
    """

    space: bytes
    blocks: np.ndarray

    def __len__(self) -> int:
        return len(self.blocks)


def row_identities(source: str, rows: np.ndarray) -> Identities:
    """The default: file and row. source: the file's name. rows: (n,) integers >= 0, in any order, with any gaps."""
    return Identities(b"file " + source.encode(), _numbered(rows))


def integer_identities(ids: np.ndarray) -> Identities:
    """Records that have an integer id. ids: (n,) int64."""
    return Identities(b"id", _numbered(ids))


def bytes_identities(ids: Sequence[bytes]) -> Identities:
    """Records that have a text or binary id: as `packed_identities`."""
    data = np.frombuffer(b"".join(ids), np.uint8)
    return packed_identities(data, np.cumsum([0, *map(len, ids)]))


def packed_identities(data: np.ndarray, offsets: np.ndarray) -> Identities:
    """Records that have a text or binary id: the id itself where it is short, else its BLAKE2b hash.

    data: (b,) uint8, the ids one after the other. offsets: (n + 1,) int64, where each begins and the last ends.

    An id of at most 15 bytes is followed by zeros, and its length + 1 is the block's last byte: no two are equal, and
    none is an integer's, whose last byte is 0. Of a hash the last byte is at least 128. Two longer ids of one hash
    would count as one id that occurs twice: among n ids that has a probability of n^2 / 2^128 at most, and costs 2^63
    hashes to do on purpose.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    blocks = np.zeros((len(starts), IDENTITY_BYTES), np.uint8)
    short = np.flatnonzero(lengths < IDENTITY_BYTES)
    if len(short) and len(data):
        places = np.arange(IDENTITY_BYTES - 1)
        # Where an id ends before the last place there is something else, or nothing at the end of the data.
        found = data[np.minimum(starts[short, None] + places, len(data) - 1)]
        blocks[short, :-1] = np.where(places < lengths[short, None], found, 0)
    blocks[short, -1] = lengths[short] + 1
    long = np.flatnonzero(lengths >= IDENTITY_BYTES)
    if len(long):
        # Of a slice, the data may be those of a whole file.
        text = data[offsets[0] : offsets[-1]].tobytes()
        begins = starts[long] - offsets[0]
        bounds = zip(begins.tolist(), (begins + lengths[long]).tolist(), strict=True)
        hashes = [
            hashlib.blake2b(text[start:end], digest_size=IDENTITY_BYTES, person=b"labeldp id").digest()
            for start, end in bounds
        ]
        blocks[long] = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, IDENTITY_BYTES)
        blocks[long, -1] |= _HASHED
    return Identities(b"id", blocks.view("<u8"))


def _numbered(numbers: np.ndarray) -> np.ndarray:
    blocks = np.zeros((len(numbers), 2), "<u8")
    blocks[:, 0] = np.asarray(numbers, np.int64).view(np.uint64)
    return blocks
