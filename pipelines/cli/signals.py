"""Ending a job that was told to end: promptly, with its worker processes, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_SIGNAL_SECONDS = 0.2


_SECONDS_TO_END = 3.0


_SIGNALS: list[int] = []


def signalled() -> bool:
    """Whether this process was told to end, by Ctrl-C or SIGTERM."""
    return bool(_SIGNALS)


@contextlib.contextmanager
def signals_as_interrupts(first: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the job in the same way, and the hidden folder is cleaned up.

    first: what to do before worker processes are ended.
    """

    def interrupt(number: int, _: Any) -> None:
        _SIGNALS.append(number)
        with contextlib.suppress(Exception):
            first()
        # First, so that they write nothing any more when the hidden folder is removed.
        _end_workers()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does, by a KeyboardInterrupt."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_workers() -> None:
    """Kills the worker processes below this one, where the system tells of them in /proc; youngest first, so that
    each parent collects its own."""
    until = time.monotonic() + _SECONDS_TO_END
    while (below := _childless_descendants()) and time.monotonic() < until:
        for process in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def _childless_descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            # The name in parentheses may hold anything; the state and the parent follow it.
            pid, _, rest = file.read().partition(" ")
            children.setdefault(int(rest.rpartition(")")[2].split()[1]), []).append(int(pid))
    found = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += [process for process in below if process not in children]
        waiting += below
    return found


def in_background(work: Callable[[], Any]) -> None:
    """Runs the work in another thread and waits: a signal then never strikes in the middle of the runner's own code,
    some of which would wait for its threads for ever."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_SIGNAL_SECONDS)
    if failed:
        raise failed[0]
