"""`labeldp finish` killed before each of its steps: the next one publishes the same release, which is charged once."""

import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("faults")

RUNNER = "--runner=detached_runner.DetachedRunner"
KILL = """
import itertools, os, signal

steps = itertools.count()


def fault(step):
    if next(steps) == {moment}:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_before_each_step(
    fork: Any, job: Any, invoke: Any, reference: Any, outputs: Path, tmp_path: Path, tree: Any, spent: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "finish"))
    monkeypatch.setenv("LABELDP_TESTS_GRAPH", str(tmp_path / "graph"))
    run, command = job(num_shards=2, epsilon_cap=1), ["finish", str(outputs / "released"), "--timeout=0"]
    undisturbed = reference(run)
    invoke([*run, RUNNER, "--no_wait_until_finish"]).ok()
    sys.modules["detached_runner"].run_graph(str(tmp_path / "graph"))
    shutil.copytree(outputs, tmp_path / "kept")
    _, steps = fork(command)
    assert steps[0] == "fcntl.flock"
    assert "os.rename .released." in steps[1]
    for moment in range(len(steps)):
        shutil.rmtree(outputs)
        shutil.copytree(tmp_path / "kept", outputs)
        killed, found = fork(command, KILL.format(moment=moment))
        assert (killed.code, len(found)) == (-signal.SIGKILL, moment + 1)
        again, _ = fork(command)
        again.ok()
        assert (tree(outputs / "released"), spent(outputs)) == undisturbed, steps[moment]
        assert sorted(path.name for path in outputs.iterdir()) == ["labeldp_ledger.jsonl", "released"]
        published = steps[moment].startswith("shutil.rmtree") and moment == len(steps) - 1
        assert ("published before" in again.out) == published


KILL_AT = """
import os, signal


def fault(step):
    if step.startswith({event!r}) and {text!r} in step:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("flags", "event", "text"),
    [
        ([], "open", "release.json."),
        ([], "shutil.rmtree", "segments"),
        ([], "os.remove", "ledger.jsonl.pending"),
        ([], "os.rename", "release released"),
        (["--validate"], "open", "release.json."),
    ],
)
def test_a_command_that_was_killed_after_its_job(
    flags: list[str], event: str, text: str, fork: Any, job: Any, reference: Any, outputs: Path, tree: Any,
    spent: Any,
) -> None:  # fmt: skip
    """Also where the job ran in the process of the command; `finish` validates the output if the command was to."""
    if flags:
        pytest.importorskip("tensorflow_metadata", reason="the extra validation is not installed")
    run = [*job(num_shards=2, epsilon_cap=1), *flags]
    undisturbed = reference(run)
    killed, steps = fork(run, KILL_AT.format(event=event, text=text))
    assert killed.code == -signal.SIGKILL, steps
    done, _ = fork(["finish", str(outputs / "released"), "--timeout=0"])
    done.ok()
    assert (tree(outputs / "released"), spent(outputs)) == undisturbed
    assert sorted(path.name for path in outputs.iterdir()) == ["labeldp_ledger.jsonl", "released"]
