"""Units of records, from the values of a public column, and counts of their records. No label enters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from ...mechanisms.noise.keyed_words import Identities
from ...mechanisms.release.unit_bound import unit_words
from ..arrow_values import NotWholeError, named_units, value_type
from ..batches import LabelledBatch, check_whole_input, has_label
from ..errors import InputError, redact_errors
from ..noise_key_file import NoiseKeyFile
from ..shown_transform import ShownTransform

GROUPS = 64
"""Default number of groups into which units are sorted."""

# Records after which the counts of a bundle are sent on.
_MOST_GATHERED = 1 << 20


def units_of_records(
    batch: LabelledBatch, labels: Sequence[str], column: str
) -> tuple[LabelledBatch, Identities, np.ndarray]:
    """Selects the records of a batch that have a usable label and a unit.

    Whether a record has a label is public. `labels` are the private columns; a label in each of them must be usable.
    Returns these records, their units, and the rows of the records with a usable label but without a unit. Raises
    InputError if a label or the unit column has the wrong type.
    """
    usable = batch.keep(np.logical_and.reduce([has_label(batch, label) for label in labels]))
    units, present = _unit_identities(usable, column)
    return usable.keep(present), units, usable.rows[~present]


def _unit_identities(batch: LabelledBatch, column: str) -> tuple[Identities, np.ndarray]:
    """Units of the m records that have exactly one, and a mask of these records, shape (n,), bool.

    Empty text names no unit. Raises InputError if there is no such column, or it holds neither integers nor text.
    """
    found = batch.column(column)
    if found is None:
        if batch.batch.num_rows:
            raise InputError(f"{batch.source}: there is no column {column!r}: name another column with `unit_column`")
        found = pa.nulls(0, pa.int64())
    try:
        units = named_units(found, column)
    except NotWholeError as error:
        problem = error.problem(f"the unit in {column!r}")
        raise InputError(
            f"{batch.source}: row {batch.rows[error.index]}: {problem}: correct it, or name another column with "
            "`unit_column`"
        ) from None
    if units is None:
        kind = value_type(found.type)
        raise InputError(
            f"{batch.source}: unit column {column!r} holds {kind}, not integers, text or bytes: write it as "
            f"integers or text (a CSV file is read so with `csv_types` {column}=string), or name another column with "
            "`unit_column`"
        )
    return units


@dataclass(frozen=True, eq=False)
class _Counted:
    """Records of some units, shape (u,) each."""

    units: np.ndarray = field(repr=False)
    records: np.ndarray


def _add_up(parts: Iterable[_Counted]) -> _Counted:
    parts = list(parts)
    units, place = np.unique(np.concatenate([part.units for part in parts]), return_inverse=True)
    records = np.zeros(len(units), np.int64)
    np.add.at(records, place, np.concatenate([part.records for part in parts]))
    return _Counted(units, records)


@dataclass
class CountUnits(ShownTransform):
    """Counts the units with each number of records, of those with a usable label.

    Takes a bounded PCollection of LabelledBatch with the columns of label and unit, and returns exactly one dictionary:
    number of units by number of records. Records without a unit are not counted.

    Attributes:
      column: Name of the label column, of which only is read whether a record has one.
      unit: Name of the column of units.
      key: Reference to the secret key.
      groups: Number of groups into which units are sorted.
    """

    column: str
    unit: str
    key: NoiseKeyFile
    groups: int = GROUPS

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[dict[int, int]]:
        """Raises InputError for windows, or an unbounded input."""
        check_whole_input(batches, self)
        counted: PCollection[tuple[int, _Counted]] = batches | "CountInBundles" >> beam.ParDo(
            _CountUnits(self.column, self.unit, self.key, self.groups)
        ).with_output_types(tuple[int, _Counted])
        return (
            counted
            | "GroupUnits" >> beam.GroupByKey()
            | "CountUnits" >> beam.MapTuple(lambda _, parts: _histogram(parts)).with_output_types(dict[int, int])
            | "AddCounts" >> beam.CombineGlobally(_add)
        )


def _histogram(parts: Iterable[_Counted]) -> dict[int, int]:
    records, units = np.unique(_add_up(parts).records, return_counts=True)
    return dict(zip(records.tolist(), units.tolist(), strict=True))


def _add(parts: Iterable[dict[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for part in parts:
        for records, units in part.items():
            total[records] = total.get(records, 0) + units
    return total


class _CountUnits(beam.DoFn):
    def __init__(self, label: str, unit: str, key: NoiseKeyFile, groups: int):
        self._label = label
        self._unit = unit
        self._key = key
        self._groups = groups

    def setup(self) -> None:
        self._secret = self._key.load()

    def start_bundle(self) -> None:
        self._gathered: list[_Counted] = []
        self._size = 0

    @redact_errors("counting units")
    def process(self, batch: LabelledBatch) -> Iterator[tuple[int, _Counted]]:
        _, units, _ = units_of_records(batch, [self._label], self._unit)
        if len(units):
            self._gathered.append(_Counted(unit_words(self._secret, units), np.ones(len(units), np.int64)))
            self._size += len(units)
        if self._size >= _MOST_GATHERED:
            yield from self._flush()

    @redact_errors("counting units")
    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._flush())

    def _flush(self) -> Iterator[tuple[int, _Counted]]:
        if not self._gathered:
            return
        found = _add_up(self._gathered)
        self._gathered, self._size = [], 0
        group = found.units % np.uint64(self._groups)
        for number in np.unique(group).tolist():
            mask = group == number
            yield int(number), _Counted(found.units[mask], found.records[mask])
