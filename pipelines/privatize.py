"""`labeldp privatize`, `fit` and `apply`: the main job, in one go or in its two halves."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import uuid
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.pvalue import AsList, AsSingleton, PCollection
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from ..mechanisms.losses import LOSSES
from ..mechanisms.prior import round_up
from ..mechanisms.randomizer import Randomizer
from ..transforms.batches import LabelledBatch
from ..transforms.errors import InputError, StageError, describe
from ..transforms.prior import BindNoise, NoiseBinding, NoisyPrior, PriorRelease
from ..transforms.privatize import DeadLetter, PrivatizedLabels, PrivatizeLabels
from ..transforms.progress import LOGGER
from ..transforms.publish import delete_folder
from ..transforms.read import ReadRecordBatches
from ..transforms.solve import SolveRandomizer
from ..transforms.write import ShardFile, WriteParquet, WriteTFRecords
from . import flink
from .interrupt import in_background, signalled, signals_as_interrupts
from .ledger import Charge, Ledger, charges
from .options import Plan, make_plan, parse, runner_name, runner_options, runs_here
from .release import (
    DATA_NAME,
    DEAD_LETTERS_NAME,
    MANIFEST_NAME,
    MECHANISM_NAME,
    Facts,
    MechanismFile,
    manifest,
    mechanism_file,
    publish_folder,
    read_mechanism_file,
    staging_folder,
    write_text,
)
from .usage import BAD_USAGE, FAILURE, SUCCESS, UsageError, log_to_stderr
from .validation import check_features, check_output

_FACTS_NAME = "facts.json"
_TEMP_NAME = "segments"
_OUTPUTS_SHOWN = 6


def run_privatize(argv: Sequence[str]) -> int:
    """`labeldp privatize`. Returns the exit code."""
    return _run("privatize", "Release a log with randomized labels: fit and apply in one job.", argv)


def run_fit(argv: Sequence[str]) -> int:
    """`labeldp fit`. Returns the exit code."""
    return _run("fit", "Release the label histogram of a log and the mechanism solved for it.", argv)


def run_apply(argv: Sequence[str]) -> int:
    """`labeldp apply`. Returns the exit code."""
    return _run("apply", "Release a log with labels randomized by a mechanism file.", argv)


def _run(command: str, description: str, argv: Sequence[str]) -> int:
    log_to_stderr()
    try:
        args, flags = parse(command, description, argv)
        plan = make_plan(command, args)
        options = runner_options(flags, plan.file_size)
        with signals_as_interrupts():
            _release(plan, options)
    except UsageError as error:
        print(f"labeldp {command}: error: {error}", file=sys.stderr)
        return BAD_USAGE
    except InputError as error:
        print(f"labeldp {command}: error: {error}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return _interrupted(command)
    except Exception as error:
        if signalled():
            # Beam wraps what the signal raised in errors of its own.
            return _interrupted(command)
        # The text of an unforeseen exception could quote a label; its class and place cannot.
        print(f"labeldp {command}: error: the job failed: {failure(error)}", file=sys.stderr)
        return FAILURE
    return SUCCESS


def _interrupted(command: str) -> int:
    print(f"labeldp {command}: interrupted; nothing is released", file=sys.stderr, flush=True)
    if signalled():
        # The process was told to end; threads that a runner leaves behind must not keep it.
        os._exit(FAILURE)
    return FAILURE


def failure(error: BaseException) -> str:
    """What may be shown of an error that was not foreseen."""
    text = f"StageError: {error}" if isinstance(error, StageError) else str(error)
    found = re.search(r"\bStageError: ([^\n]*)", text)
    return re.sub(r" \[while running .*", "", found[1]) if found else describe(error)


def _release(plan: Plan, options: PipelineOptions) -> None:
    ledger = Ledger(plan.ledger)
    request = _request(plan)
    _check_cap(plan, ledger, request)
    target = plan.mechanism_file if plan.command == "fit" else plan.output
    assert target is not None
    with staging_folder(target) as staging:
        LOGGER.info("%s: %d input files, %d labels", plan.command, len(plan.paths), len(plan.column.domain))
        if plan.validate:
            check_features(plan, lambda wire: _run_in_order(options, wire), staging)
        run_pipeline(options, lambda pipeline: build(pipeline, plan, staging))
        facts = Facts.from_json(_text(staging, _FACTS_NAME))
        facts.check_same_input()
        mechanism = read_mechanism_file(FileSystems.join(staging, MECHANISM_NAME))
        spent = charges(facts.binding, mechanism, with_labels=plan.command != "fit")
        FileSystems.delete([FileSystems.join(staging, _FACTS_NAME)])
        if plan.command == "fit":
            _charge(ledger, plan, request, facts, spent)
            FileSystems.rename([FileSystems.join(staging, MECHANISM_NAME)], [target])
            _announce(plan, facts, mechanism)
            return
        document = manifest(facts, mechanism, _budget(plan, facts), _details(plan))
        write_text(FileSystems.join(staging, MANIFEST_NAME), json.dumps(document, indent=2) + "\n")
        delete_folder(FileSystems.join(staging, _TEMP_NAME))
        if plan.validate:
            check_output(plan, lambda wire: _run_in_order(options, wire), staging, mechanism.randomizer.outputs)
        _charge(ledger, plan, request, facts, spent)
        publish_folder(staging, target)
        _announce(plan, facts, mechanism)


def _text(staging: str, name: str) -> str:
    with FileSystems.open(FileSystems.join(staging, name)) as file:
        return file.read().decode()


def _request(plan: Plan) -> str:
    """Names what is asked for, without looking at a record."""
    asked = [
        plan.command, plan.paths, plan.column.name, plan.column.domain, plan.column.id_column,
        plan.column.rounding, plan.epsilon, plan.prior_epsilon, plan.mechanism, plan.parameters,
        plan.where and [plan.where.column, plan.where.value],
    ]  # fmt: skip
    return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()


def _check_cap(plan: Plan, ledger: Ledger, request: str) -> None:
    """Refuses to start a run that would exceed a cap; the ledger checks again before anything is released.

    A run of a request that is in the ledger may start: over unchanged input it is the same release, and free.
    """
    asked = [Charge("request", plan.epsilon, f"request {request}", plan.delta)]
    if plan.fitted is not None:
        prior = plan.fitted.prior_release or f"prior of request {request}"
        asked.append(Charge("prior", plan.fitted.prior_epsilon, prior))
    # Summed in any case: a damaged ledger is to be noticed before the work is done.
    exceeded = plan.caps.exceeded(ledger.spent(asked))
    if exceeded and not ledger.knows(request):
        raise UsageError(f"{exceeded}; the ledger {plan.ledger} says what was spent before")


def _charge(ledger: Ledger, plan: Plan, request: str, facts: Facts, spent: list[Charge]) -> None:
    with ledger.locked():
        ledger.charge(
            spent,
            plan.caps,
            command=plan.command,
            request=request,
            label=plan.column.name,
            records=facts.binding.records,
            input_digest=f"{facts.binding.digest:064x}",
            output=plan.output or plan.mechanism_file,
        )


def _budget(plan: Plan, facts: Facts) -> float:
    """The whole epsilon asked for; of a mechanism that was fitted before, both its parts, rounded up."""
    if plan.fitted is None:
        return plan.epsilon
    prior_epsilon, randomizer_epsilon = facts.binding.epsilons
    return round_up(Fraction(prior_epsilon) + Fraction(randomizer_epsilon))


def _details(plan: Plan) -> dict[str, Any]:
    return {
        "label": plan.column.name,
        "identity": plan.column.id_column or "file and row",
        "where": plan.where and f"{plan.where.column}={plan.where.value}",
        **({"validation": "inferred schema" if plan.schema is None else "given schema"} if plan.validate else {}),
    }


def _announce(plan: Plan, facts: Facts, mechanism: MechanismFile) -> None:
    """Says on standard output what was released, in a few lines."""
    binding, randomizer = facts.binding, mechanism.randomizer
    certificate = randomizer.certificate()
    loss = LOSSES[plan.loss]
    shards = f" in {len(facts.shards)} shards" if facts.shards else ""
    print(f"released   {plan.output or plan.mechanism_file}")
    print(f"records    {binding.records:,}{shards}; {binding.unusable:,} without a usable label left out")
    print(f"budget     epsilon {binding.epsilons[0]:.6g} for the histogram + {binding.epsilons[1]:.6g} for the labels")
    print(f"mechanism  {randomizer.mechanism}: {len(randomizer.labels)} labels to {_outputs(randomizer)}")
    delta = "" if randomizer.pure else f" with delta {certificate.delta!r}"
    print(f"certified  epsilon {certificate.epsilon!r}{delta} for the labels, largest bias {certificate.max_bias:.6g}")
    under = "the noised histogram" if mechanism.prior_epsilon else "the public prior"
    print(f"expected   {loss.name} loss {randomizer.expected_loss(mechanism.prior, loss):.6g}, under {under}")
    if plan.validate:
        print(f"validated  against {'an inferred' if plan.schema is None else 'the given'} schema: no anomalies")


def _outputs(randomizer: Randomizer) -> str:
    """Which labels mostly become which output, or, for many outputs, how many there are."""
    if len(randomizer.outputs) > _OUTPUTS_SHOWN:
        return f"{len(randomizer.outputs)} outputs"
    likeliest = randomizer.weights.argmax(axis=1)
    groups = []
    for output in np.unique(likeliest):
        labels = randomizer.labels[likeliest == output]
        groups.append(f"{labels[0]:g}..{labels[-1]:g} -> {randomizer.outputs[output]:.4g}")
    return f"{len(randomizer.outputs)} outputs: {', '.join(groups)}"


def run_pipeline(options: PipelineOptions, wire: Callable[[beam.Pipeline], None]) -> None:
    """Runs the pipeline that `wire` builds to its end. Raises InputError when a stage finds the input at fault."""
    local = runs_here(options)
    cloud = options.view_as(GoogleCloudOptions)
    cloud.job_name = cloud.job_name or f"labeldp-{uuid.uuid4().hex[:12]}"
    pipeline = make_pipeline(options)
    wire(pipeline)
    try:
        if local:
            in_background(lambda: pipeline.run().wait_until_finish())
        else:
            _run_elsewhere(pipeline, options)
    except Exception as error:
        text = f"InputError: {error}" if isinstance(error, InputError) else str(error)
        found = re.search(r"\bInputError: (.*?)(?: \[while running |\n|$)", text)
        if found:
            raise InputError(found[1]) from None
        if not local and "StageError: " not in text:
            runner = options.view_as(StandardOptions).runner
            raise StageError(f"{runner} gave it up ({describe(error)}); its own log says why") from None
        raise


def _run_in_order(options: PipelineOptions, wire: Callable[[beam.Pipeline], None]) -> None:
    """As `run_pipeline`, in one thread: sums of floats are then the same every time, and so are statistics."""
    direct = options.view_as(DirectOptions)
    threads = direct.direct_num_workers
    direct.direct_num_workers = 1
    try:
        run_pipeline(options, wire)
    finally:
        direct.direct_num_workers = threads


def make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """An empty pipeline. Raises UsageError when Beam does not take the runner's flags, or when they show labels."""
    options.view_as(SetupOptions).save_main_session = False
    _forbid_sampling(options)
    local = runs_here(options)
    _forbid_ports(options)
    if local:
        # This command reports failures itself, in one line.
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        return beam.Pipeline(runner=FnApiRunner() if local else None, options=options)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner: {error}") from None


