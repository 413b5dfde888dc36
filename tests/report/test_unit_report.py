"""Report and audit of releases with privacy units: what is said of a unit, and what of a record."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.release_cases import over, table_of

UNITS, LINEAR, UNNAMED = "units", "units, linear", "units without a name"


@pytest.fixture(scope="module")
def read(base: Any, report_on: Any) -> Any:
    """Function (name of a release, a file in it) -> its page and its manifest."""

    def run(name: str, file: str = "") -> tuple[Any, dict[str, Any]]:
        made = base(name)
        page = report_on(made.folder / file, f"--ledger={made.ledger}")
        return page, json.loads((made.folder / "release.json").read_text())

    return run


@over([UNITS, LINEAR])
def test_the_guarantee_is_that_of_a_unit(read: Any, name: str) -> None:
    page, manifest = read(name)
    unit = manifest["unit"]
    record = unit["record_epsilon"]

    assert manifest["certified_epsilon"] == pytest.approx(2, rel=1e-3)
    assert record == pytest.approx(manifest["certified_epsilon"] / 2, rel=1e-9)
    factor = float(page.text.partition("change by a factor of at most ")[2].split()[0].rstrip("."))
    assert math.exp(record) <= factor <= 1.001 * math.exp(record)


@over([UNITS, UNNAMED])
def test_how_many_records_have_no_label_of_their_own(read: Any, base: Any, name: str) -> None:
    page, manifest = read(name)
    table = table_of(base(name).case)
    users = [
        user for user, y in zip(*(table[column].to_pylist() for column in ("user", "y")), strict=True) if y is not None
    ]
    sizes = Counter(user for user in users if user is not None)
    unnamed, beyond = users.count(None), sum(max(size - 2, 0) for size in sizes.values())
    unit = manifest["unit"]
    assert (unit["units"], unit["records_left_out"], unit["records_without_unit"]) == (len(sizes), beyond, unnamed)
    assert manifest["records"] == len(users) - beyond - unnamed
    for stated in (
        f"those of {len(sizes):,} units.",
        f"contains {manifest['records']:,} records",
        f"{beyond:,} further",
    ):
        assert stated in page.text


def test_the_budget_adds_up_for_a_record_and_for_a_unit(read: Any) -> None:
    page, manifest = read(LINEAR)
    (table,) = [table for caption, table in page.tables.items() if caption.startswith("Privacy budget")]

    parts = [manifest["center_epsilon"], manifest["prior_epsilon"], manifest["randomizer_epsilon"]]
    for row, epsilon in zip(table[1:], [*parts, sum(parts)], strict=True):
        assert float(row[1]) == pytest.approx(epsilon, rel=1e-3)
        assert float(row[2]) == pytest.approx(2 * epsilon, rel=1e-3)
    widths = [
        float(attrs["style"].split()[1].rstrip("%"))
        for tag, attrs in page.elements
        if tag == "span" and "style" in attrs and attrs.get("class", "").startswith("to-")
    ]
    assert sum(widths) == pytest.approx(100, abs=0.1)


def test_the_ledger_has_the_whole_release(read: Any, base: Any, report_on: Any, tmp_path: Path) -> None:
    page, _ = read(LINEAR)
    assert "This ledger does not contain" not in page.text
    assert "two possible sets of labels of a unit equally likely" in page.text.partition("Privacy ledger")[2]

    made, ledger = base(LINEAR), tmp_path / "ledger.jsonl"
    damaged = json.loads(made.ledger.read_text().splitlines()[0])
    # The charges of a single record would be too little.
    for charge in damaged["charges"]:
        charge["epsilon"] /= 2
    ledger.write_text(json.dumps(damaged) + "\n")
    assert "This ledger does not contain the whole release" in report_on(made.folder, f"--ledger={ledger}").text


def test_a_mechanism_file_alone(read: Any) -> None:
    page, manifest = read(LINEAR, "mechanism.json")

    assert "for the labels of one unit, \u03b5 \u2264 " in page.text
    assert "for all labels of a unit, multiply by 2" in page.text
    certified = 2 * manifest["randomizer_epsilon"]
    value = page.text.partition("Privacy budget ")[2].partition("for the labels of one unit")[0]
    assert float(value.replace("\u03b5 \u2264", "")) == pytest.approx(certified, rel=1e-3)


def test_the_audit_says_whose_epsilon_it_is(base: Any, invoke: Any) -> None:
    folder = base(LINEAR).folder
    mechanism, manifest = (json.loads((folder / f"{name}.json").read_text()) for name in ("mechanism", "release"))
    certified = mechanism["certificate"]["epsilon"]

    alone = invoke(["audit", str(folder / "mechanism.json")]).ok().out.splitlines()
    (line,) = [line for line in alone if line.startswith("unit ")]
    assert "column 'user', at most 2 records each" in line
    assert float(line.partition("has epsilon ")[2].split(",")[0]) == pytest.approx(2 * certified, rel=1e-15)

    whole = invoke(["audit", str(folder)]).ok().out.splitlines()
    assert line in whole
    (line,) = [line for line in whole if line.startswith("release ")]
    assert "total epsilon 2.0 for all labels of a unit, including " in line
    assert float(line.partition("including ")[2].split()[0]) == 2 * manifest["prior_epsilon"]

    single = invoke(["audit", str(base("mechanism unbiased").folder)]).ok().out
    assert "unit " not in single
    assert "of a unit" not in single


def test_columns_that_are_left_out_are_named(read: Any) -> None:
    page, manifest = read("center column single to tfrecord")
    assert manifest["left_out"] == ["c64", "wide"]
    assert page.facts("From release.json and mechanism.json")["Columns left out"] == "c64, wide"
