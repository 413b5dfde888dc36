"""Release of a linear center, and the column of centers that it predicts from the features.

The center is a model of the label under label DP, computed from one exactly noised sum per feature.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.center.feature_rows import Category, MappedColumns, RowMap
from ...mechanisms.center.linear_center import CenterDesign, LinearCenter, design_center, moment_sums, noised_sums
from ...mechanisms.noise.input_digest import RawSums, add_sums, digest_sums
from ...mechanisms.noise.keyed_words import Identities, integer_identities, keyed_hash, words
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.label_records import label_sums
from ..batches import Carried, LabelledBatch, as_argument, as_side_input
from ..errors import InputError, redact_errors
from ..label_summary import usable_records
from ..noise_binding import ID_GROUPS, Threshold, after_unique_ids
from ..noise_key_file import NoiseKeyFile
from ..progress_log import LOGGER, Progress
from ..tfrecord.example_encoder import encode_examples
from .center_features import CenterFeatures, FeatureSample, SampleFeatures, feature_columns, hashed_texts

# Sums are below 2^53 records times 2^44.
_SUM_BYTES = 16


@dataclass
class DesignCenter(beam.PTransform):
    """Decides on the form of a linear center, from a sample of its features.

    Takes a PCollection of LabelledBatch, for which the label need not be read; returns exactly one CenterDesign.
    `epsilon` is the total budget of center, prior and labels.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    features: CenterFeatures

    def __post_init__(self) -> None:
        """Raises ValueError if the label is one of the features."""
        super().__init__()
        if self.column.name in self.features.names:
            raise ValueError(f"the label {self.column.name!r} must not be a feature: centers are released as they are")

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[CenterDesign]:
        return (
            batches
            | "SampleFeatures" >> SampleFeatures(self.features, self.key)
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
            | "AddMoments" >> beam.CombineGlobally(MergeMoments())
            | "AddNoise"
            >> beam.ParDo(
                _ReleaseCenter(self.column, self.key, self.threshold),
                as_side_input(self.design),
                *after_unique_ids(batches, self.column, self.id_groups),
            ).with_output_types(LinearCenter)
            | "Checkpoint" >> beam.Reshuffle()
        )


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


@dataclass(frozen=True, eq=False)
class MomentSummary:
    """Raw, unprotected sums over some records. It must not leave the job.

    Attributes:
      sums: Sums of rows times labels, exact integers; empty for no record.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      digest: Raw sums of the input digest over the records with a usable label.
      rows: Raw sums of a digest of their rows.
      left_out: Number of records that were left out because their units have too many; public.
    """

    sums: tuple[int, ...] = field(repr=False)
    records: int
    unusable: int
    digest: RawSums
    rows: RawSums
    left_out: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """State of a fixed size: runners show the sizes of elements, and that of an integer depends on its value."""
        sums = b"".join(each.to_bytes(_SUM_BYTES, "little", signed=True) for each in self.sums)
        return {**vars(self), "sums": sums}

    def __setstate__(self, state: dict[str, Any]) -> None:
        octets = state["sums"]
        parts = [octets[start : start + _SUM_BYTES] for start in range(0, len(octets), _SUM_BYTES)]
        vars(self).update(state, sums=tuple(int.from_bytes(part, "little", signed=True) for part in parts))


class MergeMoments(beam.CombineFn):
    """Adds moment summaries."""

    def create_accumulator(self) -> MomentSummary:
        return MomentSummary((), 0, 0, add_sums([]), add_sums([]))

    def add_input(self, accumulator: MomentSummary, element: MomentSummary) -> MomentSummary:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[MomentSummary]) -> MomentSummary:
        parts = list(accumulators)
        present = [part.sums for part in parts if part.sums]
        return MomentSummary(
            tuple(sum(each) for each in zip(*present, strict=True)),
            sum(part.records for part in parts),
            sum(part.unusable for part in parts),
            add_sums(part.digest for part in parts),
            add_sums(part.rows for part in parts),
            sum(part.left_out for part in parts),
        )

    def extract_output(self, accumulator: MomentSummary) -> MomentSummary:
        return accumulator


def summarize_moments(batch: LabelledBatch, column: LabelColumn, design: CenterDesign, secret: bytes) -> MomentSummary:
    """Sums of one batch, which has the features; `secret` has 32 bytes.

    Raises InputError as `usable_records`, or if a feature has the wrong type.
    """
    records = usable_records(batch, column, centered=False)
    labels, rows = records.labels, _center_rows(records.batch, design.map)
    sums = moment_sums(rows, labels.indices(secret), len(column.domain))
    digest, row_digest = label_sums(labels, secret), _row_sums(secret, column.name, labels.identities, rows)
    return MomentSummary(tuple(sums), len(labels), labels.unusable, digest, row_digest, batch.left_out)


