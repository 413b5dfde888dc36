"""The main job as a Beam graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from ...mechanisms.core.randomizer import Randomizer
from ...transforms.batches import LabelledBatch
from ...transforms.io.filesystems import write_text
from ...transforms.io.parquet_writer import WriteParquet
from ...transforms.io.read_files import ReadRecordBatches
from ...transforms.io.shard_writer import ShardFile
from ...transforms.io.tfrecord_writer import WriteTFRecords
from ...transforms.noise_binding import BindNoise, NoiseBinding
from ...transforms.noisy_prior import NoisyPrior, PriorRelease
from ...transforms.privatize_labels import DeadLetter, PrivatizedLabels, PrivatizeLabels
from ...transforms.solve_randomizer import SolveRandomizer
from ..release.job_result import JobResult
from ..release.mechanism_file import MECHANISM_NAME, mechanism_file
from ..release.output_folder import DATA_NAME, DEAD_LETTERS_NAME
from .job_request import Plan

JOB_RESULT_NAME = "facts.json"


SEGMENTS_NAME = "segments"


def build(pipeline: beam.Pipeline, plan: Plan, staging: str) -> None:
    """Wires the job of a plan. It writes its shards, mechanism.json and facts.json below staging."""
    if plan.command == "apply":
        fitted = plan.fitted
        assert fitted is not None
        spent = (fitted.prior_epsilon, fitted.randomizer.epsilon)
        binding: Any = _labels(pipeline, plan) | "BindNoise" >> BindNoise(plan.column, spent, plan.key, plan.threshold)
        texts = pipeline | "MechanismText" >> beam.Create([fitted.to_text()])
        randomizer: Any = fitted.randomizer
    else:
        binding = _labels(pipeline, plan) | "NoisyPrior" >> NoisyPrior(
            plan.column, plan.epsilon, plan.key, plan.prior_epsilon, plan.threshold
        )
        randomizer: Any = binding | "SolveRandomizer" >> SolveRandomizer(plan.mechanism, plan.parameters)
        texts = randomizer | "MechanismText" >> beam.Map(_mechanism_text, AsSingleton(binding)).with_output_types(str)
    _ = texts | "WriteMechanism" >> beam.Map(_write, FileSystems.join(staging, MECHANISM_NAME))
    digest, shards = None, None
    if plan.command != "fit":
        privatized, shards = _apply(pipeline, plan, randomizer, binding, staging)
        assert privatized.digest is not None
        digest = AsSingleton(privatized.digest)
    facts = FileSystems.join(staging, JOB_RESULT_NAME)
    _ = binding | "WriteFacts" >> beam.Map(_write_facts, facts, digest, AsList(shards) if shards is not None else [])


def _labels(pipeline: beam.Pipeline, plan: Plan) -> PCollection[LabelledBatch]:
    """The columns that fitting needs. A read of its own: the whole batches are never kept between the two passes."""
    return pipeline | "ReadLabels" >> ReadRecordBatches(
        plan.pattern, plan.format, plan.column.columns, plan.where, plan.column.name
    )


def _apply(
    pipeline: beam.Pipeline, plan: Plan, randomizer: Any, binding: PCollection[NoiseBinding], staging: str
) -> tuple[PrivatizedLabels, PCollection[ShardFile]]:
    # Features that leave as they came need not be decoded.
    encoded = plan.format.name == plan.output_format == "tfrecord"
    batches = pipeline | "ReadRecords" >> ReadRecordBatches(
        plan.pattern,
        plan.format,
        plan.column.columns if encoded else None,
        plan.where,
        plan.column.name,
        encoded,
    )
    privatized: Any = batches | "PrivatizeLabels" >> PrivatizeLabels(randomizer, binding, plan.column, plan.key)
    writer = {"tfrecord": WriteTFRecords, "parquet": WriteParquet}[plan.output_format]
    data, temp = FileSystems.join(staging, DATA_NAME), FileSystems.join(staging, SEGMENTS_NAME)
    shards: Any = privatized.batches | "Write" >> writer(data, temp, plan.num_shards, plan.compression)
    _ = (
        privatized.dead_letters
        | "GatherDeadLetters" >> beam.combiners.ToList()
        | "WriteDeadLetters" >> beam.Map(_write_dead_letters, FileSystems.join(staging, DEAD_LETTERS_NAME))
    )
    return privatized, shards


def _mechanism_text(randomizer: Randomizer, release: PriorRelease) -> str:
    return mechanism_file(randomizer, release).to_text()


def _write(text: str, path: str) -> None:
    write_text(path, text)


def _write_facts(binding: NoiseBinding, path: str, digest: int | None, shards: Sequence[ShardFile]) -> None:
    records = {FileSystems.split(shard.path)[1]: shard.records for shard in sorted(shards, key=lambda s: s.path)}
    write_text(path, JobResult(binding, digest, records).to_json())


def _write_dead_letters(letters: Sequence[DeadLetter], path: str) -> None:
    if letters:
        ordered = sorted(letters, key=lambda letter: (letter.source, letter.row))
        write_text(path, "".join(letter.to_json() + "\n" for letter in ordered))
