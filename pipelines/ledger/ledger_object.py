"""Ledger in an object of a store: JSON lines, one per run.

Caps hold across machines: a charge reads the object, checks the caps and replaces the object on the condition that
no other run has replaced it meanwhile (If-Match on S3, the generation on Google Cloud Storage). If one has, it
starts again. A store that ignores the condition is refused.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...transforms.errors import InputError, StoreConflict, StoreError
from ...transforms.stores.object_store import ABSENT, require_conditions
from ...transforms.stores.open_store import store_of

_PATIENCE_SECONDS = 60.0
_LONGEST_PAUSE = 1.0
_DATABASE = "for a ledger in a database give sqlite:///FILE or postgresql://USER@HOST/DATABASE"


class LedgerObject:
    """Runs in an object of JSON lines.

    Attributes:
      name: URL of the object, for messages.
    """

    def __init__(self, path: str):
        """Names the object, which need not exist yet."""
        self.name = path

    def rows(self) -> list[tuple[str, str]]:
        """Place ("line 1") and text of each line that is not empty; none if the object does not exist.

        Raises InputError if it cannot be read.
        """
        return _rows(self._read()[0])

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Does nothing: the condition of the write is the lock."""
        yield

    def append(self, run: dict[str, Any], check: Callable[[Sequence[tuple[str, str]]], None]) -> None:
        """Appends a run.

        `check` looks at the lines so far, and raises if the run must not be appended; each attempt calls it again.
        Raises InputError if the object cannot be read or written, or the store ignores conditions.
        """
        line, end = json.dumps(run), time.monotonic() + _PATIENCE_SECONDS
        with self._reasons("charged"):
            require_conditions(store_of(self.name), self.name)
        for attempt in range(1 << 30):
            text, version = self._read()
            if attempt and line in text.splitlines():
                # An earlier attempt has written it, and its answer was lost.
                return
            check(_rows(text))
            newline = "" if text.endswith("\n") or not text else "\n"
            try:
                with self._reasons("charged"):
                    store_of(self.name).write(self.name, f"{text}{newline}{line}\n".encode(), version)
                return
            except StoreConflict:
                if time.monotonic() > end:
                    raise InputError(
                        f"ledger {self.name} is charged by too many runs at once; nothing is released: run again"
                    ) from None
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.02 * 2**attempt)))

    def _read(self) -> tuple[str, str]:
        """Text and version."""
        with self._reasons("read"):
            found = store_of(self.name).read(self.name)
        if found is None:
            return "", ABSENT
        try:
            return found[0].decode(), found[1]
        except UnicodeDecodeError:
            raise InputError(f"ledger {self.name} is corrupt: it is not UTF-8 text; restore it from a backup") from None

    @contextlib.contextmanager
    def _reasons(self, what: str) -> Iterator[None]:
        try:
            yield
        except StoreConflict:
            raise
        except StoreError as error:
            raise InputError(f"ledger {self.name} cannot be {what}: {error.reason}; {_DATABASE}") from None


def _rows(text: str) -> list[tuple[str, str]]:
    return [(f"line {number}", line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
