"""Report and audit of releases with privacy units: what is said of a unit, and what of a record."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .release_jobs import ROWS, USERS

pytestmark = pytest.mark.xdist_group("jobs")
USER = "user"
NAMES = ("units_center", "units")


@pytest.fixture(scope="module")
def read(folder: Path, report_on: Any) -> Any:
    """Function (name of a release, or a file in it) -> its page and its manifest."""

    def run(name: str) -> tuple[Any, dict[str, Any]]:
        release = folder / name.partition("/")[0]
        page = report_on(folder / name, f"--ledger={release}.jsonl")
        return page, json.loads((release / "release.json").read_text())

    return run


@pytest.mark.parametrize("name", NAMES)
def test_the_guarantee_is_that_of_a_unit(read: Any, name: str) -> None:
    page, manifest = read(name)
    unit = manifest["unit"]
    record = unit["record_epsilon"]

    assert manifest["certified_epsilon"] == pytest.approx(6, rel=1e-3)
    assert record == pytest.approx(manifest["certified_epsilon"] / 3, rel=1e-9)
    factor = float(page.text.partition("change by a factor of at most ")[2].split()[0].rstrip("."))
    assert math.exp(record) <= factor <= 1.001 * math.exp(record)


@pytest.mark.parametrize("name", NAMES)
def test_how_many_records_have_no_label_of_their_own(read: Any, name: str) -> None:
    page, manifest = read(name)
    sizes = Counter(user for user in USERS if user)
    beyond = sum(max(size - 3, 0) for size in sizes.values())
    unit = manifest["unit"]
    assert (unit["units"], unit["records_left_out"], unit["records_without_unit"]) == (len(sizes), beyond, 10)
    assert manifest["records"] == ROWS - beyond - 10
    for stated in (
        f"those of {len(sizes):,} units.",
        f"contains {ROWS - beyond - 10:,} records",
        f"{beyond:,} further",
    ):
        assert stated in page.text


def test_the_budget_adds_up_for_a_record_and_for_a_unit(read: Any) -> None:
    page, manifest = read("units_center")
    (table,) = [table for caption, table in page.tables.items() if caption.startswith("Privacy budget")]

    parts = [manifest["center_epsilon"], manifest["prior_epsilon"], manifest["randomizer_epsilon"]]
    for row, epsilon in zip(table[1:], [*parts, sum(parts)], strict=True):
        assert float(row[1]) == pytest.approx(epsilon, rel=1e-3)
        assert float(row[2]) == pytest.approx(3 * epsilon, rel=1e-3)
    widths = [
        float(attrs["style"].split()[1].rstrip("%"))
        for tag, attrs in page.elements
        if tag == "span" and "style" in attrs and attrs.get("class", "").startswith("to-")
    ]
    assert sum(widths) == pytest.approx(100, abs=0.1)


def test_the_ledger_has_the_whole_release(read: Any, folder: Path) -> None:
    page, _ = read("units_center")
    assert "This ledger does not contain" not in page.text
    assert "two possible sets of labels of a unit equally likely" in page.text.partition("Privacy ledger")[2]

    runs = (folder / "units_center.jsonl").read_text().splitlines()
    damaged = json.loads(runs[0])
    # The charges of a single record would be too little.
    for charge in damaged["charges"]:
        charge["epsilon"] /= 3
    copy = folder / "copy"
    shutil.copytree(folder / "units_center", copy, dirs_exist_ok=True)
    (folder / "copy.jsonl").write_text(json.dumps(damaged) + "\n")
    assert "This ledger does not contain the whole release" in read("copy")[0].text


def test_a_mechanism_file_alone(read: Any) -> None:
    page, manifest = read("units_center/mechanism.json")

    assert "for the labels of one unit, \u03b5 \u2264 " in page.text
    assert "for all labels of a unit, multiply by 3" in page.text
    certified = 3 * manifest["randomizer_epsilon"]
    value = page.text.partition("Privacy budget ")[2].partition("for the labels of one unit")[0]
    assert float(value.replace("\u03b5 \u2264", "")) == pytest.approx(certified, rel=1e-3)


def test_the_audit_says_whose_epsilon_it_is(folder: Path, invoke: Any) -> None:
    mechanism = json.loads((folder / "units_center" / "mechanism.json").read_text())
    manifest = json.loads((folder / "units_center" / "release.json").read_text())
    certified = mechanism["certificate"]["epsilon"]

    alone = invoke(["audit", str(folder / "units_center" / "mechanism.json")]).ok().out.splitlines()
    (line,) = [line for line in alone if line.startswith("unit ")]
    assert f"column '{USER}', at most 3 records each" in line
    assert float(line.partition("has epsilon ")[2].split(",")[0]) == pytest.approx(3 * certified, rel=1e-15)

    whole = invoke(["audit", str(folder / "units_center")]).ok().out.splitlines()
    assert line in whole
    (line,) = [line for line in whole if line.startswith("release ")]
    assert "total epsilon 6.0 for all labels of a unit, including " in line
    assert float(line.partition("including ")[2].split()[0]) == 3 * manifest["prior_epsilon"]

    single = invoke(["audit", str(folder / "plain")]).ok().out
    assert "unit " not in single
    assert "of a unit" not in single


def test_a_manifest_of_another_adjacency_gets_no_page(folder: Path, tmp_path: Path, invoke: Any) -> None:
    copy = Path(shutil.copytree(folder / "units", tmp_path / "plain"))
    manifest = json.loads((copy / "release.json").read_text())
    record = json.loads((folder / "plain" / "release.json").read_text())
    (copy / "release.json").write_text(json.dumps(manifest | {"adjacency": record["adjacency"]}))
    outcome = invoke(["report", str(copy)])
    assert outcome.code == 1
    assert "adjacency" in outcome.error


def test_columns_that_are_left_out_are_named(read: Any) -> None:
    page, manifest = read("class_units")
    assert manifest["left_out"] == ["user", "id"]
    assert page.facts("From release.json and mechanism.json")["Columns left out"] == "user, id"
