"""Checks of release.json: against the mechanism file and itself; of several labels, against that of each label.

Manifests have `release.` before each key, but for the functions of several labels. The checks yield one line for each
that fails. All functions raise RefusedDocument if a member is missing or has the wrong type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .audit_mechanism import Audit
from .center_audit import read_linear_center
from .class_audit import class_statement_problems, class_warning_degrees
from .class_center_audit import stated_center_problems, stated_epsilon
from .class_center_document import read_class_center
from .documents import (
    RefusedDocument,
    load_document,
    printable,
    public_domain,
    read_center,
    read_count,
    read_floats,
    read_member,
    read_nonnegative,
    records_per_unit,
)
from .weight_runs import mean_squared_error

ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record; "
    "features, the number of records and which records have a label are public"
)

UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, which are those with one value of the unit column; features, units, the number of records and which "
    "records have a label are public"
)
MISSING_ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record, or in whether it "
    "has one; features and the number of records are public"
)
MISSING_UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, which are those with one value of the unit column, or in which of them have one; features, units and "
    "the number of records are public"
)

# Warnings are decided in floating point; so close to a threshold, relatively, a manifest may state them or not.
_CLOSE = 1e-6
# Two sums that are rounded up are above the exact one by less than this factor.
_ROUNDED_TWICE = 1 + Fraction(1, 1 << 50)
# Thresholds of the warnings, as docs/guides/release.md states them.
_END_SHARE, _END_MARGINS = 0.1, ((0.25, 34, 20), (0.6, 39, 5))
_LABEL_ERROR, _MODEL_NOISE, _CENTER_RANGE, _MISSING_CENTERS = 0.9, 0.5, 0.5, 0.05
_DIGEST = re.compile(r"[0-9a-f]{64}")

LABELS_FORMAT = "labeldp-labels-1"
LABEL_DATA = "../../data"
"""The shards, as the manifest of one label names them."""
LABELS_ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the labels of one record, in any of the "
    "label columns; features, the number of records and which records have all labels are public"
)
LABELS_UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, in any of the label columns; the records of a unit are those with one value of the unit column; "
    "features, units, the number of records and which records have all labels are public"
)

_SHARED = ("identity", "table", "where", "records", "records_without_label", "output", "shards", "removals", "versions")
_OF_LABEL = ("epsilon", "certified_epsilon", "delta", "certified_delta", "mechanism", "mechanism_fingerprint")


def budget_problems(release: dict[str, Any], mechanism: dict[str, Any], audit: Audit) -> Iterator[str]:
    """Compares the epsilons and deltas of a manifest with each other and with the mechanism file."""
    total = read_nonnegative(release, "release.epsilon")
    certified, center = read_nonnegative(release, "release.certified_epsilon"), center_epsilon(mechanism)
    # A release without a linear center has no epsilon for it; a sum of several is rounded up to a float, twice.
    stated = read_nonnegative({"release.center_epsilon": 0.0, **release}, "release.center_epsilon")
    if audit.drawn_from_center:
        if stated != center:
            yield "release.center_epsilon is not the sum of those of class_center, rounded up"
        if records_per_unit(mechanism) * center > certified:
            yield "release.certified_epsilon is below release.center_epsilon, times unit.max_records"
        if certified > total:
            yield "release.certified_epsilon is above release.epsilon"
        for key in ("release.delta", "release.certified_delta"):
            if read_nonnegative(release, key):
                yield f"{key} is not 0, as that of a center of classes"
        return
    prior = read_nonnegative(release, "release.prior_epsilon")
    if _has_cells(mechanism):
        if not center <= stated <= center * _ROUNDED_TWICE:
            yield "release.center_epsilon is not the sum of those of the linear center and its cells"
    elif stated != center:
        yield "release.center_epsilon is not center.linear.epsilon of mechanism.json"
    most = records_per_unit(mechanism)
    if most * (center + prior + Fraction(audit.certified_epsilon)) > certified:
        sum = "center.linear.epsilon, prior and certificate.epsilon" + (", times unit.max_records" if most > 1 else "")
        yield f"release.certified_epsilon is below the sum of {sum}"
    if certified > total:
        yield "release.certified_epsilon is above release.epsilon"
    if most * (center + prior + read_nonnegative(release, "release.randomizer_epsilon")) > total:
        yield "the epsilons of center, prior and randomizer add up to more than release.epsilon"
    if Fraction(audit.certified_epsilon) > read_nonnegative(release, "release.randomizer_epsilon"):
        yield "release.randomizer_epsilon is below certificate.epsilon"
    deltas = (
        ("release.delta", audit.requested_delta, "delta of mechanism.json"),
        ("release.certified_delta", audit.certified_delta, "certificate.delta"),
    )
    for key, expected, name in deltas:
        if most > 1:
            # A multiple is rounded up to a float.
            if read_nonnegative(release, key) < most * Fraction(expected):
                yield f"{key} is below {name} times unit.max_records"
        elif read_nonnegative(release, key) != Fraction(expected):
            yield f"{key} is not {name}"
    # The certificate covers the weights alone; both files state the epsilon of the prior.
    if read_nonnegative({"prior.epsilon": read_prior(mechanism).get("epsilon")}, "prior.epsilon") != prior:
        yield "release.prior_epsilon is not prior.epsilon of mechanism.json"


def unit_problems(release: dict[str, Any], mechanism: dict[str, Any], audit: Audit) -> Iterator[str]:
    """Compares the privacy unit of a manifest with that of the mechanism file."""
    stated = mechanism.get("unit")
    if stated is None:
        if "release.unit" in release:
            yield "release.unit is there, but mechanism.json has no unit"
        return
    if "release.unit" not in release:
        yield "release.unit is missing: mechanism.json has a unit"
        return
    unit = read_member(release, "release.unit", dict)
    for key in ("column", "max_records"):
        if unit.get(key) != stated[key] or type(unit.get(key)) is not type(stated[key]):
            yield f"release.unit.{key} is not unit.{key} of mechanism.json"
    if unit.get("over_limit") != "drop":
        yield "release.unit.over_limit is not drop"
    for key in ("units", "records_left_out", "records_without_unit"):
        read_count({f"release.unit.{key}": unit.get(key)}, f"release.unit.{key}")
    named = {"release.unit.record_epsilon": unit.get("record_epsilon")}
    prior = {"release.prior_epsilon": 0.0, **release}
    parts = center_epsilon(mechanism) + read_nonnegative(prior, "release.prior_epsilon")
    if read_nonnegative(named, "release.unit.record_epsilon") < parts + Fraction(audit.certified_epsilon):
        yield "release.unit.record_epsilon is below the sum of its parts"


def center_epsilon(mechanism: dict[str, Any]) -> Fraction:
    """Reads the epsilon that the center of a mechanism file and its cells have spent; 0 without one made of features.

    That of a center of classes is rounded up. Raises RefusedDocument also if there are noised sums without an epsilon.
    """
    drawn = stated_epsilon(mechanism)
    if drawn is not None:
        return drawn
    linear = read_linear_center(mechanism)
    if linear is None:
        return Fraction(0)
    cells = linear["center.linear.cells"]
    return read_nonnegative(linear, "center.linear.epsilon") + (0 if cells is None else cells.epsilon)


def _has_cells(mechanism: dict[str, Any]) -> bool:
    linear = read_linear_center(mechanism)
    return linear is not None and linear["center.linear.cells"] is not None


def read_prior(mechanism: dict[str, Any]) -> dict[str, Any]:
    """Reads the prior of the mechanism file of a release.

    Without one, nothing says what the release of the prior cost.
    """
    if "prior" not in mechanism:
        raise RefusedDocument("mechanism.json of a release has no prior")
    return read_member(mechanism, "prior", dict)


def statement_problems(release: dict[str, Any], mechanism: dict[str, Any], audit: Audit) -> Iterator[str]:
    """Checks what else a manifest states: the mechanism and its domain against the mechanism file, the rest by type."""
    missing = release.get("release.missing_label") is not None
    per_unit, per_record = (MISSING_UNIT_ADJACENCY, MISSING_ADJACENCY) if missing else (UNIT_ADJACENCY, ADJACENCY)
    if read_member(release, "release.adjacency", str) != (per_unit if "unit" in mechanism else per_record):
        units = " for units" if "unit" in mechanism else ""
        yield f"release.adjacency is not that of label differential privacy{units}"
    if not audit.drawn_from_center:
        yield from _randomizer_problems(release, mechanism, audit)
    domain = {f"release.domain.{key}": value for key, value in read_member(release, "release.domain", dict).items()}
    labels = [float(place) for place in range(audit.labels)] if audit.drawn_from_center else mechanism["labels"]
    stated = [read_member(domain, f"release.domain.{key}", object) for key in ("min", "max", "labels")]
    public, owner = public_domain(mechanism, labels), "center" if "center" in mechanism else "labels"
    if stated != [public[0], public[-1], len(public)]:
        yield f"release.domain is not that of the {owner} of mechanism.json"
    if missing:
        yield from _missing_problems(release, mechanism, public)
    # A histogram of the labels that are there tells how many are missing, and the other way round.
    counted = (mechanism if audit.drawn_from_center else read_prior(mechanism)).get("missing_label")
    if (audit.drawn_from_center or _counted(mechanism)) and counted != release.get("release.missing_label"):
        owner = "" if audit.drawn_from_center else "prior."
        yield f"release.missing_label is not {owner}missing_label of mechanism.json"
    yield from _center_problems(release, mechanism)
    if "classes" not in mechanism:
        bias = read_nonnegative(release, "release.max_bias")
        if bias != read_nonnegative(mechanism["certificate"], "max_bias"):
            yield "release.max_bias is not certificate.max_bias"
    yield from class_statement_problems(release, mechanism)
    yield from stated_center_problems(release, mechanism)
    losses = {} if audit.drawn_from_center else read_member(release, "release.expected_loss", dict)
    if "classes" not in mechanism and [*losses] != ["squared", "absolute", *["poisson"] * (labels[0] >= 0)]:
        yield "release.expected_loss does not have squared and absolute, and poisson unless labels are negative"
    for name, loss in losses.items():
        if loss is not None and not (type(loss) in (int, float) and abs(loss) < math.inf):
            raise RefusedDocument(f"release.expected_loss.{printable(name)} is not a finite number or null")
    read_member(release, "release.label", str)
    read_member(release, "release.identity", str)
    for key in ("release.where", "release.validation"):
        if release.get(key) is not None:
            read_member(release, key, str)
    if not _DIGEST.fullmatch(read_member(release, "release.input_digest", str)):
        raise RefusedDocument("release.input_digest is not 64 hexadecimal digits")
    if not all(isinstance(version, str) for version in read_member(release, "release.versions", dict).values()):
        raise RefusedDocument("release.versions are not text")


def _randomizer_problems(release: dict[str, Any], mechanism: dict[str, Any], audit: Audit) -> Iterator[str]:
    """Compares what a manifest states of the randomizer with the mechanism file."""
    if read_member(release, "release.mechanism_fingerprint", str) != audit.fingerprint:
        yield "release.mechanism_fingerprint is not that of mechanism.json"
    if read_member(release, "release.mechanism", str) != audit.mechanism:
        yield "release.mechanism is not that of mechanism.json"
    if read_member(release, "release.parameters", dict) != mechanism["parameters"]:
        yield "release.parameters are not those of mechanism.json"
    if release.get("release.choice") != mechanism.get("choice"):
        yield "release.choice is not that of mechanism.json"
    if release.get("release.rounding") != mechanism.get("rounding"):
        yield "release.rounding is not that of mechanism.json"
    # As text: 1 and 1.0 are equal numbers.
    if json.dumps(release.get("release.declared_grid")) != json.dumps(mechanism.get("declared_grid")):
        yield "release.declared_grid is not that of mechanism.json"


def _counted(mechanism: dict[str, Any]) -> bool:
    """True if histogram or center were counted from labels; a public prior says nothing of missing ones."""
    prior = {"prior.epsilon": read_prior(mechanism).get("epsilon")}
    return read_nonnegative(prior, "prior.epsilon") > 0 or center_epsilon(mechanism) > 0


def _missing_problems(release: dict[str, Any], mechanism: dict[str, Any], domain: list[float]) -> Iterator[str]:
    """Checks what missing labels counted as: a public label, so that no record was left out for lack of one."""
    stated = release["release.missing_label"]
    if "classes" in mechanism:
        if stated not in mechanism["classes"]["values"]:
            yield "release.missing_label is not one of the classes of mechanism.json"
    elif type(stated) not in (int, float) or not domain[0] <= stated <= domain[-1]:
        yield "release.missing_label is not a number within release.domain"
    elif "declared_grid" not in mechanism and stated not in domain:
        yield "release.missing_label is not a label of release.domain"
    if read_count(release, "release.records_without_label"):
        yield "release.missing_label is stated, and release.records_without_label is not 0"


def _center_problems(release: dict[str, Any], mechanism: dict[str, Any]) -> Iterator[str]:
    """Compares the center of the manifest with that of the mechanism file."""
    if (release.get("release.center") is None) != ("center" not in mechanism):
        yield "release.center and center of mechanism.json: one is missing"
        return
    if "center" not in mechanism:
        return
    center, labels = read_center(mechanism), mechanism["labels"]
    stated = {f"release.center.{key}": value for key, value in read_member(release, "release.center", dict).items()}
    if read_member(stated, "release.center.column", str) != center["center.column"]:
        yield "release.center.column is not that of mechanism.json"
    if center["center.column"] == release.get("release.label"):
        yield "release.center.column is the label column"
    linear = read_linear_center(mechanism)
    if linear is not None and release.get("release.label") in linear["center.linear.features"]:
        yield "the label column is a feature of the linear center"
    summary = None if linear is None else read_member(stated, "release.center.linear", dict)
    if linear is None and "release.center.linear" in stated:
        yield "release.center.linear is there, but mechanism.json has none"
    if summary is not None and summary.get("epsilon") != release.get("release.center_epsilon", 0.0):
        yield "release.center.linear.epsilon is not release.center_epsilon"
    if ("cells" in (summary or {})) != _has_cells(mechanism):
        yield "release.center.linear.cells and those of mechanism.json: one is missing"
    if read_count(stated, "release.center.missing") > read_count(release, "release.records"):
        yield "release.center.missing is above release.records"
    ends = read_member(stated, "release.center.residuals", dict)
    if [ends.get(key) for key in ("min", "max", "labels")] != [labels[0], labels[-1], len(labels)]:
        yield "release.center.residuals is not that of the labels of mechanism.json"
    for name, value in read_member(stated, "release.center.clipping", dict).items():
        if not (type(value) in (int, float) and abs(value) < math.inf):
            raise RefusedDocument(f"release.center.clipping.{printable(name)} is not a finite number")


def warning_problems(release: dict[str, Any], mechanism: dict[str, Any]) -> Iterator[str]:
    """Compares the warnings of a manifest with those that follow from the released facts.

    The mechanism file passed its own audit.
    """
    for key in ("release.loss", "release.features"):
        if release.get(key) is not None:
            read_member(release, key, str if key == "release.loss" else int)
    stated = read_member(release, "release.warnings", list)
    degrees = dict(_warning_degrees(release, mechanism))
    for name, degree in degrees.items():
        if degree > 1 + _CLOSE and name not in stated:
            yield f"release.warnings lacks {name}"
        if degree < 1 - _CLOSE and name in stated:
            yield f"release.warnings has {name}, which the released facts do not give"
    if [name for name in degrees if name in stated] != stated:
        yield "release.warnings has unknown names, or is not in order"


def _warning_degrees(release: dict[str, Any], mechanism: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Names of the possible warnings, in order, each with its statistic over its threshold."""
    if "classes" in mechanism:
        yield from class_warning_degrees(mechanism)
        return
    prior = read_floats(read_prior(mechanism), "weights")
    labels, outputs, biases = mechanism["labels"], mechanism["outputs"], mechanism["certificate"]["bias"]
    records, center = read_count(release, "release.records"), "center" in mechanism
    prior_epsilon = float(read_nonnegative(release, "release.prior_epsilon"))
    yield from _end_degrees(prior, records, 0.0 if center else prior_epsilon)
    mean = _mean(prior, labels)
    variance = _mean(prior, [(label - mean) ** 2 for label in labels])
    if variance > 0:
        means = [label + bias for label, bias in zip(labels, biases, strict=True)]
        middle = _mean(prior, means)
        slope = _mean(prior, [(y - mean) * (m - middle) for y, m in zip(labels, means, strict=True)]) / variance
        error = mean_squared_error(mechanism["columns"], labels, outputs, prior, mechanism["bits"])
        yield "label_error", error / (_LABEL_ERROR * variance)
        if release.get("release.features") is not None:
            around = [(m - middle) ** 2 - bias**2 for m, bias in zip(means, biases, strict=True)]
            noise = (error + _mean(prior, around)) * (read_count(release, "release.features") + 1) / records
            biased = max(map(abs, biases)) > 1e-9 * (labels[-1] - labels[0])
            yield "few_records", noise / (max(slope, 1.0) if biased else 1.0) ** 2 / (_MODEL_NOISE * variance)
    domain = read_center(mechanism)["center.domain"] if center else [0.0]
    yield "negative_outputs", 2.0 * (release.get("release.loss") == "poisson" and min(outputs) + domain[0] < 0)
    if center:
        yield "wide_residuals", ((labels[-1] - labels[0]) / (domain[-1] - domain[0])) ** 2 / _CENTER_RANGE
        stated = {f"release.center.{key}": value for key, value in read_member(release, "release.center", dict).items()}
        yield "missing_centers", read_count(stated, "release.center.missing") / (_MISSING_CENTERS * records)


