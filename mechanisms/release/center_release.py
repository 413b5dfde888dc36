"""Release of a center: the sample of features that it is designed for, raw sums of labels, and the noise of these.

First come moment sums for a linear center, then tables of its residuals for one of cells. Sample and designs are
public. Raw sums must not be shown before noise is added. The secret key has 32 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..center.cell_center import CellCenter, CellDesign, CellTables, noised_cells
from ..center.feature_rows import Categories, Columns, MappedColumns
from ..center.linear_center import MOST_SAMPLE, CenterDesign, LinearCenter, moment_sums, noised_sums
from ..noise.input_digest import RawSums, add_sums, digest_sums
from ..noise.keyed_words import Identities, integer_identities, keyed_hash, words
from .label_column import LabelColumn
from .label_records import LabelRecords, label_sums

# Sums are below 2^53 records times 2^44.
_SUM_BYTES = 16


@dataclass(frozen=True)
class CenterFeatures:
    """Features of a center; text columns are categories.

    Without `id_column`, the column of unique ids, records are identified by file and row. `cells` tells whether the
    linear center may get cells.
    """

    names: tuple[str, ...]
    id_column: str | None = None
    cells: bool = False

    @property
    def columns(self) -> list[str]:
        """Names of all columns to read."""
        return list(dict.fromkeys([*self.names, *([self.id_column] if self.id_column else [])]))


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Sample of some records: those with the smallest words.

    Attributes:
      words: Words of the sampled records, shape (s,), uint64, ascending.
      columns: Their features, in the same order.
      records: Number of records that were sampled from.
    """

    words: np.ndarray
    columns: Columns
    records: int


def sample_words(secret: bytes, identities: Identities) -> np.ndarray:
    """Draws the words by which records are sampled, shape (n,), uint64: functions of identities and secret alone."""
    return words(secret, b"center sample", identities)


def smallest(drawn: np.ndarray, columns: Columns, records: int) -> FeatureSample:
    """Keeps at most `MOST_SAMPLE` records with the smallest words, in the order of their words.

    `drawn` is the word of each record, shape (n,), uint64; `records` is the number of records that they were sampled
    from.
    """
    order = np.argsort(drawn, kind="stable")[:MOST_SAMPLE]
    kept: dict[str, np.ndarray | Categories] = {}
    for name, column in columns.items():
        kept[name] = _picked(column, order) if isinstance(column, Categories) else column[order]
    return FeatureSample(drawn[order], kept, records)


def _picked(column: Categories, order: np.ndarray) -> Categories:
    """Categories of some records, without the values that none of them has: they may be far more than the records."""
    codes = column.codes[order]
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(column.values)))
    # The code of a missing value, -1, is the last place.
    places = np.full(len(column.values) + 1, -1)
    places[used] = np.arange(len(used))
    return Categories(places[codes], tuple(column.values[code] for code in used))


@dataclass(frozen=True, eq=False)
class MomentSummary:
    """Raw, unprotected sums over some records. It must not leave the job.

    Attributes:
      sums: Sums of rows times labels, exact integers; empty for no record.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      digest: Raw sums of the input digest over the records with a usable label.
      rows: Raw sums of a digest of their rows.
      left_out: Number of records that were left out because their units have too many; public.
    """

    sums: tuple[int, ...] = field(repr=False)
    records: int
    unusable: int
    digest: RawSums
    rows: RawSums
    left_out: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """State of a fixed size: runners show the sizes of elements, and that of an integer depends on its value."""
        sums = b"".join(each.to_bytes(_SUM_BYTES, "little", signed=True) for each in self.sums)
        return {**vars(self), "sums": sums}

    def __setstate__(self, state: dict[str, Any]) -> None:
        octets = state["sums"]
        parts = [octets[start : start + _SUM_BYTES] for start in range(0, len(octets), _SUM_BYTES)]
        vars(self).update(state, sums=tuple(int.from_bytes(part, "little", signed=True) for part in parts))


def add_moments(parts: Iterable[MomentSummary]) -> MomentSummary:
    """Adds summaries of disjoint sets of records."""
    parts = list(parts)
    present = [part.sums for part in parts if part.sums]
    return MomentSummary(
        tuple(sum(each) for each in zip(*present, strict=True)),
        sum(part.records for part in parts),
        sum(part.unusable for part in parts),
        add_sums(part.digest for part in parts),
        add_sums(part.rows for part in parts),
        sum(part.left_out for part in parts),
    )


def sum_moments(records: LabelRecords, rows: np.ndarray, secret: bytes, left_out: int = 0) -> MomentSummary:
    """Sums over records, without centers, and their rows, shape (n, m + 1), int64."""
    column = records.column
    sums = moment_sums(rows, records.indices(secret), len(column.domain))
    digest, row_digest = label_sums(records, secret), row_sums(secret, column.name, records.identities, rows)
    return MomentSummary(tuple(sums), len(records), records.unusable, digest, row_digest, left_out)


def row_sums(secret: bytes, name: str, identities: Identities, rows: np.ndarray) -> RawSums:
    """Raw sums of a digest of rows, in the place of labels and centers.

    Each row is reduced by two linear hashes modulo 2^64 under secret multipliers, of which the upper 53 and 31 bits are
    taken. Rows that differ have entries that differ by less than 2^26, so a hash is equal with a probability of at most
    2^-38 and 2^-30: both with 2^-68, before the digest adds its own 2^-128.
    """
    drawn = words(secret, b"center rows", integer_identities("component", np.arange(2 * rows.shape[1])))
    first, second = (np.einsum("ij,j->i", rows.view(np.uint64), multipliers) for multipliers in np.split(drawn, 2))
    upper, lower = (first >> np.uint64(11)).astype(np.float64), (second >> np.uint64(33)).astype(np.int64)
    return digest_sums(secret, name, identities, upper, ("rows of the center", lower))


