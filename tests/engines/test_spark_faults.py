"""Fault tolerance: Python workers are killed during a job, the key cannot be read, the command is told to end."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import write_key
from tests.engines.local_processes import children, free_ports, is_worker

SECONDS_TO_END = 30.0


@pytest.fixture
def flags(small_log: Path) -> dict[str, Any]:
    """Flags of a short job."""
    return {"input": small_log, "input_format": "csv"}


@pytest.fixture
def at_work(spark: Any) -> Callable[[Any], list[int]]:
    """Function (running command) -> the two workers of its job, one in each executor, once each has done a task."""

    def wait(running: Any) -> list[int]:
        workers: list[int] = []

        def ready() -> bool:
            jobs = spark.running_jobs()
            done = spark.finished_tasks(jobs[0]) if jobs else {}
            workers[:] = spark.workers()
            return len(workers) == 2 and sum(count > 0 for count in done.values()) == 2

        running.wait_until(ready, "two workers had done a task")
        return workers

    return wait


def lost_tasks(spark: Any) -> int:
    """Number of tasks that Spark has lost, in all jobs."""
    return (spark.logs / "job-server.out").read_text().count(" - Lost task ")


@pytest.mark.parametrize("killed", [1, 2])
def test_workers_killed(
    killed: int, flags: dict[str, Any], start: Any, spark: Any, at_work: Any, undisturbed: Any,
    tree: Any, charges: Any,
) -> None:  # fmt: skip
    """Spark replaces the executors of the lost workers, and the job releases the same bytes, exactly once."""
    before = lost_tasks(spark)
    running = start(spark.flags, **flags)
    for worker in at_work(running)[:killed]:
        os.kill(worker, signal.SIGKILL)
        time.sleep(0.5)
    outcome = running.finish().ok()

    assert lost_tasks(spark) > before
    assert tree(running.release) == undisturbed(**flags)
    assert len(charges(running.outputs)) == 2
    assert sorted(path.name for path in running.outputs.iterdir()) == ["labeldp_ledger.jsonl", "released"]
    assert "Traceback" not in outcome.err


def test_key_not_found(flags: dict[str, Any], start: Any, spark: Any, tmp_path: Path, secret: bytes) -> None:
    """Workers that do not find the key file end the job with one line, and nothing is released."""
    key = write_key(tmp_path / "noise.key", secret)
    running = start([*spark.alone, *(f"--job_port={port}" for port in free_ports(1))], noise_key_file=key, **flags)
    running.wait_until(lambda: bool(children(running.process.pid)), "it started the job server")
    key.unlink()
    outcome = running.finish()

    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].endswith(f"noise key file {key} does not exist: check the path")
    assert list(running.outputs.iterdir()) == []


def test_told_to_end(flags: dict[str, Any], start: Any, spark: Any, at_work: Any) -> None:
    """Ctrl-C also ends the job on the cluster: nothing looks finished, and no worker continues to write."""
    running = start(spark.flags, **flags)
    workers = at_work(running)
    running.process.send_signal(signal.SIGINT)
    outcome = running.finish()

    def left() -> list[Any]:
        # Without an executor, nothing starts another worker.
        return [*spark.running_jobs(), *spark.executors(), *filter(is_worker, workers)]

    assert outcome.code == 1
    assert "interrupted" in outcome.error
    until = time.monotonic() + SECONDS_TO_END
    while (leftover := left()) and time.monotonic() < until:
        time.sleep(0.2)
    assert leftover == []
    assert list(running.outputs.iterdir()) == []
