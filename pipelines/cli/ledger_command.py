"""`labeldp ledger`: the runs of a ledger as a table, what they cost together, and what remains below a cap."""

from __future__ import annotations

import argparse
import calendar
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from ...mechanisms.core.budget import MIN_EPSILON, decimal_value, shown_above
from ...transforms.errors import InputError
from ...transforms.io.filesystems import is_remote
from ...transforms.progress_log import LOGGER
from ...transforms.stores.object_store import is_store
from ..errors import UsageError, one_line
from ..flags.arguments import log_to_stderr
from ..ledger.charged_runs import (
    CLOCK_TOLERANCE,
    ChargedRun,
    counted_runs,
    largest_window,
    latest_times,
    spent_by,
    unbounded_runs,
)
from ..ledger.ledger import Ledger, is_database
from ..ledger.spent_budget import SMALLEST_DELTA, Caps, SpentBudget, Window, compose, composed_epsilon, total
from ..spec.machine import check_extra, check_file
from ..spec.written_files import TABLE, write_file
from .exit_codes import run_command
from .text_format import Row, json_text, table_lines

_COLUMNS = ("day", "command", "label", "unit", "epsilon", "delta", "output")


@dataclass(frozen=True)
class LedgerSums:
    """Sums of the runs that count.

    Attributes:
      runs: Number of runs in the ledger.
      counted: Number of those that count: of the last window, or all.
      releases: Number of their distinct releases: a repeated run makes none.
      parts: Number of the parts of these that are charged, such as histogram and labels.
      spent: Basic composition; None for units if a run was not charged for them.
      composed: Epsilon at the target delta; None without one, or if there is none.
      largest: The most that was spent in any window; None without windows, or as `spent`.
      unbounded: Runs that were charged for others than the units.
    """

    runs: int
    counted: int
    releases: int
    parts: int
    spent: SpentBudget | None
    composed: float | None
    largest: SpentBudget | None
    unbounded: Sequence[ChargedRun]


def run(args: argparse.Namespace, store_flags: Sequence[str]) -> int:
    """Runs the command with Beam's flags for the store, if the ledger is on one; returns the exit code."""
    log_to_stderr()
    return run_command("labeldp ledger", lambda: _show(args, store_flags), (InputError, OSError))


def _show(args: argparse.Namespace, store_flags: Sequence[str]) -> None:
    caps = _check_flags(args)
    _open(args.place, store_flags)
    ledger = Ledger(args.place)
    documents = ledger.runs()
    runs = [ChargedRun.from_dict(document) for document in documents]
    now = calendar.timegm(time.gmtime())
    sums = ledger_sums(runs, args.unit_column, caps.window, args.delta, now)
    rows = [_row(document, run) for document, run in zip(documents, runs, strict=True)]
    if args.json is not None:
        write_file(args.json, json_text(rows, format=TABLE, **_facts(args, sums)), TABLE, "--json")
    if rows:
        print("\n".join(map(one_line, table_lines(rows, _COLUMNS))), end="\n\n")
    for name, text in _lines(args, caps, sums):
        print(f"{name:<11}{one_line(text)}")
    _warn_about_clocks(runs, now)


def _check_flags(args: argparse.Namespace) -> Caps:
    if args.epsilon_cap is not None and not args.epsilon_cap > 0:
        raise UsageError(f"--epsilon_cap must be above 0, not {args.epsilon_cap:g}")
    if args.delta is not None:
        if not SMALLEST_DELTA <= args.delta < 1:
            raise UsageError(f"--delta must be from {SMALLEST_DELTA:g} to below 1, not {args.delta:g}")
        check_extra("--delta", "ledger", "dp_accounting")
    if args.json is not None:
        check_file("--json", args.json)
    try:
        return Caps(args.epsilon_cap, None, None if args.cap_window is None else Window.parse(args.cap_window))
    except ValueError as error:
        raise UsageError(f"--cap_window {error}") from None


def _open(place: str, store_flags: Sequence[str]) -> None:
    """Checks that there is a ledger; that of a store or a server need not exist before its first run."""
    if is_store(place):
        # It loads Beam.
        from ..spec.store_access import check_store, open_stores

        open_stores({}, store_flags)
        check_store("the argument", place, listing=False)
        return
    if store_flags:
        raise UsageError(f"{store_flags[0]}: flags of an object store need a URL, s3:// or gs://")
    if is_database(place):
        check_extra("a ledger in a database", "ledger", "sqlalchemy")
    elif is_remote(place):
        # The rest of the URL may hold a password.
        raise UsageError(
            f"{place.partition('://')[0]}:// holds no ledger: name a file, s3://, gs://, sqlite:///FILE or "
            "postgresql://USER@HOST/DATABASE"
        )
    elif not os.path.isfile(place):
        raise UsageError(f"{place} is not a file: name the ledger that was charged")


