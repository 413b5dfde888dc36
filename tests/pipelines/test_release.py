"""What becomes public and when: the manifest, the ledger and its cap, fit and apply, staging, publishing, signals."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

WAIT_SECONDS = 60
DOMAIN_FLAGS = ("label_min", "label_max", "label_step", "epsilon")


def entries(folder: Path) -> list[dict[str, Any]]:
    """The lines of the ledger in folder."""
    return [json.loads(line) for line in (folder / "labeldp_ledger.jsonl").read_text().splitlines()]


def manifest_of(output: Path) -> dict[str, Any]:
    """The manifest in an output folder."""
    return json.loads((output / "release.json").read_text())


# The output folder and its manifest.


def test_the_output_holds_what_the_design_says_and_nothing_else(
    job: Any, invoke: Any, outputs: Path, tree: Any
) -> None:
    invoke(job(num_shards=2)).ok()

    assert sorted(tree(outputs)) == [
        "labeldp_ledger.jsonl",
        "released/data/part-00000-of-00002.parquet",
        "released/data/part-00001-of-00002.parquet",
        "released/mechanism.json",
        "released/release.json",
    ]


def test_the_manifest_adds_up(job: Any, invoke: Any, outputs: Path) -> None:
    invoke(job(epsilon=0.7, prior_epsilon=0.2, where="f=7", num_shards=2)).ok()
    manifest = manifest_of(outputs / "released")
    mechanism = json.loads((outputs / "released" / "mechanism.json").read_text())

    assert manifest["epsilon"] == 0.7
    assert manifest["prior_epsilon"] == 0.2 == mechanism["prior"]["epsilon"]
    assert manifest["randomizer_epsilon"] == mechanism["epsilon"]
    assert Fraction(0.2) + Fraction(mechanism["epsilon"]) <= Fraction(0.7)
    spent = Fraction(0.2) + Fraction(mechanism["certificate"]["epsilon"])
    assert spent <= Fraction(manifest["certified_epsilon"]) <= Fraction(0.7)
    assert manifest["mechanism_fingerprint"] == mechanism["fingerprint"]
    assert manifest["mechanism"] == mechanism["mechanism"] == "rr_on_bins"
    assert "differ in the label of one record" in manifest["adjacency"]
    assert manifest["domain"] == {"min": 0.0, "max": 4.0, "labels": 5}
    assert (manifest["records"], manifest["records_without_label"]) == (1, 0)
    assert manifest["where"] == "f=7"
    assert sum(manifest["shards"].values()) == 1
    assert sorted(manifest["shards"]) == sorted(path.name for path in (outputs / "released" / "data").iterdir())
    assert len(bytes.fromhex(manifest["input_digest"])) == 32
    assert manifest["max_bias"] == mechanism["certificate"]["max_bias"]


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_the_expected_loss_is_that_of_the_mechanism(job: Any, invoke: Any, outputs: Path, loss: str) -> None:
    """Recomputed from the integers and the noised histogram in mechanism.json."""
    invoke(job(loss=loss)).ok()
    mechanism = json.loads((outputs / "released" / "mechanism.json").read_text())
    columns = [[int(w) for w, n in runs for _ in range(n)] for runs in mechanism["columns"]]
    y, c = np.array(mechanism["labels"])[:, None], np.array(mechanism["outputs"])[None, :]
    losses = {"squared": (c - y) ** 2, "absolute": abs(c - y), "poisson": c - y * np.log(c)}[loss]
    weights = np.array(mechanism["prior"]["weights"])
    expected = weights @ (np.array(columns, float).T / 2.0 ** mechanism["bits"] * losses).sum(axis=1)

    assert manifest_of(outputs / "released")["expected_loss"][loss] == pytest.approx(expected / weights.sum(), rel=1e-9)


def test_the_manifest_names_the_input_by_a_keyed_digest(
    job: Any, invoke: Any, outputs: Path, other_key_file: Path
) -> None:
    digests = []
    for number, flags in enumerate([{}, {"noise_key_file": other_key_file}, {"epsilon": 2}]):
        invoke(job(output=outputs / f"{number}", **flags)).ok()
        digests.append(manifest_of(outputs / f"{number}")["input_digest"])

    assert digests[0] == digests[2]  # of the same labels under the same key
    assert digests[0] != digests[1]


@pytest.mark.parametrize("label", ["y", "z"])
def test_another_label_column_of_the_same_values_has_noise_of_its_own(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, label: str
) -> None:
    """Were it the same, equal outputs would show that the columns are equal."""
    path = write_csv(tmp_path / "in.csv", [f"{i},{i % 5},{i % 5}" for i in range(1000)], "f,y,z")
    invoke(job(input=path, label=label)).ok()
    table = pq.read_table(outputs / "released" / "data")
    other = {"y": "z", "z": "y"}[label]

    assert table.column(other).to_pylist() == [i % 5 for i in range(1000)]
    (tmp_path / "seen").mkdir()
    invoke(job(input=path, label=other, output=tmp_path / "seen" / "other")).ok()
    of_other = pq.read_table(tmp_path / "seen" / "other" / "data").column(other)
    assert table.column(label).to_pylist() != of_other.to_pylist()


# Fit and apply.


@pytest.fixture
def fitted(job: Any, invoke: Any, outputs: Path) -> Path:
    """A mechanism file, fitted on `small_log` with epsilon 1."""
    invoke(job("fit")).ok()
    return outputs / "mechanism.json"


def test_fit_writes_the_mechanism_and_charges_the_histogram(fitted: Path, invoke: Any, outputs: Path) -> None:
    mechanism = json.loads(fitted.read_text())

    assert sorted(path.name for path in outputs.iterdir()) == ["labeldp_ledger.jsonl", "mechanism.json"]
    assert invoke(["audit", str(fitted)]).code == 0
    (entry,) = entries(outputs)
    assert [(charge["what"], charge["epsilon"]) for charge in entry["charges"]] == [
        ("prior", mechanism["prior"]["epsilon"])
    ]
    assert mechanism["prior"]["epsilon"] + mechanism["epsilon"] == pytest.approx(1, rel=1e-12)


def test_fit_refuses_a_file_that_exists(job: Any, invoke: Any, fitted: Path) -> None:
    before = fitted.read_bytes()

    outcome = invoke(job("fit", epsilon=2))

    assert outcome.code == 2
    assert "--mechanism_file" in outcome.error
    assert str(fitted) in outcome.error
    assert fitted.read_bytes() == before


@pytest.mark.parametrize("flag", ["label_min", "label_max", "label_step", "label_values", "epsilon", "prior_epsilon"])
def test_apply_refuses_what_the_file_settles(job: Any, invoke: Any, fitted: Path, outputs: Path, flag: str) -> None:
    outcome = invoke(job("apply", **{flag: 1}))

    assert outcome.code == 2
    assert f"--{flag}" in outcome.error
    assert not (outputs / "released").exists()


def test_fit_refuses_an_output(job: Any, invoke: Any, outputs: Path) -> None:
    outcome = invoke(job("fit", output=outputs / "released"))

    assert outcome.code == 2
    assert "--output" in outcome.error
    assert list(outputs.iterdir()) == []


def test_apply_completes_what_fit_began(job: Any, invoke: Any, fitted: Path, outputs: Path, spent: Any) -> None:
    invoke(job("apply")).ok()

    assert spent(outputs) == pytest.approx(1, rel=1e-9)
    assert spent(outputs) <= 1
    manifest = manifest_of(outputs / "released")
    assert manifest["epsilon"] == pytest.approx(1, rel=1e-12)
    assert (outputs / "released" / "mechanism.json").read_bytes() == fitted.read_bytes()


def test_apply_to_another_log_costs_the_randomizer_only(
    job: Any, invoke: Any, fitted: Path, outputs: Path, tmp_path: Path, write_csv: Any
) -> None:
    path = write_csv(tmp_path / "other.csv", [f"{i},{i % 3}" for i in range(500)])
    invoke(job("apply", input=path)).ok()

    (charge,) = entries(outputs)[-1]["charges"]
    certified = json.loads(fitted.read_text())["certificate"]["epsilon"]
    assert (charge["what"], charge["epsilon"]) == ("labels", certified)
    assert manifest_of(outputs / "released")["records"] == 500


def test_apply_twice_is_charged_once(job: Any, invoke: Any, fitted: Path, outputs: Path, spent: Any) -> None:
    invoke(job("apply")).ok()
    once = spent(outputs)
    invoke(job("apply", output=outputs / "again")).ok()

    assert spent(outputs) == once
    assert len(entries(outputs)) == 3


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"format": "labeldp-mechanism-1"}'])
def test_apply_refuses_what_is_no_mechanism(job: Any, invoke: Any, tmp_path: Path, outputs: Path, text: str) -> None:
    path = tmp_path / "mechanism.json"
    path.write_text(text)

    outcome = invoke(job("apply", mechanism_file=path))

    assert outcome.code == 2
    assert "--mechanism_file" in outcome.error
    assert str(path) in outcome.error
    assert list(outputs.iterdir()) == []


def test_apply_refuses_a_mechanism_that_was_changed(job: Any, invoke: Any, fitted: Path, outputs: Path) -> None:
    mechanism = json.loads(fitted.read_text())
    mechanism["labels"][0] -= 1
    fitted.write_text(json.dumps(mechanism))

    outcome = invoke(job("apply"))

    assert outcome.code == 2
    assert str(fitted) in outcome.error
    assert not (outputs / "released").exists()


# The ledger and its cap.


def test_a_run_again_is_written_down_and_not_charged(job: Any, invoke: Any, outputs: Path, spent: Any) -> None:
    invoke(job()).ok()
    once = spent(outputs)
    invoke(job(output=outputs / "again", num_shards=2, epsilon_cap=1)).ok()

    assert spent(outputs) == once <= 1
    assert [entry["output"] for entry in entries(outputs)] == [str(outputs / "released"), str(outputs / "again")]


@pytest.mark.parametrize(
    "flags", [{"epsilon": 0.5}, {"label_max": 5}, {"prior_epsilon": 0.3}, {"label_step": 2}, {"noise_key_file": None}]
)
def test_another_request_is_charged(job: Any, invoke: Any, outputs: Path, spent: Any, flags: dict[str, Any]) -> None:
    invoke(job()).ok()
    once = spent(outputs)
    invoke(job(output=outputs / "other", **flags)).ok()

    assert spent(outputs) == pytest.approx(once + flags.get("epsilon", 1), rel=1e-6)


def test_another_mechanism_shares_the_histogram(job: Any, invoke: Any, outputs: Path, spent: Any) -> None:
    """The same histogram, with the same noise, is one release; the labels are another."""
    invoke(job()).ok()
    invoke(job(mechanism="rr", output=outputs / "rr")).ok()

    histogram, labels = (charge["epsilon"] for charge in entries(outputs)[0]["charges"])
    assert spent(outputs) == pytest.approx(histogram + 2 * labels, rel=1e-6)
    priors = [json.loads((outputs / name / "mechanism.json").read_text())["prior"] for name in ("released", "rr")]
    assert priors[0] == priors[1]


def test_the_cap_refuses_before_the_start(job: Any, invoke: Any, outputs: Path, monkeypatch: Any) -> None:
    from labeldp.pipelines import privatize

    invoke(job(epsilon_cap=1)).ok()
    monkeypatch.setattr(privatize, "run_pipeline", lambda *_: pytest.fail("the job was started"))

    outcome = invoke(job(epsilon=0.5, output=outputs / "more", epsilon_cap=1.4))

    assert outcome.code == 2
    assert "--epsilon_cap 1.4" in outcome.error
    assert "labeldp_ledger.jsonl" in outcome.error
    assert len(entries(outputs)) == 1
    assert not (outputs / "more").exists()


def test_the_cap_lets_through_what_fits_exactly(job: Any, invoke: Any, outputs: Path, spent: Any) -> None:
    invoke(job(epsilon_cap=1)).ok()
    invoke(job(epsilon=0.5, output=outputs / "more", epsilon_cap=1.5)).ok()
    assert spent(outputs) <= 1.5

    outcome = invoke(job(epsilon=0.25, output=outputs / "too much", epsilon_cap=np.nextafter(1.5, 2)))
    assert outcome.code == 2


def test_fit_and_apply_fit_under_the_cap_of_one_privatize(job: Any, invoke: Any, outputs: Path, spent: Any) -> None:
    invoke(job("fit", epsilon_cap=1)).ok()
    invoke(job("apply", epsilon_cap=1)).ok()
    assert spent(outputs) <= 1


def test_the_cap_refuses_at_publication_when_the_data_changed(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, tree: Any
) -> None:
    """The same request again may be the same release, so it may start; it turns out to be another."""
    path = write_csv(tmp_path / "in.csv", [f"{i},{i % 5}" for i in range(300)])
    invoke(job(input=path, epsilon_cap=1.5)).ok()
    before = tree(outputs)
    write_csv(path, [f"{i},{i % 5 if i else 1}" for i in range(300)])

    outcome = invoke(job(input=path, epsilon_cap=1.5, output=outputs / "second"))

    assert outcome.code == 1
    assert "--epsilon_cap 1.5" in outcome.error
    assert "nothing is released" in outcome.error
    assert tree(outputs) == before


def test_a_ledger_elsewhere(job: Any, invoke: Any, outputs: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "books" / "ledger.jsonl"
    invoke(job(ledger=ledger, epsilon_cap=1)).ok()

    assert not (outputs / "labeldp_ledger.jsonl").exists()
    assert len(ledger.read_text().splitlines()) == 1
    assert invoke(job(ledger=ledger, epsilon_cap=1, epsilon=0.1, output=outputs / "more")).code == 2


def test_what_cannot_be_charged_is_not_released(job: Any, invoke: Any, outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()

    outcome = invoke(job(ledger=tmp_path / "ledger"))

    assert outcome.code != 0
    assert "ledger" in outcome.error
    assert list(outputs.iterdir()) == []


def test_the_ledger_adds_up_exactly(tmp_path: Path) -> None:
    from labeldp.pipelines.release import Charge, Ledger
    from labeldp.transforms import InputError

    ledger = Ledger(str(tmp_path / "ledger"))
    assert ledger.spent() == 0
    for i in range(10):
        ledger.charge([Charge("labels", 0.1, f"release {i}")], None, request=f"{i}")
    assert ledger.spent() == 10 * Fraction(0.1) > 1  # ten times the float 0.1, a hair above 1
    assert ledger.spent([Charge("labels", 0.1, "release 3")]) == ledger.spent()

    before = (tmp_path / "ledger").read_bytes()
    with pytest.raises(InputError, match="--epsilon_cap 1 would be exceeded"):
        ledger.charge([Charge("labels", 0.1, "release 3")], 1.0, request="again")
    assert (tmp_path / "ledger").read_bytes() == before
    ledger.charge([Charge("labels", 0.1, "release 3")], float(np.nextafter(1, 2)), request="again")
    assert ledger.knows("again")
    assert not ledger.knows("never")


def test_two_processes_cannot_exceed_the_cap_together(tmp_path: Path) -> None:
    """Both saw an empty ledger before they ran; whoever charges second is refused."""
    from labeldp.pipelines.release import Charge, Ledger
    from labeldp.transforms import InputError

    path = str(tmp_path / "ledger")
    inside, refusals = threading.Event(), []

    def second() -> None:
        inside.wait(WAIT_SECONDS)
        other = Ledger(path)
        try:
            with other.locked():
                other.charge([Charge("labels", 0.7, "second")], 1.0, request="second")
        except InputError as error:
            refusals.append(str(error))

    thread = threading.Thread(target=second)
    thread.start()
    ledger = Ledger(path)
    with ledger.locked():
        inside.set()
        thread.join(0.2)
        assert thread.is_alive()  # it waits for the lock
        ledger.charge([Charge("labels", 0.7, "first")], 1.0, request="first")
    thread.join(WAIT_SECONDS)

    assert len(refusals) == 1
    assert ledger.spent() == Fraction(0.7)


def test_facts_survive_the_way_through_the_file() -> None:
    from labeldp.pipelines.release import Facts
    from labeldp.transforms import InputError, NoiseBinding

    binding = NoiseBinding(digest=2**256 - 1, column="y", domain=(0.1, 0.2), epsilons=(0.1, 0.9), records=3, unusable=1)
    facts = Facts(binding, digest_applied=2**256 - 1, shards={"part": 3})
    assert Facts.from_json(facts.to_json()) == facts
    facts.check_same_input()
    Facts(binding, digest_applied=None, shards={}).check_same_input()  # fit reads the input once
    with pytest.raises(InputError, match="the input changed"):
        Facts(binding, digest_applied=0, shards={}).check_same_input()


# Staging and publishing.


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, None])
def test_staging_is_beside_the_target_and_goes_away(outputs: Path, error: type[BaseException] | None) -> None:
    from labeldp.pipelines.release import staging_folder

    def use() -> None:
        with staging_folder(str(outputs / "released")) as staging:
            assert Path(staging).parent == outputs
            assert Path(staging).name.startswith(".released.")
            (Path(staging) / "data").mkdir()
            (Path(staging) / "data" / "part").write_text("part")
            if error is not None:
                raise error

    if error is None:
        use()
    else:
        with pytest.raises(error):
            use()
    assert list(outputs.iterdir()) == []


def test_publishing_never_replaces_anything(outputs: Path) -> None:
    from labeldp.pipelines.release import publish_folder

    (outputs / "staging").mkdir()
    (outputs / "staging" / "new").write_text("new")
    (outputs / "released").mkdir()
    (outputs / "released" / "old").write_text("old")
    with pytest.raises(OSError, match="not empty"):
        publish_folder(str(outputs / "staging"), str(outputs / "released"))
    assert [path.name for path in (outputs / "released").iterdir()] == ["old"]

    (outputs / "released" / "old").unlink()
    publish_folder(str(outputs / "staging"), str(outputs / "released"))
    assert [path.name for path in outputs.iterdir()] == ["released"]
    assert (outputs / "released" / "new").read_text() == "new"


def test_an_output_that_appears_meanwhile_is_kept(
    job: Any, invoke: Any, outputs: Path, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    """Another run of the same command was faster."""

    def publish_first() -> None:
        (outputs / "released").mkdir()
        (outputs / "released" / "release.json").write_text("of the other run")

    meanwhile(publish_first)
    outcome = invoke(job())

    assert outcome.code == 1
    assert len(outcome.errors) == 1
    assert (outputs / "released" / "release.json").read_text() == "of the other run"
    assert not [path for path in outputs.iterdir() if path.name.startswith(".")]


# Input that changes between the two passes.


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """(function) -> None: it is called once the labels have been counted and before they are privatized."""

    def arrange(change: Callable[[], None]) -> None:
        from labeldp.mechanisms.rr_on_bins import RROnBins

        solve = RROnBins.solve

        def solve_and_change(*arguments: Any) -> Any:
            change()
            return solve(*arguments)

        monkeypatch.setattr(RROnBins, "solve", solve_and_change)

    return arrange


ROWS = [f"{i},{i % 5}" for i in range(300)]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(["0,1", *ROWS[1:]], id="a label"),
        pytest.param(["0,0.25", *ROWS[1:]], id="a label that stays nearest to the same"),
        pytest.param([*ROWS[:5], *ROWS[6:]], id="a record less"),
        pytest.param([*ROWS, "300,0"], id="a record more"),
        pytest.param(["1,1", "0,0", *ROWS[2:]], id="the order"),
    ],
)
def test_input_that_changes_while_the_job_runs(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any, rows: list[str]
) -> None:
    path = write_csv(tmp_path / "in.csv", ROWS)
    meanwhile(lambda: write_csv(path, rows))

    outcome = invoke(job(input=path))

    assert outcome.code == 1
    assert "the input changed while the job ran" in outcome.error
    assert list(outputs.iterdir()) == []


def test_a_file_that_arrives_while_the_job_runs(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any
) -> None:
    """Whether a runner has matched the files by then is its own business: the file is left out, or refused."""
    write_csv(tmp_path / "in" / "a.csv", ROWS)
    meanwhile(lambda: write_csv(tmp_path / "in" / "b.csv", ["300,0"]))

    outcome = invoke(job(input=tmp_path / "in" / "*.csv"))

    if outcome.code == 0:
        assert manifest_of(outputs / "released")["records"] == 300
        assert pq.read_table(outputs / "released" / "data").column("f").to_pylist() == list(range(300))
    else:
        assert outcome.code == 1
        assert "the input changed while the job ran" in outcome.error
        assert list(outputs.iterdir()) == []


def test_a_file_that_vanishes_while_the_job_runs(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any
) -> None:
    path = write_csv(tmp_path / "in.csv", ROWS)
    meanwhile(path.unlink)

    outcome = invoke(job(input=path))

    assert outcome.code == 1
    assert str(path) in outcome.error
    assert list(outputs.iterdir()) == []


def test_order_does_not_matter_to_records_with_ids(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any
) -> None:
    path = write_csv(tmp_path / "in.csv", ROWS)
    meanwhile(lambda: write_csv(path, ROWS[::-1]))

    invoke(job(input=path, id_column="f")).ok()

    reversed_rows = pq.read_table(outputs / "released" / "data").to_pylist()
    (tmp_path / "straight").mkdir()
    invoke(job(input=path, id_column="f", output=tmp_path / "straight" / "released")).ok()
    assert reversed_rows == pq.read_table(tmp_path / "straight" / "released" / "data").to_pylist()
    assert [row["f"] for row in reversed_rows] == list(range(299, -1, -1))


# Signals.


class Running:
    """A job as a process of its own, in a process group of its own."""

    def __init__(self, argv: list[str], environment: dict[str, str]):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "labeldp.pipelines.cli", *argv],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._said: list[str] = []

    def wait_for(self, text: str) -> None:
        """Until the job says so on standard error."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.append(line)
            if text in line:
                return
        pytest.fail(f"the job ended before it said {text!r}: {''.join(self._said)}")

    def end(self, number: int) -> tuple[int, str]:
        """Sends the signal. Returns the exit code, and all of standard error."""
        self.process.send_signal(number)
        out, rest = self.process.communicate(timeout=WAIT_SECONDS)
        assert out == ""
        return self.process.returncode, "".join(self._said) + rest

    def clean_up(self) -> None:
        """Ends what is left of the process and its workers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def start(job: Any, census: Path, environment: dict[str, str]) -> Iterator[Callable[..., Running]]:
    """(flag=value, ...) -> the job over the census, running. Its second half alone takes more than a second."""
    started: list[Running] = []

    def run(**flags: Any) -> Running:
        standard = {"input": census, "label": "work", "label_max": 52, "output_format": "tfrecord"}
        started.append(Running(job(**(standard | flags)), environment))
        return started[-1]

    yield run
    for each in started:
        each.clean_up()


@pytest.mark.parametrize("moment", ["input files", "solved"], ids=["while counting", "while privatizing"])
def test_sigterm_ends_a_run_and_leaves_nothing(start: Any, outputs: Path, moment: str) -> None:
    run = start()
    run.wait_for(moment)
    assert [path.name[:10] for path in outputs.iterdir()] == [".released."]

    code, err = run.end(signal.SIGTERM)

    assert code == 1
    assert list(outputs.iterdir()) == []
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "labeldp privatize: interrupted; nothing is released"


def test_sigterm_ends_worker_processes_too(start: Any, outputs: Path) -> None:
    run = start(direct_running_mode="multi_processing", direct_num_workers=2)
    run.wait_for("solved")

    code, _ = run.end(signal.SIGTERM)

    assert code == 1
    assert list(outputs.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(run.process.pid, 0)  # nobody of the process group is left


STUCK = """
import os, signal, sys, threading, time
import labeldp.pipelines.privatize as job
from labeldp.pipelines.cli import main


def run_pipeline(*arguments):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)


job.run_pipeline = run_pipeline
sys.exit(main(sys.argv[1:]))
"""


def test_sigterm_does_not_wait_for_threads_of_the_runner(job: Any, environment: dict[str, str], outputs: Path) -> None:
    """Beam's state sampler is such a thread: an interrupt at the wrong moment leaves it running for ever."""
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, *job()], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()

    assert process.returncode == 1
    assert err.splitlines()[-1] == "labeldp privatize: interrupted; nothing is released"
    assert list(outputs.iterdir()) == []


def test_sigkill_leaves_nothing_that_looks_finished(start: Any, outputs: Path, spent: Any) -> None:
    run = start()
    run.wait_for("solved")

    code, _ = run.end(signal.SIGKILL)

    assert code == -signal.SIGKILL
    assert not (outputs / "released").exists()
    left = [path.name for path in outputs.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".released.")
    assert not (outputs / left[0] / "release.json").exists()
    assert spent(outputs) == 0