def _end_degrees(prior: list[float], records: int, prior_epsilon: float) -> Iterator[tuple[str, float]]:
    if prior_epsilon == 0 or len(prior) < 3:
        return
    for most, constant, per_label in _END_MARGINS:
        margin = 2 / prior_epsilon * (constant + len(prior) / per_label) / records
        if margin <= most:
            ends = (("low_end", prior[0], prior[1]), ("high_end", prior[-1], prior[-2]))
            yield from ((name, end / max(_END_SHARE + margin, 2 * beside + margin)) for name, end, beside in ends)
            return


def _mean(prior: list[float], values: list[float]) -> float:
    return math.fsum(weight * value for weight, value in zip(prior, values, strict=True))


def label_folders(folder: Path, manifest: dict[str, Any]) -> list[tuple[str, Path]]:
    """Finds name and folder of each label of a release, at least two.

    Raises RefusedDocument if a member of the manifest is missing or has the wrong type, a label is there twice, or a
    folder is not the one of its label.
    """
    entries = read_member(manifest, "labels", list)
    found: dict[str, Path] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise RefusedDocument("release.labels holds something else than objects")
        label, name = read_member(entry, "label", str), read_member(entry, "folder", str)
        try:
            expected = f"labels/{quote(label, safe='').replace('.', '%2E')}"
        except UnicodeEncodeError:
            raise RefusedDocument("release.labels has a name that is not Unicode text") from None
        if not label or name != expected:
            raise RefusedDocument(f"release.labels has another folder than that of its label: {printable(name)}")
        if label in found:
            raise RefusedDocument(f"release.labels has a label twice: {printable(label)}")
        found[label] = folder / expected
    if len(found) < 2:
        raise RefusedDocument("release.labels has fewer than two labels")
    return list(found.items())


