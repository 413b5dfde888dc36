"""Statements of a claim file that follow from a release and its ledger, field by field of the registry of deployments.

Texts are markdown, as the registry shows them. Names that a user or a file chose are code spans, so that none of them
is read as markup.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..audit.audit_mechanism import Audit
from ..audit.audit_release import audit_path
from ..mechanisms.analysis.verdict import debiasing, release_warnings, verdict
from ..mechanisms.core.budget import round_up
from ..mechanisms.core.integer_weights import BITS
from ..pipelines.cli.text_format import upper_bound
from ..pipelines.errors import one_line
from ..pipelines.ledger.charged_runs import ChargedRun, spent_by, unbounded_runs
from ..pipelines.ledger.spent_budget import SpentBudget, total
from ..pipelines.publish.manifest import Manifest, losses_of, manifest_facts
from ..pipelines.spec.label_folders import DATA_OF_LABEL, MANIFEST_NAME, label_folders
from ..pipelines.spec.mechanism_file import MechanismFile
from ..transforms.errors import InputError
from ..transforms.io.filesystems import read_text
from .release_summary import UnitSummary
from .report_input import read_report_input

LEDGER = "deployment_model.release_type_details"
_POINTS = [
    (field, *line.groups())
    for field, lines in re.findall(
        r"^\[(\S+)\]\n((?:[=*-] .*\n)+)", Path(__file__).with_name("claim_points.txt").read_text("utf-8"), re.MULTILINE
    )
    for line in re.finditer(r"^([=*-]) (?:\((\w+)\) )?(.*)$", lines, re.MULTILINE)
]
_MOST_CLASSES, _MOST_FEATURES, _MOST_NAME = 20, 60, 200
# Above, the factor e^epsilon says no more than that there is no bound.
_MOST_ODDS = 30
# Relative; a ledger has decimals, of which sums differ from those of floats in their last digits.
_CLOSE = Fraction(1, 10**9)


class ClaimedLabel(NamedTuple):
    """One label of a release that passed the audit."""

    manifest: Manifest
    file: MechanismFile
    audit: Audit
    unit: UnitSummary | None


@dataclass(frozen=True)
class Claimed:
    """Release that a claim is about, which passed the audit: its labels, and its manifest as a whole, the budget.

    Of its ledger it has all runs, those of other releases of the same labels, and the day of the last that made it.
    """

    labels: Sequence[ClaimedLabel]
    budget: Mapping[str, Any]
    runs: Sequence[ChargedRun]
    of_labels: Sequence[ChargedRun]
    day: str | None

    @property
    def unit(self) -> UnitSummary | None:
        """Privacy unit; None for single records."""
        return self.labels[0].unit

    @property
    def _column(self) -> str | None:
        return None if self.unit is None else self.unit.column

    @property
    def per(self) -> str:
        """Whom epsilon is for."""
        return "one record" if self.unit is None else f"one value of {_code(self.unit.column)}"

    @property
    def spent(self) -> SpentBudget:
        """Sum over all releases that are charged for the units of this one."""
        return total(spent_by(self.runs, self.runs, self._column).values())

    @property
    def unbounded(self) -> int:
        """Number of runs that are charged for records, or other units, and bound nothing for these units."""
        return len(unbounded_runs(self.runs, self.runs, self._column))


def read_claimed(path: str, ledger: str | None = None, name: str | None = None) -> Claimed:
    """Audits and reads the release that a claim is about: an output folder, or its release.json, on this machine.

    `ledger` is the path or URL of the ledger that was charged, by default the file beside the release; `name` is the
    name of the release in messages, by default the path. Raises InputError if the release fails the audit or
    contradicts itself, or the ledger does not have it.
    """
    name, audit = name or path, audit_path(path)
    if audit.problems:
        raise InputError(f"{name} fails the audit; no claim is written: {'; '.join(audit.problems)}")
    if audit.total_epsilon is None:
        raise InputError(f"{name} is a mechanism file, which releases no labels: name an output folder")
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    budget = json.loads(read_text(str(folder / MANIFEST_NAME)))
    if budget.get("data") == DATA_OF_LABEL:
        raise InputError(f"{name} is one of several labels: name the release, whose epsilon holds for all of them")
    places = label_folders([label for label, _ in audit.parts]) if audit.parts else [""]
    parts = [read_report_input(str(folder / place), ledger, name, "claim") for place in places]
    labels = [ClaimedLabel(part.manifest, part.mechanism, part.audit, part.unit) for part in parts if part.manifest]
    digests, drawn = {label.manifest.input_digest for label in labels}, {label.file.drawn_by for label in labels}
    runs, own, others, days = [ChargedRun.from_dict(dict(run)) for run in parts[0].ledger], 0, [], [""]
    for run, charged in zip(parts[0].ledger, runs, strict=True):
        named = {key: {*str(run.get(key, "")).split(",")} for key in ("input_digest", "mechanism_fingerprint", "label")}
        if named["input_digest"] == digests and named["mechanism_fingerprint"] == drawn:
            own += 1
            days.append(str(run.get("time", ""))[:10])
        elif {each.manifest.label for each in labels} & named["label"] and run.get("command") not in ("fit", "domain"):
            others.append(charged)
    found = Claimed(labels, budget, runs, others, days[-1] or None)
    if runs and not own:
        raise InputError(f"the ledger of {name} has no charge of it: name the one that was charged with --ledger")
    if runs and found.spent.epsilon < Fraction(budget["certified_epsilon"]) * (1 - _CLOSE):
        raise InputError(f"the ledger of {name} adds up to less than the release spent: restore it from a backup")
    return found


def statements(claimed: Claimed) -> dict[str, Any]:
    """States a release: value by field of the registry, as group.field below `deployment`.

    A list of points may be continued by the deployer; any other value is the whole field.
    """
    whole, each = _of_release(claimed), [_of_label(label) for label in claimed.labels]
    points: dict[str, list[str]] = {}
    for (field, kind), lines in groupby(_POINTS, lambda point: point[:2]):
        texts = [(needed, ("" if kind == "=" else "- ") + text) for _, _, needed, text in lines]
        points.setdefault(field, []).extend(
            text.format_map(values)
            for values in (each if kind == "*" else [whole])
            for needed, text in texts
            if not needed or values[needed]
        )
    keys = ("epsilon", "delta") if claimed.budget.get("delta") else ("epsilon",)
    return {
        "privacy_loss.number_of_privacy_units": whole["records"] if claimed.unit is None else claimed.unit.units,
        "privacy_loss.privacy_parameters": {key: claimed.budget[key] for key in keys},
        "administrative.tier": 3,
        **{field: "\n".join(lines) for field, lines in points.items()},
    }


def _code(name: str) -> str:
    """Code span of markdown with a name that anybody may have chosen."""
    text = one_line(name)
    text = text if len(text) <= _MOST_NAME else text[: _MOST_NAME - 3] + "..."
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _codes(names: Sequence[str], most: int) -> str:
    return ", ".join(map(_code, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _of_release(claimed: Claimed) -> dict[str, Any]:
    """Values of points about the release."""
    manifest, unit, budget, runs = claimed.labels[0].manifest, claimed.unit, claimed.budget, len(claimed.runs)
    missing, epsilon, spent = manifest.missing, budget["epsilon"], claimed.spent
    delta = budget.get("delta")
    without = f"Which records have no usable label: {manifest.records_without_label:,} were left out for that"
    return {
        "variant": "Approximate DP" if delta else "Pure DP",
        "fixed": f"Features{', and which records have a label,' if missing is None else ''} are fixed",
        "missing": missing if missing is None else _code(missing if isinstance(missing, str) else f"{missing:g}"),
        "columns": "" if manifest.features is None else f", {manifest.features:,} columns",
        # Removed ones included.
        "records": manifest.records + manifest.removed,
        "removed": manifest.removed,
        "identity": _code(manifest.identity),
        "unlabelled": without if missing is None else "Which of them had a label is protected as the label is",
        "where": manifest.where and _code(manifest.where),
        "unit": unit,
        "per": claimed.per,
        "whose": f"Label{'s' * (len(claimed.labels) > 1)} of one record"
        if unit is None
        else f"All labels of {claimed.per}",
        "adjacency": budget["adjacency"][:1].upper() + budget["adjacency"][1:],
        "labels": ", ".join(_code(label.manifest.label) for label in claimed.labels),
        "several": len(claimed.labels) > 1,
        "certified": _spent(budget["certified_epsilon"], delta and budget["certified_delta"]),
        "of_record": round_up(sum((Fraction(part) for each in claimed.labels for part in _parts(each)), Fraction(0))),
        "odds": epsilon <= _MOST_ODDS and upper_bound(math.exp(epsilon)),
        "rare": ", except with a probability of the order of delta" if delta else "",
        "no_ledger": not runs,
        "runs": runs and f"{runs:,} {'run' if runs == 1 else 'runs'}",
        "spent": _spent(float(spent.epsilon), float(spent.delta)),
        "unbounded": claimed.unbounded,
        "versions": ", ".join(f"{_code(name)} {_code(version)}" for name, version in manifest.versions.items()),
        "bits": BITS,
    }


def _spent(epsilon: float, delta: float | None) -> str:
    return f"epsilon {epsilon!r} and delta {delta!r}" if delta else f"epsilon {epsilon!r}"


def _parts(label: ClaimedLabel) -> tuple[float, float, float]:
    """Epsilons of one record: of its center, histogram and randomized label."""
    return label.file.center_epsilon, label.file.prior_epsilon, label.audit.certified_epsilon


def _of_label(label: ClaimedLabel) -> dict[str, Any]:
    """Values of points about a label."""
    manifest, file, audit, unit = label
    name, classes, center, solved = _code(manifest.label), file.classes, file.center, file.solved
    each, most = ("", 1) if unit is None else (" for each record", unit.max_records)
    facts, stated = manifest_facts(file, manifest), manifest.expected_loss
    times = f", times the {most:,} records of a unit" if most > 1 else ""
    noised = (f"{name}: {part.noise} on {part.what} (epsilon {part.epsilon!r}{each})." for part in file.parts)
    # Other names in a manifest are those of anybody, and no contradiction of it would be found.
    losses = (f"{loss} {stated[loss]!r}" for loss in losses_of(file) if stated.get(loss) is not None)
    return {
        "name": name,
        "manifest": manifest,
        "numbers": classes is None,
        "classes": classes and f"{len(classes):,} classes, {_codes(classes.values, _MOST_CLASSES)}",
        "other": classes and _code(classes.values[classes.other]),
        "column": center and center.linear is None and _code(center.column),
        "public_prior": not file.parts,
        "nearest": "to the nearest" if file.rounding == "nearest" else "at random to one",
        "model": file.made_center and (_codes(file.made_center.map.columns, _MOST_FEATURES) or "none"),
        "chosen": solved is not None and solved.choice is not None,
        "declared": file.declared and file.declared.labels,
        "parts": "\n- ".join(noised),
        "drawn": file.draws_classes and _code(str(file.center_column)),
        "replaced": solved and ("residual" if center else "label"),
        "randomizer": solved,
        "table": solved and f"{len(solved.labels):,} inputs to {len(solved.outputs):,} outputs",
        "certified": _spent(audit.certified_epsilon, audit.certified_delta),
        "each": each,
        "sum": " + ".join(repr(part) for part in _parts(label) if part) + times,
        "center": center and _code(center.column),
        "solved": center is None and file.prior_epsilon,
        "verdict": verdict(facts),
        "losses": ", ".join(losses),
        "debiasing": debiasing(facts),
        "warnings": "\n- ".join(f"{name}: warning: {warning.text}." for warning in release_warnings(facts)),
        "fingerprint": _code(file.drawn_by),
        "digest": _code(manifest.input_digest),
    }
