"""`labeldp solve`: a prior in, an audited mechanism and one line of JSON out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.pipelines.cli.commands import main

from tests.audit.written_files import noised_prior

KEYS = {"mechanism", "labels", "outputs", "epsilon", "prior_epsilon", "loss", "max_bias", "seconds"}
LABELS, WEIGHTS = [1.0, 2.0, 3.0, 6.0], [4.0, 3.0, 2.0, 1.0]
PRIORS = {
    "with_header.csv": "label,weight\n1,4\n2,3\n3,2\n6,1\n",
    "in_any_order.csv": "6,1\n3,2\n\n1,4\n2,3\n",
    "object.json": json.dumps({"labels": LABELS, "weights": WEIGHTS}),
    "mechanism.json": json.dumps({"labels": LABELS, "prior": {"weights": [w / 10 for w in WEIGHTS], "epsilon": 0.0}}),
}


@pytest.fixture
def solve(invoke: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function (text of the prior, flag=value, ...) -> the outcome. The mechanism goes to tmp_path / "solved.json"."""

    def run(text: str = PRIORS["object.json"], **flags: Any) -> Any:
        (tmp_path / "prior").write_text(text)
        (tmp_path / "solved.json").unlink(missing_ok=True)
        flags = {"prior": tmp_path / "prior", "epsilon": 1, "output": tmp_path / "solved.json"} | flags
        return invoke(["solve", *(f"--{name}={value}" for name, value in flags.items() if value is not None)])

    return run


def probabilities_of(mechanism: dict[str, Any]) -> np.ndarray:
    """(k, m) float64, from the integers of a mechanism file."""
    columns = [[int(weight) for weight, times in runs for _ in range(times)] for runs in mechanism["columns"]]
    return np.array(columns, np.float64).T / 2.0 ** mechanism["bits"]


@pytest.mark.parametrize("name", ["rr_on_bins", "rr"])
@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_one_line_of_facts_and_an_audited_file(solve: Any, invoke: Any, tmp_path: Path, name: str, loss: str) -> None:
    outcome = solve(mechanism=name, loss=loss).ok()

    assert outcome.out.count("\n") == 1
    facts = json.loads(outcome.out)
    assert set(facts) - {"gap"} == KEYS
    mechanism = json.loads((tmp_path / "solved.json").read_text())
    p, y, c = probabilities_of(mechanism), np.array(mechanism["labels"]), np.array(mechanism["outputs"])
    assert facts["mechanism"] == mechanism["mechanism"] == name
    assert facts["labels"] == len(y) == len(LABELS)
    assert facts["outputs"] == len(c)
    assert facts["epsilon"] == mechanism["certificate"]["epsilon"] == pytest.approx(1, rel=1e-9)
    assert facts["epsilon"] <= 1
    assert np.log((p.max(axis=0) / p.min(axis=0)).max()) == pytest.approx(facts["epsilon"], rel=1e-9)
    losses = {
        "squared": (c - y[:, None]) ** 2,
        "absolute": abs(c - y[:, None]),
        "poisson": c - y[:, None] * np.log(c),
    }
    weights = np.array(WEIGHTS) / sum(WEIGHTS)
    assert facts["loss"] == pytest.approx(weights @ (p * losses[loss]).sum(axis=1), rel=1e-9)
    assert facts["max_bias"] == pytest.approx(abs(p @ c - y).max(), rel=1e-9)
    assert facts["seconds"] >= 0
    audit = invoke(["audit", str(tmp_path / "solved.json")]).ok()
    assert audit.out.endswith("PASS\n")


def test_the_line_is_strict_json_whatever_the_loss(solve: Any) -> None:
    """The Poisson log loss of the output 0 is infinite, which JSON cannot represent."""
    outcome = solve("0,1\n1,1\n", mechanism="rr", loss="poisson")

    if outcome.code == 0:
        json.loads(outcome.out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    else:
        assert outcome.code == 2
        assert "--loss" in outcome.error


@pytest.mark.parametrize("name", PRIORS)
def test_every_form_of_a_prior(solve: Any, tmp_path: Path, name: str) -> None:
    facts = json.loads(solve(PRIORS[name]).ok().out)
    same = json.loads(solve(PRIORS["object.json"]).ok().out)

    assert facts["labels"] == len(LABELS)
    for fact in ("epsilon", "loss", "max_bias"):
        assert facts[fact] == pytest.approx(same[fact], rel=1e-12)


def test_what_a_released_prior_spent_stays_spent(
    solve: Any, invoke: Any, job: Any, tmp_path: Path, outputs: Path
) -> None:
    """The budget of labels from a mechanism solved for a noised histogram includes that of the histogram."""
    facts = json.loads(solve(noised_prior([0.0, 1.0, 2.0, 3.0, 4.0], [20] * 5, 0.25)).ok().out)
    assert facts["prior_epsilon"] == 0.25
    text = (tmp_path / "solved.json").read_text()
    assert (json.loads(text)["prior"]["epsilon"], json.loads(text)["prior"]["label"]) == (0.25, "y")
    assert json.loads(solve(text).ok().out)["prior_epsilon"] == 0.25

    invoke(job("apply", mechanism_file=tmp_path / "solved.json")).ok()

    [manifest] = [json.loads(path.read_text()) for path in outputs.glob("*/release.json")]
    assert manifest["prior_epsilon"] == 0.25
    assert 1.25 >= manifest["certified_epsilon"] >= 0.25 + facts["epsilon"]


def test_its_own_file_is_a_prior_and_fits_apply(
    solve: Any, invoke: Any, job: Any, tmp_path: Path, outputs: Path, spent: Any
) -> None:
    """A public prior has no cost: only the labels are charged."""
    prior = json.dumps({"labels": [0.0, 1.0, 2.0, 3.0, 4.0], "weights": [1.0] * 5})
    facts = json.loads(solve(prior).ok().out)
    text = (tmp_path / "solved.json").read_text()
    assert json.loads(solve(text).ok().out)["loss"] == pytest.approx(facts["loss"], rel=1e-12)
    assert json.loads(text)["prior"]["epsilon"] == 0

    invoke(job("apply", mechanism_file=tmp_path / "solved.json")).ok()

    assert spent(outputs) == facts["epsilon"] <= 1


def test_401_labels_take_less_than_a_fifth_of_a_second(solve: Any) -> None:
    weights = np.exp(-np.arange(401) / 100.0)
    prior = json.dumps({"labels": list(range(401)), "weights": weights.tolist()})

    seconds = min(json.loads(solve(prior).ok().out)["seconds"] for _ in range(3))

    assert 0 < seconds < 0.2


def test_gaussian_needs_a_delta_and_says_what_it_came_to(solve: Any, invoke: Any, tmp_path: Path) -> None:
    outcome = solve(mechanism="gaussian")
    assert outcome.code == 2
    assert "--delta" in outcome.error

    line = json.loads(solve(mechanism="gaussian", delta=1e-6).ok().out)
    assert 0 < line["delta"] <= 1e-6
    assert invoke(["audit", str(tmp_path / "solved.json")]).code == 0


def test_parameters_reach_the_mechanism(tmp_path, capsys):
    prior = tmp_path / "prior.csv"
    prior.write_text("0,1\n1,2\n2,1\n5,3\n")
    flags = ["--prior", str(prior), "--epsilon", "1", "--output", str(tmp_path / "m")]
    assert main(["solve", *flags, "--mechanism", "bias_limited:bias=0.2"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert 0.9 <= line["max_bias"] <= 1.0 + 1e-9
    assert line["gap"] <= 1e-6
