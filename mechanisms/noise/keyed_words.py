"""Keyed randomness of records: their identities, key derivation, and one random 64-bit word per record.

All randomness is a deterministic function of a 32-byte key, a purpose and an identity: source file and row number, or
the value of an id column. So a retried bundle, a stage that is recomputed for a second consumer and a second run of the
job reproduce the same bytes, and noise cannot be averaged away. Keyed BLAKE2b (RFC 7693) derives keys; its
personalization field separates the purposes. AES-256 (FIPS 197) under such keys computes the words of millions of
records per second.

The namespace of an identity binds the name of its id column and the kind of its ids: under one secret key, two id
columns of equal values have independent words and independent digests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..core.budget import BudgetSplit
from ..core.label_classes import LabelClasses

KEY_BYTES = 32
"""Size of every key."""

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

    def keep(self, mask: np.ndarray | slice) -> Identities:
        """Selects the records of a mask, shape (n,), bool, or of a slice."""
        return Identities(self.space, self.blocks[mask])


class RowRange(Identities):
    """Identities of consecutive rows of a source, whose blocks take no memory until they are used."""

    rows: range

    def __init__(self, source: str, rows: range):
        object.__setattr__(self, "space", encode_parts("file and row", source))
        object.__setattr__(self, "rows", rows)

    @property
    def blocks(self) -> np.ndarray:  # type: ignore[override]
        """The blocks of the rows."""
        return _numbered(np.arange(self.rows.start, self.rows.stop))

    def __len__(self) -> int:
        return len(self.rows)

    def keep(self, mask: np.ndarray | slice) -> Identities:
        """As `Identities.keep`; a slice without steps, and a mask of all, stay a range."""
        if isinstance(mask, slice):
            kept = RowRange.__new__(RowRange)
            vars(kept).update(space=self.space, rows=self.rows[mask])
            return kept
        return self if mask.all() else super().keep(mask)


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


def keyed_hash(key: bytes, use: bytes, message: bytes) -> bytes:
    """Computes BLAKE2b(key; message), 32 bytes, which can itself serve as a key.

    `use` is the BLAKE2b personalization, at most 16 bytes, different for each purpose. Raises ValueError unless the key
    has 32 bytes.
    """
    state = keyed_blake2b(key, KEY_BYTES, use)
    state.update(message)
    return state.digest()


def keyed_blake2b(key: bytes, size: int, use: bytes) -> hashlib.blake2b:
    """Starts a keyed BLAKE2b hash, without a message yet, for a digest of `size` bytes, at most 64.

    `use` is the personalization, at most 16 bytes, different for each purpose. Raises ValueError unless the key has 32
    bytes.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key must have {KEY_BYTES} bytes, not {len(key)}")
    return hashlib.blake2b(key=key, digest_size=size, person=use)


Unit = tuple[str, int]
"""Name of the column of privacy units, and the largest number of records of a unit."""

Reading = tuple[tuple[str, str], ...]
"""Names of options by which labels are read, with their values."""


