"""The private label column: its name, its public domain, the rounding of labels to it, and their public center."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..center.residuals import ResidualDomain, check_even
from ..core.label_classes import LabelClasses, stated_label
from ..core.label_grid import NEAREST, OUTWARD, ROUNDINGS, DeclaredGrid, LabelRounder, check_domain
from ..noise.keyed_words import Identities, NoiseRequest, Reading, words
from .unit_bound import SINGLE, PrivacyUnit


@dataclass(frozen=True)
class LabelMeaning:
    """Relation of the values of a label column to the labels of its domain.

    Attributes:
      classes: Classes of the label, of which the domain has the places; None for numbers.
      declared: The declared grid, if the domain is a coarser one that was chosen for it (`working_grid`); else None.
        Noise is bound to the domain alone: two declared grids with the same working grid are one request.
      missing: Label that a missing one counts as, of classes a place; None to leave such records out. Readers put it in
        (`missing_labels`), so that no stage can tell which labels were missing.
      reading: Options of text files that decide what a label reads as, with their values, where they are not the
        default. Noise is bound to them: equal noise for two of them would tell that no label reads otherwise.
    """

    classes: LabelClasses | None = None
    declared: DeclaredGrid | None = None
    missing: float | None = None
    reading: Reading = ()


@dataclass(frozen=True, kw_only=True)
class HasMeaning:
    """Base of a label column and of the binding of its noise, whose labels have a meaning."""

    meaning: LabelMeaning = field(default=LabelMeaning())

    @property
    def classes(self) -> LabelClasses | None:
        """Classes of the label, of which the domain has the places; None for numbers."""
        return self.meaning.classes

    @property
    def declared(self) -> DeclaredGrid | None:
        """The declared grid, if the domain is a coarser one that was chosen for it; else None."""
        return self.meaning.declared

    @property
    def missing_label(self) -> float | str | None:
        """Label that a missing one counts as: a number or one of the classes; None if such records are left out."""
        missing = self.meaning.missing
        return None if missing is None else stated_label(missing, self.classes)


@dataclass(frozen=True)
class LabelColumn(HasMeaning):
    """Private column with its public domain, and the identity of its records.

    Attributes:
      name: Name of the column.
      domain: The k labels of the public domain, ascending. Labels outside are clamped.
      id_column: Column of unique ids, which stay with a record when it moves to another file or row. None to identify
        records by file and row.
      rounding: "nearest" maps a label to the closest one of the domain; "randomized" draws one of the two neighbors,
        so that rounding is unbiased (see `label_grid`). "outward", away from 0, is for labels that are only
        counted.
      center: Column of public predictions of the label, around which labels are privatized: the randomizer gets the
        label minus its center. Of classes, the column of their probabilities, from which they are drawn. None for
        labels without a center.
      unit: Privacy unit, all of whose labels may change. A stage that gets this column takes records of which no unit
        has too many (`BoundUnits`), and budgets of one record.
      others: Further private columns of the same records, which are released together with this one. Only records with
        a usable label in all of them are released.
      meaning: Relation of the values of the column to the labels of the domain.
    """

    name: str
    domain: tuple[float, ...]
    id_column: str | None = None
    rounding: str = NEAREST
    center: str | None = None
    unit: PrivacyUnit = SINGLE
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid domain, a column in two roles, an unknown rounding, or an uneven domain."""
        check_domain(np.array(self.domain, np.float64))
        if self.rounding not in (*ROUNDINGS, OUTWARD):
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.declared is not None and self.rounding == NEAREST:
            # Many declared labels are halfway between two of the grid.
            raise ValueError(
                f"rounding must be randomized for {self.declared.labels:,} labels, of which the mechanism uses "
                f"{len(self.domain)}: the nearest of these would be biased. Leave it out, or give a label_step of "
                f"{self.domain[1] - self.domain[0]:.12g}"
            )
        if self.classes is not None and (self.domain != self.classes.domain or self.rounding != NEAREST):
            raise ValueError("the domain of classes must be their places, and their rounding nearest")
        missing = self.meaning.missing
        if missing is not None and not self.domain[0] <= missing <= self.domain[-1]:
            raise ValueError("what a missing label counts as must lie in the domain")
        if self.id_column == self.name:
            raise ValueError("id_column must not be the label column")
        if self.center == self.name:
            raise ValueError("the center must not be the label column: it is released as it is")
        if self.center is not None and self.classes is None:
            check_even(self.labels)
        if self.unit.column == self.name:
            raise ValueError("the column of the units must not be the label column")
        public = {self.id_column, self.center, *self.unit.columns}
        if {self.name, *public} & {*self.others} or len({*self.others}) < len(self.others):
            raise ValueError("the private columns must be different columns, and none of them an id, center or unit")

    @property
    def private(self) -> tuple[str, ...]:
        """Names of this column and of the others that are released with it."""
        return self.name, *self.others

    @property
    def described(self) -> str:
        """The private columns as a message names them."""
        return " or ".join(self.private)

    @property
    def labels(self) -> np.ndarray:
        """The domain as an array, shape (k,), float64."""
        return np.array(self.domain, np.float64)

    def indices(self, values: np.ndarray, identities: Identities, secret: bytes) -> np.ndarray:
        """Rounds labels to the domain. Deterministic: the same arguments always give the same result.

        Args:
          values: Labels, shape (n,), finite float64.
          identities: Identities of the n records.
          secret: Secret key, 32 bytes, for randomized rounding.

        Returns:
          Indices into the domain, shape (n,), integers in [0, k).
        """
        if self.rounding == NEAREST:
            return self._rounder.nearest(values)
        if self.rounding == OUTWARD:
            return self._rounder.outward(values)
        purpose = f"rounding {self.name}".encode()
        return self._rounder.randomized(values, lambda: words(secret, purpose, identities))

    @cached_property
    def _rounder(self) -> LabelRounder:
        # Cached: building it takes time proportional to the size of the domain.
        return LabelRounder(self.labels)

    def center_indices(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Rounds centers to the nearest label of the domain; those outside are clamped to its ends.

        They are rounded to float32 first, the precision of features in TFRecords, so that a center that is read back
        from a release gives the same label. A missing or infinite center becomes the label in the middle of the domain.

        Args:
          values: Centers, shape (n,), float64; NaN where there is none.

        Returns:
          Indices into the domain, shape (n,), integers in [0, k), and the number of missing or infinite centers.
        """
        with np.errstate(over="ignore"):
            values = values.astype(np.float32).astype(np.float64)
        known = np.isfinite(values)
        indices = np.full(len(values), (len(self.domain) - 1) // 2)
        indices[known] = self._rounder.nearest(values[known])
        return indices, int((~known).sum())

    @property
    def around_center(self) -> bool:
        """True for labels around a center; classes have one that they may be drawn from."""
        return self.center is not None and self.classes is None

    @cached_property
    def residuals(self) -> ResidualDomain:
        """Residuals of the labels around their centers.

        Raises:
          ValueError: If the domain is not evenly spaced.
        """
        return ResidualDomain(self.labels)

    @property
    def cells(self) -> int:
        """Number of cells of the histogram: k, or with a center the number of cells of residuals."""
        return self.residuals.cells if self.around_center else len(self.domain)

    @property
    def request(self) -> NoiseRequest:
        """Everything about the column that noise and input digest are bound to.

        Returns:
          The fields. Of the others, `id_column` is a part of the identities of records, `declared` gives no label
          another meaning, and `others` leaves out records without a usable label, which is public.
        """
        meaning, unit = self.meaning, self.unit.request
        return NoiseRequest(
            self.name, self.labels, self.rounding, self.center, unit, meaning.classes, meaning.missing, meaning.reading
        )

    @property
    def columns(self) -> list[str]:
        """Names of the columns that fitting reads."""
        named = (*self.private, self.id_column, self.center)
        return list(dict.fromkeys(name for name in named if name is not None))
