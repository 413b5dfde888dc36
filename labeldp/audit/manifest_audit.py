"""Checks of release.json: against the mechanism file and itself; of several labels, against that of each label.

The checks yield one line for each that fails. Both files have the form of their kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .audit_mechanism import Audit
from .center_document import read_linear_center
from .class_audit import class_statement_problems, class_warning_degrees, stated_center_problems
from .class_center_document import read_class_center
from .documents import (
    RefusedDocument,
    as_text,
    load_document,
    printable,
    public_domain,
    read_center,
    read_unit,
)
from .weight_runs import mean_losses, rounded_up

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
# Relative error of a loss that two programs compute in floating point.
_LOSS_ERROR, _CANCELED = 1e-9, 1e-12
# Two sums that are rounded up are above the exact one by less than this factor.
_ROUNDED_TWICE = 1 + Fraction(1, 1 << 50)
# Thresholds of the warnings, as docs/guides/release.md states them.
_END_SHARE, _END_MARGINS = 0.1, ((0.25, 34, 20), (0.6, 39, 5))
_LABEL_ERROR, _MODEL_NOISE, _CENTER_RANGE, _MISSING_CENTERS = 0.9, 0.5, 0.5, 0.05
_BY_ROW = "file and row"

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

_SHARED = (
    "identity", "table", "where", "left_out", "records", "records_without_label", "output", "shards", "removals",
    "versions",
)  # fmt: skip
_OF_LABEL = ("epsilon", "certified_epsilon", "delta", "certified_delta", "mechanism", "mechanism_fingerprint")


def budget_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any], audit: Audit) -> Iterator[str]:
    """Compares the epsilons and deltas of a manifest with each other and with the mechanism file."""
    total, certified = Fraction(release["epsilon"]), Fraction(release["certified_epsilon"])
    # A release without a linear center has no epsilon for it; a sum of several is rounded up to a float, twice.
    center, stated = center_epsilon(mechanism), _or_zero(release, "center_epsilon")
    _, most = read_unit(mechanism)
    if audit.drawn_from_center:
        if stated != center:
            yield "release.center_epsilon is not the sum of those of class_center, rounded up"
        if most * center > certified:
            yield "release.certified_epsilon is below release.center_epsilon, times unit.max_records"
        if certified > total:
            yield "release.certified_epsilon is above release.epsilon"
        yield from (
            f"release.{key} is not 0, as that of a center of classes"
            for key in ("delta", "certified_delta")
            if Fraction(release[key])
        )
        return
    linear = read_linear_center(mechanism)
    if linear is not None and linear.further is not None:
        if not center <= stated <= center * _ROUNDED_TWICE:
            yield "release.center_epsilon is not the sum of those of the parts of the center"
    elif stated != center:
        yield "release.center_epsilon is not center.linear.epsilon of mechanism.json"
    prior, randomizer = Fraction(release["prior_epsilon"]), Fraction(release["randomizer_epsilon"])
    if most * (center + prior + Fraction(audit.certified_epsilon)) > certified:
        parts = "center.linear.epsilon, prior and certificate.epsilon" + ", times unit.max_records" * (most > 1)
        yield f"release.certified_epsilon is below the sum of {parts}"
    if certified > total:
        yield "release.certified_epsilon is above release.epsilon"
    if most * (center + prior + randomizer) > total:
        yield "the epsilons of center, prior and randomizer add up to more than release.epsilon"
    if Fraction(audit.certified_epsilon) > randomizer:
        yield "release.randomizer_epsilon is below certificate.epsilon"
    for key, expected, name in (
        ("delta", audit.requested_delta, "delta of mechanism.json"),
        ("certified_delta", audit.certified_delta, "certificate.delta"),
    ):
        if most > 1:
            # A multiple is rounded up to a float.
            if Fraction(release[key]) < most * Fraction(expected):
                yield f"release.{key} is below {name} times unit.max_records"
        elif Fraction(release[key]) != Fraction(expected):
            yield f"release.{key} is not {name}"
    # The certificate covers the weights alone; both files state the epsilon of the prior.
    if read_prior(mechanism)["epsilon"] != prior:
        yield "release.prior_epsilon is not prior.epsilon of mechanism.json"


def unit_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any], audit: Audit) -> Iterator[str]:
    """Compares the privacy unit of a manifest with that of the mechanism file."""
    stated = mechanism.get("unit")
    if stated is None:
        if "unit" in release:
            yield "release.unit is there, but mechanism.json has no unit"
        return
    if "unit" not in release:
        yield "release.unit is missing: mechanism.json has a unit"
        return
    unit = release["unit"]
    for key in ("column", "max_records"):
        if as_text(unit.get(key)) != as_text(stated[key]):
            yield f"release.unit.{key} is not unit.{key} of mechanism.json"
    parts = center_epsilon(mechanism) + _or_zero(release, "prior_epsilon")
    if Fraction(unit["record_epsilon"]) < parts + Fraction(audit.certified_epsilon):
        yield "release.unit.record_epsilon is below the sum of its parts"


def _or_zero(release: Mapping[str, Any], key: str) -> Fraction:
    return Fraction(release[key]) if key in release else Fraction(0)


def center_epsilon(mechanism: Mapping[str, Any]) -> Fraction:
    """Reads the epsilon that the center of a mechanism file and its cells have spent; 0 without one made of features.

    That of a center of classes is rounded up. Raises RefusedDocument also if there are noised sums without an epsilon.
    """
    drawn, linear = read_class_center(mechanism), read_linear_center(mechanism)
    if drawn is not None:
        return Fraction(rounded_up(drawn.epsilon))
    if linear is None:
        return Fraction(0)
    return Fraction(linear.epsilon) + (0 if linear.further is None else linear.further.epsilon)


def read_prior(mechanism: Mapping[str, Any]) -> Mapping[str, Any]:
    """Reads the prior of the mechanism file of a release.

    Without one, nothing says what the release of the prior cost.
    """
    if "prior" not in mechanism:
        raise RefusedDocument("mechanism.json of a release has no prior")
    return mechanism["prior"]


def statement_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any], audit: Audit) -> Iterator[str]:
    """Checks what else a manifest states: the mechanism and its domain against the mechanism file, the rest by type."""
    labels = [float(label) for label in range(audit.labels)] if audit.drawn_from_center else mechanism["labels"]
    public = public_domain(mechanism, labels)
    yield from _adjacency_problems(release, mechanism)
    if not audit.drawn_from_center:
        yield from _randomizer_problems(release, mechanism, audit)
    domain = release["domain"]
    if [domain[key] for key in ("min", "max", "labels")] != [public[0], public[-1], len(public)]:
        yield f"release.domain is not that of the {'center' if 'center' in mechanism else 'labels'} of mechanism.json"
    yield from _missing_problems(release, mechanism, public, audit)
    yield from _center_problems(release, mechanism)
    yield from class_statement_problems(release, mechanism)
    yield from stated_center_problems(release, mechanism)
    if not audit.drawn_from_center:
        yield from _loss_problems(release, mechanism)
    yield from _left_out_problems(release, mechanism)
    columns = release["output"].get("columns", [])
    names = [column["name"] for column in columns]
    identity, known = release["identity"], [_BY_ROW, *names, *release.get("left_out", ())]
    if identity == release["label"] or (columns and identity not in known):
        yield f"release.identity is neither {_BY_ROW} nor another column of the release than the label"


def _left_out_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Checks the columns that are in no file of the release: recipients need none of them."""
    if "left_out" not in release:
        return
    names = release["left_out"]
    if len({*names}) < len(names):
        raise RefusedDocument("release.left_out has a name twice")
    # Units are counted by the job; that their column is named says nothing of its values.
    needed = _public_columns(mechanism) - {mechanism.get("unit", {}).get("column")} | {release["label"]}
    yield from (f"release.left_out has {printable(name)}, which the release needs" for name in names if name in needed)
    column, _, value = (release.get("where") or "").partition("=")
    if column in names and value != "...":
        yield "release.where states a value of a column of release.left_out"


