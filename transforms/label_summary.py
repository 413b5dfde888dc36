"""Label counts and raw sums of the input digest, per batch and merged over all batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection
from apache_beam.utils.shared import Shared

from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_counts import LabelSummary, add_summaries, count_labels
from .batches import LabelledBatch, center_values, check_bounded, record_identities, several_values, usable_labels
from .errors import InputError, redact_errors
from .group_indices import group_indices
from .noise_key_file import NoiseKeyFile
from .progress_log import Progress


def record_centers(batch: LabelledBatch, column: LabelColumn) -> tuple[tuple[str, np.ndarray] | None, int]:
    """Finds the centers of some records, and with groups the group of each.

    Returns the name of the center column with the centers as indices into the domain, shape (n,), integers, or None for
    labels without a center; and the number of centers that are missing or infinite. With groups, indices are of pairs
    of center and group (`LabelColumn.split`). Raises InputError if the center column is not numeric, or the column of
    the groups cannot be grouped by.
    """
    if column.center is None:
        return None, 0
    indices, missing = column.center_indices(center_values(batch, column.center))
    if column.groups is not None:
        indices = indices * column.groups.size + group_indices(batch, column.groups)
    return (column.center, indices), missing


def summarize(batch: LabelledBatch, column: LabelColumn, secret: bytes) -> LabelSummary:
    """Counts and digest sums of one batch; `secret` has 32 bytes.

    Raises InputError if the label, id or center column has the wrong type, or a record has no id.
    """
    check_bounded(batch, column.unit)
    values, usable = usable_labels(batch, column)
    kept, values = batch.keep(usable), values[usable]
    centers, missing = record_centers(kept, column)
    identities = record_identities(kept, column.id_column)
    places, several = None if centers is None else centers[1], several_values(batch, column.name)
    summary = count_labels(values, identities, column, secret, places, int((~usable).sum()), missing, several)
    return dataclasses.replace(summary, left_out=batch.left_out)


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
