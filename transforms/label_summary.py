"""Records of a batch that are released, and a summary: label counts and raw sums of the input digest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection
from apache_beam.utils.shared import Shared

from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import LabelRecords, LabelSummary, add_summaries, count_labels
from .batches import (
    LabelledBatch,
    center_values,
    check_bounded,
    check_whole_input,
    record_identities,
    several_values,
    usable_labels,
)
from .errors import InputError, redact_errors
from .noise_key_file import NoiseKeyFile
from .progress_log import Progress


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

    Raises InputError if the records of units were not bounded, the label, id or center column has the wrong type, or a
    record has no id.
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
    return column.center_indices(center_values(batch, column.center))


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

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelSummary]:
        """Raises InputError for an unbounded input, whose histogram is never complete."""
        if not batches.is_bounded:
            raise InputError(
                "the label histogram of an unbounded input is never complete: fit on a bounded part of the input and "
                "apply the mechanism file to the stream (PrivatizeLabels with a StreamBinding)"
            )
        check_whole_input(batches, self)
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
