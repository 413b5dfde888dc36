"""Audit of a release of several labels: the manifest of all against that of each, and what they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .documents import RefusedDocument, load_document, printable, read_member, read_nonnegative

LABELS_FORMAT = "labeldp-labels-1"
LABEL_DATA = "../../data"
"""The shards, as the manifest of one label names them."""
ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the labels of one record, in any of the "
    "label columns; features, the number of records and which records have all labels are public"
)
UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, in any of the label columns; the records of a unit are those with one value of the unit column; "
    "features, units, the number of records and which records have all labels are public"
)

_SHARED = ("identity", "where", "records", "records_without_label", "shards", "versions")
_OF_LABEL = ("epsilon", "certified_epsilon", "delta", "certified_delta", "mechanism", "mechanism_fingerprint")


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
    if read_member(release, "release.adjacency", str) != (ADJACENCY if stated is None else UNIT_ADJACENCY):
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
        public = {center.get("column"), center.get("groups", {}).get("column"), mechanism.get("unit", {}).get("column")}
        public |= set(_names(center.get("linear")))
        yield from (
            f"label {printable(other)} is a public column of label {printable(label)}"
            for other in labels
            if other in public
        )


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
