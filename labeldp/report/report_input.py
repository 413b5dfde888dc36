"""Input of the report: a release or a mechanism file, audited, read and checked for contradictions.

It is read from the documents of a release and the ledger; of its validation, a few numbers for each column are kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labeldp import InputError

from ..audit.audit_mechanism import Audit
from ..audit.audit_release import audit_path
from ..pipelines.publish.released import Released, validation_statistics
from ..pipelines.spec.machine import check_extra

# Relative; sums of floats depend on the order of their terms.
_MEAN_TOLERANCE = 1e-6


@dataclass(frozen=True)
class ReportInput:
    """A release or a mechanism file that passed the audit and does not contradict itself.

    Attributes:
      released: The release; without a manifest where no labels were released.
      audit: The audit, without problems.
      ledger: Runs in its ledger, in order; empty without a ledger.
      validation: Summary of validation/; None if the release was not validated.
      measured: What a ridge explains of the true labels, measured on the shards; None where they cannot be read.
    """

    released: Released
    audit: Audit
    ledger: Sequence[dict[str, Any]]
    validation: ValidationSummary | None = None
    measured: Any = None


def read_report_input(
    path: str, ledger: str | None = None, name: str | None = None, purpose: str = "report"
) -> ReportInput:
    """Reads and checks a release (output folder or release.json) or a mechanism file.

    `ledger` is the path or URL of the ledger that was charged, by default the file beside it; `name` is the name in
    messages, such as the URL that it is a copy of, by default the path; `purpose` is what is not written then. Raises
    InputError if the audit fails, files contradict each other, or one of them cannot be read.
    """
    audit = audit_path(path)
    if audit.problems:
        raise InputError(f"{name or path} fails the audit; no {purpose} is written: {'; '.join(audit.problems)}")
    released = Released.open(path, name)
    manifest, unit = released.manifest, released.unit
    problems = released.contradictions() if manifest else []
    if released.mechanism.drawing.fingerprint != audit.fingerprint:
        problems.append("the mechanism file changed while it was read")
    validation = read_validation(str(released.path), manifest.label) if manifest and not problems else None
    if manifest and validation:
        # The records were summarized before any was removed.
        counted = manifest.records + manifest.removed
        read = counted + manifest.records_without_label + (0 if unit is None else unit.beyond)
        if (validation.before, validation.after) != (read, counted):
            problems.append("validation/ counts other records than release.json")
    if problems:
        raise InputError(f"{name or path} contradicts itself; no {purpose} is written: {'; '.join(problems)}")
    measured = released.measured() if purpose == "report" and manifest is not None else None
    return ReportInput(released, audit, released.runs(ledger), validation, measured)


@dataclass(frozen=True)
class Column:
    """Statistics of a column of the released records.

    The kind is integer, float or text. `present` and `missing` count the records with and without a value; `unchanged`
    says whether the input has the same statistics, `added` whether it has no such column. Minimum, mean and maximum are
    None for text, the number of distinct values for numbers.
    """

    name: str
    kind: str
    present: int
    missing: int
    unchanged: bool
    low: float | None = None
    mean: float | None = None
    high: float | None = None
    distinct: int | None = None
    added: bool = False


@dataclass(frozen=True)
class ValidationSummary:
    """Statistics of a validated release.

    Records are counted as read (`before`) and as released (`after`); features are the columns other than the label, by
    name.
    """

    before: int
    after: int
    features: list[Column]
    label: Column


def read_validation(release: str, label: str) -> ValidationSummary | None:
    """Reads the validation/ folder of a release; None if the release was not validated.

    Needs the extra `validation` if there is one: UsageError is raised if it is not installed, InputError if a file is
    missing, corrupt, of another release, or reports anomalies.
    """
    folder = os.path.join(release, "validation")
    if not os.path.isdir(folder):
        return None
    check_extra(f"reading {folder}", "validation", "tensorflow_metadata")
    before, after = validation_statistics(folder)
    inputs = {_name(feature): feature for feature in before.features}
    columns = {_name(feature): _column(feature, inputs.get(_name(feature)), after) for feature in after.features}
    if label not in columns or label in inputs or inputs.keys() - columns.keys():
        raise InputError(f"{folder}: feature_stats.pb and output_stats.pb are statistics of different releases")
    privatized = columns.pop(label)
    features = [columns[name] for name in sorted(columns)]
    return ValidationSummary(int(before.num_examples), int(after.num_examples), features, privatized)


def _name(feature: Any) -> str:
    return ".".join(feature.path.step) or feature.name


def _column(feature: Any, before: Any, dataset: Any) -> Column:
    values: dict[str, Any]
    if feature.HasField("num_stats"):
        stats = feature.num_stats
        # TFDV's enumeration of types begins with int64.
        kind, values = "float" if feature.type else "integer", {"low": stats.min, "mean": stats.mean, "high": stats.max}
    else:
        stats = feature.string_stats
        kind, values = "text", {"distinct": int(stats.unique)}
    present = int(stats.common_stats.num_non_missing)
    unchanged = before is not None and _same(before, feature)
    missing = int(dataset.num_examples) - present
    return Column(_name(feature), kind, present, missing, unchanged, **values, added=before is None)


def _same(one: Any, other: Any) -> bool:
    if (one.type, one.WhichOneof("stats")) != (other.type, other.WhichOneof("stats")):
        return False
    if one.HasField("num_stats"):
        first, second = one.num_stats, other.num_stats
        exact = (first.min, first.max, first.num_zeros) == (second.min, second.max, second.num_zeros) and all(
            math.isclose(getattr(first, name), getattr(second, name), rel_tol=_MEAN_TOLERANCE, abs_tol=1e-300)
            for name in ("mean", "std_dev")
        )
    else:
        first, second = one.string_stats, other.string_stats
        exact = first.unique == second.unique and list(first.top_values) == list(second.top_values)
    counts = [(s.common_stats.num_non_missing, s.common_stats.tot_num_values) for s in (first, second)]
    return exact and counts[0] == counts[1]
