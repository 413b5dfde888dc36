"""Releases of which one document states something else: the audit names it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.audit.written_files import law, planted
from tests.release_cases import ILL

GRID = "the label domain is not the working grid of declared_grid"
PUBLIC = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record; features, the "
)
PUBLIC += "number of records and which records have a label are public"


def label_as_feature(release: Path) -> None:
    """States that a center was made of another label, which would be published nearly as it is."""
    for name in ("mechanism.json", "center.json", "release.json"):
        path = release / "labels" / "y" / name
        path.write_text(path.read_text().replace('"f"', '"z"'))


def swapped(release: Path) -> None:
    """Gives each of two labels the files of the other."""
    first, second = (release / "labels" / name for name in "yz")
    first.rename(release / "first")
    second.rename(first)
    (release / "first").rename(second)


def half(value: float) -> float:
    return value / 2


def in_text(before: str, after: str) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(before.encode(), after.encode(), 1)


def reversed_counts(content: bytes) -> bytes:
    document = json.loads(content)
    document["center"]["counts"].reverse()
    return json.dumps(document).encode()


def with_randomizer(document: dict[str, Any]) -> None:
    """A document of the first version, beside the center."""
    first = json.loads(Path(__file__).with_name("response.json").read_text())
    document.update(
        first | document | {"format": first["format"], "labels": [0.0, 1.0, 2.0], "outputs": [0.0, 1.0, 2.0]}
    )


def in_other_order(content: bytes) -> bytes:
    return json.dumps(dict([*json.loads(content).items()][::-1]), indent=2).encode()


def with_file(name: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(BITS)

    return forge


BITS = "0110100110010110" * 4
UNLIKE = "is not written as labeldp writes it"
FOREIGN = "is not a file of the release: move it elsewhere"
OTHER_CLASSES = "release.classes are not those of mechanism.json"
NO_RANDOMIZER = "release has members that labeldp does not write"
TEXTS = [*ILL]
# By case: the document, its members by path, of which ... deletes one, and what the audit says. Or a function of the
# document, or of the folder.
STATED: dict[str, list[tuple[str, Any, str]]] = {
    "prior_epsilon": [("mechanism", {"rounding": "upwards"}, "rounding is not nearest or randomized")],
    "center column": [
        ("release", {"center": ...}, "release.center and center of mechanism.json: one is missing"),
        ("release", {"label": "p"}, "release.center.column is the label column"),
        ("release", {"center.missing": 10**6}, "release.center.missing is above release.records"),
        ("release", {"center.residuals.max": 99.0}, "release.center.residuals is not that of"),
        ("release", {"domain.max": 21.0}, "release.domain is not that of the center of"),
        ("mechanism", {"center.more": 1}, "mechanism.center has members that labeldp does not write: more"),
        ("mechanism", lambda stated: stated["center"]["counts"].pop(), "do not have one count for each cell"),
        ("mechanism", {"center.domain": [0.0, 1.0, 3.0]}, "center.domain is not evenly spaced"),
        ("mechanism", {"center.counts": "9"}, "center.counts is not of type array"),
        ("mechanism", {"center.column": ...}, "center lacks members that labeldp writes: column"),
        ("mechanism", {"center": ...}, "prior does not have records, and counts of"),
        ("mechanism", {"center.domain": [label / 4 for label in range(21)]}, "labels are not consecutive residuals of"),
    ],
    "fine grid": [
        *(("mechanism", {"declared_grid.labels": labels}, GRID) for labels in (30_002, 501)),
        ("mechanism", {"declared_grid.epsilon": 9.0}, GRID),
        ("mechanism", {"declared_grid.epsilon": 0.5}, "declared_grid.epsilon is below epsilon"),
        ("mechanism", {"declared_grid.epsilon": 31.0}, "declared_grid.epsilon is not a number from 1e-09 to 30.0"),
        ("mechanism", {"declared_grid.labels": 1001.0}, "declared_grid.labels is not of type integer"),
        ("mechanism", {"declared_grid.step": 0.01}, "declared_grid has members that labeldp does not write: step"),
        ("release", {"declared_grid": ...}, "release.declared_grid is not that of mechanism.json"),
    ],
    "units, linear": [
        ("release", {"epsilon": 1.0, "certified_epsilon": 1.0}, "release.certified_epsilon is below the sum of"),
        ("release", {"unit": ...}, "release.unit is missing: mechanism.json has a unit"),
        ("release", {"unit.max_records": 1}, "release.unit.max_records is not unit.max_records of mechanism.json"),
        ("release", {"unit.column": "k"}, "release.unit.column is not unit.column of mechanism.json"),
        ("release", {"unit.record_epsilon": 0.5}, "release.unit.record_epsilon is below the sum of its parts"),
        ("release", {"unit.over_limit": "constant"}, "release.unit.over_limit is not drop"),
        ("release", {"adjacency": PUBLIC}, "not that of label differential privacy for units"),
    ],
    "missing labels": [
        *(("release", {"missing_label": value}, "missing_label is not a number within") for value in (11.0, "poor")),
        ("release", {"missing_label": True}, "missing_label is not of type number or string"),
        ("release", {"missing_label": 0.7}, "missing_label is not a label of"),
        ("release", {"missing_label": 1.0}, "missing_label is not prior.missing_label of mechanism.json"),
        ("release", {"missing_label": ..., "adjacency": PUBLIC}, "missing_label is not prior.missing_label of"),
        ("release", {"records_without_label": 1}, "records_without_label is not 0"),
        ("release", {"adjacency": PUBLIC}, "adjacency is not that"),
        ("release", {"missing_label": ...}, "adjacency is not that"),
    ],
    "several labels, linear": [("", label_as_feature, "label z is a public column of label y")],
    "several labels": [
        ("release", {"epsilon": 1.9}, "release.epsilon is below the sum"),
        ("release", {"certified_epsilon": 1.9}, "release.certified_epsilon is"),
        ("release", {"labels.0.epsilon": 0.1}, "states another epsilon"),
        ("release", {"labels.0.folder": "labels/../x"}, "another folder"),
        ("release", {"labels.1": ...}, "release.labels does not have 2 to"),
        ("release", lambda stated: stated["labels"].append(stated["labels"][0]), "a label twice"),
        ("release", {"adjacency": "labels are private"}, "release.adjacency"),
        ("release", {"unit": {"column": "user"}}, "release.unit"),
        ("labels/y/release", {"records_without_label": 1}, "release.records_without_label is not that of the whole"),
        ("", lambda release: (release / "labels" / "w").mkdir(), "labels/w is not the folder of a label"),
        ("", swapped, "its release.json is that of another label"),
        ("", lambda release: shutil.rmtree(release / "labels" / "z"), "labels/z is missing"),
        ("", lambda release: (release / "labels" / "z" / "mechanism.json").unlink(), "cannot be read"),
    ],
    "ill to parquet": [
        ("release", {"classes": ...}, OTHER_CLASSES),
        *(("release", {"classes": {"values": values, "other": other}}, OTHER_CLASSES)
          for values, other in ([TEXTS[:2], 0], [TEXTS, 1])),
        ("release", {"classes.other": 0.0}, "release.classes.other is not of type integer"),
        ("release", {"max_bias": 0.0}, "release.max_bias is there, but places of classes have no bias"),
        ("release", {"max_bias": None}, "release.max_bias is not of type number"),
        ("release", {"loss": "squared"}, "release.loss is not zero_one, that of classes"),
        ("release", {"expected_loss": {}}, "release.expected_loss does not have exactly zero_one"),
        ("release", {"expected_loss": {"squared": 1.0}}, "release.expected_loss does not have exactly zero_one"),
        ("release", {"expected_loss.zero_one": 0.5}, "release.expected_loss.zero_one is not that of the weights"),
        ("release", {"expected_loss.zero_one": None}, "release.expected_loss does not have exactly zero_one"),
        # It may differ in its last digits.
        ("release", {"expected_loss.zero_one": lambda loss: loss * (1 + 1e-13)}, ""),
        ("release", {"warnings": []}, "release.warnings lacks label_error"),
        ("release", {"warnings": ["lost_classes", "label_error"]}, "release.warnings has lost_classes"),
        ("release", {"warnings": ["label_error", "high_end"]}, "release.warnings has unknown names"),
        ("release", {"declared_grid": {"labels": 9, "epsilon": 1.0}}, "release.declared_grid is not that of"),
        ("release", {"domain": {"min": 0.0, "max": 5.0, "labels": 6}}, "release.domain is not that of the labels"),
    ],
    "mechanism rr": [
        ("release", {"classes": {"values": ["a", "b"], "other": 0}, "max_bias": ...},
         "release.max_bias is not certificate.max_bias"),
    ],
    "days to parquet": [
        ("release", {"note": "1"}, "= release has members that labeldp does not write: note"),
        ("release", {"domain.note": 1}, "= release.domain has members that labeldp does not write: note"),
        ("mechanism", {"note": [1]}, "= mechanism has members that labeldp does not write: note"),
        ("mechanism", {"prior.note": 1}, "= mechanism.prior has members that labeldp does not write: note"),
        ("release.json", in_text(": ", ":  "), f"= release.json {UNLIKE}"),
        ("mechanism.json", lambda content: content + b"\n", f"= mechanism.json {UNLIKE}"),
        ("release.json", in_text('"epsilon": 1.0', '"epsilon": 1.00'), f"= release.json {UNLIKE}"),
        ("release.json", in_text('"epsilon": 1.0', '"epsilon": 1'),
         "= release.epsilon is not of type number"),
        ("release.json", in_text('"label": "days"', '"label": "\\u0064ays"'), f"= release.json {UNLIKE}"),
        ("release.json", in_text('"label": "days"', '"label": "days", "label": "days"'),
         "= 'release.json' is not valid JSON: a key appears twice in one object"),
        ("release.json", in_other_order, f"= release.json {UNLIKE}"),
        ("release", {"output": ...}, "= release lacks members that labeldp writes: output"),
        ("release", {"output.row_group": 700}, "= release.output.row_group is not 65536"),
        ("release", {"output.compression": "gzip"},
         "part-00000-of-00002.parquet has another compression than release.output states"),
        ("release", {"identity": BITS}, "release.identity is neither file and row nor another column of the release"),
        ("release", {"loss": BITS}, "= release.loss is not squared or absolute or poisson or zero_one or None"),
        ("release", {"expected_loss.absolute": 1e300},
         "= release.expected_loss.absolute is not that of the weights under the prior"),
        ("release", {"versions.numpy": BITS}, "release.versions.numpy is not a text of the form"),
        ("release", {"versions.sbom": BITS}, "release.versions.sbom is not a text of the form"),
        ("release.json", in_text('  "output"', f'  "validation": "{BITS}",\n  "output"'),
         "= release.validation is not inferred schema or given schema"),
        ("mechanism", {"gap": 1.5}, "= mechanism.gap is not a number from 0 to 1"),
        *(("", with_file(name), f"= {words}") for name, words in (
            ("truth.csv", f"truth.csv {FOREIGN}"), (".truth", f".truth {FOREIGN}"),
            ("data/.truth", "data/.truth is not one of release.shards"),
            ("data/.d/x", "data/.d is not one of release.shards"), ("labels/y", f"labels {FOREIGN}"),
            ("validation/x", f"validation {FOREIGN}"), ("signature.json/x", "signature.json is not a regular file"),
            ("center.json", "center.json is there, but mechanism.json has no linear center"))),
        ("", lambda folder: (folder / BITS).mkdir(), f"= {BITS} {FOREIGN}"),
        ("", lambda folder: (folder / "data" / f".{BITS}").mkdir(), f"= data/.{BITS} is not one of release.shards"),
        ("", lambda folder: (folder / "link").symlink_to("release.json"), f"= link {FOREIGN}"),
    ],
    "center of classes": [
        ("release", {"center_epsilon": 0.5}, "center_epsilon is not the sum of those of class_center, rounded up"),
        ("release", {"certified_epsilon": 0.5}, "release.certified_epsilon is below release.center_epsilon"),
        ("release", {"delta": 1e-9}, "release.delta is not 0"),
        ("release", {"format": "labeldp-release-1"}, "release.json is not a release manifest of this mechanism"),
        ("release", {"prior_epsilon": 0.001}, f"{NO_RANDOMIZER}: prior_epsilon"),
        ("release", {"expected_loss": {}}, f"{NO_RANDOMIZER}: expected_loss"),
        ("release", {"mechanism": "rr"}, f"{NO_RANDOMIZER}: mechanism"),
        *(("release", {f"class_center.{key}": value}, f"release.class_center.{key} is not that of mechanism.json")
          for key, value in (("column", "other"), ("features", ["f"]), ("cells", 9999), ("trees", 3),
                             ("fingerprint", "0" * 64))),
        ("release", {"warnings": ["label_error"]}, "release.warnings has unknown names"),
        ("release", {"label": "k"}, "the label column is a feature of the center"),
        ("release", {"label": "grade_probabilities"}, "class_center.column is the label column"),
        ("center.json", reversed_counts, "center.json is not the center of classes of mechanism.json"),
        ("center.json", ..., "center.json is missing: mechanism.json has a center of classes"),
        ("mechanism", {"mechanism": "rr"}, "mechanism has members that labeldp does not write: mechanism"),
        ("mechanism", {"prior": {"weights": [0.5, 0.5], "epsilon": 0.0}}, "does not write: prior"),
        ("mechanism", {"missing_label": "2"}, "missing_label is not one of the classes"),
        ("mechanism", {"classes.values": ["low", "mid"]}, "class_center.center.counts are not one for each class"),
        ("mechanism", {"classes": None}, "classes is not of type object"),
        ("mechanism", {"label": 1}, "label is not"),
        ("mechanism", with_randomizer, "mechanism has members that labeldp does not write: label, class_center"),
        ("mechanism", {"class_center.column": ""}, "class_center.column is not a text of the form"),
    ],
    "parquet to parquet, linear": [
        ("center.json", in_text('"y_center"', '"other"'), "= center.json is not the linear center of mechanism.json"),
        ("center.json", ..., "= center.json is missing: mechanism.json has a linear center"),
        ("mechanism", {"center.linear": ...}, "center.json is there, but mechanism.json has no linear center"),
    ],
    "cells": [
        ("release", {"center_epsilon": half}, "release.center_epsilon is not the sum"),
        ("release", {"certified_epsilon": 1.5}, "release.certified_epsilon is below the sum"),
    ],
}  # fmt: skip


@planted((name, *row) for name, rows in STATED.items() for row in rows)
def test_the_audit_names_what_was_planted(name: str, file: str, change: Any, words: str, copied: Any) -> None:
    # What is written in another way is found last, with the records.
    law(copied(name), file, change, words, data=name == "days to parquet")
