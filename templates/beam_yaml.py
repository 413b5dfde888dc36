"""Transforms for Beam YAML: all arguments are numbers, strings, or lists of these.

`yaml/providers.yaml` registers them. Python code uses `labeldp.transforms` directly.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ..mechanisms.core.budget import MIN_EPSILON, remaining_epsilon
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.release.center_passes import center_passes
from ..mechanisms.release.feature_sample import CenterFeatures
from ..mechanisms.release.unit_bound import UnitBound, UnitCounts
from ..pipelines.errors import FieldError
from ..pipelines.publish.job_result import JobResult
from ..pipelines.publish.manifest import make_manifest
from ..pipelines.spec.fields import CELL_CENTER, CENTERS, NO_CENTER, Fields
from ..pipelines.spec.input_spec import input_format, where_filter
from ..pipelines.spec.label import Budget, make_label, record_budget, unit_bound, working_domain
from ..pipelines.spec.label import label_classes as read_classes
from ..pipelines.spec.label import label_column as checked_column
from ..pipelines.spec.mechanism_file import MechanismFile
from ..transforms import (
    BatchesToRows,
    CountRows,
    InputError,
    LabelColumn,
    LabelledBatch,
    NoiseKeyFile,
    NoisyPrior,
    PriorRelease,
    PrivatizeLabels,
    ReadRecordBatches,
    RowsToBatches,
    ShardFile,
    SolveRandomizer,
    WriteParquet,
    WriteTFRecords,
    row_fields,
)
from ..transforms.center.feature_sample import SampleFeatures
from ..transforms.center.fit_center import AppendCenter, DesignPass, ReleasePass
from ..transforms.errors import OTHER_MECHANISM
from ..transforms.io.filesystems import delete_folder
from ..transforms.shards.publish_shards import require_digest, require_empty
from ..transforms.units.bounds_by_id import BoundUnitsById
from ..transforms.units.unit_bounds import BoundUnits, LeaveOut


class Release(NamedTuple):
    """Documents of one release, as text.

    Attributes:
      manifest: Content of release.json.
      mechanism: Content of the mechanism file, for `labeldp audit`.
    """

    manifest: str
    mechanism: str


beam.coders.registry.register_coder(Release, beam.coders.RowCoder)


def label_column(fields: Fields) -> LabelColumn:
    """Makes the private column; rounding is by default that of rr_on_bins, or randomized for a grid of more labels.

    Raises ValueError if the domain or the unit is invalid, or epsilon is missing.
    """
    with _python_names():
        domain, declared = working_domain(fields, MIN_EPSILON if fields.epsilon is None else fields.epsilon)
        if declared is not None and fields.epsilon is None:
            raise ValueError(
                f"{declared.labels:,} labels are more than mechanisms use: give epsilon, the same as for NoisyPrior, "
                "which decides how many of them are used"
            )
        mechanism = fields.mechanism or "rr_on_bins"
        return checked_column(fields, domain, declared, mechanism, unit=unit_bound(fields))


def _fields(arguments: Mapping[str, Any]) -> Fields:
    """The fields of a transform's arguments; others are passed over."""
    with _python_names():
        return Fields.of(arguments)


_ARGUMENTS = {"input_format": "format", "mechanism_parameters": "parameters"}
"""Names of arguments that are not those of their fields."""


@contextlib.contextmanager
def _python_names() -> Iterator[None]:
    """Raises errors of fields as ValueError, with the names of the arguments."""
    try:
        yield
    except FieldError as error:
        raise ValueError(error.said(lambda field: _ARGUMENTS.get(field, field))) from None


