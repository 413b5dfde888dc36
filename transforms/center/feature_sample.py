"""Uniform sample of the records' features, which are public, and the number of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from ...mechanisms.center.linear_center import MOST_SAMPLE
from ...mechanisms.release.center_release import CenterFeatures, FeatureSample, sample_words, smallest
from ..batches import LabelledBatch, record_identities
from ..errors import redact_errors
from ..noise_key_file import NoiseKeyFile
from ..progress_log import Progress
from .feature_columns import concatenated, feature_columns

# Records and samples that an accumulator holds before they are merged.
_MOST_HELD, _MOST_PARTS = 4 * MOST_SAMPLE, 256


class MergeSamples(beam.CombineFn):
    """Keeps the `MOST_SAMPLE` records with the smallest words.

    Samples are merged once they have `_MOST_HELD` records together, or are sent: each merge looks at all records.
    """

    def create_accumulator(self) -> list[FeatureSample]:
        return []

    def add_input(self, accumulator: list[FeatureSample], element: FeatureSample) -> list[FeatureSample]:
        accumulator.append(element)
        held = sum(len(part.words) for part in accumulator)
        return accumulator if held < _MOST_HELD and len(accumulator) < _MOST_PARTS else [merged(accumulator)]

    def merge_accumulators(self, accumulators: Iterable[list[FeatureSample]]) -> list[FeatureSample]:
        return [merged([part for parts in accumulators for part in parts])]

    def compact(self, accumulator: list[FeatureSample]) -> list[FeatureSample]:
        return [merged(accumulator)]

    def extract_output(self, accumulator: list[FeatureSample]) -> FeatureSample:
        return merged(accumulator)


def merged(parts: Sequence[FeatureSample]) -> FeatureSample:
    """Merges samples of disjoint sets of records."""
    columns = concatenated([part.columns for part in parts], [len(part.words) for part in parts])
    drawn = np.concatenate([np.zeros(0, np.uint64), *(part.words for part in parts)])
    return smallest(drawn, columns, sum(part.records for part in parts))


@dataclass
class SampleFeatures(beam.PTransform):
    """Samples features: a PCollection of LabelledBatch to exactly one FeatureSample, also for empty input.

    The label column is not looked at. Which records are sampled depends on their identities and the secret key alone.
    """

    features: CenterFeatures
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[FeatureSample]:
        return (
            batches
            | "Sample" >> beam.ParDo(_Sample(self.features, self.key)).with_output_types(FeatureSample)
            | "Merge" >> beam.CombineGlobally(MergeSamples())
        )


class _Sample(beam.DoFn):
    def __init__(self, features: CenterFeatures, key: NoiseKeyFile):
        self._features = features
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("sampled")

    def start_bundle(self) -> None:
        # Of this bundle only: what a failed bundle has seen is not in the sample.
        self._smallest = np.zeros(0, np.uint64)

    @redact_errors("sampling features")
    def process(self, batch: LabelledBatch) -> Iterator[FeatureSample]:
        features, records = self._features, batch.batch.num_rows
        drawn = sample_words(self._secret, record_identities(batch, features.id_column))
        if len(self._smallest) == MOST_SAMPLE:
            # All others are behind a whole sample of this bundle.
            kept = drawn <= self._smallest[-1]
            batch, drawn = batch.keep(kept), drawn[kept]
        self._smallest = np.sort(np.concatenate([self._smallest, drawn]))[:MOST_SAMPLE]
        # The order of the columns decides on that of the encoders: it is that of the names in every file.
        yield smallest(drawn, feature_columns(batch, features.names), records)
        self._progress.add(records)
