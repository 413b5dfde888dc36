"""Signals end commands in one line, with what they started. Interrupted runs are in faults/test_recovery.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS = 60
SECONDS_TO_BE_COLLECTED = 20


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


@pytest.mark.parametrize(("module", "number"), [("numpy", signal.SIGTERM), ("apache_beam.transforms", signal.SIGINT)])
def test_an_interrupt_during_imports(
    module: str, number: int, job: Any, environment: dict[str, str], outputs: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module, number=int(number)), *job()],
        check=False, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "labeldp privatize: interrupted; nothing was done\n"
    assert list(outputs.iterdir()) == []
