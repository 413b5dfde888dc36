"""`labeldp finish`: waits for the results of a job that was submitted, and publishes its release.

`privatize`, `fit` and `apply` publish in the same way right after their job.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.errors import InputError, describe_failure
from ...transforms.io.filesystems import FileSystems, exists
from ...transforms.progress_log import LOGGER
from ...transforms.stores.object_store import is_store
from ..errors import UsageError, one_line
from ..flags.arguments import log_to_stderr
from ..job.runner_options import runner_options
from ..job.submitted_job import state_of_job
from ..job.validation_passes import check_output
from ..publish.job_result import NeverReleased
from ..publish.output_folder import Staging
from ..publish.release_steps import ReleasedLabel, publish_release, read_results
from ..publish.request import Run
from ..publish.signals import ignore_signals, signals_as_interrupts
from ..publish.unfinished_run import (
    RunBusy,
    UnfinishedRun,
    claimed,
    claimed_run,
    find_run,
    is_complete,
    is_published,
    place_of,
)
from ..spec.label_folders import MANIFEST_NAME
from ..spec.signing_key import SigningKey
from ..spec.store_access import check_store, open_stores
from ..spec.target_checks import noise_key_file, resolve_signing_key
from .announcement import announce
from .existing_release import RunResult, audited_release, check_result, signer_of
from .exit_codes import names_of_flags, run_command


def publish_results(
    run: Run, staging: Staging, options: PipelineOptions, key: SigningKey | None = None, verbose: bool = False
) -> list[ReleasedLabel]:
    """Checks the results of a job, and publishes them, as `publish_release`; `verbose` prints all facts."""
    request, released = run.request, read_results(run, staging)
    mechanisms = {each.label.name: each.mechanism for each in released}
    publish_release(
        request,
        released,
        staging,
        key,
        validate=lambda: check_output(request, mechanisms, options, staging),
        announce=lambda: announce(request, released, key, verbose),
    )
    ignore_signals()
    return released


_POLLS = (0.2, 10.0)
"""Shortest and longest time between two looks, in seconds."""


def run(args: argparse.Namespace, runner_flags: Sequence[str]) -> int:
    """Runs `labeldp finish`; returns the exit code."""
    log_to_stderr()

    def work() -> None:
        open_stores(vars(args), runner_flags)
        if is_store(args.folder):
            check_store("FOLDER", args.folder, listing=True)
        if args.timeout is not None and not args.timeout >= 0:
            raise UsageError(f"--timeout must be at least 0 seconds, not {args.timeout:g}")
        if args.result_json is not None:
            check_result(args.result_json)
        started = time.monotonic()
        with signals_as_interrupts():
            ended = _finish(args, runner_options(runner_flags, "", 0))
        if args.result_json is not None and ended is not None:
            RunResult.of_run(*ended, time.monotonic() - started).write(args.result_json)

    # The text of an unforeseen exception could quote a label; its class and line cannot.
    names = names_of_flags(args)
    return run_command("labeldp finish", work, (InputError,), "nothing is released", describe_failure, names)


def _finish(args: argparse.Namespace, options: PipelineOptions) -> tuple[Run, list[ReleasedLabel]] | None:
    """Waits for the results and publishes them; None if they are published already."""
    target, folder = place_of(args.folder)
    until = None if args.timeout is None else time.monotonic() + args.timeout
    pause, reason, said = _POLLS[0], "", False
    key: SigningKey | None = None
    if is_store(target):
        claimed_run(target)
    while True:
        found = find_run(target, folder)
        if found is None:
            file = resolve_signing_key(args.sign, target, args.noise_key_mode)
            _announce_released(target, None if file is None else file.load())
            return None
        found = _with_key(found, args)
        key = key or _signing_key(found.run, args)
        try:
            state = state_of_job(found.job, options)
            complete = is_complete(found) or is_published(found.run, found.staging)
            # A job that is running after its results may start again. What is complete is judged by its results: an
            # address that a file of the run names may say anything.
            if state == "failed" or (complete and state != "running"):
                with claimed(found) as staging:
                    return _publish(found, staging, options, key, state == "failed")
            missing = "the job is still running" if complete else "the results of its job are not all there"
            reason = f"{found.work}: {missing}"
            if state == "unknown" and "flink_master" in found.job:
                reason += "; whether it has failed, Flink tells if --flink_master names it here too"
        except RunBusy as busy:
            reason = str(busy)
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise InputError(
                f"{reason}; waited for {args.timeout:g} s. Run it again if the job is going; if it has failed, as the "
                f"log of its runner tells, delete {found.work} and submit it again"
            )
        if not said:
            LOGGER.info("waiting: %s", reason)
            said = True
        time.sleep(pause if left is None else min(pause, left))
        pause = min(2 * pause, _POLLS[1])


def finish_claimed(target: str, options: PipelineOptions, key: SigningKey | None) -> None:
    """Publishes the release of a run that was killed after it had claimed a target on an object store, if any."""
    found = claimed_run(target)
    if found is not None:
        _check_signed(found.run, key is not None)
        with claimed(found) as staging:
            _publish(found, staging, options, key, failed=False)


def _with_key(found: UnfinishedRun, args: argparse.Namespace) -> UnfinishedRun:
    if args.noise_key_file is None:
        return found
    request = dataclasses.replace(found.run.request, key=noise_key_file(args.noise_key_file, args.noise_key_mode))
    return dataclasses.replace(found, run=dataclasses.replace(found.run, request=request))


def _signing_key(run: Run, args: argparse.Namespace) -> SigningKey | None:
    """The key to sign the release with. Raises UsageError if it cannot be used, or is missing or not wanted."""
    request = run.request
    if request.command == "fit" and args.sign is not None:
        raise UsageError("--sign: the run is of fit, which releases no records: leave it out")
    file = resolve_signing_key(args.sign, request.target, args.noise_key_mode)
    _check_signed(run, file is not None)
    return None if file is None else file.load()


def _check_signed(run: Run, signed: bool) -> None:
    if run.request.signed and not signed:
        raise UsageError(
            f"the release {run.request.output} is to be signed, and no file of its run names the key: give --sign KEY "
            "again"
        )


def _publish(
    found: UnfinishedRun, staging: Staging, options: PipelineOptions, key: SigningKey | None, failed: bool
) -> tuple[Run, list[ReleasedLabel]] | None:
    """Publishes a run whose results are complete, unless it was published before. Ends one whose job has failed."""
    if is_published(found.run, staging):
        _announce_released(found.run.request.target, key)
        return None
    complete = is_complete(dataclasses.replace(found, work=staging.work))
    if failed and not complete:
        raise NeverReleased(
            f"the job {found.job.get('job_name')} has failed, as {found.job.get('flink_master')} says; nothing is "
            "released or charged, and its files are removed. Its log tells the reason"
        )
    if not complete:
        raise NeverReleased("the job was started again while its results were read: submit it again")
    return found.run, publish_results(found.run, staging, options, key)


def _announce_released(target: str, key: SigningKey | None) -> None:
    """Says that the release is published, if it is one by its audit, signed by the key if there is one."""
    records = exists(FileSystems.join(target, MANIFEST_NAME))
    if not exists(target) and not records:
        raise UsageError(f"{target} is no release, and no run with this output is to be finished: check the path")
    if key is not None and not records:
        raise UsageError(f"--sign: {target} is a mechanism file, which is not signed: leave it out")
    with audited_release(target, signer_of(key)) as (_, audit):
        if audit.problems:
            raise InputError(f"{target} is published, but its audit fails: {'; '.join(audit.problems)}")
    print(f"released   {one_line(target)}: published before; its audit holds")
