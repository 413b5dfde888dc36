"""A repeated run uses the mechanism of the earlier release, even where its own solver would give another one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def another_cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Function () -> None: from now on, rr_on_bins gives outputs that differ in the last bit, as on another CPU."""
    from labeldp.mechanisms import Randomizer
    from labeldp.mechanisms.response.rr_on_bins import RROnBins

    solve_here = RROnBins.solve

    def solve_there(self: Any, prior: Any, epsilon: float) -> Randomizer:
        found = solve_here(self, prior, epsilon)
        outputs = np.nextafter(found.outputs, np.inf)
        return Randomizer(
            found.labels, outputs, found.weights, found.epsilon, found.mechanism, found.parameters, found.gap
        )

    return lambda: monkeypatch.setattr(RROnBins, "solve", solve_there)


def mechanism_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "mechanism.json").read_text())


def test_a_run_again_on_another_cpu_gives_the_same_bytes_and_costs_nothing(
    job: Any, invoke: Any, outputs: Path, tree: Any, spent: Any, entries: Any, another_cpu: Any
) -> None:
    invoke(job(epsilon_cap=1, num_shards=2)).ok()
    once = spent(outputs)
    another_cpu()
    again = invoke(job(epsilon_cap=1, num_shards=2, output=outputs / "again")).ok()

    assert tree(outputs / "again") == tree(outputs / "released")
    assert spent(outputs) == once <= 1
    assert entries(outputs)[0]["charges"] == entries(outputs)[1]["charges"]
    assert f"it has this release, so nothing is charged; epsilon {float(once):.6g} in all\n" in again.err
    assert invoke(["audit", str(outputs / "again")]).code == 0


def test_a_fit_again_on_another_cpu_gives_the_same_file(
    job: Any, after_job: Any, invoke: Any, outputs: Path, another_cpu: Any
) -> None:
    after_job("fit")
    another_cpu()
    invoke(job("fit", mechanism_file=outputs / "again.json")).ok()

    assert (outputs / "again.json").read_bytes() == (outputs / "mechanism.json").read_bytes()


def spoil(how: str, folder: Path) -> None:
    path = folder / "mechanism.json"
    if how == "deleted":
        shutil.rmtree(folder)
    elif how == "corrupt":
        path.write_text(path.read_text().replace('"bits"', '"bats"'))
    elif how == "of another release":
        shutil.copy(folder.parent / "other" / "mechanism.json", path)
    elif how == "with another prior":
        document = json.loads(path.read_text())
        document["prior"]["weights"][0] = float(np.nextafter(document["prior"]["weights"][0], 1))
        path.write_text(json.dumps(document))


@pytest.mark.parametrize("how", ["deleted", "corrupt", "of another release", "with another prior"])
def test_without_the_earlier_release_the_labels_are_charged_again_and_the_run_says_so(
    job: Any, after_job: Any, invoke: Any, outputs: Path, spent: Any, entries: Any, another_cpu: Any, how: str
) -> None:
    after_job()
    first = mechanism_of(outputs / "released")["fingerprint"]
    if how == "of another release":
        invoke(job(epsilon=0.5, output=outputs / "other", ledger=outputs / "elsewhere")).ok()
    spoil(how, outputs / "released")
    another_cpu()

    refused = invoke(job(output=outputs / "again", epsilon_cap=1))
    assert refused.code == 1
    assert "--epsilon_cap 1 would be exceeded" in refused.error
    assert f"this run repeats the release {outputs / 'released'}, but its labels are a charge of their own" in (
        refused.error
    )
    assert not (outputs / "again").exists()
    assert len(entries(outputs)) == 1

    charged = invoke(job(output=outputs / "again")).ok()
    assert "labels are a charge of their own" in charged.err
    prior, labels = entries(outputs)[0]["charges"]
    assert spent(outputs) == pytest.approx(prior["epsilon"] + 2 * labels["epsilon"], rel=1e-9)
    assert mechanism_of(outputs / "again")["fingerprint"] != first


def test_without_the_earlier_release_the_same_cpu_repeats_it(
    job: Any, after_job: Any, invoke: Any, outputs: Path, spent: Any
) -> None:
    """The mechanism that is computed is the same, so that nothing is charged."""
    after_job()
    once = spent(outputs)
    shutil.rmtree(outputs / "released")
    again = invoke(job(epsilon_cap=1)).ok()

    assert spent(outputs) == once
    assert "so nothing is charged; " in again.err


def test_another_input_or_key_does_not_use_the_mechanism(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, other_key_file: Path, another_cpu: Any
) -> None:
    path = write_csv(tmp_path / "in.csv", [f"{i},{i % 5}" for i in range(300)])
    invoke(job(input=path)).ok()
    first = mechanism_of(outputs / "released")["fingerprint"]
    another_cpu()
    invoke(job(input=path, noise_key_file=other_key_file, output=outputs / "key")).ok()
    write_csv(path, [f"{i},{i % 5 if i else 1}" for i in range(300)])
    said = invoke(job(input=path, output=outputs / "changed")).ok().err

    for name in ("key", "changed"):
        assert mechanism_of(outputs / name)["fingerprint"] != first
    assert "a charge of their own" not in said  # a changed input is an ordinary release


def test_the_latest_mechanisms_of_at_most_eight_inputs_are_read(
    job: Any, after_job: Any, invoke: Any, outputs: Path
) -> None:
    from labeldp.pipelines.ledger.ledger import Caps, Ledger
    from labeldp.pipelines.publish.release_steps import earlier_mechanisms

    after_job()
    ledger = Ledger(str(outputs / "labeldp_ledger.jsonl"))
    [run] = ledger.runs()
    details = {name: run[name] for name in ("command", "request", "mechanism_fingerprint", "output")}
    for digest in range(10):
        ledger.charge([], Caps(), **details, input_digest=f"{digest:064x}")
    ledger.charge([], Caps(), **details | {"output": str(outputs / "gone")}, input_digest=f"{9:064x}")
    for broken in ({"output": None}, {"mechanism_fingerprint": "00"}, {"command": "fit"}):
        ledger.charge([], Caps(), **details | broken, input_digest=f"{77:064x}")
    ledger.charge([], Caps(), **details, input_digest="no digest")
    ledger.charge([], Caps(), request=run["request"])

    found = earlier_mechanisms(ledger, run["request"])
    assert [each.digest for each in found] == [9, 8, 7, 6, 5, 4, 3, 2]
    assert {each.drawing.fingerprint for each in found} == {run["mechanism_fingerprint"]}
    assert earlier_mechanisms(ledger, "another request") == ()
