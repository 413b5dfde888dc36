"""`labeldp privatize`, `fit` and `apply`: the main job, in one go or in its two halves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from ...mechanisms.core.exact_bounds import round_up
from ...transforms.errors import InputError, StageError, describe
from ...transforms.io.filesystems import delete_folder, write_text
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError, log_to_stderr
from ..cli.exit_codes import run_command
from ..cli.signals import signals_as_interrupts
from ..release.job_result import JobResult
from ..release.ledger import Ledger, LedgerEntry, charges
from ..release.manifest import MANIFEST_NAME, manifest
from ..release.mechanism_file import MECHANISM_NAME, read_mechanism_file
from ..release.output_folder import publish_folder, staging_folder
from .announcement import announce
from .job_flags import parse
from .job_graph import JOB_RESULT_NAME, SEGMENTS_NAME, build
from .job_request import Plan, make_plan
from .run_pipeline import run_pipeline, run_single_threaded
from .runner_options import runner_options
from .validation_passes import check_features, check_output


def run_privatize(argv: Sequence[str]) -> int:
    """`labeldp privatize`. Returns the exit code."""
    return _run("privatize", "Release a log with randomized labels: fit and apply in one job.", argv)


def run_fit(argv: Sequence[str]) -> int:
    """`labeldp fit`. Returns the exit code."""
    return _run("fit", "Release the label histogram of a log and the mechanism solved for it.", argv)


def run_apply(argv: Sequence[str]) -> int:
    """`labeldp apply`. Returns the exit code."""
    return _run("apply", "Release a log with labels randomized by a mechanism file.", argv)


def _run(command: str, description: str, argv: Sequence[str]) -> int:
    log_to_stderr()

    def work() -> None:
        args, flags = parse(command, description, argv)
        plan = make_plan(command, args)
        options = runner_options(flags, plan.file_size)
        with signals_as_interrupts():
            _release(plan, options)

    # The text of an unforeseen exception could quote a label; its class and place cannot.
    return run_command(f"labeldp {command}", work, (InputError,), "nothing is released", failure)


def failure(error: BaseException) -> str:
    """What may be shown of an error that was not foreseen."""
    text = f"StageError: {error}" if isinstance(error, StageError) else str(error)
    found = re.search(r"\bStageError: ([^\n]*)", text)
    return re.sub(r" \[while running .*", "", found[1]) if found else describe(error)


def _release(plan: Plan, options: PipelineOptions) -> None:
    ledger = Ledger(plan.ledger)
    request = _request(plan)
    _check_cap(plan, ledger, request)
    target = plan.mechanism_file if plan.command == "fit" else plan.output
    assert target is not None
    with staging_folder(target) as staging:
        LOGGER.info("%s: %d input files, %d labels", plan.command, len(plan.paths), len(plan.column.domain))
        if plan.validate:
            check_features(plan, lambda wire: run_single_threaded(options, wire), staging)
        run_pipeline(options, lambda pipeline: build(pipeline, plan, staging))
        facts = JobResult.from_json(_text(staging, JOB_RESULT_NAME))
        facts.check_same_input()
        mechanism = read_mechanism_file(FileSystems.join(staging, MECHANISM_NAME))
        spent = charges(facts.binding, mechanism, with_labels=plan.command != "fit")
        FileSystems.delete([FileSystems.join(staging, JOB_RESULT_NAME)])
        if plan.command == "fit":
            _charge(ledger, plan, request, facts, spent)
            FileSystems.rename([FileSystems.join(staging, MECHANISM_NAME)], [target])
            announce(plan, facts, mechanism)
            return
        document = manifest(facts, mechanism, _budget(plan, facts), _details(plan))
        write_text(FileSystems.join(staging, MANIFEST_NAME), json.dumps(document, indent=2) + "\n")
        delete_folder(FileSystems.join(staging, SEGMENTS_NAME))
        if plan.validate:
            check_output(plan, lambda wire: run_single_threaded(options, wire), staging, mechanism.randomizer.outputs)
        _charge(ledger, plan, request, facts, spent)
        publish_folder(staging, target)
        announce(plan, facts, mechanism)


def _text(staging: str, name: str) -> str:
    with FileSystems.open(FileSystems.join(staging, name)) as file:
        return file.read().decode()


def _request(plan: Plan) -> str:
    """Names what is asked for, without looking at a record."""
    asked = [
        plan.command, plan.paths, plan.column.name, plan.column.domain, plan.column.id_column,
        plan.column.rounding, plan.epsilon, plan.prior_epsilon, plan.mechanism, plan.parameters,
        plan.where and [plan.where.column, plan.where.value],
    ]  # fmt: skip
    return hashlib.blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()


def _check_cap(plan: Plan, ledger: Ledger, request: str) -> None:
    """Refuses to start a run that would exceed a cap; the ledger checks again before anything is released.

    A run of a request that is in the ledger may start: over unchanged input it is the same release, and free.
    """
    asked = [LedgerEntry("request", plan.epsilon, f"request {request}", plan.delta)]
    if plan.fitted is not None:
        prior = plan.fitted.prior_release or f"prior of request {request}"
        asked.append(LedgerEntry("prior", plan.fitted.prior_epsilon, prior))
    # Summed in any case: a damaged ledger is to be noticed before the work is done.
    exceeded = plan.caps.exceeded(ledger.spent(asked))
    if exceeded and not ledger.knows(request):
        raise UsageError(f"{exceeded}; the ledger {plan.ledger} says what was spent before")


def _charge(ledger: Ledger, plan: Plan, request: str, facts: JobResult, spent: list[LedgerEntry]) -> None:
    with ledger.locked():
        ledger.charge(
            spent,
            plan.caps,
            command=plan.command,
            request=request,
            label=plan.column.name,
            records=facts.binding.records,
            input_digest=f"{facts.binding.digest:064x}",
            output=plan.output or plan.mechanism_file,
        )


def _budget(plan: Plan, facts: JobResult) -> float:
    """The whole epsilon asked for; of a mechanism that was fitted before, both its parts, rounded up."""
    if plan.fitted is None:
        return plan.epsilon
    prior_epsilon, randomizer_epsilon = facts.binding.epsilons
    return round_up(Fraction(prior_epsilon) + Fraction(randomizer_epsilon))


def _details(plan: Plan) -> dict[str, Any]:
    return {
        "label": plan.column.name,
        "identity": plan.column.id_column or "file and row",
        "where": plan.where and f"{plan.where.column}={plan.where.value}",
        **({"validation": "inferred schema" if plan.schema is None else "given schema"} if plan.validate else {}),
    }