@dataclass(frozen=True, eq=False)
class NoiseRequest:
    """Fields of a request that change what a label means, or what is released of it: the one list of them.

    Every noise key and every digest is bound to them. Were the noise of two requests the same that differ in one of
    them, it would tell exactly that no label has another meaning in the other request: that no label is missing, no
    record has a class in which two lists differ, no text reads as another number, or two columns are equal.

    Attributes:
      column: Name of the label column, so that two columns of equal values get independent noise.
      labels: The label domain, shape (k,).
      rounding: Rounding of labels to the domain.
      center: Name of the center column; None for no center.
      unit: Privacy unit; None for single records.
      classes: Classes of the label; None for numbers.
      missing: What a missing label counts as; None to leave such records out.
      reading: Options of text files by which labels are read, with their values; those of the default are left out.
    """

    column: str
    labels: Any
    rounding: str
    center: str | None = None
    unit: Unit | None = None
    classes: LabelClasses | None = None
    missing: float | None = None
    reading: Reading = ()

    @property
    def given(self) -> dict[str, Any]:
        """The fields that not every request has, of those that this one has, as values of JSON."""
        found = {
            "center": self.center,
            "unit": self.unit and list(self.unit),
            "classes": self.classes and self.classes.request,
            "missing": None if self.missing is None else float(self.missing).hex(),
            "reading": [list(each) for each in self.reading] or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def needed(self) -> dict[str, Any]:
        """The fields that every request has, as values of JSON."""
        labels = [float(label).hex() for label in self.labels]
        return {"column": self.column, "labels": labels, "rounding": self.rounding}

    def encode(self, budget: BudgetSplit) -> bytes:
        """Encodes the request with its epsilons, of the prior and of the randomizer, as JSON.

        Different requests have different encodings.
        """
        epsilons = [float(budget.prior).hex(), float(budget.labels).hex()]
        return json.dumps({**self.needed, "epsilons": epsilons, **self.given}, sort_keys=True).encode()


def derive_noise_key(secret: bytes, digest: int, request: NoiseRequest, budget: BudgetSplit) -> bytes:
    """Derives the noise key of one release, 32 bytes, bound to the data and to the request.

    It is the same for the same input and request, independent for any other. `digest` is the `input_digest` of all
    records. Raises ValueError unless the secret key has 32 bytes.
    """
    message = encode_parts(digest.to_bytes(KEY_BYTES, "big"), request.encode(budget))
    return keyed_hash(secret, b"labeldp noise", message)


def keyed_blocks(key: bytes, blocks: np.ndarray) -> np.ndarray:
    """Encrypts every block by itself with AES-256 under one key, a `keyed_hash`.

    Blocks, shape (n, 2), little-endian uint64, are all different; the result has the same shape and type. The results
    for n different blocks are pseudorandom: unless AES is broken, they can be distinguished from uniform independent
    blocks with an advantage of at most n^2 / 2^129, because no two of them are equal.
    """
    # ECB is right here: AES serves as a pseudorandom function of single blocks. No message is to be hidden.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    plain = np.ascontiguousarray(blocks, "<u8").view(np.uint8).ravel()
    # Older versions of the cryptography library require a buffer that is almost one block longer.
    buffer = np.empty(len(plain) + IDENTITY_BYTES - 1, np.uint8)
    encryptor.update_into(plain.data, buffer.data)
    return buffer[: len(plain)].view("<u8").reshape(-1, 2)


def words(key: bytes, purpose: bytes, identities: Identities) -> np.ndarray:
    """Computes one uniform 64-bit word per record: the first half of AES-256(BLAKE2b(key; purpose, namespace); row).

    The key, 32 bytes, is the result of `derive_noise_key` if the words must be bound to the data. The purpose of noise
    is the fingerprint of the mechanism, so that two mechanisms over the same records get independent words. The result
    has shape (n,), uint64.
    """
    return word_pairs(key, purpose, identities)[:, 0].copy()


def word_pairs(key: bytes, purpose: bytes, identities: Identities) -> np.ndarray:
    """Computes two words per record, no two pairs of a namespace alike, shape (n, 2), uint64; see `words`."""
    message = encode_parts(purpose, identities.space)
    return keyed_blocks(keyed_hash(key, b"labeldp words", message), identities.blocks)


def labelled_words(
    key: bytes, purpose: bytes, identities: Identities, labels: np.ndarray, centers: np.ndarray | None = None
) -> np.ndarray:
    """Computes one uniform 64-bit word per record and label: if a record's label changes, its word is independent.

    The record's block is encrypted with AES-256 as in `words`, XORed with the bits of the label and encrypted under a
    second key. This is the CBC-MAC of two blocks, a pseudorandom function for messages of fixed length (Bellare,
    Kilian, Rogaway 2000). With a center, the second block holds its index as well, so a changed center gives an
    independent word too. One key must not be used with and without centers.

    Key, purpose and result are as for `words`; labels have shape (n,), float64. `centers` are indices, shape (n,),
    integers >= 0; None for labels without a center.
    """
    message = encode_parts(purpose, identities.space)
    blocks = keyed_blocks(keyed_hash(key, b"labeldp name", message), identities.blocks).copy()
    # Adding zero turns -0.0 into 0.0, so that they are the same label.
    blocks[:, 0] ^= (np.asarray(labels, np.float64) + 0.0).view(np.uint64)
    if centers is not None:
        blocks[:, 1] ^= np.asarray(centers, np.uint64)
    return keyed_blocks(keyed_hash(key, b"labeldp label", message), blocks)[:, 0].copy()
