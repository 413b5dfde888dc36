"""How far a long command is: a bar on a terminal, plain lines elsewhere. Always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from .optional_extras import check_extra

_SECONDS_BETWEEN_LINES = 2.0


Item = TypeVar("Item")


def progress(iterable: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items of iterable, one by one, while standard error shows how many were handled.

    total: how many there will be. what: what is being done, as in "solved". On a terminal a tqdm bar; elsewhere a
    line `labeldp: WHAT 3 of 24` at most every two seconds, and one for the last. An item counts as handled when the
    next is asked for. Raises UsageError, naming the extra `evaluation`, when tqdm is not installed.
    """
    check_extra("progress", "evaluation", "tqdm")
    return _bar(iterable, total, what) if sys.stderr.isatty() else _lines(iterable, total, what)


def _bar(iterable: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    from tqdm import tqdm

    yield from tqdm(iterable, total=total, desc=f"labeldp: {what}", file=sys.stderr, dynamic_ncols=True)


def _lines(iterable: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    last = time.monotonic()
    for done, item in enumerate(iterable, start=1):
        yield item
        if done == total or time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"labeldp: {what} {done} of {total}", file=sys.stderr, flush=True)
