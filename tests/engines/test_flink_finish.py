"""`labeldp finish` on a cluster: the command is killed after it submitted its job, or does not wait for it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local_processes import children


@pytest.fixture
def finish(environment: dict[str, str]) -> Any:
    """Function (output) -> the ended `labeldp finish`, in a process of its own."""

    def run(output: Path) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "labeldp", "finish", str(output), "--timeout=240"],
            check=False, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    return run


def test_the_command_is_killed(start: Any, flink: Any, finish: Any, undisturbed: Any, tree: Any, charges: Any) -> None:
    """Its job server goes on, and so does the job."""
    flink.wait_for_task_managers(2)
    running = start(flink.flags)
    running.wait_until(lambda: len(flink.running_jobs()) == 1 and running.segments() > 0, "records were written")
    servers = children(running.process.pid)
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    try:
        done = finish(running.release)
        assert done.returncode == 0, done.stderr
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
    assert tree(running.release) == undisturbed()
    assert len(charges(running.outputs)) == 2
    again = finish(running.release)
    assert (again.returncode, again.stdout.endswith("published before; its audit holds\n")) == (0, True)
    assert len(charges(running.outputs)) == 2
    assert sorted(path.name for path in running.outputs.iterdir()) == ["labeldp_ledger.jsonl", "released"]


def test_the_command_submits_only(
    start: Any, flink: Any, finish: Any, undisturbed: Any, tree: Any, charges: Any
) -> None:
    """Its job server ends with it; the job goes on."""
    flink.wait_for_task_managers(2)
    submitted = start([*flink.flags, "--no_wait_until_finish"]).finish().ok()
    assert submitted.out.startswith(f"submitted  {submitted.ran.release}: ")
    done = finish(submitted.ran.release)
    assert done.returncode == 0, done.stderr
    assert tree(submitted.ran.release) == undisturbed()
    assert len(charges(submitted.ran.outputs)) == 2
