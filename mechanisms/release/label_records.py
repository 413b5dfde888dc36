"""Records of a private column with a usable label, and what is counted of them: labels, and raw sums of the digest.

The secret key has 32 bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

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


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """Raw, unprotected summary of some records. It must not leave the job.

    Attributes:
      counts: Records per label of the domain, shape (k,), int64; with a center, per cell of residuals.
      unusable: Number of records without a usable label.
      sums: Raw sums of the input digest over the records with a usable label.
      missing_centers: Number of records with a usable label whose center is missing or infinite; public.
      several: Number of records that are known to have several labels; public.
      left_out: Number of records that were left out because their units have too many; public.
    """

    counts: np.ndarray = field(repr=False)
    unusable: int
    sums: RawSums
    missing_centers: int = 0
    several: int = 0
    left_out: int = 0

    @property
    def records(self) -> int:
        """Number of records with a usable label."""
        return int(self.counts.sum())


def count_labels(records: LabelRecords, secret: bytes) -> LabelSummary:
    """Summarizes some records: counts and digest sums."""
    column, indices = records.column, records.indices(secret)
    if records.centers is None:
        counts = np.bincount(indices, minlength=len(column.domain))
    else:
        counts = column.residuals.count(indices - records.centers)
    return LabelSummary(counts, records.unusable, label_sums(records, secret), records.missing_centers)


def add_summaries(cells: int, parts: Iterable[LabelSummary]) -> LabelSummary:
    """Adds summaries of disjoint sets of records: counts, unusable records, and digest sums modulo 2^64.

    `cells` is the number of cells of the histogram, also if there are no summaries.
    """
    parts = [LabelSummary(np.zeros(cells, np.int64), 0, add_sums([])), *parts]
    return LabelSummary(
        np.sum([part.counts for part in parts], axis=0),
        sum(part.unusable for part in parts),
        add_sums(part.sums for part in parts),
        sum(part.missing_centers for part in parts),
        sum(part.several for part in parts),
        sum(part.left_out for part in parts),
    )
