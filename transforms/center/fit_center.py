"""Release of a center, a model of the label, from exactly noised sums over records, and its column in batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.center.feature_rows import RowMap
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.release.center_passes import Pass, PassSums, add_passes
from ...mechanisms.release.feature_sample import FeatureSample
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.prior_release import RefusedRelease
from ..batches import Carried, LabelledBatch, as_argument, as_side_input, check_new
from ..errors import InputError, redact_errors
from ..job_metrics import PASSES
from ..label_summary import usable_records
from ..noise_binding import ID_GROUPS, Threshold, after_unique_ids
from ..noise_key_file import NoiseKeyFile
from ..progress_log import LOGGER, Progress
from ..tfrecord.example_encoder import encode_examples
from .feature_columns import center_columns


class MergePasses(beam.CombineFn):
    """Adds raw sums of a pass; None for none."""

    def create_accumulator(self) -> PassSums | None:
        return None

    def add_input(self, accumulator: PassSums | None, element: PassSums) -> PassSums | None:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[PassSums | None]) -> PassSums | None:
        return add_passes(each for each in accumulators if each is not None)

    def extract_output(self, accumulator: PassSums | None) -> PassSums | None:
        return accumulator


def summarize(
    one: Pass, batch: LabelledBatch, column: LabelColumn, design: Any, released: Any, secret: bytes
) -> PassSums:
    """Sums of a pass over one batch, which has the features; `secret` has 32 bytes.

    Raises InputError as `usable_records`, or if a feature has the wrong type or is the label.
    """
    row_map = one.row_map(design, released)
    check_features(column, row_map)
    records = usable_records(batch, column, centered=False)
    features = center_columns(records.batch, row_map)
    return one.summarize(records.labels, features, design, released, secret, batch.left_out)


def check_features(column: LabelColumn, map: RowMap) -> None:
    """Raises InputError if a label is among the features: a function of it would be released without noise."""
    for label in column.private:
        if label in map.columns:
            raise InputError(f"the label column {label!r} is a feature of the center, which is released as it is")


@dataclass
class DesignPass(beam.PTransform):
    """Decides what a pass sums, from a sample of features and what passes before it have released.

    Takes a PCollection of exactly one FeatureSample, of `SampleFeatures`; returns exactly one design, or None where the
    pass is not worth its price. The job fails with InputError if the center cannot be made.

    Attributes:
      one: The pass.
      epsilon: Budget of the whole release of a record.
      released: Exactly one element, what was released before; None for the first pass.
    """

    one: Pass
    epsilon: float
    released: PCollection[Any] | None = None

    def expand(self, sample: PCollection[FeatureSample]) -> PCollection[Any]:
        return (
            sample
            | "Design" >> beam.ParDo(_Design(self.one, self.epsilon), as_side_input(self.released))
            # With a checkpoint it is computed once for all consumers.
            | "Checkpoint" >> beam.Reshuffle()
        )


@dataclass
class ReleasePass(beam.PTransform):
    """Releases the sums of a pass under label DP.

    Takes a PCollection of LabelledBatch with label, id and features. Returns exactly one element: what the pass has
    released, and what was released before it where there is no design. The job fails with InputError as for
    `NoisyPrior`.

    Attributes:
      one: The pass.
      column: The private column.
      design: Exactly one design of the same records, from `DesignPass`, or carried by the batches.
      key: Reference to the secret key.
      released: Exactly one element, what was released before, or carried by the batches; None for the first pass.
      threshold: Limit on the records without a usable label.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    one: Pass
    column: LabelColumn
    design: PCollection[Any] | Carried[Any]
    key: NoiseKeyFile
    released: PCollection[Any] | Carried[Any] | None = None
    threshold: Threshold = field(default_factory=Threshold)
    id_groups: int = ID_GROUPS

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[Any]:
        # Ids are unique where labels were looked at before.
        unique = after_unique_ids(batches, self.column, self.id_groups) if self.released is None else []
        sides = as_side_input(self.design), as_side_input(self.released), *unique
        return (
            batches
            | "Sum"
            >> beam.ParDo(
                _Sum(self.one, self.column, self.key), as_argument(self.design), as_argument(self.released)
            ).with_output_types(PassSums)
            | "Add" >> beam.CombineGlobally(MergePasses())
            | "AddNoise" >> beam.ParDo(_AddNoise(self.one, self.column, self.key, self.threshold), *sides)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Design(beam.DoFn):
    def __init__(self, one: Pass, epsilon: float):
        self._one = one
        self._epsilon = epsilon

    @redact_errors("designing the center")
    def process(self, sample: FeatureSample, released: Any) -> Iterator[Any]:
        LOGGER.info("designing the %s of the center", self._one.name)
        try:
            yield self._one.design(sample, released, self._epsilon)
        except RefusedRelease as error:
            raise InputError(str(error)) from None


class _Sum(beam.DoFn):
    def __init__(self, one: Pass, column: LabelColumn, key: NoiseKeyFile):
        self._one = one
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("summed")

    @redact_errors("summing features")
    def process(self, batch: LabelledBatch, design: Any, released: Any) -> Iterator[PassSums]:
        design = batch.resolve(design)
        if design is not None:
            yield summarize(self._one, batch, self._column, design, batch.resolve(released), self._secret)
        self._progress.add(batch.batch.num_rows)


class _AddNoise(beam.DoFn):
    def __init__(self, one: Pass, column: LabelColumn, key: NoiseKeyFile, threshold: Threshold):
        self._one = one
        self._column = column
        self._key = key
        self._threshold = threshold

    @redact_errors("noising the center")
    def process(self, sums: PassSums | None, design: Any, released: Any, unique_ids: int = 0) -> Iterator[Any]:
        PASSES.inc()
        if design is None:
            yield released
            return
        records, unusable, left_out = (0, 0, 0) if sums is None else (sums.records, sums.unusable, sums.left_out)
        self._threshold.check(records, unusable, self._column, left_out=left_out)
        assert sums is not None
        LOGGER.info("fitting the center to its %s", self._one.name)
        yield self._one.release(sums, self._column, design, released, self._key.load())
        LOGGER.info("released the %s of the center", self._one.name)


@dataclass
class AppendCenter(beam.PTransform):
    """Adds the column of centers to each batch: the label of the domain that the center predicts for the record.

    `center` is exactly one LinearCenter, as a PCollection, carried by the batches, or as a value. `column.center` is
    the name of the new column; `only` are the columns to keep besides it, None for all.
    """

    center: PCollection[LinearCenter] | Carried[LinearCenter] | LinearCenter
    column: LabelColumn
    only: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a column without a center."""
        if self.column.center is None:
            raise ValueError("the label column has no center")

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelledBatch]:
        return batches | "Append" >> beam.ParDo(
            _Append(self.column, self.only), as_argument(self.center)
        ).with_output_types(LabelledBatch)


def append_center(
    batch: LabelledBatch, center: LinearCenter, column: LabelColumn, only: tuple[str, ...] | None = None
) -> LabelledBatch:
    """Adds the column of centers to a batch.

    In a batch of encoded records, it is added to the records as well. `column.center` is the name of the new column;
    `only` are the columns to keep besides it, None for all. Raises InputError if there is a column of this name, the
    label is a feature of the center, or a feature has the wrong type.
    """
    check_features(column, center.design.map)
    indices = center.indices(center_columns(batch, center.design.map))
    return with_centers(batch, column.labels[indices], column, only)


def with_centers(
    batch: LabelledBatch, values: np.ndarray, column: LabelColumn, only: tuple[str, ...] | None = None
) -> LabelledBatch:
    """Adds a column of given centers to a batch, labels of the domain, shape (n,), float64; as `append_center` does.

    Raises InputError if there is a column of this name.
    """
    name = column.center
    assert name is not None
    check_new(
        batch,
        name,
        "name the new column of centers with `center_column`, or for apply remove that column from the input",
    )
    kept = (
        batch.batch if only is None else batch.batch.select([each for each in batch.batch.schema.names if each in only])
    )
    encoded, column_of_centers = batch.encoded, pa.array(values)
    if encoded is not None:
        encoded, column_of_centers = encoded.with_feature(values, _example(name)), pa.array(values.astype(np.float32))
    schema = kept.schema.append(pa.field(name, column_of_centers.type))
    columns = pa.RecordBatch.from_arrays([*kept.columns, column_of_centers], schema=schema)
    return dataclasses.replace(batch, batch=columns, encoded=encoded)


def _example(name: str) -> bytes:
    return encode_examples(pa.RecordBatch.from_arrays([pa.array([0.0], pa.float32())], [name]))[0]


class _Append(beam.DoFn):
    def __init__(self, column: LabelColumn, only: tuple[str, ...] | None):
        self._column = column
        self._only = only

    @redact_errors("computing centers")
    def process(self, batch: LabelledBatch, center: Any) -> Iterator[LabelledBatch]:
        center = batch.resolve(center)
        if center.labels != len(self._column.domain):
            raise InputError("the center is for another label domain than the declared one")
        yield append_center(batch, center, self._column, self._only)