def whole_problems(manifest: dict[str, Any], folder: Path, labels: Sequence[tuple[str, Path]]) -> Iterator[str]:
    """Compares the manifest of a release of several labels with those of the labels, and with what they add up to.

    `labels` are name and folder of each label, whose own audits passed. Yields one line for each failed check. Raises
    RefusedDocument if a member is missing or has the wrong type.
    """
    documents = {label: load_document(path / "release.json") for label, path in labels}
    release = {f"release.{key}": value for key, value in manifest.items()}
    units = {_unit(document) for document in documents.values()}
    if len(units) > 1:
        yield "the labels have different units"
    stated = manifest.get("unit")
    if (None if stated is None else _unit(manifest)) not in units:
        yield "release.unit is not that of the labels"
    if read_member(release, "release.adjacency", str) != (
        LABELS_ADJACENCY if stated is None else LABELS_UNIT_ADJACENCY
    ):
        yield "release.adjacency is not that of label differential privacy for several labels"
    for entry, (label, document) in zip(manifest["labels"], documents.items(), strict=True):
        of = f"label {printable(label)}"
        if document["label"] != label:
            yield f"{of}: its release.json is that of another label"
        if document.get("data") != LABEL_DATA:
            yield f"{of}: release.data is not {LABEL_DATA}"
        yield from (
            f"{of}: release.labels states another {key}"
            for key in _OF_LABEL
            if _text(entry.get(key)) != _text(document.get(key))
        )
        yield from (
            f"{of}: release.{key} is not that of the whole release"
            for key in _SHARED
            if _text(document.get(key)) != _text(manifest.get(key))
        )
    for key in ("epsilon", "certified_epsilon", "delta", "certified_delta"):
        parts = sum((Fraction(document[key]) for document in documents.values()), Fraction(0))
        if parts > read_nonnegative(release, f"release.{key}"):
            yield f"release.{key} is below the sum of those of the labels"
    if manifest["certified_epsilon"] > manifest["epsilon"] or manifest["certified_delta"] > manifest["delta"]:
        yield "release.certified_epsilon or certified_delta is above the budget"
    yield from _columns(dict(labels))
    others = {path.name for path in (folder / "labels").iterdir()} - {path.name for _, path in labels}
    yield from (f"labels/{printable(name)} is not the folder of a label" for name in sorted(others))


