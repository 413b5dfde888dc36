"""The main job as a Beam graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ...mechanisms.core.budget import remaining_epsilon
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.prior_release import PriorRelease
from ...mechanisms.release.solved_release import EarlierMechanism
from ...mechanisms.release.unit_bound import DROP, UnitCounts
from ...transforms.batches import LabelledBatch
from ...transforms.center.append_center import AppendCenter
from ...transforms.center.fit_center import FitLinearCenter
from ...transforms.io.filesystems import write_text
from ...transforms.io.read_files import ReadRecordBatches
from ...transforms.noise_binding import BindNoise
from ...transforms.noisy_prior import NoisyPrior
from ...transforms.privatize_labels import PrivatizedLabels, PrivatizeLabels
from ...transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters
from ...transforms.shards.parquet_writer import WriteParquet
from ...transforms.shards.shard_ranges import CountRows, SourceRows
from ...transforms.shards.shard_writer import ShardFile
from ...transforms.shards.tfrecord_writer import WriteTFRecords
from ...transforms.solve_randomizer import SolveRandomizer
from ...transforms.units.bound_units import BoundedUnits
from ..release.job_result import JobResult
from ..release.mechanism_file import MECHANISM_NAME, MechanismFile
from ..release.output_folder import DATA_NAME, Staging
from ..units.bounded_input import bound_units, without_excess
from .job_request import JobRequest, OutputSpec

JOB_RESULT_NAME = "job_result.json"
SEGMENTS_NAME = "segments"


def build(
    pipeline: beam.Pipeline, request: JobRequest, staging: Staging, earlier: Sequence[EarlierMechanism] = ()
) -> list[PCollection[None]]:
    """Adds the job of a request to a pipeline. It writes shards, mechanism file and job result into the staging folder.

    Args:
      pipeline: Pipeline to add the job to.
      request: The checked request.
      staging: The staging folder.
      earlier: Mechanisms of earlier releases of this request.

    Returns:
      PCollections of one element each, which are complete once job result and mechanism file are written. The job
      result is written after the shards and the dead letters.
    """
    fitted = request.mechanism.fitted
    units = bound_units(pipeline, request.input, request.column, request.key)
    budget = request.record_budget
    linear = _linear_center(pipeline, request, units)
    batches = _read_labels(pipeline, request, linear, units)
    binding: Any
    randomizer: Any
    if fitted is not None:
        binding = batches | "BindNoise" >> BindNoise(request.column, fitted.budget, request.key, request.threshold)
        randomizer = fitted.randomizer
        text = pipeline | "MechanismText" >> beam.Create([fitted.to_text()])
    else:
        binding = batches | "NoisyPrior" >> NoisyPrior(
            request.column,
            budget.epsilon,
            request.key,
            budget.prior_epsilon,
            request.threshold,
            request.mechanism.name,
            linear,
        )
        randomizer = binding | "SolveRandomizer" >> SolveRandomizer(
            request.mechanism.name, dict(request.mechanism.parameters), earlier
        )
        text = randomizer | "MechanismText" >> beam.Map(_mechanism_text, AsSingleton(binding)).with_output_types(str)
    written: list[Any] = [
        text | "WriteMechanism" >> beam.Map(_write, FileSystems.join(staging.release, MECHANISM_NAME))
    ]
    digest, shards, letters = None, None, None
    if request.command != "fit":
        records = _read_records(pipeline, request, linear, units)
        privatized: Any = records | "PrivatizeLabels" >> PrivatizeLabels(
            randomizer, binding, request.column, request.key
        )
        digest = AsSingleton(privatized.digest)
        rows: Any = batches | "CountRows" >> CountRows()
        unusable: Any = binding | "Unusable" >> beam.Map(lambda found: found.unusable).with_output_types(int)
        shards, letters = _write_privatized(privatized, request.output, staging, rows, unusable)
    result: Any = binding | "WriteJobResult" >> beam.Map(
        _write_job_result,
        FileSystems.join(staging.work, JOB_RESULT_NAME),
        digest,
        AsList(shards) if shards is not None else [],
        AsList(letters) if letters is not None else [],
        None if units is None else AsSingleton(units.counts),
    )
    return [result, *written]


def _linear_center(pipeline: beam.Pipeline, request: JobRequest, units: BoundedUnits | None) -> Any:
    """The linear center: exactly one element if the job makes it, a value if it is fitted; None if there is none."""
    fitted, input, column = request.mechanism.fitted, request.input, request.column
    if fitted is not None:
        return None if fitted.center is None else fitted.center.linear
    if request.features is None:
        return None
    read = ReadRecordBatches(input.pattern, input.format, request.features.columns, input.where, column.name)
    whole = dataclasses.replace(read, columns=[column.name, *request.features.columns])
    passes = {
        "features": without_excess(pipeline | "ReadFeatures" >> read, "BoundFeatures", units, column),
        "labels": without_excess(pipeline | "ReadForCenter" >> whole, "BoundForCenter", units, column),
    }
    epsilon = remaining_epsilon(request.record_budget.epsilon, request.record_budget.prior_epsilon or 0.0)
    return passes | "FitLinearCenter" >> FitLinearCenter(
        column, epsilon, request.key, request.features, request.threshold
    )


def _read_labels(
    pipeline: beam.Pipeline, request: JobRequest, linear: Any, units: BoundedUnits | None
) -> PCollection[LabelledBatch]:
    """Reads the columns that fitting needs. The files are read again later: no batch is kept between the passes."""
    input, column = request.input, request.column
    columns = _columns(request, linear)
    read = ReadRecordBatches(input.pattern, input.format, columns, input.where, column.name)
    batches = without_excess(pipeline | "ReadLabels" >> read, "BoundLabels", units, column)
    return _with_center(batches, "Center", linear, column, tuple(column.columns))


def _read_records(
    pipeline: beam.Pipeline, request: JobRequest, linear: Any, units: BoundedUnits | None
) -> PCollection[LabelledBatch]:
    input, column = request.input, request.column
    # Features that are written as they were read need not be decoded.
    encoded = input.format.name == request.output.format == "tfrecord"
    columns = _columns(request, linear) if encoded else None
    if columns is not None and column.center is not None and column.center not in columns:
        # A record that has the new column already would have it twice.
        columns.append(column.center)
    partitions = request.output.partitions.names
    read = ReadRecordBatches(input.pattern, input.format, columns, input.where, column.name, encoded, partitions)
    kept = DROP if column.unit is None else column.unit.over_limit
    batches = without_excess(pipeline | "ReadRecords" >> read, "BoundRecords", units, column, kept)
    return _with_center(batches, "CenterOfRecords", linear, column, None)


def _columns(request: JobRequest, linear: Any) -> list[str]:
    """Columns of the input that label, identity and center are computed from."""
    if linear is None:
        return request.column.columns
    own = [name for name in request.column.columns if name != request.column.center]
    features = request.features.columns if request.features is not None else linear.design.map.columns
    return list(dict.fromkeys([*own, *features]))


def _with_center(
    batches: Any, name: str, linear: Any, column: LabelColumn, only: tuple[str, ...] | None
) -> PCollection[LabelledBatch]:
    return batches if linear is None else batches | name >> AppendCenter(linear, column, only)


def _write_privatized(
    privatized: PrivatizedLabels,
    output: OutputSpec,
    staging: Staging,
    rows: PCollection[SourceRows],
    unusable: PCollection[int],
) -> tuple[PCollection[ShardFile], PCollection[LetterFile]]:
    """Writes shards and dead letters."""
    writer = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}[output.format]
    data = FileSystems.join(staging.release, DATA_NAME)
    temp = FileSystems.join(staging.work, SEGMENTS_NAME)
    shards: Any = privatized.batches | "Write" >> writer(
        data, temp, output.num_shards, output.compression, output.partitions, rows
    )
    letters: Any = privatized.dead_letters | "WriteDeadLetters" >> WriteDeadLetters(staging.release, unusable)
    return shards, letters


def _mechanism_text(randomizer: Randomizer, release: PriorRelease) -> str:
    return MechanismFile.of_release(randomizer, release).to_text()


def _write(text: str, path: str) -> None:
    write_text(path, text)


def _write_job_result(
    binding: NoiseBinding,
    path: str,
    digest: int | None,
    shards: Sequence[ShardFile],
    letters: Sequence[LetterFile],
    units: UnitCounts | None,
) -> None:
    records = {shard.name: shard.records for shard in sorted(shards, key=lambda s: s.path)}
    mechanisms = frozenset().union(*(shard.mechanisms for shard in shards))
    write_text(path, JobResult(binding, digest, records, mechanisms, units, dict(sorted(letters))).to_json())
