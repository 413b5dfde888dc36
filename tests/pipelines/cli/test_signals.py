"""Signals: an interrupted run leaves no files. Killed runs are tested in tests/pipelines/faults."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS = 60
SECONDS_TO_BE_COLLECTED = 20


class Running:
    """A job in its own process and process group."""

    def __init__(self, fork: Any):
        self.fork = fork
        self._said: list[str] = []

    def wait_for(self, text: str) -> None:
        """Waits until the job prints the text on standard error."""
        for line in self.fork.stderr:
            self._said.append(line)
            if text in line:
                return
        pytest.fail(f"the job ended before it said {text!r}: {''.join(self._said)}")

    def end(self, number: int) -> tuple[int, str]:
        """Sends the signal. Returns the exit code, and all of standard error."""
        os.kill(self.fork.pid, number)
        outcome = self.fork.wait()
        assert outcome.out == ""
        return outcome.code, "".join(self._said) + outcome.err


@pytest.fixture
def start(job: Any, census: Path, forked: Any) -> Iterator[Callable[..., Running]]:
    """Function (flag=value, ...) -> running job over the census. Its second half alone takes more than a second."""
    started: list[Running] = []

    def run(**flags: Any) -> Running:
        standard = {"input": census, "label": "work", "label_max": 52, "output_format": "tfrecord"}
        started.append(Running(forked(job(**(standard | flags)))))
        return started[-1]

    yield run
    for each in started:
        each.fork.kill()


@pytest.mark.parametrize("moment", ["input file", "solved"], ids=["while counting", "while privatizing"])
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_ends_a_run_and_leaves_nothing(start: Any, outputs: Path, moment: str, workers: int) -> None:
    run = start(direct_num_workers=workers)
    run.wait_for(moment)
    assert [path.name[:10] for path in outputs.iterdir()] == [".released."]

    code, err = run.end(signal.SIGTERM)

    assert code == 1
    assert list(outputs.iterdir()) == []
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "labeldp privatize: interrupted; nothing is released"


STUCK = """
import os, signal, subprocess, sys, threading, time
import labeldp.pipelines.job.job_graph as steps
from labeldp.pipelines.cli.commands import main


def run_pipeline(*arguments):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    started = subprocess.Popen(["sh", "-c", "sleep 1000 & echo; sleep 1000"], stdout=subprocess.PIPE)
    started.stdout.readline()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)


steps.run_pipeline = run_pipeline
sys.exit(main(sys.argv[1:]))
"""


def test_sigterm_ends_what_the_runner_started(
    job: Any, environment: dict[str, str], outputs: Path, group_lives: Callable[[int], bool]
) -> None:
    """Threads and child processes of the runner are ended too.

    Beam's state sampler is a thread that an interrupt at the wrong moment leaves running; job servers are processes.
    """
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, *job()],
        env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, err = process.communicate(timeout=30)
            until = time.monotonic() + SECONDS_TO_BE_COLLECTED
            while group_lives(process.pid) and time.monotonic() < until:
                time.sleep(0.1)
            assert not group_lives(process.pid)
        finally:
            if group_lives(process.pid):
                os.killpg(process.pid, signal.SIGKILL)

    assert process.returncode == 1
    assert err.splitlines()[-1] == "labeldp privatize: interrupted; nothing is released"
    assert list(outputs.iterdir()) == []


# A background process of a shell ignores SIGINT by inheritance, so the default handler is restored.
INTERRUPTIBLE = """
import signal, sys
from labeldp.pipelines.cli.commands import main

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_without_a_job_is_interrupted_in_one_line(
    number: int, environment: dict[str, str], outputs: Path, tmp_path: Path
) -> None:
    """`solve` waits for its prior, a named pipe without data."""
    pipe, output = tmp_path / "prior.csv", outputs / "mechanism.json"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "solve", f"--prior={pipe}", "--epsilon=1", f"--output={output}"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        writer = open_when_read(pipe)
        try:
            process.send_signal(number)
            out, err = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
            os.close(writer)

    assert process.returncode == 1
    assert (out, err) == ("", "labeldp solve: interrupted; nothing is written\n")
    assert list(outputs.iterdir()) == []


def open_when_read(pipe: Path) -> int:
    """Opens a named pipe for writing, once another process has opened it for reading."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.05)
    pytest.fail("the command did not read its prior")
