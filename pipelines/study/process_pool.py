"""Parallel map over worker processes, with results in order."""

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


def map_in_processes(work: Callable[[Item], Result], items: Sequence[Item], processes: int) -> Iterator[Result]:
    """Yields work(item) in the order of the items, from worker processes, as soon as all results before it are there.

    The function is at the top level of a module; its argument and result must be picklable. With one process or a
    single item, the work is done in this process. If the caller stops early, by an exception, Ctrl-C or `close`, the
    worker processes are killed. Raises MemoryError if a worker process is killed, which is how the system reacts when
    memory runs out.
    """
    if min(processes, len(items)) <= 1:
        yield from map(work, items)
        return
    others = set(multiprocessing.active_children())
    # Spawned, not forked: a forked worker would inherit threads and locks of libraries in an unknown state.
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
    # Ctrl-C reaches the whole process group; the parent process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
