"""A keyed digest of labelled records: it tells two inputs apart, adds up over parts, and shows nothing of a label.

Hash, then encrypt (Carter and Wegman 1981, "New Hash Functions and Their Use in Authentication and Set Equality"): a
multilinear universal hash with random access to its key, so that records come in any order and any batches, and a
pseudorandom function of the hash.

`digest_sums` has 4 lanes. Lane l of a record named i whose label's 64 bits are high * 2^32 + low is

    r[i, l] * low + s[i, l] * (high + 1)  mod 2^64,     (r[i, l], s[i, l]) = AES-256(key of l and the file; row),

and lanes are summed over records modulo 2^64.

*Two different inputs that are fixed independently of the secret have the same sums with a probability of at most
2^-128*, for uniform independent r and s. Proof: a record that is not there has low = high + 1 = 0. Some record i
differs; so does its low or its high + 1, by d with 0 < |d| <= 2^32. Let d be the difference of low; for the other,
put s for r. Given all other r and s, lane l of the two inputs is equal exactly when r[i, l] d = c mod 2^64, for some
c. The largest power of two that divides d is 2^t with t <= 32; so at most 2^t of the 2^64 values of r[i, l] solve
that: a probability of at most 2^-32. The four lanes are independent. That AES, under a key of its own per lane and
file, makes r and s changes the probability by what it takes to break AES and BLAKE2b, and by n^2 / 2^129 for n
records under one key, since AES never gives two names one block.

The sums themselves must never leave the job. They are linear: those of two runs of which one label differs are off by
r d + s e, which ends in as many zero bits as d and e have in common; and with some runs over labels that are known, r
and s follow by solving equations, and from them labels that are not known. What is published, and what noise is bound
to, is `input_digest`, BLAKE2b(secret; sums): of that one sees whether two inputs are the same, and nothing else. So
even inputs that are chosen with all former digests in view are as good as fixed independently of the secret, and
among q inputs any two have one digest with a probability of at most q^2 / 2^129.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .keyed_words import keyed_blocks, keyed_hash
from .record_identities import Identities

LANES = 4


_LOW = np.uint64(0xFFFFFFFF)


_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class RawSums:
    """Sums of some records, to be published as `input_digest` only. lanes: (4,) uint64.

    Their text does not show them: runners log what flows between stages.
    """

    lanes: np.ndarray = field(repr=False)


def digest_sums(secret: bytes, identities: Identities, labels: np.ndarray) -> RawSums:
    """The sums of some records.

    secret: 32 bytes. identities: n names. labels: (n,) float64, as read, not clamped: any change counts.
    """
    # Adding zero makes -0.0 and 0.0 one label.
    bits = (np.asarray(labels, np.float64) + 0.0).view(np.uint64)
    low, high = bits & _LOW, (bits >> _HALF) + np.uint64(1)
    parts = np.empty((2, LANES), np.uint64)
    for lane in range(LANES):
        key = keyed_hash(secret, b"labeldp lane", bytes([lane]) + identities.space)
        r, s = keyed_blocks(key, identities.blocks).T
        parts[:, lane] = low @ r, high @ s
    return RawSums(parts.sum(axis=0, dtype=np.uint64))


def add_sums(parts: Iterable[RawSums]) -> RawSums:
    """The sums of the union of disjoint parts."""
    lanes = [np.zeros(LANES, np.uint64), *(part.lanes for part in parts)]
    return RawSums(np.sum(lanes, axis=0, dtype=np.uint64))


def input_digest(secret: bytes, sums: RawSums) -> int:
    """What may be published: BLAKE2b(secret; sums), an integer in [0, 2^256). Without the secret as good as random.

    secret: 32 bytes, those of the sums. sums: of all records.
    """
    return int.from_bytes(keyed_hash(secret, b"labeldp input", sums.lanes.astype("<u8").tobytes()), "big")
