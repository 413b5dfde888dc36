"""Release of a center of classes from exactly noised counts and sums, and draws of classes from its probabilities.

The passes over labels follow each other: counts of the classes, class sums of the features, counts of cells. The last
pass computes the probabilities of each record from its features and draws a class from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from ...mechanisms.center.class_center import (
    ClassCellDesign,
    ClassCenter,
    design_class_cells,
    design_classes,
)
from ...mechanisms.center.class_logit import LinearClasses, LogitDesign
from ...mechanisms.release.center_release import FeatureSample, MomentSummary, add_moments
from ...mechanisms.release.class_release import (
    ClassCellSummary,
    ClassCounts,
    add_class_cells,
    count_class_cells,
    release_class_counts,
    release_class_sums,
    release_classes,
    sum_class_rows,
)
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.label_records import LabelSummary
from ...mechanisms.release.prior_release import RefusedRelease
from ..batches import Carried, LabelledBatch, as_argument, as_side_input
from ..errors import InputError, redact_errors
from ..label_summary import SummarizeLabels, usable_records
from ..noise_binding import ID_GROUPS, Threshold, after_unique_ids
from ..noise_key_file import NoiseKeyFile
from ..progress_log import LOGGER
from .feature_columns import NO_FEATURES, center_columns
from .fit_center import KeyedFn, MergeSummaries, SummingFn, check_features


@dataclass
class ReleaseClassCounts(beam.PTransform):
    """Releases the counts of the classes under label DP, the first part of a center of classes.

    Takes a PCollection of LabelledBatch (label and id columns suffice); returns exactly one ClassCounts. The job fails
    with InputError as for `NoisyPrior`.

    Attributes:
      column: The private column, of classes.
      epsilon: Budget of the whole center.
      key: Reference to the secret key.
      threshold: Limit on the records without a usable label.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    threshold: Threshold = field(default_factory=Threshold)
    id_groups: int = ID_GROUPS

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[ClassCounts]:
        return (
            batches
            | "SummarizeLabels" >> SummarizeLabels(self.column, self.key)
            | "AddNoise"
            >> beam.ParDo(
                _ReleaseCounts(self.column, self.epsilon, self.key, self.threshold),
                *after_unique_ids(batches, self.column, self.id_groups),
            ).with_output_types(ClassCounts)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _ReleaseCounts(KeyedFn):
    def __init__(self, column: LabelColumn, epsilon: float, key: NoiseKeyFile, threshold: Threshold):
        super().__init__(column, key)
        self._epsilon = epsilon
        self._threshold = threshold

    @redact_errors("noising the counts")
    def process(self, summary: LabelSummary, unique_ids: int = 0) -> Iterator[ClassCounts]:
        counts = summary.records, summary.unusable, self._column.described, summary.several, summary.left_out
        self._threshold.check(*counts)
        try:
            released = release_class_counts(summary, self._column, self._epsilon, self._key.load())
        except RefusedRelease as error:
            raise InputError(str(error)) from None
        yield released
        LOGGER.info("released the counts of %s classes over %s records", len(summary.counts), f"{summary.records:,}")


@dataclass
class DesignClasses(beam.PTransform):
    """Chooses the linear part of a center of classes: a PCollection of one ClassCounts to one LogitDesign.

    `sample` is exactly one FeatureSample. The job fails with InputError if features tell no records apart.
    """

    sample: PCollection[FeatureSample]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, counts: PCollection[ClassCounts]) -> PCollection[LogitDesign]:
        return (
            counts
            | "Design" >> beam.ParDo(_Design(), as_side_input(self.sample)).with_output_types(LogitDesign)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Design(beam.DoFn):
    @redact_errors("designing the center")
    def process(self, counts: ClassCounts, sample: FeatureSample) -> Iterator[LogitDesign]:
        design = design_classes(sample.columns, counts.counts, counts.parts)
        if design is None:
            raise InputError(NO_FEATURES)
        yield design


@dataclass
class FitClassSums(beam.PTransform):
    """Releases class sums under label DP: a PCollection of LabelledBatch with features to exactly one LinearClasses.

    Attributes:
      column: The private column.
      design: Exactly one LogitDesign, or carried by the batches.
      key: Reference to the secret key.
    """

    column: LabelColumn
    design: PCollection[LogitDesign] | Carried[LogitDesign]
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LinearClasses]:
        return (
            batches
            | "SumRows"
            >> beam.ParDo(_SumRows(self.column, self.key), as_argument(self.design)).with_output_types(MomentSummary)
            | "AddSums" >> beam.CombineGlobally(MergeSummaries(add_moments))
            | "AddNoise"
            >> beam.ParDo(_ReleaseSums(self.column, self.key), as_side_input(self.design)).with_output_types(
                LinearClasses
            )
            | "Checkpoint" >> beam.Reshuffle()
        )


