"""Release of a center of classes: counts of the classes, class sums, and counts of cells, each with exact noise.

Raw sums must not be shown before noise is added. The secret key has 32 bytes. Every noise key is bound to the labels of
all records, by the raw sums of their digest, to the places in which records are counted, and to the request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from ..center.cell_partition import LEAST_CELLS
from ..center.class_center import (
    ClassBudget,
    ClassCellDesign,
    ClassCenter,
    ReleasedClassCells,
    cell_size,
    noised_class_counts,
    split_class_budget,
)
from ..center.class_logit import LinearClasses, LogitDesign, class_sums, noised_class_sums
from ..center.feature_rows import MappedColumns
from ..core.budget import MIN_EPSILON, BudgetSplit, remaining_epsilon
from ..core.randomizer import Randomizer
from ..noise.input_digest import RawSums, add_sums, digest_sums
from ..noise.keyed_words import keyed_hash
from .bound_noise import NoiseBinding, make_binding
from .center_release import MomentSummary, row_sums
from .label_column import LabelColumn
from .label_records import LabelRecords, LabelSummary, label_sums
from .prior_release import RefusedRelease

DRAWN_BY_CENTER = "class_center"
"""Name of the mechanism of classes that are drawn from the probabilities of their center."""

UNUSED = BudgetSplit(0.0, MIN_EPSILON)
"""Budget of prior and labels beside such a center: labels are not looked at again."""


@dataclass(frozen=True, eq=False)
class ClassCounts(NoiseBinding):
    """Released counts of the classes, shape (K,), with the binding of the noise, and the budget of the whole center."""

    counts: np.ndarray = field(kw_only=True)
    parts: ClassBudget = field(kw_only=True)


def class_budget(epsilon: float) -> ClassBudget:
    """Parts of the budget of a record in a release whose classes are drawn from a center."""
    return split_class_budget(remaining_epsilon(epsilon, MIN_EPSILON))


def release_class_counts(summary: LabelSummary, column: LabelColumn, epsilon: float, secret: bytes) -> ClassCounts:
    """Releases the counts of the classes of a raw summary of the whole input; `epsilon` is that of a record.

    Raises RefusedRelease if there are too few records.
    """
    parts = class_budget(epsilon)
    classes = len(column.domain)
    if summary.records < LEAST_CELLS * cell_size(np.full(classes, 1 / classes), parts.sums + parts.cells):
        # Records and epsilon are public: whatever the labels are, their center would know the shares alone.
        raise RefusedRelease(
            f"{summary.records:,} records are too few for a center of {classes} classes at this epsilon: raise "
            "epsilon, or leave out the center (center none), for randomized response"
        )
    binding = bind_classes(summary, column, parts, secret)
    key = class_counts_key(binding, secret)
    (counts,) = noised_class_counts(summary.counts[None, :], parts.counts, key)
    return ClassCounts(**vars(binding), counts=counts, parts=parts)


def bind_classes(summary: LabelSummary, column: LabelColumn, parts: ClassBudget, secret: bytes) -> NoiseBinding:
    """Binds the noise of a release whose classes are drawn from a center: to the budget that is spent on its parts.

    All noise depends on epsilon by these parts alone, which round it down to less than 1e-7: two epsilons with the same
    parts are one request, with one digest.
    """
    return make_binding(summary, column, UNUSED, secret, astuple(parts))


def class_counts_key(binding: NoiseBinding, secret: bytes) -> bytes:
    """Derives the noise key of the counts of the classes, 32 bytes, from the binding of `bind_classes`."""
    return keyed_hash(binding.noise_key(secret), b"labeldp classes", b"class counts")


def sum_class_rows(records: LabelRecords, rows: np.ndarray, secret: bytes, left_out: int = 0) -> MomentSummary:
    """Sums rows over the records of each class; rows have shape (n, m + 1), int64.

    The sums of all classes of one coordinate follow each other.
    """
    column = records.column
    sums = class_sums(rows, records.indices(secret), len(column.domain))
    digest, rows_digest = label_sums(records, secret), row_sums(secret, column.name, records.identities, rows)
    return MomentSummary(tuple(sums.ravel().tolist()), len(records), records.unusable, digest, rows_digest, left_out)


def release_class_sums(
    summary: MomentSummary, column: LabelColumn, design: LogitDesign, secret: bytes
) -> LinearClasses:
    """Releases the linear part of a center from a raw summary of the whole input.

    It spends the epsilon of the design.
    """
    if not design.epsilon:
        return LinearClasses.fit(design, ())
    sums = np.array(summary.sums, object).reshape(design.map.size, design.classes)
    key = class_sums_key(summary, column, design, secret)
    return LinearClasses.fit(design, noised_class_sums(sums, design.map.norm, design.epsilon, key))


def class_sums_key(summary: MomentSummary, column: LabelColumn, design: LogitDesign, secret: bytes) -> bytes:
    """Derives the noise key of class sums: 32 bytes; it must not be shown.

    As in `moments_key`, it is bound to the labels and the rows of all records, to the request and to the raw sums.
    """
    bound_to: list[Any] = [
        summary.digest.to_bytes().hex(), summary.rows.to_bytes().hex(), list(summary.sums), _request(column),
        design.epsilon.hex(), design.map.norm,
    ]  # fmt: skip
    return keyed_hash(secret, b"labeldp classes", json.dumps(["class sums", *bound_to]).encode())


@dataclass(frozen=True, eq=False)
class ClassCellSummary:
    """Raw, unprotected counts of some records. It must not leave the job; its size is the same for all labels.

    Attributes:
      counts: Counts of the classes in each cell, shape (c, K), int64.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      digest: Raw sums of the input digest over the records with a usable label.
      places: Raw sums of a digest of their cells.
      left_out: Number of records that were left out because their units have too many; public.
    """

    counts: np.ndarray = field(repr=False)
    records: int
    unusable: int
    digest: RawSums
    places: RawSums
    left_out: int = 0


def add_class_cells(parts: Iterable[ClassCellSummary]) -> ClassCellSummary | None:
    """Adds summaries of disjoint sets of records; None if there are none."""
    parts = list(parts)
    if not parts:
        return None
    return ClassCellSummary(
        np.add.reduce([part.counts for part in parts]),
        sum(part.records for part in parts),
        sum(part.unusable for part in parts),
        add_sums(part.digest for part in parts),
        add_sums(part.places for part in parts),
        sum(part.left_out for part in parts),
    )


def count_class_cells(
    records: LabelRecords,
    features: MappedColumns,
    linear: LinearClasses,
    design: ClassCellDesign,
    secret: bytes,
    left_out: int = 0,
) -> ClassCellSummary:
    """Counts the classes of records in the cells of their features."""
    column, classes = records.column, len(records.column.domain)
    rows = linear.rows(features)
    partition = design.sample.partition
    cells = partition.tree.cells(partition.codes(features, linear, rows, linear.logits(rows)))
    places = cells.astype(np.int64) * classes + records.indices(secret)
    counts = np.bincount(places, minlength=design.cells * classes).reshape(design.cells, classes)
    digest = digest_sums(secret, column.name, records.identities, cells.astype(np.float64))
    return ClassCellSummary(counts, len(records), records.unusable, label_sums(records, secret), digest, left_out)


def release_class_cells(
    summary: ClassCellSummary,
    column: LabelColumn,
    linear: LinearClasses,
    design: ClassCellDesign,
    secret: bytes,
) -> ReleasedClassCells:
    """Releases the counts of the cells of a raw summary of the whole input; it spends the epsilon of the design."""
    key = class_cells_key(summary, column, linear, design, secret)
    return ReleasedClassCells.fit(design, linear, noised_class_counts(summary.counts, design.epsilon, key))


def release_classes(
    summary: ClassCellSummary | None,
    column: LabelColumn,
    counts: ClassCounts,
    linear: LinearClasses,
    design: ClassCellDesign | None,
    secret: bytes,
) -> ClassCenter:
    """Releases the center from what was released before and the raw counts of cells, if there are any."""
    cells = None if summary is None or design is None else release_class_cells(summary, column, linear, design, secret)
    return ClassCenter(counts.parts, counts.counts, linear, cells)


def class_cells_key(
    summary: ClassCellSummary, column: LabelColumn, linear: LinearClasses, design: ClassCellDesign, secret: bytes
) -> bytes:
    """Derives the noise key of the counts of cells: 32 bytes; it must not be shown.

    It is bound to the labels and cells of all records, to the request, the released sums and the raw counts.
    """
    counts = keyed_hash(secret, b"labeldp tables", summary.counts.astype("<i8").tobytes()).hex()
    bound_to: list[Any] = [
        summary.digest.to_bytes().hex(), summary.places.to_bytes().hex(), counts, _request(column),
        design.epsilon.hex(), [list(each) for each in linear.sums],
    ]  # fmt: skip
    return keyed_hash(secret, b"labeldp classes", json.dumps(["cells", *bound_to]).encode())


def _request(column: LabelColumn) -> dict[str, Any]:
    """The request as all noise of the center is bound to it; its epsilons are those of the designs."""
    request = column.request()
    return {**request.needed, **request.given}


def center_randomizer(classes: int) -> Randomizer:
    """Randomizer of classes that are drawn from a center: the same weights for all labels, of which it says nothing."""
    weights = np.full((classes, classes), (1 << 62) // classes, np.uint64)
    weights[:, 0] += np.uint64((1 << 62) - classes * ((1 << 62) // classes))
    places = np.arange(classes, dtype=np.float64)
    return Randomizer(places, places, weights, MIN_EPSILON, DRAWN_BY_CENTER, {})
