"""The only source of randomness: keyed words for records, keyed byte streams, exact discrete Laplace.

Everything random is a function of a 32-byte key and of what it is for, so a retried bundle, a stage
recomputed for a second consumer and a whole job run again give the same bytes, and nothing can be averaged
away. Keyed BLAKE2b (RFC 7693) is the pseudorandom function throughout; the uses are kept apart by its
personalization field.

Sources: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithm 2, for
the exact discrete Laplace sampler; Clarke et al. 2003 for additive multiset hashing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

KEY_BYTES = 32
IDENTITY_BYTES = 24
DIGEST_BITS = 256

_STREAM_BLOCK = 64


def _blake2b(key: bytes, size: int, use: bytes) -> hashlib.blake2b:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    return hashlib.blake2b(key=key, digest_size=size, person=use)


def row_identities(source: str, rows: np.ndarray) -> np.ndarray:
    """The default identity of each record: its source and row number.

    source: the name of the file. rows: (n,) integers >= 0, the record's place in it.
    Returns (n, 24) bytes, different for different (source, row), and never equal to an id's identity.
    """
    tag = hashlib.blake2b(source.encode(), digest_size=16, person=b"labeldp source").digest()
    return _tagged_integers(tag, rows)


def integer_identities(ids: np.ndarray) -> np.ndarray:
    """The identity of each record that has an integer id. ids: (n,) int64. Returns (n, 24) bytes."""
    tag = hashlib.blake2b(b"", digest_size=16, person=b"labeldp int id").digest()
    return _tagged_integers(tag, ids)


def bytes_identities(ids: Sequence[bytes]) -> np.ndarray:
    """The identity of each record that has a text or binary id. Returns (n, 24) bytes."""
    blank = hashlib.blake2b(digest_size=IDENTITY_BYTES, person=b"labeldp bytes id")
    return _hash_each(blank, ids).reshape(-1, IDENTITY_BYTES)


def _tagged_integers(tag: bytes, integers: np.ndarray) -> np.ndarray:
    identities = np.empty((len(integers), IDENTITY_BYTES), np.uint8)
    identities[:, :16] = np.frombuffer(tag, np.uint8)
    identities[:, 16:] = np.ascontiguousarray(integers, "<i8").view(np.uint8).reshape(-1, 8)
    return identities


def _hash_each(blank: hashlib.blake2b, messages: Sequence[bytes]) -> np.ndarray:
    """blank's hash of every message, one after the other, as bytes. Copying a keyed state is cheaper than keying."""

    def digest(message: bytes) -> bytes:
        state = blank.copy()
        state.update(message)
        return state.digest()

    return np.frombuffer(b"".join(map(digest, messages)), np.uint8)


def _rows_as_bytes(table: np.ndarray) -> list[bytes]:
    width = table.shape[1]
    whole = table.tobytes()
    return [whole[start : start + width] for start in range(0, len(whole), width)]


def words(noise_key: bytes, fingerprint: bytes, identities: np.ndarray) -> np.ndarray:
    """One uniform 64-bit word per record: BLAKE2b(noise key; mechanism fingerprint, record identity).

    noise_key: 32 bytes, from `derive_noise_key`. fingerprint: 32 bytes, the mechanism that will use the words:
    two mechanisms over the same records get independent words. identities: (n, 24) bytes.
    Returns (n,) uint64.
    """
    messages = np.empty((len(identities), len(fingerprint) + IDENTITY_BYTES), np.uint8)
    messages[:, : len(fingerprint)] = np.frombuffer(fingerprint, np.uint8)
    messages[:, len(fingerprint) :] = identities
    return _hash_each(_blake2b(noise_key, 8, b"labeldp word"), _rows_as_bytes(messages)).view("<u8")


