"""Runs of a ledger: when they were charged, whom their epsilons protect, and what several of them spend together.

Windows of time. A release counts at each time at which it was charged. For a run that is charged now, all releases
count that were charged after the beginning of the window that ends now, those with a later time among them. Every
window of the times in a ledger is within a cap then, if all its runs were charged under that cap: when the last of the
runs of a window was charged, all others of the window were counted.

Clocks. The order of the runs is the order in which they were charged. A run whose time is before that of an earlier run
shows a clock that was set back; its own time says nothing, so that it counts as charged right before the next run whose
time can be trusted, or now. Times of different machines may differ by `CLOCK_TOLERANCE`, and windows are longer by
twice as much. A run without a time counts always.

A clock that was set back, but not before the time of a run in the ledger, cannot be recognized: the ledger is empty, or
its newest run is older than the false time. Such a run counts from the false time, so it leaves a window early, but not
earlier than if it had been charged at the time of the newest run before it; the first run of a ledger at any time.

Adjacency. The epsilon of a unit, such as a person, bounds what is learned about each of its records, so sums for
records count all runs. The epsilon of a record says nothing about a unit, nor that of another kind of unit.

Functions take the runs in the order in which they were charged, times in seconds since 1970, and the column of the
privacy units, or None for records.
"""

from __future__ import annotations

import calendar
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...transforms.errors import InputError
from .spent_budget import LedgerEntry, SpentBudget, Window, costs, total

CLOCK_TOLERANCE = 600
"""Seconds by which the clocks of two machines may differ without a notice."""

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""UTC, as the ledger holds it."""


@dataclass(frozen=True)
class ChargedRun:
    """Run of a ledger, or a run that is about to be charged.

    Attributes:
      entries: Releases of the run.
      time: Seconds since 1970 when it was charged; None if the ledger does not say.
      unit: Column of the privacy units that the epsilons are for; None for records.
      max_records: Largest number of records of a unit; None for records.
      title: Time, command and label, for messages.
    """

    entries: tuple[LedgerEntry, ...]
    time: int | None = None
    unit: str | None = None
    max_records: int | None = None
    title: str = ""

    @classmethod
    def from_dict(cls, run: dict[str, Any]) -> ChargedRun:
        """Reads the JSON object of a run.

        Raises ValueError if a value is out of range, or unit and adjacency do not agree; KeyError if a key is missing;
        TypeError if a part is not an object.
        """
        unit = run.get("unit")
        if (unit is not None) != (run.get("adjacency") == "unit"):
            raise ValueError("a run has a unit if its adjacency is unit")
        if unit is not None and not (isinstance(unit["column"], str) and type(unit["max_records"]) is int):
            raise ValueError("the unit of a run must be the name of a column with a whole number of records")
        parts = [str(run.get("time", "without a time")), str(run.get("command", ""))]
        label = f"of label {run['label']}" if "label" in run else ""
        return cls(
            tuple(LedgerEntry.from_dict(entry) for entry in run["charges"]),
            parse_time(run.get("time")),
            None if unit is None else unit["column"],
            None if unit is None else unit["max_records"],
            " ".join(part for part in [*parts, label] if part),
        )

    @property
    def per(self) -> str:
        """Whom the epsilons are for: the column of the units, or record."""
        return "record" if self.unit is None else self.unit


def parse_time(text: Any) -> int | None:
    """Parses a time in UTC, in `TIME_FORMAT`, for example 2030-01-31T12:00:00Z; None for anything else."""
    try:
        return calendar.timegm(time.strptime(text, TIME_FORMAT))
    except (TypeError, ValueError):
        return None


def same_time(one: Any, other: Any) -> bool:
    """Compares two times as the ledger holds them: True if they differ by at most `CLOCK_TOLERANCE`.

    No window tells them apart then. For runs that are equal otherwise.
    """
    first, second = parse_time(one), parse_time(other)
    return first is not None and second is not None and abs(first - second) <= CLOCK_TOLERANCE


def latest_times(runs: Sequence[ChargedRun]) -> list[float]:
    """Latest time at which each run may have been charged.

    That is the run's own time; for a run whose time is before that of an earlier one, the latest time of the run after
    it; infinite if there is none, and for a run without a time.
    """
    in_order, newest = [], -math.inf
    for run in runs:
        in_order.append(run.time is not None and run.time >= newest - CLOCK_TOLERANCE)
        newest = max(newest, -math.inf if run.time is None else run.time)
    found, latest = [], math.inf
    for run, ordered in zip(reversed(runs), reversed(in_order), strict=True):
        if run.time is None:
            latest = math.inf
        elif ordered:
            latest = run.time
        found.append(latest)
    return found[::-1]


def counted_runs(runs: Sequence[ChargedRun], window: Window | None, now: int) -> list[ChargedRun]:
    """Selects the runs of the window that ends now, and all with a later time; without a window, all runs."""
    if window is None:
        return list(runs)
    start = now - _length(window)
    return [run for run, latest in zip(runs, latest_times(runs), strict=True) if latest > start]


def spent_by(runs: Sequence[ChargedRun], counted: Iterable[ChargedRun], unit: str | None) -> dict[str, SpentBudget]:
    """Cost of each distinct release of the runs that count.

    If a release has several charges among all runs, its largest epsilon and its largest delta count. For units, only
    releases that were charged for them are included (`unbounded_runs` finds the others).
    """
    names = {entry.release for run in counted for entry in run.entries}
    return {release: cost for release, cost in costs(_entries(runs, unit)).items() if release in names}


def unbounded_runs(runs: Sequence[ChargedRun], counted: Iterable[ChargedRun], unit: str | None) -> list[ChargedRun]:
    """Those of the counted runs with a release that was never charged for these units; none for records."""
    if unit is None:
        return []
    bounded = {entry.release for entry in _entries(runs, unit)}
    return [run for run in counted if not all(entry.release in bounded for entry in run.entries)]


def largest_window(runs: Sequence[ChargedRun], window: Window, unit: str | None) -> SpentBudget:
    """Largest sum of epsilon and largest sum of delta within any window, which may be those of two windows."""
    costs_of = costs(_entries(runs, unit))
    charged = sorted(
        (latest, entry.release)
        for run, latest in zip(runs, latest_times(runs), strict=True)
        for entry in run.entries
        if entry.release in costs_of
    )
    inside = Counter(release for latest, release in charged if latest == math.inf)
    spent = total([costs_of[release] for release in inside])
    most, first = spent, 0
    for latest, release in charged[: len(charged) - inside.total()]:
        if not inside[release]:
            spent = total([spent, costs_of[release]])
        inside[release] += 1
        while charged[first][0] <= latest - _length(window):
            gone = charged[first][1]
            inside[gone] -= 1
            if not inside[gone]:
                spent = SpentBudget(spent.epsilon - costs_of[gone].epsilon, spent.delta - costs_of[gone].delta)
            first += 1
        most = SpentBudget(max(most.epsilon, spent.epsilon), max(most.delta, spent.delta))
    return most


def _entries(runs: Iterable[ChargedRun], unit: str | None) -> list[LedgerEntry]:
    return [entry for run in runs if unit is None or run.unit == unit for entry in run.entries]


def _length(window: Window) -> int:
    return window.seconds + 2 * CLOCK_TOLERANCE


def corrupt(name: str, place: str) -> InputError:
    """Error for an entry that cannot be read, to be raised by the caller.

    `name` is the path of the ledger, and `place` the line or row of the entry.
    """
    return InputError(f"ledger {name} is corrupt ({place}); restore it from a backup before releasing again")
