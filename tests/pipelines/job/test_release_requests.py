"""Requests over the logs of `release_cases`: what a dry run plans, what is refused, and what is the same release."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.center.linear_center import MOST_SAMPLE
from labeldp.mechanisms.release.unit_bound import UnitCounts
from labeldp.pipelines.cli.announcement import unusable_share

from tests.audit.written_files import plant
from tests.false_alarms import standard_errors
from tests.release_cases import TABLES, TWO, UNITS, UNLISTED
from tests.written_logs import write_log

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")


@pytest.fixture
def run(base: Any, invoke: Any, command: Any, outputs: Path) -> Any:
    """Function (case, switch, ..., flag=value, ...) -> outcome of the job of that case with other flags."""

    def call(name: str, *switches: str, **flags: Any) -> Any:
        own = {"output": outputs / "released", "ledger": outputs / "ledger.jsonl"}
        return invoke([*command("privatize", {**base(name).flags, **own, **flags}), *switches])

    return call


@pytest.mark.parametrize(
    ("name", "flags", "planned"),
    [
        ("units", {}, "units      user: at most 2 records of each, the others are left out"),
        ("units", {}, "epsilon 2 for all labels of a unit, 1 for each of at most 2 records"),
        ("units", {}, "user (the record's unit)"),
        ("fine grid", {"label_step": "0.001"}, "501 labels chosen for the 10,001 declared ones, 0 to 10, 0.02 apart"),
    ],
)
def test_a_dry_run_plans(run: Any, name: str, flags: dict[str, Any], planned: str) -> None:
    assert planned in run(name, "--dry_run", **flags).ok().out


@pytest.mark.parametrize(
    ("name", "flags", "problems"),
    [
        ("units", {"unit_column": "f"}, ("the unit in 'f' is a number that is not whole",)),
        ("where", {"label": "k", "where": None}, ("label column 'k' holds string, not numbers", "--label_classes")),
        ("records without a label", {**TWO, "max_unusable_fraction": 0.01},
         ("120 of 600 records have no usable label in", "z")),
        ("center of classes", {"epsilon": 0.01}, ("3,000 records are too few for a center of 3 classes",)),
        ("center column", {"center_column": "k"}, ("center column 'k' holds string, not numbers",)),
    ],
)  # fmt: skip
def test_a_request_is_refused(
    run: Any, outputs: Path, name: str, flags: dict[str, Any], problems: tuple[str, ...]
) -> None:
    outcome = run(name, **flags)
    assert outcome.code == 1
    assert all(problem in outcome.error for problem in problems)
    assert not (outputs / "released").exists()
    assert not (outputs / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("centers", "problem"),
    [
        (["7"], "center column 'p' holds string, not numbers"),
        (pa.nulls(1, pa.float64()), "no record has a usable center in 'p'"),
        ([1e39], "no record has a usable center in 'p'"),
    ],
)
def test_apply_without_usable_centers_names_the_column(
    base: Any, invoke: Any, command: Any, outputs: Path, centers: Any, problem: str
) -> None:
    one, table = base("center column"), TABLES["folders"]()
    column = pa.concat_arrays([pa.array(centers)] * len(table))
    log = write_log(outputs / "log.parquet", table.set_column(table.schema.get_field_index("p"), "p", column))
    own = {key: one.flags[key] for key in ("input_format", "label", "noise_key_file", "id_column")}
    own |= {"input": log, "output": outputs / "out", "mechanism_file": one.folder / "mechanism.json"}
    outcome = invoke(command("apply", own))
    assert (outcome.code, problem in outcome.error) == (1, True)
    assert not (outputs / "out").exists()


@pytest.mark.parametrize(
    ("mechanism", "flags", "stated"),
    [
        ("rr", {}, {"rounding": "nearest"}),
        ("debiased_rr", {}, {"rounding": "randomized"}),
        ("rr", {"missing_label": 2}, {"missing_label": 2}),
        ("rr", UNITS, {"unit.max_records": 2}),
    ],
)
def test_a_solved_mechanism_serves_every_request(
    base: Any, invoke: Any, command: Any, outputs: Path, mechanism: str, flags: dict[str, Any], stated: dict[str, Any]
) -> None:
    """Its prior is public: it counted no label, holds no record of a unit, and leaves rounding to the mechanism."""
    one, file = base("units without a name"), outputs / "m.json"
    (outputs / "prior.csv").write_text("".join(f"{place / 2},1\n" for place in range(21)))
    solve = {"prior": outputs / "prior.csv", "epsilon": 1, "mechanism": mechanism, "output": file}
    invoke(command("solve", solve)).ok()
    own = {key: one.flags[key] for key in ("input", "input_format", "label", "noise_key_file", "id_column")}
    own |= {"max_unusable_fraction": 1, "mechanism_file": file, "output": outputs / "out"}
    invoke(command("apply", own | flags)).ok()
    manifest = json.loads((outputs / "out" / "release.json").read_text())
    for path, value in stated.items():
        first, _, second = path.partition(".")
        assert (manifest[first][second] if second else manifest[first]) == value
    certified = Fraction(manifest["certified_epsilon"]) / flags.get("max_records_per_unit", 1)
    assert Fraction(99, 100) < certified <= 1
    invoke(["audit", str(outputs / "out"), "--data"]).ok()


def test_a_finer_grid_that_is_not_used_is_the_same_release(run: Any, base: Any, outputs: Path) -> None:
    """Noise is bound to the working grid: the second release repeats the first one and costs nothing."""
    one = base("fine grid")
    run("fine grid", label_step="0.001", ledger=one.ledger, epsilon_cap=2).ok()
    manifests = [json.loads((folder / "release.json").read_text()) for folder in (one.folder, outputs / "released")]
    assert [manifest["declared_grid"]["labels"] for manifest in manifests] == [1001, 10_001]
    tables = [pq.read_table(folder / "data") for folder in (one.folder, outputs / "released")]
    assert tables[0].equals(tables[1])


def test_a_fine_grid_has_the_error_of_a_coarse_one(run: Any, outputs: Path) -> None:
    losses = []
    for step in ("0.001", "0.1"):
        flags = {"label_step": step, "mechanism": "unbiased", "prior_epsilon": 0.5, "center": None}
        run("cells", **flags, center_features=None, output=outputs / step).ok()
        losses.append(json.loads((outputs / step / "release.json").read_text())["expected_loss"]["squared"])
    assert losses[0] == pytest.approx(losses[1], rel=0.03)


def test_a_file_of_classes_is_the_list(run: Any, base: Any, outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "sorts.txt").write_bytes(b"\xef\xbb\xbfpoor\r\nfair\ngood\n")
    run("records without a class", label_classes=tmp_path / "sorts.txt").ok()
    shards = [path.read_bytes() for path in (outputs / "released" / "data").iterdir()]
    assert shards == [path.read_bytes() for path in (base("records without a class").folder / "data").iterdir()]


def test_a_text_that_every_record_has_as_its_class_does_not_show(
    run: Any, outputs: Path, tree: Any, tmp_path: Path
) -> None:
    table = TABLES["gaps"]()
    same = table.set_column(table.schema.get_field_index("sort"), "sort", pa.array([UNLISTED] * len(table)))
    outcome = run("records without a class", input=write_log(tmp_path / "log.parquet", same)).ok()
    for content in [outcome.out.encode(), outcome.err.encode(), *tree(outputs).values()]:
        assert UNLISTED.encode() not in content


def test_equal_labels_get_independent_noise(run: Any, outputs: Path, tmp_path: Path) -> None:
    """Two columns with the same labels, whose noise would be the same if it were bound to labels and records alone."""
    table = TABLES["many"]()
    log = write_log(tmp_path / "log.parquet", table.append_column("again", table["y"]))
    own = {"label": "y,again", "center": "none", "center_features": None, "mechanism": "debiased_rr"}
    run("cells", **own, input=log, output_format="parquet").ok()
    released = pq.read_table(outputs / "released" / "data")
    noise = [released[name].to_numpy() - table["y"].to_numpy() for name in ("y", "again")]
    # The correlation of independent noise has a standard deviation of 1 / sqrt(n); that of the same noise is near 1.
    assert abs(np.corrcoef(*noise)[0, 1]) < standard_errors() / np.sqrt(len(table))


def test_each_histogram_gets_the_share_of_its_label(run: Any) -> None:
    outcome = run("several labels", "--dry_run", prior_epsilon=0.35).ok()
    budgets = [line for line in outcome.out.splitlines() if line.startswith("budget")]
    epsilons = [float(line.split("epsilon ")[1].split(":")[0]) for line in budgets]
    histograms = [float(line.split(": ")[1].split(" for")[0]) for line in budgets]
    assert sum(epsilons) == pytest.approx(2, rel=1e-5)
    # A label of fewer values needs less of the budget for the same relative error.
    assert epsilons[0] > epsilons[1]
    assert histograms == pytest.approx([0.35 * epsilon / 2 for epsilon in epsilons], rel=1e-5)
    (charged,) = [line for line in outcome.out.splitlines() if line.startswith("charged ")]
    assert "epsilon 2 to " in charged


def test_validation_reads_no_label(run: Any, outputs: Path) -> None:
    run("several labels, linear", "--validate").ok()
    schema = (outputs / "released" / "validation" / "schema.pbtxt").read_text()
    assert schema.count("privatized: drawn at random under label differential privacy") == 2
    assert all(f'name: "{name}_center"' in schema for name in "yz")
    statistics = (outputs / "released" / "validation" / "feature_stats.pb").read_bytes()
    assert b"user" in statistics
    assert not any(f'"{name}"'.encode() in statistics or b"\n\x01" + name.encode() in statistics for name in "yz")


def test_a_column_whose_name_has_a_comma_is_one_label(run: Any, outputs: Path, tmp_path: Path) -> None:
    table = TABLES["folders"]().rename_columns(["id", "f", "k", "user", "p", "y,raw", "z"])
    flags = {"input": write_log(tmp_path / "log.parquet", table), "label": "y,raw"}
    run("where", where=None, **flags).ok()
    assert json.loads((outputs / "released" / "release.json").read_text())["label"] == "y,raw"


def test_a_report_has_a_page_for_each_label(copied: Any, invoke: Any, tmp_path: Path) -> None:
    folder = copied("several labels")
    outcome = invoke(["report", str(folder)]).ok()
    pages = [folder / "labels" / name / "report.html" for name in "yz"]
    assert outcome.out.splitlines() == [f"report     {page}" for page in pages]
    assert all(page.exists() for page in pages)
    # The pages do not make the release another one.
    invoke(["audit", str(folder), "--data"]).ok()
    refused = invoke(["report", str(folder), f"--output={tmp_path / 'one.html'}"])
    assert (refused.code, "holds 2 labels" in refused.error) == (1, True)
    manifest = json.loads((folder / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps(manifest | {"epsilon": 1.9}, indent=2) + "\n")
    assert "fails the audit" in invoke(["report", str(folder)]).error


def test_the_share_without_a_label_is_of_all_records() -> None:
    """Records beyond the bounds of units have labels, of which the limit on unusable ones is a share, too."""
    result: Any = type("Result", (), {})()
    result.binding, result.units = type("Binding", (), {"records": 10, "unusable": 5}), UnitCounts(4, 80, 5)
    assert unusable_share(result) == " (5 % of 100)"


def test_features_of_few_values_leave_no_epsilon_unspent(run: Any, outputs: Path, tmp_path: Path, invoke: Any) -> None:
    """Their sample is that of centers of classes, larger than of others: here, all records."""
    table = pa.concat_tables([TABLES["grades"]().select(["k", "grade"])] * 7)
    log = write_log(tmp_path / "log.parquet", table.append_column("id", pa.array(range(len(table)))))
    run("center of classes", epsilon=1, input=log, center_features="k").ok()
    manifest = json.loads((outputs / "released" / "release.json").read_text())
    assert manifest["class_center"]["cells"] == 3
    assert Fraction(99, 100) < Fraction(manifest["certified_epsilon"]) <= 1
    center = json.loads((outputs / "released" / "center.json").read_text())["center"]
    assert len(center["cells"]["codes"][0]) == len(table) > MOST_SAMPLE
    invoke(["audit", str(outputs / "released")]).ok()


def test_frequent_classes_at_a_large_epsilon_are_warned_of(run: Any, outputs: Path, invoke: Any) -> None:
    for epsilon, expected in ((2, ["frequent_classes"]), (0.5, [])):
        folder = outputs / f"{epsilon}"
        own = {"label": "bought", "label_classes": "false,true", "center_features": "f,k", "output": folder}
        err = run("center of classes, far", **own, epsilon=epsilon, output_format="parquet").ok().err
        assert ("say more than the center: --center none" in err) == bool(expected)
        assert json.loads((folder / "release.json").read_text())["warnings"] == expected
        plant(folder, "release", {"warnings": [] if expected else ["frequent_classes"]})
        assert "frequent_classes" in invoke(["audit", str(folder)]).out
