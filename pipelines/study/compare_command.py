"""`labeldp compare`: mechanisms side by side, at several epsilons, for one prior. No Beam, no data."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...mechanisms.analysis.quality import Quality, loss_without_labels, quality
from ...mechanisms.core.losses import loss_named
from ...mechanisms.core.prior import Prior
from ..cli.arguments import ArgumentParser
from ..cli.process_pool import in_order
from ..cli.progress_bar import progress
from . import prior_commands as study
from .figures import Line, draw_lines
from .mechanism_spec import HELP, MechanismSpec
from .prior_file import PriorFile
from .tables import Row, table_lines

DEFAULT_MECHANISMS = ("rr_on_bins", "bias_limited", "unbiased", "rr", "laplace", "staircase")


@dataclass(frozen=True)
class Cell:
    """One mechanism at one epsilon, to be solved for a prior and measured with it."""

    spec: MechanismSpec
    epsilon: float
    prior: Prior
    loss: str


@dataclass(frozen=True)
class Result:
    """What became of a cell. quality: None where it could not be solved; reason then says why. seconds: of solving."""

    cell: Cell
    quality: Quality | None
    seconds: float
    reason: str | None = None

    def row(self) -> Row:
        """As a line of the table."""
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


def run(argv: Sequence[str] | None = None) -> int:
    """Prints the table, and writes it and the picture where asked. Returns the exit code."""
    parser = ArgumentParser("labeldp compare", "Solve several mechanisms for one prior and compare what they cost.")
    parser.add_argument(
        "--mechanism", nargs="+", metavar="NAME", help=f"{HELP}; default {' '.join(DEFAULT_MECHANISMS)}"
    )
    study.add_flags(parser, "what the labels may spend")
    return study.run(parser, argv, _compare)


def _compare(args: argparse.Namespace) -> None:
    named = args.mechanism or [*DEFAULT_MECHANISMS, *([] if args.delta is None else ["gaussian"])]
    contenders = study.mechanisms(named, args)
    source = study.prior_of(args)
    cells = [Cell(each, epsilon, source.prior, args.loss) for epsilon in args.epsilon for each in contenders]
    results = list(progress(in_order(solve_cell, cells, args.processes), len(cells), "solved"))
    rows = [result.row() for result in results]
    study.write_files(args, source, rows, lambda path: _picture(path, results, args, source))
    print(_text(rows, args, source))
    if all(result.quality is None for result in results):
        raise ValueError("no mechanism could be solved: the table says why")


def solve_cell(cell: Cell) -> Result:
    """Solves and measures one cell. A mechanism that refuses is a result with its reason."""
    started = time.perf_counter()
    try:
        randomizer = cell.spec.mechanism(cell.loss).solve(cell.prior, cell.epsilon)
    except (ValueError, ArithmeticError, MemoryError) as error:
        return Result(cell, None, time.perf_counter() - started, str(error) or type(error).__name__)
    seconds = time.perf_counter() - started
    return Result(cell, quality(randomizer, cell.prior, loss_named(cell.loss)), seconds)


def _text(rows: Sequence[Row], args: argparse.Namespace, source: PriorFile) -> str:
    # The loss asked for is a column already, unless it is the Poisson loss.
    hidden = {"loss"} if args.loss in ("squared", "absolute") else set()
    hidden |= {name for name in ("delta", "gap", "reason") if all(row[name] in (None, 0.0) for row in rows)}
    heading, *lines = table_lines(rows, [name for name in rows[0] if name not in hidden])
    text = [f"expected over {study.describe(args, source)}", "", heading]
    mechanisms = len({row["mechanism"] for row in rows})
    for place, line in enumerate(lines):
        # A block for each epsilon.
        if place and mechanisms > 1 and place % mechanisms == 0:
            text.append("")
        text.append(line)
    return "\n".join(text)


def _picture(path: str, results: Sequence[Result], args: argparse.Namespace, source: PriorFile) -> bytes:
    epsilons = sorted(args.epsilon)
    found = {(result.cell.spec.text, result.cell.epsilon): result.quality for result in results}
    lines = []
    for text in dict.fromkeys(result.cell.spec.text for result in results):
        qualities = [found[text, epsilon] for epsilon in epsilons]
        lines.append(Line(text, epsilons, [each.loss if each else None for each in qualities]))
    return draw_lines(
        path,
        lines,
        title=f"What a label loses to privacy, {len(source.prior.labels)} labels",
        x_label="epsilon of the labels",
        y_label=f"expected {args.loss} loss",
        levels=[("one output for all", loss_without_labels(source.prior, loss_named(args.loss)))],
    )
