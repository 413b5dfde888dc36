"""Fault tolerance: a process of the cluster is killed during a job; no record is lost, duplicated or noised again."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local_processes import children

SECONDS_TO_GIVE_UP = 120.0


class Watch:
    """Observes a running job through the files that its Python workers have open and have written."""

    def __init__(self, flink: Any, running: Any, log: Path, whole: int):
        """log: the glob of the input. whole: the bytes of records that an undisturbed run releases."""
        self._cluster, self._running, self._whole = flink, running, whole
        self._input, self._segments = str(log), f"{running.outputs}/.released.*/segments/*"
        self._read: set[str] = set()
        self.busy: list[int] = []

    def in_the_fit(self) -> bool:
        """Returns True while labels are counted: three files were opened, nothing is written. `busy`: the readers."""
        files = self._open(self._input)
        self._read |= files
        return bool(files) and len(self._read) >= 3 and not self._running.segments()

    def in_the_privatizing(self) -> bool:
        """Returns True once a third of the records is written and while files are still open. `busy`: the writers."""
        return self._running.segments() > self._whole / 3 and bool(self._open(self._segments))

    def _open(self, glob: str) -> set[str]:
        files, self.busy = set(), []
        for worker in self._cluster.workers():
            with contextlib.suppress(OSError):
                links = [os.readlink(link) for link in Path(f"/proc/{worker}/fd").iterdir()]
                found = {link for link in links if Path(link).match(glob)}
                self.busy += [worker] if found else []
                files |= found
        return files


@pytest.fixture
def job(start: Any, undisturbed: Any, flink: Any, parquet_log: Path) -> tuple[Any, Watch]:
    """A job that has just been started, and the `Watch` on it."""
    whole = sum(len(content) for name, content in undisturbed().items() if name.startswith("data/"))
    flink.wait_for_task_managers(2)
    running = start(flink.flags)
    return running, Watch(flink, running, parquet_log, whole)


def kill_a_task_manager(flink: Any, watch: Watch) -> None:
    """Kills the TaskManager of a busy worker and starts another, as the supervisor of a cluster would."""
    worker = watch.busy[0]
    [victim] = [process for process in flink.task_managers if worker in children(process.pid)]
    victim.kill()
    victim.wait()
    flink.task_managers.remove(victim)
    flink.start_task_manager()


def kill_a_python_worker(flink: Any, watch: Watch) -> None:
    """Kills a busy Python worker."""
    os.kill(watch.busy[0], signal.SIGKILL)


@pytest.mark.parametrize(
    ("moment", "kill"),
    [
        (Watch.in_the_fit, kill_a_task_manager),
        (Watch.in_the_privatizing, kill_a_task_manager),
        (Watch.in_the_privatizing, kill_a_python_worker),
    ],
    ids=["task_manager_in_the_fit", "task_manager_in_the_privatizing", "python_worker_in_the_privatizing"],
)
def test_killed(
    moment: Callable[[Watch], bool],
    kill: Callable[[Any, Watch], None],
    repetition: int,
    job: tuple[Any, Watch],
    flink: Any,
    undisturbed: Any,
    tree: Any,
    charges: Any,
) -> None:
    """The job restarts and releases the same bytes as an undisturbed run, exactly once."""
    running, watch = job
    running.wait_until(lambda: moment(watch), moment.__name__)
    [name] = flink.running_jobs()
    kill(flink, watch)
    outcome = running.finish().ok()

    assert flink.rest(f"/jobs/{name}/exceptions")["exceptionHistory"]["entries"]
    assert tree(running.release) == undisturbed()
    assert len(charges(running.outputs)) == 2
    assert sorted(path.name for path in running.outputs.iterdir()) == ["labeldp_ledger.jsonl", "released"]
    assert "Traceback" not in outcome.err


def test_job_manager_killed(
    repetition: int, job: tuple[Any, Watch], start: Any, flink: Any, undisturbed: Any, tree: Any
) -> None:
    """The job is lost with its JobManager: the command fails with one line and leaves no output.

    The same command succeeds with a new JobManager.
    """
    running, watch = job
    running.wait_until(watch.in_the_privatizing, "in_the_privatizing")
    flink.job_manager.kill()
    flink.job_manager.wait()
    killed = time.monotonic()
    outcome = running.finish()

    assert time.monotonic() - killed < SECONDS_TO_GIVE_UP
    assert outcome.code == 1
    assert "ended the job" in outcome.error
    assert list(running.outputs.iterdir()) == []

    flink.start_job_manager()
    flink.wait_for_task_managers(2)
    assert tree(start(flink.flags).finish().ok().ran.release) == undisturbed()
    assert list(running.outputs.iterdir()) == []


def test_told_to_end(repetition: int, job: tuple[Any, Watch], flink: Any) -> None:
    """Ctrl-C also ends the job on the cluster: no worker continues to write."""
    running, watch = job
    running.wait_until(watch.in_the_privatizing, "in_the_privatizing")
    [name] = flink.running_jobs()
    running.process.send_signal(signal.SIGINT)
    outcome = running.finish()

    assert outcome.code == 1
    assert "interrupted" in outcome.error
    assert list(running.outputs.iterdir()) == []
    assert flink.rest(f"/jobs/{name}")["state"] in ("CANCELLING", "CANCELED")