def read_record_batches(
    input: str,
    format: str,
    label: str | None = None,
    columns: list[str] | None = None,
    where: str | None = None,
    partitions: str = "hive",
    csv_delimiter: str = ",",
    csv_encoding: str = "utf-8",
    csv_decimal: str = ".",
    csv_thousands: str = "",
    csv_columns: list[str] | None = None,
    csv_newlines_in_values: bool = False,
    csv_types: dict[str, str] | None = None,
    label_classes: list[Any] | None = None,
    other_class: Any = None,
) -> beam.PTransform:
    """Reads files into record batches.

    Args:
      input: Path or glob of the input files.
      format: One of tfrecord, parquet, csv and orc.
      label: The private column, which is read as a number from CSV files. Required with `where`.
      columns: Columns to read; default all. Fitting needs the label and id columns only.
      where: NAME=VALUE keeps the records whose public feature NAME has this value. NAME must not be the label.
      partitions: "hive" makes columns of folders named KEY=VALUE in the paths of the files; "none" ignores them.
      csv_delimiter: Character between the fields of CSV files, such as ";" or "\\t".
      csv_encoding: Encoding of CSV files, such as latin-1, cp1252 or utf-16.
      csv_decimal: Decimal mark of numbers in CSV files, "." or ",".
      csv_thousands: Mark of thousands in numbers of CSV files, such as "." or ","; default none.
      csv_columns: Names of the columns of CSV files without a header line, in their order.
      csv_newlines_in_values: Whether quoted fields of CSV files may have line breaks; an error by default.
      csv_types: Types of CSV columns by name, such as string or uint64; those of other columns are inferred.
      label_classes: Classes of the label, as which it is read from CSV files.
      other_class: Class that values count as that are not listed; by default the first one.

    Returns:
      A transform from the pipeline to LabelledBatch.

    Raises:
      ValueError: If an argument is invalid.
    """
    given = {**locals(), "label": label or "", "input_format": format}
    with _python_names():
        fields = Fields.of(given)
        read, only, classes = input_format(fields), where_filter(where, None), read_classes(fields)
    if classes is not None and label is not None:
        read = dataclasses.replace(read, classes={label: classes})
    return ReadRecordBatches(input, read, columns, only, label)


def noisy_prior(
    label: str,
    epsilon: float,
    noise_key_file: str,
    label_min: float | None = None,
    label_max: float | None = None,
    label_step: float | None = None,
    label_values: list[float] | None = None,
    label_classes: list[Any] | None = None,
    other_class: Any = None,
    id_column: str | None = None,
    prior_epsilon: float | None = None,
    rounding: str | None = None,
    center_column: str | None = None,
    mechanism: str = "rr_on_bins",
    unit_column: str | None = None,
    max_records_per_unit: int | None = None,
) -> beam.PTransform:
    """Releases the label histogram under label differential privacy.

    Args:
      label: The private column.
      epsilon: Total budget of histogram and labels.
      noise_key_file: Path of the secret 32-byte key, which every worker reads.
      label_min: Smallest label of the public domain.
      label_max: Largest label of the public domain.
      label_step: Spacing of the label grid.
      label_values: All labels of the domain, ascending, instead of the three arguments above.
      label_classes: Classes of the label, texts, integers or booleans, instead of a domain of numbers.
      other_class: Class that values count as that are not listed; by default the first one.
      id_column: Column of unique ids; by default records are identified by file and row.
      prior_epsilon: Budget of the histogram; by default sqrt(k / n), at most the mechanism's share of epsilon.
      rounding: Rounding of labels that are not in the domain, nearest or randomized; by default nearest, and randomized
        for a grid of more labels than mechanisms use.
      center_column: Column of public predictions, around which labels are privatized.
      mechanism: Name of the mechanism that is solved for next; it decides the default of prior_epsilon.
      unit_column: Public column that names the privacy unit, for which epsilon then is; of bounded records.
      max_records_per_unit: Largest number of records of a unit.

    Returns:
      A transform from LabelledBatch to one PriorRelease.

    Raises:
      ValueError: If the domain or the budget is invalid.
    """
    fields = _fields(locals())
    column = label_column(dataclasses.replace(fields, mechanism=None))
    budget = record_budget(Budget(epsilon, 0.0, fields.prior_epsilon), column.unit)
    key = NoiseKeyFile(noise_key_file)
    return NoisyPrior(column, budget.epsilon, key, budget.prior_epsilon, mechanism=mechanism)


