"""The ledger and its caps: the charges of a run, releases without a charge, and rejected runs."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("flags", [{"epsilon": 0.5}, {"noise_key_file": None}])
def test_another_request_is_charged(
    job: Any, after_job: Any, invoke: Any, outputs: Path, spent: Any, flags: dict[str, Any]
) -> None:
    after_job()
    once = spent(outputs)
    invoke(job(output=outputs / "other", **flags)).ok()

    assert spent(outputs) == pytest.approx(once + flags.get("epsilon", 1), rel=1e-6)


def test_another_mechanism_shares_the_histogram(job: Any, invoke: Any, outputs: Path, spent: Any, entries: Any) -> None:
    """The same histogram with the same noise is one release; the labels of each mechanism are another."""
    invoke(job(prior_epsilon=0.1)).ok()
    invoke(job(prior_epsilon=0.1, mechanism="rr", output=outputs / "rr")).ok()

    histogram, labels = (charge["epsilon"] for charge in entries(outputs)[0]["charges"])
    assert spent(outputs) == pytest.approx(histogram + 2 * labels, rel=1e-6)
    priors = [json.loads((outputs / name / "mechanism.json").read_text())["prior"] for name in ("released", "rr")]
    assert priors[0] == priors[1]


def test_the_cap_refuses_before_the_start(
    job: Any, after_job: Any, invoke: Any, outputs: Path, monkeypatch: Any, entries: Any
) -> None:
    from labeldp.pipelines.job import job_graph

    after_job(epsilon_cap=1)
    monkeypatch.setattr(job_graph, "run_pipeline", lambda *_: pytest.fail("the job was started"))

    outcome = invoke(job(epsilon=0.5, output=outputs / "more", epsilon_cap=1.4))

    assert outcome.code == 2
    assert "--epsilon_cap 1.4" in outcome.error
    assert "labeldp_ledger.jsonl" in outcome.error
    assert len(entries(outputs)) == 1
    assert not (outputs / "more").exists()


@pytest.mark.parametrize(
    ("epsilons", "cap", "flags"),
    [
        ([0.1] * 3, 0.3, {}),
        ([0.1] * 3, 0.3, {"cap_window": "30d"}),
        ([1.1] * 3, 3.3, {"mechanism": "rr"}),  # its certificate leaves nothing of the budget
        ([0.1, 0.2, 0.4], 0.7, {"mechanism": "rr", "prior_epsilon": 0.05}),
        ([0.8, 0.9], 1.7, {"mechanism": "rr"}),
    ],
)
def test_decimal_budgets_add_up_as_they_are_written(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, spent: Any,
    epsilons: list[float], cap: float, flags: dict[str, Any],
) -> None:  # fmt: skip
    def run(number: int, epsilon: float, **more: Any) -> Any:
        log = write_csv(tmp_path / f"{number}.csv", [f"{row},{(row + number) % 5}" for row in range(300)])
        named = {"input": log, "output": outputs / str(number), "mechanism": "unbiased", "center": "none"}
        named["epsilon_cap"] = cap
        return invoke(job(epsilon=epsilon, **(named | flags | more)))

    for number, epsilon in enumerate(epsilons):
        run(number, epsilon).ok()
        assert spent(outputs) <= sum(Fraction(str(epsilon)) for epsilon in epsilons[: number + 1])
    refused = run(len(epsilons), 1e-6, prior_epsilon=5e-7)
    assert refused.code == 2
    assert f"--epsilon_cap {cap} would be exceeded" in refused.error


def test_fit_and_apply_of_a_decimal_budget_fit_under_it(job: Any, invoke: Any, outputs: Path, spent: Any) -> None:
    for epsilon in (0.1, 0.7, 1.1):
        where = outputs / str(epsilon)
        named = {"mechanism_file": where / "m.json", "ledger": where / "ledger", "epsilon_cap": epsilon}
        where.mkdir()
        invoke(job("fit", epsilon=epsilon, mechanism="rr", **named)).ok()
        invoke(job("apply", output=where / "released", **named)).ok()


def test_apply_publishes_the_prior_again_and_says_so(
    job: Any, after_job: Any, invoke: Any, outputs: Path, tmp_path: Path, spent: Any, entries: Any
) -> None:
    """The prior is charged unless the ledger already has it, so the ledger covers all that a release spent."""
    after_job("fit")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    refused = invoke(job("apply", output=elsewhere / "released", epsilon_cap=0.95))
    assert refused.code == 2
    assert list(elsewhere.iterdir()) == []
    invoke(job("apply", output=elsewhere / "released", epsilon_cap=1)).ok()
    invoke(job("apply")).ok()

    manifest = json.loads((elsewhere / "released" / "release.json").read_text())
    certified = json.loads((elsewhere / "released" / "mechanism.json").read_text())["certificate"]["epsilon"]
    assert spent(elsewhere) == pytest.approx(manifest["prior_epsilon"] + certified, rel=1e-12)
    assert spent(outputs) == spent(elsewhere)
    [prior, _] = entries(elsewhere)[0]["charges"]
    assert [prior] == entries(outputs)[0]["charges"]
    page = tmp_path / "page.html"
    invoke(["report", str(elsewhere / "released"), "--output", str(page)]).ok()
    assert "does not name" not in page.read_text()


def test_a_prior_of_other_data_is_charged_once(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, spent: Any, entries: Any
) -> None:
    invoke(job("fit", ledger=tmp_path / "pilot")).ok()
    for week in range(2):
        path = write_csv(tmp_path / f"{week}.csv", [f"{i},{(i + week) % 5}" for i in range(300)])
        invoke(job("apply", input=path, output=outputs / f"{week}")).ok()

    prior, labels = (charge["epsilon"] for charge in entries(outputs)[0]["charges"])
    assert spent(outputs) == pytest.approx(prior + 2 * labels, rel=1e-12)


@pytest.mark.parametrize("released", [True, False])
def test_a_mechanism_solved_for_a_released_prior_costs_that_prior(
    job: Any, after_job: Any, invoke: Any, outputs: Path, tmp_path: Path, entries: Any, released: bool
) -> None:
    """A mechanism that was solved for a public prior costs only its labels."""
    after_job()
    (tmp_path / "prior.csv").write_text("".join(f"{label},{1 + label}\n" for label in range(5)))
    source = outputs / "released" if released else tmp_path / "prior.csv"
    invoke(["solve", "--prior", str(source), "--epsilon", "0.5", "--output", str(outputs / "mechanism.json")]).ok()
    invoke(job("apply", output=outputs / "more")).ok()

    first, second = (entry["charges"] for entry in entries(outputs))
    assert second[:-1] == (first[:1] if released else [])
    assert [charge["what"] for charge in second][-1] == "labels"


def test_a_release_counts_at_the_most_that_it_was_charged(tmp_path: Path) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry

    ledger = Ledger(str(tmp_path / "ledger"))
    ledger.charge([LedgerEntry("labels", 0.5, "a", 1e-6)], Caps(), request="one")
    ledger.charge([LedgerEntry("labels", 0.25, "a", 2e-6)], Caps(), request="two")
    assert ledger.spent() == (Fraction(1, 2), Fraction("2e-6"))


def test_the_cap_refuses_at_publication_when_the_data_changed(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, tree: Any
) -> None:
    """A repeated request may give the same release, so it starts; with changed data it is another release."""
    path = write_csv(tmp_path / "in.csv", [f"{i},{i % 5}" for i in range(300)])
    invoke(job(input=path, epsilon_cap=1.5)).ok()
    before = tree(outputs)
    write_csv(path, [f"{i},{i % 5 if i else 1}" for i in range(300)])

    outcome = invoke(job(input=path, epsilon_cap=1.5, output=outputs / "second"))

    assert outcome.code == 1
    assert "--epsilon_cap 1.5" in outcome.error
    assert "nothing is released" in outcome.error
    assert tree(outputs) == before


def test_what_cannot_be_charged_is_not_released(job: Any, invoke: Any, outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()

    outcome = invoke(job(ledger=tmp_path / "ledger"))

    assert outcome.code != 0
    assert "ledger" in outcome.error
    assert list(outputs.iterdir()) == []


def test_the_ledger_adds_up_exactly(tmp_path: Path) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry
    from labeldp.transforms import InputError

    ledger = Ledger(str(tmp_path / "ledger"))
    assert ledger.spent() == (0, 0)
    for i in range(10):
        # The sum of the floats is slightly above 1.
        ledger.charge([LedgerEntry("labels", 0.1, f"release {i}")], Caps(1.0), request=f"{i}")
    assert ledger.spent().epsilon == 1
    assert ledger.spent([LedgerEntry("labels", 0.1, "release 3")]) == ledger.spent()

    before = (tmp_path / "ledger").read_bytes()
    with pytest.raises(InputError, match=r"--epsilon_cap 1 would be exceeded: .* spent is 1\.0000000000000002 \("):
        ledger.charge([LedgerEntry("labels", 1e-17, "more")], Caps(1.0), request="more")
    with pytest.raises(InputError, match="--epsilon_cap 1 would be exceeded"):
        ledger.charge([LedgerEntry("labels", 0.1, "release 3")], Caps(float(np.nextafter(1, 0))), request="again")
    assert (tmp_path / "ledger").read_bytes() == before
    ledger.charge([LedgerEntry("labels", 0.1, "release 3")], Caps(1.0), request="again")
    assert ledger.has_request("again")
    assert not ledger.has_request("never")


def test_deltas_have_a_sum_and_a_cap_of_their_own(tmp_path: Path) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry
    from labeldp.transforms import InputError

    ledger = Ledger(str(tmp_path / "ledger"))
    for i in range(2):
        ledger.charge([LedgerEntry("labels", 0.5, f"release {i}", 1e-6)], Caps(), request=f"{i}")
    ledger.charge([LedgerEntry("prior", 0.25, "pure")], Caps(1.25, 2e-6), request="pure")
    assert ledger.spent() == (Fraction(5, 4), Fraction("2e-6"))
    with pytest.raises(InputError, match="--delta_cap 2e-06 would be exceeded: with this run the delta spent is"):
        ledger.charge([LedgerEntry("labels", 0.5, "one more", 1e-7)], Caps(None, 2e-6), request="more")


@pytest.mark.parametrize(
    "charge",
    [
        {"epsilon": -1},
        {"delta": -1e-6},
        {"epsilon": True},
        {"epsilon": "1"},
        {"epsilon": 1e999},
        {"delta": float("nan")},
        {"epsilon": 1e308},
        {"epsilon": 10**400},
        {"delta": 10**400},
    ],
)
def test_a_line_that_is_no_charge_is_named(tmp_path: Path, charge: dict[str, Any]) -> None:
    from labeldp.pipelines.ledger.ledger import Ledger
    from labeldp.transforms import InputError

    entry = {"request": "r", "charges": [{"what": "labels", "epsilon": 1.0, "release": "a"} | charge]}
    good = {"request": "r", "charges": []}
    (tmp_path / "ledger").write_text(f"{json.dumps(good)}\n\n{json.dumps(entry)}\n")
    with pytest.raises(InputError, match=r"ledger .*ledger is corrupt \(line 3\); restore it from a backup"):
        Ledger(str(tmp_path / "ledger")).spent()


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"request": "r", "charges": ' + "[" * 100_000,
        '{"request": "r", "charges": 3}',
        '{"request": "r", "charges": "ab"}',
        '{"request": "r", "charges": [[]]}',
        '{"request": "r", "charges": [{"what": "labels", "epsilon": ' + "9" * 5000 + ', "release": "a"}]}',
        "null",
    ],
    ids=lambda line: line[:40],
)
def test_a_line_that_is_no_run_is_named(job: Any, invoke: Any, outputs: Path, line: str) -> None:
    (outputs / "labeldp_ledger.jsonl").write_text(f'{{"request": "r", "charges": []}}\n{line}\n')
    outcome = invoke(job(epsilon_cap=1))

    assert outcome.code == 1
    assert "labeldp_ledger.jsonl is corrupt (line 2); restore it from a backup" in outcome.error


def test_a_line_break_in_a_name_forges_no_line(job: Any, invoke: Any, outputs: Path) -> None:
    forged = outputs / "released\ncertified  epsilon 0"
    said = invoke(job(output=forged)).ok().out
    assert sum(line.startswith("certified ") for line in said.splitlines()) == 1
    assert "released\\ncertified  epsilon 0" in said
    refused = invoke(job(output=forged))
    assert refused.code == 2
    assert "released\\ncertified" in refused.error


GAUSSIAN = {"mechanism": "gaussian", "delta": 1e-6}


def test_a_delta_is_a_part_of_the_budget(job: Any, invoke: Any, outputs: Path, entries: Any) -> None:
    invoke(job(**GAUSSIAN, epsilon_cap=1, delta_cap=1e-6)).ok()
    manifest = json.loads((outputs / "released" / "release.json").read_text())
    mechanism = json.loads((outputs / "released" / "mechanism.json").read_text())

    assert invoke(["audit", str(outputs / "released")]).code == 0
    assert mechanism["certificate"]["delta"] == manifest["certified_delta"] <= manifest["delta"] == 1e-6
    prior, labels = entries(outputs)[0]["charges"]
    assert "delta" not in prior
    assert (labels["what"], labels["epsilon"], labels["delta"]) == (
        "labels",
        manifest["randomizer_epsilon"],
        manifest["certified_delta"],
    )
    outcome = invoke(job(**GAUSSIAN | {"epsilon": 2}, output=outputs / "more", delta_cap=1.5e-6))
    assert outcome.code == 2
    assert "--delta_cap 1.5e-06" in outcome.error


def test_who_caps_epsilon_alone_expects_pure_privacy(job: Any, invoke: Any, outputs: Path) -> None:
    outcome = invoke(job(**GAUSSIAN, epsilon_cap=1))

    assert outcome.code == 2
    assert "--delta_cap 0 would be exceeded" in outcome.error
    assert list(outputs.iterdir()) == []


def test_a_delta_has_to_be_accepted_where_it_is_applied(job: Any, invoke: Any, outputs: Path) -> None:
    said = invoke(job("fit", **GAUSSIAN)).ok().out
    assert " with delta " in said
    invoke(job("apply", delta=1e-6)).ok()
    assert json.loads((outputs / "released" / "release.json").read_text())["delta"] == 1e-6