def moments_key(summary: MomentSummary, column: LabelColumn, design: CenterDesign, secret: bytes) -> bytes:
    """Derives the noise key of moment sums: 32 bytes, from a raw summary of the whole input and a secret of 32 bytes.

    It must not be shown: it is a function of raw sums.

    It is bound to the labels and the rows of all records, to the request and to the raw sums themselves. If features
    change and labels do not, two releases with the same noise would show the exact difference of their sums; and if the
    sums stay, equal releases would show that: a change of features leaves the sums as they are if the label of the
    record is the middle one. As a pseudorandom function of rows and sums, the noise is independent for any two inputs.
    """
    bound_to = [
        summary.digest.to_bytes().hex(), summary.rows.to_bytes().hex(), list(summary.sums),
        *column.request().needed.values(), design.epsilon.hex(), design.map.norm, *_given(column),
    ]  # fmt: skip
    return keyed_hash(secret, b"labeldp moments", json.dumps(bound_to).encode())


def _given(column: LabelColumn) -> list[Any]:
    """Further fields of the request that the noise of a center is bound to.

    Sums are of labels and features: the column of centers gets its name after them.
    """
    given = column.request().given
    return [value if name == "unit" else [name, value] for name, value in given.items() if name != "center"]


def release_center(summary: MomentSummary, column: LabelColumn, design: CenterDesign, secret: bytes) -> LinearCenter:
    """Releases the linear center of a raw summary of the whole input; it spends the epsilon of the design."""
    labels, sums = len(column.domain), ()
    if design.epsilon:
        noise_key = moments_key(summary, column, design, secret)
        sums = noised_sums(list(summary.sums), design.map.norm, labels, design.epsilon, noise_key)
    return LinearCenter.fit(design, labels, sums)


@dataclass(frozen=True, eq=False)
class CellSummary:
    """Raw, unprotected tables of some records. It must not leave the job; its size is the same for all labels.

    Attributes:
      tables: Residuals around the linear center by cell.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      digest: Raw sums of the input digest over the records with a usable label.
      places: Raw sums of a digest of their cells and linear centers.
      left_out: Number of records that were left out because their units have too many; public.
    """

    tables: CellTables = field(repr=False)
    records: int
    unusable: int
    digest: RawSums
    places: RawSums
    left_out: int = 0


def add_cells(parts: Iterable[CellSummary]) -> CellSummary | None:
    """Adds summaries of disjoint sets of records; None if there are none."""
    parts = list(parts)
    if not parts:
        return None
    tables = CellTables(
        np.add.reduce([part.tables.counts for part in parts]), np.add.reduce([part.tables.sums for part in parts])
    )
    return CellSummary(
        tables,
        sum(part.records for part in parts),
        sum(part.unusable for part in parts),
        add_sums(part.digest for part in parts),
        add_sums(part.places for part in parts),
        sum(part.left_out for part in parts),
    )


def sum_cells(
    records: LabelRecords,
    features: MappedColumns,
    center: LinearCenter,
    design: CellDesign,
    secret: bytes,
    left_out: int = 0,
) -> CellSummary:
    """Tables of records, without centers, and their features."""
    column = records.column
    centers = center.indices(features)
    cells = design.partition.tree.cells(design.partition.codes(features, center, centers))
    steps = records.indices(secret).astype(np.int64) - centers
    tables = CellTables.of_records(cells, len(design.partition.tree.leaves), steps, column.residuals)
    places = digest_sums(
        secret, column.name, records.identities, cells.astype(np.float64), ("cells of the center", centers)
    )
    return CellSummary(tables, len(records), records.unusable, label_sums(records, secret), places, left_out)


def cells_key(
    summary: CellSummary, column: LabelColumn, center: LinearCenter, design: CellDesign, secret: bytes
) -> bytes:
    """Derives the noise key of the tables of the whole input: 32 bytes; it must not be shown.

    As in `moments_key`, it is bound to the labels and cells of all records, to the request and to the raw tables.
    """
    tables = summary.tables.counts.astype("<i8").tobytes() + summary.tables.sums.astype("<i8").tobytes()
    bound_to = [
        summary.digest.to_bytes().hex(), summary.places.to_bytes().hex(),
        keyed_hash(secret, b"labeldp tables", tables).hex(), *column.request().needed.values(),
        list(center.coefficients), design.histogram.hex(), design.epsilon.hex(), *_given(column),
    ]  # fmt: skip
    return keyed_hash(secret, b"labeldp cells", json.dumps(bound_to).encode())


def release_cells(
    summary: CellSummary, column: LabelColumn, center: LinearCenter, design: CellDesign, secret: bytes
) -> CellCenter:
    """Releases the cells of a raw summary of the whole input; it spends the epsilons of the design."""
    key = cells_key(summary, column, center, design, secret)
    keys = (keyed_hash(key, b"labeldp use", use) for use in (b"histogram", b"sums"))
    return CellCenter.of(center, noised_cells(design, center, summary.tables, *keys))
