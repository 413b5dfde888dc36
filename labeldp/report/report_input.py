"""Input of the report: a release or a mechanism file, audited, read and checked for contradictions.

It is read from mechanism.json, release.json, validation/ and the ledger; no shard and no input record is read. Of
validation/, a few numbers for each column are kept.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..audit.audit_mechanism import Audit
from ..audit.audit_release import audit_path
from ..mechanisms.analysis.explained import Measured
from ..mechanisms.analysis.release_warnings import release_warnings
from ..mechanisms.core.losses import LOSSES
from ..pipelines.ledger.ledger import Ledger, default_ledger_path
from ..pipelines.publish.manifest import Manifest, adjacency, losses_of, manifest_facts, read_manifest
from ..pipelines.publish.measured_release import measured_shards
from ..pipelines.publish.output_folder import DATA_NAME
from ..pipelines.spec.label_folders import (
    ANOMALIES_NAME,
    DATA_OF_LABEL,
    FEATURE_STATISTICS_NAME,
    MANIFEST_NAME,
    OUTPUT_STATISTICS_NAME,
    VALIDATION_NAME,
    several_labels,
)
from ..pipelines.spec.machine import check_extra
from ..pipelines.spec.mechanism_file import MECHANISM_NAME, MechanismFile, read_mechanism_file
from ..transforms.errors import InputError
from ..transforms.io.filesystems import FileSystems, is_remote, read_text
from ..transforms.validation.tensorflow_libraries import describe_anomalies, parse_statistics
from .release_summary import UnitSummary, unit_summary

# Relative; sums may differ in their last digits between versions of numpy.
_TOLERANCE = 1e-9

# Relative; sums of floats depend on the order of their terms.
_MEAN_TOLERANCE = 1e-6


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
      measured: What a ridge explains of the true labels, measured on the shards; None where they cannot be read.
    """

    name: str
    audit: Audit
    mechanism: MechanismFile
    manifest: Manifest | None
    ledger: Sequence[dict[str, Any]]
    validation: ValidationSummary | None = None
    unit: UnitSummary | None = None
    measured: Measured | None = None


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
    if audit.parts:
        raise InputError(several_labels(name or path, [label for label, _ in audit.parts]))
    target = Path(path)
    released = target.is_dir() or audit.total_epsilon is not None
    folder = target if target.is_dir() else target.parent
    mechanism = read_mechanism_file(str(folder / MECHANISM_NAME if released else target))
    manifest = read_manifest(str(folder / MANIFEST_NAME)) if released else None
    document = json.loads(read_text(str(folder / MANIFEST_NAME))) if released else {}
    unit = unit_summary(mechanism, document.get("unit"))
    problems = contradictions(manifest, mechanism) if manifest else []
    if mechanism.drawing.fingerprint != audit.fingerprint:
        problems.append("the mechanism file changed while it was read")
    validation = read_validation(str(folder), manifest.label) if manifest and not problems else None
    if manifest and validation:
        # The records were summarized before any was removed.
        counted = manifest.records + manifest.removed
        read = counted + manifest.records_without_label + (0 if unit is None else unit.beyond)
        if (validation.before, validation.after) != (read, counted):
            problems.append(f"validation/ counts other records than {MANIFEST_NAME}")
    if problems:
        raise InputError(f"{name or path} contradicts itself; no {purpose} is written: {'; '.join(problems)}")
    subject = os.path.abspath(folder if released else target)
    # The folder of one of several labels is in the release, which the ledger is beside.
    release = os.path.dirname(os.path.dirname(subject)) if document.get("data") == DATA_OF_LABEL else subject
    runs = Ledger(ledger or default_ledger_path(release)).runs()
    measured = None
    if purpose == "report" and manifest is not None:
        base = name if name is not None and is_remote(name) else str(folder)
        measured = _measured(base, document, release if release != subject else None, manifest, mechanism)
    return ReportInput(os.path.basename(subject), audit, mechanism, manifest, runs, validation, unit, measured)


def _measured(
    base: str, document: dict[str, Any], above: str | None, manifest: Manifest, mechanism: MechanismFile
) -> Measured | None:
    """Measures what features explain of a label; None if the shards cannot be read, as of a file that was copied alone.

    `above` is the release that a label is one of several of.
    """
    documents = [document]
    try:
        if above is not None:
            parts = json.loads(read_text(os.path.join(above, MANIFEST_NAME)))["labels"]
            documents += [json.loads(read_text(os.path.join(above, part["folder"], MANIFEST_NAME))) for part in parts]
        data = FileSystems.join(base, document.get("data", DATA_NAME))
        others = {name for each in documents for name in _no_features(each)}
        return measured_shards(data, manifest.shards, {manifest.label: mechanism}, others)[manifest.label]
    except (InputError, LookupError, TypeError, ValueError):
        return None


