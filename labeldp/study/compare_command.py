"""`labeldp compare`: compares mechanisms at several epsilons for one prior."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

from labeldp import InputError, Prior, Quality, loss_named, quality

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


@dataclass(frozen=True)
class ComparisonCell:
    """One mechanism at one epsilon of the labels, to be solved for a prior and measured under it."""

    spec: MechanismSpec
    epsilon: float
    prior: Prior
    loss: str


@dataclass(frozen=True)
class ComparisonResult:
    """Result of one cell.

    Attributes:
      cell: The cell.
      quality: Errors of the randomizer; None where the mechanism could not be solved.
      seconds: Time to solve.
      reason: Message of the solver where it failed.
    """

    cell: ComparisonCell
    quality: Quality | None
    seconds: float
    reason: str | None = None

    def row(self) -> Row:
        """Values by column; the columns are explained in docs/choosing.md."""
        found = self.quality
        return {
            "mechanism": self.cell.spec.text,
            "epsilon": self.cell.epsilon,
            "certified": found and found.epsilon,
            "delta": found and found.delta,
            "mse": found and found.squared_error,
            "mae": found and found.absolute_error,
            "loss": found and found.loss,
            "max_variance": found and found.max_variance,
            "max_bias": found and found.max_bias,
            "outputs": found and found.outputs,
            "gap": found and found.gap,
            "seconds": round(self.seconds, 6),
            "reason": self.reason,
        }


def run(args: argparse.Namespace) -> None:
    """Prints the table and writes the requested files. Raises UsageError and InputError."""
    check_study_flags(args)
    named = args.mechanism or [*COMPARED_MECHANISMS, *([] if args.delta is None else ["gaussian"])]
    specs = parse_mechanisms(named, args)
    source = load_prior(args)
    cells = [ComparisonCell(spec, epsilon, source.prior, args.loss) for epsilon in args.epsilon for spec in specs]
    results = map_with_progress(solve_cell, cells, args.processes, "solved")
    rows = [result.row() for result in results]
    write_results(args, source, rows)
    print(_text(rows, args, source))
    if all(result.quality is None for result in results):
        raise InputError("no mechanism could be solved: see the reasons in the table")


def solve_cell(cell: ComparisonCell) -> ComparisonResult:
    """Solves and measures one cell; the result has a reason instead of a quality where this failed."""
    started = time.perf_counter()
    try:
        randomizer = cell.spec.mechanism(cell.loss).solve(cell.prior, cell.epsilon)
    except (ValueError, ArithmeticError, MemoryError) as error:
        return ComparisonResult(cell, None, time.perf_counter() - started, str(error) or type(error).__name__)
    seconds = time.perf_counter() - started
    return ComparisonResult(cell, quality(randomizer, cell.prior, loss_named(cell.loss)), seconds)


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
