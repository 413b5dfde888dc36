"""Keyed digest of the input: distinguishes inputs, adds up over batches and reveals nothing about a label.

Construction: hash, then apply a pseudorandom function (Carter and Wegman 1981, "New Hash Functions and Their Use in
Authentication and Set Equality"). The hash is multilinear and universal, with random access to its key, so records
may come in any order and in any batches.

`digest_sums` has 4 lanes. For the record of identity i whose label has the 64 bits high * 2^32 + low, lane l is

    r[i, l] * low + s[i, l] * (high + 1)  mod 2^64,     (r[i, l], s[i, l]) = AES-256(key of l and the file; row).

Lanes are summed over records modulo 2^64.

*Two different inputs that are chosen independently of the secret key have equal sums with a probability of at most
2^-128*, for uniform independent r and s. Proof: count a record that is absent from an input as low = high + 1 = 0.
The inputs differ in some record i, so its low or its high + 1 differs, by some d with 0 < |d| <= 2^32. Assume that low
differs; the other case is the same with s in place of r. Given all other r and s, lane l of the two inputs is equal
exactly if r[i, l] d = c mod 2^64 for some c. The largest power of two that divides d is 2^t with t <= 32, so at most
2^t of the 2^64 values of r[i, l] solve the equation: a probability of at most 2^-32. The four lanes are independent.
In practice AES, under a separate key for each lane and file, computes r and s. This adds to the probability at most the
advantage of an attacker against AES and BLAKE2b, and n^2 / 2^129 for n records under one key, because AES never
encrypts two identities to the same block.

The sums themselves must never leave the job, because they are linear. The sums of two runs that differ in one label
differ by r d + s e, which has as many trailing zero bits as d and e have in common. From runs over known labels, r and
s can be computed by solving equations, and from r and s unknown labels. Only `input_digest`, BLAKE2b(secret; sums), is
published, and the noise is bound to it. It shows whether two inputs are equal and nothing else. So inputs that are
chosen with knowledge of all earlier digests are as good as chosen independently of the secret key, and among q inputs
some two have the same digest with a probability of at most q^2 / 2^129.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .keyed_words import keyed_blocks, keyed_hash
from .record_identities import Identities

LANES = 4
"""Number of independent 64-bit sums in a digest."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class RawSums:
    """Raw sums of the input digest over some records. They are secret: only their `input_digest` may be published.

    The `repr` does not show them, because runners log elements that flow between stages.

    Attributes:
      lanes: Shape (4,), uint64.
    """

    lanes: np.ndarray = field(repr=False)


def digest_sums(secret: bytes, identities: Identities, labels: np.ndarray) -> RawSums:
    """Computes the sums of some records.

    Args:
      secret: Secret key, 32 bytes.
      identities: Identities of the n records.
      labels: Shape (n,), float64; labels as read, before clamping, so that every change of a label is detected.

    Returns:
      The sums of these records.
    """
    # Adding zero turns -0.0 into 0.0, so that they are the same label.
    bits = (np.asarray(labels, np.float64) + 0.0).view(np.uint64)
    low, high = bits & _LOW, (bits >> _HALF) + np.uint64(1)
    parts = np.empty((2, LANES), np.uint64)
    for lane in range(LANES):
        key = keyed_hash(secret, b"labeldp lane", bytes([lane]) + identities.space)
        r, s = keyed_blocks(key, identities.blocks).T
        parts[:, lane] = low @ r, high @ s
    return RawSums(parts.sum(axis=0, dtype=np.uint64))


def add_sums(parts: Iterable[RawSums]) -> RawSums:
    """Adds the sums of disjoint sets of records.

    Args:
      parts: Sums under one secret key.

    Returns:
      The sums of the union.
    """
    lanes = [np.zeros(LANES, np.uint64), *(part.lanes for part in parts)]
    return RawSums(np.sum(lanes, axis=0, dtype=np.uint64))


def input_digest(secret: bytes, sums: RawSums) -> int:
    """Computes the digest that may be published: BLAKE2b(secret; sums), indistinguishable from random bits.

    Args:
      secret: Secret key, 32 bytes, the same as for the sums.
      sums: Sums of all records.

    Returns:
      An integer in [0, 2^256).
    """
    return int.from_bytes(keyed_hash(secret, b"labeldp input", sums.lanes.astype("<u8").tobytes()), "big")