def _adjacency_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    missing = release.get("missing_label") is not None
    per_unit, per_record = (MISSING_UNIT_ADJACENCY, MISSING_ADJACENCY) if missing else (UNIT_ADJACENCY, ADJACENCY)
    if release["adjacency"] != (per_unit if "unit" in mechanism else per_record):
        units = " for units" if "unit" in mechanism else ""
        yield f"release.adjacency is not that of label differential privacy{units}"


def _randomizer_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any], audit: Audit) -> Iterator[str]:
    """Compares what a manifest states of the randomizer with the mechanism file."""
    if release["mechanism_fingerprint"] != audit.fingerprint:
        yield "release.mechanism_fingerprint is not that of mechanism.json"
    if release["mechanism"] != audit.mechanism:
        yield "release.mechanism is not that of mechanism.json"
    if release["parameters"] != mechanism["parameters"]:
        yield "release.parameters are not those of mechanism.json"
    for key in ("choice", "rounding"):
        if release.get(key) != mechanism.get(key):
            yield f"release.{key} is not that of mechanism.json"
    if as_text(release.get("declared_grid")) != as_text(mechanism.get("declared_grid")):
        yield "release.declared_grid is not that of mechanism.json"


def _loss_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Checks bias and losses of a randomizer; those of classes are in `class_statement_problems`."""
    if "classes" in mechanism:
        return
    if release.get("max_bias") != mechanism["certificate"]["max_bias"]:
        yield "release.max_bias is not certificate.max_bias"
    losses, prior = release["expected_loss"], read_prior(mechanism)["weights"]
    labels, outputs = mechanism["labels"], mechanism["outputs"]
    expected = mean_losses(mechanism["columns"], labels, outputs, prior, mechanism["bits"])
    if [*losses] != [*expected]:
        yield "release.expected_loss does not have squared and absolute, and poisson unless labels are negative"
        return
    ends = labels[0], labels[-1], outputs[0], outputs[-1]
    most, span = max(map(abs, ends)), max(ends) - min(ends)
    for name, loss in expected.items():
        stated = math.inf if losses[name] is None else losses[name]
        # Sums of large terms that cancel.
        error = _CANCELED * {"squared": span * span, "absolute": span}.get(name, most)
        if not math.isclose(stated, loss, rel_tol=_LOSS_ERROR, abs_tol=error):
            yield f"release.expected_loss.{name} is not that of the weights under the prior"


def _missing_problems(
    release: Mapping[str, Any], mechanism: Mapping[str, Any], domain: list[float], audit: Audit
) -> Iterator[str]:
    """Checks what missing labels counted as: a public label, so that no record was left out for lack of one."""
    stated = release.get("missing_label")
    if stated is not None:
        if "classes" in mechanism:
            if stated not in mechanism["classes"]["values"]:
                yield "release.missing_label is not one of the classes of mechanism.json"
        elif type(stated) not in (int, float) or not domain[0] <= stated <= domain[-1]:
            yield "release.missing_label is not a number within release.domain"
        elif "declared_grid" not in mechanism and stated not in domain:
            yield "release.missing_label is not a label of release.domain"
        if release["records_without_label"]:
            yield "release.missing_label is stated, and release.records_without_label is not 0"
    # A histogram of the labels that are there tells how many are missing, and the other way round. A public prior says
    # nothing of them.
    if audit.drawn_from_center:
        if mechanism.get("missing_label") != stated:
            yield "release.missing_label is not missing_label of mechanism.json"
        return
    prior = read_prior(mechanism)
    counted = Fraction(prior["epsilon"]) > 0 or center_epsilon(mechanism) > 0
    if counted and prior.get("missing_label") != stated:
        yield "release.missing_label is not prior.missing_label of mechanism.json"


def _center_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Compares the center of the manifest with that of the mechanism file."""
    if (release.get("center") is None) != ("center" not in mechanism):
        yield "release.center and center of mechanism.json: one is missing"
        return
    if "center" not in mechanism:
        return
    column, labels, label = read_center(mechanism).column, mechanism["labels"], release.get("label")
    stated, linear = release["center"], read_linear_center(mechanism)
    if stated["column"] != column:
        yield "release.center.column is not that of mechanism.json"
    if column == label:
        yield "release.center.column is the label column"
    if linear is None and "linear" in stated:
        yield "release.center.linear is there, but mechanism.json has none"
    summary = stated.get("linear", {})
    if linear is not None:
        if label in linear.features:
            yield "the label column is a feature of the linear center"
        if summary.get("epsilon") != release.get("center_epsilon", 0.0):
            yield "release.center.linear.epsilon is not release.center_epsilon"
    for name in ("cells", "marginals"):
        if (name in summary) != (linear is not None and getattr(linear, name) is not None):
            yield f"release.center.linear.{name} and those of mechanism.json: one is missing"
            return
    if linear is not None:
        expected: dict[str, Any] = {"features": linear.features, "components": len(linear.coefficients) - 1}
        found = dict(summary)
        if linear.cells is not None:
            found |= {f"cells.{key}": value for key, value in summary.get("cells", {}).items()}
            expected |= {"cells.cells": len(linear.cells.sums), "cells.trees": len(linear.cells.leaves)}
        if linear.marginals is not None:
            found |= {"marginals.sums": summary["marginals"].get("sums")}
            expected |= {"marginals.sums": len(linear.marginals.sums)}
        for key in (key for key, value in expected.items() if found.get(key) != value):
            yield f"release.center.linear.{key} is not that of mechanism.json"
    if stated["missing"] > release["records"]:
        yield "release.center.missing is above release.records"
    ends = stated["residuals"]
    if [ends.get(key) for key in ("min", "max", "labels")] != [labels[0], labels[-1], len(labels)]:
        yield "release.center.residuals is not that of the labels of mechanism.json"
    from .center_replay import residual_replay_problems

    yield from residual_replay_problems(mechanism, stated["clipping"])


