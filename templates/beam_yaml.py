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
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, DoOutputsTuple, PCollection, TaggedOutput

from ..mechanisms.release.bound_noise import NoiseBinding
from ..mechanisms.release.drawing import Drawing
from ..mechanisms.release.unit_bound import SINGLE, PrivacyUnit, UnitCounts
from ..pipelines.api.memory_request import ledger_place, python_errors
from ..pipelines.api.privatize_files import check_ledger_place
from ..pipelines.errors import FieldError, UsageError, as_parameter
from ..pipelines.job.runner_options import check_runner
from ..pipelines.ledger.ledger import Ledger
from ..pipelines.ledger.spent_budget import Caps
from ..pipelines.publish.job_result import JobResult
from ..pipelines.publish.manifest import make_manifest
from ..pipelines.publish.protocol import Charge, charged, check_caps, release_entries
from ..pipelines.spec.feature_choice import CenterChoice
from ..pipelines.spec.fields import CENTERS, MODELS_OF_LOG, NO_CENTER, Fields, keywords_of, names_of
from ..pipelines.spec.label import Budget, Label, make_label, request_in_memory
from ..pipelines.spec.label_domain import with_texts
from ..pipelines.spec.mechanism_file import MechanismFile
from ..pipelines.spec.target_checks import noise_key_file, read_caps, read_unusable_fraction
from ..transforms import (
    BatchesToRows,
    InputError,
    LabelColumn,
    LabelledBatch,
    NoiseKeyFile,
    PriorRelease,
    PrivatizeLabels,
    RowsToBatches,
    SolveRandomizer,
    Threshold,
    row_fields,
)
from ..transforms.batches import check_whole_input, usable_labels
from ..transforms.beam_internals import typed_outputs
from ..transforms.beam_rows import check_used
from ..transforms.center.append_center import AppendCenter
from ..transforms.center.feature_sample import SampleFeatures
from ..transforms.errors import OTHER_MECHANISM, redact_errors
from ..transforms.privatize_labels import PrivatizedLabels
from ..transforms.release_passes import RunPlan
from ..transforms.shards.publish_shards import require_digest
from ..transforms.units.bounds_by_id import BoundUnitsById

_ARGUMENTS = (
    "label", "id_column", "epsilon", "noise_key_file", "label_min", "label_max", "label_step", "label_values",
    "label_classes", "other_class", "prior_epsilon", "delta", "mechanism", "for_", "loss", "rounding",
    "center_column", "center", "center_features", "leave_out", "unit_column", "max_records_per_unit",
    "missing_label", "max_unusable_fraction", "noise_key_mode", "ledger", "epsilon_cap", "delta_cap", "cap_window",
)  # fmt: skip
_NEEDED = ("label", "id_column", "epsilon", "noise_key_file")
_WITH_ID, _WITHOUT_ID = "with_id", "without_id"


class ReleaseDocuments(NamedTuple):
    """Documents of one release, as text.

    Attributes:
      manifest: Content of release.json.
      mechanism: Content of the mechanism file, for `labeldp audit`.
    """

    manifest: str
    mechanism: str


class DeadRow(NamedTuple):
    """Row that was left out of the release.

    Attributes:
      id: Its id, as text; None for a row without one.
      stage: Stage that left it out.
      error: Reason.
    """

    id: str | None
    stage: str
    error: str


for _kind in (ReleaseDocuments, DeadRow):
    beam.coders.registry.register_coder(_kind, beam.coders.RowCoder)