def _columns(labels: dict[str, Path]) -> Iterator[str]:
    """A label that is a public column of another label was released as it is."""
    for label, path in labels.items():
        mechanism = load_document(path / "mechanism.json")
        center = mechanism.get("center", {})
        public = {center.get("column"), mechanism.get("unit", {}).get("column")}
        public |= set(_names(center.get("linear")))
        public |= _class_center_columns(mechanism)
        yield from (
            f"label {printable(other)} is a public column of label {printable(label)}"
            for other in labels
            if other in public
        )


def _class_center_columns(mechanism: dict[str, Any]) -> set[str]:
    center = read_class_center(mechanism)
    return set() if center is None else {center.column, *center.features}


def _names(linear: Any) -> Iterator[str]:
    """Names of the features of a linear center."""
    for encoder in linear.get("encoders", []) if isinstance(linear, dict) else []:
        if isinstance(encoder, dict) and isinstance(encoder.get("name"), str):
            yield encoder["name"]


def _unit(document: dict[str, Any]) -> tuple[Any, ...] | None:
    unit = document.get("unit")
    return None if unit is None else tuple(_text(unit.get(key)) for key in ("column", "max_records", "over_limit"))


def _text(value: Any) -> str:
    """As text: 1 and 1.0 are equal numbers, but other readers tell them apart."""
    return json.dumps(value, sort_keys=True)
