"""Uniform sample of the records' features, which are public, and the number of records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.release.feature_sample import CenterFeatures, FeatureSample, sample_words, smallest
from ..batches import LabelledBatch, record_identities
from ..errors import redact_errors
from ..noise_key_file import NoiseKeyFile
from ..progress_log import Progress
from ..tfrecord.example_columns import ExampleColumns
from ..tfrecord.framing import PADDING, Frames
from .feature_columns import chosen_features, concatenated, feature_columns

# Whole samples, and samples of any size, that an accumulator holds before they are merged.
_MOST_WHOLE, _MOST_PARTS = 4, 256
_LARGEST = np.uint64((1 << 64) - 1)


class MergeSamples(beam.CombineFn):
    """Keeps the `most` records with the smallest words.

    Samples are merged once they have `_MOST_WHOLE` times as many records together, or are sent: each merge looks at all
    records.
    """

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def create_accumulator(self) -> list[FeatureSample]:
        return []

    def add_input(self, accumulator: list[FeatureSample], element: FeatureSample) -> list[FeatureSample]:
        accumulator.append(element)
        held = sum(len(part.words) for part in accumulator)
        few = held < _MOST_WHOLE * self._most and len(accumulator) < _MOST_PARTS
        return accumulator if few else self.compact(accumulator)

    def merge_accumulators(self, accumulators: Iterable[list[FeatureSample]]) -> list[FeatureSample]:
        return self.compact([part for parts in accumulators for part in parts])

    def compact(self, accumulator: list[FeatureSample]) -> list[FeatureSample]:
        return [merged(accumulator, self._most)]

    def extract_output(self, accumulator: list[FeatureSample]) -> FeatureSample:
        return merged(accumulator, self._most)


def merged(parts: Sequence[FeatureSample], most: int) -> FeatureSample:
    """Merges samples of disjoint sets of records."""
    columns = concatenated([part.columns for part in parts], [len(part.words) for part in parts])
    drawn = np.concatenate([np.zeros(0, np.uint64), *(part.words for part in parts)])
    return smallest(drawn, columns, sum(part.records for part in parts), most)


@dataclass
class SampleFeatures(beam.PTransform):
    """Samples features: a PCollection of LabelledBatch to exactly one FeatureSample, also for empty input.

    The label column is not looked at. Which records are sampled depends on their identities and the secret key alone,
    and of batches with encoded records, only the features of those are decoded that may be in the sample.
    """

    features: CenterFeatures
    key: NoiseKeyFile

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[FeatureSample]:
        return (
            batches
            | "Sample" >> beam.ParDo(_Sample(self.features, self.key)).with_output_types(FeatureSample)
            | "Merge" >> beam.CombineGlobally(MergeSamples(self.features.most))
            | "Choose" >> beam.Map(chosen_features, self.features).with_output_types(FeatureSample)
        )


def with_features(batch: LabelledBatch, names: Sequence[str]) -> LabelledBatch:
    """Adds those features to a batch that only its encoded records have; any other batch is unchanged.

    Raises InputError if a record is not a tf.Example, or a feature changes its type.
    """
    absent = [name for name in names if batch.column(name) is None]
    if batch.encoded is None or not absent:
        return batch
    octets, bounds = batch.encoded.packed()
    frames = Frames(octets.tobytes() + bytes(PADDING), bounds)
    found = ExampleColumns(batch.source, absent).read(frames)
    columns = dict(zip(batch.batch.schema.names, batch.batch.columns, strict=True))
    columns |= zip(found.schema.names, found.columns, strict=True)
    if not columns:
        return batch
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_pydict(columns), encoded=None)


class _Sample(beam.DoFn):
    def __init__(self, features: CenterFeatures, key: NoiseKeyFile):
        self._features = features
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("sampled")
        # Of all bundles, also of those that failed: these records are read again, and no word counts twice here.
        self._smallest = np.zeros(0, np.uint64)

    @redact_errors("sampling features")
    def process(self, batch: LabelledBatch) -> Iterator[FeatureSample]:
        features, records = self._features, len(batch.rows)
        drawn = sample_words(self._secret, record_identities(batch, features.id_column))
        kept = self._may_be_sampled(drawn)
        found = feature_columns(with_features(batch.keep(kept), features.names), features.names)
        yield smallest(drawn[kept], found, records, features.most)
        self._progress.add(records)

    def _may_be_sampled(self, drawn: np.ndarray) -> np.ndarray:
        """Mask of the words that are not behind those of a whole sample."""
        most = self._features.most
        limit = self._smallest[-1] if len(self._smallest) == most else _LARGEST
        # Not by np.union1d, which hashes in new versions of numpy: that takes as long as reading features of Parquet.
        found = np.sort(np.concatenate([self._smallest, drawn[drawn <= limit]]))
        distinct = np.full(len(found), True)
        np.not_equal(found[1:], found[:-1], out=distinct[1:])
        self._smallest = found[distinct][:most]
        return drawn <= (self._smallest[-1] if len(self._smallest) == most else _LARGEST)
