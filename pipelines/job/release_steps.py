"""Steps of a release, in order: check the caps, run the job, write the manifest, charge the ledger."""

from __future__ import annotations

import json

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from ...transforms.io.filesystems import delete_folder, read_text, write_text
from ..cli.arguments import UsageError
from ..release.job_result import JobResult
from ..release.ledger import Ledger, LedgerEntry, release_entries
from ..release.manifest import MANIFEST_NAME, make_manifest
from ..release.mechanism_file import MECHANISM_NAME, MechanismFile, read_mechanism_file
from ..runner.run_pipeline import run_pipeline
from .job_graph import JOB_RESULT_NAME, SEGMENTS_NAME, build
from .job_request import BudgetRequest, JobRequest


def check_caps(ledger: Ledger, request_name: str, budget: BudgetRequest, fitted: MechanismFile | None) -> None:
    """Refuses to start a run that would exceed a cap. The ledger checks again before anything is released.

    A request that is in the ledger may start: over unchanged input it is the same release, which costs nothing.

    Args:
      ledger: The ledger.
      request_name: Name of the request, of `request_id`.
      budget: Budget and caps.
      fitted: Mechanism file of `apply`, whose prior is published again; None for the other commands.

    Raises:
      UsageError: If a cap would be exceeded.
      InputError: If the ledger is corrupt.
    """
    requested = [LedgerEntry("request", budget.epsilon, f"request {request_name}", budget.delta)]
    if fitted is not None:
        prior = fitted.prior_release or f"prior of request {request_name}"
        requested.append(LedgerEntry("prior", fitted.prior_epsilon, prior))
    # Summed without caps as well: a corrupt ledger is to be found before the job runs.
    exceeded = budget.caps.exceeded(ledger.spent(requested))
    if exceeded and not ledger.has_request(request_name):
        raise UsageError(f"{exceeded}; ledger {ledger.path} lists what was spent before")


def run_job(request: JobRequest, options: PipelineOptions, staging: str) -> tuple[JobResult, MechanismFile]:
    """Runs the main job, which writes shards and mechanism file into the staging folder.

    Args:
      request: The request.
      options: Options of the runner.
      staging: The staging folder.

    Returns:
      The result of the job, and the mechanism that it solved for or applied.

    Raises:
      InputError: If the input is at fault.
    """
    run_pipeline(options, lambda pipeline: build(pipeline, request, staging))
    path = FileSystems.join(staging, JOB_RESULT_NAME)
    result = JobResult.from_json(read_text(path))
    FileSystems.delete([path])
    return result, read_mechanism_file(FileSystems.join(staging, MECHANISM_NAME))


def write_manifest(request: JobRequest, result: JobResult, mechanism: MechanismFile, staging: str) -> None:
    """Writes release.json into the staging folder.

    Args:
      request: The request.
      result: Result of the job.
      mechanism: The released mechanism.
      staging: The staging folder.
    """
    where, validation = request.input.where, request.validation
    details = {
        "label": request.column.name,
        "identity": request.column.id_column or "file and row",
        "where": where and f"{where.column}={where.value}",
    }
    if validation is not None:
        details["validation"] = "inferred schema" if validation.schema is None else "given schema"
    # A fitted mechanism costs both its parts, whatever was asked for when it was fitted.
    epsilon = request.budget.epsilon if request.mechanism.fitted is None else result.binding.budget.total
    document = make_manifest(result, mechanism, epsilon, details)
    write_text(FileSystems.join(staging, MANIFEST_NAME), json.dumps(document, indent=2) + "\n")


def remove_segments(staging: str) -> None:
    """Deletes the temporary segments that shards were made from.

    Args:
      staging: The staging folder.
    """
    delete_folder(FileSystems.join(staging, SEGMENTS_NAME))


def charge_ledger(
    ledger: Ledger, request_name: str, request: JobRequest, result: JobResult, mechanism: MechanismFile
) -> None:
    """Charges a release to the ledger, under its lock.

    Args:
      ledger: The ledger.
      request_name: Name of the request, of `request_id`.
      request: The request.
      result: Result of the job.
      mechanism: The released mechanism.

    Raises:
      InputError: If a cap would be exceeded; nothing is written then.
    """
    entries = release_entries(result.binding, mechanism, with_labels=request.command != "fit")
    with ledger.locked():
        ledger.charge(
            entries,
            request.budget.caps,
            command=request.command,
            request=request_name,
            label=request.column.name,
            records=result.binding.records,
            input_digest=f"{result.binding.digest:064x}",
            output=request.output.target,
        )
