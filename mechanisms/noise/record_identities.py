"""Record identities: source file and row number, or the value of an id column.

Random words and the input digest are keyed functions of these identities. The namespace of an identity binds the name
of its id column and the kind of its ids: under one secret key, two id columns of equal values have independent words
and independent digests.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

IDENTITY_BYTES = 16
"""Size of an identity's block: one block of AES."""

# This bit of the last byte marks the hash of a long id.
_HASHED = 0x80


@dataclass(frozen=True, eq=False)
class Identities:
    """Identities of some records: a namespace that they share, and a block of 16 bytes for each record.

    Two records have the same identity exactly if both namespace and block are equal. The caller ensures that
    identities are unique.

    Attributes:
      space: The namespace, of `encode_parts`: the kind of the identities, and the name of the source file or of the id
        column.
      blocks: Shape (n, 2), little-endian uint64.
    """

    space: bytes
    blocks: np.ndarray

    def __len__(self) -> int:
        return len(self.blocks)

    def keep(self, mask: np.ndarray) -> Identities:
        """Selects the records of a mask, shape (n,), bool."""
        return Identities(self.space, self.blocks[mask])


def encode_parts(*parts: bytes | str) -> bytes:
    """Encodes several parts as one message, each after its length, so that different parts give different messages.

    Text is encoded as UTF-8.
    """
    # A name from a command line or a file system may hold bytes that are not UTF-8, as lone surrogates.
    encoded = [part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(8, "little") + part for part in encoded)


def row_identities(source: str, rows: np.ndarray) -> Identities:
    """Makes identities from a source file and row numbers, the default.

    Rows have shape (n,), integers >= 0, in any order, with any gaps.
    """
    return Identities(encode_parts("file and row", source), _numbered(rows))


def integer_identities(column: str, ids: np.ndarray) -> Identities:
    """Makes identities from the name of the id column and integer ids, shape (n,), int64."""
    return Identities(encode_parts("integer id", column), _numbered(ids))


def packed_identities(column: str, data: np.ndarray, offsets: np.ndarray) -> Identities:
    """Makes identities from text or binary ids: a short id itself, the BLAKE2b hash of a longer id.

    An id of at most 15 bytes is padded with zeros to 15 bytes, and the last byte of its block is its length + 1. So
    different short ids have different blocks, and none is the block of an integer id, whose last byte is 0. The last
    byte of a hash is at least 128. Two longer ids with equal hashes would be reported as one id that occurs twice.
    Among n ids this has a probability of at most n^2 / 2^128; to find such ids on purpose takes 2^63 hashes.

    `data`, shape (b,), uint8, holds the ids one after the other; `offsets`, shape (n + 1,), int64, the start of each id
    in `data`, then the end of the last one. `column` is the name of the id column.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    blocks = np.zeros((len(starts), IDENTITY_BYTES), np.uint8)
    short = np.flatnonzero(lengths < IDENTITY_BYTES)
    if len(short) and len(data):
        places = np.arange(IDENTITY_BYTES - 1)
        # Bytes after the end of an id belong to the next id, or lie beyond the end of the data: they are set to 0.
        found = data[np.minimum(starts[short, None] + places, len(data) - 1)]
        blocks[short, :-1] = np.where(places < lengths[short, None], found, 0)
    blocks[short, -1] = lengths[short] + 1
    long = np.flatnonzero(lengths >= IDENTITY_BYTES)
    if len(long):
        # The ids of a slice may be a small part of the data.
        text = data[offsets[0] : offsets[-1]].tobytes()
        begins = starts[long] - offsets[0]
        bounds = zip(begins.tolist(), (begins + lengths[long]).tolist(), strict=True)
        hashes = [
            hashlib.blake2b(text[start:end], digest_size=IDENTITY_BYTES, person=b"labeldp id").digest()
            for start, end in bounds
        ]
        blocks[long] = np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, IDENTITY_BYTES)
        blocks[long, -1] |= _HASHED
    return Identities(encode_parts("text id", column), blocks.view("<u8"))


def first_repeated(blocks: np.ndarray) -> tuple[int, int] | None:
    """Indices of two records with the same block; None if all blocks, shape (n, 2), uint64, are different."""
    keys = np.ascontiguousarray(blocks).view(f"V{IDENTITY_BYTES}").ravel()
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    return (int(order[repeated[0]]), int(order[repeated[0] + 1])) if repeated.size else None


def _numbered(numbers: np.ndarray) -> np.ndarray:
    blocks = np.zeros((len(numbers), 2), "<u8")
    blocks[:, 0] = np.asarray(numbers, np.int64).view(np.uint64)
    return blocks
