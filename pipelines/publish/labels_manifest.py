"""Manifest of a release of several labels of a record: their sum, and where the manifest of each label is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ...mechanisms.core.budget import round_up

FORMAT = "labeldp-labels-1"
_OF_LABEL = ("epsilon", "certified_epsilon", "delta", "certified_delta", "mechanism", "mechanism_fingerprint")
ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the labels of one record, in any of the "
    "label columns; features, the number of records and which records have all labels are public"
)
UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, in any of the label columns; the records of a unit are those with one value of the unit column; "
    "features, units, the number of records and which records have all labels are public"
)


def labels_manifest(documents: Sequence[dict[str, Any]], folders: Sequence[str], epsilon: float) -> dict[str, Any]:
    """Document that release.json of a release of several labels holds.

    `documents` are the manifests of the labels, of `make_manifest`, and `folders` their places below the release.
    `epsilon` is the budget of all labels of a record, or of a unit, together.
    """
    first = documents[0]
    unit = first.get("unit")
    certified, delta, certified_delta = (
        round_up(sum((Fraction(document[key]) for document in documents), Fraction(0)))
        for key in ("certified_epsilon", "delta", "certified_delta")
    )
    shared = ("identity", "where", "records", "records_without_label", "shards", "versions")
    return {
        "format": FORMAT,
        "adjacency": ADJACENCY if unit is None else UNIT_ADJACENCY,
        "epsilon": epsilon,
        "certified_epsilon": certified,
        "delta": delta,
        "certified_delta": certified_delta,
        "labels": [
            {"label": document["label"], "folder": folder, **{key: document[key] for key in _OF_LABEL}}
            for document, folder in zip(documents, folders, strict=True)
        ],
        **({} if unit is None else {"unit": {key: unit[key] for key in ("column", "max_records", "over_limit")}}),
        **{key: first[key] for key in shared},
    }
