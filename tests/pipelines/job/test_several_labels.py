"""`--label a,b,c` in whole jobs: each label is what a job of its own releases, epsilons add up, tampering is found."""

import json
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.false_alarms import standard_errors
from tests.written_logs import write_parts

ROWS = 3000
NAMES = ("click", "minutes", "basket.eur")
FLAGS = {
    "label": ",".join(NAMES), "label_min": 0, "label_max": "1,52,20", "label_step": 1, "epsilon": 2,
    "max_unusable_fraction": 0.1, "mechanism": "debiased_rr", "center": "none",
}  # fmt: skip


def log_table(whole: bool = False) -> pa.Table:
    """A log of three labels, of which two lie between features; some records lack one of them, unless it is whole."""
    rng = np.random.default_rng(5)
    x, place = rng.normal(size=ROWS), rng.integers(0, 5, ROWS)
    click = (rng.random(ROWS) < 1 / (1 + np.exp(-x))).astype(np.int64)
    minutes = np.clip(np.rint(20 + 6 * x + 3 * place + rng.normal(0, 5, ROWS)), 0, 52)
    basket = np.clip(10 + 4 * x + rng.normal(0, 2, ROWS), 0, 20)
    if not whole:
        minutes[::60] = np.nan
        basket[30::120] = np.nan
    user = rng.integers(0, ROWS // 3, ROWS)
    columns = {"click": click, "x": x, "minutes": minutes, "place": place, "basket.eur": basket, "user": user}
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})