def ledger_sums(
    runs: Sequence[ChargedRun], unit: str | None, window: Window | None, delta: float | None, now: int
) -> LedgerSums:
    """Adds up the runs, in the order in which they were charged, that count in the window that ends now.

    `unit` is the column of the privacy units; None for records. Without a window, all runs count. `delta` is the target
    of the composition; None for basic composition alone. `now` is in seconds since 1970.
    """
    counted = counted_runs(runs, window, now)
    costs = spent_by(runs, counted, unit)
    unbounded = unbounded_runs(runs, counted, unit)
    # Beyond the window that ends now there may be other runs that bound nothing for the unit.
    largest, spent = None, None if unbounded else total(costs.values())
    if window is not None and spent is not None and not unbounded_runs(runs, runs, unit):
        # Runs of the future, which count now, may be in no window together with others.
        largest = SpentBudget(*map(max, spent, largest_window(runs, window, unit)))
    return LedgerSums(
        runs=len(runs),
        counted=len(counted),
        releases=len({frozenset(entry.release for entry in run.entries) for run in counted}),
        parts=len({entry.release for run in counted for entry in run.entries}),
        spent=spent,
        composed=None if unbounded or delta is None else composed_epsilon(list(costs.values()), delta),
        largest=largest,
        unbounded=unbounded,
    )


def _row(document: dict[str, Any], run: ChargedRun) -> Row:
    spent = compose(run.entries)
    return {
        "day": one_line(str(document.get("time", ""))[:10]),
        "command": one_line(str(document.get("command", ""))),
        "label": one_line(str(document.get("label", ""))),
        "unit": "record" if run.unit is None else f"{one_line(run.unit)} (at most {run.max_records})",
        "epsilon": shown_above(spent.epsilon),
        "delta": shown_above(spent.delta),
        "output": one_line(str(document.get("output", ""))),
    }


def _facts(args: argparse.Namespace, sums: LedgerSums) -> dict[str, Any]:
    """The members of the JSON document besides the table: sums are rounded up, what remains down."""
    facts: dict[str, Any] = {
        "unit_column": args.unit_column, "cap_window": args.cap_window, "runs_counted": sums.counted,
        "releases": sums.releases, "parts": sums.parts,
    }  # fmt: skip
    for name, spent in (("", sums.spent), ("largest_", sums.largest)):
        facts[f"{name}epsilon"] = None if spent is None else shown_above(spent.epsilon)
        facts[f"{name}delta"] = None if spent is None else shown_above(spent.delta)
    facts |= {"composed_epsilon": sums.composed, "composed_delta": args.delta, "epsilon_cap": args.epsilon_cap}
    remaining = None if args.epsilon_cap is None or sums.spent is None else _remaining(args.epsilon_cap, sums.spent)
    return facts | {"epsilon_remaining": None if remaining is None else _shown_below(remaining)}


def _shown_below(exact: Fraction) -> float:
    """The nearest float if as a decimal it is no more, else the next one below."""
    nearest = float(exact)
    return nearest if decimal_value(nearest) <= exact else math.nextafter(nearest, 0)


def _remaining(cap: float, spent: SpentBudget) -> Fraction:
    """Budget that remains below a cap; 0 if it is too little for any release."""
    left = decimal_value(cap) - spent.epsilon
    return left if left >= Fraction(MIN_EPSILON) else Fraction(0)


def _lines(args: argparse.Namespace, caps: Caps, sums: LedgerSums) -> list[tuple[str, str]]:
    per = "record" if args.unit_column is None else args.unit_column
    of = "" if caps.window is None else f" of the last {caps.window.text}, {sums.runs} in all"
    lines = [
        ("runs", f"{sums.counted}{of}"),
        ("releases", f"{sums.releases}, of {sums.parts} noised parts; a repeated run makes no new release"),
    ]
    if sums.spent is None:
        first = sums.unbounded[0]
        count = f"{len(sums.unbounded)} run{'' if len(sums.unbounded) == 1 else 's'}"
        return [
            *lines,
            ("epsilon", f"unknown per {per}: {count} charged otherwise, that of {first.title} per {first.per}"),
        ]
    lines.append(("epsilon", f"{_text(sums.spent)} per {per}, by basic composition"))
    if args.delta is not None:
        composed = "no bound" if sums.composed is None else f"{_decimal(Fraction(sums.composed), ROUND_CEILING)}"
        lines.append(("composed", f"{composed} with delta {args.delta:g}, by privacy loss distributions"))
    if sums.largest is not None:
        lines.append(("largest", f"{_text(sums.largest)} within any {args.cap_window}"))
    if caps.epsilon is not None:
        remaining = _decimal(_remaining(caps.epsilon, sums.spent), ROUND_FLOOR)
        excess = " (it is exceeded)" if sums.spent.epsilon > decimal_value(caps.epsilon) else ""
        lines.append(("remains", f"{remaining} of --epsilon_cap {caps.epsilon:g}{excess}"))
    return lines


def _text(spent: SpentBudget) -> str:
    return f"{float(spent.epsilon):.6g} with delta {float(spent.delta):.6g}"


def _decimal(value: Fraction, rounding: str) -> str:
    """Six digits, rounded in one direction."""
    context = Context(prec=6, rounding=rounding)
    return f"{float(context.divide(Decimal(value.numerator), Decimal(value.denominator))):g}"


def _warn_about_clocks(runs: Sequence[ChargedRun], now: int) -> None:
    unsure = [run for run, latest in zip(runs, latest_times(runs), strict=True) if latest != run.time]
    if unsure:
        LOGGER.warning(
            "warning: the time of a run is missing or before that of an earlier run, %d times, first in the run of %s: "
            "in windows such runs count as charged right before the next run, or now", len(unsure), unsure[0].title,
        )  # fmt: skip
    later = [run for run in runs if run.time is not None and run.time > now + CLOCK_TOLERANCE]
    if later:
        LOGGER.warning(
            "warning: the run of %s is in the future: it stays in every window until then; if a clock was wrong, "
            "correct the time in the ledger", later[0].title,
        )  # fmt: skip
