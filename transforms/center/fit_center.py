"""Release of a center, a model of the label, from exactly noised sums over records, and its column in batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.center.cell_center import CellDesign, design_cells
from ...mechanisms.center.feature_rows import RowMap
from ...mechanisms.center.linear_center import CenterDesign, LinearCenter, design_center
from ...mechanisms.release.center_release import (
    CellSummary,
    FeatureSample,
    MomentSummary,
    add_cells,
    add_moments,
    release_cells,
    release_center,
    sum_cells,
    sum_moments,
)
from ...mechanisms.release.label_column import LabelColumn
from ..batches import Carried, LabelledBatch, as_argument, as_side_input
from ..errors import InputError, redact_errors
from ..label_summary import usable_records
from ..noise_binding import ID_GROUPS, Threshold, after_unique_ids
from ..noise_key_file import NoiseKeyFile
from ..progress_log import LOGGER, Progress
from ..tfrecord.example_encoder import encode_examples
from .feature_columns import center_columns


class MergeSummaries(beam.CombineFn):
    """Adds raw summaries.

    `add` is a function (summaries of disjoint sets of records) -> their sum; of none of them, it may be None.
    """

    def __init__(self, add: Callable[[Iterable[Any]], Any]):
        super().__init__()
        self._add = add

    def create_accumulator(self) -> Any:
        return self._add([])

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return self._add(each for each in accumulators if each is not None)

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def summarize_moments(batch: LabelledBatch, column: LabelColumn, design: CenterDesign, secret: bytes) -> MomentSummary:
    """Sums of one batch, which has the features; `secret` has 32 bytes.

    Raises InputError as `usable_records`, or if a feature has the wrong type or is the label.
    """
    check_features(column, design.map)
    records = usable_records(batch, column, centered=False)
    return sum_moments(records.labels, center_rows(records.batch, design.map), secret, batch.left_out)


def check_features(column: LabelColumn, map: RowMap) -> None:
    """Raises InputError if a label is among the features: a function of it would be released without noise."""
    for label in column.private:
        if label in map.columns:
            raise InputError(f"the label column {label!r} is a feature of the center, which is released as it is")


def center_rows(batch: LabelledBatch, map: RowMap) -> np.ndarray:
    """Rows of a batch, shape (n, m + 1), int64."""
    return map.rows(center_columns(batch, map))


@dataclass
class DesignCenter(beam.PTransform):
    """Decides on the form of a linear center, from a sample of its features.

    Takes a PCollection of exactly one FeatureSample, of `SampleFeatures`; returns exactly one CenterDesign. `epsilon`
    is the total budget of center, prior and labels.
    """

    epsilon: float

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, sample: PCollection[FeatureSample]) -> PCollection[CenterDesign]:
        return (
            sample
            | "Design" >> beam.ParDo(_Design(self.epsilon)).with_output_types(CenterDesign)
            # With a checkpoint it is computed once for all consumers.
            | "Checkpoint" >> beam.Reshuffle()
        )


@dataclass
class FitLinearCenter(beam.PTransform):
    """Releases a linear center under label DP.

    Takes a PCollection of LabelledBatch with label, id and features. Returns exactly one LinearCenter, which has spent
    its `design.epsilon`. The job fails with InputError as for `NoisyPrior`.

    Attributes:
      column: The private column.
      design: Exactly one CenterDesign of the same records, from `DesignCenter`, or carried by the batches.
      key: Reference to the secret key.
      threshold: Limit on the records without a usable label.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    column: LabelColumn
    design: PCollection[CenterDesign] | Carried[CenterDesign]
    key: NoiseKeyFile
    threshold: Threshold = field(default_factory=Threshold)
    id_groups: int = ID_GROUPS

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LinearCenter]:
        return (
            batches
            | "SumMoments"
            >> beam.ParDo(_SumMoments(self.column, self.key), as_argument(self.design)).with_output_types(MomentSummary)
            | "AddMoments" >> beam.CombineGlobally(MergeSummaries(add_moments))
            | "AddNoise"
            >> beam.ParDo(
                _ReleaseCenter(self.column, self.key, self.threshold),
                as_side_input(self.design),
                *after_unique_ids(batches, self.column, self.id_groups),
            ).with_output_types(LinearCenter)
            | "Checkpoint" >> beam.Reshuffle()
        )


@dataclass
class DesignCells(beam.PTransform):
    """Decides on the cells of a center, from a sample of its features and the linear center.

    Takes a PCollection of exactly one LinearCenter; returns exactly one CellDesign, or None where cells are not worth
    their price.

    Attributes:
      sample: Exactly one FeatureSample.
      epsilon: Total budget of center, prior and labels.
    """

    sample: PCollection[FeatureSample]
    epsilon: float

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, center: PCollection[LinearCenter]) -> PCollection[CellDesign | None]:
        return (
            center
            | "Design" >> beam.ParDo(_DesignCells(self.epsilon), as_side_input(self.sample))
            | "Checkpoint" >> beam.Reshuffle()
        )


