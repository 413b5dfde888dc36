"""Passes of a center over the labels of all records: each one releases sums with exact noise, and the center follows.

A pass is one look at the labels. It is designed from public facts: a sample of features, and what passes before it have
released. It sums records, in parts that are added, and releases the sums under label DP. `center_passes` says which
passes make which kind of center. Raw sums must not be shown before noise is added. The secret key has 32 bytes.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..center.cell_center import CellCenter, CellDesign, CellTables, design_cells, noised_cells
from ..center.cell_partition import LEAST_CELLS
from ..center.class_center import (
    ClassCellDesign,
    ClassCenter,
    ReleasedClassCells,
    cell_size,
    center_pays,
    design_class_cells,
    design_classes,
    noised_class_counts,
    released_shares,
    split_class_budget,
)
from ..center.class_logit import LinearClasses, LogitDesign, class_sums, noised_class_sums
from ..center.feature_rows import MappedColumns, RowMap
from ..center.linear_center import CenterDesign, LinearCenter, design_center, moment_sums, noised_sums
from ..noise.input_digest import RawSums, add_sums, digest_sums
from ..noise.keyed_words import Identities, integer_identities, keyed_hash, words
from .feature_sample import CenterFeatures, FeatureSample
from .label_column import LabelColumn
from .label_records import LabelRecords, label_sums
from .prior_release import PriorRelease, RefusedRelease

# Sums are below 2^53 records times 2^44.
_SUM_BYTES = 16


@dataclass(frozen=True, eq=False)
class PassSums:
    """Raw, unprotected sums of one pass over some records. They must not leave the job.

    Attributes:
      sums: Sums of the pass, int64, or integers of any size as one row of objects.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      digest: Raw sums of the input digest over the records with a usable label.
      places: Raw sums of a digest of where these records are counted.
      left_out: Number of records that were left out because their units have too many; public.
    """

    sums: np.ndarray = field(repr=False)
    records: int
    unusable: int
    digest: RawSums
    places: RawSums
    left_out: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """State of a fixed size: runners show the sizes of elements, and that of an integer depends on its value."""
        if self.sums.dtype != object:
            return vars(self)
        return {**vars(self), "sums": b"".join(each.to_bytes(_SUM_BYTES, "little", signed=True) for each in self.sums)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["sums"], bytes):
            octets = state["sums"]
            parts = [octets[start : start + _SUM_BYTES] for start in range(0, len(octets), _SUM_BYTES)]
            found = np.array([int.from_bytes(part, "little", signed=True) for part in parts], object)
            state = {**state, "sums": found}
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
    )


class Pass(ABC):
    """One look at the labels. `released` is what the passes before it have released.

    Attributes:
      name: Name of its stages.
      purpose: Purpose of its noise key, at most 16 bytes.
    """

    name: ClassVar[str]
    purpose: ClassVar[bytes]

    @abstractmethod
    def design(self, sample: FeatureSample, released: Any, epsilon: float) -> Any:
        """Decides from public facts what is summed, and for which budget; None where that is not worth its price.

        `epsilon` is the budget of the whole release of a record. Raises RefusedRelease if the center cannot be made.
        """

    @abstractmethod
    def row_map(self, design: Any, released: Any) -> RowMap:
        """The map of the features that the pass reads."""

    @abstractmethod
    def sums_of(
        self, records: LabelRecords, features: MappedColumns, design: Any, released: Any, secret: bytes
    ) -> tuple[np.ndarray, RawSums]:
        """Sums of records, and raw sums of a digest of where they are counted."""

    @abstractmethod
    def bound_to(self, design: Any, released: Any) -> list[Any]:
        """Values that the noise is bound to besides the records, their places, the request and the raw sums."""

    @abstractmethod
    def noised(self, sums: PassSums, column: LabelColumn, design: Any, released: Any, noise_key: bytes) -> Any:
        """Releases sums of all records, and what follows from them; it spends the budget of the design."""

    def summarize(
        self,
        records: LabelRecords,
        features: MappedColumns,
        design: Any,
        released: Any,
        secret: bytes,
        left_out: int = 0,
    ) -> PassSums:
        """Sums records, whose labels have no centers."""
        sums, places = self.sums_of(records, features, design, released, secret)
        return PassSums(sums, len(records), records.unusable, label_sums(records, secret), places, left_out)

    def release(self, sums: PassSums, column: LabelColumn, design: Any, released: Any, secret: bytes) -> Any:
        """Releases the raw sums of the whole input."""
        return self.noised(sums, column, design, released, self.noise_key(sums, column, design, released, secret))

    def noise_key(self, sums: PassSums, column: LabelColumn, design: Any, released: Any, secret: bytes) -> bytes:
        """Derives the noise key of the raw sums of the whole input: 32 bytes, which must not be shown.

        It is bound to the labels and the places of all records, to the request, to design and earlier releases, and to
        the raw sums themselves. If features change and labels do not, two releases with the same noise would show the
        exact difference of their sums; and if the sums stay, equal releases would show that: a change of features
        leaves the sums as they are if the label of the record is the middle one. As a pseudorandom function of places
        and sums, the noise is independent for any two inputs.
        """
        raw: Any = sums.sums.tolist()
        if sums.sums.dtype != object:
            raw = keyed_hash(secret, b"labeldp tables", sums.sums.astype("<i8").tobytes()).hex()
        request = column.request
        # Sums are of labels and features: the column of centers gets its name after them.
        given = [
            value if name == "unit" else [name, value] for name, value in request.given.items() if name != "center"
        ]
        bound_to = [
            sums.digest.to_bytes().hex(), sums.places.to_bytes().hex(), raw, *request.needed.values(),
            *self.bound_to(design, released), *given,
        ]  # fmt: skip
        return keyed_hash(secret, self.purpose, json.dumps(bound_to).encode())


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


class Moments(Pass):
    """Sums of rows times labels, from which the coefficients of a linear center follow."""

    name, purpose = "moments", b"labeldp moments"

    def design(self, sample: FeatureSample, released: None, epsilon: float) -> CenterDesign:
        return design_center(sample.columns, max(sample.records, 1), epsilon)

    def row_map(self, design: CenterDesign, released: None) -> RowMap:
        return design.map

    def sums_of(
        self, records: LabelRecords, features: MappedColumns, design: CenterDesign, released: None, secret: bytes
    ) -> tuple[np.ndarray, RawSums]:
        column, rows = records.column, design.map.rows(features)
        sums = moment_sums(rows, records.indices(secret), len(column.domain))
        return np.array(sums, object), row_sums(secret, column.name, records.identities, rows)

    def bound_to(self, design: CenterDesign, released: None) -> list[Any]:
        return [design.epsilon.hex(), design.map.norm]

    def noised(
        self, sums: PassSums, column: LabelColumn, design: CenterDesign, released: None, noise_key: bytes
    ) -> LinearCenter:
        labels, found = len(column.domain), ()
        if design.epsilon:
            found = noised_sums(sums.sums.tolist(), design.map.norm, labels, design.epsilon, noise_key)
        return LinearCenter.fit(design, labels, found)


class ResidualCells(Pass):
    """Histogram and sums of the residuals around a linear center by cells of the features, from which trees follow."""

    name, purpose = "cells", b"labeldp cells"

    def design(self, sample: FeatureSample, released: LinearCenter, epsilon: float) -> CellDesign | None:
        return design_cells(sample.columns, released, max(sample.records, 1), epsilon)

    def row_map(self, design: CellDesign, released: LinearCenter) -> RowMap:
        return released.design.map

    def sums_of(
        self, records: LabelRecords, features: MappedColumns, design: CellDesign, released: LinearCenter, secret: bytes
    ) -> tuple[np.ndarray, RawSums]:
        column, centers = records.column, released.indices(features)
        cells = design.partition.tree.cells(design.partition.codes(features, released, centers))
        steps = records.indices(secret).astype(np.int64) - centers
        tables = CellTables.of_records(cells, len(design.partition.tree.leaves), steps, column.residuals)
        placed = ("cells of the center", centers)
        places = digest_sums(secret, column.name, records.identities, cells.astype(np.float64), placed)
        return np.stack([tables.counts, tables.sums]), places

    def bound_to(self, design: CellDesign, released: LinearCenter) -> list[Any]:
        return [list(released.coefficients), design.histogram.hex(), design.epsilon.hex()]

    def noised(
        self, sums: PassSums, column: LabelColumn, design: CellDesign, released: LinearCenter, noise_key: bytes
    ) -> CellCenter:
        keys = (keyed_hash(noise_key, b"labeldp use", use) for use in (b"histogram", b"sums"))
        return CellCenter.of(released, noised_cells(design, released, CellTables(*sums.sums), *keys))


@dataclass(frozen=True)
class ClassSums(Pass):
    """Sums of rows by class, after the histogram of the classes; from them the linear part of a center follows.

    Attributes:
      always: Whether the center was asked for. Otherwise randomized response is left to speak where the released
        histogram says that it teaches a model more.
    """

    name, purpose = "class sums", b"labeldp classes"
    always: bool = True

    def design(self, sample: FeatureSample, released: PriorRelease, epsilon: float) -> LogitDesign | None:
        budget, counts = split_class_budget(released.budget), np.array(released.counts)
        shares = released_shares(counts, released.records, budget.counts)
        if not self.always and not center_pays(shares, released.budget.total):
            return None
        classes = len(counts)
        if released.records < LEAST_CELLS * cell_size(np.full(classes, 1 / classes), budget.sums + budget.cells):
            # Records and epsilon are public: whatever the labels are, their center would know the shares alone.
            if self.always:
                raise RefusedRelease(
                    f"{released.records:,} records are too few for a center of {classes} classes at this epsilon: "
                    "raise epsilon, or leave out the center (center none), for randomized response"
                )
            return None
        design = design_classes(sample.columns, shares, released.records, budget.sums)
        if design is None and self.always:
            raise RefusedRelease("no feature tells records apart: leave out the center (center none)")
        return design

    def row_map(self, design: LogitDesign, released: PriorRelease) -> RowMap:
        return design.map

    def sums_of(
        self,
        records: LabelRecords,
        features: MappedColumns,
        design: LogitDesign,
        released: PriorRelease,
        secret: bytes,
    ) -> tuple[np.ndarray, RawSums]:
        column, rows = records.column, design.map.rows(features)
        sums = class_sums(rows, records.indices(secret), design.classes)
        return np.array(sums.ravel().tolist(), object), row_sums(secret, column.name, records.identities, rows)

    def bound_to(self, design: LogitDesign, released: PriorRelease) -> list[Any]:
        return [list(released.counts), design.epsilon.hex(), design.map.norm]

    def noised(
        self, sums: PassSums, column: LabelColumn, design: LogitDesign, released: PriorRelease, noise_key: bytes
    ) -> ClassCenter:
        found: tuple[tuple[int, ...], ...] = ()
        if design.epsilon:
            raw = sums.sums.reshape(design.map.size, design.classes)
            found = noised_class_sums(raw, design.map.norm, design.epsilon, noise_key)
        linear = LinearClasses.fit(design, found)
        return ClassCenter(split_class_budget(released.budget), np.array(released.counts), linear, None)


class ClassCells(Pass):
    """Counts of the classes by cells of the features, from which the center of classes follows."""

    name, purpose = "class cells", b"labeldp counts"

    def design(
        self, sample: FeatureSample, released: PriorRelease | ClassCenter, epsilon: float
    ) -> ClassCellDesign | None:
        if isinstance(released, PriorRelease):
            # There is no center.
            return None
        return design_class_cells(sample.columns, released)

    def row_map(self, design: ClassCellDesign, released: ClassCenter) -> RowMap:
        return released.linear.design.map

    def sums_of(
        self,
        records: LabelRecords,
        features: MappedColumns,
        design: ClassCellDesign,
        released: ClassCenter,
        secret: bytes,
    ) -> tuple[np.ndarray, RawSums]:
        column, classes, linear = records.column, len(released.counts), released.linear
        rows, partition = linear.rows(features), design.sample.partition
        cells = partition.tree.cells(partition.codes(features, linear, rows, linear.logits(rows)))
        places = cells.astype(np.int64) * classes + records.indices(secret)
        counts = np.bincount(places, minlength=design.cells * classes).reshape(design.cells, classes)
        return counts, digest_sums(secret, column.name, records.identities, cells.astype(np.float64))

    def bound_to(self, design: ClassCellDesign, released: ClassCenter) -> list[Any]:
        return [design.epsilon.hex(), [list(each) for each in released.linear.sums], released.counts.tolist()]

    def noised(
        self, sums: PassSums, column: LabelColumn, design: ClassCellDesign, released: ClassCenter, noise_key: bytes
    ) -> ClassCenter:
        counts = noised_class_counts(sums.sums, design.epsilon, noise_key)
        cells = ReleasedClassCells.fit(design, released.linear, counts)
        return dataclasses.replace(released, cells=cells)


def center_passes(features: CenterFeatures, classes: bool) -> tuple[Pass, ...]:
    """The passes that make a center of these features, of numbers or of classes."""
    if classes:
        return ClassSums(always=features.cells), ClassCells()
    return (Moments(), ResidualCells()) if features.cells else (Moments(),)


def run_passes(
    passes: Iterable[Pass],
    sample: FeatureSample,
    column: LabelColumn,
    epsilon: float,
    secret: bytes,
    blocks: Callable[[RowMap], Iterator[tuple[LabelRecords, MappedColumns]]],
    released: Any = None,
) -> Any:
    """Runs passes over records in memory, one after the other; returns what they release.

    `blocks` gives the records in parts, with the features that a map reads, and `released` is what was released before.
    Raises RefusedRelease as `Pass.design`.
    """
    for one in passes:
        design = one.design(sample, released, epsilon)
        if design is None:
            continue
        parts = (
            one.summarize(records, features, design, released, secret)
            for records, features in blocks(one.row_map(design, released))
        )
        sums = add_passes(parts)
        assert sums is not None
        released = one.release(sums, column, design, released, secret)
    return released
