"""`labeldp plan`: the budget split, the curve and the recommendation, as a table, files and a chart."""

import csv
import json
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms import SQUARED, Prior, mechanism_named
from labeldp.mechanisms.analysis.planning import expected_loss, plan_model, plan_split
from labeldp.study.study_flags import DEFAULT_EPSILONS

LABELS, WEIGHTS = [0.0, 1.0, 2.0, 5.0], [0.5, 0.2, 0.1, 0.2]
PRIOR = "label,weight\n" + "".join(f"{y},{p}\n" for y, p in zip(LABELS, WEIGHTS, strict=True))
SPLIT = ["default_e1", "default_loss", "default_loss_deviation", "best_e1", "best_loss", "best_loss_deviation",
         "known_loss", "flat_loss"]  # fmt: skip
MODEL = ["recommended", "model_e1", "model_error", "model_error_deviation", "bias_part", "variance_part",
         "default_error", "unbiased_error", "rr_on_bins_error", "flat_error"]  # fmt: skip


@pytest.fixture
def plan(invoke: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function (prior's text, flag=value or values, ...) -> the outcome.

    It runs in this process unless --processes is given, for 1,000 records unless --records is given. The JSON is
    written to tmp_path / "plan.json".
    """

    def run(text: str = PRIOR, **flags: Any) -> Any:
        (tmp_path / "prior").write_text(text)
        defaults = {"records": 1000, "draws": 3, "processes": 1, "json": tmp_path / "plan.json"}
        argv = ["plan"]
        for name, value in ({"prior": tmp_path / "prior"} | defaults | flags).items():
            if value is not None:
                argv += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
        return invoke(argv)

    return run


@pytest.fixture
def document(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Function () -> the JSON that `plan` wrote."""
    return lambda: json.loads((tmp_path / "plan.json").read_text())


def test_each_row_is_what_planning_gives(plan: Any, document: Any) -> None:
    plan(epsilon=[2, 0.5], features=3, explained=0.4).ok()

    prior = Prior(np.array(LABELS), np.array(WEIGHTS))
    found = document()
    assert {name: found[name] for name in ("records", "mechanism", "features", "explained", "draws", "loss")} == {
        "records": 1000, "mechanism": "rr_on_bins", "features": 3, "explained": 0.4, "draws": 3, "loss": "squared",
    }  # fmt: skip
    assert [row["epsilon"] for row in found["rows"]] == [2, 0.5]
    for row in found["rows"]:
        assert list(row) == ["epsilon", *SPLIT, *MODEL, "reason"]
        split = plan_split(mechanism_named("rr_on_bins"), prior, 1000, row["epsilon"], expected_loss(prior, SQUARED), 3)
        assert [row[name] for name in SPLIT] == [
            *astuple(split.default)[:3], *astuple(split.best)[:3], split.known_prior, split.uniform_prior,
        ]  # fmt: skip
        model = plan_model(prior, 1000, row["epsilon"], 3, 0.4, 3)
        best = model.split.best
        assert [row[name] for name in MODEL] == [
            model.mechanism, best.prior_epsilon, best.value, best.standard_error, *best.parts,
            model.split.default.value, model.unbiased, model.rr_on_bins, model.split.uniform_prior,
        ]  # fmt: skip
        assert row["reason"] is None


def test_by_default_a_curve_without_a_recommendation(plan: Any, document: Any) -> None:
    out = plan().ok().out

    rows = document()["rows"]
    assert [row["epsilon"] for row in rows] == list(DEFAULT_EPSILONS)
    assert {row[name] for row in rows for name in MODEL} == {None}
    losses = [row["known_loss"] for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert "linear model" not in out
    heading, *lines = out.splitlines()[3:]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        for name, cell in zip(heading.split(), line.split(), strict=True):
            assert float(cell) == pytest.approx(row[name], rel=1e-4), name


def test_a_recommendation_with_its_scale(plan: Any, tmp_path: Path) -> None:
    lines = plan(epsilon=1, features=3, csv=tmp_path / "plan.csv").ok().out.splitlines()
    with (tmp_path / "plan.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)

    assert row["recommended"] in lines[-2]
    mean = np.dot(LABELS, WEIGHTS)
    variance = np.dot(np.square(LABELS), WEIGHTS) - mean**2
    # Four parameters (a constant and three features) on 1,000 records.
    scale = f"for scale: the labels' variance is {variance:.5g}"
    assert lines[-1] == f"{scale}; true labels would add at most {0.004 * variance:.5g}"

    last = plan(epsilon=1, features=3, explained=0.5).ok().out.splitlines()[-1]
    halves = (
        f"{scale}; the features explain {variance / 2:.5g} of it; true labels would add at most {0.002 * variance:.5g}"
    )
    assert last == halves


def test_other_mechanisms_and_losses(plan: Any, document: Any) -> None:
    plan(epsilon=1, mechanism="bias_limited:bias=0.2", loss="absolute").ok()
    (row,) = document()["rows"]
    assert document()["mechanism"] == "bias_limited:bias=0.2"
    assert row["known_loss"] > 0

    plan(epsilon=1, mechanism="gaussian", delta=1e-4).ok()
    assert document()["rows"][0]["known_loss"] > 0


def test_the_same_twice_and_in_two_processes(plan: Any, document: Any) -> None:
    plan(epsilon=[0.5, 1], features=2).ok()
    first = document()
    plan(epsilon=[0.5, 1], features=2, processes=2).ok()
    assert document() == first


def test_a_release_knows_its_records_and_what_it_spent(plan: Any, invoke: Any, job: Any, outputs: Path) -> None:
    invoke(job()).ok()
    manifest = json.loads((outputs / "released" / "release.json").read_text())

    out = plan(prior=outputs / "released", records=None, epsilon=1).ok().out
    assert f"5 labels, noised with epsilon {manifest['prior_epsilon']:.6g}; 1,000 records" in out

    assert "; 7 records" in plan(prior=outputs / "released", records=7, epsilon=1).ok().out


def test_an_epsilon_that_cannot_be_planned_for_is_a_row_that_says_why(plan: Any, document: Any) -> None:
    out = plan(epsilon=[1, 1e-9], features=1).ok().out

    solved, refused = document()["rows"]
    assert solved["reason"] is None
    assert "epsilon must be at least 2e-09" in refused["reason"]
    assert {refused[name] for name in (*SPLIT, *MODEL)} == {None}
    assert refused["reason"] in out


def test_when_nothing_can_be_planned(plan: Any) -> None:
    outcome = plan(epsilon=1, mechanism="bias_limited:bias=-1")
    assert outcome.code == 1
    assert "no epsilon could be planned for" in outcome.error
