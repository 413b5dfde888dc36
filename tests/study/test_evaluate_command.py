"""`labeldp evaluate`: the grid, cached cells, tables and charts, and rejected arguments."""

import csv
import importlib.util
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")
pytestmark = pytest.mark.xdist_group("evaluate")

RECORDS = 600
PUBLISHED = "mechanism,epsilon,mean,std\nTheirs,1,1.5,0.25\nOthers,1,2.5,0.5\n"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CSV file with a number x, a text, and y in 0..4, which depends on x only."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=RECORDS).round(3)
    y = np.clip(np.round(2 + x + 0.3 * rng.normal(size=RECORDS)), 0, 4).astype(int)
    path = tmp_path_factory.mktemp("log") / "log.csv"
    rows = [f"{a},{'abc'[i % 3]},{b}" for i, (a, b) in enumerate(zip(x, y, strict=True))]
    path.write_text("\n".join(["x,text,y", *rows]) + "\n")
    return path


@pytest.fixture
def evaluation(log: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Function (flag=value, ...) -> arguments of a valid evaluation with those flags; a list gives several values."""

    def arguments(**changes: Any) -> list[str]:
        given: dict[str, Any] = {
            "input": log, "input_format": "csv", "label": "y", "label_min": 0, "label_max": 4, "label_step": 1,
            "mechanism": ["rr_on_bins", "unbiased"], "epsilon": [1, 4], "model": ["linear"], "seeds": 2,
            "output": tmp_path / "output",
        }  # fmt: skip
        argv = ["evaluate"]
        for name, value in (given | changes).items():
            if isinstance(value, list):
                argv += [f"--{name}", *map(str, value)]
            elif value is not None:
                argv.append(f"--{name}={value}")
        return argv

    return arguments


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _cells(tree: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in tree.items() if name.startswith("cells")}


def _results(tree: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in tree.items() if not name.startswith("cells")}


def test_the_whole_grid_is_in_every_table(evaluation: Any, invoke: Any, tmp_path: Path, tree: Any) -> None:
    published = tmp_path / "published.csv"
    published.write_text(PUBLISHED, encoding="utf-8-sig")
    outcome = invoke(evaluation(published=published, title="A test")).ok()
    folder = tmp_path / "output"
    rows = _rows(folder)
    document = json.loads((folder / "results.json").read_text())
    page = (folder / "results.md").read_text()

    named = {(row["mechanism"], row["model"], row["epsilon"]) for row in rows}
    private = {(name, "linear", epsilon) for name in ("rr_on_bins", "unbiased") for epsilon in ("1.0", "4.0")}
    assert named == {*private, ("clean", "linear", ""), ("mean_predictor", "mean_predictor", "")}
    assert all(row["seeds"] == "2" and float(row["test_loss"]) > 0 for row in rows)
    assert [row["test_loss"] for row in document["rows"]] == [float(row["test_loss"]) for row in rows]
    assert document["records"] == RECORDS
    assert document["domain"] == {"min": 0.0, "max": 4.0, "labels": 5}
    assert "| 1.500 ± 0.250 (Theirs) |" in page
    assert page.startswith("# A test\n")
    for text in (page, outcome.out, document["warning"], (folder / "results.txt").read_text()):
        assert "not private" in text
    picture = (folder / "results-linear.svg").read_text()
    for text in ("A test, linear", "rr_on_bins", "best published", "true labels", "mean predictor"):
        assert f">{text}</" in picture
    assert len(_cells(tree(folder))) == 2 * (1 + 1 + 4)
    assert "labeldp: evaluated 12 of 12" in outcome.err


def test_means_and_deviations_are_over_the_seeds(evaluation: Any, invoke: Any, tmp_path: Path, tree: Any) -> None:
    invoke(evaluation(mechanism=["unbiased"], epsilon=[1], seeds=3)).ok()
    kept = [json.loads(content) for content in _cells(tree(tmp_path / "output")).values()]
    losses = [each["score"]["test_loss"] for each in kept if each["cell"]["mechanism"] == "unbiased"]
    row = next(row for row in _rows(tmp_path / "output") if row["mechanism"] == "unbiased")

    assert len(set(losses)) == 3
    assert float(row["test_loss"]) == pytest.approx(np.mean(losses))
    assert float(row["test_loss_std"]) == pytest.approx(np.std(losses, ddof=1))


def test_only_missing_cells_are_computed(
    evaluation: Any, invoke: Any, tmp_path: Path, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.study import evaluate_command as evaluate

    invoke(evaluation()).ok()
    before = tree(tmp_path / "output")
    lost = sorted(_cells(before))[:3]
    for name in lost:
        (tmp_path / "output" / name).unlink()
    computed = []
    score = evaluate.score_cell
    monkeypatch.setattr(evaluate, "score_cell", lambda cell, *rest: computed.append(cell) or score(cell, *rest))

    outcome = invoke(evaluation()).ok()

    after = tree(tmp_path / "output")
    assert sorted(str(cell) for cell in computed) == sorted(
        str(evaluate.Cell(**json.loads(before[name])["cell"])) for name in lost
    )
    assert "9 of 12 cells were computed before" in outcome.err
    assert _results(after) == _results(before)
    assert {name: content for name, content in after.items() if name not in lost} == {
        name: content for name, content in before.items() if name not in lost
    }


def test_a_finished_grid_is_tabled_without_a_job_and_can_grow(
    evaluation: Any, invoke: Any, tmp_path: Path, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labeldp.study import evaluate_command as evaluate

    invoke(evaluation(epsilon=[1])).ok()
    invoke(evaluation(epsilon=[1, 4])).ok()
    assert len(_cells(tree(tmp_path / "output"))) == 12

    monkeypatch.setattr(evaluate, "score_cell", lambda *_: pytest.fail("nothing is missing"))
    invoke(evaluation(epsilon=[4], seeds=1)).ok()

    assert {row["epsilon"] for row in _rows(tmp_path / "output")} == {"", "4.0"}
    assert {row["seeds"] for row in _rows(tmp_path / "output")} == {"1"}


def test_changed_records_are_evaluated_anew(evaluation: Any, invoke: Any, tmp_path: Path, log: Path, tree: Any) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_text(log.read_text())
    small = {"input": copy, "mechanism": ["unbiased"], "epsilon": [4], "seeds": 1}
    invoke(evaluation(**small)).ok()
    first = _rows(tmp_path / "output")
    copy.write_text(log.read_text().replace(",0\n", ",1\n", 1))

    invoke(evaluation(**small)).ok()

    assert len(_cells(tree(tmp_path / "output"))) == 6
    assert _rows(tmp_path / "output") != first


def test_centers_are_in_every_table_and_lower_the_loss(invoke: Any, evaluation: Any, tmp_path: Path) -> None:
    """Features explain all but a standard deviation of 1 of the labels, the column `earlier` all but one of 3."""
    rng = np.random.default_rng(4)
    x, z, text = rng.normal(size=3000).round(3), rng.normal(size=3000).round(3), rng.choice(["u", "v", "w"], 3000)
    y = np.clip(20 + 5 * x - 2 * z + 4 * (text == "u") + rng.normal(size=3000), 0, 40).round().astype(int)
    earlier = (y + rng.normal(0, 3, 3000)).round(2)
    path = tmp_path / "log.csv"
    rows = [",".join(map(str, row)) for row in zip(x, z, text, earlier, y, strict=True)]
    path.write_text("\n".join(["x,z,text,earlier,y", *rows]) + "\n")
    flags: dict[str, Any] = {
        "input": path, "label_max": 40, "mechanism": ["unbiased"], "epsilon": [0.5], "feature": ["x", "z", "text"],
        "center": ["none", "linear"], "center_column": "earlier",
    }  # fmt: skip

    outcome = invoke(evaluation(**flags)).ok()

    rows_by_name = {row["mechanism"]: row for row in _rows(tmp_path / "output")}
    assert {"unbiased", "unbiased around linear", "unbiased around earlier"} < set(rows_by_name)
    losses = {name: float(row["test_loss"]) for name, row in rows_by_name.items()}
    assert losses["unbiased around linear"] < 0.7 * losses["unbiased"]
    # This center alone has a loss of 9: it is not much better than a model of labels without a center.
    assert losses["unbiased around earlier"] < losses["unbiased"]
    around = rows_by_name["unbiased around linear"]
    assert around["center"] == "linear"
    assert 0 < float(around["center_epsilon"]) < 0.5
    assert float(rows_by_name["unbiased around earlier"]["center_epsilon"]) == 0
    assert float(rows_by_name["unbiased around earlier"]["center_loss"]) == pytest.approx(9, rel=0.2)
    assert rows_by_name["unbiased"]["center_loss"] == ""
    page = (tmp_path / "output" / "results.md").read_text()
    assert "| center linear alone | center earlier alone |" in page
    assert "unbiased around linear" in outcome.out
    assert "center_loss" in outcome.out


def test_csv_and_parquet_give_the_same_scores(evaluation: Any, invoke: Any, tmp_path: Path, log: Path) -> None:
    pq.write_table(pyarrow.csv.read_csv(log), tmp_path / "log.parquet")
    small = {"mechanism": ["unbiased"], "epsilon": [4], "seeds": 1}
    invoke(evaluation(**small)).ok()
    other = {"input": tmp_path / "log.parquet", "input_format": "parquet", "output": tmp_path / "other"}
    invoke(evaluation(**small, **other)).ok()

    assert _rows(tmp_path / "other") == _rows(tmp_path / "output")


def test_chosen_features_are_all_that_models_see(evaluation: Any, invoke: Any, tmp_path: Path) -> None:
    """The text is independent of the label: with it alone, training on true labels does not beat the mean."""
    invoke(evaluation(mechanism=["unbiased"], epsilon=[4], feature=["text"])).ok()
    losses = {row["mechanism"]: float(row["test_loss"]) for row in _rows(tmp_path / "output")}

    assert losses["clean"] == pytest.approx(losses["mean_predictor"], rel=0.1)


def test_features_of_recipients_are_for_models_alone(evaluation: Any, invoke: Any, tmp_path: Path, log: Path) -> None:
    """The label depends on x: with it recipients predict more, from the very labels of a log without it."""
    table = pyarrow.csv.read_csv(log)
    pyarrow.csv.write_csv(table.drop_columns(["x"]), tmp_path / "log.csv")
    grid = {"mechanism": ["unbiased"], "epsilon": [4], "center": ["none", "linear"]}
    invoke(evaluation(**grid, input=tmp_path / "log.csv", output=tmp_path / "without")).ok()
    invoke(evaluation(**grid, output=tmp_path / "all")).ok()
    outcome = invoke(evaluation(**grid, recipient_feature=["x"])).ok()

    without, known, ours = (
        {row["mechanism"]: row for row in _rows(tmp_path / folder)} for folder in ("without", "all", "output")
    )
    around = "unbiased around linear"
    for fact in ("center_loss", "mechanism_error", "bias", "rms_bias", "range", "clipped"):
        assert ours[around][fact] == without[around][fact] != known[around][fact]
    assert float(ours[around]["test_loss"]) < 0.7 * float(without[around]["test_loss"])
    for name in ("clean", "unbiased"):
        assert ours[name]["test_loss"] == known[name]["test_loss"]
    assert {row["recipient_features"] for row in ours.values()} == {"x"}
    assert {row["recipient_features"] for row in known.values()} == {""}
    stated = "Recipients have features that the log lacks: x. Models are trained on them, centers made without."
    for text in (outcome.out, (tmp_path / "output" / "results.md").read_text()):
        assert stated in text.splitlines()
    assert json.loads((tmp_path / "output" / "results.json").read_text())["recipient_features"] == ["x"]


def test_killed_half_way_and_run_again_is_as_if_never_killed(
    evaluation: Any, invoke: Any, forked: Any, tmp_path: Path, tree: Any
) -> None:
    grid = {"epsilon": [0.5, 1, 2, 4], "seeds": 20}
    job = forked(evaluation(**grid))
    cells = tmp_path / "output" / "cells"
    until = time.monotonic() + 60
    while time.monotonic() < until and job.process.is_alive() and not (cells.is_dir() and len(os.listdir(cells)) > 5):
        time.sleep(0.02)
    os.kill(job.pid, signal.SIGTERM)
    outcome = job.wait()
    error = outcome.err
    assert outcome.code == 1, error
    assert error.splitlines()[-1] == "labeldp evaluate: interrupted; finished cells are kept: run again to continue"
    kept = {name: content for name, content in _cells(tree(tmp_path / "output")).items() if name.endswith(".json")}
    assert 5 < len(kept) < 20 * 10
    assert not (tmp_path / "output" / "results.csv").exists()

    resumed = invoke(evaluation(**grid)).ok()
    invoke(evaluation(**grid, output=tmp_path / "whole")).ok()

    assert f"{len(kept)} of {20 * 10} cells were computed before" in resumed.err
    assert kept.items() <= tree(tmp_path / "output").items()
    assert _results(tree(tmp_path / "output")) == _results(tree(tmp_path / "whole"))


def test_a_corrupt_cell_is_named(evaluation: Any, invoke: Any, tmp_path: Path, tree: Any) -> None:
    small = evaluation(mechanism=["unbiased"], epsilon=[1], seeds=1)
    invoke(small).ok()
    name = sorted(_cells(tree(tmp_path / "output")))[0]
    (tmp_path / "output" / name).write_text("{")

    outcome = invoke(small)

    assert outcome.code == 1
    assert name in outcome.error
    assert "delete it" in outcome.error


def test_records_that_change_while_they_are_evaluated_fail_the_job(log: Path, tmp_path: Path) -> None:
    import apache_beam as beam
    from labeldp.study.evaluate_command import EvaluateCells
    from labeldp.study.evaluation_cell import Cell, CellStore, Task
    from labeldp.study.evaluation_grid import DatasetSource
    from labeldp.transforms import Format

    source = DatasetSource(str(log), Format("csv"), "y", None, None)
    stage = EvaluateCells(source, Task("y", (0.0, 4.0)), CellStore(str(tmp_path)), digest="of other records")
    with pytest.raises(Exception, match="changed while"), beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | beam.Create([("key", Cell("unbiased", 1.0, 0, "linear"))]) | stage
    assert not (tmp_path / "cells").exists()


def test_a_failure_shows_no_label(
    evaluation: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from labeldp.study import evaluate_command as evaluate

    def fail(*_: Any) -> None:
        raise RuntimeError("the label is 3.14159")

    monkeypatch.setattr(evaluate, "score_cell", fail)
    outcome = invoke(evaluation())

    assert outcome.code == 1
    assert "3.14159" not in outcome.err
    assert "RuntimeError" in outcome.error
    assert not (tmp_path / "output" / "results.csv").exists()


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_the_network_runs(evaluation: Any, forked: Any, invoke: Any, tmp_path: Path) -> None:
    outcome = forked(evaluation(mechanism=["unbiased"], epsilon=[8], seeds=1, model=["network"])).wait().ok()
    losses = {row["mechanism"]: float(row["test_loss"]) for row in _rows(tmp_path / "output")}
    # Worker threads share the functions that TensorFlow compiles.
    others = evaluation(mechanism=["unbiased"], epsilon=[8], seeds=1, model=["network"], output=tmp_path / "others")
    invoke([*others, "--direct_num_workers=2"]).ok()

    assert outcome.errors == []
    assert losses == {row["mechanism"]: float(row["test_loss"]) for row in _rows(tmp_path / "others")}
    assert losses["clean"] < 0.5 * losses["mean_predictor"]
    assert losses["unbiased"] < 0.7 * losses["mean_predictor"]
    assert (tmp_path / "output" / "results-network.svg").exists()


def test_a_folder_of_other_things_is_left_alone(evaluation: Any, invoke: Any, tmp_path: Path, tree: Any) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "mine.txt").write_text("mine")

    outcome = invoke(evaluation())

    assert outcome.code == 2
    assert "--output" in outcome.error
    assert tree(tmp_path / "output") == {"mine.txt": b"mine"}
