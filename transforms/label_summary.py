"""Label counts and the raw sums of the input digest, per batch and added up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from ..mechanisms.noise.input_digest import RawSums, add_sums, digest_sums
from .batches import LabelledBatch, label_values, record_identities
from .errors import InputError, redact_errors
from .label_column import LabelColumn
from .noise_key_file import NoiseKeyFile
from .progress_log import Progress


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """Raw facts of some records; they stay inside the job.

    counts: (k,) int64, records per label of the domain. unusable: how many records have no label that can be used.
    sums: what the others' digest is made of.
    """

    counts: np.ndarray = field(repr=False)
    unusable: int
    sums: RawSums

    @property
    def records(self) -> int:
        """How many records have a label."""
        return int(self.counts.sum())


def summarize(batch: LabelledBatch, column: LabelColumn, secret: bytes) -> LabelSummary:
    """The summary of one batch. secret: 32 bytes."""
    values = label_values(batch, column.name)
    usable = np.isfinite(values)
    kept, values = batch.keep(usable), values[usable]
    identities = record_identities(kept, column.id_column)
    counts = np.bincount(column.indices(values, identities, secret), minlength=len(column.domain))
    return LabelSummary(counts, int((~usable).sum()), digest_sums(secret, identities, values))


class MergeSummaries(beam.CombineFn):
    """Adds summaries up: counts, unusable records, and the sums modulo 2^64."""

    def __init__(self, labels: int):
        self._labels = labels

    def create_accumulator(self) -> LabelSummary:
        return LabelSummary(np.zeros(self._labels, np.int64), 0, add_sums([]))

    def add_input(self, accumulator: LabelSummary, element: LabelSummary) -> LabelSummary:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[LabelSummary]) -> LabelSummary:
        parts = [self.create_accumulator(), *accumulators]
        return LabelSummary(
            np.sum([part.counts for part in parts], axis=0),
            sum(part.unusable for part in parts),
            add_sums(part.sums for part in parts),
        )

    def extract_output(self, accumulator: LabelSummary) -> LabelSummary:
        return accumulator


@dataclass
class SummarizeLabels(beam.PTransform):
    """Takes a PCollection of LabelledBatch; gives exactly one LabelSummary, also for no batch.

    The result is raw: whoever uses it adds noise before anything leaves the job. key: the secret behind the digest.
    """

    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelSummary]:
        """Raises InputError for an unbounded input: its labels are never all counted."""
        if not batches.is_bounded:
            raise InputError(
                "labels of an unbounded input cannot be counted to the end: fit on a bounded part of it, and apply the "
                "mechanism file to the stream (PrivatizeLabels with a StreamBinding)"
            )
        return (
            batches
            | "Summarize" >> beam.ParDo(_Summarize(self.column, self.key)).with_output_types(LabelSummary)
            | "Merge" >> beam.CombineGlobally(MergeSummaries(len(self.column.domain)))
        )


class _Summarize(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("counted")

    @redact_errors("counting labels")
    def process(self, batch: LabelledBatch) -> Iterator[LabelSummary]:
        yield summarize(batch, self._column, self._secret)
        self._progress.add(batch.batch.num_rows)
