"""Privacy unit: all labels of one unit, such as a person, may change. How many records of it are released is bounded.

Changing the labels of at most M records changes the result of an epsilon-label-DP release by a factor of at most
exp(M epsilon) (group privacy; Dwork and Roth 2014, Theorem 2.2). So a release in which no unit has more than M records,
and every part of which has an M-th of the budget for one record, is epsilon-DP for units: the noise of the label
histogram, and of every other sum, has M times the scale.

Which M records of a unit are released depends on their identities and on the secret key, of 32 bytes, alone, never on a
label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ..core.budget import decimal_budget, round_down, round_up
from ..noise.keyed_words import Identities, keyed_hash, words

MOST_RECORDS = 1_000_000
"""Largest bound on the records of a unit."""


@dataclass(frozen=True)
class PrivacyUnit:
    """Whose labels an epsilon protects: those of a single record, or of a unit with a `UnitBound`.

    Attributes:
      column: Public column that names the unit of each record; None for single records.
      max_records: Largest number M of records of a unit.
    """

    column: str | None = None
    max_records: int = 1

    @property
    def request(self) -> tuple[str, int] | None:
        """The unit as noise is bound to it; None for single records."""
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The column, if there is one."""
        return ()

    @property
    def stated(self) -> dict[str, Any]:
        """The unit as the member of a document; empty for single records."""
        return {}

    def record_epsilon(self, epsilon: float) -> float:
        """Epsilon of one record, of that of a unit: not above the decimal that was asked for."""
        return decimal_budget(epsilon)

    def record_share(self, budget: float) -> float:
        """Share of one record in a delta, or in a part of epsilon, of a unit."""
        return budget

    def total(self, budget: float | Fraction) -> Fraction:
        """Adds up what the records of a unit spend.

        Args:
          budget: Epsilon or delta of one record.

        Returns:
          M times the budget, exactly.
        """
        return Fraction(budget) * self.max_records

    def spent(self, budget: float | Fraction) -> float:
        """Cost of a release under its adjacency, from the epsilon or delta of one record.

        It is the smallest float that is not below the exact epsilon or delta.
        """
        return round_up(self.total(budget))


SINGLE = PrivacyUnit()
"""The unit of releases without a column of units: one record."""


@dataclass(frozen=True)
class UnitBound(PrivacyUnit):
    """Privacy unit, and the largest number of its records that are released.

    Attributes:
      column: Public column that names the unit of each record. It holds integers or text.
      max_records: Largest number M of records of a unit, >= 1.
    """

    column: str = field()
    max_records: int = field()

    def __post_init__(self) -> None:
        """Raises ValueError for a bound that is out of range."""
        if not 1 <= self.max_records <= MOST_RECORDS:
            raise ValueError(f"max_records_per_unit must be from 1 to {MOST_RECORDS:,}, not {self.max_records}")

    def record_share(self, budget: float) -> float:
        """Computes what one record gets of a budget of a unit.

        Args:
          budget: Epsilon or delta of a unit, >= 0.

        Returns:
          The largest float of which M times is at most the budget, in exact arithmetic, and as a decimal.
        """
        return round_down(Fraction(decimal_budget(budget)) / self.max_records)

    record_epsilon = record_share

    @property
    def request(self) -> tuple[str, int]:
        """The unit as noise is bound to it."""
        return self.column, self.max_records

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def stated(self) -> dict[str, Any]:
        """The unit as the member of a document."""
        return {"unit": {"column": self.column, "max_records": self.max_records}}


@dataclass(frozen=True)
class UnitCounts:
    """Counts of units and of records that are left out. They are public: no label enters.

    Attributes:
      units: Number of units with a usable record.
      left_out: Records beyond the bounds of their units.
      without_unit: Records without a unit, which are left out as well.
      kinds: Kinds of the values that name units, as namespaces of `Identities`.
    """

    units: int = 0
    left_out: int = 0
    without_unit: int = 0
    kinds: frozenset[bytes] = frozenset()


def add_unit_counts(parts: Iterable[UnitCounts]) -> UnitCounts:
    """Adds up counts of disjoint records and units."""
    parts = list(parts)
    return UnitCounts(
        sum(part.units for part in parts),
        sum(part.left_out for part in parts),
        sum(part.without_unit for part in parts),
        frozenset().union(*(part.kinds for part in parts)),
    )


def unit_words(secret: bytes, units: Identities) -> np.ndarray:
    """Computes a keyed 64-bit hash of each unit; shape (n,), uint64, for the units of n records.

    Two units with equal hashes would be bounded as one, which is private as well.
    """
    return words(keyed_hash(secret, b"labeldp units", b"unit"), b"unit", units)


def priorities(secret: bytes, records: Identities) -> np.ndarray:
    """Computes the priority of each record, by a keyed hash of its identity: of a unit, the lowest are released.

    Priorities have shape (n,), uint64, and do not depend on a label.
    """
    return words(keyed_hash(secret, b"labeldp units", b"priority"), b"priority", records)


def _ranks(units: np.ndarray, priority: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order of records by unit and priority, and the rank of each of them in its unit, in that order."""
    order = np.lexsort((priority, units))
    grouped = units[order]
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1]))[: len(units)]
    return order, np.arange(len(units)) - np.repeat(starts, np.diff(np.append(starts, len(units))))


def over_limit(units: np.ndarray, priority: np.ndarray, max_records: int) -> np.ndarray:
    """Finds the records beyond the bound of their units: False for the M records of lowest priority of each unit.

    Units and priorities of the records have shape (n,), integers; the result has shape (n,), bool. Of records of a unit
    with equal priorities, the first are kept.
    """
    order, rank = _ranks(units, priority)
    found = np.zeros(len(units), bool)
    found[order[rank >= max_records]] = True
    return found


def first_beyond(units: np.ndarray, priority: np.ndarray, max_records: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the units with too many records, and the priority from which their records are left out.

    Units and priorities of the records have shape (n,), uint64. The units that are found have shape (u,), ascending;
    for each there is the lowest priority that is beyond the bound, shape (u,). Of records with equal priorities all are
    left out.
    """
    order, rank = _ranks(units, priority)
    first = order[rank == max_records]
    return units[first], priority[first]


def at_limit(units: np.ndarray, priority: np.ndarray, over: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Finds the records that the limits of their units leave out; shape (n,), bool.

    Units and priorities of the records have shape (n,), uint64. `over` and `limits` are those of `first_beyond`: the
    units with too many records, shape (u,), ascending, and the priorities from which their records are left out, shape
    (u,).
    """
    found = np.zeros(len(units), bool)
    place = np.searchsorted(over, units)
    known = place < len(over)
    known[known] = over[place[known]] == units[known]
    found[known] = priority[known] >= limits[place[known]]
    return found


def bounded(
    unit: UnitBound, units: Identities, present: np.ndarray, records: Identities, secret: bytes
) -> tuple[np.ndarray, UnitCounts]:
    """Bounds the records of units, all of which are at hand.

    `present`, shape (n,), bool, masks the records that have a unit, and `units` are the units of these alone. The
    result is the mask of the records that are kept, shape (n,), bool, and the counts.
    """
    words = unit_words(secret, units)
    beyond = over_limit(words, priorities(secret, records.keep(present)), unit.max_records)
    kept = present.copy()
    kept[present] = ~beyond
    kinds = frozenset([units.space] if len(units) else [])
    return kept, UnitCounts(len(np.unique(words)), int(beyond.sum()), int((~present).sum()), kinds)
