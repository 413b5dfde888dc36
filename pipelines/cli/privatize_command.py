"""`labeldp privatize`, `fit` and `apply`: the main job in one run, or in its two halves."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.errors import InputError
from ...transforms.progress_log import LOGGER
from ..errors import one_line
from ..flags.arguments import log_to_stderr
from ..job.job_graph import run_job
from ..job.run_pipeline import describe_failure
from ..job.runner_options import runner_options
from ..job.validation_passes import check_features, check_output, check_values
from ..ledger.ledger import Ledger
from ..publish.output_folder import publish_file, publish_folder, publishing, staging_folder
from ..publish.output_table import commit_to_table
from ..publish.protocol import charged, check_caps
from ..publish.release_steps import ReleasedLabel, charge_of, remove_segments, write_manifests
from ..publish.signals import signals_as_interrupts
from ..spec.fields import Fields
from ..spec.input_spec import announce_csv_columns, read_schema
from ..spec.make_release import make_release
from ..spec.mechanism_file import MECHANISM_NAME
from ..spec.release import Release
from ..spec.store_access import open_stores
from .announcement import announce, announce_features, announce_readers, counted, warn_of_other_label
from .dry_run import print_dry_run
from .existing_release import RunResult, check_result, is_released, verify_existing
from .exit_codes import names_of_flags, run_command


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
        verify, result, started = args.if_exists == "verify", args.result_json, time.monotonic()
        if result is not None:
            check_result(result)
        release = make_release(command, Fields.of(vars(args)), may_exist=verify)
        if verify and is_released(release):
            found = verify_existing(release)
            print(f"verified   {one_line(found.output)}: the release of this request, charged before; its audit holds")
            _add_to_table(release)
            if result is not None:
                found.write(result)
            return
        input = release.input
        announce_csv_columns(input, release.private)
        if args.dry_run:
            print_dry_run(release, read_schema(input, release.private))
            return
        options = runner_options(runner_flags, input.format.name, input.file_size)
        with signals_as_interrupts():
            released = _release(release, options)
            _add_to_table(release)
        if result is not None:
            RunResult.of_run(release, released, time.monotonic() - started).write(result)

    # The text of an unforeseen exception could quote a label; its class and line cannot.
    prog, names = f"labeldp {command}", names_of_flags(args)
    return run_command(prog, work, (InputError,), "nothing is released", describe_failure, names)


def _add_to_table(release: Release) -> None:
    table, target = release.output.table, release.output.target
    if table is not None:
        added = commit_to_table(table, target)
        print(f"table      {one_line(f'{table.format}://{table.table}')} {'has' if added else 'had'} the shards")


def _release(release: Release, options: PipelineOptions) -> list[ReleasedLabel]:
    """Runs a job up to its release, which is charged after all checks and appears only once it is charged."""
    fit, target, ledger = release.command == "fit", release.output.target, Ledger(release.ledger)
    check_caps(ledger, release.name, release.budget, release.caps, release.unit, release.fitted)
    with staging_folder(target, single_file=fit) as staging:
        domains = " and ".join(counted(len(label.column.domain), "label") for label in release.labels)
        LOGGER.info("%s: %s, %s", release.command, counted(len(release.input.paths), "input file"), domains)
        warn_of_other_label(release)
        for label in release.labels:
            announce_features(label)
        check_values(release, options)
        if release.validation is not None:
            check_features(release, options, staging.work)
        released = run_job(ledger, release, options, staging)
        manifests: tuple[str, ...] = ()
        if not fit:
            manifests = write_manifests(release, released, staging)
            remove_segments(staging)
            if release.validation is not None:
                mechanisms = {each.label.name: each.mechanism for each in released}
                check_output(release.output, mechanisms, options, staging)
        with charged(ledger, charge_of(release, released), release.caps, publishing(staging, target)):
            if fit:
                publish_file(staging, MECHANISM_NAME, target)
            else:
                publish_folder(staging, target, manifests)
            # An interrupt before this would be reported as "nothing is released" when something is.
            announce(release, released)
            if not fit:
                announce_readers(release, released[0].result.binding)
    return released
