"""Flags of the runner, as Beam takes them, and defaults of the local runner."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from ..cli.arguments import UsageError
from ..cli.process_pool import available_cpus

LEAST_FILE_SIZE = 1 << 19
"""In bytes. For smaller files, a second thread costs more time than it saves."""

_THREADS = 2
"""Default number of threads; more were not measured."""


def parse_known(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Parses flags of the command and of the runner. Exits with code 2 at a flag that neither knows.

    Args:
      parser: Parser of the command's flags.
      argv: Arguments after the command's name; None for those of the process.

    Returns:
      The values of the command's flags, and the runner's flags as they are.

    Raises:
      UsageError: If Beam does not accept the value of a flag.
    """
    args, others = parser.parse_known_args(argv)
    unknown = _unknown_to_beam(others)
    if unknown:
        first = unknown[0]
        parser.error(f"unknown flag {first}" if first.startswith("-") else f"no flag takes {first!a}: quote a glob")
    return args, others


def runner_options(flags: Sequence[str], file_size: float) -> PipelineOptions:
    """Makes Beam's options from the runner's flags.

    The local runner uses two threads, unless the flags give their number or the files are small.

    Args:
      flags: The runner's flags.
      file_size: Mean size of an input file in bytes.

    Returns:
      The options.
    """
    options = PipelineOptions(flags)
    given = any(flag.startswith("--direct_num_workers") for flag in flags)
    if runs_here(options) and not given and file_size >= LEAST_FILE_SIZE:
        options.view_as(DirectOptions).direct_num_workers = min(_THREADS, available_cpus())
    return options


def runs_here(options: PipelineOptions) -> bool:
    """Tells whether the job runs in this process. FnApiRunner, which opens no port, then replaces the named runner.

    Args:
      options: Options of the runner.

    Returns:
      True for local runners, False for Prism and clusters.
    """
    return runner_name(options).endswith(("directrunner", "fnapirunner"))


def runner_name(options: PipelineOptions) -> str:
    """Normalizes the runner's name; Beam accepts it in any case, without `Runner` or with its module.

    Args:
      options: Options of the runner.

    Returns:
      The class name in lower case, for example flinkrunner.
    """
    name = (options.view_as(StandardOptions).runner or "DirectRunner").rpartition(".")[2].lower()
    return name if name.endswith("runner") else f"{name}runner"


def _unknown_to_beam(flags: Sequence[str]) -> list[str]:
    beam = argparse.ArgumentParser(allow_abbrev=False, add_help=False, conflict_handler="resolve", exit_on_error=False)
    for family in _option_classes(PipelineOptions):
        family._add_argparse_args(beam)
    try:
        return beam.parse_known_args(list(flags))[1]
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None


def _option_classes(base: type) -> list[Any]:
    """Lists all subclasses, direct and indirect."""
    below = base.__subclasses__()
    return below + [deeper for one in below for deeper in _option_classes(one)]
