"""Privacy ledger: what was released from a dataset, the budget that was spent, and caps on it.

The ledger has one entry per run, in a file of JSON lines or, for a team, in a database or on an object store.
`charged_runs` and `spent_budget` add them up. Methods raise InputError if the ledger is corrupt or cannot be read.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ...mechanisms.release.unit_bound import UnitBound
from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems, is_remote
from ...transforms.stores.object_store import is_store
from .charged_runs import TIME_FORMAT, ChargedRun, corrupt, counted_runs, spent_by, unbounded_runs
from .ledger_lines import LedgerFile, LedgerObject
from .spent_budget import CapError, Caps, LedgerEntry, SpentBudget, Window, total

LEDGER_NAME = "labeldp_ledger.jsonl"


def unit_details(unit: UnitBound | None) -> dict[str, Any]:
    """Details of the privacy unit of a run for `Ledger.charge`: column and largest number of records.

    There are none for single records.
    """
    return {} if unit is None else {"unit": {"column": unit.column, "max_records": unit.max_records}}


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
