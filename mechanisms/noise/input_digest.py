"""Keyed digest of the input: distinguishes inputs, adds up over batches and reveals nothing about a label.

Construction: hash, then apply a pseudorandom function (Carter and Wegman 1981, "New Hash Functions and Their Use in
Authentication and Set Equality"). The hash is multilinear and universal, with random access to its key, so records
may come in any order and in any batches.

`digest_sums` has 4 lanes. For the record of identity i whose label has the 64 bits high * 2^32 + low, lane l is

    r[i, l] * low + s[i, l] * (high + 1)  mod 2^64,     (r[i, l], s[i, l]) = AES-256(key of l and context; i).

The context is the name of the label column and the namespace of the identity, that is, its kind (file and row, integer
id or text id) with the name of the file or of the id column. AES encrypts the row or the id. Lanes are summed over
records modulo 2^64.

*Two different inputs that are chosen independently of the secret key have equal sums with a probability of at most
2^-128*, for uniform independent r and s. Proof: count a record that is absent from an input as low = high + 1 = 0. The
inputs differ in some record i, so its low or its high + 1 differs, by some d with 0 < |d| <= 2^32. Assume that low
differs; the other case is the same with s in place of r. Given all other r and s, lane l of the two inputs is equal
exactly if r[i, l] d = c mod 2^64 for some c. The largest power of two that divides d is 2^t with t <= 32, so at most
2^t of the 2^64 values of r[i, l] solve the equation: a probability of at most 2^-32. The four lanes are independent. In
practice AES, under a separate key for each lane and context, computes r and s. This adds to the probability at most the
advantage of an attacker against AES and BLAKE2b, and n^2 / 2^129 for n records under one key, because AES never
encrypts two identities to the same block. Two label columns, two id columns, and ids of two kinds have different
contexts, and so independent r and s: their sums are equal with a probability of at most 2^-128, even if all values are
equal. (If they have no record, all sums are 0; the request, below, still separates label columns.)

With a center column (see `mechanisms/center`), lane l of a record also has the term t[i, l] (j + 1) for the index j of
its center on the label grid, j < 2^32, where t[i, l] is one half of AES-256(key of the pair of lanes, both columns and
the namespace; i). An absent record has j + 1 = 0. The proof holds as it stands, with t as a third case: two inputs
that differ in a label or in a center have equal sums with a probability of at most 2^-128. So whatever changes, all
noise is fresh: the released label is a function of label, center and noise.

The sums themselves must never leave the job, because they are linear. The sums of two runs that differ in one label
differ by r d + s e, which has as many trailing zero bits as d and e have in common. From runs over known labels, r and
s can be computed by solving equations, and from r and s unknown labels. Only `input_digest` is published:
BLAKE2b(secret; sums, request), where the request holds the epsilons and all fields of `NoiseRequest`. This is what the
noise is bound to as well, so a digest shows whether two inputs of *one request* are equal and nothing else; and anyone
who sees their releases sees that anyway, because they have the same noise. Digests of different requests are
independent random strings, also over equal columns. So inputs that are chosen with knowledge of all earlier digests are
as good as chosen independently of the secret key, and among q inputs some two have the same digest with a probability
of at most q^2 / 2^129.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..core.budget import BudgetSplit
from .keyed_words import Identities, NoiseRequest, encode_parts, keyed_blocks, keyed_hash

LANES = 4
"""Number of independent 64-bit sums in a digest."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class RawSums:
    """Raw sums of the input digest over some records. They are secret: only their `input_digest` may be published.

    The `repr` does not show them, because runners log elements that flow between stages. `lanes` has shape (4,),
    uint64.
    """

    lanes: np.ndarray = field(repr=False)

    def to_bytes(self) -> bytes:
        """The sums as bytes, which noise is bound to; secret as they are."""
        return self.lanes.astype("<u8").tobytes()


def digest_sums(
    secret: bytes,
    column: str,
    identities: Identities,
    labels: np.ndarray,
    centers: tuple[str, np.ndarray] | None = None,
) -> RawSums:
    """Computes the sums of some records.

    Labels, shape (n,), float64, are as read, before clamping, so that every change of a label is detected. `centers` is
    the name of the center column, and the centers as indices on the label grid, shape (n,), integers in [0, 2^32 - 1);
    None for labels without a center. The secret key has 32 bytes.
    """
    # Adding zero turns -0.0 into 0.0, so that they are the same label.
    bits = (np.asarray(labels, np.float64) + 0.0).view(np.uint64)
    low, high = bits & _LOW, (bits >> _HALF) + np.uint64(1)
    parts = np.empty((2, LANES), np.uint64)
    for lane in range(LANES):
        message = encode_parts(bytes([lane]), column, identities.space)
        key = keyed_hash(secret, b"labeldp lane", message)
        r, s = keyed_blocks(key, identities.blocks).T
        parts[:, lane] = low @ r, high @ s
    sums = parts.sum(axis=0, dtype=np.uint64)
    if centers is not None:
        center, indices = centers
        present = np.asarray(indices, np.uint64) + np.uint64(1)
        for lane in range(0, LANES, 2):
            message = encode_parts(bytes([lane]), column, center, identities.space)
            key = keyed_hash(secret, b"labeldp center", message)
            sums[lane : lane + 2] += present @ keyed_blocks(key, identities.blocks)
    return RawSums(sums)


def add_sums(parts: Iterable[RawSums]) -> RawSums:
    """Adds the sums of disjoint sets of records, under one secret key and one label column."""
    lanes = [np.zeros(LANES, np.uint64), *(part.lanes for part in parts)]
    return RawSums(np.asarray(np.sum(lanes, axis=0, dtype=np.uint64)))


def input_digest(secret: bytes, sums: RawSums, request: NoiseRequest, budget: BudgetSplit) -> int:
    """Computes the digest that may be published: BLAKE2b(secret; sums, request), indistinguishable from random bits.

    It is an integer in [0, 2^256). The secret key (32 bytes), the label column and the center column are those of the
    sums, which are over all records.
    """
    message = encode_parts(sums.to_bytes(), request.encode(budget))
    return int.from_bytes(keyed_hash(secret, b"labeldp input", message), "big")
