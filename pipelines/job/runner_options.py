"""Flags of the runner, as Beam takes them, defaults of the local runner, and refusal of settings that show labels.

Labels or the secret key would show through open ports or through data sampling. Refused options raise UsageError, which
names the flag.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
    StandardOptions,
)
from apache_beam.runners.portability.flink_runner import MAGIC_HOST_NAMES
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from ...transforms.beam_internals import has_grpc_workers, option_parser
from ...transforms.io.input_format import SMALL_FILE_SIZE
from ...transforms.progress_log import LOGGER
from ..errors import UsageError
from ..spec.machine import available_cpus

_LOCAL_RUNNERS = ("directrunner", "fnapirunner")
_THREADS = 2
"""Default number of threads; more were not measured."""
CONNECTION_SECONDS = 20
"""Time that a job server has to answer."""


def runner_options(flags: Sequence[str], input_format: str, file_size: float) -> PipelineOptions:
    """Makes Beam's options from the runner's flags, for input files of a mean size in bytes.

    The local runner uses two threads, unless the flags give their number, the files are small, or Arrow's own threads
    keep all processors busy.
    """
    options = PipelineOptions(flags)
    given = any(flag.startswith("--direct_num_workers") for flag in flags)
    if runs_here(options) and not given and file_size >= SMALL_FILE_SIZE:
        # Arrow decodes the columns of Parquet on all processors: of two, a second thread would only take its share.
        processors = available_cpus() // 2 if input_format == "parquet" else available_cpus()
        options.view_as(DirectOptions).direct_num_workers = max(min(_THREADS, processors), 1)
    return options


def runs_here(options: PipelineOptions) -> bool:
    """Tells whether the job runs in this process: true for local runners, false for Prism and clusters.

    LocalRunner, which opens no port, then replaces the named runner.
    """
    return runner_name(options).endswith(_LOCAL_RUNNERS)


def check_runner(pipeline: beam.Pipeline) -> bool:
    """Refuses pipelines whose runner would show labels, and turns its sampling off; tells if they run in this process.

    The runner is that of the pipeline, which options do not name if it was given as an object or a name. Raises
    UsageError.
    """
    name = type(pipeline.runner).__name__.lower()
    options = pipeline.options
    forbid_sampling(options)
    _forbid_mode(options)
    _forbid_interactive(name)
    if has_grpc_workers(pipeline.runner):
        raise UsageError(
            "--runner: the default environment of this FnApiRunner opens ports through which anyone on the network "
            "could read the input and the key: leave it out"
        )
    return name.endswith(_LOCAL_RUNNERS) or isinstance(pipeline.runner, FnApiRunner)


def runner_name(options: PipelineOptions) -> str:
    """Class name of the runner in lower case, for example flinkrunner.

    Beam accepts it in any case, without `Runner` or with its module.
    """
    name = (options.view_as(StandardOptions).runner or "DirectRunner").rpartition(".")[2].lower()
    return name if name.endswith("runner") else f"{name}runner"


def unknown_flags(flags: Sequence[str]) -> list[str]:
    """Selects the arguments that Beam does not know, from those that the command does not know.

    Raises UsageError if Beam does not accept the value of a flag.
    """
    try:
        return option_parser().parse_known_args(list(flags))[1]
    except argparse.ArgumentError as error:
        raise UsageError(str(error).removeprefix("argument ")) from None


def runner_flags() -> list[str]:
    """Names of the flags of all runners, without dashes."""
    return [flag.lstrip("-") for action in option_parser()._actions for flag in action.option_strings]


def forbid_ports(options: PipelineOptions) -> None:
    """Refuses local runners whose workers are reached through network ports.

    Beam's worker processes, and its worker threads of the mode `multi_threading`, listen on all network interfaces
    without authentication, and send any file that this user can read to anyone who connects. In-process workers need no
    port.
    """
    _forbid_mode(options)
    _forbid_interactive(runner_name(options))


def _forbid_mode(options: PipelineOptions) -> None:
    mode = options.view_as(DirectOptions).direct_running_mode
    if mode != "in_memory":
        raise UsageError(
            f"--direct_running_mode {mode} opens ports through which anyone on the network could read the input and "
            "the key: leave it out; --direct_num_workers N gives N threads without ports"
        )


def _forbid_interactive(name: str) -> None:
    if name == "interactiverunner":
        raise UsageError("--runner: InteractiveRunner opens such ports and stores labels to display them: leave it out")


def forbid_sampling(options: PipelineOptions) -> None:
    """Refuses data sampling and turns exception sampling off: both send raw labels to the runner's user interface.

    The options are changed in place.
    """
    debug = options.view_as(DebugOptions)
    requested = [name for name in debug.experiments or [] if name.startswith("enable") and "sampling" in name]
    if requested:
        raise UsageError(f"--experiments {requested[0]} would show raw labels in the runner's interface: leave it out")
    debug.add_experiment("disable_always_on_exception_sampling")


def find_job_server(options: PipelineOptions) -> None:
    """Connects to the job server that a flag names, or fetches the jar of the one that SparkRunner starts.

    Raises UsageError if no server answers, the jar cannot be fetched, or there is no Java to run it.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint and endpoint != "embed":
        _check_endpoint(endpoint)
    given = endpoint or options.view_as(SparkRunnerOptions).spark_submit_uber_jar
    if runner_name(options) != "sparkrunner" or given:
        return
    from apache_beam.runners.portability.spark_runner import SparkJarJobServer

    flags = options.view_as(JobServerOptions)
    if shutil.which(flags.job_server_java_launcher) is None:
        raise UsageError("--runner SparkRunner starts Beam's job server with java: install Java 11 or 17")
    server = SparkJarJobServer(options)
    try:
        server.local_jar(server.path_to_jar(), flags.jar_cache_dir)
    except (OSError, RuntimeError, ValueError):
        raise UsageError(
            "--runner SparkRunner starts Beam's job server, whose jar cannot be fetched: run `make spark` in a "
            "checkout of labeldp and pass --spark_job_server_jar .spark/jars/spark.jar, or name a running job server "
            "with --job_endpoint HOST:PORT"
        ) from None


