"""`labeldp privatize`, `fit` and `apply`: the main job in one run, or in its two halves."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.errors import InputError
from ...transforms.progress_log import LOGGER
from ..cli.arguments import log_to_stderr
from ..cli.exit_codes import run_command
from ..cli.signals import signals_as_interrupts, signals_ignored
from ..preview.column_checks import read_schema
from ..preview.dry_run import print_dry_run
from ..release.ledger import Ledger
from ..release.mechanism_file import MECHANISM_NAME
from ..release.output_folder import publish_file, publish_folder, staging_folder
from ..runner.run_pipeline import describe_failure
from ..runner.runner_options import runner_options
from ..stores.store_access import open_stores
from ..units.choose_bound import with_chosen_bound
from .announcement import announce, announce_metadata, counted, warn_of_other_label
from .group_flags import with_frequent_groups
from .job_request import JobRequest, request_id
from .parse_request import parse_request
from .release_steps import (
    charge_ledger,
    check_caps,
    collect_facts,
    remove_segments,
    run_job,
    write_manifest,
)
from .validation_passes import check_features, check_output


def run_privatize(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp privatize`.

    Args:
      args: Parsed flags.
      runner_flags: The runner's flags.

    Returns:
      The exit code.
    """
    return _run("privatize", args, runner_flags)


def run_fit(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp fit`.

    Args:
      args: Parsed flags.
      runner_flags: The runner's flags.

    Returns:
      The exit code.
    """
    return _run("fit", args, runner_flags)


def run_apply(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp apply`.

    Args:
      args: Parsed flags.
      runner_flags: The runner's flags.

    Returns:
      The exit code.
    """
    return _run("apply", args, runner_flags)


def _run(command: str, args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    log_to_stderr()

    def work() -> None:
        open_stores(vars(args), runner_flags)
        request = parse_request(command, args)
        if args.dry_run:
            print_dry_run(request, read_schema(request.input, request.column.name))
            return
        options = runner_options(runner_flags, request.input.file_size)
        with signals_as_interrupts():
            _release(request, options)

    # The text of an unforeseen exception could quote a label; its class and line cannot.
    return run_command(f"labeldp {command}", work, (InputError,), "nothing is released", describe_failure)


def _release(request: JobRequest, options: PipelineOptions) -> None:
    """Runs a request up to its release, which is charged after all checks and appears only once it is charged."""
    request = with_chosen_bound(with_frequent_groups(request, options), options)
    input, output, label, validation = request.input, request.output, request.column.name, request.validation
    ledger, name = Ledger(request.ledger), request_id(request)
    check_caps(ledger, name, request.budget, request.mechanism.fitted, request.column.unit)
    with staging_folder(output.target, single_file=request.command == "fit") as staging:
        LOGGER.info(
            "%s: %s, %s",
            request.command, counted(len(input.paths), "input file"), counted(len(request.column.domain), "label"),
        )  # fmt: skip
        warn_of_other_label(request)
        if request.command != "fit":
            announce_metadata(input, output.format, label)
        if validation is not None:
            check_features(input, label, validation, output.format, options, staging.release)
        result, mechanism = run_job(ledger, name, request, options, staging)
        result.check_same_input()
        result.check_same_mechanism(mechanism.randomizer.fingerprint.hex())
        facts = collect_facts(request, result, mechanism, staging)
        if request.command != "fit":
            write_manifest(request, result, mechanism, facts, staging)
            remove_segments(staging)
            if validation is not None:
                check_output(output, label, mechanism, options, staging.release)
        if staging.lease is not None:
            # A run that another one has replaced must not charge what it cannot release.
            staging.lease.check()
        charge_ledger(ledger, name, request, result, mechanism)
        # An interrupt from here on would be reported as "nothing is released" when something is.
        with signals_ignored():
            if request.command == "fit":
                publish_file(staging, MECHANISM_NAME, output.target)
            else:
                publish_folder(staging, output.target)
            announce(output.target, result, mechanism, facts, validation)