@dataclass
class FitCells(beam.PTransform):
    """Releases the cells of a center under label DP, if they are worth their price.

    Takes a PCollection of LabelledBatch with label, id and features. Returns exactly one LinearCenter, with cells a
    CellCenter, which has spent its epsilon. The job fails with InputError as for `NoisyPrior`.

    Attributes:
      column: The private column.
      linear: Exactly one LinearCenter of the same records, or carried by the batches.
      design: Exactly one CellDesign or None, of `DesignCells`, or carried by the batches.
      key: Reference to the secret key.
      threshold: Limit on the records without a usable label.
    """

    column: LabelColumn
    linear: PCollection[LinearCenter] | Carried[LinearCenter]
    design: PCollection[CellDesign | None] | Carried[CellDesign | None]
    key: NoiseKeyFile
    threshold: Threshold = field(default_factory=Threshold)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LinearCenter]:
        carried = as_argument(self.linear), as_argument(self.design)
        return (
            batches
            | "SumCells" >> beam.ParDo(_SumCells(self.column, self.key), *carried).with_output_types(CellSummary)
            | "AddCells" >> beam.CombineGlobally(MergeSummaries(add_cells))
            | "AddNoise"
            >> beam.ParDo(
                _ReleaseCells(self.column, self.key, self.threshold),
                as_side_input(self.linear),
                as_side_input(self.design),
            ).with_output_types(LinearCenter)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Design(beam.DoFn):
    def __init__(self, epsilon: float):
        self._epsilon = epsilon

    @redact_errors("designing the center")
    def process(self, sample: FeatureSample) -> Iterator[CenterDesign]:
        yield design_center(sample.columns, max(sample.records, 1), self._epsilon)


class _DesignCells(beam.DoFn):
    def __init__(self, epsilon: float):
        self._epsilon = epsilon

    @redact_errors("designing the center")
    def process(self, center: LinearCenter, sample: FeatureSample) -> Iterator[CellDesign | None]:
        yield design_cells(sample.columns, center, max(sample.records, 1), self._epsilon)


class KeyedFn(beam.DoFn):
    """Stage of a pass that needs the label column and the secret key."""

    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key


class SummingFn(KeyedFn):
    """Sums over the records of batches."""

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("summed")


class _Releasing(KeyedFn):
    """Adds noise to sums over all records."""

    def __init__(self, column: LabelColumn, key: NoiseKeyFile, threshold: Threshold):
        super().__init__(column, key)
        self._threshold = threshold


class _SumMoments(SummingFn):
    @redact_errors("summing features")
    def process(self, batch: LabelledBatch, design: Any) -> Iterator[MomentSummary]:
        yield summarize_moments(batch, self._column, batch.resolve(design), self._secret)
        self._progress.add(batch.batch.num_rows)


class _ReleaseCenter(_Releasing):
    @redact_errors("noising the center")
    def process(self, summary: MomentSummary, design: CenterDesign, unique_ids: int = 0) -> Iterator[LinearCenter]:
        self._threshold.check(summary.records, summary.unusable, self._column.described, left_out=summary.left_out)
        center = release_center(summary, self._column, design, self._key.load())
        LOGGER.info("computed the center")
        yield center


class _SumCells(SummingFn):
    @redact_errors("summing residuals")
    def process(self, batch: LabelledBatch, linear: Any, design: Any) -> Iterator[CellSummary]:
        linear, design = batch.resolve(linear), batch.resolve(design)
        if design is not None:
            records = usable_records(batch, self._column, centered=False)
            features = center_columns(records.batch, linear.design.map)
            yield sum_cells(records.labels, features, linear, design, self._secret, batch.left_out)
        self._progress.add(batch.batch.num_rows)


class _ReleaseCells(_Releasing):
    @redact_errors("noising the center")
    def process(
        self, summary: CellSummary | None, linear: LinearCenter, design: CellDesign | None
    ) -> Iterator[LinearCenter]:
        if summary is None or design is None:
            yield linear
            return
        self._threshold.check(summary.records, summary.unusable, self._column.described, left_out=summary.left_out)
        yield release_cells(summary, self._column, linear, design, self._key.load())
        LOGGER.info("computed the cells of the center")


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
        super().__init__()
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
    if batch.column(name) is not None:
        raise InputError(
            f"{batch.source}: there is a column {name!r} already: name the new column of centers with --center_column, "
            "or for apply remove that column from the input"
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
