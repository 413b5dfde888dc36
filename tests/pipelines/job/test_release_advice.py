"""Warnings, debiasing line and verdict of whole jobs: they follow from the released files, and everybody shows them."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from labeldp.mechanisms.analysis.release_warnings import release_warnings, shown_warnings
from labeldp.mechanisms.analysis.verdict import debiasing, verdict
from labeldp.pipelines.publish.manifest import feature_columns
from labeldp.pipelines.publish.released import Released

from tests.written_logs import write_log

ROWS = 6_000


class Printed(NamedTuple):
    """A release, and what its command said."""

    folder: Path
    out: str
    err: str


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of 0..30, most of them above 10; three features and a center."""
    rng = np.random.default_rng(2)
    labels = np.clip(np.rint(rng.normal(18, 6, ROWS)), 0, 30)
    columns = {name: rng.normal(size=ROWS) for name in ("a", "b")} | {"c": ["x"] * ROWS}
    guess = [None if i % 10 else float(label) for i, label in enumerate(labels)]
    path = tmp_path_factory.mktemp("advice") / "log.csv"
    pa_csv.write_csv(pa.table(columns | {"id": np.arange(ROWS), "guess": guess, "y": labels}), path)
    return path


@pytest.fixture(scope="module")
def release(
    log: Path, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Printed]:
    """Function (flag=value, ...) -> a release of the log."""

    def run(**flags: Any) -> Printed:
        folder = tmp_path_factory.mktemp("released") / "released"
        standard = {
            "input": log, "input_format": "csv", "label": "y", "label_min": 0, "label_max": 10, "label_step": 1,
            "epsilon": 1, "id_column": "id", "noise_key_file": key_file, "output": folder, "output_format": "parquet",
            "leave_out": "id",
        }  # fmt: skip
        outcome = invoke(command("privatize", standard | flags)).ok()
        return Printed(folder, outcome.out, outcome.err)

    return run


@pytest.fixture(scope="module")
def clamped(release: Callable[..., Printed]) -> Printed:
    """A domain that is too small for most labels."""
    return release(prior_epsilon=0.1)


def said(err: str) -> list[str]:
    return [line.removeprefix("labeldp: warning: ") for line in err.splitlines() if "warning: " in line]


def check_recomputed(released: Printed) -> list[str]:
    """Recomputes everything that was printed from the files of the release alone; returns the names."""
    read = Released.open(released.folder)
    facts, measured = read.facts, read.measured()
    warnings = release_warnings(facts)
    assert said(released.err) == [warning.text for warning in shown_warnings(facts)]
    assert f"\ndebias     {debiasing(facts).line}\n" in released.out
    judged = verdict(facts, measured)
    assert judged.level in ("good", "small", "averages")
    assert f"\nUse       {judged.text[0].upper()}{judged.text[1:]}\n" in released.out
    names = json.loads((released.folder / "release.json").read_text())["warnings"]
    assert names == [warning.name for warning in warnings]
    return names


def test_a_domain_that_is_too_small(clamped: Printed, invoke: Any) -> None:
    assert "high_end" in check_recomputed(clamped)
    manifest = json.loads((clamped.folder / "release.json").read_text())
    assert (manifest["features"], manifest["loss"]) == (4, "squared")
    assert any("are at the high end of the domain, 10, by the noised histogram" in line for line in said(clamped.err))
    assert "true = (released - " in clamped.out
    assert " a ridge of debiased labels explains " in clamped.out
    assert "PASS" in invoke(["audit", str(clamped.folder)]).ok().out


