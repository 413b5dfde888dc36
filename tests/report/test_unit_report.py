"""Report and audit of releases with privacy units: what is said of a unit, and what of a record."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

USER = "<i>user</i>"
USERS = [f"u{row % 2000 if row % 3 else row % 7}" for row in range(6000)]


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path, write_csv: Any) -> Path:
    """Folder of three releases of one log: `linear` around a linear center, `plain`, and `records` without units.

    At most 3 records of a user are released. Ten records have no user.
    """
    folder = tmp_path_factory.mktemp("units")
    rows = [f"{user if row >= 10 else ''},{row % 4},{row % 4 + row * row % 7 % 2}" for row, user in enumerate(USERS)]
    log = write_csv(folder / "log.csv", rows, header=f"{USER},f,y")
    flags = {
        "input": log, "input_format": "csv", "label": "y", "label_min": 0, "label_max": 4, "label_step": 1,
        "noise_key_file": key_file, "output_format": "parquet", "epsilon": 6, "csv_types": f"{USER}=string",
    }  # fmt: skip
    bounded = {"unit_column": USER, "max_records_per_unit": 3}
    for name, more in (
        ("linear", {**bounded, "center": "linear"}),
        ("plain", {**bounded, "center": "none"}),
        ("records", {"center": "none"}),
    ):
        argv = command("privatize", flags | more | {"output": folder / name, "ledger": folder / f"{name}.jsonl"})
        invoke(argv).ok()
    return folder


@pytest.fixture(scope="module")
def read(units: Path, report_on: Any) -> Any:
    """Function (name of a release, or a file in it) -> its page and its manifest."""

    def run(name: str) -> tuple[Any, dict[str, Any]]:
        folder = units / name.partition("/")[0]
        page = report_on(units / name, f"--ledger={folder}.jsonl")
        return page, json.loads((folder / "release.json").read_text())

    return run


@pytest.mark.parametrize("name", ["linear", "plain"])
def test_the_guarantee_is_that_of_a_unit(read: Any, name: str) -> None:
    page, manifest = read(name)
    unit = manifest["unit"]
    record = unit["record_epsilon"]

    assert manifest["certified_epsilon"] == pytest.approx(6, rel=1e-3)
    assert record == pytest.approx(manifest["certified_epsilon"] / 3, rel=1e-9)
    assert "\u03b5 \u2264 6for all labels of one unit; \u03b5 \u2264 2 for each of at most 3 records" in page.text
    assert "two possible sets of labels of a unit equally likely becomes at most 99.76% certain" in page.text
    assert f"all records with one value of the column {USER}, such as all records of one person" in page.text
    assert "everything except the labels of one unit" in page.text
    factor = float(page.text.partition("change by a factor of at most ")[2].split()[0].rstrip("."))
    assert math.exp(record) <= factor <= 1.001 * math.exp(record)
    assert "two values of a label" not in page.text
    assert "The privacy unit is one record" not in page.text
    assert manifest["adjacency"][1:] in page.text


def test_how_many_records_have_no_label_of_their_own(read: Any) -> None:
    sizes = Counter(USERS[10:])
    beyond = sum(max(size - 3, 0) for size in sizes.values())
    found = {name: read(name) for name in ("linear", "plain")}
    for page, manifest in found.values():
        empty = manifest["unit"]["records_without_unit"]
        assert manifest["unit"]["records_left_out"] in (beyond, beyond + 7)
        assert f"The records are those of {manifest['unit']['units']:,} units." in page.text
        without = f", and {empty} records without a unit," if empty else ""
        assert manifest["records"] == 6000 - manifest["unit"]["records_left_out"] - empty
        assert f"This release contains {manifest['records']:,} records" in page.text
        assert f"{manifest['unit']['records_left_out']:,} further records{without} were left out." in page.text
    facts = found["linear"][0].facts("From release.json and mechanism.json")
    assert facts["Privacy unit"].startswith(f"column {USER}; at most 3 records each; ")


def test_the_budget_adds_up_for_a_record_and_for_a_unit(read: Any) -> None:
    page, manifest = read("linear")
    (table,) = [table for caption, table in page.tables.items() if caption.startswith("Privacy budget")]

    assert table[0] == ["Release", "\u03b5 of one record", "\u03b5 of a unit, 3 times that", "Purpose"]
    assert [row[0] for row in table[1:]] == ["center", "prior", "labels", "total"]
    parts = [manifest["center_epsilon"], manifest["prior_epsilon"], manifest["randomizer_epsilon"]]
    for row, epsilon in zip(table[1:], [*parts, sum(parts)], strict=True):
        assert float(row[1]) == pytest.approx(epsilon, rel=1e-3)
        assert float(row[2]) == pytest.approx(3 * epsilon, rel=1e-3)
    (bar,) = [attrs for tag, attrs in page.elements if attrs.get("class") == "spent"]
    assert "Of the budget of 6" in bar["aria-label"]
    widths = [
        float(attrs["style"].split()[1].rstrip("%"))
        for tag, attrs in page.elements
        if tag == "span" and "style" in attrs and attrs.get("class", "").startswith("to-")
    ]
    assert sum(widths) == pytest.approx(100, abs=0.1)


def test_the_ledger_has_the_whole_release(read: Any, units: Path) -> None:
    page, _ = read("linear")
    assert "This ledger does not contain" not in page.text
    assert "two possible sets of labels of a unit equally likely" in page.text.partition("Privacy ledger")[2]

    runs = (units / "linear.jsonl").read_text().splitlines()
    damaged = json.loads(runs[0])
    # The charges of a single record would be too little.
    for charge in damaged["charges"]:
        charge["epsilon"] /= 3
    copy = units / "copy"
    shutil.copytree(units / "linear", copy, dirs_exist_ok=True)
    (units / "copy.jsonl").write_text(json.dumps(damaged) + "\n")
    assert "This ledger does not contain the whole release" in read("copy")[0].text


def test_a_mechanism_file_alone(read: Any) -> None:
    page, manifest = read("linear/mechanism.json")

    assert "for the labels of one unit, \u03b5 \u2264 " in page.text
    assert "for all labels of a unit, multiply by 3" in page.text
    certified = 3 * manifest["randomizer_epsilon"]
    value = page.text.partition("Privacy budget ")[2].partition("for the labels of one unit")[0]
    assert float(value.replace("\u03b5 \u2264", "")) == pytest.approx(certified, rel=1e-3)


def test_the_audit_says_whose_epsilon_it_is(units: Path, invoke: Any) -> None:
    mechanism = json.loads((units / "linear" / "mechanism.json").read_text())
    manifest = json.loads((units / "linear" / "release.json").read_text())
    certified = mechanism["certificate"]["epsilon"]

    alone = invoke(["audit", str(units / "linear" / "mechanism.json")]).ok().out.splitlines()
    (line,) = [line for line in alone if line.startswith("unit ")]
    assert f"column '{USER}', at most 3 records each" in line
    assert float(line.partition("has epsilon ")[2].split(",")[0]) == pytest.approx(3 * certified, rel=1e-15)

    whole = invoke(["audit", str(units / "linear")]).ok().out.splitlines()
    assert line in whole
    (line,) = [line for line in whole if line.startswith("release ")]
    assert "total epsilon 6.0 for all labels of a unit, including " in line
    assert float(line.partition("including ")[2].split()[0]) == 3 * manifest["prior_epsilon"]

    single = invoke(["audit", str(units / "records")]).ok().out
    assert "unit " not in single
    assert "of a unit" not in single


def test_a_manifest_of_another_adjacency_gets_no_page(units: Path, tmp_path: Path, invoke: Any) -> None:
    copy = Path(shutil.copytree(units / "plain", tmp_path / "plain"))
    manifest = json.loads((copy / "release.json").read_text())
    record = json.loads((units / "records" / "release.json").read_text())
    (copy / "release.json").write_text(json.dumps(manifest | {"adjacency": record["adjacency"]}))
    outcome = invoke(["report", str(copy)])
    assert outcome.code == 1
    assert "adjacency" in outcome.error
