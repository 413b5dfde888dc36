"""Independent pieces of work in processes of their own, results in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Item = TypeVar("Item")


Result = TypeVar("Result")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Item], Result], items: Sequence[Item], processes: int) -> Iterator[Result]:
    """work(item) for every item, in the order of the items, each as soon as it and those before it are done.

    work: a function of a module, and with the items what pickle can send. processes: how many to use; with 1 the work
    is done in this one. Raises MemoryError when a process is killed, which is what systems do when memory runs out.
    Whoever stops early, by an exception or Ctrl-C, ends the processes.
    """
    if min(processes, len(items)) <= 1:
        yield from map(work, items)
        return
    others = set(multiprocessing.active_children())
    # Spawned, not forked: a library's threads and locks in this process are none of the workers' business.
    pool = ProcessPoolExecutor(min(processes, len(items)), multiprocessing.get_context("spawn"), _start_worker)
    try:
        # Not `pool.map`: it cancels futures when it is closed, and a pool whose processes were killed fails on those.
        for future in [pool.submit(work, item) for item in items]:
            yield future.result()
    except BaseException as error:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        if isinstance(error, BrokenProcessPool):
            raise MemoryError("a worker process was killed: free memory, or give --processes 1") from None
        raise
    finally:
        pool.shutdown()


def _start_worker() -> None:
    # Ctrl-C reaches the whole group of processes; the parent is the one to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
