"""Label counts and raw sums of the input digest of some records, and their sums over all records.

The secret key has 32 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..noise.input_digest import RawSums, add_sums, digest_sums
from ..noise.keyed_words import Identities
from .label_column import LabelColumn


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """Raw, unprotected summary of some records. It must not leave the job.

    Attributes:
      counts: Records per label of the domain, shape (k,), int64; with a center, per cell of residuals; with groups,
        group after group.
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


def count_labels(
    values: np.ndarray,
    identities: Identities,
    column: LabelColumn,
    secret: bytes,
    centers: np.ndarray | None = None,
    unusable: int = 0,
    missing_centers: int = 0,
    several: int = 0,
) -> LabelSummary:
    """Summarizes some records: counts and digest sums.

    Labels have shape (n,), finite float64. Centers are indices into the domain, shape (n,), integers, or with groups
    indices of pairs of center and group (`LabelColumn.split`); None without a center column. `unusable` is the number
    of further records, without a usable label, and `several` that of those among them that are known to have several
    labels. `missing_centers` counts centers that are missing or infinite.
    """
    indices = column.indices(values, identities, secret)
    if centers is None or column.center is None:
        counts = np.bincount(indices, minlength=len(column.domain))
        return LabelSummary(counts, unusable, digest_sums(secret, column.name, identities, values), several=several)
    counts = column.count(indices, centers)
    sums = digest_sums(secret, column.name, identities, values, (column.center, centers))
    return LabelSummary(counts, unusable, sums, missing_centers, several)


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