class BoundRecordBatches(beam.PTransform):
    """Leaves out records of files, so that no privacy unit has more than M of them.

    Takes two inputs: `labels`, with the columns of label, unit and id, and `batches`, the same records with all columns
    that are released. Returns both under the same names, without the records beyond the bound.
    """

    def __init__(
        self,
        label: str,
        noise_key_file: str,
        unit_column: str,
        max_records_per_unit: int,
        id_column: str | None = None,
    ):
        """Checks the arguments, which must be equal to those of the other transforms.

        Args:
          label: The private column.
          noise_key_file: Path of the secret 32-byte key, which every worker reads.
          unit_column: Public column that names the privacy unit of each record.
          max_records_per_unit: Largest number of records of a unit.
          id_column: Column of unique ids; by default records are identified by file and row.

        Raises:
          ValueError: If the number of records is out of range.
        """
        super().__init__()
        self._unit = UnitBound(unit_column, max_records_per_unit)
        # Which records are left out does not depend on the domain.
        self._column = LabelColumn(label, (0.0,), id_column, unit=self._unit)
        self._key = NoiseKeyFile(noise_key_file)

    def expand(self, pcolls: dict[str, PCollection[Any]]) -> dict[str, PCollection[Any]]:
        missing = {"labels", "batches"} - set(pcolls)
        if missing:
            raise ValueError(f"BoundUnits needs the inputs labels and batches; missing: {', '.join(sorted(missing))}")
        bounded: Any = pcolls["labels"] | "BoundUnits" >> BoundUnits(self._column, self._key)
        return {
            name: pcolls[name] | f"LeaveOut {name}" >> LeaveOut(bounded.exclusions, self._unit)
            for name in ("labels", "batches")
        }


def solve_randomizer(mechanism: str = "rr_on_bins", parameters: dict[str, Any] | None = None) -> beam.PTransform:
    """Solves for the optimal randomizer of a released prior.

    Args:
      mechanism: Name of the mechanism, as for `labeldp privatize --mechanism`.
      parameters: Parameters of the mechanism, by name, and its loss.

    Returns:
      A transform from PriorRelease to Randomizer.

    Raises:
      ValueError: If the mechanism or a parameter is unknown.
    """
    return SolveRandomizer(mechanism, parameters or {})


class PrivatizeRecordBatches(beam.PTransform):
    """Replaces each label by a draw from the randomizer.

    Takes three inputs: `batches`, `prior` and `randomizer`. Returns `batches`, and `dead_letters` as JSON strings. It
    outputs nothing unless the batches are those that the prior was computed from.
    """

    def __init__(
        self,
        label: str,
        noise_key_file: str,
        label_min: float | None = None,
        label_max: float | None = None,
        label_step: float | None = None,
        label_values: list[float] | None = None,
        label_classes: list[Any] | None = None,
        other_class: Any = None,
        id_column: str | None = None,
        rounding: str | None = None,
        center_column: str | None = None,
        unit_column: str | None = None,
        max_records_per_unit: int | None = None,
        epsilon: float | None = None,
    ):
        """Checks the arguments, which must be equal to those of `noisy_prior`.

        Args:
          label: The private column.
          noise_key_file: Path of the secret 32-byte key, which every worker reads.
          label_min: Smallest label of the public domain.
          label_max: Largest label of the public domain.
          label_step: Spacing of the label grid.
          label_values: All labels of the domain, ascending, instead of the three arguments above.
          label_classes: Classes of the label, texts, integers or booleans, instead of a domain of numbers.
          other_class: Class that values count as that are not listed; by default the first one.
          id_column: Column of unique ids; by default records are identified by file and row.
          rounding: Rounding of labels that are not in the domain, nearest or randomized; by default nearest, and
            randomized for a grid of more labels than mechanisms use.
          center_column: Column of public predictions, around which labels are privatized.
          unit_column: Public column that names the privacy unit of each record.
          max_records_per_unit: Largest number of records of a unit.
          epsilon: Total budget of histogram and labels, which decides how many labels of a fine grid are used. Needed
            for a grid of more than 512 steps.

        Raises:
          ValueError: If the domain or the unit is invalid, or epsilon is missing.
        """
        fields = _fields(locals())
        super().__init__()
        self._column = label_column(fields)
        self._key = NoiseKeyFile(noise_key_file)

    def expand(self, pcolls: dict[str, PCollection[Any]]) -> dict[str, PCollection[Any]]:
        missing = {"batches", "prior", "randomizer"} - set(pcolls)
        if missing:
            raise ValueError(
                f"PrivatizeLabels needs the inputs batches, prior and randomizer; missing: {', '.join(sorted(missing))}"
            )
        found = _privatize(pcolls["batches"], pcolls["randomizer"], pcolls["prior"], self._column, self._key)
        return {name: found[name] for name in ("batches", "dead_letters")}


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


