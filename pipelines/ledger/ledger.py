"""Privacy ledger: what was released from a dataset, the budget that was spent, and caps on it.

The ledger has one entry per run, in a file of JSON lines or, for a team, in a database or on an object store.
`charged_runs` and `spent_budget` add them up. Methods raise InputError if the ledger is corrupt or cannot be read, and
StageError if a line cannot be written, for example because the disk is full; the ledger is as before then.

File. No crash and no full disk loses or tears a line: it is written to a second file first. If its writer is killed
while it appends the line to the ledger, readers take the rest of the line from there: a charge is complete as soon as
its first byte is in the ledger.

Object. Caps hold across machines: a charge reads the object, checks the caps and replaces the object on the condition
that no other run has replaced it meanwhile (If-Match on S3, the generation on Google Cloud Storage). If one has, it
starts again. A store that ignores the condition is refused.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from ...transforms.errors import InputError, StoreConflict, StoreError, named_file
from ...transforms.io.filesystems import FileSystems, is_remote, make_folders, read_text, store_of, sync_folder
from ...transforms.stores.object_store import ABSENT, is_store, require_conditions
from .charged_runs import TIME_FORMAT, ChargedRun, corrupt, counted_runs, spent_by, unbounded_runs
from .spent_budget import CapError, Caps, LedgerEntry, SpentBudget, Window, total

LEDGER_NAME = "labeldp_ledger.jsonl"


def default_ledger_path(target: str) -> str:
    """Default ledger of an output: labeldp_ledger.jsonl in the folder that holds the output."""
    if not is_remote(target):
        return os.path.join(os.path.dirname(target.rstrip("/")), LEDGER_NAME)
    return FileSystems.join(FileSystems.split(target.rstrip("/"))[0], LEDGER_NAME)


def is_database(place: str) -> bool:
    """Tests whether a ledger is in a database that `ledger_database` knows, by its URL with any driver."""
    return re.match(r"(sqlite|postgres|postgresql)(\+\w*)?://", place) is not None


def without_password(place: str) -> str:
    """The place of a ledger without the password that a URL may hold."""
    return re.sub(r"^(\w+(\+\w*)?://[^:/@]*):[^@]*@", r"\1@", place)


class Ledger:
    """Ledger of one dataset: one entry per run, in a file or object of JSON lines or in a database.

    Attributes:
      path: Path of the file, or URL of the database without its password.
    """

    def __init__(self, path: str):
        """Names the ledger, which need not exist yet.

        `path` is that of a local file, or the URL of an object on S3 or Google Cloud Storage, or of a database. Raises
        InputError if a URL is malformed, its driver is not installed, or it is on another remote filesystem.
        """
        if is_database(path):
            try:
                from .ledger_database import LedgerDatabase

                self._store = LedgerDatabase(path)
            except ImportError:
                raise InputError(
                    "a ledger in a database needs the extra ledger: pip install 'labeldp[ledger]'"
                ) from None
        elif is_store(path):
            self._store = LedgerObject(path)
        elif is_remote(path):
            raise InputError(
                f"ledger {path}: two runs could charge it at once and exceed a cap, because this filesystem has no "
                "conditional writes; use a local file, s3://, gs://, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
            )
        else:
            self._store = LedgerFile(path)
        self.path = self._store.name

    def runs(self) -> list[dict[str, Any]]:
        """Reads all runs, one object each; its `charges` are ledger entries.

        The message for a corrupt ledger names the line of the file or the row of the table.
        """
        return self._parsed(self._store.rows())

    def spent(self, more: Sequence[LedgerEntry] = (), window: Window | None = None) -> SpentBudget:
        """Adds up all distinct releases in the window that ends now, each as what it costs a record.

        `more` are entries that are charged now. Without a window, all time counts.
        """
        runs = [ChargedRun.from_dict(run) for run in self.runs()]
        now = ChargedRun(tuple(more))
        return total(spent_by([*runs, now], [*counted_runs(runs, window, _now()), now], None).values())

    def exceeded(self, caps: Caps, entries: Sequence[LedgerEntry], unit: str | None = None) -> CapError | None:
        """Reason why a run that would be charged now must not be, because of the caps; None if it may be.

        `unit` is the column of the privacy units that the run is charged for; None for records.
        """
        return _exceeded(self.runs(), caps, ChargedRun(tuple(entries), _now(), unit))

    def has_request(self, request: str) -> bool:
        """Looks for a run of a request: a repetition of it may turn out to be the same release."""
        return any(run["request"] == request for run in self.runs())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks a file against other processes of this machine.

        Databases and object stores need no lock: each charge is one serializable transaction, or one conditional write.
        """
        with self._store.locked():
            yield

    def charge(self, entries: Sequence[LedgerEntry], caps: Caps, **details: Any) -> None:
        """Appends a run durably. The caller holds the lock.

        `details` are further keys of the entry; `request` among them, and `unit` if the epsilons are those of privacy
        units: an object of their column and of `max_records`, the largest number of records of one. Raises InputError
        if a cap would be exceeded, or the ledger is corrupt or cannot be used; nothing is written then.
        """
        run = {
            "time": time.strftime(TIME_FORMAT, time.gmtime()),
            **details,
            "adjacency": "unit" if details.get("unit") else "label",
            "charges": [entry.to_dict() for entry in entries],
        }

        charged = ChargedRun.from_dict(run)

        def check(rows: Sequence[tuple[str, str]]) -> None:
            exceeded = _exceeded(self._parsed(rows), caps, charged)
            if exceeded:
                raise exceeded.extended(" (ledger {ledger_path}); nothing is released", ledger_path=self.path)

        self._store.append(run, check)

    def _parsed(self, rows: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        runs = []
        for place, text in rows:
            try:
                run = json.loads(text)
                _ = str(run["request"]), ChargedRun.from_dict(run)
            except (ValueError, KeyError, TypeError, RecursionError):
                raise corrupt(self.path, place) from None
            runs.append(run)
        return runs


def _exceeded(before: Sequence[dict[str, Any]], caps: Caps, run: ChargedRun) -> CapError | None:
    if not caps.stated:
        return None
    runs = [*map(ChargedRun.from_dict, before), run]
    now = _now() if run.time is None else run.time
    counted = [*counted_runs(runs[:-1], caps.window, now), run]
    unbounded = unbounded_runs(runs, counted, run.unit)
    if unbounded:
        waiting = "" if caps.window is None else f", or wait until it was {caps.window.text} ago"
        name, cap = next(iter(caps.stated.items()))
        return CapError(
            f"{{{name}}} {{cap:g}} per {{unit}} cannot be kept: the run of {{title}} was charged per {{per}}, which is "
            "no bound per {unit}; give the runs with {unit_column} {unit} a {ledger} of their own{waiting}",
            cap=cap,
            unit=run.unit,
            title=unbounded[0].title,
            per=unbounded[0].per,
            waiting=waiting,
        )
    return caps.exceeded(total(spent_by(runs, counted, run.unit).values()), run.unit)


def _now() -> int:
    return calendar.timegm(time.gmtime())


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
