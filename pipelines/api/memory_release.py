"""Release of labels in memory as functions of arrays: the steps of a job, over one set of records. Loads no Beam.

Records are identified by their rows in a named source, or by ids. The secret key has 32 bytes. Errors of arguments are
ValueError, or TypeError for a kind that is not known; no label is in a message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...mechanisms.analysis.automatic import CANDIDATES, LABELS
from ...mechanisms.center.class_center import PROBABILITY_UNIT
from ...mechanisms.center.class_model import drawn_classes
from ...mechanisms.center.feature_rows import MappedColumns, RowMap
from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.core.budget import remaining_epsilon
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.noise.keyed_words import Identities, row_identities
from ...mechanisms.registry import AUTO, mechanism_named
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.center_passes import center_passes, run_passes
from ...mechanisms.release.feature_sample import CenterFeatures, FeatureSample, sample_words, smallest
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.label_draws import LabelSampler
from ...mechanisms.release.label_records import LabelRecords, LabelSummary, count_labels
from ...mechanisms.release.prior_release import PriorRelease, public_reason, release_prior, solved
from ...mechanisms.release.unit_bound import UnitCounts, bounded
from ...transforms.center.feature_columns import center_columns, feature_columns
from ..errors import FieldError
from ..ledger.spent_budget import Caps
from ..spec.feature_choice import FeatureTable, center_kind, check_center, is_asked_for, with_new_center
from ..spec.fields import Fields
from ..spec.label import Label
from ..spec.mechanism_file import MechanismFile
from .class_arrays import read_classes
from .feature_frames import FeatureFrame
from .label_arrays import LabelArray, column_name, read_identities, read_numbers, read_units

# Records whose rows of features are in memory at a time.
_BLOCK = 1 << 16


@dataclass(frozen=True)
class MemoryRequest:
    """Checked parameters, and the name that stands for the input file in the identities of records."""

    label: Label
    source: str
    caps: Caps
    most_unusable: float

    @property
    def column(self) -> LabelColumn:
        """The label column."""
        return self.label.column

    def check_unusable(self, records: int, unusable: int) -> None:
        """Checks the number of records without a usable label, which is public.

        `records` is the number of those with one. Raises ValueError if there are no records, no record has a usable
        label, or too many have none.
        """
        if records == 0:
            raise ValueError("no record has a usable label" if unusable else "there are no records")
        if unusable > self.most_unusable * (records + unusable):
            raise ValueError(
                f"{unusable:,} of {records + unusable:,} records have no usable label (missing, NaN or infinite), more "
                f"than max_unusable_fraction {self.most_unusable:g}: fix them, leave them out, or raise it"
            )


@dataclass(frozen=True, eq=False)
class Given:
    """Columns of a call as the user gives them; None for those that are not given."""

    labels: Any = field(repr=False)
    center: Any = None
    features: FeatureFrame | None = None
    ids: Any = None
    units: Any = None


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

    def summary(self, secret: bytes) -> LabelSummary:
        """Counts the records that are released. The result is raw."""
        return count_labels(self.released, secret)

    def around(self, centers: np.ndarray) -> MemoryRecords:
        """Adds a center for each of all records, labels of the domain, shape (n,), float64."""
        indices, missing = self.released.column.center_indices(centers[self.kept])
        released = dataclasses.replace(self.released, centers=indices, missing_centers=missing)
        return dataclasses.replace(self, released=released)


def with_features(fields: Fields, label: Label, features: FeatureFrame | None) -> Label:
    """Adds a center of features to a label, if one is made; the label as it is if not, or without features.

    Features that are given ask for a center, unless the mechanism is chosen automatically: whether there is one is then
    decided as for a job. Raises FieldError if a field is wrong.
    """
    check_center(fields)
    if features is None:
        if is_asked_for(fields):
            raise FieldError(
                "{center} {kind} is made of features: give features=frame with the labels", kind=center_kind(fields)
            )
        return label
    numbers = label.column.classes is None
    if numbers and fields.center is None and (fields.center_column is not None or label.mechanism.name != AUTO):
        fields = dataclasses.replace(fields, center=center_kind(fields))
    return with_new_center(fields, label, FeatureTable(features.batch.schema, features.source))


def read_records(
    request: MemoryRequest, column: LabelColumn, secret: bytes, given: Given, linear: bool = False
) -> MemoryRecords:
    """Reads the records; `linear` tells that their centers are made of the features, and added later."""
    classes = column.classes
    if classes is None:
        read = read_numbers(given.labels, "labels", column.meaning.missing)
    else:
        read = read_classes(given.labels, classes, "labels", column.meaning.missing)
    usable = np.isfinite(read.values)
    identities = _identities(request, column, given.ids, len(usable))
    if not linear and (given.center is None) != (column.center is None):
        raise ValueError("center and center_column belong together: give both, or neither")
    centers, missing = None, 0
    if given.center is not None:
        centers, missing = read_centers(column, given.center, len(usable), usable)
    if given.features is not None:
        _check_features(column, given.features, given.labels, len(usable))
    records = int(usable.sum())
    request.check_unusable(records, len(usable) - records)
    if centers is not None and missing == records:
        raise ValueError("no record has a usable center (missing, NaN or infinite): check center")
    if (given.units is None) != (column.unit is None):
        raise ValueError("units and unit_column belong together: give both, or neither")
    own = identities.keep(usable)
    released = LabelRecords(column, read.values[usable], own, centers, len(usable) - records, missing)
    if column.unit is None:
        return MemoryRecords(read, identities, usable, np.ones(len(usable), bool), released)
    found, present = read_units(given.units, column.unit.column)
    if len(present) != len(usable):
        raise ValueError(f"there are {len(present):,} units for {len(usable):,} labels")
    within, counts = bounded(column.unit, found.keep(usable[present]), present[usable], own, secret)
    if not within.any():
        raise ValueError("no record with a usable label has a unit: check units")
    kept = usable.copy()
    kept[usable] = within
    return MemoryRecords(read, identities, kept, kept | ~usable, released.keep(within), counts)


def _identities(request: MemoryRequest, column: LabelColumn, ids: Any, records: int) -> Identities:
    """Identities of all records."""
    if (ids is None) != (column.id_column is None):
        raise ValueError("ids and id_column belong together: give both, or neither")
    if ids is None or column.id_column is None:
        return row_identities(request.source, np.arange(records))
    found = read_identities(ids, column.id_column)
    if len(found) != records:
        raise ValueError(f"there are {len(found):,} ids for {records:,} labels")
    return found


def _check_features(column: LabelColumn, features: FeatureFrame, labels: Any, records: int) -> None:
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
    column: LabelColumn, center: Any, records: int, usable: np.ndarray | slice = slice(None)
) -> tuple[np.ndarray, int]:
    """Places of given centers in the domain, and the number of missing ones."""
    if center is None:
        raise ValueError("center is missing: the mechanism is for labels around a center")
    read = read_numbers(center, "center").values
    if len(read) != records:
        raise ValueError(f"there are {len(read):,} centers for {records:,} values")
    return column.center_indices(read[usable])


def fit_center(
    label: Label,
    features: FeatureFrame,
    chosen: CenterFeatures,
    records: MemoryRecords,
    secret: bytes,
    released: PriorRelease | None = None,
) -> Any:
    """Designs and releases a center, as the passes of a job do: of classes after their histogram, `released`.

    Returns the histogram where classes get no center. Raises ValueError if the center cannot be made.
    """
    column, budget = records.released.column, label.record_budget
    labels, kept = dataclasses.replace(records.released, unusable=0), features.keep(records.kept)

    def blocks(row_map: RowMap) -> Iterator[tuple[LabelRecords, MappedColumns]]:
        for start, block in blocks_of(kept):
            mask = np.zeros(len(labels), bool)
            mask[start : start + len(block)] = True
            yield labels.keep(mask), center_columns(block, row_map)

    passes, sample = (
        center_passes(chosen, column.classes is not None),
        feature_sample(features, chosen, records, secret),
    )
    epsilon = remaining_epsilon(budget.epsilon, budget.prior_epsilon or 0.0)
    return run_passes(passes, sample, column, epsilon, secret, blocks, released)


def feature_sample(
    features: FeatureFrame, chosen: CenterFeatures, records: MemoryRecords, secret: bytes
) -> FeatureSample:
    """Samples the features of records, as the first pass of a job does."""
    sampled = features.keep(records.sampled)
    drawn = sample_words(secret, records.identities.keep(records.sampled))
    return smallest(drawn, feature_columns(sampled, chosen.names), len(drawn), chosen.most)


def predicted(center: LinearCenter, features: FeatureFrame, labels: np.ndarray) -> np.ndarray:
    """Predicts the center of each record, labels of the domain, shape (n,), float64.

    Raises ValueError, which names the column, if a feature is missing or has the wrong type.
    """
    features.check(center.design.map)
    parts = [center.indices(center_columns(block, center.design.map)) for _, block in blocks_of(features)]
    return labels[np.concatenate([np.zeros(0, np.int64), *parts])]


def blocks_of(features: FeatureFrame) -> Iterator[tuple[int, FeatureFrame]]:
    """Divides records into consecutive parts, each with the place of its first one."""
    for start in range(0, len(features), _BLOCK):
        yield start, features.slice(start, start + _BLOCK)


def solve_release(
    request: MemoryRequest, records: MemoryRecords, secret: bytes, linear: LinearCenter | None
) -> tuple[PriorRelease, MechanismFile]:
    """Releases the histogram and solves for the mechanism; `linear` is the center that was released before."""
    column, name, budget = request.column, request.label.mechanism.name, request.label.record_budget
    summary, asked = records.summary(secret), (budget.epsilon, budget.prior_epsilon, secret, name)
    release = release_prior(summary, column, *asked, linear)
    mechanism = None if name == AUTO else mechanism_named(name, **request.label.mechanism.parameters)
    try:
        randomizer = solved(release, mechanism)
    except ValueError:
        randomizer = None
    if randomizer is None:
        # The solver's own message may depend on the noised histogram, which is not charged.
        reason = public_reason(CANDIDATES[LABELS] if mechanism is None else mechanism, release)
        raise ValueError(f"mechanism {name}: {reason}")
    return release, MechanismFile.of_release(randomizer, release)


def draw_labels(records: MemoryRecords, randomizer: Randomizer, binding: NoiseBinding, secret: bytes) -> Any:
    """Draws the labels and puts them where the true ones were, in a column of the same kind."""
    values = np.full(len(records.kept), np.nan)
    values[records.kept] = LabelSampler(randomizer, binding.noise_key(secret), secret).sample(records.released)
    return records.labels.restore(values)


def class_probabilities(center: Any, features: FeatureFrame) -> np.ndarray:
    """Predicts the coded probabilities of each record, shape (n, K), int64.

    Raises ValueError, which names the column, if a feature is missing or has the wrong type.
    """
    features.check(center.map)
    parts = [center.probabilities(center_columns(block, center.map)) for _, block in blocks_of(features)]
    return np.concatenate([np.zeros((0, len(center.counts)), np.int64), *parts])


def as_shares(probabilities: np.ndarray) -> np.ndarray:
    """Coded probabilities as floats that add up to 1."""
    return probabilities / PROBABILITY_UNIT


def draw_class_labels(
    records: MemoryRecords, center: Any, probabilities: np.ndarray, binding: NoiseBinding, secret: bytes
) -> Any:
    """Draws classes from the probabilities of all records, and puts them where the true ones were."""
    values = np.full(len(records.kept), np.nan)
    kept, identities = probabilities[records.kept], records.released.identities
    values[records.kept] = drawn_classes(center, kept, binding.noise_key(secret), identities)
    return records.labels.restore(values)