@pytest.mark.parametrize(
    ("files", "flags", "warned"),
    [
        pytest.param(2, {}, True, id="files of one class each"),
        pytest.param(1, {"num_shards": 3}, True, id="sorted"),
        pytest.param(1, {"num_shards": 3, "output_format": "parquet"}, True, id="sorted, parquet"),
        pytest.param(1, {"num_shards": 3, "shuffle": True}, False, id="shuffled"),
    ],
)
def test_labels_that_file_and_row_tell_are_warned_of(
    files: int, flags: dict[str, Any], warned: bool, key_file: Path, invoke: Any, command: Any, tmp_path: Path
) -> None:
    """The ledger's way to verify a release says the same, and no document has it: it is measured."""
    classes = np.repeat([0, 1], 1_000)
    for number, own in enumerate(np.split(classes, files)):
        write_log(tmp_path / f"{number}.csv", {"x": np.tile([0.0, 1.0], len(own) // 2), "y": own})
    request = {
        "input": tmp_path / "*.csv", "input_format": "csv", "label": "y", "label_classes": "0,1", "epsilon": 3,
        "noise_key_file": key_file, "output": tmp_path / "out", "output_format": "tfrecord", **flags,
    }  # fmt: skip
    err = invoke(command("privatize", request)).ok().err
    assert (
        any("file and row of the records tell about 1" in line or "tell about 9" in line for line in said(err))
        == warned
    )
    assert "position" not in json.loads((tmp_path / "out" / "release.json").read_text())["warnings"]
    verify = {**request, "if_exists": "verify", "result_json": tmp_path / "result.json"}
    invoke(command("privatize", verify)).ok()
    names = json.loads((tmp_path / "result.json").read_text())["labels"]["y"]["warnings"]
    assert ("position" in names) == warned


def test_warnings_that_were_changed_fail_the_audit(clamped: Printed, invoke: Any, tmp_path: Path) -> None:
    folder = tmp_path / "released"
    shutil.copytree(clamped.folder, folder)
    manifest = json.loads((folder / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps(manifest | {"warnings": []}))
    outcome = invoke(["audit", str(folder)])
    assert outcome.code == 1
    assert "FAIL: release.warnings lacks high_end" in outcome.out


def test_the_report_shows_them(clamped: Printed, invoke: Any, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    invoke(["report", str(clamped.folder), f"--output={output}"]).ok()
    page = output.read_text()
    assert "are at the high end of the domain, 10, by the noised histogram" in page
    assert re.search("<dt>Use</dt><dd><p><bdi>[^<]* a ridge of debiased labels explains ", page)
    assert '<pre class="formula">true = (released - ' in page


def test_a_center_with_missing_values_and_poisson_loss_without(release: Callable[..., Printed]) -> None:
    centered = release(label_max=30, center_column="guess")
    assert "missing_centers" in check_recomputed(centered)
    assert "debias     needs none: the labels are unbiased, up to the clipping of residuals" in centered.out
    assert json.loads((centered.folder / "release.json").read_text())["features"] == 3, "the center is no feature"
    poisson = release(label_max=30, mechanism="unbiased", loss="poisson")
    assert "negative_outputs" in check_recomputed(poisson)
    assert "high_end" not in check_recomputed(poisson)


def test_fit_says_what_its_mechanism_file_and_the_records_give(
    log: Path, key_file: Path, invoke: Any, command: Any, tmp_path: Path
) -> None:
    flags = {
        "input": log, "input_format": "csv", "label": "y", "label_min": 0, "label_max": 10, "label_step": 1,
        "epsilon": 1, "prior_epsilon": 0.1, "noise_key_file": key_file, "mechanism_file": tmp_path / "m.json",
    }  # fmt: skip
    outcome = invoke(command("fit", flags)).ok()
    assert any("are at the high end of the domain" in line for line in said(outcome.err))
    assert "\nUse       Measured once labels are released; labeldp plan predicts" in outcome.out


def test_features_are_counted_in_tfrecords_too(tmp_path: Path) -> None:
    columns = {"a": [1.0, 2.0], "b": [None, "x"], "y": [1.0, 2.0], "id": [1, 2]}
    write_log(tmp_path / "part-1.tfrecord", columns)
    shards = {"part-0.tfrecord": 0, "part-1.tfrecord": 2}
    assert feature_columns(str(tmp_path), shards, ["y", "id"]) == 2
    assert feature_columns(str(tmp_path), {"part-0.tfrecord": 0}, ["y"]) is None
