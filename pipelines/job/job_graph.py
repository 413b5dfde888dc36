"""The main job as a Beam graph, and its run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ...mechanisms.center.class_model import Mechanism
from ...mechanisms.core.budget import remaining_epsilon
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.center_passes import center_passes
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.prior_release import EarlierMechanism, PriorRelease
from ...mechanisms.release.unit_bound import UnitCounts
from ...transforms.batches import Carried, LabelledBatch
from ...transforms.center.center_files import AppendWrittenCenters, CenterFiles, WriteCenters
from ...transforms.center.feature_sample import SampleFeatures
from ...transforms.center.fit_center import AppendCenter, DesignPass, ReleasePass
from ...transforms.io.filesystems import make_directory, write_text
from ...transforms.io.input_format import ENOUGH_FILES
from ...transforms.noise_binding import BindNoise
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.noisy_prior import NoisyPrior
from ...transforms.privatize_labels import PrivatizedLabels, PrivatizeLabels
from ...transforms.readers.file_reader import ReadRecordBatches
from ...transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters
from ...transforms.shards.shard_formats import WriteParquet, WriteTFRecords
from ...transforms.shards.shard_ranges import CountRows, DivideRows, ShardRanges
from ...transforms.shards.shard_writer import ShardFile
from ...transforms.solve_randomizer import SolveRandomizer
from ...transforms.units.unit_bounds import BoundedUnits, BoundUnits, LeaveOut
from ..ledger.ledger import Ledger
from ..publish.job_result import JobResult
from ..publish.output_folder import DATA_NAME, SEGMENTS_NAME, Staging, job_result_path, released_path
from ..publish.release_steps import earlier_of_release
from ..publish.request import Run
from ..publish.sealed_result import sealed
from ..publish.staging_locks import SUBMITTED_NAME
from ..spec.label_folders import MANIFEST_NAME
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile
from ..spec.release import InputSpec, Release
from .run_pipeline import run_pipeline

# Units are sorted in groups, one for so many bytes of input, so that a group fits into memory.
_BYTES_A_GROUP = 1 << 26


class LabelJob:
    """Stages of one label of a release. Those of several labels differ in the ends of their names.

    Attributes:
      label: The label.
      place: Its place among the labels.
      center: The linear center, for stages that take it: carried by batches, or of a fitted mechanism; None for none.
      binding: Binding of the noise, after `fit`.
      privatized: Outputs of the stage that draws the labels, after `draw`; None for `fit` alone.
    """

    binding: Any
    privatized: PrivatizedLabels | None = None
    _centers: Carried[CenterFiles] | None = None

    def __init__(self, pipeline: beam.Pipeline, release: Release, place: int, units: BoundedUnits | None):
        """Adds the stages of the linear center, if the job makes one."""
        self.label, self.place, self._release = release.labels[place], place, release
        self._suffix = "" if len(release.labels) == 1 else f" {place + 1}"
        self._pipeline, self._units = pipeline, units
        # Classes are drawn from a center, of which their fit is a part.
        self._classes = self.label.column.classes is not None
        self._linear = None if self._classes else self._linear_center()
        self.center = self._carried("center", self._linear)
        self._drawing: tuple[Any, Any] = (None, None)

    def fit(
        self, labels: PCollection[LabelledBatch], earlier: Sequence[EarlierMechanism], temp: str
    ) -> PCollection[str]:
        """Adds the stages from labels to randomizer; returns the text of the mechanism file.

        `earlier` are the mechanisms of earlier releases of this request, and `temp` is a folder for temporary files.
        """
        release, column, suffix = self._release, self.label.column, self._suffix
        fitted, groups = self.label.mechanism.fitted, release.input.id_groups
        batches = self._with_center(labels)
        if self.center is not None and release.command != "fit":
            files: Any = batches | f"WriteCenters{suffix}" >> WriteCenters(temp, column)
            self._centers = Carried(f"centers{suffix}", files)
        if fitted is not None:
            self.binding = batches | "BindNoise" >> BindNoise(
                column, fitted.budget, release.key, release.threshold, groups
            )
            self._drawing = fitted.drawing, Carried(f"binding{suffix}", self.binding)
            return batches.pipeline | "MechanismText" >> beam.Create([fitted.to_text()])
        name, budget = self.label.mechanism.name, self.label.record_budget
        limits = release.threshold, name, self._linear, groups
        self.binding = batches | f"NoisyPrior{suffix}" >> NoisyPrior(
            column, budget.epsilon, release.key, budget.prior_epsilon, *limits
        )
        randomizer: Any = self.binding | f"SolveRandomizer{suffix}" >> SolveRandomizer(
            name, dict(self.label.mechanism.parameters), earlier
        )
        if self._classes and self.label.features is not None:
            # The histogram decides whether classes are drawn from a center.
            center = self._fit_center(budget.epsilon, self.binding)
            randomizer = randomizer | f"ChooseMechanism{suffix}" >> beam.Map(_chosen, AsSingleton(center))
            randomizer |= f"ChosenMechanism{suffix}" >> beam.Reshuffle()
        text = randomizer | f"MechanismText{suffix}" >> beam.Map(
            _mechanism_text, AsSingleton(self.binding)
        ).with_output_types(str)
        self._drawing = self._carried("randomizer", randomizer), Carried(f"binding{suffix}", self.binding)
        return text

    def draw(self, records: PCollection[LabelledBatch]) -> PCollection[LabelledBatch]:
        """Adds the stage that draws the labels; returns the records with them."""
        batches: Any = records
        if self._centers is not None:
            batches |= f"CenterOfRecords{self._suffix}" >> AppendWrittenCenters(self._centers, self.label.column)
        drawn: Any = batches | f"PrivatizeLabels{self._suffix}" >> PrivatizeLabels(
            *self._drawing, self.label.column, self._release.key
        )
        self.privatized = drawn
        return drawn.batches

    def write_result(
        self, path: str, run: str, text: Any, shards: Any, letters: Any, units: BoundedUnits | None
    ) -> PCollection[None]:
        """Adds the stage that seals the job result, after the shards and the dead letters; both may be None.

        `run` is the digest of the request, and `text` that of the mechanism file.
        """
        drawn = self.privatized
        return self.binding | f"WriteJobResult{self._suffix}" >> beam.Map(
            _write_job_result,
            path,
            self.place,
            run,
            self._release.key,
            AsSingleton(text),
            None if drawn is None or drawn.digest is None else AsSingleton(drawn.digest),
            [] if shards is None else AsList(shards),
            [] if letters is None else AsList(letters),
            None if units is None else AsSingleton(units.counts),
        )

    def write_mechanism(self, text: Any, path: str, temp: str) -> PCollection[None]:
        """Adds the stage that writes the mechanism file."""
        return text | f"WriteMechanism{self._suffix}" >> beam.Map(_write, path, temp)

    def carried(self, drawing: bool) -> list[Carried]:
        """Side inputs that batches carry to the stages of this label: to those of `draw`, or to those of `fit`."""
        values = (self._centers, *self._drawing) if drawing else (self.center,)
        return [each for each in values if isinstance(each, Carried)]

    def columns(self, drawing: bool) -> list[str]:
        """Columns of the input that `draw` needs, or `fit`, which computes the center from features."""
        column, features = self.label.column, self.label.features
        if self._linear is None:
            return [name for name in column.columns if not self._classes or name != column.center]
        own = [name for name in column.columns if name != column.center]
        if drawing:
            return own
        return own + (features.columns if features is not None else self._linear.design.map.columns)

    def _carried(self, name: str, value: Any) -> Any:
        """A side input that batches carry; values, such as those of a mechanism file, stay what they are."""
        return Carried(f"{name}{self._suffix}", value) if isinstance(value, PCollection) else value

    def _with_center(self, batches: Any) -> Any:
        if self.center is None:
            return batches
        column = self.label.column
        return batches | f"Center{self._suffix}" >> AppendCenter(self.center, column, tuple(column.columns))

    def _linear_center(self) -> Any:
        """The linear center: exactly one element if the job makes it, a value if it is fitted, or None."""
        fitted = self.label.mechanism.fitted
        if fitted is not None:
            return None if fitted.center is None else fitted.center.linear
        if self.label.features is None:
            return None
        budget = self.label.record_budget
        return self._fit_center(remaining_epsilon(budget.epsilon, budget.prior_epsilon or 0.0))

    def _fit_center(self, epsilon: float, released: Any = None) -> Any:
        """Adds the passes of the center over the labels, with the sample that they are designed for.

        `released` is exactly one element, what was released before.
        """
        pipeline, units, column, features = self._pipeline, self._units, self.label.column, self.label.features
        assert features is not None
        sample, whole = self._sample(pipeline, units)
        for one in center_passes(features, self._classes):
            title = f"{one.name}{self._suffix}"
            designed: Any = sample | f"Design {title}" >> DesignPass(one, epsilon, released)
            design = Carried(f"design of {title}", designed)
            before = None if released is None else Carried(f"before {title}", released)
            carried = [each for each in (design, before) if each is not None]
            batches: Any = _bounded(pipeline, f"For {title}", whole, units, column, carried)
            released = batches | f"Release {title}" >> ReleasePass(
                one, column, design, self._release.key, before, self._release.threshold, self._release.input.id_groups
            )
        return released

    def _sample(self, pipeline: beam.Pipeline, units: BoundedUnits | None) -> tuple[Any, ReadRecordBatches]:
        """Adds the stages of the sample of features; returns it, and the transform that reads label and features."""
        input, column, features = self._release.input, self.label.column, self.label.features
        assert features is not None
        ids = [features.id_column] if features.id_column else []
        read = ReadRecordBatches(
            input.source, input.format, ids, input.where, column.name,
            other_labels=column.others, together=input.together, undecoded=features.names,
        )  # fmt: skip
        records: Any = _bounded(pipeline, f"Features{self._suffix}", read, units, column)
        sample = records | f"SampleFeatures{self._suffix}" >> SampleFeatures(features, self._release.key)
        return sample, dataclasses.replace(read, columns=[*column.private, *features.columns], undecoded=())


def build(
    pipeline: beam.Pipeline,
    release: Release,
    staging: Staging,
    earlier: Sequence[Sequence[EarlierMechanism]],
    run: str = "",
) -> list[PCollection[None]]:
    """Adds a job to a pipeline. It writes shards, mechanism files and job results into the staging folder.

    The labels of several private columns are randomized by one stage after the other. Their priors, centers and
    randomizers do not depend on each other. `earlier` has the mechanisms of earlier releases of each label. The job
    results are bound to `run`, the digest of the request.

    Returns PCollections of one element each, which are complete once job results and mechanism files are written. The
    job results are written after the shards and the dead letters.
    """
    units = bound_units(pipeline, release.input, release.labels[0].column, release.key)
    jobs = [LabelJob(pipeline, release, place, units) for place in range(len(release.labels))]
    labels = _read_labels(pipeline, release, jobs, units)
    written: list[Any] = []
    texts: list[Any] = []
    # It is deleted before the release is published.
    temp = FileSystems.join(staging.work, SEGMENTS_NAME)
    for job, folder in zip(jobs, release.folders, strict=True):
        text = job.fit(labels, earlier[job.place], temp)
        path = released_path(staging.release, folder, MECHANISM_NAME)
        written.append(job.write_mechanism(text, path, staging.work))
        texts.append(text)
    shards, letters = None, None
    if release.command != "fit":
        shards, letters = _privatize(pipeline, release, staging, jobs, labels, units)
    results = [
        job.write_result(job_result_path(staging, job.place), run, text, shards, letters, units)
        for job, text in zip(jobs, texts, strict=True)
    ]
    return [*results, *written]


def _privatize(
    pipeline: beam.Pipeline, release: Release, staging: Staging, jobs: Sequence[LabelJob], labels: Any, units: Any
) -> tuple[PCollection[ShardFile], PCollection[LetterFile]]:
    """Draws the labels of all records, and writes shards and dead letters."""
    output = release.output
    rows: Any = labels | "CountRows" >> CountRows()
    divided: Any = rows | "DivideRows" >> DivideRows(output.num_shards, output.partitions)
    ranges = Carried("ranges", divided)
    records = _read_records(pipeline, release, jobs, units, ranges)
    for job in jobs:
        records = job.draw(records)
    # The first stage leaves out every record that lacks a usable label in any of the columns.
    unusable: Any = jobs[0].binding | "Unusable" >> beam.Map(lambda found: found.unusable).with_output_types(int)
    writer = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}[output.format]
    data, temp = FileSystems.join(staging.release, DATA_NAME), FileSystems.join(staging.work, SEGMENTS_NAME)
    shards: Any = records | "Write" >> writer(
        data, temp, output.num_shards, output.compression, output.partitions, ranges
    )
    assert jobs[0].privatized is not None
    letters: Any = jobs[0].privatized.dead_letters | "WriteDeadLetters" >> WriteDeadLetters(
        staging.release, unusable, staging.work
    )
    return shards, letters


def reads_parts(release: Release, num_shards: int | None = None) -> bool:
    """Tells whether the records of a large TFRecord or CSV file are read in parts, if its kind of file is split.

    A shard of several parts is put together from their segments: those of TFRecords are copied, but those of Parquet
    are encoded then, which takes longer than the parts of a CSV file gain. Of files with enough shards each, parts are
    whole shards. `num_shards` asks for another number of shards than that of the release.
    """
    input, output = release.input, release.output
    shards = output.num_shards if num_shards is None else num_shards
    whole = _parts_are_shards(release) and shards >= ENOUGH_FILES * len(input.parts)
    cheap = input.format.name != "csv" or output.format == "tfrecord" or whole
    return cheap and shards > len(input.parts)


def _parts_are_shards(release: Release) -> bool:
    """Tells whether workers know the shards of the records that they read.

    Records of units are read before that, and the folder of a shard is found later.
    """
    return release.unit is None and not release.output.partitions.names


def bound_units(
    pipeline: beam.Pipeline, input: InputSpec, column: LabelColumn, key: NoiseKeyFile
) -> BoundedUnits | None:
    """Finds the records that are left out, by a pass over ids, so that no unit has too many; None without units."""
    if column.unit is None:
        return None
    columns = [name for name in (*column.private, column.id_column, column.unit.column) if name is not None]
    batches = pipeline | "ReadUnits" >> ReadRecordBatches(
        input.source, input.format, list(dict.fromkeys(columns)), input.where, column.name, other_labels=column.others
    )
    return batches | "BoundUnits" >> BoundUnits(column, key, input.groups(_BYTES_A_GROUP))


def without_excess(
    batches: Any,
    name: str,
    units: BoundedUnits | None,
    column: LabelColumn,
    carried: Sequence[Carried] = (),
) -> PCollection[LabelledBatch]:
    """Leaves out the records beyond the bounds of their units; batches are unchanged without units.

    `name` is that of the stage, and `units` is what is left out, of `bound_units`. `carried` are side inputs that
    batches carry to later stages.
    """
    if units is None or column.unit is None:
        return batches
    return batches | name >> LeaveOut(units.exclusions, column.unit, carried)


def _read_labels(
    pipeline: beam.Pipeline, release: Release, jobs: Sequence[LabelJob], units: BoundedUnits | None
) -> PCollection[LabelledBatch]:
    """Reads the columns that fitting needs. The files are read again later: no batch is kept between the passes."""
    input, column = release.input, release.labels[0].column
    # Where the rows of a CSV file begin takes as long to find as one pass gains.
    split = input.format.name != "csv" or reads_parts(release)
    read = ReadRecordBatches(
        input.source, input.format, _columns(jobs, drawing=False), input.where, column.name,
        other_labels=column.others, split=split, together=input.together,
    )  # fmt: skip
    carried = [each for job in jobs for each in job.carried(drawing=False)]
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
    release: Release,
    jobs: Sequence[LabelJob],
    units: BoundedUnits | None,
    ranges: Carried[ShardRanges],
) -> PCollection[LabelledBatch]:
    input, column, output = release.input, release.labels[0].column, release.output
    # Features that are written as they were read need not be decoded; classes are not of the size of the float that is
    # overwritten, and a label that is missing has no bytes to overwrite: where they were put would tell that it was.
    classes = any(label.column.classes is not None for label in release.labels)
    encoded = input.format.name == output.format == "tfrecord" and not (classes or input.format.missing)
    columns = _columns(jobs, drawing=True) if encoded else None
    if columns is not None:
        # A record that has a new column already would have it twice.
        centers = [label.column.center for label in release.labels]
        columns += [center for center in centers if center is not None and center not in columns]
    read = ReadRecordBatches(
        input.source, input.format, columns, input.where, column.name,
        encoded, output.partitions.names, column.others, reads_parts(release), input.together,
        shards=ranges if _parts_are_shards(release) else None,
    )  # fmt: skip
    carried = [each for job in jobs for each in job.carried(drawing=True)]
    return _bounded(pipeline, "Records", read, units, column, [*carried, ranges])


def _columns(jobs: Sequence[LabelJob], drawing: bool) -> list[str]:
    return list(dict.fromkeys(name for job in jobs for name in job.columns(drawing)))


def _chosen(randomizer: Randomizer, center: Any) -> Mechanism:
    """The center of classes, or the randomizer where nothing but the histogram was released."""
    return randomizer if isinstance(center, PriorRelease) else center


def _mechanism_text(mechanism: Mechanism, release: PriorRelease) -> str:
    return MechanismFile.of_release(mechanism, release).to_text()


def _write(text: str, path: str, temp: str) -> None:
    write_text(path, text, temp)


def _write_job_result(
    binding: NoiseBinding,
    path: str,
    place: int,
    run: str,
    key: NoiseKeyFile,
    mechanism: str,
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
    result = JobResult(binding, digest, records, mechanisms, units, dict(sorted(letters)))
    write_text(path, sealed(result, mechanism, run, key))


def run_job(
    ledger: Ledger, release: Release, options: PipelineOptions, staging: Staging, run: Run, wait: bool = True
) -> None:
    """Runs the main job, which writes shards, mechanism files and job results into the staging folder.

    If it repeats a release of the ledger whose output is still there, it uses the mechanisms of that release. Without
    `wait`, the job is submitted only. Raises InputError if the input is at fault.
    """
    earlier = earlier_of_release(ledger, release)
    for folder in release.folders:
        # Here and not by a worker, which must not make a folder again that the end of the job has removed.
        for root in {staging.work, staging.release} if folder else ():
            make_directory(FileSystems.split(released_path(root, folder, MANIFEST_NAME))[0])

    def submitted(facts: Mapping[str, str]) -> None:
        path = FileSystems.join(staging.work, SUBMITTED_NAME)
        write_text(path, json.dumps({"waits": wait, **facts}))

    run_pipeline(options, lambda pipeline: build(pipeline, release, staging, earlier, run.digest), submitted, wait)