class LabelDP(beam.PTransform):
    """Replaces the label of each row under label differential privacy: the whole job as one transform.

    Returns `rows`; `release`, one row with the manifest and the mechanism file as text; and `dead_letters`, a row with
    id, stage and error for each row without an id or a usable label, which is left out. It outputs nothing if the rows
    differ between the two passes over them, if not all labels were drawn by the mechanism of the release, or if too
    many rows are left out. With `ledger`, the release is charged before anything is output; without, it is not.

    A center that the job makes needs `center`, or `for_` log_features, and `center_features`: rows may have any fields.
    """

    def __init__(self, **arguments: object):
        super().__init__()
        for name in arguments.keys() - {*_ARGUMENTS}:
            raise ValueError(f"LabelDP has no parameter {name!r}; it has: {', '.join(_ARGUMENTS)}")
        for name in _NEEDED:
            if arguments.get(name) is None:
                raise ValueError(f"{name} is missing")
        try:
            fields = with_texts(Fields.of(arguments))
            features = _center_features(fields)
            if fields.center == NO_CENTER:
                fields.center = None
            center = CenterChoice.of(fields)
            if features:
                fields.center_column = None
            made = make_label(fields)
            if features and center.makes(made):
                made = center.around(made, features)
            self._threshold = Threshold(read_unusable_fraction(fields.max_unusable_fraction), "rows")
            self._key = noise_key_file(str(fields.noise_key_file), fields.noise_key_mode)
            self._charge = _charge(fields, made)
        except FieldError as error:
            raise ValueError(error.text(as_parameter)) from None
        self._label, self._column, self._left_out = made, made.column, names_of(fields.leave_out)
        for name in {*made.column.private, made.column.center} & {*self._left_out}:
            raise ValueError(f"leave_out: {name!r} is released, as the label or its center")
        self._solve = SolveRandomizer(made.mechanism.name, dict(made.mechanism.parameters))

    def expand(self, rows: PCollection[Any]) -> dict[str, PCollection[Any]]:
        """Raises InputError for rows in windows or without a schema, or if a field that it uses is missing or no use.

        They keep their event times.
        """
        try:
            here = check_runner(rows.pipeline)
            if self._charge is not None:
                self._charge.check(here, self._column.unit)
        except FieldError as error:
            raise ValueError(error.text(as_parameter)) from None
        except UsageError as error:
            raise ValueError(str(error)) from None
        if rows.is_bounded:
            check_whole_input(rows, self)
        id_column, center, features = self._column.id_column, self._column.center, self._label.features
        assert id_column is not None
        needed = [name for name in self._column.columns if features is None or name != center]
        needed += self._column.unit.columns
        needed += [] if features is None else features.columns
        fields = row_fields(rows, *needed, *self._left_out)
        check_used(fields, needed)
        label, classes, missing = self._column.name, self._column.classes, self._column.meaning.missing
        to_batches = RowsToBatches(
            id_column, {} if classes is None else {label: classes}, {} if missing is None else {label: missing}
        )
        divided: DoOutputsTuple = rows | "DivideByIds" >> beam.ParDo(_DivideByIds(id_column)).with_output_types(
            object
        ).with_outputs(_WITHOUT_ID, main=_WITH_ID)
        named = typed_outputs(divided, {_WITH_ID: rows.element_type, _WITHOUT_ID: DeadRow})
        batches: PCollection[LabelledBatch] = named[_WITH_ID] | "Batch" >> to_batches | "Checkpoint" >> beam.Reshuffle()
        without_id: PCollection[int] = named[_WITHOUT_ID] | "CountWithoutId" >> beam.combiners.Count.Globally()
        counts = None
        if self._column.unit != SINGLE:
            batches, counts = batches | "BoundUnits" >> BoundUnitsById(self._column, self._key)
        given, sample = batches, None
        if features is not None:
            assert center is not None
            if center in fields:
                raise InputError(f"the rows have a field {center!r}: name the new field with center_column")
            sample = batches | "SampleFeatures" >> SampleFeatures(features, self._key)
            fields = {**fields, center: np.float64 if classes is None else Sequence[np.float32]}
        passes, threshold = self._label.passes, self._threshold
        plan = RunPlan(passes, self._column, self._key, lambda *_: given, sample, threshold, carries=False)
        linear = plan.before()
        if linear is not None:
            batches = batches | "AppendCenter" >> AppendCenter(linear, self._column)
        prior = plan.bind(batches, linear)
        randomizer: PCollection[Drawing] = prior | "SolveRandomizer" >> self._solve
        privatized = _privatize(batches, randomizer, prior, self._column, self._key)
        describe = _DescribeRelease(self._label, self._left_out, self._threshold, self._charge)
        release: PCollection[ReleaseDocuments] = randomizer | "Release" >> beam.ParDo(
            describe,
            AsSingleton(prior),
            AsSingleton(without_id),
            AsSingleton(privatized["digest"]),
            AsSingleton(privatized["mechanism"]),
            None if counts is None else AsSingleton(counts),
        ).with_output_types(ReleaseDocuments)
        # A runner in Java cannot hand rows of this type to another stage as a side input, but text.
        fingerprint = release | "Fingerprint" >> beam.Map(_fingerprint).with_output_types(str)
        released = privatized["batches"] | "ReleaseIfOfTheMechanism" >> beam.Map(
            _of_release, AsSingleton(fingerprint)
        ).with_output_types(LabelledBatch)
        unusable: PCollection[DeadRow] = batches | "Unusable" >> beam.ParDo(_Unusable(self._column)).with_output_types(
            DeadRow
        )
        letters: PCollection[DeadRow] = (named[_WITHOUT_ID], unusable) | "AllDeadLetters" >> beam.Flatten()
        letters = letters | "ReleaseDeadLetters" >> beam.Map(_after, AsSingleton(fingerprint)).with_output_types(
            DeadRow
        )
        if self._left_out:
            released |= "LeaveOut" >> beam.Map(LabelledBatch.without, self._left_out).with_output_types(LabelledBatch)
            fields = {name: kind for name, kind in fields.items() if name not in self._left_out}
        labelled = released | "Rows" >> BatchesToRows(fields, label, classes is not None)
        return {"rows": labelled, "release": release, "dead_letters": letters}


