"""Release that a claim file is about, audited and read from its documents, with what its ledger says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..audit.audit_release import audit_path
from ..pipelines.ledger.charged_runs import ChargedRun, largest_window, spent_by, unbounded_runs
from ..pipelines.ledger.spent_budget import SpentBudget, Window, total
from ..pipelines.spec.label_folders import DATA_OF_LABEL, MANIFEST_NAME, label_folders
from ..transforms.errors import InputError
from ..transforms.io.filesystems import read_text
from .claim_statements import ClaimedLabel, ClaimedRelease
from .report_input import ReportInput, read_report_input

# Relative; a ledger has decimals, of which sums differ from those of floats in their last digits.
_CLOSE = Fraction(1, 10**9)


@dataclass(frozen=True)
class ChargedRelease:
    """Statement of a ledger on a release.

    Attributes:
      runs: All runs of the ledger, in order.
      own: Those that made the release.
      of_labels: Other runs that released labels of the same columns.
      day: Day of the last run that made it, as YYYY-MM-DD; None if the ledger does not say.
      unit: Column of the privacy units; None for records.
    """

    runs: Sequence[ChargedRun]
    own: Sequence[ChargedRun]
    of_labels: Sequence[ChargedRun]
    day: str | None
    unit: str | None

    @property
    def spent(self) -> SpentBudget:
        """Sum over all distinct releases that are charged for the units of this one."""
        return total(spent_by(self.runs, self.runs, self.unit).values())

    def spent_within(self, window: Window | None) -> SpentBudget:
        """Largest sum within any window of this length; without one, that of all time."""
        return self.spent if window is None else largest_window(self.runs, window, self.unit)

    @property
    def unbounded(self) -> int:
        """Number of runs that are charged for records, or other units, and bound nothing for these units."""
        return len(unbounded_runs(self.runs, self.runs, self.unit))


@dataclass(frozen=True)
class Claimed:
    """Release with what its ledger says; None without a ledger."""

    release: ClaimedRelease
    charged: ChargedRelease | None


def read_claimed(path: str, ledger: str | None = None, name: str | None = None) -> Claimed:
    """Audits and reads the release that a claim is about.

    Args:
      path: Output folder, or its release.json, on this machine.
      ledger: Path or URL of the ledger that was charged; default the file beside the release.
      name: Name of the release in messages; default the path.

    Returns:
      The release and what its ledger says.

    Raises:
      InputError: If the release fails the audit or contradicts itself, or the ledger does not have it.
    """
    name, audit = name or path, audit_path(path)
    if audit.problems:
        raise InputError(f"{name} fails the audit; no claim is written: {'; '.join(audit.problems)}")
    if audit.total_epsilon is None:
        raise InputError(f"{name} is a mechanism file, which releases no labels: name an output folder")
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    document = json.loads(read_text(str(folder / MANIFEST_NAME)))
    if document.get("data") == DATA_OF_LABEL:
        raise InputError(f"{name} is one of several labels: name the release, whose epsilon holds for all of them")
    places = label_folders([label for label, _ in audit.parts]) if audit.parts else [""]
    parts = [read_report_input(str(folder / place), ledger, name, "claim") for place in places]
    labels = [_claimed_label(part) for part in parts]
    keys = ("epsilon", "certified_epsilon", "delta", "certified_delta", "adjacency")
    release = ClaimedRelease(labels, *(document.get(key, 0.0) for key in keys))
    return Claimed(release, _charged(release, parts[0].ledger, name))


def _claimed_label(part: ReportInput) -> ClaimedLabel:
    assert part.manifest is not None
    return ClaimedLabel(part.manifest, part.mechanism, part.audit, part.unit)


def _charged(release: ClaimedRelease, ledger: Sequence[Mapping[str, Any]], name: str) -> ChargedRelease | None:
    """Finds a release in its ledger; None for an empty ledger, or none."""
    if not ledger:
        return None
    digests = {label.manifest.input_digest for label in release.labels}
    drawn = {label.mechanism.drawn_by for label in release.labels}
    columns = {label.manifest.label for label in release.labels}
    unit = None if release.unit is None else release.unit.column
    runs = [ChargedRun.from_dict(dict(run)) for run in ledger]
    own, others, days = [], [], []
    for run, charged in zip(ledger, runs, strict=True):
        if _names(run, "input_digest") == digests and _names(run, "mechanism_fingerprint") == drawn:
            own.append(charged)
            days.append(str(run.get("time", ""))[:10])
        elif columns & _names(run, "label") and run.get("command") not in ("fit", "domain"):
            others.append(charged)
    found = ChargedRelease(runs, own, others, days[-1] if days and days[-1] else None, unit)
    if not own:
        raise InputError(f"the ledger of {name} has no charge of it: name the one that was charged with --ledger")
    if found.spent.epsilon < Fraction(release.certified_epsilon) * (1 - _CLOSE):
        raise InputError(f"the ledger of {name} adds up to less than the release spent: restore it from a backup")
    return found


def _names(run: Mapping[str, Any], key: str) -> set[str]:
    return set(str(run.get(key, "")).split(","))
