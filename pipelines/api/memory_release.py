"""Release of labels in memory as functions of arrays: the steps of a job, over one set of records. Loads no Beam.

Records are identified by their rows in a named source, or by ids. The secret key has 32 bytes. Errors of arguments are
ValueError, or TypeError for a kind that is not known; no label is in a message.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from ...mechanisms.analysis.explained import MOST_RECORDS, Measured
from ...mechanisms.analysis.release_warnings import release_warnings
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.center.class_center import PROBABILITY_UNIT
from ...mechanisms.center.feature_rows import Columns, MappedColumns, RowMap
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.noise.keyed_words import Identities, RowRange
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.center_passes import Pass, PassResult
from ...mechanisms.release.conclude import conclude
from ...mechanisms.release.drawing import Drawing, ReadFeatures
from ...mechanisms.release.feature_sample import NO_SAMPLE, CenterFeatures, FeatureSample, sample_words, smallest
from ...mechanisms.release.label_column import LabelColumn, LabelMeaning
from ...mechanisms.release.label_records import LabelRecords
from ...mechanisms.release.plan import Binding, run_passes
from ...mechanisms.release.prior_release import PriorRelease
from ...mechanisms.release.unit_bound import SINGLE, UnitBound, UnitCounts, bounded
from ...transforms.center.feature_columns import center_columns, chosen_features, feature_columns, is_feature
from ...transforms.class_values import class_column, class_places
from ...transforms.errors import InputError
from ...transforms.progress_log import advance
from ..publish.job_result import JobResult
from ..publish.manifest import make_manifest
from ..publish.released import Released
from ..spec.label import MechanismChoice
from ..spec.label_folders import BY_PLACE
from ..spec.measured_labels import measured
from ..spec.mechanism_file import MechanismFile
from .feature_frames import FeatureFrame
from .label_arrays import (
    LabelArray,
    arrow_column,
    chunked,
    column_name,
    is_of,
    only_column,
    read_identities,
    read_numbers,
    read_units,
)
from .memory_request import Given, MemoryRequest
from .record_streams import SealedColumn

if TYPE_CHECKING:
    import pandas

    from .label_arrays import Column

Block = TypeVar("Block", bound=Sized)
# Records that are counted or drawn at a time.
_PART = 1 << 18


@dataclass(frozen=True, eq=False)
class MemoryRecords:
    """Records in memory, and those of them that are released: with a usable label, within the bounds of units.

    Attributes:
      labels: Labels of all n records.
      identities: Identities of all records.
      kept: Mask of the records that are released, shape (n,), bool.
      sampled: Mask of the records that features are sampled from, shape (n,), bool: all but those that the bounds of
        units leave out.
      released: The records that are released.
      counts: Counts of units; None without.
    """

    labels: LabelArray
    identities: Identities
    kept: np.ndarray
    sampled: np.ndarray
    released: LabelRecords
    counts: UnitCounts | None = None

    def around(self, centers: np.ndarray) -> MemoryRecords:
        """Adds a center for each of all records, indices into the domain, shape (n,)."""
        column = self.released.column
        # As a column that is read, which is rounded to float32 first.
        places, _ = column.center_indices(column.labels)
        own = centers if self.kept.all() else centers[self.kept]
        if not np.array_equal(places, np.arange(len(places))):
            own = places[own]
        return dataclasses.replace(self, released=dataclasses.replace(self.released, centers=own))


@dataclass(eq=False)
class MemoryRun:
    """Passes over records in memory.

    Attributes:
      records: The records; around their centers, once a pass has counted them.
      features: Their features; None without.
      secret: The secret key.
      centers: Linear center of each of all records, indices into the domain, shape (n,), int32; None without one.
    """

    records: MemoryRecords
    features: FeatureFrame | None
    secret: bytes
    centers: np.ndarray | None = None

    def run(self, passes: Sequence[Pass], chosen: CenterFeatures | None, released: PassResult = None) -> Any:
        """Runs the passes of a plan, for a center of the chosen features; returns what they have released.

        Raises ValueError if the center cannot be made.
        """
        sample = NO_SAMPLE
        if chosen is not None and self.features is not None:
            sample = feature_sample(self.features, chosen, self.records, self.secret)
        return run_passes(passes, sample, self.records.released.column, self.secret, self._blocks, released)

    def _blocks(self, step: Pass, design: object, released: PassResult) -> Iterator[tuple[LabelRecords, MappedColumns]]:
        row_map, features = step.row_map(design, released), self.features
        if row_map is None or features is None:
            if isinstance(released, LinearCenter) and features is not None:
                self.centers = predicted(released, features)
                self.records = self.records.around(self.centers)
            yield from ((part, {}) for part in _parts(self.records.released, "counted"))
            return
        blocks = features.blocks(self.records.kept)
        yield from (
            (part, center_columns(block, row_map)) for part, block in _beside(self.records.released, blocks, "summed")
        )


@dataclass(frozen=True)
class MemoryRelease:
    """Facts of a release by a command (privatize, fit or apply), as the ledger and the report have them.

    `epsilon` is the budget of center, histogram and, if they were released, labels together. `counts` of units are None
    without, and so is the number of features where it is not known. `measured` is what a ridge explains of the true
    labels; None without labels, and for classes that a center draws.
    """

    command: str
    source: str
    binding: NoiseBinding
    mechanism: MechanismFile
    epsilon: float
    counts: UnitCounts | None
    features: int | None
    measured: Measured | None = None

    def released(self, facts: ReleasedFacts, name: str, id_column: str | None) -> Released:
        """The release as its readers see it: a mechanism file of fit, else with the manifest that files would have."""
        if self.command == "fit":
            return Released(name, self.mechanism)
        details = {
            "label": self.binding.column,
            "identity": id_column or BY_PLACE,
            "where": None,
            "loss": facts.loss,
            "features": facts.features,
            "warnings": [warning.name for warning in release_warnings(facts)],
        }
        result = JobResult(self.binding, self.binding.digest, {}, units=self.counts)
        # Through JSON, as a manifest is read.
        document = json.loads(json.dumps(make_manifest(result, self.mechanism, self.epsilon, details)))
        return Released(name, self.mechanism, document)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Release before it is charged: its labels, in a column of the given kind, and a mask of the released records.

    Centers have the shape (n,), or of classes (n, K); None without a center of features. Labels are None after fit.
    """

    release: MemoryRelease
    kept: np.ndarray
    centers: np.ndarray | None
    labels: Any


