"""Keyed randomness: key derivation, and one random 64-bit word per record.

All randomness is a deterministic function of a 32-byte key and a purpose. So a retried bundle, a stage that is
recomputed for a second consumer and a second run of the job reproduce the same bytes, and noise cannot be averaged
away. Keyed BLAKE2b (RFC 7693) derives keys; its personalization field separates the purposes. AES-256 (FIPS 197) under
such keys computes the words of millions of records per second.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..core.budget import BudgetSplit
from .record_identities import IDENTITY_BYTES, Identities, encode_parts

KEY_BYTES = 32
"""Size of every key."""


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


Groups = tuple[str, tuple[str, ...]]
"""Name of the column that records are grouped by, and the values that groups are declared for."""

Unit = tuple[str, int]
"""Name of the column of privacy units, and the largest number of records of a unit."""


def encode_request(
    column: str,
    labels: np.ndarray,
    budget: BudgetSplit,
    rounding: str,
    center: str | None = None,
    groups: Groups | None = None,
    unit: Unit | None = None,
) -> bytes:
    """Encodes the part of a request that all noise and the input digest are bound to, as JSON.

    Different requests have different encodings. The name of the label column is part of it, so that two columns of
    equal values get independent noise. `labels` is the declared label domain, shape (k,), `rounding` "nearest" or
    "randomized", and `center` the name of the center column; None stands for no center, no groups, and records as
    privacy units.
    """
    bound_to: dict[str, Any] = {
        "column": column,
        "labels": [float(label).hex() for label in labels],
        "epsilons": [float(budget.prior).hex(), float(budget.labels).hex()],
        "rounding": rounding,
    }
    if center is not None:
        bound_to["center"] = center
    if groups is not None:
        bound_to["groups"] = [groups[0], list(groups[1])]
    if unit is not None:
        bound_to["unit"] = list(unit)
    return json.dumps(bound_to, sort_keys=True).encode()


def derive_noise_key(
    secret: bytes,
    digest: int,
    column: str,
    labels: np.ndarray,
    budget: BudgetSplit,
    rounding: str,
    center: str | None = None,
    groups: Groups | None = None,
    unit: Unit | None = None,
) -> bytes:
    """Derives the noise key of one release, 32 bytes, bound to the data and to the request.

    It is the same for the same input and request, independent for any other. `digest` is the `input_digest` of all
    records; the rest is as for `encode_request`. Raises ValueError unless the secret key has 32 bytes.
    """
    request = encode_request(column, labels, budget, rounding, center, groups, unit)
    message = encode_parts(digest.to_bytes(KEY_BYTES, "big"), request)
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
    message = encode_parts(purpose, identities.space)
    return keyed_blocks(keyed_hash(key, b"labeldp words", message), identities.blocks)[:, 0].copy()


def labelled_words(
    key: bytes, purpose: bytes, identities: Identities, labels: np.ndarray, centers: np.ndarray | None = None
) -> np.ndarray:
    """Computes one uniform 64-bit word per record and label: if a record's label changes, its word is independent.

    The record's block is encrypted with AES-256 as in `words`, XORed with the bits of the label and encrypted under a
    second key. This is the CBC-MAC of two blocks, a pseudorandom function for messages of fixed length (Bellare,
    Kilian, Rogaway 2000). With a center, the second block holds its index as well, so a changed center gives an
    independent word too. One key must not be used with and without centers.

    Key, purpose and result are as for `words`; labels have shape (n,), float64. `centers` are indices, shape (n,),
    integers >= 0, or with groups indices of pairs of center and group; None for labels without a center.
    """
    message = encode_parts(purpose, identities.space)
    blocks = keyed_blocks(keyed_hash(key, b"labeldp name", message), identities.blocks).copy()
    # Adding zero turns -0.0 into 0.0, so that they are the same label.
    blocks[:, 0] ^= (np.asarray(labels, np.float64) + 0.0).view(np.uint64)
    if centers is not None:
        blocks[:, 1] ^= np.asarray(centers, np.uint64)
    return keyed_blocks(keyed_hash(key, b"labeldp label", message), blocks)[:, 0].copy()
