"""The main job as a Beam graph, and its run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection

from ...mechanisms.release.prior_release import EarlierMechanism
from ...transforms.batches import Carried
from ...transforms.io.filesystems import make_directory, write_text
from ...transforms.io.hive_partitions import without_values
from ...transforms.privatize_labels import DeadLetter
from ...transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters
from ...transforms.shards.shard_formats import WriteParquet, WriteTFRecords
from ...transforms.shards.shard_ranges import CountRows, DivideRows
from ...transforms.shards.shard_writer import ShardFile
from ..ledger.ledger import Ledger
from ..publish.output_folder import DATA_NAME, SEGMENTS_NAME, Staging, job_result_path, released_path
from ..publish.release_steps import earlier_of_release
from ..publish.request import Run
from ..publish.staging_locks import SUBMITTED_NAME
from ..spec.label_folders import MANIFEST_NAME
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.release import Release
from .input_reads import InputReads
from .label_stages import CenteredLabel, FittedLabel
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
    reads: InputReads, staging: Staging, fitted: Sequence[FittedLabel], labels: Any, temp: str
) -> tuple[list[Any], PCollection[ShardFile], PCollection[LetterFile]]:
    """Draws the labels of all records, and writes shards and dead letters; returns the digest of each label, too."""
    output = reads.release.output
    ranges = order = None
    if output.shuffle:
        order = fitted[0].order
    else:
        rows: Any = labels | "CountRows" >> CountRows()
        divided: Any = rows | "DivideRows" >> DivideRows(output.num_shards, output.partitions)
        ranges = Carried("ranges", divided)
    records, drawn = reads.records(*_needed(fitted), ranges), []
    for label in fitted:
        drawn.append(label.draw(records))
        records = drawn[-1].batches
    # The first stage leaves out every record that lacks a usable label in any of the columns.
    unusable: Any = fitted[0].binding | "Unusable" >> beam.Map(lambda binding: binding.unusable).with_output_types(int)
    writer = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}[output.format]
    data = FileSystems.join(staging.release, DATA_NAME)
    shards: Any = records | "Write" >> writer(
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
    left: Any = drawn[0].dead_letters
    hidden = {partition.name for partition in reads.release.input.parts[0].partitions} & {*output.left_out}
    if hidden:
        # They are files of the output, and name folders of the input.
        left |= "HideFolders" >> beam.Map(_hide_folders, frozenset(hidden)).with_output_types(DeadLetter)
    letters: Any = left | "WriteDeadLetters" >> WriteDeadLetters(staging.release, unusable, staging.work)
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
