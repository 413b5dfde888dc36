"""Input of the report: a release or a mechanism file, audited, read and checked for contradictions.

It is read from mechanism.json, release.json, validation/ and the ledger; no shard and no input record is read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...mechanisms.analysis.verdict import release_warnings
from ...mechanisms.core.losses import LOSSES
from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from ..audit.audit_mechanism import Audit
from ..audit.audit_release import audit_path
from ..ledger.ledger import Ledger, default_ledger_path
from ..publish.facts_of_release import manifest_facts
from ..publish.manifest import ADJACENCY, UNIT_ADJACENCY, Manifest, read_manifest
from ..spec.label_folders import DATA_OF_LABEL, MANIFEST_NAME, several_labels
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile, read_mechanism_file
from .release_summary import UnitSummary, unit_summary
from .validation_summary import ValidationSummary, read_validation

# Relative; sums may differ in their last digits between versions of numpy.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ReportInput:
    """A release or a mechanism file that passed the audit and does not contradict itself.

    Attributes:
      name: Name of the folder or of the file.
      audit: The audit, without problems.
      mechanism: The mechanism file.
      manifest: The manifest; None where no labels were released.
      ledger: Runs in its ledger, in order; empty without a ledger.
      validation: Summary of validation/; None if the release was not validated.
      unit: Privacy unit; None for single records.
    """

    name: str
    audit: Audit
    mechanism: MechanismFile
    manifest: Manifest | None
    ledger: Sequence[dict[str, Any]]
    validation: ValidationSummary | None = None
    unit: UnitSummary | None = None


def read_report_input(path: str, ledger: str | None = None, name: str | None = None) -> ReportInput:
    """Reads and checks a release (output folder or release.json) or a mechanism file.

    `ledger` is the path or URL of the ledger that was charged, by default the file beside it; `name` is the name in
    messages, such as the URL that it is a copy of, by default the path. Raises InputError if the audit fails, files
    contradict each other, or one of them cannot be read.
    """
    audit = audit_path(path)
    if audit.problems:
        raise InputError(f"{name or path} fails the audit; no report is written: {'; '.join(audit.problems)}")
    if audit.parts:
        raise InputError(several_labels(name or path, [label for label, _ in audit.parts]))
    target = Path(path)
    released = target.is_dir() or audit.total_epsilon is not None
    folder = target if target.is_dir() else target.parent
    mechanism = read_mechanism_file(str(folder / MECHANISM_NAME if released else target))
    manifest = read_manifest(str(folder / MANIFEST_NAME)) if released else None
    document = json.loads(read_text(str(folder / MANIFEST_NAME))) if released else {}
    unit = unit_summary(mechanism, document.get("unit"))
    problems = contradictions(manifest, mechanism, 0 if unit is None else unit.constant_records) if manifest else []
    if mechanism.randomizer.fingerprint.hex() != audit.fingerprint:
        problems.append("the mechanism file changed while it was read")
    validation = read_validation(str(folder), manifest.label) if manifest and not problems else None
    if manifest and validation:
        read = manifest.records + manifest.records_without_label + (0 if unit is None else unit.beyond)
        written = manifest.records + (0 if unit is None else unit.constant_records)
        if (validation.before, validation.after) != (read, written):
            problems.append(f"validation/ counts other records than {MANIFEST_NAME}")
    if problems:
        raise InputError(f"{name or path} contradicts itself; no report is written: {'; '.join(problems)}")
    subject = os.path.abspath(folder if released else target)
    # The folder of one of several labels is in the release, which the ledger is beside.
    release = os.path.dirname(os.path.dirname(subject)) if document.get("data") == DATA_OF_LABEL else subject
    runs = Ledger(ledger or default_ledger_path(release)).runs()
    return ReportInput(os.path.basename(subject), audit, mechanism, manifest, runs, validation, unit)


def contradictions(manifest: Manifest, mechanism: MechanismFile, constant: int = 0) -> list[str]:
    """Compares a manifest with values recomputed from its mechanism, beyond the checks of the audit.

    A line for each contradiction. `constant` is the number of released records whose label says nothing.
    """
    randomizer, problems = mechanism.randomizer, []
    if manifest.mechanism != randomizer.mechanism:
        problems.append(f"{MANIFEST_NAME} names another mechanism")
    if manifest.adjacency != (ADJACENCY if mechanism.unit is None else UNIT_ADJACENCY):
        problems.append(f"{MANIFEST_NAME} states another adjacency")
    if manifest.delta != mechanism.labels_budget[1]:
        problems.append(f"{MANIFEST_NAME} states another delta")
    if manifest.domain != (mechanism.domain[0], mechanism.domain[-1], len(mechanism.domain)):
        problems.append(f"{MANIFEST_NAME} states another label domain")
    if manifest.center != (mechanism.center and mechanism.center.column):
        problems.append(f"{MANIFEST_NAME} states another center column")
    if not math.isclose(manifest.max_bias, randomizer.certificate().max_bias, rel_tol=_TOLERANCE):
        problems.append(f"{MANIFEST_NAME} states another max_bias")
    for name, loss in LOSSES.items():
        stated = manifest.expected_loss.get(name)
        if stated is not None and not _close(stated, randomizer.expected_loss(mechanism.prior, loss)):
            problems.append(f"{MANIFEST_NAME} states another expected {name} loss")
    names = tuple(warning.name for warning in release_warnings(manifest_facts(mechanism, manifest)))
    if manifest.warnings not in (None, names):
        problems.append(f"{MANIFEST_NAME} states other warnings")
    if sum(manifest.shards.values()) != manifest.records + constant:
        problems.append(f"the shards in {MANIFEST_NAME} do not add up to its records")
    return problems


def _close(stated: float, computed: float) -> bool:
    return math.isclose(stated, computed, rel_tol=_TOLERANCE, abs_tol=1e-300)