class WriteRecordBatches(beam.PTransform):
    """Writes batches to shards, with the same bytes on every runner.

    Takes `batches`, and `labels`, the batches of the first pass, if each shard is to have a range of rows as those of
    the command do. With `batches` alone, rows go to shards in turn, in blocks of 256. Returns a ShardFile for each
    shard. While the job runs, the folder OUTPUT.segments holds segments of the shards. A job that fails leaves this
    folder behind; delete it.
    """

    def __init__(self, output: str, format: str = "parquet", num_shards: int = 1, compression: str = "none"):
        """Checks the arguments.

        Args:
          output: New or empty folder.
          format: tfrecord or parquet.
          num_shards: Number of files, at least 1.
          compression: none or gzip.

        Raises:
          ValueError: If an argument is invalid.
        """
        super().__init__()
        writers = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}
        if format not in writers:
            raise ValueError(f"format must be one of {', '.join(writers)}, not {format!r}")
        self._output = output
        self._segments = f"{output.rstrip('/')}.segments"
        self._writer = partial(writers[format], self._output, self._segments, num_shards, compression)
        self._writer()

    def expand(self, pcolls: PCollection[LabelledBatch] | dict[str, PCollection[Any]]) -> PCollection[ShardFile]:
        """Raises InputError if the output folder or the segments folder contains files."""
        batches: Any = pcolls
        rows: Any = None
        if isinstance(pcolls, dict):
            batches, rows = pcolls["batches"], pcolls["labels"] | "CountRows" >> CountRows()
        # Checked where the job is started, not on workers: a restarted worker would find its own shards there.
        require_empty(self._output)
        require_empty(self._segments)
        shards: Any = batches | "Write" >> self._writer(rows=rows)
        _ = (
            batches.pipeline
            | "Segments" >> beam.Create([self._segments])
            | "DeleteSegments" >> beam.Map(_delete_segments, AsList(shards))
        )
        return shards


def _delete_segments(folder: str, _: Sequence[ShardFile]) -> None:
    # The side input is complete only when all shards have their final names, so the segments are no longer needed.
    delete_folder(folder)


