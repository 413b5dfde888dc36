"""Prompt end of a command on Ctrl-C or SIGTERM, with its worker processes."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.2
_END_SECONDS = 3.0
_RECEIVED: list[int] = []
"""Signals that this process received while `signals_as_interrupts` was active."""


def was_signalled() -> bool:
    """Tells whether this process received Ctrl-C or SIGTERM while `signals_as_interrupts` was active."""
    return bool(_RECEIVED)


@contextlib.contextmanager
def signals_as_interrupts(first: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Turns Ctrl-C and SIGTERM into KeyboardInterrupt, after killing the worker processes.

    `first` is called before that, for example to cancel a job on a cluster; its errors are ignored.
    """

    def interrupt(number: int, _: Any) -> None:
        _RECEIVED.append(number)
        with contextlib.suppress(Exception):
            first()
        # Before the staging folder is removed, so that no worker writes to it afterwards.
        _kill_workers()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignores Ctrl-C and SIGTERM in a block that must be done completely or not at all."""
    if threading.current_thread() is not threading.main_thread():
        # Other threads get no signal.
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signals() -> None:
    """Ignores Ctrl-C and SIGTERM from here on, until `signals_as_interrupts` ends."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def ended_completely(block: AbstractContextManager[T]) -> Iterator[T]:
    """Enters a block whose end, unless it raises, no signal interrupts: what it did would be reported as not done."""
    entered = block.__enter__()
    try:
        yield entered
    except BaseException as error:
        if not block.__exit__(type(error), error, error.__traceback__):
            raise
    else:
        with signals_ignored():
            block.__exit__(None, None, None)


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Turns SIGTERM into KeyboardInterrupt, which Ctrl-C raises by default."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_in_thread(work: Callable[[], Any]) -> None:
    """Runs a function in another thread, waits for its end, and raises what it raised.

    A signal then never interrupts the runner's own code, parts of which would wait for their threads without end.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
    if failed:
        raise failed[0]


def _kill_workers() -> None:
    """Kills the descendants of this process that /proc lists: childless ones first, so that parents reap them."""
    until = time.monotonic() + _END_SECONDS
    while (below := _childless_descendants()) and time.monotonic() < until:
        for process in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def _childless_descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            # The name in parentheses may hold anything; the state and the parent's id follow it.
            pid, _, rest = file.read().partition(" ")
            state, parent = rest.rpartition(")")[2].split()[:2]
            # An own child that has ended stays a zombie until this process collects it or ends.
            if (state, int(parent)) != ("Z", os.getpid()):
                children.setdefault(int(parent), []).append(int(pid))
    found = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += [process for process in below if process not in children]
        waiting += below
    return found