def _no_features(document: dict[str, Any]) -> list[str]:
    """Label, id, unit and center of a manifest."""
    center = document.get("center", document.get("class_center", {}))
    return [document["label"], document["identity"], center.get("column"), document.get("unit", {}).get("column")]


def contradictions(manifest: Manifest, mechanism: MechanismFile) -> list[str]:
    """Compares a manifest with values recomputed from its mechanism, beyond the checks of the audit.

    A line for each contradiction.
    """
    randomizer, problems = mechanism.drawing.solved, []
    if manifest.mechanism != (None if randomizer is None else randomizer.mechanism):
        problems.append(f"{MANIFEST_NAME} names another mechanism")
    if manifest.adjacency != adjacency(mechanism.unit is not None, manifest.missing is not None):
        problems.append(f"{MANIFEST_NAME} states another adjacency")
    if mechanism.counted_labels and manifest.missing != mechanism.missing_label:
        problems.append(f"{MANIFEST_NAME} states another missing_label")
    if manifest.delta != mechanism.labels_budget[1]:
        problems.append(f"{MANIFEST_NAME} states another delta")
    if manifest.domain != (mechanism.domain[0], mechanism.domain[-1], len(mechanism.domain)):
        problems.append(f"{MANIFEST_NAME} states another label domain")
    if manifest.center != (mechanism.drawing.column if randomizer else None):
        problems.append(f"{MANIFEST_NAME} states another center column")
    bias = 0.0 if mechanism.classes is not None else mechanism.randomizer.certificate().max_bias
    if not math.isclose(manifest.max_bias, bias, rel_tol=_TOLERANCE):
        problems.append(f"{MANIFEST_NAME} states another max_bias")
    losses = {} if randomizer is None else LOSSES if mechanism.classes is None else losses_of(mechanism)
    for name, loss in losses.items():
        stated = manifest.expected_loss.get(name)
        if stated is not None and not _close(stated, mechanism.randomizer.expected_loss(mechanism.prior, loss)):
            problems.append(f"{MANIFEST_NAME} states another expected {name} loss")
    before = dataclasses.replace(manifest, records=manifest.records + manifest.removed)
    names = tuple(warning.name for warning in release_warnings(manifest_facts(mechanism, before)))
    if manifest.warnings != names:
        problems.append(f"{MANIFEST_NAME} states other warnings")
    if sum(manifest.shards.values()) != manifest.records:
        problems.append(f"the shards in {MANIFEST_NAME} do not add up to its records")
    return problems


def _close(stated: float, computed: float) -> bool:
    return math.isclose(stated, computed, rel_tol=_TOLERANCE, abs_tol=1e-300)


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
    folder = os.path.join(release, VALIDATION_NAME)
    if not os.path.isdir(folder):
        return None
    check_extra(f"reading {folder}", "validation", "tensorflow_metadata")
    found = _read_anomalies(os.path.join(folder, ANOMALIES_NAME))
    if found:
        raise InputError(f"{folder} has anomalies: {'; '.join(found[:3])}")
    before = _read_statistics(os.path.join(folder, FEATURE_STATISTICS_NAME))
    after = _read_statistics(os.path.join(folder, OUTPUT_STATISTICS_NAME))
    inputs = {_name(feature): feature for feature in before.features}
    columns = {_name(feature): _column(feature, inputs.get(_name(feature)), after) for feature in after.features}
    if label not in columns or label in inputs or inputs.keys() - columns.keys():
        raise InputError(
            f"{folder}: {FEATURE_STATISTICS_NAME} and {OUTPUT_STATISTICS_NAME} are statistics of different releases"
        )
    privatized = columns.pop(label)
    features = [columns[name] for name in sorted(columns)]
    return ValidationSummary(int(before.num_examples), int(after.num_examples), features, privatized)


def _read_anomalies(path: str) -> list[str]:
    try:
        return describe_anomalies(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _read_statistics(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            (dataset,) = parse_statistics(file.read()).datasets
    except OSError:
        raise InputError(f"{path} cannot be read: check the path") from None
    except ValueError:
        raise InputError(f"{path} does not hold the statistics of one dataset") from None
    return dataset


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
