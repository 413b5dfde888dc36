"""The runner: its flags, as Beam takes them, and the choice of a local one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from ..cli.arguments import UsageError
from ..cli.process_pool import processors

# What more of them do was not measured.
_THREADS = 2


LEAST_FILE_SIZE = 1 << 19
"""Bytes. In files that are smaller, threads wait for each other for longer than they save."""


def parse_known(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """What the parser knows, and the runner's flags.

    Exits with 2 for a flag that neither knows. Raises UsageError for a value that Beam does not take.
    """
    args, others = parser.parse_known_args(argv)
    unknown = _unknown_to_beam(others)
    if unknown:
        first = unknown[0]
        parser.error(f"unknown flag {first}" if first.startswith("-") else f"no flag takes {first!a}: quote a glob")
    return args, others


def runner_options(flags: Sequence[str], file_size: float) -> PipelineOptions:
    """The runner's flags as Beam's options. file_size: of an input file on average, in bytes.

    In this process two threads work, unless the flags say how many, or the files are small.
    """
    options = PipelineOptions(flags)
    told = any(flag.startswith("--direct_num_workers") for flag in flags)
    if runs_here(options) and not told and file_size >= LEAST_FILE_SIZE:
        options.view_as(DirectOptions).direct_num_workers = min(_THREADS, processors())
    return options


def runs_here(options: PipelineOptions) -> bool:
    """Whether the runner is a local one, not a cluster's: FnApiRunner takes its place, which opens no port."""
    return runner_name(options).endswith(("directrunner", "fnapirunner"))


def runner_name(options: PipelineOptions) -> str:
    """The runner's class in lower case, as Beam reads the flag: in any case, without `Runner`, or with its module."""
    name = (options.view_as(StandardOptions).runner or "DirectRunner").rpartition(".")[2].lower()
    return name if name.endswith("runner") else f"{name}runner"


def _unknown_to_beam(flags: Sequence[str]) -> list[str]:
    beam = argparse.ArgumentParser(allow_abbrev=False, add_help=False, conflict_handler="resolve", exit_on_error=False)
    for family in _families(PipelineOptions):
        family._add_argparse_args(beam)
    try:
        return beam.parse_known_args(list(flags))[1]
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None


def _families(family: type) -> list[Any]:
    below = family.__subclasses__()
    return below + [deeper for one in below for deeper in _families(one)]
