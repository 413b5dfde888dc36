"""Transform of rows for Beam YAML: all arguments are numbers, texts, lists or mappings of these.

`yaml/providers.yaml` registers it, and `PrivatizeFiles` for files. Python code uses `labeldp.transforms` directly.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.core.budget import remaining_epsilon
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.release.center_passes import center_passes
from ..mechanisms.release.feature_sample import CenterFeatures
from ..mechanisms.release.unit_bound import UnitCounts
from ..pipelines.errors import FieldError, UsageError, as_parameter
from ..pipelines.job.runner_options import check_runner
from ..pipelines.publish.job_result import JobResult
from ..pipelines.publish.manifest import make_manifest
from ..pipelines.spec.fields import CELL_CENTER, CENTERS, NO_CENTER, Fields, keywords_of, names_of
from ..pipelines.spec.label import make_label
from ..pipelines.spec.mechanism_file import MechanismFile
from ..transforms import (
    BatchesToRows,
    InputError,
    LabelColumn,
    LabelledBatch,
    NoiseKeyFile,
    NoisyPrior,
    PriorRelease,
    PrivatizeLabels,
    RowsToBatches,
    SolveRandomizer,
    row_fields,
)
from ..transforms.batches import check_whole_input
from ..transforms.beam_rows import check_used
from ..transforms.center.feature_sample import SampleFeatures
from ..transforms.center.fit_center import AppendCenter, DesignPass, ReleasePass
from ..transforms.errors import OTHER_MECHANISM
from ..transforms.shards.publish_shards import require_digest
from ..transforms.units.bounds_by_id import BoundUnitsById

_ARGUMENTS = (
    "label", "id_column", "epsilon", "noise_key_file", "label_min", "label_max", "label_step", "label_values",
    "label_classes", "other_class", "prior_epsilon", "delta", "mechanism", "loss", "rounding",
    "center_column", "center", "center_features", "leave_out", "unit_column", "max_records_per_unit",
)  # fmt: skip
_NEEDED = ("label", "id_column", "epsilon", "noise_key_file")


class ReleaseDocuments(NamedTuple):
    """Documents of one release, as text.

    Attributes:
      manifest: Content of release.json.
      mechanism: Content of the mechanism file, for `labeldp audit`.
    """

    manifest: str
    mechanism: str


beam.coders.registry.register_coder(ReleaseDocuments, beam.coders.RowCoder)


class LabelDP(beam.PTransform):
    """Replaces the label of each row under label differential privacy: the whole job as one transform.

    Returns `rows`, and `release`: one row with the manifest and the mechanism file as text. Rows without a usable label
    are left out. It outputs nothing if the rows differ between the two passes over them, or if not all labels were
    drawn by the mechanism of the release.

    A center that the job makes needs `center` and `center_features`: rows may have any fields.
    """

    def __init__(self, **arguments: Any):
        super().__init__()
        for name in arguments.keys() - {*_ARGUMENTS}:
            raise ValueError(f"LabelDP has no parameter {name!r}; it has: {', '.join(_ARGUMENTS)}")
        for name in _NEEDED:
            if arguments.get(name) is None:
                raise ValueError(f"{name} is missing")
        try:
            fields = Fields.of(arguments)
            self._features = _center_features(fields)
            if self._features is not None and fields.center_column is None:
                fields.center_column = f"{fields.label}_center"
            if fields.center == NO_CENTER:
                fields.center = None
            made = make_label(fields)
        except FieldError as error:
            raise ValueError(error.text(as_parameter)) from None
        self._column, self._left_out = made.column, names_of(fields.leave_out)
        for name in {*made.column.private, made.column.center} & {*self._left_out}:
            raise ValueError(f"leave_out: {name!r} is released, as the label or its center")
        self._epsilon = made.budget.epsilon
        self._key = NoiseKeyFile(str(fields.noise_key_file))
        budget, name = made.record_budget, made.mechanism.name
        self._prior = NoisyPrior(self._column, budget.epsilon, self._key, budget.prior_epsilon, mechanism=name)
        self._center_epsilon = remaining_epsilon(budget.epsilon, budget.prior_epsilon or 0.0)
        self._solve = SolveRandomizer(name, dict(made.mechanism.parameters))

    def expand(self, rows: PCollection[Any]) -> dict[str, PCollection[Any]]:
        """Raises InputError for rows in windows or without a schema, or if a field that it uses is missing or no use.

        They keep their event times.
        """
        try:
            check_runner(rows.pipeline)
        except UsageError as error:
            raise ValueError(str(error)) from None
        if rows.is_bounded:
            check_whole_input(rows, self)
        id_column, center, features = self._column.id_column, self._column.center, self._features
        assert id_column is not None
        needed = [name for name in self._column.columns if features is None or name != center]
        unit = self._column.unit
        needed += [] if unit is None else [unit.column]
        needed += [] if features is None else features.columns
        fields = row_fields(rows, *needed, *self._left_out)
        check_used(fields, needed)
        label, classes = self._column.name, self._column.classes
        to_batches = RowsToBatches(id_column, {} if classes is None else {label: classes})
        batches: Any = rows | "Batch" >> to_batches | "Checkpoint" >> beam.Reshuffle()
        counts = None
        if unit is not None:
            batches, counts = batches | "BoundUnits" >> BoundUnitsById(self._column, self._key)
        noisy_prior = self._prior
        if features is not None:
            assert center is not None
            if center in fields:
                raise InputError(f"the rows have a field {center!r}: name the new field with center_column")
            sample: Any = batches | "SampleFeatures" >> SampleFeatures(features, self._key)
            linear: Any = None
            for one in center_passes(features, classes=False):
                design: Any = sample | f"Design {one.name}" >> DesignPass(one, self._center_epsilon, linear)
                linear = batches | f"Release {one.name}" >> ReleasePass(one, self._column, design, self._key, linear)
            batches = batches | "AppendCenter" >> AppendCenter(linear, self._column)
            noisy_prior = dataclasses.replace(self._prior, linear=linear)
            fields = {**fields, center: np.float64}
        prior: Any = batches | "NoisyPrior" >> noisy_prior
        randomizer: Any = prior | "SolveRandomizer" >> self._solve
        privatized = _privatize(batches, randomizer, prior, self._column, self._key)
        release: Any = randomizer | "Release" >> beam.ParDo(
            _DescribeRelease(self._column, self._epsilon, self._left_out),
            AsSingleton(prior),
            AsSingleton(privatized["digest"]),
            AsSingleton(privatized["mechanism"]),
            None if counts is None else AsSingleton(counts),
        ).with_output_types(ReleaseDocuments)
        # A runner in Java cannot hand rows of this type to another stage as a side input, but text.
        fingerprint = release | "Fingerprint" >> beam.Map(_fingerprint).with_output_types(str)
        released = privatized["batches"] | "ReleaseIfOfTheMechanism" >> beam.Map(
            _of_release, AsSingleton(fingerprint)
        ).with_output_types(LabelledBatch)
        if self._left_out:
            released |= "LeaveOut" >> beam.Map(LabelledBatch.without, self._left_out).with_output_types(LabelledBatch)
            fields = {name: kind for name, kind in fields.items() if name not in self._left_out}
        return {"rows": released | "Rows" >> BatchesToRows(fields, label, classes is not None), "release": release}


keywords_of(LabelDP.__init__, _ARGUMENTS, "Checks the arguments.", _NEEDED)


def _center_features(fields: Fields) -> CenterFeatures | None:
    """The features of the center that the job makes; None without one."""
    names, center, id_column = names_of(fields.center_features), fields.center, fields.id_column
    if fields.label_classes is not None and (names or center not in (None, NO_CENTER)):
        raise ValueError("rows of classes have no center: release files, or leave out center and center_features")
    if not names and center in (None, NO_CENTER):
        return None
    if not names or center not in CENTERS or center == NO_CENTER:
        raise ValueError("a center that the job makes needs center: cells or linear, and center_features")
    if {fields.label, id_column} & {*names}:
        raise ValueError("center_features must name neither the label nor the id_column")
    if {*names} & {*names_of(fields.leave_out)}:
        raise ValueError("center_features and leave_out name the same field: centers are released")
    assert id_column is not None
    return CenterFeatures(names, id_column, center == CELL_CENTER)


def _privatize(
    batches: PCollection[LabelledBatch],
    randomizer: PCollection[Randomizer],
    prior: PCollection[Any],
    column: LabelColumn,
    key: NoiseKeyFile,
) -> dict[str, PCollection[Any]]:
    """Privatizes; returns batches and dead letters, held back until both passes had the same digest, and the digest.

    Returns the fingerprint of the mechanism that drew the labels, too.
    """
    privatized: Any = batches | "Privatize" >> PrivatizeLabels(randomizer, prior, column, key)
    digest = AsSingleton(privatized.digest)
    letters = privatized.dead_letters | "AsText" >> beam.Map(_as_text).with_output_types(str)
    return {
        "batches": privatized.batches
        | "ReleaseIfUnchanged" >> beam.Map(_unchanged, digest).with_output_types(LabelledBatch),
        "dead_letters": letters | "ReleaseLettersIfUnchanged" >> beam.Map(_unchanged, digest).with_output_types(str),
        "digest": privatized.digest,
        "mechanism": privatized.mechanism,
    }


def _unchanged(element: Any, digest: int) -> Any:
    # The side input exists only after the last label, if the digests of both passes agree: nothing passes before.
    require_digest(digest)
    return element


def _as_text(letter: Any) -> str:
    return letter.to_json()


def _fingerprint(release: ReleaseDocuments) -> str:
    return json.loads(release.manifest)["mechanism_fingerprint"]


def _of_release(batch: LabelledBatch, fingerprint: str) -> LabelledBatch:
    if batch.mechanism != fingerprint:
        raise InputError(OTHER_MECHANISM)
    return batch


class _DescribeRelease(beam.DoFn):
    def __init__(self, column: LabelColumn, epsilon: float, left_out: Sequence[str]):
        self._column = column
        self._epsilon = epsilon
        self._left_out = {"left_out": list(left_out)} if left_out else {}

    def process(
        self, randomizer: Randomizer, prior: PriorRelease, digest: int, drawn_by: str, units: UnitCounts | None
    ) -> Iterator[ReleaseDocuments]:
        require_digest(digest)
        mechanism = MechanismFile.of_release(randomizer, prior)
        details = {"label": self._column.name, "identity": self._column.id_column, "where": None, **self._left_out}
        result = JobResult(prior, digest, {}, frozenset([drawn_by]), units)
        result.check_same_mechanism(randomizer.fingerprint.hex())
        document = make_manifest(result, mechanism, self._epsilon, details)
        yield ReleaseDocuments(json.dumps(document), mechanism.to_text())
