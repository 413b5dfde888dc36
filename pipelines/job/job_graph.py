"""The main job as a Beam graph, and its run.

`CenteredLabel.of` adds the passes before the histogram of a label, its `fit` all others and returns a `FittedLabel`,
whose `draw` draws labels.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ...mechanisms.center.linear_center import LinearCenter
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.conclude import EarlierMechanism
from ...mechanisms.release.drawing import Drawing
from ...mechanisms.release.prior_release import PriorRelease
from ...mechanisms.release.unit_bound import UnitCounts
from ...transforms.batches import Carried, LabelledBatch
from ...transforms.center.append_center import AppendCenter
from ...transforms.center.center_files import AppendWrittenCenters, CenterFiles, WriteCenters
from ...transforms.center.feature_sample import SampleFeatures
from ...transforms.io.filesystems import make_directory, write_text
from ...transforms.io.hive_partitions import without_values
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.privatize_labels import DeadLetter, PrivatizedLabels, PrivatizeLabels
from ...transforms.release_passes import RunPlan
from ...transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters
from ...transforms.shards.keyed_order import KeyedOrder
from ...transforms.shards.shard_formats import WriteParquet, WriteTFRecords
from ...transforms.shards.shard_ranges import CountRows, DivideRows, ShardRanges, SourceRows
from ...transforms.shards.shard_writer import ShardFile
from ...transforms.solve_randomizer import SolveRandomizer
from ..ledger.ledger import Ledger
from ..publish.job_result import JobResult
from ..publish.output_folder import SEGMENTS_NAME, Staging, job_result_path, released_path
from ..publish.release_steps import earlier_of_release
from ..publish.request import Run
from ..publish.sealed_result import sealed
from ..publish.staging_locks import SUBMITTED_NAME
from ..spec.label import Label
from ..spec.label_folders import DATA_NAME, MANIFEST_NAME
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile
from ..spec.release import Release
from .input_reads import InputReads
from .run_pipeline import run_pipeline


def build(
    start: beam.Pipeline | PCollection[Any],
    release: Release,
    staging: Staging,
    earlier: Sequence[Sequence[EarlierMechanism]],
    run: str = "",
) -> list[PCollection[None]]:
    """Adds a job to a pipeline. It writes shards, mechanism files and job results into the staging folder.

    `start` is the pipeline, or exactly one element, until which the job looks at no file.

    The labels of several private columns are randomized by one stage after the other. Their priors, centers and
    randomizers do not depend on each other. `earlier` has the mechanisms of earlier releases of each label. The job
    results are bound to `run`, the digest of the request.

    Returns PCollections of one element each, which are complete once job results and mechanism files are written. The
    job results are written after the shards and the dead letters.
    """
    # It is deleted before the release is published.
    temp = FileSystems.join(staging.work, SEGMENTS_NAME)
    reads = InputReads.of(start, release)
    centered = [CenteredLabel.of(reads, place) for place in range(len(release.labels))]
    labels = reads.labels(*_needed(centered))
    fitted = [label.fit(labels, earlier[label.place], temp) for label in centered]
    written = [
        label.write_mechanism(released_path(staging.release, folder, MECHANISM_NAME), staging.work)
        for label, folder in zip(fitted, release.folders, strict=True)
    ]
    paths = [job_result_path(staging, label.place) for label in fitted]
    if release.command == "fit":
        return [*(label.write_result(path, run) for label, path in zip(fitted, paths, strict=True)), *written]
    digests, shards, letters = _privatize(reads, staging, fitted, labels, temp)
    results = [
        label.write_result(path, run, digest, shards, letters)
        for label, path, digest in zip(fitted, paths, digests, strict=True)
    ]
    return [*results, *written]


def _privatize(
    reads: InputReads,
    staging: Staging,
    fitted: Sequence[FittedLabel],
    labels: PCollection[LabelledBatch],
    temp: str,
) -> tuple[list[PCollection[int] | None], PCollection[ShardFile], PCollection[LetterFile]]:
    """Draws the labels of all records, and writes shards and dead letters; returns the digest of each label, too."""
    output = reads.release.output
    ranges = order = None
    if output.shuffle:
        order = fitted[0].order
    else:
        rows: PCollection[SourceRows] = labels | "CountRows" >> CountRows()
        divided: PCollection[ShardRanges] = rows | "DivideRows" >> DivideRows(output.num_shards, output.partitions)
        ranges = Carried("ranges", divided)
    records, drawn = reads.records(*_needed(fitted), ranges), []
    for label in fitted:
        drawn.append(label.draw(records))
        records = drawn[-1].batches
    # The first stage leaves out every record that lacks a usable label in any of the columns.
    unusable: PCollection[int] = fitted[0].binding | "Unusable" >> beam.Map(
        lambda binding: binding.unusable
    ).with_output_types(int)
    writer = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}[output.format]
    data = FileSystems.join(staging.release, DATA_NAME)
    shards: PCollection[ShardFile] = records | "Write" >> writer(
        data,
        temp,
        output.num_shards,
        output.compression,
        output.partitions,
        ranges,
        output.left_out,
        reads.release.private,
        order,
    )
    left = drawn[0].dead_letters
    hidden = {partition.name for partition in reads.release.input.parts[0].partitions} & {*output.left_out}
    if hidden:
        # They are files of the output, and name folders of the input.
        left |= "HideFolders" >> beam.Map(_hide_folders, frozenset(hidden)).with_output_types(DeadLetter)
    letters: PCollection[LetterFile] = left | "WriteDeadLetters" >> WriteDeadLetters(
        staging.release, unusable, staging.work
    )
    return [each.digest for each in drawn], shards, letters


def _hide_folders(letter: DeadLetter, names: frozenset[str]) -> DeadLetter:
    return dataclasses.replace(letter, source=without_values(letter.source, names))


def _needed(labels: Sequence[CenteredLabel] | Sequence[FittedLabel]) -> tuple[list[str], list[Carried]]:
    """What the next pass over the input needs for all labels: columns, and side inputs that batches carry."""
    columns = list(dict.fromkeys(name for label in labels for name in label.columns))
    return columns, [value for label in labels for value in label.carried]


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


@dataclass(frozen=True)
class _LabelStages:
    """Stages of one label. Those of several labels differ in the ends of their names.

    Attributes:
      reads: Reads of the input of the release.
      place: Place of the label among those of the release.
    """

    reads: InputReads
    place: int

    @property
    def label(self) -> Label:
        """The label."""
        return self.reads.release.labels[self.place]

    @property
    def suffix(self) -> str:
        """End of the names of stages, and of values that batches carry; empty for the only label."""
        return "" if len(self.reads.release.labels) == 1 else f" {self.place + 1}"

    @property
    def given_columns(self) -> list[str]:
        """Columns of the label that are in the input: all but a center that the job makes or applies."""
        column, fitted = self.label.column, self.label.mechanism.fitted
        made = self.label.features is not None or (fitted is not None and fitted.drawing.made is not None)
        return [name for name in column.columns if name != column.center or not (made or column.classes)]


@dataclass(frozen=True)
class CenteredLabel(_LabelStages):
    """A label whose linear center is known, if it has one: the first of the stages of a label.

    Attributes:
      plan: Driver of its passes.
      linear: The linear center: exactly one element if the job makes it, a value if it is fitted, or None.
      columns: Columns of the input that `fit` needs: features for a linear center.
      carried: Side inputs that batches carry to `fit`.
    """

    plan: RunPlan
    linear: PCollection[LinearCenter] | LinearCenter | None
    columns: list[str]
    carried: list[Carried]

    @classmethod
    def of(cls, reads: InputReads, place: int) -> CenteredLabel:
        """Adds the passes before the histogram: those of a linear center, if the job makes one."""
        stages = _LabelStages(reads, place)
        release, label, suffix, sample = reads.release, stages.label, stages.suffix, None
        column, features, fitted = label.column, label.features, label.mechanism.fitted
        if features is not None:
            ids = [features.id_column] if features.id_column else []
            records = reads.read(f"Features{suffix}", column, ids, undecoded=features.names)
            sample = records | f"SampleFeatures{suffix}" >> SampleFeatures(features, release.key)

        def read(title: str, carried: Sequence[Carried]) -> PCollection[LabelledBatch]:
            assert features is not None
            return reads.read(f"For {title}", column, [*column.private, *features.columns], carried)

        groups = release.input.id_groups
        plan = RunPlan(label.passes, column, release.key, read, sample, release.threshold, groups, suffix)
        columns, linear = stages.given_columns, plan.before()
        if linear is not None and features is not None:
            return cls(reads, place, plan, linear, columns + features.columns, [Carried(f"center{suffix}", linear)])
        made = None if fitted is None else fitted.drawing.made
        if isinstance(made, LinearCenter):
            return cls(reads, place, plan, made, columns + made.map.columns, [])
        return cls(reads, place, plan, None, columns, [])

    def fit(self, labels: PCollection[LabelledBatch], earlier: Sequence[EarlierMechanism], temp: str) -> FittedLabel:
        """Adds the stages from labels to the mechanism that draws them.

        `earlier` are the mechanisms of earlier releases of this request, and `temp` is a folder for temporary files.
        """
        release, column, choice, suffix = self.reads.release, self.label.column, self.label.mechanism, self.suffix
        batches = labels
        centers: Carried[CenterFiles] | None = None
        if self.linear is not None:
            (center,) = self.carried or [self.linear]
            batches |= f"Center{suffix}" >> AppendCenter(center, column, tuple(column.columns))
            if release.command != "fit":
                files: PCollection[CenterFiles] = batches | f"WriteCenters{suffix}" >> WriteCenters(temp, column)
                centers = Carried(f"centers{suffix}", files)
        binding = self.plan.bind(batches, self.linear)
        if choice.fitted is not None:
            mechanism = choice.fitted.drawing
            text = batches.pipeline | "MechanismText" >> beam.Create([choice.fitted.to_text()])
            return FittedLabel(self.reads, self.place, binding, mechanism, text, centers)
        solved: PCollection[Drawing] = binding | f"SolveRandomizer{suffix}" >> SolveRandomizer(
            choice.name, dict(choice.parameters), earlier
        )
        text = solved | f"MechanismText{suffix}" >> beam.Map(_mechanism_text, AsSingleton(binding)).with_output_types(
            str
        )
        return FittedLabel(self.reads, self.place, binding, Carried(f"randomizer{suffix}", solved), text, centers)


@dataclass(frozen=True)
class FittedLabel(_LabelStages):
    """A label whose mechanism is known: what `fit` leaves to the pass that draws the labels, and to publication.

    Attributes:
      binding: Exactly one binding of the noise.
      mechanism: How the labels are drawn: carried by batches, or a value.
      text: Exactly one text of the mechanism file.
      centers: Files of the linear centers of all records, carried by batches; None without any.
    """

    binding: PCollection[NoiseBinding]
    mechanism: Carried[Drawing] | Drawing
    text: PCollection[str]
    centers: Carried[CenterFiles] | None

    @property
    def _carried_binding(self) -> Carried[NoiseBinding]:
        return Carried(f"binding{self.suffix}", self.binding)

    @property
    def columns(self) -> list[str]:
        """Columns of the input that `draw` needs."""
        return self.given_columns

    @property
    def carried(self) -> list[Carried]:
        """Side inputs that batches carry to `draw`."""
        return [value for value in (self.centers, self.mechanism, self._carried_binding) if isinstance(value, Carried)]

    @property
    def order(self) -> KeyedOrder:
        """Order of the records of the release, under the key of the noise of this label."""
        return KeyedOrder(self._carried_binding, self.label.column.id_column, self.reads.release.key)

    def draw(self, records: PCollection[LabelledBatch]) -> PrivatizedLabels:
        """Adds the stage that draws the labels."""
        batches = records
        if self.centers is not None:
            batches |= f"CenterOfRecords{self.suffix}" >> AppendWrittenCenters(self.centers, self.label.column)
        return batches | f"PrivatizeLabels{self.suffix}" >> PrivatizeLabels(
            self.mechanism, self._carried_binding, self.label.column, self.reads.release.key
        )

    def write_mechanism(self, path: str, temp: str) -> PCollection[None]:
        """Adds the stage that writes the mechanism file."""
        return self.text | f"WriteMechanism{self.suffix}" >> beam.Map(_write, path, temp)

    def write_result(
        self,
        path: str,
        run: str,
        digest: PCollection[int] | None = None,
        shards: PCollection[ShardFile] | None = None,
        letters: PCollection[LetterFile] | None = None,
    ) -> PCollection[None]:
        """Adds the stage that seals the job result, after the shards and the dead letters.

        `run` is the digest of the request. The digest of the labels, shards and letters are None if none is drawn.
        """
        units = self.reads.units
        return self.binding | f"WriteJobResult{self.suffix}" >> beam.Map(
            write_job_result,
            path,
            self.place,
            run,
            self.reads.release.key,
            AsSingleton(self.text),
            None if digest is None else AsSingleton(digest),
            [] if shards is None else AsList(shards),
            [] if letters is None else AsList(letters),
            None if units is None else AsSingleton(units.counts),
        )


def _mechanism_text(mechanism: Drawing, release: PriorRelease) -> str:
    return MechanismFile.of_release(mechanism, release).to_text()


def _write(text: str, path: str, temp: str) -> None:
    write_text(path, text, temp)


def write_job_result(
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
    """Seals the job result of a label and writes it to a file."""
    records = {shard.name: shard.records for shard in sorted(shards, key=lambda s: s.path)}
    # Of several columns, a batch has all mechanisms, in their order.
    mechanisms = frozenset(
        None if drawn is None else drawn.split(",")[place] for shard in shards for drawn in shard.mechanisms
    )
    result = JobResult(binding, digest, records, mechanisms, units, dict(sorted(letters)))
    write_text(path, sealed(result, mechanism, run, key))