USABLE = ROWS - len({*range(0, ROWS, 60), *range(30, ROWS, 120)})


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole log in two files of each format, and as Parquet the one in which labels are missing."""
    folder = write_parts(tmp_path_factory.mktemp("logs"), log_table(), 1700, ["parquet"], "lacking")
    return write_parts(folder, log_table(whole=True), 1700, ("parquet", "tfrecord"))


@pytest.fixture(scope="module")
def flags(logs: Path, key_file: Path) -> Callable[..., dict[str, Any]]:
    def given(format: str, output: Path, **more: Any) -> dict[str, Any]:
        standard = {"input": logs / f"log-*.{format}", "input_format": format, "noise_key_file": key_file}
        return standard | FLAGS | {"output": output} | more

    return given


@pytest.fixture(scope="module")
def released(
    flags: Callable[..., dict[str, Any]],
    logs: Path,
    invoke: Any,
    command: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Any]:
    """A release of Parquet around linear centers, and the outcome of the command."""
    output = tmp_path_factory.mktemp("labels") / "released"
    changed = {"input": logs / "lacking-*.parquet", "center": None, "mechanism": "auto"}
    outcome = invoke(command("privatize", flags("parquet", output, **changed))).ok()
    return output, outcome


def folder_of(release: Path, label: str) -> Path:
    return release / "labels" / label.replace(".", "%2E")


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_every_label_is_randomized_and_every_feature_kept(released: tuple[Path, Any]) -> None:
    table, log = pq.read_table(released[0] / "data"), log_table()
    usable = np.array([all(log[name][row].is_valid for name in NAMES) for row in range(ROWS)])
    assert usable.sum() == USABLE == table.num_rows
    assert table.schema.names == [*log.schema.names, "minutes_center", "basket.eur_center"]
    rows = np.lexsort([table["user"], table["x"]])
    kept = np.lexsort([np.asarray(log["user"])[usable], np.asarray(log["x"])[usable]])
    for name in ("x", "place", "user"):
        np.testing.assert_array_equal(np.asarray(table[name])[rows], np.asarray(log[name])[usable][kept])
    for name in NAMES:
        mechanism = read_json(folder_of(released[0], name) / "mechanism.json")
        values = np.asarray(table[name])
        if "center" in mechanism:
            values = values - np.asarray(table[f"{name}_center"])
        assert set(np.round(values, 6)) <= set(np.round(mechanism["outputs"], 6))


def test_no_center_is_computed_from_a_label(released: tuple[Path, Any]) -> None:
    for name in NAMES[1:]:
        linear = read_json(folder_of(released[0], name) / "mechanism.json")["center"]["linear"]
        assert {encoder["name"] for encoder in linear["encoders"]} == {"x", "place", "user"}


def test_epsilons_add_up_exactly(released: tuple[Path, Any], entries: Any, spent: Any) -> None:
    whole = read_json(released[0] / "release.json")
    parts = [read_json(folder_of(released[0], name) / "release.json") for name in NAMES]
    assert [part["label"] for part in parts] == [entry["label"] for entry in whole["labels"]] == list(NAMES)
    assert sum(Fraction(part["epsilon"]) for part in parts) <= Fraction(whole["epsilon"]) == 2
    total = sum(Fraction(part["certified_epsilon"]) for part in parts)
    assert Fraction(199, 100) < total <= Fraction(whole["certified_epsilon"]) <= 2
    # A label of two values needs less of the budget for the same relative error.
    assert parts[0]["epsilon"] < parts[1]["epsilon"]
    assert all(part["data"] == "../../data" and part["records_without_label"] == ROWS - USABLE for part in parts)
    (run,) = entries(released[0].parent)
    assert run["label"] == FLAGS["label"]
    assert len(run["charges"]) == 8
    assert spent(released[0].parent) == pytest.approx(float(total), abs=1e-9)


def test_the_summary_names_each_label(released: tuple[Path, Any]) -> None:
    out = released[1].out
    share = f"({100 * (ROWS - USABLE) / ROWS:.2g} % of {ROWS:,})"
    assert f"{ROWS - USABLE:,} {share} without a usable label in each of 3 columns left out" in out
    assert "\nPrivacy   Epsilon 2: " in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("label ")] == [f"{n}:" for n in NAMES]


def test_the_audit_reads_the_records_of_each_label(released: tuple[Path, Any], invoke: Any) -> None:
    lines = invoke(["audit", str(released[0]), "--data"]).ok().out.splitlines()
    assert [line for line in lines if line.startswith("label")] == [f"label        '{name}'" for name in NAMES]
    assert sum(line.startswith("distribution") for line in lines) == 3
    assert lines[-2:] == ["together     total epsilon 2.0 for all 3 labels", "PASS"]
    alone = invoke(["audit", str(folder_of(released[0], "minutes")), "--data"]).ok().out.splitlines()
    assert alone[-1] == "PASS"


def test_dead_letters_name_each_record_once(released: tuple[Path, Any]) -> None:
    letters = [json.loads(line) for line in (released[0] / "dead_letters.jsonl").read_text().splitlines()]
    assert len({(letter["source"], letter["row"]) for letter in letters}) == len(letters) == ROWS - USABLE


def test_equal_labels_get_independent_noise(
    flags: Callable[..., dict[str, Any]], logs: Path, invoke: Any, command: Any, outputs: Path
) -> None:
    """Two columns with the same labels, whose noise would be the same if it were bound to labels and records alone."""
    table = log_table(whole=True)
    path = outputs / "copies.parquet"
    pq.write_table(table.append_column("again", table["minutes"]), path)
    copies = {"input": path, "label": "minutes,again", "label_max": 52}
    invoke(command("privatize", flags("parquet", outputs / "copies", **copies))).ok()
    released = pq.read_table(outputs / "copies" / "data")
    first, second = (np.asarray(released[name]) for name in ("minutes", "again"))
    labels = np.asarray(table["minutes"])
    # The correlation of independent noise has a standard deviation of 1 / sqrt(n); that of the same noise is near 1.
    assert abs(np.corrcoef(first - labels, second - labels)[0, 1]) < standard_errors() / np.sqrt(ROWS)


def test_too_many_records_without_a_label_are_said_of_all_labels(
    flags: Callable[..., dict[str, Any]], logs: Path, invoke: Any, command: Any, outputs: Path
) -> None:
    lacking = {"input": logs / "lacking-*.parquet", "max_unusable_fraction": 0.01}
    outcome = invoke(command("privatize", flags("parquet", outputs / "lacking", **lacking)))
    assert outcome.code == 1
    assert f"{ROWS - USABLE:,} of 3,000 records have no usable label in" in outcome.error
    assert "click" in outcome.error
    assert list(outputs.iterdir()) == []


def test_each_histogram_gets_the_share_of_its_label(
    flags: Callable[..., dict[str, Any]], invoke: Any, command: Any, outputs: Path
) -> None:
    given = flags("parquet", outputs / "shares", prior_epsilon=0.35)
    outcome = invoke([*command("privatize", given), "--dry_run"]).ok()
    budgets = [line for line in outcome.out.splitlines() if line.startswith("budget")]
    epsilons = [float(line.split("epsilon ")[1].split(":")[0]) for line in budgets]
    histograms = [float(line.split(": ")[1].split(" for")[0]) for line in budgets]
    assert sum(epsilons) == pytest.approx(2, rel=1e-5)
    assert epsilons[0] < epsilons[1]
    assert histograms == pytest.approx([0.35 * epsilon / 2 for epsilon in epsilons], rel=1e-5)
    (charged,) = [line for line in outcome.out.splitlines() if line.startswith("charged ")]
    assert "epsilon 2 to " in charged


def test_validation_reads_no_label(
    flags: Callable[..., dict[str, Any]], invoke: Any, command: Any, outputs: Path
) -> None:
    pytest.importorskip("tensorflow_data_validation")
    flags_of_run = command("privatize", flags("tfrecord", outputs / "valid"))
    invoke([*flags_of_run, "--validate"]).ok()
    schema = (outputs / "valid" / "validation" / "schema.pbtxt").read_text()
    assert schema.count("privatized: drawn at random under label differential privacy") == 3
    statistics = (outputs / "valid" / "validation" / "feature_stats.pb").read_bytes()
    assert not any(name.encode() in statistics for name in NAMES)


def test_a_column_whose_name_has_a_comma_is_one_label(
    flags: Callable[..., dict[str, Any]], invoke: Any, command: Any, outputs: Path
) -> None:
    table = log_table(whole=True).select(["minutes", "x"]).rename_columns(["minutes,raw", "x"])
    pq.write_table(table, outputs / "comma.parquet")
    one = {"input": outputs / "comma.parquet", "label": "minutes,raw", "label_max": 52}
    invoke(command("privatize", flags("parquet", outputs / "comma", **one))).ok()
    assert read_json(outputs / "comma" / "release.json")["label"] == "minutes,raw"


def test_a_label_that_another_center_is_computed_from_is_found(
    released: tuple[Path, Any], invoke: Any, outputs: Path
) -> None:
    """A release in which a label was a feature, so that it is published nearly as it is."""
    shutil.copytree(released[0], outputs / "released")
    for name in ("mechanism.json", "center.json"):
        path = folder_of(outputs / "released", "minutes") / name
        path.write_text(path.read_text().replace('"name": "x"', '"name": "click"'))
    path = folder_of(outputs / "released", "minutes") / "release.json"
    path.write_text(re.sub(r'("features": \[\s*)"x"', r'\1"click"', path.read_text()))
    outcome = invoke(["audit", str(outputs / "released")])
    assert outcome.code == 1
    assert "label click is a public column of label minutes" in outcome.out


def test_a_report_has_a_page_for_each_label(released: tuple[Path, Any], invoke: Any, outputs: Path) -> None:
    shutil.copytree(released[0], outputs / "released")
    outcome = invoke(["report", str(outputs / "released")]).ok()
    pages = [folder_of(outputs / "released", name) / "report.html" for name in NAMES]
    assert outcome.out.splitlines() == [f"report     {page}" for page in pages]
    for name, page in zip(NAMES, pages, strict=True):
        assert name in page.read_text()
    # The pages do not make the release another one.
    invoke(["audit", str(outputs / "released"), "--data"]).ok()
    one = outputs / "one.html"
    refused = invoke(["report", str(outputs / "released"), f"--output={one}"])
    assert refused.code == 1
    assert "holds 3 labels" in refused.error
    manifest = outputs / "released" / "release.json"
    manifest.write_text(json.dumps(read_json(manifest) | {"epsilon": 1.9}, indent=2) + "\n")
    assert "fails the audit" in invoke(["report", str(outputs / "released")]).error
