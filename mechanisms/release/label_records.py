"""Records of a private column with a usable label, and what a pass over them sums, with raw sums of the digest.

The secret key has 32 bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..noise.input_digest import RawSums, add_sums, digest_sums
from ..noise.keyed_words import Identities
from .label_column import LabelColumn


@dataclass(frozen=True, eq=False)
class LabelRecords:
    """Records with a usable label, of which labels are counted and for which labels are drawn.

    Attributes:
      column: The private column.
      values: Labels as read, shape (n,), finite float64.
      identities: Identities of the n records.
      centers: Centers as indices into the domain, shape (n,), integers; None for labels that are used without a center.
      unusable: Number of further records, without a usable label.
      missing_centers: Number of centers that are missing or infinite.
    """

    column: LabelColumn
    values: np.ndarray = field(repr=False)
    identities: Identities
    centers: np.ndarray | None = field(default=None, repr=False)
    unusable: int = 0
    missing_centers: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def keep(self, mask: np.ndarray | slice) -> LabelRecords:
        """Selects records of a mask, (n,) bool, or a slice; the numbers of others and of missing centers stay."""
        return dataclasses.replace(
            self,
            values=self.values[mask],
            identities=self.identities.keep(mask),
            centers=None if self.centers is None else self.centers[mask],
        )

    def indices(self, secret: bytes) -> np.ndarray:
        """Labels as indices into the domain, shape (n,), rounded as the column says."""
        return self.column.indices(self.values, self.identities, secret)


def label_sums(records: LabelRecords, secret: bytes) -> RawSums:
    """Computes the raw sums of the input digest over labels, and centers if there are any."""
    column, centers = records.column, None
    if records.centers is not None and column.center is not None:
        centers = column.center, records.centers
    return digest_sums(secret, column.name, records.identities, records.values, centers)


# Sums of a pass are below 2^53 records times 2^44.
_SUM_BYTES = 16


@dataclass(frozen=True, eq=False)
class PassSums:
    """Raw, unprotected sums of one pass over some records. They must not leave the job.

    Attributes:
      sums: Sums of the pass, int64, or integers of any size as one row of objects; of a histogram the records of each
        label of the domain, or with a center of each cell of residuals.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      digest: Raw sums of the input digest over the records with a usable label.
      places: Raw sums of a digest of where these records are counted.
      left_out: Number of records that were left out because their units have too many; public.
      missing_centers: Number of records with a usable label whose center is missing or infinite; public.
      several: Number of records that are known to have several labels; public.
    """

    sums: np.ndarray = field(repr=False)
    records: int
    unusable: int
    digest: RawSums
    places: RawSums = field(default_factory=lambda: add_sums([]))
    left_out: int = 0
    missing_centers: int = 0
    several: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """State of a fixed size: runners show the sizes of elements, and that of an integer depends on its value."""
        if self.sums.dtype != object:
            return vars(self)
        return {**vars(self), "sums": b"".join(each.to_bytes(_SUM_BYTES, "little", signed=True) for each in self.sums)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["sums"], bytes):
            octets = state["sums"]
            parts = [octets[start : start + _SUM_BYTES] for start in range(0, len(octets), _SUM_BYTES)]
            sums = np.array([int.from_bytes(part, "little", signed=True) for part in parts], object)
            state = {**state, "sums": sums}
        vars(self).update(state)


def add_passes(parts: Iterable[PassSums]) -> PassSums | None:
    """Adds sums of one pass over disjoint sets of records; None if there are none."""
    parts = list(parts)
    if not parts:
        return None
    return PassSums(
        np.add.reduce([part.sums for part in parts]),
        sum(part.records for part in parts),
        sum(part.unusable for part in parts),
        add_sums(part.digest for part in parts),
        add_sums(part.places for part in parts),
        sum(part.left_out for part in parts),
        sum(part.missing_centers for part in parts),
        sum(part.several for part in parts),
    )
