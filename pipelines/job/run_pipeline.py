"""Running of a pipeline to its end, in this process or on a cluster, with errors that hold no label."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES
from apache_beam.runners.runner import PipelineResult

from ...transforms.beam_internals import LocalRunner, kept_results
from ...transforms.errors import InputError, StageError, describe
from ..errors import UsageError
from ..publish.signals import run_in_thread, signals_as_interrupts
from .runner_options import find_job_server, forbid_ports, forbid_sampling, runs_here, warn_of_ports
from .submitted_job import cancel_flink_jobs, submitted_job, wait_until_accepted


@contextlib.contextmanager
def beam_of_a_job() -> Iterator[None]:
    """Lets Beam keep results in a block (`kept_results`); after it, the level of Beam's logger is as before.

    After an interrupt it stays: threads of the job still end, and would report that.
    """
    logger = logging.getLogger("apache_beam")
    level = logger.level
    try:
        with kept_results():
            yield
    except Exception:
        logger.setLevel(level)
        raise
    logger.setLevel(level)


@beam_of_a_job()
def run_pipeline(
    options: PipelineOptions,
    wire: Callable[[beam.Pipeline], object],
    submitted: Callable[[Mapping[str, str]], object] = lambda facts: None,
    wait: bool = True,
) -> None:
    """Builds a pipeline and runs it to its end; `wire` adds the transforms to an empty one.

    A job on a cluster is reported to `submitted`, with public facts by which it is found there. Without `wait`, the
    function returns once the cluster has the job.

    Raises InputError if a stage found the input at fault, StageError if the runner gave up for a reason that no stage
    reported, and UsageError if the runner's flags are refused.
    """
    local = runs_here(options)
    cloud = options.view_as(GoogleCloudOptions)
    cloud.job_name = cloud.job_name or f"labeldp-{uuid.uuid4().hex[:12]}"
    pipeline = make_pipeline(options)
    wire(pipeline)
    try:
        if local:
            run_in_thread(lambda: pipeline.run().wait_until_finish())
        else:
            _run_on_cluster(pipeline, options, submitted, wait)
    except UsageError:
        raise
    except Exception as error:
        text = f"InputError: {error}" if isinstance(error, InputError) else str(error)
        found = re.search(r"\bInputError: (.*?)(?: \[while running |\n|$)", text)
        if found:
            raise InputError(found[1]) from None
        if not local and "StageError: " not in text:
            runner = options.view_as(StandardOptions).runner
            raise StageError(f"{runner} ended the job ({describe(error)}); see its own log for the reason") from None
        raise


def run_single_threaded(options: PipelineOptions, wire: Callable[[beam.Pipeline], object]) -> None:
    """Runs a pipeline as `run_pipeline` does, in one thread, so that floating-point sums are reproducible."""
    direct = options.view_as(DirectOptions)
    threads = direct.direct_num_workers
    direct.direct_num_workers = 1
    try:
        run_pipeline(options, wire)
    finally:
        direct.direct_num_workers = threads


def make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Makes an empty pipeline on a runner that shows no label.

    Experiments are added to the options in place, among them the one without sampling. Raises UsageError if Beam does
    not accept the runner's flags, or they would show labels or the secret key.
    """
    options.view_as(SetupOptions).save_main_session = False
    forbid_sampling(options)
    local = runs_here(options)
    forbid_ports(options)
    if local:
        # The command reports failures itself, in one line.
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    else:
        # Beam would run `pip freeze`, in 0.8 s, show the packages installed here to workers, and leave the list behind.
        options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    try:
        return beam.Pipeline(runner=LocalRunner() if local else None, options=options)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner: {error}") from None


def _run_on_cluster(
    pipeline: beam.Pipeline,
    options: PipelineOptions,
    submitted: Callable[[Mapping[str, str]], object],
    wait: bool,
) -> None:
    """Submits the job to a cluster and waits for it. If this process is told to end, the job is cancelled there."""
    # A cluster reports a failure in many lines, and workers in this process (LOOPBACK) do so after the job has ended.
    logging.getLogger().setLevel(logging.CRITICAL)
    _silence_closed_connections()
    find_job_server(options)
    warn_of_ports(options)
    # In the main thread: a job server that starts here sets signal handlers.
    result: PipelineResult = pipeline.run()
    submitted(submitted_job(options, result))
    if not wait:
        wait_until_accepted(options, result)
        return

    def cancel() -> None:
        master = options.view_as(FlinkRunnerOptions).flink_master
        if master in MAGIC_HOST_NAMES:
            result.cancel()
        else:
            cancel_flink_jobs(master, options.view_as(GoogleCloudOptions).job_name)

    with signals_as_interrupts(cancel):
        run_in_thread(result.wait_until_finish)


@functools.cache
def _silence_closed_connections() -> None:
    """Keeps threads of workers in this process from printing that their connections end, as they do with the job."""
    show = threading.excepthook

    def show_others(failure: threading.ExceptHookArgs) -> None:
        if not issubclass(failure.exc_type, grpc.RpcError):
            show(failure)

    threading.excepthook = show_others