def _row_sums(secret: bytes, name: str, identities: Identities, rows: np.ndarray) -> RawSums:
    """Raw sums of a digest of rows, in the place of labels and centers.

    Each row is reduced by two linear hashes modulo 2^64 under secret multipliers, of which the upper 53 and 31 bits are
    taken. Rows that differ have entries that differ by less than 2^26, so a hash is equal with a probability of at most
    2^-38 and 2^-30: both with 2^-68, before the digest adds its own 2^-128.
    """
    drawn = words(secret, b"center rows", integer_identities("component", np.arange(2 * rows.shape[1])))
    first, second = (np.einsum("ij,j->i", rows.view(np.uint64), multipliers) for multipliers in np.split(drawn, 2))
    upper, lower = (first >> np.uint64(11)).astype(np.float64), (second >> np.uint64(33)).astype(np.int64)
    return digest_sums(secret, name, identities, upper, ("rows of the center", lower))


def _center_columns(batch: LabelledBatch, map: RowMap) -> MappedColumns:
    """Extracts the features of a map from a batch.

    Without features, the result is a column of the right length under no name of a feature. Raises InputError if a
    feature has the wrong type.
    """
    categories = {each.name: each for each in map.encoders if isinstance(each, Category)}
    hashed = {name: hashed_texts(batch, name) for name, each in categories.items() if each.hashed}
    found: dict[str, Any] = {name: texts for name, texts in hashed.items() if texts is not None}
    found |= feature_columns(batch, [name for name in map.columns if name not in found], categories)
    return found or {"": np.zeros(batch.batch.num_rows)}


def _center_rows(batch: LabelledBatch, map: RowMap) -> np.ndarray:
    """Rows of a batch, shape (n, m + 1), int64."""
    return map.rows(_center_columns(batch, map))


def moments_key(summary: MomentSummary, column: LabelColumn, design: CenterDesign, secret: bytes) -> bytes:
    """Derives the noise key of moment sums: 32 bytes, from a raw summary of the whole input and a secret of 32 bytes.

    It must not be shown: it is a function of raw sums.

    It is bound to the labels and the rows of all records, to the request and to the raw sums themselves. If features
    change and labels do not, two releases with the same noise would show the exact difference of their sums; and if the
    sums stay, equal releases would show that: a change of features leaves the sums as they are if the label of the
    record is the middle one. As a pseudorandom function of rows and sums, the noise is independent for any two inputs.
    """
    bound_to: list[Any] = [
        summary.digest.lanes.astype("<u8").tobytes().hex(),
        summary.rows.lanes.astype("<u8").tobytes().hex(),
        list(summary.sums),
        column.name,
        [label.hex() for label in column.domain],
        column.rounding,
        design.epsilon.hex(),
        design.map.norm,
    ]
    if column.unit is not None:
        bound_to.append(column.unit.request)
    return keyed_hash(secret, b"labeldp moments", json.dumps(bound_to).encode())


class _Design(beam.DoFn):
    def __init__(self, epsilon: float):
        self._epsilon = epsilon

    @redact_errors("designing the center")
    def process(self, sample: FeatureSample) -> Iterator[CenterDesign]:
        yield design_center(sample.columns, max(sample.records, 1), self._epsilon)


class _SumMoments(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("summed")

    @redact_errors("summing features")
    def process(self, batch: LabelledBatch, design: Any) -> Iterator[MomentSummary]:
        yield summarize_moments(batch, self._column, batch.resolve(design), self._secret)
        self._progress.add(batch.batch.num_rows)


class _ReleaseCenter(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile, threshold: Threshold):
        self._column = column
        self._key = key
        self._threshold = threshold

    @redact_errors("noising the center")
    def process(self, summary: MomentSummary, design: CenterDesign, unique_ids: int = 0) -> Iterator[LinearCenter]:
        self._threshold.check(summary.records, summary.unusable, self._column.described, left_out=summary.left_out)
        labels = len(self._column.domain)
        sums: tuple[int, ...] = ()
        if design.epsilon:
            noise_key = moments_key(summary, self._column, design, self._key.load())
            sums = noised_sums(list(summary.sums), design.map.norm, labels, design.epsilon, noise_key)
        LOGGER.info("computed the center")
        yield LinearCenter.fit(design, labels, sums)


def append_center(
    batch: LabelledBatch, center: LinearCenter, column: LabelColumn, only: tuple[str, ...] | None = None
) -> LabelledBatch:
    """Adds the column of centers to a batch.

    In a batch of encoded records, it is added to the records as well. `column.center` is the name of the new column;
    `only` are the columns to keep besides it, None for all. Raises InputError if there is a column of this name, the
    label is a feature of the center, or a feature has the wrong type.
    """
    name = column.center
    assert name is not None
    for label in column.private:
        if label in center.design.map.columns:
            raise InputError(f"the label column {label!r} is a feature of the center, which is released as it is")
    if batch.column(name) is not None:
        raise InputError(
            f"{batch.source}: there is a column {name!r} already: name the new column of centers with --center_column, "
            "or for apply remove that column from the input"
        )
    values = column.labels[center.indices(_center_columns(batch, center.design.map))]
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
