"""What names a record: its file and row, or its id. Names are what keyed functions of records are functions of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

IDENTITY_BYTES = 16


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
    """Records that have a text or binary id: its BLAKE2b hash of 128 bits.

    Two ids of one hash, or one that hashes to an integer id, would count as one id that occurs twice: among n ids
    that has a probability of n^2 / 2^128 at most, and costs 2^64 hashes to do on purpose.
    """
    hashes = [hashlib.blake2b(one, digest_size=IDENTITY_BYTES, person=b"labeldp id").digest() for one in ids]
    return Identities(b"id", np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2))


def _numbered(numbers: np.ndarray) -> np.ndarray:
    blocks = np.zeros((len(numbers), 2), "<u8")
    blocks[:, 0] = np.asarray(numbers, np.int64).view(np.uint64)
    return blocks
