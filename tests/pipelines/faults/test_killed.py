"""Killed and interrupted runs: the next run releases the same bytes, is charged once and removes what was left."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("faults")

SEED = 20261124
KILLS = 20
STEPS = 27
"""File-system steps of a run; a test counts them."""
DELAYS = (0.001, 0.3)
"""Seconds. The stages that compute take longest."""
LEDGER = "labeldp_ledger.jsonl"

# Kills the process before the step of that number, or some time after it.
KILL = """
import itertools, os, signal, threading

steps = itertools.count()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fault(step):
    if next(steps) == {moment}:
        threading.Timer({delay}, kill).start() if {delay} else kill()
"""


@dataclass(frozen=True)
class Kill:
    """A moment of the run: seconds after a step."""

    moment: int
    delay: float

    def __str__(self) -> str:
        return f"step {self.moment}, {self.delay * 1000:.0f} ms later"


def kills() -> list[Kill]:
    """One kill at random in each of 20 equal parts of the run: every third one with a delay, the others at once."""
    chosen = random.Random(SEED)
    width = STEPS / KILLS
    moments = [int(width * (part + chosen.random())) for part in range(KILLS)]
    return [Kill(moment, 0.0 if i % 3 else chosen.uniform(*DELAYS)) for i, moment in enumerate(moments)]


@pytest.fixture(scope="module")
def three_files(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> str:
    """Glob of a log of three files. Two workers take turns, so that a shard of all three has three segments."""
    folder = tmp_path_factory.mktemp("log")
    for name in "abc":
        write_csv(folder / f"{name}.csv", [f"{i},{i % 5}" for i in range(400)])
    return f"{folder}/*.csv"


@pytest.fixture
def run(job: Any, request: pytest.FixtureRequest) -> list[str]:
    """Arguments of the run, whose cap admits one charge; with a parameter, its format: three files to one shard."""
    if format := getattr(request, "param", None):
        three = {"input": request.getfixturevalue("three_files"), "num_shards": 1, "direct_num_workers": 2}
        return job(**three, output_format=format, epsilon_cap=1)
    return job(num_shards=2, epsilon_cap=1)


def state(outputs: Path, left: list[Path], spent: float) -> str:
    """How far a killed run came, by what it left behind."""
    if (outputs / "released").exists():
        return "published"
    if not left:
        return "nothing"
    if spent:
        return "charged"
    names = [path.relative_to(left[0]).as_posix().removeprefix("release/") for path in left[0].rglob("*")]
    for name in ("release.json", "job_result_0.json", "data/part-", "segments", "mechanism.json"):
        if any(found.startswith(name) and not found[len(name) :].startswith(".") for found in names):
            known = {"data/part-": "shards", "release.json": "manifest", "job_result_0.json": "job_result"}
            return known.get(name, name.removesuffix(".json"))
    return "staging"


@pytest.fixture
def recovers(
    fork: Any, run: list[str], reference: Any, outputs: Path, left_behind: Any, spent: Any, tree: Any
) -> Callable[[], str]:
    """Function () -> the state a killed run left; checks it, and that the next run releases what was to be released."""

    undisturbed = reference(run)

    def check() -> str:
        left = left_behind(outputs)
        # A torn line is completed by the next run; the test of the ledger's file tears lines.
        found = state(outputs, left, spent(outputs))
        after, _ = fork(run)
        if found == "published":
            # Nothing was lost but the lines on standard output. What is left is public, and `finish` removes it.
            assert (after.code, "exists and is not an empty folder" in after.error) == (2, True)
            assert not any((folder / "release").exists() for folder in left)
            if left:
                assert "published before; its audit holds" in fork(["finish", str(outputs / "released")])[0].ok().out
        else:
            after.ok()
            assert len(left) == (found != "nothing")
            for folder in left:
                assert f"labeldp: removed {folder}, which a killed run had left behind\n" in after.err
        assert (tree(outputs / "released"), spent(outputs)) == undisturbed
        assert sorted(path.name for path in outputs.iterdir()) == [LEDGER, "released"]
        return found

    return check


FOUND: list[str] = []


@pytest.mark.parametrize("kill", kills(), ids=str)
def test_after_a_sigkill_the_next_run_releases_the_same(kill: Kill, fork: Any, run: list[str], recovers: Any) -> None:
    outcome, _ = fork(run, KILL.format(moment=kill.moment, delay=kill.delay))
    found = recovers()
    if found != "published":
        assert outcome.code == -signal.SIGKILL
    FOUND.append(found)


def test_the_kills_met_every_stage(fork: Any, run: list[str], request: pytest.FixtureRequest) -> None:
    kill = test_after_a_sigkill_the_next_run_releases_the_same.__name__
    if sum(kill in item.nodeid for item in request.session.items) < KILLS:
        pytest.skip("only some of the kills were selected")
    assert len(FOUND) == KILLS, "the tests of a group ran in several processes"
    assert len(fork(run)[1]) == STEPS
    assert {"staging", "segments", "shards", "manifest", "charged"} <= set(FOUND)


# Kills the process when it opens the segment of that number, to copy it to the shard.
KILL_WHILE_ASSEMBLING = """
import itertools, os, signal
from labeldp.transforms.shards import shard_formats

