"""Bounds on the records of each unit by their ids, for records that have no place in a file: rows and streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, PCollection
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows

from ...mechanisms.noise.keyed_words import Identities
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import (
    UnitBound,
    UnitCounts,
    add_unit_counts,
    at_limit,
    first_beyond,
    priorities,
    unit_words,
)
from ..batches import LabelledBatch, record_identities
from ..errors import InputError, redact_errors
from ..noise_key_file import NoiseKeyFile
from ..shown_transform import ShownTransform
from .unit_bounds import check_kinds
from .unit_counts import GROUPS, units_of_records


class BoundedRecords(NamedTuple):
    """Result of `BoundUnitsById`.

    Attributes:
      batches: The records without those beyond the bounds of their units.
      counts: Exactly one UnitCounts; None for an unbounded input.
    """

    batches: PCollection[LabelledBatch]
    counts: PCollection[UnitCounts] | None


@dataclass
class BoundUnitsById(ShownTransform):
    """Leaves out records, so that no unit has more than M records with a usable label in a window.

    Takes a PCollection of LabelledBatch with the columns of label, unit and id, bounded or not. The bound, and with it
    the promise for a unit, holds in each window: a unit with records in w windows spends w times the epsilon. Records
    of an unbounded input wait until their window ends, because which ones are kept is known only then. A record that is
    delivered twice counts once. Records without a unit are left out. Memory of a worker: 16 bytes for each unit of a
    window that has more than M records.

    Attributes:
      column: The private column, with its unit and an id column.
      key: Reference to the secret key.
    """

    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        """Raises ValueError for a column without a unit or an id column."""
        if not isinstance(self.column.unit, UnitBound) or self.column.id_column is None:
            raise ValueError("records without a place in a file are bounded by ids: give a unit and an id_column")
        self._unit = self.column.unit

    def expand(self, batches: PCollection[LabelledBatch]) -> BoundedRecords:
        """Raises InputError for an unbounded input whose windows never end, or end more than once."""
        windowing = batches.windowing
        if not batches.is_bounded and isinstance(windowing.windowfn, GlobalWindows):
            raise InputError("units of an unbounded input are bounded per window: apply WindowInto first")
        if not isinstance(windowing.triggerfn, DefaultTrigger) or windowing.allowed_lateness > 0:
            raise InputError(
                "units are bounded once per window: use the default trigger and no allowed lateness, so that no late "
                "record comes on top"
            )
        selected: PCollection[_Limits] = (
            batches
            | "FindUnits"
            >> beam.ParDo(_FindUnits(self.column, self._unit, self.key)).with_output_types(tuple[int, _UnitWords])
            | "GroupUnits" >> beam.GroupByKey()
            | "Limit" >> beam.Map(_limits, self._unit.max_records).with_output_types(_Limits)
        )
        kept: PCollection[LabelledBatch] = batches | "Keep" >> beam.ParDo(
            _Keep(self.column, self._unit, self.key), AsList(selected)
        ).with_output_types(LabelledBatch)
        if not batches.is_bounded or not isinstance(windowing.windowfn, GlobalWindows):
            return BoundedRecords(kept, None)
        counts: PCollection[UnitCounts] = (
            selected
            | "Counts" >> beam.Map(lambda limits: limits.counts).with_output_types(UnitCounts)
            | "AddCounts" >> beam.CombineGlobally(add_unit_counts)
        )
        return BoundedRecords(kept, counts)


@dataclass(frozen=True, eq=False)
class _UnitWords:
    """Records of a batch: hashes of their units and their priorities, shape (r,) each, and of how many have no unit."""

    units: np.ndarray = field(repr=False)
    priority: np.ndarray = field(repr=False)
    counts: UnitCounts


@dataclass(frozen=True, eq=False)
class _Limits:
    """Units with too many records, ascending, and the priority from which their records are left out."""

    units: np.ndarray = field(repr=False)
    limits: np.ndarray = field(repr=False)
    counts: UnitCounts


def _limits(group: tuple[int, Iterable[_UnitWords]], most: int) -> _Limits:
    parts = list(group[1])
    units, priority = (np.concatenate([getattr(part, name) for part in parts]) for name in ("units", "priority"))
    pairs = np.unique(np.stack([units, priority]), axis=1)
    over, limits = first_beyond(pairs[0], pairs[1], most)
    left_out = int(at_limit(units, priority, over, limits).sum())
    counts = add_unit_counts([UnitCounts(len(np.unique(units)), left_out), *(part.counts for part in parts)])
    return _Limits(over, limits, counts)


class _UnitStage(beam.DoFn):
    """Finds the units of the records of a batch, and their priorities."""

    def __init__(self, column: LabelColumn, unit: UnitBound, key: NoiseKeyFile):
        self._column = column
        self._unit = unit
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()

    def _hashed(self, kept: LabelledBatch, units: Identities) -> tuple[np.ndarray, np.ndarray]:
        """Hashes of the units, and priorities of the records, shape (n,) each."""
        priority = priorities(self._secret, record_identities(kept, self._column.id_column))
        return unit_words(self._secret, units), priority


class _FindUnits(_UnitStage):
    @redact_errors("bounding units")
    def process(self, batch: LabelledBatch) -> Iterator[tuple[int, _UnitWords]]:
        kept, units, without = units_of_records(batch, self._column.private, self._unit.column)
        words, priority = self._hashed(kept, units)
        kinds = frozenset([units.space] if len(units) else [])
        group = words % np.uint64(GROUPS)
        # Counts of the batch go with its first group.
        counts = UnitCounts(without_unit=without.size, kinds=kinds)
        for number in np.unique(group).tolist() or [0]:
            mask = group == number
            yield int(number), _UnitWords(words[mask], priority[mask], counts)
            counts = UnitCounts(kinds=kinds)


class _Keep(_UnitStage):
    @redact_errors("bounding units")
    def process(self, batch: LabelledBatch, groups: Sequence[_Limits]) -> Iterator[LabelledBatch]:
        check_kinds(add_unit_counts(each.counts for each in groups), self._unit.column)
        kept, units, without = units_of_records(batch, self._column.private, self._unit.column)
        words, priority = self._hashed(kept, units)
        over = np.concatenate([np.zeros(0, np.uint64), *(each.units for each in groups)])
        limits = np.concatenate([np.zeros(0, np.uint64), *(each.limits for each in groups)])
        order = np.argsort(over)
        excess = at_limit(words, priority, over[order], limits[order])
        excluded = np.isin(batch.rows, np.concatenate([without, kept.rows[excess]]))
        found = batch.keep(~excluded)
        yield dataclasses.replace(found, unit=self._unit.request, left_out=int(excluded.sum()))
