"""The main job as a Beam graph, and its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ...mechanisms.core.budget import remaining_epsilon
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.prior_release import EarlierMechanism, PriorRelease
from ...mechanisms.release.unit_bound import UnitCounts
from ...transforms.batches import Carried, LabelledBatch
from ...transforms.center.append_center import AppendCenter
from ...transforms.center.fit_center import DesignCenter, FitLinearCenter
from ...transforms.io.filesystems import delete_files, make_directory, write_text
from ...transforms.io.row_parts import ENOUGH_FILES
from ...transforms.noise_binding import BindNoise
from ...transforms.noisy_prior import NoisyPrior
from ...transforms.privatize_labels import PrivatizeLabels
from ...transforms.readers.read_files import ReadRecordBatches
from ...transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters
from ...transforms.shards.parquet_writer import WriteParquet
from ...transforms.shards.shard_ranges import CountRows, DivideRows, ShardRanges
from ...transforms.shards.shard_writer import ShardFile
from ...transforms.shards.tfrecord_writer import WriteTFRecords
from ...transforms.solve_randomizer import SolveRandomizer
from ...transforms.units.bound_units import BoundedUnits
from ..ledger.ledger import Ledger
from ..publish.job_result import JobResult
from ..publish.output_folder import DATA_NAME, SEGMENTS_NAME, Staging, job_result_path, released_path
from ..publish.release_steps import ReleasedLabel, earlier_of_requests, read_results
from ..spec.job_request import InputSpec, JobRequest, OutputSpec
from ..spec.label_folders import MANIFEST_NAME, label_folders
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile
from .bounded_input import bound_units, without_excess
from .run_pipeline import run_pipeline


def build(
    pipeline: beam.Pipeline,
    requests: Sequence[JobRequest],
    staging: Staging,
    earlier: Sequence[Sequence[EarlierMechanism]],
) -> list[PCollection[None]]:
    """Adds a job to a pipeline. It writes shards, mechanism files and job results into the staging folder.

    The labels of several private columns are randomized by one stage after the other. Their priors, centers and
    randomizers do not depend on each other. There is one checked request for each column, and `earlier` has the
    mechanisms of its earlier releases.

    Returns PCollections of one element each, which are complete once job results and mechanism files are written. The
    job results are written after the shards and the dead letters.
    """
    first, folders = requests[0], label_folders([request.column.name for request in requests])
    suffixes = [""] if len(requests) == 1 else [f" {place + 1}" for place in range(len(requests))]
    units = bound_units(pipeline, first.input, first.column, first.key)
    linears = [
        _linear_center(pipeline, request, units, suffix) for request, suffix in zip(requests, suffixes, strict=True)
    ]
    centers = [_carried(f"center{suffix}", linear) for linear, suffix in zip(linears, suffixes, strict=True)]
    labels = _read_labels(pipeline, requests, linears, units, _only_carried(centers))
    bindings: list[Any] = []
    randomizers: list[Any] = []
    written: list[Any] = []
    for place, (request, linear, suffix) in enumerate(zip(requests, linears, suffixes, strict=True)):
        column = request.column
        batches = _with_center(labels, f"Center{suffix}", centers[place], column, tuple(column.columns))
        binding, randomizer, text = _solved(request, batches, linear, earlier[place], suffix)
        path = released_path(staging.release, folders[place], MECHANISM_NAME)
        written.append(text | f"WriteMechanism{suffix}" >> beam.Map(_write, path, staging.work))
        bindings.append(binding)
        randomizers.append(randomizer)
    digests: list[Any] = [None] * len(requests)
    shards, letters = None, None
    if first.command != "fit":
        rows: Any = labels | "CountRows" >> CountRows()
        divided: Any = rows | "DivideRows" >> DivideRows(first.output.num_shards, first.output.partitions)
        ranges = Carried("ranges", divided)
        drawing = [
            (_carried(f"randomizer{suffix}", randomizer), Carried(f"binding{suffix}", binding))
            for randomizer, binding, suffix in zip(randomizers, bindings, suffixes, strict=True)
        ]
        carried = _only_carried([*centers, *(each for pair in drawing for each in pair), ranges])
        records: Any = _read_records(pipeline, requests, linears, units, carried, ranges)
        privatized: list[Any] = []
        for request, center, pair, suffix in zip(requests, centers, drawing, suffixes, strict=True):
            records = _with_center(records, f"CenterOfRecords{suffix}", center, request.column, None)
            drawn: Any = records | f"PrivatizeLabels{suffix}" >> PrivatizeLabels(*pair, request.column, request.key)
            privatized.append(drawn)
            records = drawn.batches
        digests = [AsSingleton(each.digest) for each in privatized]
        # The first stage leaves out every record that lacks a usable label in any of the columns.
        unusable: Any = bindings[0] | "Unusable" >> beam.Map(lambda found: found.unusable).with_output_types(int)
        shards = _write_shards(records, ranges, first.output, staging)
        letters = privatized[0].dead_letters | "WriteDeadLetters" >> WriteDeadLetters(
            staging.release, unusable, staging.work
        )
    results: list[Any] = [
        binding
        | f"WriteJobResult{suffixes[place]}"
        >> beam.Map(
            _write_job_result,
            job_result_path(staging, place),
            place,
            digests[place],
            AsList(shards) if shards is not None else [],
            AsList(letters) if letters is not None else [],
            None if units is None else AsSingleton(units.counts),
        )
        for place, binding in enumerate(bindings)
    ]
    return [*results, *written]


def reads_parts(input: InputSpec, column: LabelColumn, output: OutputSpec) -> bool:
    """Tells whether the records of a large TFRecord or CSV file are read in parts, if its kind of file is split.

    A shard of several parts is put together from their segments: those of TFRecords are copied, but those of Parquet
    are encoded then, which takes longer than the parts of a CSV file gain. Of files with enough shards each, parts are
    whole shards.
    """
    whole = _parts_are_shards(column, output) and output.num_shards >= ENOUGH_FILES * len(input.parts)
    cheap = input.format.name != "csv" or output.format == "tfrecord" or whole
    return cheap and output.num_shards > len(input.parts)


def _carried(name: str, value: Any) -> Any:
    """A side input that batches carry; values, such as those of a mechanism file, stay what they are."""
    return Carried(name, value) if isinstance(value, PCollection) else value


def _only_carried(values: Sequence[Any]) -> list[Carried]:
    return [value for value in values if isinstance(value, Carried)]


def _solved(
    request: JobRequest, batches: Any, linear: Any, earlier: Sequence[EarlierMechanism], suffix: str
) -> tuple[Any, Any, Any]:
    """Binding of the noise, randomizer and text of the mechanism file of one label.

    batches: the labels with their centers. suffix: end of the names of the stages.
    """
    column, fitted, budget = request.column, request.mechanism.fitted, request.record_budget
    if fitted is not None:
        binding: Any = batches | "BindNoise" >> BindNoise(
            column, fitted.budget, request.key, request.threshold, request.input.id_groups
        )
        text: Any = batches.pipeline | "MechanismText" >> beam.Create([fitted.to_text()])
        return binding, fitted.randomizer, text
    binding = batches | f"NoisyPrior{suffix}" >> NoisyPrior(
        column,
        budget.epsilon,
        request.key,
        budget.prior_epsilon,
        request.threshold,
        request.mechanism.name,
        linear,
        request.input.id_groups,
    )
    randomizer: Any = binding | f"SolveRandomizer{suffix}" >> SolveRandomizer(
        request.mechanism.name, dict(request.mechanism.parameters), earlier
    )
    text = randomizer | f"MechanismText{suffix}" >> beam.Map(_mechanism_text, AsSingleton(binding)).with_output_types(
        str
    )
    return binding, randomizer, text


def _linear_center(pipeline: beam.Pipeline, request: JobRequest, units: BoundedUnits | None, suffix: str) -> Any:
    """The linear center: exactly one element if the job makes it, a value if it is fitted; None if there is none.

    suffix: end of the names of its stages.
    """
    fitted, input, column = request.mechanism.fitted, request.input, request.column
    if fitted is not None:
        return None if fitted.center is None else fitted.center.linear
    if request.features is None:
        return None
    read = ReadRecordBatches(
        input.pattern, input.format, request.features.columns, input.where, column.name,
        other_labels=column.others, together=input.together,
    )  # fmt: skip
    whole = dataclasses.replace(read, columns=[*column.private, *request.features.columns])
    epsilon = remaining_epsilon(request.record_budget.epsilon, request.record_budget.prior_epsilon or 0.0)
    features: Any = _bounded(pipeline, f"Features{suffix}", read, units, column)
    designed: Any = features | f"DesignCenter{suffix}" >> DesignCenter(column, epsilon, request.key, request.features)
    design = Carried(f"design{suffix}", designed)
    labels: Any = _bounded(pipeline, f"ForCenter{suffix}", whole, units, column, [design])
    return labels | f"FitLinearCenter{suffix}" >> FitLinearCenter(
        column, design, request.key, request.threshold, input.id_groups
    )


def _read_labels(
    pipeline: beam.Pipeline,
    requests: Sequence[JobRequest],
    linears: Sequence[Any],
    units: BoundedUnits | None,
    carried: Sequence[Carried],
) -> PCollection[LabelledBatch]:
    """Reads the columns that fitting needs. The files are read again later: no batch is kept between the passes."""
    input, column = requests[0].input, requests[0].column
    columns = _columns(requests, linears)
    # Where the rows of a CSV file begin takes as long to find as one pass gains.
    split = input.format.name != "csv" or reads_parts(input, column, requests[0].output)
    read = ReadRecordBatches(
        input.pattern, input.format, columns, input.where, column.name,
        other_labels=column.others, split=split, together=input.together,
    )  # fmt: skip
    return _bounded(pipeline, "Labels", read, units, column, carried)


def _bounded(
    pipeline: beam.Pipeline,
    name: str,
    read: ReadRecordBatches,
    units: BoundedUnits | None,
    column: LabelColumn,
    carried: Sequence[Carried] = (),
) -> PCollection[LabelledBatch]:
    """Reads records within the bounds of their units, from the last stage on that needs side inputs of its own."""
    if units is None:
        return pipeline | f"Read{name}" >> dataclasses.replace(read, carried=carried)
    return without_excess(pipeline | f"Read{name}" >> read, f"Bound{name}", units, column, carried)


def _read_records(
    pipeline: beam.Pipeline,
    requests: Sequence[JobRequest],
    linears: Sequence[Any],
    units: BoundedUnits | None,
    carried: Sequence[Carried],
    ranges: Carried[ShardRanges],
) -> PCollection[LabelledBatch]:
    input, column, output = requests[0].input, requests[0].column, requests[0].output
    # Features that are written as they were read need not be decoded.
    encoded = input.format.name == output.format == "tfrecord"
    columns = _columns(requests, linears) if encoded else None
    if columns is not None:
        # A record that has a new column already would have it twice.
        centers = [request.column.center for request in requests]
        columns += [center for center in centers if center is not None and center not in columns]
    partitions = output.partitions.names
    split = reads_parts(input, column, output)
    read = ReadRecordBatches(
        input.pattern, input.format, columns, input.where, column.name,
        encoded, partitions, column.others, split, input.together,
        shards=ranges if _parts_are_shards(column, output) else None,
    )  # fmt: skip
    return _bounded(pipeline, "Records", read, units, column, carried)


def _parts_are_shards(column: LabelColumn, output: OutputSpec) -> bool:
    """Tells whether workers know the shards of the records that they read.

    Records of units are read before that, and the folder of a shard is found later.
    """
    return column.unit is None and not output.partitions.names


def _columns(requests: Sequence[JobRequest], linears: Sequence[Any]) -> list[str]:
    """Columns of the input that labels, identity and centers are computed from."""
    names: list[str] = []
    for request, linear in zip(requests, linears, strict=True):
        own = request.column.columns
        if linear is not None:
            own = [name for name in own if name != request.column.center]
            own += request.features.columns if request.features is not None else linear.design.map.columns
        names += own
    return list(dict.fromkeys(names))


def _with_center(
    batches: Any, name: str, center: Any, column: LabelColumn, only: tuple[str, ...] | None
) -> PCollection[LabelledBatch]:
    return batches if center is None else batches | name >> AppendCenter(center, column, only)


def _write_shards(
    batches: PCollection[LabelledBatch], ranges: Carried[ShardRanges], output: OutputSpec, staging: Staging
) -> PCollection[ShardFile]:
    writer = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}[output.format]
    data = FileSystems.join(staging.release, DATA_NAME)
    temp = FileSystems.join(staging.work, SEGMENTS_NAME)
    return batches | "Write" >> writer(data, temp, output.num_shards, output.compression, output.partitions, ranges)


def _mechanism_text(randomizer: Randomizer, release: PriorRelease) -> str:
    return MechanismFile.of_release(randomizer, release).to_text()


def _write(text: str, path: str, temp: str) -> None:
    write_text(path, text, temp)


def _write_job_result(
    binding: NoiseBinding,
    path: str,
    place: int,
    digest: int | None,
    shards: Sequence[ShardFile],
    letters: Sequence[LetterFile],
    units: UnitCounts | None,
) -> None:
    records = {shard.name: shard.records for shard in sorted(shards, key=lambda s: s.path)}
    # Of several columns, a batch has all mechanisms, in their order.
    mechanisms = frozenset(
        None if drawn is None else drawn.split(",")[place] for shard in shards for drawn in shard.mechanisms
    )
    write_text(path, JobResult(binding, digest, records, mechanisms, units, dict(sorted(letters))).to_json())


def run_job(
    ledger: Ledger, request_name: str, requests: Sequence[JobRequest], options: PipelineOptions, staging: Staging
) -> list[ReleasedLabel]:
    """Runs the main job, which writes shards and mechanism files into the staging folder.

    If it repeats a release of the ledger whose output is still there, it uses the mechanisms of that release. Raises
    InputError if the input is at fault.
    """
    earlier = earlier_of_requests(ledger, request_name, requests)
    for folder in label_folders([request.column.name for request in requests]):
        # Here and not by a worker, which must not make a folder again that the end of the job has removed.
        for root in {staging.work, staging.release} if folder else ():
            make_directory(FileSystems.split(released_path(root, folder, MANIFEST_NAME))[0])
    run_pipeline(options, lambda pipeline: build(pipeline, requests, staging, earlier))
    released = read_results(requests, staging)
    delete_files([job_result_path(staging, place) for place in range(len(requests))])
    return released