def release_fitted(command: str, request: MemoryRequest, given: Given, secret: bytes) -> Outcome:
    """Releases center, histogram and mechanism, as the commands fit and privatize; with privatize the labels as well.

    Raises ValueError if an argument is wrong, or the mechanism has no randomizer for the histogram.
    """
    label, column, features = request.label, request.column, given.features
    chosen = None if features is None else label.features
    records = read_records(request, column, secret, given, label.features is not None)
    run = MemoryRun(records, features, secret)
    binding = run.run(label.passes, chosen)
    mechanism = MechanismFile.of_release(concluded(label.mechanism, binding), binding)
    number = number_of_features(features, column)
    release = MemoryRelease(command, request.source, binding, mechanism, label.budget.epsilon, records.counts, number)
    return _drawn(release, run, given.seen)


def release_applied(mechanism: MechanismFile, request: MemoryRequest, given: Given, secret: bytes) -> Outcome:
    """Releases labels that a fitted mechanism draws, as the command apply.

    Raises ValueError if an argument is wrong, or does not fit the mechanism.
    """
    column, made, features = _fitted_column(mechanism, request), mechanism.drawing.made, given.features
    records, linear = read_records(request, column, secret, given, made is not None), None
    if made is not None:
        features = _needed(features, made.map, column)
        linear = made if isinstance(made, LinearCenter) else None
    run = MemoryRun(records, features, secret)
    binding = run.run((Binding(mechanism.drawing.budget),), None, linear)
    epsilon, number = mechanism.total_epsilon(mechanism.labels_budget[0]), number_of_features(features, column)
    release = MemoryRelease("apply", request.source, binding, mechanism, epsilon, records.counts, number)
    return _drawn(release, run, given.seen)


def _drawn(release: MemoryRelease, run: MemoryRun, seen: FeatureFrame | None) -> Outcome:
    """Draws the labels, unless the command is fit, and measures what `seen`, or else the features, explain of them."""
    drawing, labels = release.mechanism.drawing, None
    records, features, secret = run.records, run.features, run.secret
    coded = None if features is None else in_blocks(drawing, features, drawing.probabilities)
    if release.command != "fit":
        drawn = draw_labels(records, drawing, coded, release.binding, secret)
        found = _measured(release.mechanism, records, drawn, features if seen is None else seen)
        release, labels = dataclasses.replace(release, measured=found), records.labels.restore(drawn)
    centers: np.ndarray | None = None if coded is None else as_shares(coded)
    if run.centers is not None:
        centers = np.empty(len(run.centers))
        for start in range(0, len(centers), _PART):
            part = slice(start, start + _PART)
            centers[part] = records.released.column.labels[run.centers[part]]
    return Outcome(release, records.kept, centers, labels)