class LabelDP(beam.PTransform):
    """Replaces the label of each row under label differential privacy: the whole job as one transform.

    Returns `rows`, and `release`: one row with the manifest and the mechanism file as text. Rows without a usable label
    are left out. It outputs nothing if the rows differ between the two passes over them, or if not all labels were
    drawn by the mechanism of the release.
    """

    def __init__(
        self,
        label: str,
        id_column: str,
        epsilon: float,
        noise_key_file: str,
        label_min: float | None = None,
        label_max: float | None = None,
        label_step: float | None = None,
        label_values: list[float] | None = None,
        label_classes: list[Any] | None = None,
        other_class: Any = None,
        prior_epsilon: float | None = None,
        mechanism: str | None = None,
        parameters: dict[str, Any] | None = None,
        rounding: str | None = None,
        center_column: str | None = None,
        center: str | None = None,
        center_features: list[str] | None = None,
        unit_column: str | None = None,
        max_records_per_unit: int | None = None,
    ):
        """Checks the arguments.

        Args:
          label: The private field.
          id_column: Field of unique ids, which identifies the rows.
          epsilon: Total budget of histogram and labels.
          noise_key_file: Path of the secret 32-byte key, which every worker reads.
          label_min: Smallest label of the public domain.
          label_max: Largest label of the public domain.
          label_step: Spacing of the label grid.
          label_values: All labels of the domain, ascending, instead of the three arguments above.
          label_classes: Classes of the label, texts, integers or booleans, instead of a domain of numbers.
          other_class: Class that values count as that are not listed; by default the first one.
          prior_epsilon: Budget of the histogram; by default sqrt(k / n), at most the mechanism's share of epsilon.
          mechanism: Name of the mechanism, as for `labeldp privatize --mechanism`; by default auto.
          parameters: Parameters of the mechanism, by name, and its loss.
          rounding: Rounding of labels that are not in the domain, nearest or randomized; by default that of the
            mechanism.
          center_column: Field of public predictions, around which labels are privatized. With `center`, name of the new
            field; by default the label's name and _center.
          center: "linear" to predict labels from `center_features` by a linear model, which costs a part of epsilon;
            "cells" for what trees over cells of the features add to it, where that pays.
          center_features: Fields that the predictions are computed from. Text is a category.
          unit_column: Public field that names the privacy unit of each row, for which epsilon then is.
          max_records_per_unit: Largest number of rows of a unit; the others are left out.

        Raises:
          ValueError: If the domain, the budget, the mechanism, the center or the unit is invalid.
        """
        given = dict(locals())
        super().__init__()
        self._features = None
        if label_classes is not None and (center_features is not None or center not in (None, NO_CENTER)):
            raise ValueError("rows of classes have no center: release files, or leave out center and center_features")
        if center == NO_CENTER:
            given["center"] = center = None
        if id_column is None:
            raise ValueError("id_column must be the name of the field that identifies rows")
        if isinstance(center_features, str):
            center_features = center_features.split(",")
        if not isinstance(parameters or {}, Mapping):
            raise ValueError("parameters must be a mapping")
        if center is not None or center_features is not None:
            if center not in CENTERS or not center_features:
                raise ValueError("a center that the job makes needs center: cells or linear, and center_features")
            if {label, id_column} & {*center_features}:
                raise ValueError("center_features must name neither the label nor the id_column")
            self._features = CenterFeatures(tuple(center_features), id_column, center == CELL_CENTER)
            given["center_column"] = center_column or f"{label}_center"
        own = dict(parameters or {})
        loss, delta = own.pop("loss", None), own.pop("delta", None)
        with _python_names():
            made = make_label(_fields({**given, "mechanism_parameters": own, "loss": loss, "delta": delta}))
        self._column = made.column
        self._epsilon = epsilon
        self._key = NoiseKeyFile(noise_key_file)
        budget, name = made.record_budget, made.mechanism.name
        self._prior = NoisyPrior(self._column, budget.epsilon, self._key, budget.prior_epsilon, mechanism=name)
        self._center_epsilon = remaining_epsilon(budget.epsilon, budget.prior_epsilon or 0.0)
        self._solve = SolveRandomizer(name, dict(made.mechanism.parameters))

    def expand(self, rows: PCollection[Any]) -> dict[str, PCollection[Any]]:
        """Raises InputError if the rows have no schema, or no label, id or feature field, or one of the new name."""
        id_column, center, features = self._column.id_column, self._column.center, self._features
        assert id_column is not None
        needed = [name for name in self._column.columns if features is None or name != center]
        unit = self._column.unit
        needed += [] if unit is None else [unit.column]
        fields = row_fields(rows, *needed, *(() if features is None else features.columns))
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
            _Release(self._column, self._epsilon),
            AsSingleton(prior),
            AsSingleton(privatized["digest"]),
            AsSingleton(privatized["mechanism"]),
            None if counts is None else AsSingleton(counts),
        ).with_output_types(Release)
        # A runner in Java cannot hand rows of this type to another stage as a side input, but text.
        fingerprint = release | "Fingerprint" >> beam.Map(_fingerprint).with_output_types(str)
        released = privatized["batches"] | "ReleaseIfOfTheMechanism" >> beam.Map(
            _of_release, AsSingleton(fingerprint)
        ).with_output_types(LabelledBatch)
        return {"rows": released | "Rows" >> BatchesToRows(fields, label, classes is not None), "release": release}


def _fingerprint(release: Release) -> str:
    return json.loads(release.manifest)["mechanism_fingerprint"]


def _of_release(batch: LabelledBatch, fingerprint: str) -> LabelledBatch:
    if batch.mechanism != fingerprint:
        raise InputError(OTHER_MECHANISM)
    return batch


class _Release(beam.DoFn):
    def __init__(self, column: LabelColumn, epsilon: float):
        self._column = column
        self._epsilon = epsilon

    def process(
        self, randomizer: Randomizer, prior: PriorRelease, digest: int, drawn_by: str, units: UnitCounts | None
    ) -> Iterator[Release]:
        require_digest(digest)
        mechanism = MechanismFile.of_release(randomizer, prior)
        details = {"label": self._column.name, "identity": self._column.id_column, "where": None}
        result = JobResult(prior, digest, {}, frozenset([drawn_by]), units)
        result.check_same_mechanism(randomizer.fingerprint.hex())
        document = make_manifest(result, mechanism, self._epsilon, details)
        yield Release(json.dumps(document), mechanism.to_text())
