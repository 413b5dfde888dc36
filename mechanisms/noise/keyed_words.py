"""The only source of randomness: keyed words for records, keyed byte streams, exact discrete Laplace.

Everything random is a function of a 32-byte key and of what it is for, so a retried bundle, a stage
recomputed for a second consumer and a whole job run again give the same bytes, and nothing can be averaged
away. Keyed BLAKE2b (RFC 7693) derives keys and streams, the uses kept apart by its personalization field; AES-256
(FIPS 197) under such keys serves millions of records a second.

Sources: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithm 2, for
the exact discrete Laplace sampler.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .record_identities import IDENTITY_BYTES, Identities

KEY_BYTES = 32


def keyed_hash(key: bytes, use: bytes, message: bytes) -> bytes:
    """BLAKE2b(key; message), 32 bytes: good as a key, too. key: 32 bytes. use: at most 16 bytes, one per purpose."""
    state = keyed_blake2b(key, KEY_BYTES, use)
    state.update(message)
    return state.digest()


def keyed_blake2b(key: bytes, size: int, use: bytes) -> hashlib.blake2b:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    return hashlib.blake2b(key=key, digest_size=size, person=use)


def keyed_blocks(key: bytes, blocks: np.ndarray) -> np.ndarray:
    """AES-256 of every block by itself, under one key: as good as uniform independent blocks for blocks that differ.

    Nobody who cannot break AES tells n of them from uniform ones but with a probability of n^2 / 2^129, which is
    because no two are equal.

    key: 32 bytes, a `keyed_hash`. blocks: (n, 2) little-endian uint64. Returns (n, 2) little-endian uint64.
    """
    # The "mode" without chaining: counters and names are no text whose repetitions could show.
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    plain = np.ascontiguousarray(blocks, "<u8").view(np.uint8).ravel()
    # Older versions of the library want room for one block more.
    room = np.empty(len(plain) + IDENTITY_BYTES - 1, np.uint8)
    encryptor.update_into(plain.data, room.data)
    return room[: len(plain)].view("<u8").reshape(-1, 2)


def words(key: bytes, purpose: bytes, identities: Identities) -> np.ndarray:
    """One uniform 64-bit word per record: the first half of AES-256(BLAKE2b(key; purpose, file); row).

    key: 32 bytes, from `derive_noise_key` where words must be bound to the data. purpose: what they are for: a
    mechanism's fingerprint, say, so that two mechanisms over the same records get independent words.
    identities: n names. Returns (n,) uint64.
    """
    message = len(purpose).to_bytes(8, "little") + purpose + identities.space
    return keyed_blocks(keyed_hash(key, b"labeldp words", message), identities.blocks)[:, 0].copy()


def labelled_words(key: bytes, purpose: bytes, identities: Identities, labels: np.ndarray) -> np.ndarray:
    """One uniform 64-bit word per record and label: that of a record whose label changed is independent.

    AES-256 under a second key of what `words` is the first half of, with the label's bits added modulo 2: the CBC-MAC
    of two blocks, a pseudorandom function of messages of one length (Bellare, Kilian, Rogaway 2000).

    labels: (n,) float64. The rest, and the result, as for `words`.
    """
    message = len(purpose).to_bytes(8, "little") + purpose + identities.space
    blocks = keyed_blocks(keyed_hash(key, b"labeldp name", message), identities.blocks).copy()
    # Adding zero makes -0.0 and 0.0 one label.
    blocks[:, 0] ^= (np.asarray(labels, np.float64) + 0.0).view(np.uint64)
    return keyed_blocks(keyed_hash(key, b"labeldp label", message), blocks)[:, 0].copy()
