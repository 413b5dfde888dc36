"""Records of a batch that are released, their groups, and a summary: label counts and raw sums of the input digest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import PCollection
from apache_beam.utils.shared import Shared

from ..mechanisms.center.group_ranges import LabelGroups
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import LabelRecords, LabelSummary, add_summaries, count_labels
from .arrow_values import is_text, single_values
from .batches import LabelledBatch, center_values, check_bounded, record_identities, several_values, usable_labels
from .errors import InputError, redact_errors
from .noise_key_file import NoiseKeyFile
from .progress_log import Progress

_INT64 = range(-(1 << 63), 1 << 63)
_UINT64 = range(1 << 64)


@dataclass(frozen=True, eq=False)
class UsableRecords:
    """Records of a batch that are released: those with a usable label in all private columns.

    Attributes:
      batch: The batch with these records alone.
      labels: Their labels, identities and centers.
      unusable: Rows of the other records, shape (m,), int64.
    """

    batch: LabelledBatch
    labels: LabelRecords
    unusable: np.ndarray


def usable_records(batch: LabelledBatch, column: LabelColumn, centered: bool = True) -> UsableRecords:
    """Finds the records of a batch that are released; `centered` is False for labels that are used without a center.

    Raises InputError if the records of units were not bounded, the label, id or center column has the wrong type, the
    column of the groups cannot be grouped by, or a record has no id.
    """
    check_bounded(batch, column.unit)
    values, usable = usable_labels(batch, column)
    kept, unusable = batch.keep(usable), batch.rows[~usable]
    centers, missing = _record_centers(kept, column) if centered else (None, 0)
    identities = record_identities(kept, column.id_column)
    return UsableRecords(
        kept, LabelRecords(column, values[usable], identities, centers, len(unusable), missing), unusable
    )


def _record_centers(batch: LabelledBatch, column: LabelColumn) -> tuple[np.ndarray | None, int]:
    """Centers of records as in `LabelRecords`, and the number of those that are missing or infinite."""
    if column.center is None or not column.around_center:
        return None, 0
    indices, missing = column.center_indices(center_values(batch, column.center))
    if column.groups is not None:
        indices = indices * column.groups.size + group_indices(batch, column.groups)
    return indices, missing


def is_group_type(kind: pa.DataType) -> bool:
    """Tests whether single values of a type can be declared as groups: text, bytes, integers and booleans."""
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)


def group_indices(batch: LabelledBatch, groups: LabelGroups) -> np.ndarray:
    """Group of each record, shape (n,), int64, in [0, groups.size).

    Raises InputError if the column holds neither text nor integers nor booleans.
    """
    values, present = _group_values(batch, groups.column)
    if is_text(values.type):
        known = {value.encode(errors="surrogateescape"): place for place, value in enumerate(groups.values)}
    else:
        allowed = _UINT64 if values.type == pa.uint64() else _INT64
        numbers = {_integer(value): place for place, value in enumerate(groups.values)}
        known = {number: place for number, place in numbers.items() if number is not None and number in allowed}
    found = np.full(batch.batch.num_rows, groups.size - 1)
    places = pc.index_in(values, value_set=pa.array(list(known), values.type))  # type: ignore[attr-defined]
    own = np.array([*known.values(), groups.size - 1])
    found[present] = own[places.fill_null(len(known)).to_numpy(zero_copy_only=False)]
    return found


def _group_values(batch: LabelledBatch, column: str) -> tuple[pa.Array, np.ndarray]:
    """Values of the records with exactly one, as int64, uint64 or large_binary; and a mask of these records."""
    found = batch.column(column)
    if found is None:
        return pa.nulls(0, pa.int64()), np.zeros(batch.batch.num_rows, bool)
    values, present = single_values(found)
    kind = values.type
    if not len(values):
        return pa.nulls(0, pa.int64()), present
    if not is_group_type(kind):
        raise InputError(
            f"{batch.source}: group column {column!r} holds {kind}, neither text nor integers nor booleans: name "
            f"another column with --center_groups, or for a CSV file give --csv_types {column}=string"
        )
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if is_text(kind):
        return values.cast(pa.large_binary()), present
    return values.cast(pa.uint64() if kind == pa.uint64() else pa.int64()), present


def _integer(text: str) -> int | None:
    """The integer that the text is in its plain form; None for any other text."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None


def summarize(batch: LabelledBatch, column: LabelColumn, secret: bytes) -> LabelSummary:
    """Counts and digest sums of one batch; `secret` has 32 bytes.

    Raises InputError as `usable_records`.
    """
    summary = count_labels(usable_records(batch, column).labels, secret)
    return dataclasses.replace(summary, several=several_values(batch, column.name), left_out=batch.left_out)


class MergeSummaries(beam.CombineFn):
    """Adds summaries: counts, unusable records, and digest sums modulo 2^64."""

    def __init__(self, cells: int):
        """Creates the combiner for a histogram of a number of cells."""
        self._cells = cells

    def create_accumulator(self) -> LabelSummary:
        return add_summaries(self._cells, [])

    def add_input(self, accumulator: LabelSummary, element: LabelSummary) -> LabelSummary:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[LabelSummary]) -> LabelSummary:
        return add_summaries(self._cells, accumulators)

    def extract_output(self, accumulator: LabelSummary) -> LabelSummary:
        return accumulator


@dataclass
class SummarizeLabels(beam.PTransform):
    """Summarizes all labels: a PCollection of LabelledBatch to exactly one LabelSummary, also for empty input.

    The result is raw: the consumer must add noise before anything leaves the job. `key` is the secret key of the digest
    and of randomized rounding.
    """

    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelSummary]:
        """Raises InputError for an unbounded input, whose histogram is never complete."""
        if not batches.is_bounded:
            raise InputError(
                "the label histogram of an unbounded input is never complete: fit on a bounded part of the input and "
                "apply the mechanism file to the stream (PrivatizeLabels with a StreamBinding)"
            )
        return (
            batches
            | "Summarize" >> beam.ParDo(_Summarize(self.column, self.key)).with_output_types(LabelSummary)
            | "Merge" >> beam.CombineGlobally(MergeSummaries(self.column.cells))
        )


class _Summarize(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key
        self._shared = Shared()

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = self._shared.acquire(lambda: Progress("counted"))

    @redact_errors("counting labels")
    def process(self, batch: LabelledBatch) -> Iterator[LabelSummary]:
        yield summarize(batch, self._column, self._secret)
        self._progress.add(batch.batch.num_rows)
