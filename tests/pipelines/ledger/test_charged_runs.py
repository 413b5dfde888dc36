"""Sums of runs in windows of time and under adjacencies, against brute force over random sequences of charges."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.ledger import ledger as ledger_module
from labeldp.pipelines.ledger.charged_runs import (
    CLOCK_TOLERANCE,
    ChargedRun,
    counted_runs,
    largest_window,
    latest_times,
    parse_time,
    spent_by,
    unbounded_runs,
)
from labeldp.pipelines.ledger.ledger import Ledger
from labeldp.pipelines.ledger.spent_budget import Caps, LedgerEntry, Window, total
from labeldp.transforms import InputError

START = 1_900_000_000
HOUR, DAY = 3600, 86_400
MARGIN = 2 * CLOCK_TOLERANCE
WINDOW = Window.parse("2d")


class Memory:
    """A store of a ledger that is a list."""

    name = "memory"

    def __init__(self) -> None:
        self.lines: list[str] = []

    def rows(self) -> list[tuple[str, str]]:
        return [(f"line {number}", line) for number, line in enumerate(self.lines, 1)]

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def append(self, run: dict[str, Any], check: Callable[[Sequence[tuple[str, str]]], None]) -> None:
        check(self.rows())
        self.lines.append(json.dumps(run))


def new_ledger() -> Ledger:
    ledger = Ledger("memory")
    ledger._store = Memory()  # type: ignore[assignment]
    return ledger


@contextmanager
def clock(seconds: int) -> Iterator[None]:
    """Sets the clock with which the ledger writes times."""
    fixed = SimpleNamespace(gmtime=lambda: time.gmtime(seconds), strftime=time.strftime)
    with mock.patch.object(ledger_module, "time", fixed):
        yield


def charge(ledger: Ledger, at: int, entries: Sequence[LedgerEntry], caps: Caps, unit: str | None = None) -> bool:
    """Charges releases; tells whether the caps admitted them."""
    details = {} if unit is None else {"unit": {"column": unit, "max_records": 3}}
    with clock(at):
        foreseen = ledger.exceeded(caps, entries, unit)
        if foreseen is None:
            ledger.charge(entries, caps, request="r", **details)
        else:
            with pytest.raises(InputError, match="^" + re.escape(str(foreseen))):
                ledger.charge(entries, caps, request="r", **details)
    return foreseen is None


def labels(*releases: tuple[str, float]) -> list[LedgerEntry]:
    return [LedgerEntry("labels", epsilon, name, epsilon / 2**20) for name, epsilon in releases]


def spent_in(charges: Sequence[tuple[int, Sequence[LedgerEntry]]], inside: Callable[[int], bool]) -> Fraction:
    """Brute force: the sum over the releases that have a charge inside, each at its largest epsilon anywhere."""
    names = {entry.release for at, entries in charges if inside(at) for entry in entries}
    every = [entry for _, entries in charges for entry in entries]
    return sum(
        (max(Fraction(str(each.epsilon)) for each in every if each.release == name) for name in names), Fraction(0)
    )


epsilons = st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0])
runs_of_releases = st.lists(st.tuples(st.sampled_from("abcdefgh"), epsilons), min_size=1, max_size=3)
gaps = st.one_of(
    st.integers(0, 3 * DAY), st.sampled_from([0, 1, HOUR, 2 * DAY, 2 * DAY + MARGIN, 2 * DAY + MARGIN - 1])
)
sequences = st.lists(st.tuples(gaps, runs_of_releases), min_size=1, max_size=12)
caps_on_epsilon = st.sampled_from([0.5, 1.0, 1.5, 2.2])


@settings(deadline=None)
@given(sequences, caps_on_epsilon)
def test_a_run_is_admitted_if_its_window_has_room(sequence: Any, cap: float) -> None:
    """With clocks that are right, nothing else is refused: windows are longer by the tolerance of clocks alone."""
    ledger, charged, now = new_ledger(), [], START
    for gap, releases in sequence:
        now += gap
        entries = labels(*releases)
        start = now - WINDOW.seconds - MARGIN
        fits = spent_in([*charged, (now, entries)], lambda at, start=start: at > start) <= Fraction(str(cap))
        assert charge(ledger, now, entries, Caps(cap, None, WINDOW)) == fits
        if fits:
            charged.append((now, entries))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8 * DAY), runs_of_releases), min_size=1, max_size=12), caps_on_epsilon)
def test_no_window_is_above_the_cap_whatever_the_clock_shows(sequence: Any, cap: float) -> None:
    """Brute force over all windows of recorded times: each that begins at a run, in every order of the times."""
    ledger, charged = new_ledger(), []
    for at, releases in sequence:
        if charge(ledger, START + at, labels(*releases), Caps(cap, None, WINDOW)):
            charged.append((START + at, labels(*releases)))
    recorded = [(parse_time(run["time"]), [LedgerEntry.from_dict(e) for e in run["charges"]]) for run in ledger.runs()]
    assert recorded == charged
    for first, _ in charged:
        # The largest epsilon of a release may come from a later charge, which was admitted with this sum, too.
        def inside(at: int, first: int = first) -> bool:
            return first <= at < first + WINDOW.seconds

        last = max(place for place, (at, _) in enumerate(charged) if inside(at))
        assert spent_in(charged[: last + 1], inside) <= Fraction(str(cap))


@settings(deadline=None)
@given(st.lists(st.tuples(gaps, runs_of_releases, st.booleans()), min_size=2, max_size=12), caps_on_epsilon)
def test_a_clock_that_is_set_back_before_a_run_of_the_ledger_hides_no_run(sequence: Any, cap: float) -> None:
    """Windows of the true times stay within the cap: some runs see a clock before the first run."""
    ledger, charged, now = new_ledger(), [], START
    for number, (gap, releases, wrong) in enumerate(sequence):
        now += gap
        shown = START - DAY * (number + 1) if wrong and charged else now
        entries = labels(*releases)
        if charge(ledger, shown, entries, Caps(cap, None, WINDOW)):
            charged.append((now, entries))
            start = now - WINDOW.seconds
            assert spent_in(charged, lambda at, start=start: at > start) <= Fraction(str(cap))


@settings(deadline=None)
@given(st.lists(st.tuples(gaps, runs_of_releases, st.integers(0, 4 * DAY)), min_size=2, max_size=12), caps_on_epsilon)
def test_a_run_counts_from_the_newest_time_before_it_whatever_its_clock_shows(sequence: Any, cap: float) -> None:
    """Clocks are set back by any time, also in an empty ledger: a run counts as if charged with the newest one."""
    ledger, charged, now, newest = new_ledger(), [], START, -float("inf")
    for gap, releases, back in sequence:
        now += gap
        entries = labels(*releases)
        if charge(ledger, now - back, entries, Caps(cap, None, WINDOW)):
            newest = max(newest, now - back)
            charged.append((newest, entries))
            start = now - WINDOW.seconds
            assert spent_in(charged, lambda at, start=start: at > start) <= Fraction(cap)


def test_a_clock_that_is_set_back_behind_no_run_of_the_ledger_is_not_recognized() -> None:
    """The limit that the guide states: such a run leaves the window early."""
    caps = Caps(1.0, None, WINDOW)
    for before, admitted in (([], True), ([START - 9 * DAY], True), ([START - DAY], False)):
        ledger = new_ledger()
        for place, at in enumerate(before):
            assert charge(ledger, at, labels((f"before {place}", 0.1)), caps)
        assert charge(ledger, START - 5 * DAY, labels(("set back", 0.6)), caps)
        assert charge(ledger, START, labels(("next", 0.6)), caps) == admitted


@pytest.mark.parametrize("lost", ["", "yesterday", None, 5, "2030-02-30T00:00:00Z", [1]])
def test_a_run_without_a_time_counts_always(lost: Any) -> None:
    """Entries by hand need no time."""
    entry = {"request": "by hand", "time": lost, "charges": [{"what": "labels", "epsilon": 0.7, "release": "x"}]}
    for run in (entry, {key: value for key, value in entry.items() if key != "time"}):
        ledger = new_ledger()
        ledger._store.lines.append(json.dumps(run))  # type: ignore[union-attr]
        assert not charge(ledger, START, labels(("a", 0.4)), Caps(1.0, None, WINDOW))
        assert charge(ledger, START, labels(("x", 0.7), ("a", 0.3)), Caps(1.0, None, WINDOW))


def test_delta_is_summed_in_the_same_window() -> None:
    ledger, caps = new_ledger(), Caps(None, 2e-6, WINDOW)
    for day in (0, 1):
        assert charge(ledger, START + day * DAY, [LedgerEntry("labels", 1, f"{day}", 1e-6)], caps)
    with clock(START + DAY):
        assert str(ledger.exceeded(caps, [LedgerEntry("labels", 1, "more", 1e-6)])) == (
            "--delta_cap 2e-06 would be exceeded: with this run the delta spent within 2d is 3e-06"
        )
    assert charge(ledger, START + 2 * DAY + MARGIN, [LedgerEntry("labels", 1, "next", 1e-6)], caps)


# Adjacencies.

units = st.sampled_from([None, "user", "household"])
mixed = st.lists(st.tuples(gaps, runs_of_releases, units), max_size=10)


def charged_runs(sequence: Any) -> list[ChargedRun]:
    now, runs = START, []
    for gap, releases, unit in sequence:
        now += gap
        runs.append(ChargedRun(tuple(labels(*releases)), now, unit, None if unit is None else 3))
    return runs


@settings(deadline=None)
@given(mixed, units, st.sampled_from([None, WINDOW]), st.integers(0, 3 * DAY))
def test_sums_for_a_unit_have_what_was_charged_for_it_or_none(
    sequence: Any, unit: str | None, window: Window | None, later: int
) -> None:
    runs = charged_runs(sequence)
    now = (runs[-1].time or 0) + later if runs else START
    counted = counted_runs(runs, window, now)
    start = -1 if window is None else now - window.seconds - MARGIN
    assert counted == [run for run in runs if (run.time or 0) > start]

    names = {entry.release for run in counted for entry in run.entries}
    bounds = {
        name: [Fraction(str(entry.epsilon)) for run in runs if unit in (None, run.unit) for entry in run.entries
               if entry.release == name]
        for name in names
    }  # fmt: skip
    found = {release: cost.epsilon for release, cost in spent_by(runs, counted, unit).items()}
    assert found == {name: max(values) for name, values in bounds.items() if values}
    without = {name for name, values in bounds.items() if not values}
    unbounded = unbounded_runs(runs, counted, unit)
    assert unbounded == [run for run in counted if without & {entry.release for entry in run.entries}]
    assert unit is not None or not unbounded
    if not unbounded:
        # What is learned about one record of a unit is at most what is learned about the unit.
        assert total(spent_by(runs, counted, unit).values()).epsilon <= sum(
            cost.epsilon for cost in spent_by(runs, counted, None).values()
        )


@settings(deadline=None)
@given(mixed, units, st.lists(st.integers(0, 9), max_size=2))
def test_the_largest_window(sequence: Any, unit: str | None, without_time: list[int]) -> None:
    runs = charged_runs(sequence)
    for place in without_time:
        if place < len(runs):
            runs[place] = ChargedRun(runs[place].entries, None, runs[place].unit)
    times = latest_times(runs)
    expected = [Fraction(0)] * 2
    for end in times:
        inside = [run for run, at in zip(runs, times, strict=True)
                  if at == float("inf") or end - WINDOW.seconds - MARGIN < at <= end]  # fmt: skip
        spent = total(spent_by(runs, inside, unit).values())
        expected = [max(expected[0], spent.epsilon), max(expected[1], spent.delta)]
    assert list(largest_window(runs, WINDOW, unit)) == expected


@pytest.mark.parametrize(("other", "per"), [(None, "record"), ("household", "household")])
def test_a_run_that_bounds_nothing_for_the_unit_is_named(other: str | None, per: str) -> None:
    ledger = new_ledger()
    assert charge(ledger, START, labels(("old", 0.1)), Caps(), other)
    assert charge(ledger, START, labels(("own", 0.1)), Caps(), "user")
    with clock(START):
        refusal = ledger.exceeded(Caps(5.0, 0.5), labels(("new", 0.1)), "user")
        again = ledger.exceeded(Caps(5.0, 0.5), labels(("old", 0.1)), "user")
    assert str(refusal) == (
        f"--epsilon_cap 5 per user cannot be kept: the run of 2030-03-17T17:46:40Z was charged per {per}, which is no "
        "bound per user; give the runs with --unit_column user a --ledger of their own"
    )
    assert again is None  # with this run, the release is charged per user
    assert not charge(ledger, START + DAY, labels(("new", 0.1)), Caps(None, 0.5, WINDOW), "user")
    assert charge(ledger, START + 2 * DAY + MARGIN, labels(("new", 0.1)), Caps(5.0, 0.5, WINDOW), "user")
    assert charge(ledger, START, labels(("new", 0.1)), Caps(), "user")  # without a cap nothing is promised
    assert [run["adjacency"] for run in ledger.runs()] == ["label" if other is None else "unit", *["unit"] * 3]


def test_sums_for_records_count_units_in_full() -> None:
    ledger = new_ledger()
    assert charge(ledger, START, labels(("a", 0.6)), Caps(), "user")
    assert not charge(ledger, START, labels(("b", 0.6)), Caps(1.0, 0.5))
    assert charge(ledger, START, labels(("b", 0.4)), Caps(1.0, 0.5))


@pytest.mark.parametrize(
    "change",
    [
        {"adjacency": "unit"},
        {"unit": {"column": "user", "max_records": 3}},
        {"adjacency": "unit", "unit": "user"},
        {"adjacency": "unit", "unit": {"column": "user"}},
        {"adjacency": "unit", "unit": {"column": 3, "max_records": 3}},
        {"adjacency": "unit", "unit": {"column": "user", "max_records": "3"}},
        {"adjacency": "label", "unit": {"column": "user", "max_records": 3}},
    ],
)
def test_a_unit_that_contradicts_the_adjacency_is_corrupt(change: dict[str, Any]) -> None:
    ledger = new_ledger()
    ledger._store.lines.append(json.dumps({"request": "r", "charges": [], **change}))  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"ledger memory is corrupt \(line 1\)"):
        ledger.runs()


@pytest.mark.parametrize(
    "text", ["", "30", "d", "0d", "-1d", "1.5d", "30 d", "30D", "30m", "1000000h", "\u0661d", "30d\n"]
)
def test_windows_of_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="takes a whole number of hours, days or weeks, such as 12h, 30d or 4w"):
        Window.parse(text)


def test_windows_in_seconds() -> None:
    assert [Window.parse(text).seconds for text in ("12h", "30d", "4w")] == [12 * HOUR, 30 * DAY, 28 * DAY]


@pytest.mark.parametrize(("gap", "expected"), [(-1, 2), (0, 1), (1, 1)])
def test_the_ends_of_a_window(gap: int, expected: int) -> None:
    """A window holds its end and not its beginning, for the cap and for the largest sum."""
    end = START + WINDOW.seconds + MARGIN + gap
    runs = [ChargedRun(tuple(labels((name, 1.0))), at) for name, at in (("a", START), ("b", end))]
    assert largest_window(runs, WINDOW, None).epsilon == expected
    assert len(counted_runs(runs, WINDOW, end)) == expected