def warning_problems(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[str]:
    """Compares the warnings of a manifest with those that follow from the released facts.

    The mechanism file passed its own audit, and the losses of the manifest their check.
    """
    stated = release["warnings"]
    degrees = dict(_warning_degrees(release, mechanism))
    for name, degree in degrees.items():
        if degree > 1 + _CLOSE and name not in stated:
            yield f"release.warnings lacks {name}"
        if degree < 1 - _CLOSE and name in stated:
            yield f"release.warnings has {name}, which the released facts do not give"
    if [name for name in degrees if name in stated] != stated:
        yield "release.warnings has unknown names, or is not in order"


def _warning_degrees(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Names of the possible warnings, in order, each with its statistic over its threshold."""
    if "classes" in mechanism:
        yield from class_warning_degrees(mechanism)
        return
    prior = read_prior(mechanism)["weights"]
    labels, outputs, biases = mechanism["labels"], mechanism["outputs"], mechanism["certificate"]["bias"]
    records, center = release["records"], "center" in mechanism
    yield from _end_degrees(prior, records, 0.0 if center else release["prior_epsilon"])
    mean = _mean(prior, labels)
    variance = _mean(prior, [(label - mean) ** 2 for label in labels])
    if variance > 0:
        means = [label + bias for label, bias in zip(labels, biases, strict=True)]
        middle = _mean(prior, means)
        slope = _mean(prior, [(y - mean) * (m - middle) for y, m in zip(labels, means, strict=True)]) / variance
        error = release["expected_loss"]["squared"]
        yield "label_error", error / (_LABEL_ERROR * variance)
        if release.get("features") is not None:
            around = [(m - middle) ** 2 - bias**2 for m, bias in zip(means, biases, strict=True)]
            noise = (error + _mean(prior, around)) * (release["features"] + 1) / records
            biased = max(map(abs, biases)) > 1e-9 * (labels[-1] - labels[0])
            yield "few_records", noise / (max(slope, 1.0) if biased else 1.0) ** 2 / (_MODEL_NOISE * variance)
    domain = read_center(mechanism).domain if center else [0.0]
    yield "negative_outputs", 2.0 * (release.get("loss") == "poisson" and min(outputs) + domain[0] < 0)
    if center:
        yield "wide_residuals", ((labels[-1] - labels[0]) / (domain[-1] - domain[0])) ** 2 / _CENTER_RANGE
        yield "missing_centers", release["center"]["missing"] / (_MISSING_CENTERS * records)


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


def label_folders(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Path]:
    """Finds the folder of each label of a release, at least two, by name.

    Raises RefusedDocument also if a label is there twice, or a folder is not the one of its label.
    """
    folders: dict[str, Path] = {}
    for entry in manifest["labels"]:
        label, name = entry["label"], entry["folder"]
        try:
            expected = f"labels/{quote(label, safe='').replace('.', '%2E')}"
        except UnicodeEncodeError:
            raise RefusedDocument("release.labels has a name that is not Unicode text") from None
        if name != expected:
            raise RefusedDocument(f"release.labels has another folder than that of its label: {printable(name)}")
        if label in folders:
            raise RefusedDocument(f"release.labels has a label twice: {printable(label)}")
        folders[label] = folder / expected
    return folders


def whole_problems(release: Mapping[str, Any], folder: Path, folders: Mapping[str, Path]) -> Iterator[str]:
    """Compares the manifest of a release of several labels with those of the labels, and with what they add up to.

    `folders` are those of the labels by name, whose own audits passed.
    """
    documents = {label: load_document(path / "release.json") for label, path in folders.items()}
    units = {_unit(document) for document in documents.values()}
    if len(units) > 1:
        yield "the labels have different units"
    if _unit(release) not in units:
        yield "release.unit is not that of the labels"
    if release["adjacency"] != (LABELS_ADJACENCY if release.get("unit") is None else LABELS_UNIT_ADJACENCY):
        yield "release.adjacency is not that of label differential privacy for several labels"
    for entry, (label, document) in zip(release["labels"], documents.items(), strict=True):
        of = f"label {printable(label)}"
        if document["label"] != label:
            yield f"{of}: its release.json is that of another label"
        if document.get("data") != LABEL_DATA:
            yield f"{of}: release.data is not {LABEL_DATA}"
        yield from (f"{of}: release.labels states another {key}" for key in _OF_LABEL if _differ(entry, document, key))
        others = [key for key in _SHARED if _differ(document, release, key)]
        yield from (f"{of}: release.{key} is not that of the whole release" for key in others)
    for key in ("epsilon", "certified_epsilon", "delta", "certified_delta"):
        if sum(Fraction(document[key]) for document in documents.values()) > Fraction(release[key]):
            yield f"release.{key} is below the sum of those of the labels"
    if release["certified_epsilon"] > release["epsilon"] or release["certified_delta"] > release["delta"]:
        yield "release.certified_epsilon or certified_delta is above the budget"
    for label, path in folders.items():
        public = _public_columns(load_document(path / "mechanism.json"))
        yield from (
            f"label {printable(other)} is a public column of label {printable(label)}"
            for other in folders
            if other in public
        )
    others = {path.name for path in (folder / "labels").iterdir()} - {path.name for path in folders.values()}
    yield from (f"labels/{printable(name)} is not the folder of a label" for name in sorted(others))


def _public_columns(mechanism: Mapping[str, Any]) -> set[str | None]:
    """Columns that are released as they are: a label must not be one of them."""
    linear, drawn = read_linear_center(mechanism), read_class_center(mechanism)
    public = {mechanism.get("center", {}).get("column"), mechanism.get("unit", {}).get("column")}
    public |= set() if linear is None else {*linear.features}
    return public | (set() if drawn is None else {drawn.column, *drawn.features})


def _unit(document: Mapping[str, Any]) -> tuple[str, ...] | None:
    unit = document.get("unit")
    return None if unit is None else tuple(as_text(unit.get(key)) for key in ("column", "max_records", "over_limit"))


def _differ(first: Mapping[str, Any], second: Mapping[str, Any], key: str) -> bool:
    return as_text(first.get(key)) != as_text(second.get(key))
