"""Worker processes and progress: results in order, errors raised in the caller, lines on standard error alone."""

import io
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from labeldp.pipelines.errors import UsageError
from labeldp.pipelines.publish.signals import sigterm_as_interrupt
from labeldp.study import study_commands
from labeldp.study.study_commands import map_in_processes


def square(number: int) -> tuple[int, int]:
    # The first task is the slowest.
    time.sleep(0.2 if number == 0 else 0.0)
    return number**2, os.getpid()


def fail(number: int) -> int:
    if number == 1:
        raise ValueError("one is not wanted")
    return number


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_the_order_of_the_items(processes: int) -> None:
    results = list(map_in_processes(square, range(6), processes))

    assert [result for result, _ in results] == [0, 1, 4, 9, 16, 25]
    where = {process for _, process in results}
    assert (where == {os.getpid()}) == (processes == 1)
    assert len(where) <= processes


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_is_handed_on(processes: int) -> None:
    with pytest.raises(ValueError, match="one is not wanted"):
        list(map_in_processes(fail, [0, 1, 2], processes))
    assert multiprocessing.active_children() == []


def test_a_killed_process_is_no_result() -> None:
    with pytest.raises(MemoryError, match="--processes 1"):
        list(map_in_processes(die, [0, 1, 2], 2))
    assert multiprocessing.active_children() == []


def test_whoever_stops_early_leaves_no_process() -> None:
    results = map_in_processes(square, range(1, 4), 2)
    assert next(results)[0] == 1
    assert multiprocessing.active_children()

    results.close()  # type: ignore[attr-defined]

    assert multiprocessing.active_children() == []


def test_sigterm_is_an_interrupt_and_then_what_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_commands, "SECONDS_BETWEEN_LINES", 0.0)

    assert list(study_commands.progress(iter("abc"), 3, "solved")) == ["a", "b", "c"]

    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"labeldp: solved {done} of 3" for done in (1, 2, 3)]


def test_items_come_as_they_are_made() -> None:
    made: list[int] = []

    def make() -> Iterator[int]:
        for item in range(3):
            made.append(item)
            yield item

    assert next(study_commands.progress(make(), 3, "made")) == 0
    assert made == [0]


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    assert list(study_commands.progress(range(4), 4, "solved")) == [0, 1, 2, 3]

    assert capsys.readouterr().out == ""
    assert "labeldp: solved: 100%" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


def test_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)

    with pytest.raises(UsageError, match=r"extra evaluation: pip install 'labeldp\[evaluation\]'"):
        study_commands.progress([1], 1, "solved")