class _SumRows(SummingFn):
    @redact_errors("summing features")
    def process(self, batch: LabelledBatch, design: Any) -> Iterator[MomentSummary]:
        design = batch.resolve(design)
        check_features(self._column, design.map)
        records = usable_records(batch, self._column, centered=False)
        rows = design.map.rows(center_columns(records.batch, design.map))
        yield sum_class_rows(records.labels, rows, self._secret, batch.left_out)
        self._progress.add(batch.batch.num_rows)


class _ReleaseSums(KeyedFn):
    @redact_errors("noising the center")
    def process(self, summary: MomentSummary, design: LogitDesign) -> Iterator[LinearClasses]:
        yield release_class_sums(summary, self._column, design, self._key.load())
        LOGGER.info("computed the linear part of the center")


@dataclass
class DesignClassCells(beam.PTransform):
    """Chooses the cells of a center of classes: a PCollection of one LinearClasses to one ClassCellDesign, or None.

    Attributes:
      sample: Exactly one FeatureSample.
      counts: Exactly one ClassCounts.
    """

    sample: PCollection[FeatureSample]
    counts: PCollection[ClassCounts]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, linear: PCollection[LinearClasses]) -> PCollection[ClassCellDesign | None]:
        return (
            linear
            | "Design" >> beam.ParDo(_DesignCells(), as_side_input(self.sample), as_side_input(self.counts))
            | "Checkpoint" >> beam.Reshuffle()
        )


class _DesignCells(beam.DoFn):
    @redact_errors("designing the center")
    def process(
        self, linear: LinearClasses, sample: FeatureSample, counts: ClassCounts
    ) -> Iterator[ClassCellDesign | None]:
        yield design_class_cells(sample.columns, linear, counts.counts, counts.parts)


@dataclass
class FitClassCells(beam.PTransform):
    """Releases the counts of cells under label DP, and with them the center.

    Takes a PCollection of LabelledBatch with features; returns exactly one ClassCenter.

    Attributes:
      column: The private column.
      counts: Exactly one ClassCounts.
      linear: Exactly one LinearClasses, or carried by the batches.
      design: Exactly one ClassCellDesign or None, or carried by the batches.
      key: Reference to the secret key.
    """

    column: LabelColumn
    counts: PCollection[ClassCounts]
    linear: PCollection[LinearClasses] | Carried[LinearClasses]
    design: PCollection[ClassCellDesign | None] | Carried[ClassCellDesign | None]
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[ClassCenter]:
        carried = as_argument(self.linear), as_argument(self.design)
        sides = (as_side_input(each) for each in (self.counts, self.linear, self.design))
        return (
            batches
            | "CountCells"
            >> beam.ParDo(_CountCells(self.column, self.key), *carried).with_output_types(ClassCellSummary)
            | "AddCells" >> beam.CombineGlobally(MergeSummaries(add_class_cells))
            | "AddNoise" >> beam.ParDo(_ReleaseCells(self.column, self.key), *sides).with_output_types(ClassCenter)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _CountCells(SummingFn):
    @redact_errors("counting cells")
    def process(self, batch: LabelledBatch, linear: Any, design: Any) -> Iterator[ClassCellSummary]:
        linear, design = batch.resolve(linear), batch.resolve(design)
        if design is not None:
            records = usable_records(batch, self._column, centered=False)
            features = center_columns(records.batch, linear.design.map)
            yield count_class_cells(records.labels, features, linear, design, self._secret, batch.left_out)
        self._progress.add(batch.batch.num_rows)


class _ReleaseCells(KeyedFn):
    @redact_errors("noising the center")
    def process(
        self,
        summary: ClassCellSummary | None,
        counts: ClassCounts,
        linear: LinearClasses,
        design: ClassCellDesign | None,
    ) -> Iterator[ClassCenter]:
        yield release_classes(summary, self._column, counts, linear, design, self._key.load())
        LOGGER.info("computed the center")
