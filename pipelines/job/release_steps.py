"""Steps of a release, in order: check the caps, run the job, write the manifest, charge the ledger."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from ...mechanisms.analysis.release_warnings import release_warnings
from ...mechanisms.analysis.released_facts import ReleasedFacts
from ...mechanisms.center.center_model import CenterModel
from ...mechanisms.release.unit_bound import UnitBound, spent
from ...transforms.errors import InputError
from ...transforms.io.filesystems import delete_files, delete_folder, read_text, write_text
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError
from ..release.earlier_release import earlier_mechanisms, lost_release
from ..release.facts_of_release import feature_columns, released_facts
from ..release.job_result import JobResult
from ..release.ledger import Ledger, LedgerEntry, release_entries, unit_details
from ..release.manifest import CENTER_NAME, MANIFEST_NAME, make_manifest
from ..release.mechanism_file import MECHANISM_NAME, MechanismFile, center_release_name, read_mechanism_file
from ..release.output_folder import DATA_NAME, Staging
from ..runner.run_pipeline import run_pipeline
from .job_graph import JOB_RESULT_NAME, SEGMENTS_NAME, build
from .job_request import BudgetRequest, JobRequest


def check_caps(
    ledger: Ledger, request_name: str, budget: BudgetRequest, fitted: MechanismFile | None, unit: UnitBound | None
) -> None:
    """Refuses to start a run that would exceed a cap. The ledger checks again before anything is released.

    A request that is in the ledger may start: over unchanged input it is the same release, which costs nothing.

    Args:
      ledger: The ledger.
      request_name: Name of the request, of `request_id`.
      budget: Budget and caps.
      fitted: Mechanism file of `apply`, whose prior is published again; None for the other commands.
      unit: Privacy unit that the budget is for; None for single records.

    Raises:
      UsageError: If a cap would be exceeded.
      InputError: If the ledger is corrupt.
    """
    requested = [LedgerEntry("request", budget.epsilon, f"request {request_name}", budget.delta)]
    if fitted is not None:
        prior = fitted.prior_release or f"prior of request {request_name}"
        requested.append(LedgerEntry("prior", spent(fitted.unit, fitted.prior_epsilon), prior))
        if fitted.center is not None and fitted.center.linear is not None:
            name = center_release_name(fitted.center.linear)
            requested.append(LedgerEntry("center", spent(fitted.unit, fitted.center_epsilon), name))
    # The ledger is read without caps as well: a corrupt one is to be found before the job runs.
    exceeded = ledger.exceeded(budget.caps, requested, None if unit is None else unit.column)
    if exceeded and not ledger.has_request(request_name):
        raise UsageError(f"{exceeded}; ledger {ledger.path} lists what was spent before")


def run_job(
    ledger: Ledger, request_name: str, request: JobRequest, options: PipelineOptions, staging: Staging
) -> tuple[JobResult, MechanismFile]:
    """Runs the main job, which writes shards and mechanism file into the staging folder.

    If it repeats a release of the ledger whose output is still there, it uses the mechanism of that release.

    Args:
      ledger: The ledger.
      request_name: Name of the request, of `request_id`.
      request: The request.
      options: Options of the runner.
      staging: The staging folder.

    Returns:
      The result of the job, and the mechanism that it solved for or applied.

    Raises:
      InputError: If the input is at fault.
    """
    earlier = earlier_mechanisms(ledger, request_name) if request.mechanism.fitted is None else ()
    run_pipeline(options, lambda pipeline: build(pipeline, request, staging, earlier))
    path = FileSystems.join(staging.work, JOB_RESULT_NAME)
    result = JobResult.from_json(read_text(path))
    delete_files([path])
    return result, read_mechanism_file(FileSystems.join(staging.release, MECHANISM_NAME))


def collect_facts(request: JobRequest, result: JobResult, mechanism: MechanismFile, staging: Staging) -> ReleasedFacts:
    """Collects the released and public facts, for warnings and the verdict.

    Args:
      request: The request.
      result: Result of the job.
      mechanism: The released mechanism.
      staging: The staging folder.

    Returns:
      The facts.

    Raises:
      InputError: If a staged shard cannot be read.
    """
    # The column of the groups is a feature like any other.
    others = dataclasses.replace(request.column, groups=None).columns
    data = FileSystems.join(staging.release, DATA_NAME)
    features = feature_columns(data, result.shards, others, request.output.partitions.names)
    binding = result.binding
    return released_facts(mechanism, binding.records, features, request.mechanism.loss, binding.missing_centers)


def write_manifest(
    request: JobRequest,
    result: JobResult,
    mechanism: MechanismFile,
    facts: ReleasedFacts,
    staging: Staging,
) -> None:
    """Writes release.json into the staging folder, and center.json for a linear center.

    Args:
      request: The request.
      result: Result of the job.
      mechanism: The released mechanism.
      facts: The released and public facts.
      staging: The staging folder.
    """
    where, validation = request.input.where, request.validation
    details: dict[str, Any] = {
        "label": request.column.name,
        "identity": request.column.id_column or "file and row",
        "where": where and f"{where.column}={where.value}",
        "loss": facts.loss,
        "features": facts.features,
        "warnings": [warning.name for warning in release_warnings(facts)],
    }
    if mechanism.randomizer.choice is not None:
        details["choice"] = mechanism.randomizer.choice
    if validation is not None:
        details["validation"] = "inferred schema" if validation.schema is None else "given schema"
    # A fitted mechanism costs all its parts, whatever was asked for when it was fitted.
    fitted = request.mechanism.fitted is not None
    epsilon = mechanism.total_epsilon(mechanism.labels_budget[0]) if fitted else request.budget.epsilon
    document = make_manifest(result, mechanism, epsilon, details)
    write_text(FileSystems.join(staging.work, MANIFEST_NAME), json.dumps(document, indent=2) + "\n")
    center = mechanism.center
    if center is not None and center.linear is not None:
        model = CenterModel(center.column, center.domain, center.linear)
        write_text(FileSystems.join(staging.release, CENTER_NAME), json.dumps(model.to_document()) + "\n")


def remove_segments(staging: Staging) -> None:
    """Deletes the temporary segments that shards were made from.

    Args:
      staging: The staging folder.
    """
    delete_folder(FileSystems.join(staging.work, SEGMENTS_NAME))


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
    digest = f"{result.binding.digest:064x}"
    with ledger.locked():
        # `apply` takes its mechanism from a file: another file is another release.
        fitted = request.mechanism.fitted is not None
        lost = None if fitted else lost_release(ledger, request_name, digest, entries)
        again = (
            f"this run repeats the release {lost}, but its labels are a charge of their own: that release is "
            "no longer there or was changed, and the mechanism that was computed now is another one"
            if lost is not None
            else None
        )
        try:
            ledger.charge(
                entries,
                request.budget.caps,
                command=request.command,
                request=request_name,
                label=request.column.name,
                **unit_details(request.column.unit),
                records=result.binding.records,
                input_digest=digest,
                mechanism_fingerprint=mechanism.randomizer.fingerprint.hex(),
                output=request.output.target,
            )
        except InputError as error:
            raise InputError(f"{error}; {again}" if again else str(error)) from None
    if again:
        LOGGER.warning("%s", again)