keywords_of(LabelDP.__init__, _ARGUMENTS, "Checks the arguments.", _NEEDED)


def _center_features(fields: Fields) -> tuple[str, ...]:
    """Names of the features of the center that the job makes; none without one."""
    names, center, id_column = names_of(fields.center_features), fields.center, fields.id_column
    of_log = center is None and fields.for_ == MODELS_OF_LOG
    if not names and (of_log or center in (None, NO_CENTER)):
        return ()
    if not names or not (of_log or (center in CENTERS and center != NO_CENTER)):
        raise ValueError("a center that the job makes needs center: cells, linear or marginals, and center_features")
    if {fields.label, id_column} & {*names}:
        raise ValueError("center_features must name neither the label nor the id_column")
    if {*names} & {*names_of(fields.leave_out)}:
        raise ValueError("center_features and leave_out name the same field: centers are released")
    return names


def _privatize(
    batches: PCollection[LabelledBatch],
    randomizer: PCollection[Drawing],
    prior: PCollection[NoiseBinding],
    column: LabelColumn,
    key: NoiseKeyFile,
) -> dict[str, PCollection[Any]]:
    """Privatizes; returns batches, held back until both passes had the same digest, and the digest.

    Returns the fingerprint of the mechanism that drew the labels, too.
    """
    privatized: PrivatizedLabels = batches | "Privatize" >> PrivatizeLabels(randomizer, prior, column, key)
    assert privatized.digest is not None
    assert privatized.mechanism is not None
    digest = AsSingleton(privatized.digest)
    return {
        "batches": privatized.batches
        | "ReleaseIfUnchanged" >> beam.Map(_unchanged, digest).with_output_types(LabelledBatch),
        "digest": privatized.digest,
        "mechanism": privatized.mechanism,
    }


def _unchanged(batch: LabelledBatch, digest: int) -> LabelledBatch:
    # The side input exists only after the last label, if the digests of both passes agree: nothing passes before.
    require_digest(digest)
    return batch


class _DivideByIds(beam.DoFn):
    """Passes rows with an id on, and makes dead letters of all others."""

    def __init__(self, id_column: str):
        self._id_column = id_column

    @redact_errors("looking for ids")
    def process(self, row: beam.Row) -> Iterator[beam.Row | TaggedOutput]:
        if getattr(row, self._id_column) is None:
            yield TaggedOutput(_WITHOUT_ID, DeadRow(None, "read", f"no id in {self._id_column}"))
        else:
            yield row