def _check_endpoint(endpoint: str) -> None:
    """Refuses an address at which no server answers soon; Beam would wait for minutes."""
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECTION_SECONDS)
        except grpc.FutureTimeoutError:
            raise UsageError(
                f"--job_endpoint {endpoint}: no job server answers there; start one, or correct the address"
            ) from None


def forbid_short_lived(options: PipelineOptions) -> None:
    """Refuses runners whose jobs end with this process, where it is not to wait for the job."""
    name, flag = runner_name(options), "--no_wait_until_finish"
    # SparkRunner starts the driver of its jobs, which ends with this process.
    driver_here = name == "sparkrunner" and not options.view_as(PortableOptions).job_endpoint
    if runs_here(options) or name == "prismrunner" or driver_here:
        raise UsageError(f"{flag} needs a runner whose jobs go on without this command: name its --runner")
    if name == "flinkrunner" and options.view_as(FlinkRunnerOptions).flink_master in MAGIC_HOST_NAMES:
        raise UsageError(f"{flag} needs a cluster that goes on without this command: name its --flink_master")
    if _workers_here(options):
        raise UsageError(f"{flag} needs workers that go on without this command: name their --environment_type")


def _workers_here(options: PipelineOptions) -> bool:
    kind = options.view_as(PortableOptions).environment_type
    by_default = runner_name(options) in ("prismrunner", "flinkrunner", "sparkrunner")
    return kind == "LOOPBACK" or (kind is None and by_default)


def warn_of_ports(options: PipelineOptions) -> None:
    """Warns if the runner reaches workers in this process through a port, as Prism does.

    Such workers execute code that anyone who can connect sends to them.
    """
    if _workers_here(options):
        runner = options.view_as(StandardOptions).runner
        LOGGER.warning("workers of %s listen on all network interfaces; use it only on a trusted network", runner)
