"""Progress of long stages: log lines of the logger `labeldp`, and on a terminal the share done and the time left.

A command opens a `progress_bar`; code below it calls `advance` once for each batch or file. Without a terminal, and in
the first two seconds, log lines are all there is. Counts are of records and files, which are public.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_SECONDS_BEFORE = 2.0
_SECONDS_BETWEEN = 0.5
_SECONDS_BETWEEN_LINES = 10.0


class _Work:
    """One kind of work: what was done of it since when, and of how much; None if that is not known."""

    def __init__(self, total: int | None):
        self.done, self.total, self.started = 0, total, time.monotonic()

    def add(self, done: int) -> None:
        if self.total and self.done + done > self.total:
            # The next pass does the same again.
            self.done, self.started = 0, time.monotonic()
        self.done += done


class _Display:
    """Shows the work that advanced last, at most twice a second: by a bar of tqdm, or in lines without it."""

    def __init__(self, total: int | None):
        self.total, self._lock = total, threading.Lock()
        self._works: dict[str, _Work] = {}
        self._bar: Any = None
        self._next = time.monotonic() + _SECONDS_BEFORE

    def advance(self, doing: str, done: int, total: int | None, unit: str) -> None:
        with self._lock:
            if doing not in self._works:
                finished = [work.done for work in self._works.values()]
                # Every pass has the records of the first one.
                self._works[doing] = _Work(total or self.total or max(finished, default=0) or None)
            work = self._works[doing]
            work.add(done)
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + self._show(doing, work, unit)

    def _show(self, doing: str, work: _Work, unit: str) -> float:
        """Shows the work; returns the seconds until the next time."""
        try:
            from tqdm import tqdm
        except ImportError:
            print(f"labeldp: {_line(doing, work, unit)}", file=sys.stderr, flush=True)
            return _SECONDS_BETWEEN_LINES
        if self._bar is None:
            self._bar = tqdm(leave=False, file=sys.stderr, dynamic_ncols=True, delay=1)
        bar = self._bar
        bar.desc, bar.unit, bar.n, bar.total = f"labeldp: {doing}: ", f" {unit}", work.done, work.total
        bar.start_t = time.time() - (time.monotonic() - work.started)
        bar.refresh()
        return _SECONDS_BETWEEN

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _line(doing: str, work: _Work, unit: str) -> str:
    if not work.total or not work.done:
        return f"{doing} {work.done:,} {unit}"
    left = (time.monotonic() - work.started) * (work.total / work.done - 1)
    share = work.done / work.total
    return f"{doing} {share:.0%}, {work.done:,} of {work.total:,} {unit}, about {left:.0f} s left"


# The display of the outermost block, if it has one.
_SHOWN: list[_Display] = []


@contextlib.contextmanager
def progress_bar(total: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Shows what `advance` is told within the block; `total` finds the number of records of a pass, if it is known."""
    if _SHOWN or not sys.stderr.isatty():
        yield
        return
    display = _Display(total())
    _SHOWN.append(display)
    try:
        with _above_the_bar():
            yield
    finally:
        _SHOWN.clear()
        display.close()


def _above_the_bar() -> Any:
    """Context in which log lines are put above a bar, not into it."""
    try:
        from tqdm.contrib.logging import logging_redirect_tqdm
    except ImportError:
        return contextlib.nullcontext()
    return logging_redirect_tqdm([logging.getLogger("labeldp")])


def advance(doing: str, done: int, total: int | None = None, unit: str = "records") -> None:
    """Tells that something more was done; `doing` is a participle, and `total` the number of all there is to do."""
    for display in _SHOWN:
        display.advance(doing, done, total, unit)


LOGGER = logging.getLogger("labeldp")

RECORDS_BETWEEN_LINES = 1_000_000
"""A line is logged for each so many records."""


class Progress:
    """Counts the records that a stage handled in this process, and logs one line per million.

    Lines name rows, never bytes or times. Multiples of a million are the same however records are cut into batches. The
    threads of a process can share one, by a handle of `apache_beam.utils.shared.Shared`.
    """

    def __init__(self, doing: str):
        """Starts at zero; `doing` is a participle that describes the work, as in "privatized"."""
        self._doing = doing
        self._records = 0
        self._lock = threading.Lock()

    def add(self, records: int) -> None:
        """Adds records, >= 0, and logs the multiples of a million that were reached; a terminal shows all."""
        advance(self._doing, records)
        with self._lock:
            before = self._records // RECORDS_BETWEEN_LINES
            self._records += records
            reached = self._records // RECORDS_BETWEEN_LINES
            for multiple in range(before + 1, reached + 1):
                LOGGER.info("%s %s records", self._doing, f"{multiple * RECORDS_BETWEEN_LINES:,}")
