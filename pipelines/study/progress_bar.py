"""Progress of a long command on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..flags.optional_extras import check_extra

Item = TypeVar("Item")

_SECONDS_BETWEEN_LINES = 2.0


def progress(iterable: Iterable[Item], total: int, verb: str) -> Iterator[Item]:
    """Shows progress on standard error while the caller handles items.

    A terminal gets a tqdm bar. Otherwise there is a line `labeldp: VERB 3 of 24` at most every two seconds, and one for
    the last item; `verb` is a past participle, for example "solved". An item counts as handled when the caller asks for
    the next one. Raises UsageError, which names the extra `evaluation`, if tqdm is not installed.
    """
    check_extra("progress", "evaluation", "tqdm")
    return _bar(iterable, total, verb) if sys.stderr.isatty() else _lines(iterable, total, verb)


def _bar(iterable: Iterable[Item], total: int, verb: str) -> Iterator[Item]:
    from tqdm import tqdm

    yield from tqdm(iterable, total=total, desc=f"labeldp: {verb}", file=sys.stderr, dynamic_ncols=True)


def _lines(iterable: Iterable[Item], total: int, verb: str) -> Iterator[Item]:
    last = time.monotonic()
    for done, item in enumerate(iterable, start=1):
        yield item
        if done == total or time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"labeldp: {verb} {done} of {total}", file=sys.stderr, flush=True)
