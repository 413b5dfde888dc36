"""`labeldp privatize`, `fit` and `apply`: the main job in one run, or in its two halves."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.errors import InputError
from ...transforms.progress_log import LOGGER
from ..flags.arguments import log_to_stderr
from ..job.job_graph import run_job
from ..job.run_pipeline import describe_failure
from ..job.runner_options import runner_options
from ..job.validation_passes import check_features, check_output, check_values
from ..ledger.ledger import Ledger
from ..publish.output_folder import publish_file, publish_folder, publishing, staging_folder
from ..publish.protocol import charged, check_caps
from ..publish.release_steps import charge_of, remove_segments, write_manifests
from ..publish.signals import signals_as_interrupts
from ..spec.column_checks import announce_csv_columns, read_schema
from ..spec.job_request import JobRequest, request_id, whole_budget
from ..spec.label_requests import parse_requests
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.store_access import open_stores
from .announcement import announce, announce_features, announce_readers, counted, warn_of_other_label
from .dry_run import print_dry_run
from .exit_codes import run_command


def run_privatize(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp privatize`; returns the exit code."""
    return _run("privatize", args, runner_flags)


def run_fit(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp fit`; returns the exit code."""
    return _run("fit", args, runner_flags)


def run_apply(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp apply`; returns the exit code."""
    return _run("apply", args, runner_flags)


def _run(command: str, args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    log_to_stderr()

    def work() -> None:
        open_stores(vars(args), runner_flags)
        requests = parse_requests(command, args)
        input = requests[0].input
        announce_csv_columns(input, requests[0].column.private)
        if args.dry_run:
            print_dry_run(requests, read_schema(input, requests[0].column.private))
            return
        options = runner_options(runner_flags, input.format.name, input.file_size)
        with signals_as_interrupts():
            _release(requests, options)

    # The text of an unforeseen exception could quote a label; its class and line cannot.
    return run_command(f"labeldp {command}", work, (InputError,), "nothing is released", describe_failure)


def _release(requests: Sequence[JobRequest], options: PipelineOptions) -> None:
    """Runs a job up to its release, which is charged after all checks and appears only once it is charged."""
    first = requests[0]
    input, output, labels, validation = first.input, first.output, first.column.private, first.validation
    ledger, name = Ledger(first.ledger), request_id(requests)
    check_caps(ledger, name, whole_budget(requests), first.mechanism.fitted, first.column.unit)
    with staging_folder(output.target, single_file=first.command == "fit") as staging:
        domains = " and ".join(counted(len(request.column.domain), "label") for request in requests)
        LOGGER.info("%s: %s, %s", first.command, counted(len(input.paths), "input file"), domains)
        warn_of_other_label(first)
        for request in requests:
            announce_features(request)
        check_values(first, options)
        if validation is not None:
            check_features(input, labels, validation, output.format, options, staging.work)
        released = run_job(ledger, name, requests, options, staging)
        manifests: tuple[str, ...] = ()
        if first.command != "fit":
            manifests = write_manifests(released, staging)
            remove_segments(staging)
            if validation is not None:
                mechanisms = {each.request.column.name: each.mechanism for each in released}
                check_output(output, mechanisms, options, staging)
        charge, caps = charge_of(name, released), first.budget.caps
        with charged(ledger, charge, caps, publishing(staging, output.target)):
            if first.command == "fit":
                publish_file(staging, MECHANISM_NAME, output.target)
            else:
                publish_folder(staging, output.target, manifests)
            # An interrupt before this would be reported as "nothing is released" when something is.
            announce(output.target, released, validation)
            if first.command != "fit":
                announce_readers(first, released[0].result.binding)