def _run_elsewhere(pipeline: beam.Pipeline, options: PipelineOptions) -> None:
    """Submits the job to a cluster and waits for it; if this process is told to end, the job is cancelled there."""
    # What a cluster says of a failure is many lines long.
    logging.getLogger().setLevel(logging.CRITICAL)
    # By the main thread: a job server that starts here sets signal handlers.
    _warn_of_ports(options)
    result: Any = pipeline.run()

    def cancel() -> None:
        master = options.view_as(FlinkRunnerOptions).flink_master
        if master in MAGIC_HOST_NAMES:
            result.cancel()
        else:
            flink.cancel(master, options.view_as(GoogleCloudOptions).job_name)

    with signals_as_interrupts(cancel):
        in_background(result.wait_until_finish)


def _warn_of_ports(options: PipelineOptions) -> None:
    """Workers in this process that a runner reaches from outside, as Prism does, run what they are sent by anybody."""
    kind = options.view_as(PortableOptions).environment_type
    if kind == "LOOPBACK" or (kind is None and runner_name(options) in ("prismrunner", "flinkrunner")):
        runner = options.view_as(StandardOptions).runner
        LOGGER.warning("workers of %s in this process open a port to the network: use it where you are alone", runner)


def _forbid_ports(options: PipelineOptions) -> None:
    """Beam's worker processes, and its threads of this name, are reached through ports on all interfaces, without a
    password: whoever connects is sent any file that this user may read. Workers in the process need no port.
    """
    mode = options.view_as(DirectOptions).direct_running_mode
    if mode != "in_memory":
        raise UsageError(
            f"--direct_running_mode {mode} opens ports through which anybody on the network could read the log and the "
            "key: leave it out, --direct_num_workers N gives N threads without any"
        )
    if runner_name(options) == "interactiverunner":
        raise UsageError("--runner: InteractiveRunner opens such ports, and keeps labels to show them: leave it out")


def _forbid_sampling(options: PipelineOptions) -> None:
    """Sampling would ship raw labels, and exceptions, to the runner's user interface."""
    debug = options.view_as(DebugOptions)
    asked = [name for name in debug.experiments or [] if name.startswith("enable") and "sampling" in name]
    if asked:
        raise UsageError(f"--experiments {asked[0]} would show raw labels in the runner's interface: leave it out")
    debug.add_experiment("disable_always_on_exception_sampling")


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
    facts = FileSystems.join(staging, _FACTS_NAME)
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
    data, temp = FileSystems.join(staging, DATA_NAME), FileSystems.join(staging, _TEMP_NAME)
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
    write_text(path, Facts(binding, digest, records).to_json())


def _write_dead_letters(letters: Sequence[DeadLetter], path: str) -> None:
    if letters:
        ordered = sorted(letters, key=lambda letter: (letter.source, letter.row))
        write_text(path, "".join(letter.to_json() + "\n" for letter in ordered))