def _measured(
    mechanism: MechanismFile, records: MemoryRecords, labels: np.ndarray, features: FeatureFrame | None
) -> Measured | None:
    """Measures a ridge of the features on released labels, on evenly spaced records; None if a center draws them."""
    if mechanism.drawing.solved is None:
        return None
    column, number = records.released.column, len(records.released)
    every = slice(0, number, -(-number // MOST_RECORDS))
    # Where all are released, their places are not held.
    rows = np.arange(*every.indices(number)) if records.kept.all() else np.flatnonzero(records.kept)[every]
    around = records.released.centers
    columns: Columns = {}
    if features is not None:
        mask = np.zeros(len(records.kept), bool)
        mask[rows] = True
        names = [each.name for each in features.schema if each.name not in column.columns and is_feature(each.type)]
        columns = feature_columns(features.keep(mask), names)
    return measured(mechanism, labels[rows], None if around is None else column.labels[around[every]], columns)


def _fitted_column(mechanism: MechanismFile, request: MemoryRequest) -> LabelColumn:
    """The label column as the mechanism takes it: with the unit, and the label of missing ones, of its histogram."""
    asked = request.column.unit
    if asked != mechanism.unit:
        raise ValueError("unit_column and max_records_per_unit are not those of fit: fit again")
    if request.column.missing_label != mechanism.missing_label:
        raise ValueError("missing_label is not that of fit: fit again")
    return LabelColumn(
        request.column.name, mechanism.domain, request.column.id_column, mechanism.drawing.rounding,
        mechanism.drawing.column, unit=asked,
        meaning=LabelMeaning(mechanism.classes, mechanism.declared, mechanism.missing),
    )  # fmt: skip


def _needed(features: FeatureFrame | None, row_map: RowMap, column: LabelColumn) -> FeatureFrame:
    """The features that centers of a fitted mechanism are made of; the label must be none of them."""
    if features is None:
        raise ValueError("features are missing: the mechanism is for labels around a center of them")
    if column.name in row_map.columns:
        raise ValueError(f"label {column.name!r} is a feature of the center, which is released as it is: fit again")
    return features


def number_of_features(features: FeatureFrame | None, column: LabelColumn) -> int | None:
    """Number of columns that are neither label, nor id, nor center; None if it is not known."""
    return None if features is None else len({*features.names} - {*column.columns})


def read_records(
    request: MemoryRequest, column: LabelColumn, secret: bytes, given: Given, linear: bool = False
) -> MemoryRecords:
    """Reads the records; `linear` tells that their centers are made of the features, and added later."""
    classes, missing_label = column.classes, column.meaning.missing

    def read_column(labels: object) -> LabelArray:
        if classes is None:
            return read_numbers(labels, "labels", missing_label)
        return read_classes(labels, classes, "labels", missing_label)

    labels = given.labels
    read = labels.read(read_column) if isinstance(labels, SealedColumn) else read_column(labels)
    usable = np.isfinite(read.values)
    identities = _identities(request, column, given.ids, len(usable))
    if not linear and (given.center is None) != (column.center is None):
        raise ValueError("center and center_column belong together: give both, or neither")
    if given.features is not None:
        _check_features(column, given.features, given.labels, len(usable))
    if (given.units is None) != (column.unit == SINGLE):
        raise ValueError("units and unit_column belong together: give both, or neither")
    kept, counts = usable, None
    if isinstance(column.unit, UnitBound):
        found, present = read_units(given.units, column.unit.column)
        if len(present) != len(usable):
            raise ValueError(f"there are {len(present):,} units for {len(usable):,} labels")
        of_usable = found.keep(usable[present]), present[usable], identities.keep(usable)
        kept = usable.copy()
        kept[usable], counts = bounded(column.unit, *of_usable, secret)
    centers, missing = None, 0
    if given.center is not None:
        centers, missing = read_centers(column, given.center, len(usable), kept)
    records, unusable = int(kept.sum()), len(usable) - int(usable.sum())
    request.check(records, unusable, len(usable) - unusable - records, missing)
    values = read.values if kept.all() else read.values[kept]
    released = LabelRecords(column, values, identities.keep(kept), centers, unusable, missing)
    return MemoryRecords(read, identities, kept, kept | ~usable, released, counts)


def _identities(request: MemoryRequest, column: LabelColumn, ids: object, records: int) -> Identities:
    """Identities of all records."""
    if (ids is None) != (column.id_column is None):
        raise ValueError("ids and id_column belong together: give both, or neither")
    if ids is None or column.id_column is None:
        return RowRange(request.source, range(records))
    found = read_identities(ids, column.id_column)
    if len(found) != records:
        raise ValueError(f"there are {len(found):,} ids for {records:,} labels")
    return found


def _check_features(column: LabelColumn, features: FeatureFrame, labels: object, records: int) -> None:
    """Checks the number of records, and that the labels are not among the features under a name of their own."""
    if len(features) != records:
        raise ValueError(f"there are {len(features):,} records of {features.source} for {records:,} labels")
    name = column_name(labels)
    if name is not None and name != column.name and name in features.names:
        raise ValueError(
            f"{features.source} has the column {name!r} of the labels, from which centers would be made that are "
            f"released as they are: give label={name!r}, or leave the column out"
        )


def read_centers(
    column: LabelColumn, center: object, records: int, usable: np.ndarray | slice = slice(None)
) -> tuple[np.ndarray, int]:
    """Places of given centers in the domain, and the number of missing ones."""
    if center is None:
        raise ValueError("center is missing: the mechanism is for labels around a center")
    read = read_numbers(center, "center").values
    if len(read) != records:
        raise ValueError(f"there are {len(read):,} centers for {records:,} values")
    return column.center_indices(read[usable])


def feature_sample(
    features: FeatureFrame, chosen: CenterFeatures, records: MemoryRecords, secret: bytes
) -> FeatureSample:
    """Samples the features of records, as the first pass of a job does."""
    rows, drawn = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    for start in range(0, len(records.sampled), _PART):
        part = slice(start, start + _PART)
        mask = records.sampled[part]
        rows = np.concatenate([rows, start + np.flatnonzero(mask)])
        drawn = np.concatenate([drawn, sample_words(secret, records.identities.keep(part).keep(mask))])
        order = np.argsort(drawn, kind="stable")[: chosen.most]
        rows, drawn = rows[order], drawn[order]
    mask, order = np.zeros(len(records.sampled), bool), np.argsort(rows)
    mask[rows] = True
    columns = feature_columns(features.keep(mask), chosen.names)
    return chosen_features(smallest(drawn[order], columns, int(records.sampled.sum()), chosen.most), chosen)


def predicted(center: LinearCenter, features: FeatureFrame) -> np.ndarray:
    """Predicts the center of each record, indices into the domain, shape (n,), int32.

    Raises ValueError, which names the column, if a feature is missing or has the wrong type.
    """
    features.check(center.design.map)
    centers, start = np.empty(len(features), np.int32), 0
    for block in features.blocks():
        centers[start : start + len(block)] = center.indices(center_columns(block, center.design.map))
        start += len(block)
    return centers


def concluded(choice: MechanismChoice, release: PriorRelease) -> Drawing:
    """Concludes how the labels are drawn. Raises ValueError if there is no randomizer."""
    try:
        return conclude(release, choice.name, choice.parameters)
    except ValueError as error:
        raise ValueError(f"mechanism {choice.name}: {error}") from None


def _parts(records: LabelRecords, doing: str) -> Iterator[LabelRecords]:
    """Divides records into consecutive parts."""
    sizes = (range(start, min(start + _PART, len(records))) for start in range(0, max(len(records), 1), _PART))
    return (part for part, _ in _beside(records, sizes, doing))


def _beside(records: LabelRecords, blocks: Iterable[Block], doing: str) -> Iterator[tuple[LabelRecords, Block]]:
    """Divides records as blocks are, and tells a progress bar of each; the first part has the unusable ones."""
    start = 0
    for block in blocks:
        part = records.keep(slice(start, start + len(block)))
        yield dataclasses.replace(part, unusable=0, missing_centers=0) if start else part, block
        advance(doing, len(part), len(records))
        start += len(block)


def draw_labels(
    records: MemoryRecords, drawing: Drawing, probabilities: np.ndarray | None, binding: NoiseBinding, secret: bytes
) -> np.ndarray:
    """Draws the labels, shape (n,), float64, of classes places; NaN for records that are not released.

    `probabilities` are those of all records that classes are drawn from; None for any other drawing.
    """
    values, start, key = np.empty(len(records.released)), 0, binding.noise_key(secret)
    given = None if probabilities is None else probabilities[records.kept]
    for part in _parts(records.released, "drew"):
        rows = slice(start, start + len(part))
        values[rows] = drawing.draw(part, key, secret, None if given is None else given[rows])
        start += len(part)
    if records.kept.all():
        return values
    among = np.full(len(records.kept), np.nan)
    among[records.kept] = values
    return among


def in_blocks(
    drawing: Drawing, features: FeatureFrame, predict: Callable[[ReadFeatures], np.ndarray | None]
) -> np.ndarray | None:
    """Predicts from the features of all records, a block of them at a time; `predict` is a method of the drawing.

    Raises ValueError, which names the column, if a feature is missing or has the wrong type.
    """
    if drawing.made is None:
        return None
    features.check(drawing.made.map)
    blocks = (predict(functools.partial(center_columns, block)) for block in features.blocks())
    parts = [part for part in blocks if part is not None]
    return np.concatenate(parts) if parts else None


def as_shares(probabilities: np.ndarray) -> np.ndarray:
    """Coded probabilities as floats that add up to 1."""
    return probabilities / PROBABILITY_UNIT


def read_classes(data: object, classes: LabelClasses, name: str, missing: float | None = None) -> LabelArray:
    """Reads a column of classes: the values are their places, NaN where there is none, and the way back takes places.

    `name` is that of the argument, for messages. `missing` is the place that a missing class counts as; None for none.
    Raises ValueError if it has another number of dimensions, or cannot hold these classes; no value is in the message.
    Raises TypeError if it is of no known kind.
    """
    data, wrap = only_column(data, name)
    column = arrow_column(data, name)
    try:
        places = class_places(column, classes, name, name, len(column))
    except InputError as error:
        problem = str(error)
    else:
        restored, nulls = _restorer(data, column.type, classes), np.asarray(column.is_null())
        if missing is not None:
            places, nulls = np.where(np.isnan(places), missing, places), np.zeros(len(column), bool)
        return LabelArray(places, nulls, lambda values: wrap(restored(values)))
    raise ValueError(problem)


def _restorer(data: Column, kind: pa.DataType, classes: LabelClasses) -> Callable[[np.ndarray], Any]:
    def arrow(values: np.ndarray) -> pa.Array:
        missing = ~np.isfinite(values)
        places = np.where(missing, 0, values).astype(np.int64)
        drawn = class_column(places, kind, classes)
        return drawn.take(pa.array(np.arange(len(values)), mask=missing)) if missing.any() else drawn

    if isinstance(data, pa.ChunkedArray):
        lengths = [len(chunk) for chunk in data.chunks]
        return lambda values: chunked(arrow(values), lengths)
    if isinstance(data, pa.Array):
        return arrow
    if isinstance(data, list | tuple):
        return lambda values: type(data)(arrow(values).to_pylist())
    if isinstance(data, np.ndarray):
        return lambda values: _numpy(arrow(values), data.dtype)
    if is_of(data, "polars", "Series"):
        return lambda values: sys.modules["polars"].Series(data.name, arrow(values)).cast(data.dtype)
    return lambda values: _pandas(arrow(values), data)


def _numpy(drawn: pa.Array, dtype: np.dtype) -> np.ndarray:
    """An array of the same type; of objects, with None for missing ones, if the type has no missing value."""
    if dtype.kind == "f":
        return drawn.to_numpy(zero_copy_only=False).astype(dtype)
    values = np.fromiter(drawn.to_pylist(), object, len(drawn))
    if drawn.null_count or dtype.kind == "O":
        return values
    # A fixed width may be too short for another class.
    return values.astype(dtype.kind if dtype.kind in "US" else dtype)


def _pandas(drawn: pa.Array, data: pandas.Series) -> pandas.Series:
    pandas = sys.modules["pandas"]
    dtype, values = data.dtype, drawn.to_pylist()
    if isinstance(dtype, pandas.CategoricalDtype):
        known = [*dtype.categories, *(value for value in dict.fromkeys(values) if value is not None)]
        dtype = pandas.CategoricalDtype(list(dict.fromkeys(known)), dtype.ordered)
    elif isinstance(dtype, np.dtype):
        return pandas.Series(_numpy(drawn, dtype), data.index, name=data.name)
    return pandas.Series(values, data.index, dtype=dtype, name=data.name)
