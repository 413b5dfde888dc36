"""Measurement of programs of known cost."""

from typing import Any

import pytest

MEGABYTE = 10**6
# Allocates and writes as many megabytes as its argument says.
_FILL = "import sys; filled = bytearray(b'x') * (int(sys.argv[1]) * 10**6)"
_TWO_WORKERS = f"""
import subprocess, sys, time
code = {_FILL!r} + "; print(flush=True); sys.stdin.read()"
workers = [subprocess.Popen([sys.executable, "-c", code, "100"], stdin=-1, stdout=-1) for _ in range(2)]
for worker in workers:
    worker.stdout.readline()
time.sleep(0.5)
for worker in workers:
    worker.communicate()
"""
_SPIN = "import time\nwhile time.process_time() < 0.25: pass"


@pytest.fixture
def run(benchmark: Any) -> Any:
    return benchmark("processes").run_python


@pytest.fixture
def sampled_often(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """New worker processes are found within 0.1 seconds, not 0.5."""
    monkeypatch.setattr(benchmark("processes"), "_SAMPLE_SECONDS", 0.02)


@pytest.mark.usefixtures("sampled_often")
def test_memory_of_workers_adds_up(run: Any) -> None:
    assert run(["-c", _TWO_WORKERS]).peak_bytes >= 200 * MEGABYTE


def test_time_that_is_slept_is_no_cpu_time(run: Any) -> None:
    slept, spun = run(["-c", "import time; time.sleep(0.5)"]), run(["-c", _SPIN])

    assert slept.wall_seconds >= 0.5
    assert slept.cpu_seconds < 0.25 <= spun.cpu_seconds


def test_a_failure_shows_its_last_lines(run: Any) -> None:
    with pytest.raises(RuntimeError, match=r"exited with 3:\nbecause"):
        run(["-c", "import sys; print('because', file=sys.stderr); sys.exit(3)"])