opened, open_segment_file = itertools.count(), shard_formats.open_segment_file


def opening(segment):
    if next(opened) == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return open_segment_file(segment)


shard_formats.open_segment_file = opening
"""


@pytest.mark.parametrize("run", ["tfrecord", "parquet"], indirect=True)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_after_a_sigkill_while_a_shard_is_assembled(number: int, fork: Any, run: list[str], recovers: Any) -> None:
    """The shard has three segments, and appears only when it is complete."""
    outcome, steps = fork(run, KILL_WHILE_ASSEMBLING.format(number=number))
    assert outcome.code == -signal.SIGKILL
    assert sum("/segments/" in step for step in steps) == 4, "three segments and the unfinished shard"
    assert recovers() == "segments"


KILL_AT_RENAME = """
import os, signal


def fault(step):
    if step.startswith("os.rename") and "/segments/part-" in step:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("run", ["tfrecord", "parquet"], indirect=True)
def test_after_a_sigkill_before_an_assembled_shard_appears(fork: Any, run: list[str], recovers: Any) -> None:
    outcome, steps = fork(run, KILL_AT_RENAME)
    assert outcome.code == -signal.SIGKILL
    assert steps[-1].startswith("os.rename")
    assert recovers() == "segments"


@pytest.mark.parametrize("line", ["input file", "solving", "solved"])
def test_after_a_sigkill_of_the_command_itself(
    line: str, run: list[str], environment: dict[str, str], outputs: Path, recovers: Any
) -> None:
    """The command as users run it, killed when it has logged a stage."""
    with subprocess.Popen(
        [sys.executable, "-m", "labeldp", *run], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any(line in logged for logged in process.stderr)
        process.kill()
    # The state is checked there. A busy machine may finish the run before the kill arrives.
    recovers()


# Interrupts itself when a module is imported.
INTERRUPTED = """
import os, signal, sys
from labeldp.pipelines.cli.commands import main


def hook(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        os.kill(os.getpid(), {number})


signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(hook)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("module", "number"),
    [("numpy", signal.SIGTERM), ("apache_beam.transforms", signal.SIGINT)],
)
def test_an_interrupt_during_imports(
    module: str, number: int, run: list[str], environment: dict[str, str], outputs: Path, outcome: Any
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module, number=int(number)), *run],
        check=False, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "labeldp privatize: interrupted; nothing was done\n"
    assert list(outputs.iterdir()) == []


INTERRUPT_AT = """
import os, signal

signal.signal(signal.SIGINT, signal.default_int_handler)


def fault(step):
    if step.endswith({step!r}):
        os.kill(os.getpid(), {number})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_publishing_comes_too_late(
    number: int, fork: Any, run: list[str], reference: Any, outputs: Path, tree: Any
) -> None:
    """Otherwise the command would say that nothing is released, when the output folder is there already."""
    files, _ = reference(run)
    outcome, steps = fork(run, INTERRUPT_AT.format(step=" released", number=int(number)))
    assert [step.split()[0] for step in steps[-2:]] == ["os.rename", "shutil.rmtree"]
    assert steps[-2].endswith(" released")
    outcome.ok()
    assert f"\n{'':10}{outputs}/released\nPrivacy   " in outcome.out
    assert tree(outputs / "released") == files


def test_an_interrupt_after_the_charge(fork: Any, run: list[str], recovers: Any, outputs: Path, spent: Any) -> None:
    outcome, _ = fork(run, INTERRUPT_AT.format(step=f"remove {LEDGER}.pending", number=int(signal.SIGINT)))
    assert (outcome.code, outcome.error) == (1, "labeldp privatize: interrupted; nothing is released")
    assert spent(outputs) > 0
    assert recovers() == "nothing"
