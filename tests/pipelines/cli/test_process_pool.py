"""Process pool: results are in order, errors are raised in the caller, no process is left."""

import multiprocessing
import os
import signal
import time

import pytest
from labeldp.pipelines.flags.arguments import available_cpus
from labeldp.pipelines.publish.signals import sigterm_as_interrupt
from labeldp.pipelines.study.process_pool import map_in_processes


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


def test_there_is_a_processor() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_the_order_of_the_items(processes: int) -> None:
    results = list(map_in_processes(square, range(6), processes))

    assert [result for result, _ in results] == [0, 1, 4, 9, 16, 25]
    where = {process for _, process in results}
    assert (where == {os.getpid()}) == (processes == 1)
    assert len(where) <= processes


@pytest.mark.parametrize("items", [[], [3]])
def test_little_work_needs_no_other_process(items: list[int]) -> None:
    assert list(map_in_processes(square, items, 8)) == [(number**2, os.getpid()) for number in items]


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
