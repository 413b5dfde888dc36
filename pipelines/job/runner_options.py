"""Flags of the runner, as Beam takes them, and defaults of the local runner."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from ...transforms.io.input_format import SMALL_FILE_SIZE
from ..errors import UsageError
from ..flags.arguments import available_cpus

_THREADS = 2
"""Default number of threads; more were not measured."""


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

    FnApiRunner, which opens no port, then replaces the named runner.
    """
    return runner_name(options).endswith(("directrunner", "fnapirunner"))


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
        return _beam_parser().parse_known_args(list(flags))[1]
    except argparse.ArgumentError as error:
        raise UsageError(str(error).removeprefix("argument ")) from None


def runner_flags() -> list[str]:
    """Names of the flags of all runners, without dashes."""
    return [flag.lstrip("-") for action in _beam_parser()._actions for flag in action.option_strings]


def _beam_parser() -> argparse.ArgumentParser:
    beam = argparse.ArgumentParser(allow_abbrev=False, add_help=False, conflict_handler="resolve", exit_on_error=False)
    for family in _option_classes(PipelineOptions):
        family._add_argparse_args(beam)
    return beam


def _option_classes(base: type) -> list[Any]:
    """Lists all subclasses, direct and indirect."""
    below = base.__subclasses__()
    return below + [deeper for one in below for deeper in _option_classes(one)]
