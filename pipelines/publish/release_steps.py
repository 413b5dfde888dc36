"""Steps of a release of files after its job: read the results, then write the manifests, sign, charge and publish.

Functions that read the ledger raise InputError if it is corrupt.

The mechanisms of earlier releases of a request are used again, so that a repeated run costs nothing: labels are charged
under their input and mechanism, and a solver that gives another result on another machine would make the repeated run a
second release. So it takes the mechanism from the output of the first one, if it is still there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from ...mechanisms.analysis.explained import Measured
from ...mechanisms.analysis.release_warnings import release_warnings
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.release.conclude import EarlierMechanism
from ...transforms.errors import InputError
from ...transforms.io.filesystems import delete_folder, read_text, write_text
from ..ledger.ledger import Ledger
from ..spec.label_folders import (
    BY_PLACE,
    CENTER_NAME,
    DATA_NAME,
    DATA_OF_LABEL,
    MANIFEST_NAME,
    VALIDATION_FILES,
    VALIDATION_NAME,
)
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile, read_mechanism_file
from ..spec.release import Release
from ..spec.release_files import released_file
from ..spec.signing_key import SigningKey
from .job_result import JobResult
from .manifest import feature_columns, labels_manifest, make_manifest, output_statement, released_facts
from .measured_release import measured_shards
from .output_folder import (
    SEGMENTS_NAME,
    Staging,
    job_result_path,
    publish_file,
    publish_folder,
    publishing,
    released_path,
)
from .protocol import Charge, charged, release_entries
from .request import Request, RequestedLabel, Run
from .sealed_result import unsealed
from .signature import sign_release

# The mechanisms travel in the job graph. A log that changes between runs has one for each version.
_MOST_EARLIER = 8


class ReleasedLabel(NamedTuple):
    """One label as a job has made it, before it is charged and published, with its released and public facts."""

    label: RequestedLabel
    result: JobResult
    mechanism: MechanismFile
    facts: ReleasedFacts
    measured: Measured | None = None


def earlier_of_release(ledger: Ledger, release: Release) -> list[tuple[EarlierMechanism, ...]]:
    """Mechanisms of earlier releases of a request, for each label; none of `apply`, whose mechanism is given."""
    if release.fitted is not None:
        return [()]
    return [earlier_mechanisms(ledger, release.name, *placed) for placed in enumerate(release.folders)]


def read_results(run: Run, staging: Staging) -> list[ReleasedLabel]:
    """Reads what the job has written, and checks that both passes saw the same input and workers the same mechanisms.

    What a ridge explains of the true labels is measured on a sample of the shards. Raises NeverReleased if one of these
    checks fails, and InputError if a file is not that of this run, or a staged shard cannot be read.
    """
    request = run.request
    released = []
    for place, (label, folder) in enumerate(zip(request.labels, request.folders, strict=True)):
        path, mechanism_path = job_result_path(staging, place), released_path(staging.release, folder, MECHANISM_NAME)
        result = unsealed(path, read_text(path), read_text(mechanism_path), run.digest, request.key)
        released.append(released_label(request, label, result, read_mechanism_file(mechanism_path), staging))
    if request.command == "fit":
        return released
    labels, data = {each.label.name: each.mechanism for each in released}, FileSystems.join(staging.release, DATA_NAME)
    found = measured_shards(data, released[0].result.shards, labels, request.no_features)
    return [each._replace(measured=found[each.label.name]) for each in released]


def released_label(
    request: Request, label: RequestedLabel, result: JobResult, mechanism: MechanismFile, staging: Staging
) -> ReleasedLabel:
    """Checks the result of a label, and adds the facts of it for warnings and the verdict.

    Raises NeverReleased if the passes saw other labels or mechanisms, and InputError if a shard cannot be read.
    """
    result.check_same_input()
    result.check_same_mechanism(mechanism.drawing.fingerprint)
    for name in _stated_files(result):
        released_file(staging.release, name)
    binding, partitions = result.binding, [name for name, _ in request.partitions]
    data = FileSystems.join(staging.release, DATA_NAME)
    features = feature_columns(data, result.shards, request.columns, partitions)
    facts = released_facts(mechanism, binding.records, features, label.loss, binding.missing_centers)
    return ReleasedLabel(label, result, mechanism, facts)


def publish_release(
    request: Request,
    released: Sequence[ReleasedLabel],
    staging: Staging,
    key: SigningKey | None = None,
    *,
    validate: Callable[[], None] | None = None,
    announce: Callable[[], None] | None = None,
) -> None:
    """Writes the manifests, validates and signs what is staged, charges the ledger and publishes, in this order.

    It may be repeated after an error or a kill, at whatever point: the same charge costs nothing.

    Args:
      request: The request.
      released: Its labels, as they were made and checked.
      staging: Place of the files.
      key: The signing key; None for a release without a signature.
      validate: Validates the shards of a request that asks for it.
      announce: Tells of the release; called once it is published, before an interrupt can be reported as a failure.

    Raises:
      InputError: If a check fails, or a cap would be exceeded.
      StageError: If the target cannot be written, or another run has.
    """
    fit, manifests = request.command == "fit", ()
    if not (fit or staging.has_begun()):
        manifests = write_manifests(request, released, staging)
        delete_folder(FileSystems.join(staging.work, SEGMENTS_NAME))
        if request.validation is not None and validate is not None:
            validate()
        manifests = sign_release(staging, release_files(request, released), manifests, key)
    charge, target = charge_of(request, released), publishing(staging, request.target)
    with charged(Ledger(request.ledger), charge, request.caps, target):
        if fit:
            publish_file(staging, MECHANISM_NAME, request.target)
        else:
            publish_folder(staging, request.target, manifests)
        if announce is not None:
            announce()


def write_manifests(request: Request, released: Sequence[ReleasedLabel], staging: Staging) -> tuple[str, ...]:
    """Writes release.json into the staging folder, and center.json for a linear center; of several labels, for each.

    Returns the paths of the manifests below the release, the one that makes it a release last.
    """
    folders, documents = request.folders, []
    # The labels share their shards.
    output = output_statement(FileSystems.join(staging.release, DATA_NAME), released[0].result.shards)
    for each, folder in zip(released, folders, strict=True):
        document = _manifest(request, each, output)
        if folder:
            document["data"] = DATA_OF_LABEL
        write_document(document, staging, folder, MANIFEST_NAME)
        documents.append(document)
        model = each.mechanism.drawing.model
        if model is not None:
            path = released_path(staging.release, folder, CENTER_NAME)
            write_text(path, json.dumps(model.to_document()) + "\n", staging.work)
    if len(released) == 1:
        return (MANIFEST_NAME,)
    whole = labels_manifest(documents, folders, request.budget.epsilon)
    write_document(whole, staging, "", MANIFEST_NAME)
    return *(f"{folder}/{MANIFEST_NAME}" for folder in folders), MANIFEST_NAME


def release_files(request: Request, released: Sequence[ReleasedLabel]) -> set[str]:
    """Names of the files of a release below it, without its manifests."""
    files = {name for each in released for name in _stated_files(each.result)}
    for each, folder in zip(released, request.folders, strict=True):
        files.add(released_path("", folder, MECHANISM_NAME))
        if each.mechanism.drawing.model is not None:
            files.add(released_path("", folder, CENTER_NAME))
    if request.validation is not None:
        files |= {f"{VALIDATION_NAME}/{name}" for name in VALIDATION_FILES}
    return files


def _stated_files(result: JobResult) -> Iterator[str]:
    yield from (f"{DATA_NAME}/{name}" for name in result.shards)
    yield from result.dead_letters


def write_document(document: dict[str, Any], staging: Staging, folder: str, name: str) -> None:
    """Writes a manifest into the staging folder; `folder` is that of its label, of `label_folders`."""
    write_text(released_path(staging.release, folder, name), json.dumps(document, indent=2) + "\n", staging.work)


def _manifest(request: Request, released: ReleasedLabel, output: dict[str, Any]) -> dict[str, Any]:
    """The manifest of one label."""
    label, result, mechanism, facts, _ = released
    details: dict[str, Any] = {
        "label": label.name,
        "identity": label.id_column or BY_PLACE,
        **({} if request.table is None else {"table": request.table}),
        "where": request.where,
        **({"left_out": list(request.left_out)} if request.left_out else {}),
        "loss": facts.loss,
        "features": facts.features,
        "warnings": [warning.name for warning in release_warnings(facts)],
    }
    solved = mechanism.drawing.solved
    if solved and solved.choice is not None:
        details["choice"] = solved.choice
    if request.validation is not None:
        details["validation"] = request.validation
    details["output"] = output
    # A fitted mechanism costs all its parts, whatever was asked for when it was fitted.
    fitted = mechanism.total_epsilon(mechanism.labels_budget[0])
    epsilon = fitted if request.fitted else label.budget.epsilon
    return make_manifest(result, mechanism, epsilon, details)


def charge_of(request: Request, released: Sequence[ReleasedLabel]) -> Charge:
    """Charge of a job for all its labels, in one entry."""
    return Charge(
        request.command,
        request.name,
        ",".join(label.name for label in request.labels),
        request.unit,
        released[0].result.binding.records,
        ",".join(f"{each.result.binding.digest:064x}" for each in released),
        request.output,
        [
            entry
            for each in released
            for entry in release_entries(each.result.binding, each.mechanism, with_labels=request.command != "fit")
        ],
        ",".join(each.mechanism.drawing.fingerprint for each in released),
        # `apply` takes its mechanism from a file: another file is another release.
        solved=not request.fitted,
    )


def earlier_mechanisms(
    ledger: Ledger, request_name: str, place: int = 0, label_folder: str = ""
) -> tuple[EarlierMechanism, ...]:
    """Mechanisms of the earlier releases of a request, one for each of at most eight inputs, the latest first.

    A mechanism file that is missing, does not certify or does not have the fingerprint of the ledger is left out.

    Inputs are told apart by their digests. The name of the request binds the mechanism's name and its parameters.
    `place` is that of the label among those of the request, and `label_folder` is its folder in the release, of
    `label_folders`. Raises InputError if the ledger is corrupt.
    """
    found: dict[int, EarlierMechanism] = {}
    for run in reversed(ledger.runs()):
        if run["request"] != request_name or len(found) == _MOST_EARLIER:
            continue
        try:
            digest = int(run["input_digest"].split(",")[place], 16)
            if digest not in found:
                found[digest] = _read(run, digest, place, label_folder)
        except (InputError, BeamIOError, AttributeError, LookupError, TypeError, ValueError):
            continue
    return tuple(found.values())


def _read(run: dict[str, Any], digest: int, place: int, label_folder: str) -> EarlierMechanism:
    output = run["output"] if run["command"] == "fit" else released_path(run["output"], label_folder, MECHANISM_NAME)
    file = read_mechanism_file(output)
    if file.drawing.fingerprint != run["mechanism_fingerprint"].split(",")[place]:
        raise ValueError("this is another mechanism than the charged one")
    return EarlierMechanism(digest, file.drawing)
