"""Ledgers of JSON lines, one per run: in a file, for the runs of one machine, or in an object of a store.

File. No crash and no full disk loses or tears a line: it is written to a second file first. If its writer is killed
while it appends the line to the ledger, readers take the rest of the line from there: a charge is complete as soon as
its first byte is in the ledger. Functions raise InputError if the file cannot be read, and StageError if a line cannot
be written, for example because the disk is full; the ledger is as before then.

Object. Caps hold across machines: a charge reads the object, checks the caps and replaces the object on the condition
that no other run has replaced it meanwhile (If-Match on S3, the generation on Google Cloud Storage). If one has, it
starts again. A store that ignores the condition is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from ...transforms.errors import InputError, StoreConflict, StoreError, named_file
from ...transforms.io.filesystems import make_folders, read_text, store_of, sync_folder
from ...transforms.stores.object_store import ABSENT, require_conditions

_PENDING = ".pending"
"""Extension of the second file. It lies beside the ledger while a line is appended."""

_PATIENCE_SECONDS = 60.0
_LONGEST_PAUSE = 1.0
_DATABASE = "for a ledger in a database give sqlite:///FILE or postgresql://USER@HOST/DATABASE"


class LedgerFile:
    """Runs in a file of JSON lines.

    Attributes:
      name: Path of the file, for messages.
    """

    def __init__(self, path: str):
        """Names the file, which need not exist yet."""
        self.name = path

    def rows(self) -> list[tuple[str, str]]:
        """Place ("line 1") and text of each line that is not empty; none if the file does not exist."""
        if not os.path.exists(self.name):
            return []
        return _rows(read_ledger(self.name))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the file against other processes of this machine."""
        make_folders(os.path.dirname(os.path.abspath(self.name)))
        try:
            import fcntl
        except ImportError:
            # Windows: a file that is locked there cannot be read by others, so another one beside it is.
            from filelock import FileLock

            with FileLock(f"{self.name}.lock"):
                yield
            return
        with _opened(self.name) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def append(self, run: dict[str, Any], check: Callable[[Sequence[tuple[str, str]]], None]) -> None:
        """Appends a run and syncs the file to disk. The caller holds the lock.

        `check` looks at the lines so far, and raises if the run must not be appended.
        """
        check(self.rows())
        append_line(self.name, json.dumps(run))


def read_ledger(path: str) -> str:
    """Reads the text of a ledger that exists. A last line that was torn by a crash is complete."""
    text = read_text(path)
    return text + _missing(path, text)


def append_line(path: str, line: str) -> None:
    """Appends a line to a ledger and syncs it to disk; completes a torn last line before.

    The ledger, whose lock is held, is created if it does not exist. The line is ASCII text without its newline.
    """
    before = read_text(path) if os.path.exists(path) else ""
    torn = _missing(path, before)
    # An editor may have left out the newline at the end of the last line.
    newline = "" if (before + torn).endswith("\n") or not before else "\n"
    pending = path + _PENDING
    with named_file("charging the ledger", path), _opened(path) as ledger:
        if not before:
            # The name of a new ledger: a release must not outlive its charge.
            sync_folder(os.path.dirname(os.path.abspath(path)))
        if torn:
            _write_all(ledger.fileno(), torn)
        # A folder that is not writable has no second file; a torn line is reported as corrupt then.
        with contextlib.suppress(PermissionError):
            _create(pending, f"{line}\n", os.fstat(ledger.fileno()).st_mode & 0o777)
        size = os.fstat(ledger.fileno()).st_size
        try:
            _write_all(ledger.fileno(), f"{newline}{line}\n")
        except BaseException:
            # Where the file may only be appended to, this fails; the second file is kept then.
            os.ftruncate(ledger.fileno(), size)
            _remove(pending)
            raise
    _remove(pending)


def _missing(path: str, text: str) -> str:
    """The rest of a torn last line, or nothing."""
    last = text[text.rfind("\n") + 1 :]
    pending = path + _PENDING
    if not last or not os.path.isfile(pending):
        return ""
    line = read_text(pending)
    return line[len(last) :] if line.startswith(last) and line.endswith("\n") else ""


def _opened(path: str) -> BinaryIO:
    """Opens a ledger for appending. A new one is open to its owner only; the mode of an old one stays."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600), "ab")


def _create(path: str, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        _write_all(descriptor, text)
    except BaseException:
        _remove(path)
        raise
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


def _write_all(descriptor: int, text: str) -> None:
    rest = text.encode()
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


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
