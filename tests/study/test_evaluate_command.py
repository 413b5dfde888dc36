"""`labeldp evaluate`: the grid, table and chart, and rejected arguments."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

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
            "mechanism": ["rr_on_bins", "unbiased"], "epsilon": [1, 4], "model": ["linear"], "seeds": 2, "processes": 1,
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


def test_the_whole_grid_is_in_every_table(evaluation: Any, invoke: Any, tmp_path: Path, tree: Any) -> None:
    published = tmp_path / "published.csv"
    published.write_text(PUBLISHED, encoding="utf-8-sig")
    outcome = invoke(evaluation(published=published, title="A test")).ok()
    folder = tmp_path / "output"
    rows = _rows(folder)

    named = {(row["mechanism"], row["model"], row["epsilon"]) for row in rows}
    private = {(name, "linear", epsilon) for name in ("rr_on_bins", "unbiased") for epsilon in ("1.0", "4.0")}
    assert named == {*private, ("clean", "linear", ""), ("mean_predictor", "mean_predictor", "")}
    assert all(row["seeds"] == "2" and float(row["test_loss"]) > 0 for row in rows)
    assert outcome.out.startswith("A test\n")
    assert "not private" in outcome.out
    picture = (folder / "results-linear.svg").read_text()
    for text in ("A test, linear", "rr_on_bins", "best published", "true labels", "mean predictor"):
        assert f">{text}</" in picture
    assert sorted(tree(folder)) == ["results-linear.svg", "results.csv"]
    assert "labeldp: evaluated 12 of 12" in outcome.err


def test_means_and_deviations_are_over_the_seeds() -> None:
    from labeldp.study.evaluation_cell import Cell, Score
    from labeldp.study.evaluation_results import summarize_cells

    losses = [1.0, 2.5, 3.0]
    (row,) = summarize_cells({Cell("m", 1.0, seed, "linear"): Score(loss) for seed, loss in enumerate(losses)})
    assert row.seeds == 3
    assert row.mean.test_loss == pytest.approx(np.mean(losses))
    assert row.std.test_loss == pytest.approx(np.std(losses, ddof=1))


def test_processes_change_nothing(evaluation: Any, invoke: Any, tmp_path: Path) -> None:
    invoke(evaluation()).ok()
    invoke([*evaluation(output=tmp_path / "others"), "--processes=2"]).ok()
    assert _rows(tmp_path / "others") == _rows(tmp_path / "output")


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
    picture = (tmp_path / "output" / "results-linear.svg").read_text()
    assert ">center earlier alone</" in picture
    assert "unbiased around linear" in outcome.out
    assert "center_loss" in outcome.out


def test_classes_are_scored_by_the_share_of_wrong_ones(invoke: Any, evaluation: Any, tmp_path: Path) -> None:
    """The largest of three features tells the class but of one record in ten; classes are equally frequent."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(4000, 3)).round(3)
    y = np.where(rng.random(4000) < 0.85, x.argmax(axis=1), rng.integers(0, 3, 4000))
    path = tmp_path / "log.csv"
    rows = [f"{a},{b},{c},{'uvw'[k]}" for (a, b, c), k in zip(x, y, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    flags = {"input": path, "label_max": None, "label_min": None, "label_step": None, "label_classes": "u,v,w"}

    invoke(evaluation(**flags, mechanism=None, epsilon=[2], center=["none", "cells"])).ok()

    rows_by_name = {row["mechanism"]: row for row in _rows(tmp_path / "output")}
    assert set(rows_by_name) == {"mean_predictor", "clean", "rr", "rr_top_k", "class_center"}
    losses = {name: float(row["test_loss"]) for name, row in rows_by_name.items()}
    assert losses["mean_predictor"] == pytest.approx(2 / 3, abs=0.05)
    assert all(losses[name] == pytest.approx(0.1, abs=0.04) for name in ("clean", "rr", "rr_top_k", "class_center"))
    # Randomized response keeps a class with probability e^2 / (e^2 + 2).
    assert float(rows_by_name["rr"]["mechanism_error"]) == pytest.approx(2 / (np.exp(2) + 2), abs=0.03)
    assert float(rows_by_name["class_center"]["center_epsilon"]) == pytest.approx(2)


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
    assert stated in outcome.out.splitlines()


def test_a_failure_shows_no_label(
    evaluation: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from labeldp.study import evaluate_command as evaluate

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the label is 3.14159")

    monkeypatch.setattr(evaluate, "score_cell", fail)
    outcome = invoke(evaluation())

    assert outcome.code == 1
    assert "3.14159" not in outcome.err
    assert "RuntimeError" in outcome.error
    assert not (tmp_path / "output" / "results.csv").exists()


def test_a_folder_of_other_things_is_left_alone(evaluation: Any, invoke: Any, tmp_path: Path, tree: Any) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "mine.txt").write_text("mine")

    outcome = invoke(evaluation())

    assert outcome.code == 2
    assert "--output" in outcome.error
    assert tree(tmp_path / "output") == {"mine.txt": b"mine"}
