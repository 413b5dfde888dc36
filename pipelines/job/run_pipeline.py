"""Running of a pipeline to its end, here or on a cluster, without leaks through the runner."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from typing import Any

import apache_beam as beam
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
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from ...transforms.errors import InputError, StageError, describe
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError
from ..cli.signals import in_background, signals_as_interrupts
from . import flink_jobs as flink
from .runner_options import runner_name, runs_here


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


def run_single_threaded(options: PipelineOptions, wire: Callable[[beam.Pipeline], None]) -> None:
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