class _Unusable(beam.DoFn):
    """Makes dead letters of rows without a usable label, which is public, by their ids."""

    def __init__(self, column: LabelColumn):
        self._column = column

    @redact_errors("privatizing labels")
    def process(self, batch: LabelledBatch) -> Iterator[DeadRow]:
        ids = batch.column(str(self._column.id_column))
        if ids is not None:
            for value in ids.filter(pa.array(~usable_labels(batch, self._column)[1])).to_pylist():
                text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
                yield DeadRow(text, "privatize", "unusable label")


def _after(letter: DeadRow, fingerprint: str) -> DeadRow:
    # The side input exists only once the release was charged.
    assert isinstance(fingerprint, str)
    return letter


def _fingerprint(release: ReleaseDocuments) -> str:
    manifest = json.loads(release.manifest)
    return (manifest.get("class_center") or {"fingerprint": manifest.get("mechanism_fingerprint")})["fingerprint"]


def _of_release(batch: LabelledBatch, fingerprint: str) -> LabelledBatch:
    if batch.mechanism != fingerprint:
        raise InputError(OTHER_MECHANISM)
    return batch


@dataclasses.dataclass(frozen=True)
class _Charge:
    """Ledger that a release is charged to, in its caps; the request by its name, with the budget."""

    ledger: str
    caps: Caps
    request: str
    budget: Budget
    label: str

    def check(self, here: bool, unit: PrivacyUnit) -> None:
        """Checks the place of the ledger, and its caps, before the job runs. Raises FieldError."""
        check_ledger_place(self.ledger, here)
        check_caps(Ledger(self.ledger), self.request, self.budget, self.caps, unit)

    def write(self, prior: PriorRelease, mechanism: MechanismFile) -> None:
        """Charges the release. A retry charges nothing: releases are named by what their noise is bound to."""
        entries = release_entries(prior, mechanism, with_labels=True)
        charge = Charge(
            "privatize", self.request, self.label, prior.unit, prior.records, f"{prior.digest:064x}", "LabelDP",
            entries, mechanism.drawing.fingerprint,
        )  # fmt: skip
        with python_errors(InputError), charged(Ledger(self.ledger), charge, self.caps):
            pass


def _charge(fields: Fields, made: Label) -> _Charge | None:
    """The charge of a release, whose caps need a ledger; None without one."""
    caps = read_caps(fields.epsilon_cap, fields.delta_cap, fields.cap_window)
    if fields.ledger is not None:
        name = request_in_memory("privatize", "rows of a pipeline", made)
        return _Charge(ledger_place(fields.ledger), caps, name, made.budget, made.name)
    if caps.stated:
        raise FieldError(f"{{{next(iter(caps.stated))}}} needs {{ledger}}: without one, nothing is charged")
    return None


class _DescribeRelease(beam.DoFn):
    def __init__(self, label: Label, left_out: Sequence[str], threshold: Threshold, charge: _Charge | None):
        self._label = label
        self._left_out = {"left_out": list(left_out)} if left_out else {}
        self._threshold = threshold
        self._charge = charge

    @redact_errors("releasing")
    def process(
        self,
        randomizer: Drawing,
        prior: PriorRelease,
        without_id: int,
        digest: int,
        drawn_by: str,
        units: UnitCounts | None,
    ) -> Iterator[ReleaseDocuments]:
        require_digest(digest)
        rows = (
            without_id + prior.records + prior.unusable + (0 if units is None else units.left_out + units.without_unit)
        )
        if without_id > self._threshold.fraction * rows:
            raise InputError(
                f"{without_id:,} of {rows:,} rows have no id in {self._label.column.id_column!r} (`id_column`), more "
                f"than `max_unusable_fraction` {self._threshold.fraction:g}: fix them, exclude them by a beam.Filter "
                "before, or raise the threshold"
            )
        mechanism = MechanismFile.of_release(randomizer, prior)
        details = {"label": self._label.name, "identity": self._label.column.id_column, "where": None, **self._left_out}
        result = JobResult(prior, digest, {}, frozenset([drawn_by]), units)
        result.check_same_mechanism(randomizer.fingerprint)
        document = make_manifest(result, mechanism, self._label.budget.epsilon, details)
        if self._charge is not None:
            self._charge.write(prior, mechanism)
        yield ReleaseDocuments(json.dumps(document), mechanism.to_text())
