"""`labeldp compare`: compares mechanisms at several epsilons for one prior."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial

from labeldp import InputError, Prior, loss_named, quality

from ..pipelines.cli.text_format import Row, table_lines
from ..pipelines.spec.mechanism_spec import MechanismSpec
from ..pipelines.spec.prior_file import PriorFile
from .study_commands import (
    check_study_flags,
    describe_prior,
    explain_residuals,
    load_prior,
    map_with_progress,
    parse_mechanisms,
    write_results,
)
from .study_flags import COMPARED_MECHANISMS


def run(args: argparse.Namespace) -> None:
    """Prints the table and writes the requested files. Raises UsageError and InputError."""
    check_study_flags(args)
    named = args.mechanism or [*COMPARED_MECHANISMS, *([] if args.delta is None else ["gaussian"])]
    specs = parse_mechanisms(named, args)
    source = load_prior(args)
    cells = [(epsilon, spec) for epsilon in args.epsilon for spec in specs]
    work = partial(solve_cell, prior=source.prior, loss=args.loss)
    rows = map_with_progress(work, cells, args.processes, "solved")
    write_results(args, source, rows)
    print(_text(rows, args, source))
    if all(row["reason"] for row in rows):
        raise InputError("no mechanism could be solved: see the reasons in the table")


def solve_cell(cell: tuple[float, MechanismSpec], prior: Prior, loss: str) -> Row:
    """Solves a mechanism at one epsilon of the labels, and measures it under the prior.

    Gives values by column, which docs/choosing.md explains; with the message of the solver as reason where it failed.
    """
    (epsilon, spec), started = cell, time.perf_counter()
    randomizer, reason = None, None
    try:
        randomizer = spec.mechanism(loss).solve(prior, epsilon)
    except (ValueError, ArithmeticError, MemoryError) as error:
        reason = str(error) or type(error).__name__
    seconds = time.perf_counter() - started
    found = None if randomizer is None else quality(randomizer, prior, loss_named(loss))
    return {
        "mechanism": spec.text,
        "epsilon": epsilon,
        "certified": found and found.epsilon,
        "delta": found and found.delta,
        "mse": found and found.squared_error,
        "mae": found and found.absolute_error,
        "loss": found and found.loss,
        "max_variance": found and found.max_variance,
        "max_bias": found and found.max_bias,
        "outputs": found and found.outputs,
        "gap": found and found.gap,
        "seconds": round(seconds, 6),
        "reason": reason,
    }


def _text(rows: Sequence[Row], args: argparse.Namespace, source: PriorFile) -> str:
    # The columns mse and mae hold the squared and the absolute loss; only the Poisson loss needs its own column.
    hidden = {"loss"} if args.loss in ("squared", "absolute") else set()
    hidden |= {name for name in ("delta", "gap", "reason") if all(row[name] in (None, 0.0) for row in rows)}
    heading, *lines = table_lines(rows, [name for name in rows[0] if name not in hidden])
    text = [f"expected over {describe_prior(args, source)}", "", heading]
    mechanisms = len({row["mechanism"] for row in rows})
    for place, line in enumerate(lines):
        # A block for each epsilon.
        if place and mechanisms > 1 and place % mechanisms == 0:
            text.append("")
        text.append(line)
    return "\n".join([*text, *explain_residuals(source)])
