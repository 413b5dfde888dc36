"""Passes over the labels of all records, and those of a center: each releases sums with exact noise.

A pass is one look at the labels. It is designed from public facts: a sample of features, and what passes before it have
released. It sums records, in parts that are added, and releases the sums under label DP. `plan` says which passes make
a release. Raw sums must not be shown before noise is added. The secret key has 32 bytes.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

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
from ..center.marginal_center import (
    MarginalCenter,
    MarginalDesign,
    common_records,
    design_marginals,
    marginals_pay,
    noised_marginals,
    part_tables,
)
from ..noise.input_digest import RawSums, digest_sums
from ..noise.keyed_words import Identities, integer_identities, keyed_hash, words
from .bound_noise import NoiseBinding
from .feature_sample import FeatureSample
from .label_column import LabelColumn
from .label_records import LabelRecords, PassSums, label_sums
from .prior_release import PriorRelease, RefusedRelease

Design = TypeVar("Design")
Before = TypeVar("Before")
After = TypeVar("After")
PassResult: TypeAlias = LinearCenter | PriorRelease | NoiseBinding | None
"""Releases of passes so far: a linear center, and from the histogram on a prior or a binding alone."""


class Pass(ABC, Generic[Design, Before, After]):
    """One look at the labels. `released` is what the passes before it have released.

    Attributes:
      name: Name of its stages.
      binds: Whether the noise of the draws is bound to its records: they have their centers, their ids are unique, and
        it is designed without features.
    """

    name: ClassVar[str]
    binds: ClassVar[bool] = False

    @abstractmethod
    def design(self, sample: FeatureSample, released: Before) -> Design | None:
        """Decides from public facts what is summed, and for which budget; None where that is not worth its price.

        Raises RefusedRelease if the center cannot be made.
        """

    @abstractmethod
    def row_map(self, design: Design, released: Before) -> RowMap | None:
        """The map of the features that the pass reads; None if it reads none, and gets no columns of them."""

    @abstractmethod
    def sums_of(
        self, records: LabelRecords, features: MappedColumns, design: Design, released: Before, secret: bytes
    ) -> tuple[np.ndarray, RawSums]:
        """Sums of records, and raw sums of a digest of where they are counted."""

    @abstractmethod
    def release(self, sums: PassSums, column: LabelColumn, design: Design, released: Before, secret: bytes) -> After:
        """Releases the raw sums of the whole input, and what follows from them."""

    def summarize(
        self, records: LabelRecords, features: MappedColumns, design: Design, released: Before, secret: bytes
    ) -> PassSums:
        """Sums records."""
        sums, places = self.sums_of(records, features, design, released, secret)
        digest = label_sums(records, secret)
        return PassSums(sums, len(records), records.unusable, digest, places, missing_centers=records.missing_centers)


class CenterPass(Pass[Design, Before, After]):
    """Pass of a center over labels that have none yet.

    Attributes:
      purpose: Purpose of its noise key, at most 16 bytes.
    """

    purpose: ClassVar[bytes]

    @abstractmethod
    def bound_to(self, design: Design, released: Before) -> list[Any]:
        """Values that the noise is bound to besides the records, their places, the request and the raw sums."""

    @abstractmethod
    def noised(self, sums: PassSums, column: LabelColumn, design: Design, released: Before, noise_key: bytes) -> After:
        """Releases sums of all records, and what follows from them; it spends the budget of the design."""

    def release(self, sums: PassSums, column: LabelColumn, design: Design, released: Before, secret: bytes) -> After:
        return self.noised(sums, column, design, released, self.noise_key(sums, column, design, released, secret))

    def noise_key(self, sums: PassSums, column: LabelColumn, design: Design, released: Before, secret: bytes) -> bytes:
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


@dataclass(frozen=True)
class Moments(CenterPass[CenterDesign, None, LinearCenter]):
    """Sums of rows times labels, from which the coefficients of a linear center follow.

    `epsilon` is the budget of center, residuals and labels of a record.
    """

    name, purpose = "moments", b"labeldp moments"
    epsilon: float

    def design(self, sample: FeatureSample, released: None) -> CenterDesign:
        return design_center(sample.columns, max(sample.records, 1), self.epsilon)

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


@dataclass(frozen=True)
class ResidualCells(CenterPass[CellDesign, LinearCenter, CellCenter]):
    """Histogram and sums of the residuals around a linear center by cells of the features, from which trees follow.

    `epsilon` is that of the moments.
    """

    name, purpose = "cells", b"labeldp cells"
    epsilon: float

    def design(self, sample: FeatureSample, released: LinearCenter) -> CellDesign | None:
        return design_cells(sample.columns, released, max(sample.records, 1), self.epsilon)

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
class Marginals(CenterPass[MarginalDesign, None, MarginalCenter]):
    """Histogram and sums of the labels by parts of each feature, from which an additive model follows.

    Attributes:
      epsilon: Budget of center, residuals and labels of a record.
      always: Whether the center was asked for. Otherwise it is left to `marginals_pay`.
    """

    name, purpose = "marginals", b"labeldp margins"
    epsilon: float
    always: bool = True

    def design(self, sample: FeatureSample, released: None) -> MarginalDesign | None:
        design = design_marginals(sample.columns, max(sample.records, 1), self.epsilon)
        if not self.always:
            return design if design is not None and marginals_pay(design, self.epsilon) else None
        if design is None:
            raise RefusedRelease(
                "no feature tells records apart, or epsilon is too small: leave out the center (center none)"
            )
        return design

    def row_map(self, design: MarginalDesign, released: None) -> RowMap:
        return design.map

    def sums_of(
        self, records: LabelRecords, features: MappedColumns, design: MarginalDesign, released: None, secret: bytes
    ) -> tuple[np.ndarray, RawSums]:
        column, parts, labels = records.column, design.parts_of(features), len(records.column.domain)
        tables = part_tables(parts, design.sizes, records.indices(secret).astype(np.int64) - labels // 2, labels)
        sums = np.concatenate([tables.counts, tables.sums, common_records(parts, design.sizes)], axis=1)
        return sums, row_sums(secret, column.name, records.identities, parts)

    def bound_to(self, design: MarginalDesign, released: None) -> list[Any]:
        return [self.epsilon.hex(), design.histogram.hex(), design.epsilon.hex(), design.sizes]

    def noised(
        self, sums: PassSums, column: LabelColumn, design: MarginalDesign, released: None, noise_key: bytes
    ) -> MarginalCenter:
        counts, totals, common = np.split(sums.sums, np.array([1, 2]) * column.residuals.cells, axis=1)
        keys = [keyed_hash(noise_key, b"labeldp use", use) for use in (b"histogram", b"sums")]
        labels = len(column.domain)
        made = noised_marginals(design, labels, CellTables(counts, totals), common, (keys[0], keys[1]))
        return MarginalCenter.of(labels, made)


FirstPass: TypeAlias = CenterPass[Any, None, Any]
FirstDesign: TypeAlias = tuple[FirstPass, Any]


@dataclass(frozen=True)
class FirstDesigned(Pass[FirstDesign, None, LinearCenter]):
    """First of several passes that has a design: they share one look at the labels, and public facts choose.

    The design is that pass with its own one.
    """

    name = "sums"
    steps: tuple[FirstPass, ...]

    def design(self, sample: FeatureSample, released: None) -> FirstDesign | None:
        designs = ((step, step.design(sample, released)) for step in self.steps)
        return next(((step, design) for step, design in designs if design is not None), None)

    def row_map(self, design: FirstDesign, released: None) -> RowMap | None:
        return design[0].row_map(design[1], released)

    def sums_of(
        self,
        records: LabelRecords,
        features: MappedColumns,
        design: FirstDesign,
        released: None,
        secret: bytes,
    ) -> tuple[np.ndarray, RawSums]:
        return design[0].sums_of(records, features, design[1], released, secret)

    def release(
        self,
        sums: PassSums,
        column: LabelColumn,
        design: FirstDesign,
        released: None,
        secret: bytes,
    ) -> LinearCenter:
        return design[0].release(sums, column, design[1], released, secret)


@dataclass(frozen=True)
class ClassSums(CenterPass[LogitDesign, PriorRelease, PriorRelease]):
    """Sums of rows by class, after the histogram of the classes; from them the linear part of a center follows.

    Attributes:
      always: Whether the center was asked for. Otherwise randomized response is left to speak where the released
        histogram says that it teaches a model more.
    """

    name, purpose = "class sums", b"labeldp classes"
    always: bool = True

    def design(self, sample: FeatureSample, released: PriorRelease) -> LogitDesign | None:
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
    ) -> PriorRelease:
        found: tuple[tuple[int, ...], ...] = ()
        if design.epsilon:
            raw = sums.sums.reshape(design.map.size, design.classes)
            found = noised_class_sums(raw, design.map.norm, design.epsilon, noise_key)
        linear = LinearClasses.fit(design, found)
        center = ClassCenter(split_class_budget(released.budget), np.array(released.counts), linear, None)
        return dataclasses.replace(released, made=center)


class ClassCells(CenterPass[ClassCellDesign, PriorRelease, PriorRelease]):
    """Counts of the classes by cells of the features, from which the center of classes follows, if there is one."""

    name, purpose = "class cells", b"labeldp counts"

    def design(self, sample: FeatureSample, released: PriorRelease) -> ClassCellDesign | None:
        return None if released.made is None else design_class_cells(sample.columns, _class_center(released))

    def row_map(self, design: ClassCellDesign, released: PriorRelease) -> RowMap:
        return _class_center(released).map

    def sums_of(
        self,
        records: LabelRecords,
        features: MappedColumns,
        design: ClassCellDesign,
        released: PriorRelease,
        secret: bytes,
    ) -> tuple[np.ndarray, RawSums]:
        column, classes, linear = records.column, len(released.counts), _class_center(released).linear
        rows, partition = linear.rows(features), design.sample.partition
        cells = partition.tree.cells(partition.codes(features, linear, rows, linear.logits(rows)))
        places = cells.astype(np.int64) * classes + records.indices(secret)
        counts = np.bincount(places, minlength=design.cells * classes).reshape(design.cells, classes)
        return counts, digest_sums(secret, column.name, records.identities, cells.astype(np.float64))

    def bound_to(self, design: ClassCellDesign, released: PriorRelease) -> list[Any]:
        sums = _class_center(released).linear.sums
        return [design.epsilon.hex(), [list(row) for row in sums], list(released.counts)]

    def noised(
        self, sums: PassSums, column: LabelColumn, design: ClassCellDesign, released: PriorRelease, noise_key: bytes
    ) -> PriorRelease:
        counts, center = noised_class_counts(sums.sums, design.epsilon, noise_key), _class_center(released)
        cells = ReleasedClassCells.fit(design, center.linear, counts)
        return dataclasses.replace(released, made=dataclasses.replace(center, cells=cells))


def _class_center(released: PriorRelease) -> ClassCenter:
    assert isinstance(released.made, ClassCenter)
    return released.made
