"""`labeldp privatize`, `fit` and `apply`: the main job in one run, or in its two halves."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.errors import InputError, describe_failure
from ...transforms.io.filesystems import is_remote
from ...transforms.progress_log import LOGGER, progress_bar
from ...transforms.stores.object_store import is_store
from ..errors import FieldError, one_line
from ..flags.arguments import log_to_stderr
from ..job.job_graph import run_job
from ..job.runner_options import forbid_short_lived, runner_options
from ..job.validation_passes import check_features, check_values
from ..ledger.ledger import Ledger
from ..publish.output_folder import staging_folder
from ..publish.output_table import commit_to_table
from ..publish.protocol import check_caps
from ..publish.release_steps import ReleasedLabel
from ..publish.request import Request, Run, new_run
from ..publish.signals import signals_as_interrupts
from ..publish.staging_locks import remove_leftovers
from ..spec.fields import Fields
from ..spec.input_spec import announce_csv_columns
from ..spec.make_release import make_release
from ..spec.release import Release
from ..spec.store_access import open_stores
from ..spec.written_files import RESULT, check_written
from .announcement import announce_features, announce_readers, counted, warn_of_identifiers, warn_of_other_label
from .dry_run import known_records, print_dry_run
from .existing_release import RunResult, check_result, is_released, verify_existing
from .exit_codes import names_of_flags, run_command
from .finish_command import finish_claimed, publish_results


def run(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    return released_by(args, runner_flags)[0]


def released_by(args: argparse.Namespace, runner_flags: Sequence[str]) -> tuple[int, list[ReleasedLabel]]:
    """Runs the command; returns the exit code and the labels that it released, none after a failure."""
    log_to_stderr()
    command, labels = args.command, list[ReleasedLabel]()

    def work() -> None:
        open_stores(vars(args), runner_flags)
        verify, result, started = args.if_exists == "verify", args.result_json, time.monotonic()
        wait = args.wait_until_finish is not False
        if result is not None:
            check_result(result)
        release = make_release(command, Fields.of(vars(args)), may_exist=verify)
        if result is not None:
            # The ledger and the key may be those that no flag names.
            check_written(
                {"result_json": result},
                {"result_json": RESULT},
                [("ledger", release.ledger), ("key", release.key.path)],
                {"result_json": "--result_json", "ledger": "the ledger", "key": "the noise key file"},
            )
        if verify and not args.dry_run and is_store(release.output.target):
            key = None if release.sign is None else release.sign.load()
            finish_claimed(release.output.target, runner_options(runner_flags, "", 0), key)
        if verify and is_released(release):
            found = verify_existing(release)
            with contextlib.suppress(InputError):
                # A run may have been killed right after it had published this release.
                remove_leftovers(release.output.target)
            holds = "its audit holds" if release.sign is None else "its audit and its signature hold"
            print(f"verified   {one_line(found.output)}: the release of this request, charged before; {holds}")
            _add_to_table(release)
            if result is not None:
                found.write(result)
            return
        input = release.input
        announce_csv_columns(input, release.private)
        if args.dry_run:
            print_dry_run(release)
            return
        options = runner_options(runner_flags, input.format.name, input.file_size)
        if not wait:
            _check_submission(release, options, result)
        with signals_as_interrupts():
            run, released = _release(release, options, wait, args.verbose)
            if wait:
                _add_to_table(release)
        labels.extend(released)
        if result is not None:
            RunResult.of_run(run, released, time.monotonic() - started).write(result)

    # The text of an unforeseen exception could quote a label; its class and line cannot.
    prog, names = f"labeldp {command}", names_of_flags(args)
    return run_command(prog, work, (InputError,), "nothing is released", describe_failure, names), labels


def _records_of_pass(release: Release) -> int | None:
    """Records that the stages of a pass look at, if local footers tell: of each label those of all files."""
    records = None if is_remote(release.input.paths[0]) else known_records(release)
    return None if records is None else records * len(release.labels)


def _check_submission(release: Release, options: PipelineOptions, result: str | None) -> None:
    """Refuses what a command that submits a job, and does not wait for it, cannot do."""
    forbid_short_lived(options)
    if is_remote(release.output.target) and not is_store(release.output.target):
        raise FieldError("{no_wait_until_finish} needs an output in a local folder, or on s3:// or gs://")
    if release.validation is not None:
        raise FieldError("{no_wait_until_finish}: {validate} needs passes before and after the job: wait")
    if release.unsure:
        raise FieldError(
            "{no_wait_until_finish}: only a pass before the job tells whether the output can hold {names}: wait",
            names=one_line(", ".join(release.unsure)),
        )
    if release.output.table is not None:
        raise FieldError("{no_wait_until_finish}: {output_table} gets the shards once they are released: wait")
    if result is not None:
        raise FieldError("{no_wait_until_finish}: give {result_json} to labeldp finish, which publishes the release")


def _add_to_table(release: Release) -> None:
    table, target = release.output.table, release.output.target
    if table is not None:
        added = commit_to_table(table, target)
        print(f"table      {one_line(f'{table.format}://{table.table}')} {'has' if added else 'had'} the shards")


def _release(release: Release, options: PipelineOptions, wait: bool, verbose: bool) -> tuple[Run, list[ReleasedLabel]]:
    """Runs a job up to its release, which is charged after all checks and appears only once it is charged.

    Without `wait`, the job is submitted, and `labeldp finish` does the rest.
    """
    fit, target, ledger = release.command == "fit", release.output.target, Ledger(release.ledger)
    # Held from here on: the job may take hours, and its release is not to fail then.
    key = None if release.sign is None or not wait else release.sign.load()
    check_caps(ledger, release.name, release.budget, release.caps, release.unit, release.fitted)
    with staging_folder(target, single_file=fit) as staging:
        domains = " and ".join(counted(len(label.column.domain), "label") for label in release.labels)
        LOGGER.info("%s: %s, %s", release.command, counted(len(release.input.paths), "input file"), domains)
        warn_of_other_label(release)
        warn_of_identifiers(release)
        for label in release.labels:
            announce_features(label)
        with progress_bar(lambda: _records_of_pass(release)):
            check_values(release, options)
            if release.validation is not None:
                check_features(release, options, staging.work)
            run = new_run(Request.of(release))
            run.write(staging)
            run_job(ledger, release, options, staging, run, wait)
        if not wait:
            staging.left = True
            again = "" if release.sign is None else "; give it --sign again"
            print(
                f"submitted  {one_line(target)}: labeldp finish {one_line(target)} waits for it and publishes it{again}"
            )
            return run, []
        released = publish_results(run, staging, options, key, verbose)
    if not fit:
        announce_readers(release, released[0].result.binding)
    return run, released
