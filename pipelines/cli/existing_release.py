"""`--if_exists verify`: a request whose release is there already, as a scheduler's retry after success finds it.

The ledger tells that the release in the output is of this very request, and with which mechanism; the audit tells that
it holds. The input is not read: to release changed records, name another output.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from labeldp.audit.audit_mechanism import Audit
from labeldp.audit.audit_release import audit_path
from labeldp.audit.signature_audit import Signer

from ...mechanisms.analysis.explained import Measured
from ...mechanisms.analysis.release_warnings import measured_warnings, release_warnings
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.analysis.verdict import verdict
from ...mechanisms.core.budget import round_up
from ...mechanisms.release.drawing import DRAWN_BY_CENTER
from ...transforms.errors import InputError, StoreError
from ...transforms.io.filesystems import FileSystems, exists, is_remote
from ...transforms.stores.object_store import is_store
from ..errors import FieldError
from ..ledger.ledger import Ledger
from ..publish.measured_release import measured_shards
from ..publish.release_steps import ReleasedLabel
from ..publish.released import Released
from ..publish.request import Request, Run
from ..spec.label_folders import DATA_NAME, MANIFEST_NAME
from ..spec.machine import check_can_create
from ..spec.release import Release
from ..spec.signing_key import SigningKey
from ..spec.written_files import RESULT, remove_earlier, write_file
from .store_copies import fetch


def is_released(release: Release) -> bool:
    """Tells whether the output of a request is a release, or for `fit` a mechanism file."""
    target = release.output.target
    return exists(target if release.command == "fit" else FileSystems.join(target, MANIFEST_NAME))


@dataclass(frozen=True)
class RunResult:
    """Result of a run for a scheduler: released and public facts alone.

    Attributes:
      output: Output folder, or mechanism file of `fit`.
      verified: Whether the release was there already.
      epsilon, certified_epsilon: Budget of all labels of a record or unit, and what was spent of it.
      delta: Delta of the budget.
      records, records_without_label: Numbers of released records, and of those that were left out.
      labels: Warnings and verdict of each label.
      seconds: Duration of the run.
    """

    output: str
    verified: bool
    epsilon: float
    certified_epsilon: float
    delta: float
    records: int
    records_without_label: int
    labels: dict[str, dict[str, Any]]
    seconds: float = 0.0

    @classmethod
    def of_run(cls, run: Run, released: Sequence[ReleasedLabel], seconds: float) -> RunResult:
        """Result of a job that was published just now."""
        request, binding, files = run.request, released[0].result.binding, [each.mechanism for each in released]
        certified = sum((Fraction(file.total_epsilon(file.labels_certified[0])) for file in files), Fraction(0))
        labels = {each.label.name: _of_label(each.facts, request.command, each.measured) for each in released}
        return cls(
            request.output, False, request.budget.epsilon, round_up(certified), request.budget.delta,
            binding.records, binding.unusable,
            labels, seconds,
        )  # fmt: skip

    def write(self, path: str) -> None:
        """Writes the result as one JSON object, in one step. Raises InputError if the file cannot be written."""
        try:
            text = json.dumps({"format": RESULT, **asdict(self)}, allow_nan=False)
            write_file(path, f"{text}\n", RESULT, "--result_json")
        except OSError as error:
            raise InputError(f"--result_json {path} cannot be written: {error.strerror}") from None


def check_result(path: str) -> None:
    """Checks that a result can be written, and removes that of an earlier run. Raises FieldError if not."""
    if os.path.isdir(path):
        raise FieldError("{result_json} {path} is a folder: name a file", path=path)
    check_can_create("result_json", path)
    remove_earlier("--result_json", path, RESULT)


def _of_label(facts: ReleasedFacts, command: str, measured: Measured | None = None) -> dict[str, Any]:
    """Mechanism and verdict of a label; of `fit`, which releases none yet, the mechanism alone."""
    name = DRAWN_BY_CENTER if facts.drawn_from_center else facts.randomizer.mechanism
    if command == "fit":
        return {"mechanism": name}
    found = verdict(facts, measured)
    return {
        "mechanism": name,
        "warnings": [warning.name for warning in (*release_warnings(facts), *measured_warnings(measured))],
        "verdict": {"level": found.level, "text": found.line},
    }


def verify_existing(release: Release) -> RunResult:
    """Checks that the output holds the release of this request.

    If the request is to be signed, the release must be signed by its key, too. Raises InputError if the ledger has no
    run of this request with this output, or the audit of what is there fails.
    """
    target = release.output.target
    runs = [run for run in Ledger(release.ledger).runs() if run["request"] == release.name]
    of_output = [run for run in runs if run.get("output") == target]
    if not of_output:
        raise InputError(
            f"{target} exists, but ledger {release.ledger} has no run of this request with this output: name another "
            "output, or the ledger of that run"
        )
    key = None if release.sign is None else release.sign.load()
    with audited_release(target, signer_of(key)) as (path, audit):
        if audit.problems:
            raise InputError(f"{target} exists, but its audit fails: {'; '.join(audit.problems)}")
        fit = release.command == "fit"
        found = [Released.open(str(place)) for place in ([path] if fit else map(path.joinpath, release.folders))]
        files = [each.mechanism for each in found]
        if ",".join(file.drawing.fingerprint for file in files) != of_output[-1].get("mechanism_fingerprint"):
            raise InputError(f"{target} exists, but its mechanism is not the one that the ledger has: name another")
        first = found[0].manifest
        if any(each.manifest and each.manifest.left_out != release.output.left_out for each in found):
            raise InputError(f"{target} exists, but was released with another --leave_out: name another output")
        names = [label.name for label in release.labels]
        measured = {} if first is None else measured_shards(
            FileSystems.join(target, DATA_NAME), first.shards, dict(zip(names, files, strict=True)),
            Request.of(release).no_features,
        )  # fmt: skip
    certified = sum((Fraction(file.total_epsilon(file.labels_certified[0])) for file in files), Fraction(0))
    budget = release.budget
    return RunResult(
        target, True, budget.epsilon, round_up(certified), budget.delta,
        of_output[-1]["records"], 0 if first is None else first.records_without_label,
        {name: _of_label(each.facts, release.command, measured.get(name))
         for name, each in zip(names, found, strict=True)},
    )  # fmt: skip


def signer_of(key: SigningKey | None) -> Signer | None:
    """Signer whose key this is; None without one."""
    return None if key is None else Signer(key.fingerprint)


@contextlib.contextmanager
def audited_release(target: str, signer: Signer | None = None) -> Iterator[tuple[Path, Audit]]:
    """The release as local files, of one on an object store its documents, and its audit.

    With a signer, the audit checks the signature by it, and so every file of the release.
    """
    if not is_remote(target):
        yield Path(target), audit_path(target, signer=signer)
        return
    if not is_store(target):
        raise InputError(f"{target} exists: --if_exists verify reads local paths, s3:// and gs://")
    with tempfile.TemporaryDirectory(prefix="labeldp-") as folder:
        digests: dict[str, tuple[int, str]] | None = None if signer is None else {}
        try:
            path = fetch(target, "--output", False, Path(folder), digests)
        except StoreError as error:
            raise InputError(f"{target} cannot be read: {error.reason}") from None
        yield path, audit_path(str(path), signer=signer, files=digests)