def multiset_digest(secret: bytes, identities: np.ndarray, labels: np.ndarray) -> int:
    """A keyed digest of labelled records: the sum modulo 2^256 of BLAKE2b(secret; identity, label).

    It depends on which records there are and on their labels, not on their order, and digests of parts add up
    (`add_digests`). Without the secret it is as good as random, so it may be published.

    secret: 32 bytes. identities: (n, 24) bytes. labels: (n,) float64, as read, not clamped: any change counts.
    Returns an integer in [0, 2^256).
    """
    messages = np.empty((len(identities), IDENTITY_BYTES + 8), np.uint8)
    messages[:, :IDENTITY_BYTES] = identities
    # Adding zero makes -0.0 and 0.0 one label.
    messages[:, IDENTITY_BYTES:] = (np.asarray(labels, "<f8") + 0.0).view(np.uint8).reshape(-1, 8)
    hashes = _hash_each(_blake2b(secret, 32, b"labeldp digest"), _rows_as_bytes(messages))
    # Limbs of 32 bits: their sums stay within 64 bits for 2^32 records.
    limbs = hashes.view("<u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
    return sum(int(limb) << (32 * place) for place, limb in enumerate(limbs)) % (1 << DIGEST_BITS)


def add_digests(digests: Sequence[int]) -> int:
    """The digest of the union of parts. Returns an integer in [0, 2^256)."""
    return sum(digests) % (1 << DIGEST_BITS)


def derive_noise_key(secret: bytes, digest: int, column: str, labels: np.ndarray, epsilons: Sequence[float]) -> bytes:
    """The key of all noise of one release, bound to the data and to what is asked of it.

    secret: 32 bytes. digest: the input's `multiset_digest`. column: the label column's name, so that two columns
    of the same values get independent noise. labels: (k,) the declared label domain. epsilons: what the prior and
    the randomizer may spend.
    Returns 32 bytes: the same for the same input and request, independent for any other.
    """
    bound_to = {
        "digest": f"{digest:064x}",
        "column": column,
        "labels": [float(label).hex() for label in labels],
        "epsilons": [float(epsilon).hex() for epsilon in epsilons],
    }
    state = _blake2b(secret, KEY_BYTES, b"labeldp noise")
    state.update(json.dumps(bound_to, sort_keys=True).encode())
    return state.digest()


class ByteStream:
    """An endless stream of uniform bytes under a key and a purpose: BLAKE2b in counter mode."""

    def __init__(self, key: bytes, purpose: bytes):
        """key: 32 bytes. purpose: what the stream is for; streams for different purposes are independent."""
        self._blank = _blake2b(key, _STREAM_BLOCK, b"labeldp stream")
        self._blank.update(len(purpose).to_bytes(8, "little") + purpose)
        self._counter = 0
        self._rest = b""

    def take(self, count: int) -> bytes:
        """The next count bytes."""
        blocks = -(-(count - len(self._rest)) // _STREAM_BLOCK)
        if blocks > 0:
            counters = (c.to_bytes(8, "little") for c in range(self._counter, self._counter + blocks))
            self._rest += _hash_each(self._blank, list(counters)).tobytes()
            self._counter += blocks
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), exactly: rejection on whole bytes. bound >= 1."""
        bits = (bound - 1).bit_length()
        size = -(-bits // 8)
        while True:
            candidate = int.from_bytes(self.take(size), "little") & ((1 << bits) - 1)
            if candidate < bound:
                return candidate


def _bernoulli_exp(stream: ByteStream, numerator: int, denominator: int) -> bool:
    """True with probability exp(-numerator/denominator), exactly, for a fraction in [0, 1].

    Canonne, Kamath, Steinke 2020, Algorithm 1.
    """
    trials = 1
    while stream.below(denominator * trials) < numerator:
        trials += 1
    return trials % 2 == 1


def discrete_laplace(stream: ByteStream, scale: Fraction, count: int) -> np.ndarray:
    """Exact draws of the discrete Laplace: P(z) proportional to exp(-|z| / scale) on the integers.

    Integers only, no float: Canonne, Kamath, Steinke 2020, Algorithm 2.

    scale: > 0, taken as the exact rational that it is. count: how many draws.
    Returns (count,) int64. Raises ValueError for a scale that is not positive.
    """
    if scale <= 0:
        raise ValueError(f"scale must be positive, not {scale}")
    t, s = scale.numerator, scale.denominator
    draws = []
    while len(draws) < count:
        remainder = stream.below(t)
        if not _bernoulli_exp(stream, remainder, t):
            continue
        quotient = 0
        while _bernoulli_exp(stream, 1, 1):
            quotient += 1
        magnitude = (remainder + t * quotient) // s
        negative = stream.below(2) == 1
        if negative and magnitude == 0:
            continue
        draws.append(-magnitude if negative else magnitude)
    return np.array(draws, np.int64).reshape(count)
