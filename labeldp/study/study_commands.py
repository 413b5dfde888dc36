"""Shared parts of the commands that study a prior or a dataset: checks, worker processes, progress, output files.

The commands that study a prior need neither Beam nor data: they compute from a prior that is public or was released
before.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from labeldp import InputError, UsageError, loss_named

from ..mechanisms.core.budget import check_epsilon
from ..pipelines.cli.text_format import Row, csv_text, json_text
from ..pipelines.errors import one_line
from ..pipelines.flags.arguments import check_unique, local_copy
from ..pipelines.spec.machine import check_extra, check_file
from ..pipelines.spec.mechanism_spec import MechanismSpec, parse_mechanism_spec
from ..pipelines.spec.prior_file import PriorFile, read_prior
from ..pipelines.spec.written_files import CSV_TABLE, TABLE, write_file

Item = TypeVar("Item")
Result = TypeVar("Result")

SECONDS_BETWEEN_LINES = 2.0
"""Least time between two lines on progress."""


def check_study_flags(args: argparse.Namespace) -> None:
    """Checks the budgets and the files to write.

    Raises UsageError if a flag is wrong, or a file cannot be written.
    """
    for epsilon in args.epsilon:
        check_budget(epsilon)
    check_unique("epsilon", args.epsilon)
    if args.processes < 1:
        raise UsageError(f"--processes must be at least 1, not {args.processes}")
    for flag in ("csv", "json"):
        path = getattr(args, flag)
        if path is not None:
            check_file(f"--{flag}", path)


def check_budget(epsilon: float) -> None:
    """Checks a value of --epsilon. Raises UsageError if it is out of range."""
    try:
        check_epsilon(epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def parse_mechanisms(texts: Sequence[str], args: argparse.Namespace) -> list[MechanismSpec]:
    """Parses the values of --mechanism, in the order given, with the loss and the delta of the flags.

    Raises UsageError if a value is malformed or repeated, or --delta is given and no mechanism takes it.
    """
    check_unique("mechanism", texts)
    specs = [parse_mechanism_spec(text, args.loss, args.delta) for text in texts]
    if args.delta is not None and not any(spec.takes_delta for spec in specs):
        raise UsageError("--delta is for mechanisms with (epsilon, delta)-DP, such as gaussian; --mechanism names none")
    return specs


def load_prior(args: argparse.Namespace) -> PriorFile:
    """Reads the prior of --prior and checks that --loss is defined on its labels.

    Raises UsageError if the file cannot be read, or the loss is not defined on a label, and InputError if it is not a
    prior.
    """
    try:
        source = read_prior(local_copy(args, args.prior), args.prior)
    except UsageError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None
    try:
        loss_named(args.loss).check(source.prior.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    return source


def describe_prior(args: argparse.Namespace, source: PriorFile) -> str:
    """First line of the output: file, number of labels or range of residuals, and epsilon spent on the release."""
    cost = f"noised with epsilon {source.prior_epsilon:.6g}" if source.prior_epsilon else "taken as public"
    labels, found = source.prior.labels, source.residuals
    if found is None:
        return f"{one_line(args.prior)}: {len(labels)} labels, {cost}"
    around = f"around the center {one_line(found.center)}"
    return f"{one_line(args.prior)}: {len(labels)} residuals from {labels[0]:g} to {labels[-1]:g} {around}, {cost}"


def explain_residuals(source: PriorFile) -> list[str]:
    """Lines of text that explain results for residuals around a center; none for a prior of labels."""
    found = source.residuals
    if found is None:
        return []
    squared, share = found.clipping.squared, 100 * found.clipping.share
    lines = [
        "",
        "these are errors of residuals, the differences between labels and the center, to which the noise is added: a "
        "released label is the center plus a released residual, so its error is the same",
        "residuals are clipped to this range, which a job chooses anew for each epsilon; that adds an expected squared "
        f"error of {squared:.5g}, for {share:.3g} % of the records",
    ]
    if found.center_epsilon:
        lines.append(f"epsilon is without that of the center, which spent {found.center_epsilon:.6g}")
    return lines


def write_results(args: argparse.Namespace, source: PriorFile, rows: Sequence[Row], **facts: Any) -> None:
    """Writes the files of --csv and --json; `facts` are members of the JSON besides the rows."""
    if args.csv:
        write_file(args.csv, csv_text(rows), CSV_TABLE, "--csv")
    if args.json:
        about = {"prior": args.prior, "prior_epsilon": source.prior_epsilon, "loss": args.loss}
        write_file(args.json, json_text(rows, format=TABLE, **about, **facts), TABLE, "--json")


def map_with_progress(work: Callable[[Item], Result], items: Sequence[Item], processes: int, verb: str) -> list[Result]:
    """Results in the order of the items, as `map_in_processes` computes them, with progress as `progress` shows it."""
    return list(progress(map_in_processes(work, items, processes), len(items), verb))


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


def progress(iterable: Iterable[Item], total: int, verb: str) -> Iterator[Item]:
    """Shows progress on standard error while the caller handles items.

    A terminal gets a tqdm bar. Otherwise there is a line `labeldp: VERB 3 of 24` at most every two seconds, and one for
    the last item; `verb` is a past participle, for example "solved". An item counts as handled when the caller asks for
    the next one. Raises UsageError, which names the extra `evaluation`, if tqdm is not installed.
    """
    check_extra("progress", "evaluation", "tqdm")
    return _bar(iterable, total, verb) if sys.stderr.isatty() else _lines(iterable, total, verb)


def _bar(iterable: Iterable[Item], total: int, verb: str) -> Iterator[Item]:
    from tqdm import tqdm

    yield from tqdm(iterable, total=total, desc=f"labeldp: {verb}", file=sys.stderr, dynamic_ncols=True)


def _lines(iterable: Iterable[Item], total: int, verb: str) -> Iterator[Item]:
    last = time.monotonic()
    for done, item in enumerate(iterable, start=1):
        yield item
        if done == total or time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"labeldp: {verb} {done} of {total}", file=sys.stderr, flush=True)
