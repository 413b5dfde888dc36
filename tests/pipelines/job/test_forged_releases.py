"""Releases of `release_cases` of which one file states something else: the audit names it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.audit.written_files import change_members, write_document

GRID = "the label domain is not the working grid of declared_grid"
PUBLIC = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record; features, the "
)
PUBLIC += "number of records and which records have a label are public"


def swapped(release: Path) -> None:
    """Gives each of two labels the files of the other."""
    first, second = (release / "labels" / name for name in "yz")
    first.rename(release / "first")
    second.rename(first)
    (release / "first").rename(second)


# By case: the document, its members by path, of which None deletes one, and what the audit says. Or a function of the
# document, or of the folder.
FORGED: dict[str, list[tuple[str, Any, str]]] = {
    "prior_epsilon": [("mechanism", {"rounding": "upwards"}, "rounding is not nearest or randomized")],
    "center column": [
        ("release", {"center": None}, "release.center and center of mechanism.json: one is missing"),
        ("release", {"label": "p"}, "release.center.column is the label column"),
        ("release", {"center.missing": 10**6}, "release.center.missing is above release.records"),
        ("release", {"center.residuals.max": 99.0}, "release.center.residuals is not that of"),
        ("release", {"domain.max": 21.0}, "release.domain is not that of the center of"),
        ("mechanism", {"center.more": 1}, "center has other members than column"),
        ("mechanism", lambda stated: stated["center"]["counts"].pop(), "do not have one count for each cell"),
        ("mechanism", {"center.domain": [0.0, 1.0, 3.0]}, "center.domain is not a grid"),
        ("mechanism", {"center.counts": "9"}, "center.counts is not an array"),
        ("mechanism", {"center.column": None}, "center.column is missing"),
        ("mechanism", {"center": None}, "prior.counts is missing"),
        ("mechanism", {"center.domain": [label / 4 for label in range(21)]}, "labels are not consecutive residuals of"),
    ],
    "fine grid": [
        *(("mechanism", {"declared_grid.labels": labels}, GRID) for labels in (30_002, 501)),
        ("mechanism", {"declared_grid.epsilon": 9.0}, GRID),
        ("mechanism", {"declared_grid.epsilon": 0.5}, "declared_grid.epsilon is below epsilon"),
        ("mechanism", {"declared_grid.epsilon": 31.0}, "declared_grid is not of 2 to 2^20 labels"),
        ("mechanism", {"declared_grid.labels": 1001.0}, "declared_grid.labels is not an integer"),
        ("mechanism", {"declared_grid.step": 0.01}, "declared_grid does not have exactly labels and epsilon"),
        ("release", {"declared_grid": None}, "release.declared_grid is not that of mechanism.json"),
    ],
    "units, linear": [
        ("release", {"epsilon": 1.0, "certified_epsilon": 1.0}, "release.certified_epsilon is below the sum of"),
        ("release", {"unit": None}, "release.unit is missing: mechanism.json has a unit"),
        ("release", {"unit.max_records": 1}, "release.unit.max_records is not unit.max_records of mechanism.json"),
        ("release", {"unit.column": "k"}, "release.unit.column is not unit.column of mechanism.json"),
        ("release", {"unit.record_epsilon": 0.5}, "release.unit.record_epsilon is below the sum of its parts"),
        ("release", {"unit.over_limit": "constant"}, "release.unit.over_limit is not drop"),
        ("release", {"adjacency": PUBLIC}, "not that of label differential privacy for units"),
    ],
    "missing labels": [
        *(
            ("release", {"missing_label": value}, "missing_label is not a number within")
            for value in (11, "poor", True)
        ),
        ("release", {"missing_label": 0.7}, "missing_label is not a label of"),
        ("release", {"missing_label": 1}, "missing_label is not prior.missing_label of mechanism.json"),
        ("release", {"missing_label": None, "adjacency": PUBLIC}, "missing_label is not prior.missing_label of"),
        ("release", {"records_without_label": 1}, "records_without_label is not 0"),
        ("release", {"adjacency": PUBLIC}, "adjacency is not that"),
        ("release", {"missing_label": None}, "adjacency is not that"),
    ],
    "several labels": [
        ("release", {"epsilon": 1.9}, "release.epsilon is below the sum"),
        ("release", {"certified_epsilon": 1.9}, "release.certified_epsilon is"),
        ("release", {"labels.0.epsilon": 0.1}, "states another epsilon"),
        ("release", {"labels.0.folder": "labels/../x"}, "another folder"),
        ("release", {"labels.1": None}, "release.labels has fewer than two labels"),
        ("release", lambda stated: stated["labels"].append(stated["labels"][0]), "a label twice"),
        ("release", {"adjacency": "labels are private"}, "release.adjacency"),
        ("release", {"unit": {"column": "user"}}, "release.unit"),
        ("labels/y/release", {"records_without_label": 1}, "release.records_without_label is not that of the whole"),
        ("", lambda release: (release / "labels" / "w").mkdir(), "labels/w is not the folder of a label"),
        ("", swapped, "its release.json is that of another label"),
        ("", lambda release: shutil.rmtree(release / "labels" / "z"), "labels/z is missing"),
        ("", lambda release: (release / "labels" / "z" / "mechanism.json").unlink(), "cannot be read"),
    ],
}
CASES = [
    pytest.param(name, *row, marks=pytest.mark.xdist_group(f"release: {name}"), id=f"{name} {place}")
    for name, rows in FORGED.items()
    for place, row in enumerate(rows)
]


@pytest.mark.parametrize(("name", "file", "change", "said"), CASES)
def test_the_audit_names_what_was_forged(
    name: str, file: str, change: Any, said: str, base: Any, invoke: Any, tmp_path: Path
) -> None:
    release = shutil.copytree(base(name).folder, tmp_path / "copy")
    if file:
        path = release / f"{file}.json"
        document = json.loads(path.read_text())
        change_members(document, change)
        write_document(path, document)
    else:
        change(release)
    outcome = invoke(["audit", str(release)])
    assert outcome.code == 1
    assert said in outcome.out + outcome.err
