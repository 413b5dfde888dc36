"""Bounds on the records of each unit, for records of files: those beyond it are found from ids alone, and left out.

No record is shuffled, only a hash of its unit, its priority and its row, 20 bytes in all. Of each block of rows of a
file, a unit sends its M records of lowest priority at most, so one with millions of records is no burden for a worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsMultiMap, DoOutputsTuple, PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import (
    PrivacyUnit,
    UnitBound,
    UnitCounts,
    add_unit_counts,
    over_limit,
    priorities,
    unit_words,
)
from ..batches import Carried, LabelledBatch, carried_inputs, check_whole_input, record_identities
from ..beam_internals import typed_outputs
from ..errors import InputError, redact_errors
from ..noise_key_file import NoiseKeyFile
from ..progress_log import Progress
from ..shown_transform import ShownTransform
from .unit_counts import GROUPS, units_of_records

BLOCK_ROWS = 1 << 20
"""Rows of a file whose exclusions are kept together."""

BlockKey = tuple[str, int]
"""A file, and the number of a block of `BLOCK_ROWS` of its rows."""

_UNITS, _EXCLUSIONS, _COUNTS = "units", "exclusions", "counts"
# Blocks whose exclusions a worker keeps, one byte a row each.
_MOST_BLOCKS = 4


class BoundedUnits(NamedTuple):
    """Result of `BoundUnits`.

    Attributes:
      exclusions: Rows that are left out, by block: pairs of a `BlockKey` and an array of rows, counted from the start
        of the block, shape (r,), uint32. A block may have several.
      counts: Exactly one UnitCounts.
    """

    exclusions: PCollection[tuple[BlockKey, np.ndarray]]
    counts: PCollection[UnitCounts]


@dataclass
class BoundUnits(ShownTransform):
    """Finds the records that are left out, so that no unit has more than M records with a usable label.

    Takes a bounded PCollection of LabelledBatch with the columns of label, unit and id, and returns BoundedUnits.
    Records without a unit are left out: they may belong to anybody. The result depends on ids, on which records have a
    label, and on the secret key, so a retry gives the same one. The job fails with InputError if some files name units
    by integers and others by text: a unit would not be recognized.

    Attributes:
      column: The private column, with its unit.
      key: Reference to the secret key.
      groups: Number of groups into which units are sorted; one group must fit into the memory of a worker.
    """

    column: LabelColumn
    key: NoiseKeyFile
    groups: int = GROUPS

    def __post_init__(self) -> None:
        """Raises ValueError for a column without a unit."""
        if not isinstance(self.column.unit, UnitBound):
            raise ValueError("the label column has no unit")
        self._unit = self.column.unit

    def expand(self, batches: PCollection[LabelledBatch]) -> BoundedUnits:
        """Raises InputError for windows, or an unbounded input."""
        check_whole_input(batches, self)
        kinds: dict[str, Any] = {_EXCLUSIONS: tuple[BlockKey, np.ndarray], _COUNTS: UnitCounts}
        units: DoOutputsTuple = batches | "FindUnits" >> beam.ParDo(
            _FindUnits(self.column, self._unit, self.key, self.groups)
        ).with_output_types(object).with_outputs(_EXCLUSIONS, _COUNTS, main=_UNITS)
        found = typed_outputs(units, {**kinds, _UNITS: tuple[int, _UnitRecords]})
        selected: DoOutputsTuple = (
            found[_UNITS]
            | "GroupUnits" >> beam.GroupByKey()
            | "Select" >> beam.ParDo(_Select(self._unit)).with_outputs(_EXCLUSIONS, _COUNTS)
        )
        outputs = found, typed_outputs(selected, kinds)
        counts = tuple(part[_COUNTS] for part in outputs) | "AllCounts" >> beam.Flatten()
        return BoundedUnits(
            tuple(part[_EXCLUSIONS] for part in outputs) | "Exclusions" >> beam.Flatten(),
            counts
            | "AddCounts" >> beam.CombineGlobally(add_unit_counts)
            | "CheckKinds" >> beam.Map(check_kinds, self._unit.column).with_output_types(UnitCounts),
        )


@dataclass
class LeaveOut(ShownTransform):
    """Leaves out records of batches that were read from files.

    Takes a PCollection of LabelledBatch and returns the same batches with the same row numbers.

    Attributes:
      exclusions: The rows, of `BoundUnits`. A worker loads those of the blocks that it reads.
      unit: The privacy unit.
      carried: Side inputs that batches carry to later stages.
    """

    exclusions: PCollection[tuple[BlockKey, np.ndarray]]
    unit: PrivacyUnit
    carried: Sequence[Carried] = ()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelledBatch]:
        names, values = carried_inputs(self.carried)
        return batches | "LeaveOut" >> beam.ParDo(
            _LeaveOut(self.unit, names), AsMultiMap(self.exclusions), *values
        ).with_output_types(LabelledBatch)


def check_kinds(counts: UnitCounts, column: str) -> UnitCounts:
    """Checks that all units are named by values of one kind, and returns the counts.

    Raises InputError if some units are integers and others text.
    """
    if len(counts.kinds) > 1:
        raise InputError(
            f"`unit_column` {column!r} holds integers in some records and text in others, so that a unit would not be "
            "recognized: give it one type"
        )
    return counts


@dataclass(frozen=True, eq=False)
class _UnitRecords:
    """Records of one block: rows from its start, hashes of their units and their priorities, shape (r,) each."""

    block: BlockKey
    rows: np.ndarray
    units: np.ndarray = field(repr=False)
    priority: np.ndarray = field(repr=False)

    def take(self, indices: np.ndarray) -> _UnitRecords:
        return _UnitRecords(self.block, self.rows[indices], self.units[indices], self.priority[indices])


def _joined(parts: list[_UnitRecords]) -> _UnitRecords:
    arrays = [(part.rows, part.units, part.priority) for part in parts]
    return _UnitRecords(parts[0].block, *(np.concatenate(columns) for columns in zip(*arrays, strict=True)))


class _FindUnits(beam.DoFn):
    """Finds the records of each block that may be released, in groups of units, and those that cannot."""

    def __init__(self, column: LabelColumn, unit: UnitBound, key: NoiseKeyFile, groups: int):
        self._column = column
        self._unit = unit
        self._key = key
        self._groups = groups

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("bounded")

    def start_bundle(self) -> None:
        self._block: list[_UnitRecords] = []

    @redact_errors("bounding units")
    def process(self, batch: LabelledBatch) -> Iterator[Any]:
        kept, units, without = units_of_records(batch, self._column.private, self._unit.column)
        if without.size:
            for block, rows in _by_block(batch.source, without):
                yield TaggedOutput(_EXCLUSIONS, (block, rows))
        kinds = frozenset([units.space] if len(units) else [])
        yield TaggedOutput(_COUNTS, UnitCounts(without_unit=without.size, kinds=kinds))
        words = unit_words(self._secret, units)
        priority = priorities(self._secret, record_identities(kept, self._column.id_column))
        start = 0
        for block, rows in _by_block(kept.source, kept.rows):
            if self._block and self._block[0].block != block:
                yield from self._flush()
            stop = start + len(rows)
            self._block.append(_UnitRecords(block, rows, words[start:stop], priority[start:stop]))
            start = stop
        self._progress.add(len(kept.rows))

    @redact_errors("bounding units")
    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        for element in self._flush():
            if isinstance(element, TaggedOutput):
                yield TaggedOutput(element.tag, GlobalWindows.windowed_value(element.value))
            else:
                yield GlobalWindows.windowed_value(element)

    def _flush(self) -> Iterator[Any]:
        if not self._block:
            return
        records = _joined(self._block)
        self._block = []
        beyond = over_limit(records.units, records.priority, self._unit.max_records)
        if beyond.any():
            yield TaggedOutput(_EXCLUSIONS, (records.block, records.rows[beyond]))
            yield TaggedOutput(_COUNTS, UnitCounts(left_out=int(beyond.sum())))
        records = records.take(np.flatnonzero(~beyond))
        group = (records.units % np.uint64(self._groups)).astype(np.int64)
        order = np.argsort(group, kind="stable")
        numbers, starts = np.unique(group[order], return_index=True)
        for number, indices in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
            yield number, records.take(indices)


def _by_block(source: str, rows: np.ndarray) -> Iterator[tuple[BlockKey, np.ndarray]]:
    """Cuts ascending rows of a file at the ends of its blocks. Rows are counted from the start of each block."""
    numbers, starts = np.unique(rows // BLOCK_ROWS, return_index=True)
    for number, part in zip(numbers.tolist(), np.split(rows, starts)[1:], strict=True):
        yield (source, number), (part - number * BLOCK_ROWS).astype(np.uint32)


class _Select(beam.DoFn):
    """Selects the records of the units of one group."""

    def __init__(self, unit: UnitBound):
        self._unit = unit

    @redact_errors("bounding units")
    def process(self, group: tuple[int, Iterable[_UnitRecords]]) -> Iterator[TaggedOutput]:
        # Sorted, so that equal priorities are decided alike whatever order the parts arrive in.
        parts = sorted(group[1], key=lambda part: part.block)
        units = np.concatenate([part.units for part in parts])
        beyond = over_limit(units, np.concatenate([part.priority for part in parts]), self._unit.max_records)
        start = 0
        for part in parts:
            mask = beyond[start : start + len(part.rows)]
            start += len(part.rows)
            if mask.any():
                yield TaggedOutput(_EXCLUSIONS, (part.block, part.rows[mask]))
        yield TaggedOutput(_COUNTS, UnitCounts(len(np.unique(units)), int(beyond.sum())))


class _LeaveOut(beam.DoFn):
    def __init__(self, unit: PrivacyUnit, carried: Sequence[str]):
        self._unit = unit
        self._carried = carried

    def start_bundle(self) -> None:
        # Kept for a bundle only: the side input of another one may be that of another run of this worker's code.
        self._excluded: dict[BlockKey, np.ndarray] = {}

    # Beam takes an annotation of `values` for the type of their tuple.
    @redact_errors("leaving out records")
    def process(
        self, batch: LabelledBatch, exclusions: Mapping[BlockKey, Iterable[np.ndarray]], *values
    ) -> Iterator[LabelledBatch]:
        excluded = np.zeros(len(batch.rows), bool)
        blocks = batch.rows // BLOCK_ROWS
        for number in np.unique(blocks).tolist():
            here = blocks == number
            excluded[here] = self._of_block((batch.source, number), exclusions)[batch.rows[here] - number * BLOCK_ROWS]
        batch = dataclasses.replace(batch.carry(self._carried, values), unit=self._unit.request)
        if excluded.any():
            batch = dataclasses.replace(batch.keep(~excluded), left_out=int(excluded.sum()))
        yield batch

    def _of_block(self, block: BlockKey, exclusions: Mapping[BlockKey, Iterable[np.ndarray]]) -> np.ndarray:
        """The excluded rows of a block, shape (BLOCK_ROWS,), bool."""
        if block not in self._excluded:
            if len(self._excluded) >= _MOST_BLOCKS:
                self._excluded.clear()
            found = np.zeros(BLOCK_ROWS, bool)
            for rows in exclusions[block]:
                found[rows] = True
            self._excluded[block] = found
        return self._excluded[block]
