"""`labeldp plan`: what a budget will buy, before any data is read. No Beam, no data.

How epsilon is best split between the histogram and the labels, what loss follows for each epsilon, and which bias the
labels should have for a model to learn from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from ...mechanisms.analysis.planning import ModelPlan, Split, expected_loss, plan_model, plan_split
from ...mechanisms.analysis.quality import loss_without_labels
from ...mechanisms.core.losses import loss_named
from ...mechanisms.core.prior import Prior
from ..cli.arguments import ArgumentParser, UsageError
from ..cli.process_pool import in_order
from ..cli.progress_bar import progress
from . import prior_commands as study
from .figures import Line, draw_lines
from .mechanism_spec import HELP, MechanismSpec
from .prior_file import PriorFile
from .tables import Row, table_lines

_MOST_RECORDS = 10**15


_ROUNDING = 1e-12


_SPLIT_COLUMNS = ("epsilon", "default_e1", "default_loss", "best_e1", "best_loss", "known_loss", "flat_loss")


_MODEL_COLUMNS = ("epsilon", "recommended", "model_e1", "model_error", "bias_part", "variance_part",
                  "default_error", "unbiased_error", "rr_on_bins_error", "flat_error")  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One epsilon to plan for. features: None for no recommendation."""

    spec: MechanismSpec
    loss: str
    prior: Prior
    records: int
    epsilon: float
    draws: int
    features: int | None
    explained: float | None


@dataclass(frozen=True)
class Planned:
    """What became of a task. reason: why there is no split, where there is none."""

    epsilon: float
    split: Split | None = None
    model: ModelPlan | None = None
    reason: str | None = None

    def row(self) -> Row:
        """As a line of the table. *_e1: what the histogram spends. *_loss, *_error: as in `Split`, of labels and of
        a model; *_loss_deviation, *_error_deviation: their standard errors."""
        split, model = self.split, self.model
        best = model and model.split.best
        return {
            "epsilon": self.epsilon,
            "default_e1": split and split.default.prior_epsilon,
            "default_loss": split and split.default.value,
            "default_loss_deviation": split and split.default.standard_error,
            "best_e1": split and split.best.prior_epsilon,
            "best_loss": split and split.best.value,
            "best_loss_deviation": split and split.best.standard_error,
            "known_loss": split and split.known,
            "flat_loss": split and split.flat,
            "recommended": model and model.mechanism,
            "model_e1": best and best.prior_epsilon,
            "model_error": best and best.value,
            "model_error_deviation": best and best.standard_error,
            "bias_part": best and best.parts[0],
            "variance_part": best and best.parts[1],
            "default_error": model and model.split.default.value,
            "unbiased_error": model and model.unbiased,
            "rr_on_bins_error": model and model.rr_on_bins,
            "flat_error": model and model.split.flat,
            "reason": self.reason,
        }


def run(argv: Sequence[str] | None = None) -> int:
    """Prints the plan, and writes it and the picture where asked. Returns the exit code."""
    parser = ArgumentParser("labeldp plan", "What a privacy budget will buy, from a prior and a number of records.")
    add = parser.add_argument
    add("--records", type=int, metavar="N", help="how many records there will be; a release folder knows its own")
    add("--features", type=int, metavar="D", help="recommend a mechanism for a linear model of so many features")
    add("--explained", type=float, metavar="R2", help="what part of the labels' variance they explain; default unknown")
    add("--mechanism", default="rr_on_bins", metavar="NAME", help=f"what to split for; {HELP}; default rr_on_bins")
    add("--draws", type=int, default=5, metavar="M", help="histograms to simulate for each split; default 5")
    study.add_flags(parser, "the whole privacy budget, prior and labels together")
    return study.run(parser, argv, _plan)


def _plan(args: argparse.Namespace) -> None:
    (spec,) = study.mechanisms([args.mechanism], args)
    source = study.prior_of(args)
    records = _checked(args, source)
    tasks = [
        Task(spec, args.loss, source.prior, records, epsilon, args.draws, args.features, args.explained)
        for epsilon in args.epsilon
    ]
    planned = list(progress(in_order(plan_epsilon, tasks, args.processes), len(tasks), "planned"))
    rows = [each.row() for each in planned]
    study.write_files(
        args, source, rows, lambda path: _picture(path, planned, args, source, records),
        records=records, mechanism=args.mechanism, features=args.features, explained=args.explained, draws=args.draws,
    )  # fmt: skip
    print(_text(rows, args, source, records))
    if all(each.split is None for each in planned):
        raise ValueError("no epsilon could be planned for: the table says why")


def _checked(args: argparse.Namespace, source: PriorFile) -> int:
    """The number of records. Raises UsageError, naming the flag, for it and what depends on it."""
    records = source.records if args.records is None else args.records
    if records is None:
        raise UsageError("--records is missing: how many records will there be?")
    if not 1 <= records <= _MOST_RECORDS:
        raise UsageError(f"--records must be between 1 and {_MOST_RECORDS}, not {records}")
    if args.draws < 1:
        raise UsageError(f"--draws must be at least 1, not {args.draws}")
    if args.features is not None and not 0 <= args.features < records - 1:
        raise UsageError(f"--features must be at least 0 and below the records less 1, {records - 1}")
    if args.explained is not None and args.features is None:
        raise UsageError("--explained is a part of what --features asks for: give both")
    if args.explained is not None and not 0 <= args.explained <= 1:
        raise UsageError(f"--explained must be between 0 and 1, not {args.explained:g}")
    return records


def plan_epsilon(task: Task) -> Planned:
    """Plans for one epsilon. A mechanism that refuses is a result with its reason."""
    measure = expected_loss(task.prior, loss_named(task.loss))
    try:
        mechanism = task.spec.mechanism(task.loss)
        split = plan_split(mechanism, task.prior, task.records, task.epsilon, measure, task.draws)
        model = None
        if task.features is not None:
            model = plan_model(task.prior, task.records, task.epsilon, task.features, task.explained, task.draws)
    except (ValueError, ArithmeticError, MemoryError) as error:
        return Planned(task.epsilon, reason=str(error) or type(error).__name__)
    return Planned(task.epsilon, split, model)


def _text(rows: Sequence[Row], args: argparse.Namespace, source: PriorFile, records: int) -> str:
    reason = ["reason"] if any(row["reason"] for row in rows) else []
    text = [
        f"expected over {study.describe(args, source)}; {records:,} records",
        "",
        f"{args.loss} loss of a label, {args.mechanism}: e1 of epsilon for the histogram, the rest for the labels",
        *table_lines(rows, [*_SPLIT_COLUMNS, *reason]),
    ]
    if args.features is not None:
        variance = loss_without_labels(source.prior)
        if args.explained is None:
            given, scale = "at most, whatever they explain", ""
        else:
            given = f"which is regularised, if they explain {args.explained:g} of the labels' variance"
            scale = f"; the features explain {args.explained * variance:.5g} of it"
        true_labels = (args.features + 1) / records * (1 - (args.explained or 0.0)) * variance
        text += [
            "",
            f"squared error that training on such labels adds to a linear model of {args.features} features, {given}",
            *table_lines([_readable(row, variance) for row in rows], _MODEL_COLUMNS),
            f"for scale: the labels' variance is {variance:.5g}{scale}; "
            f"true labels would add at most {true_labels:.5g}",
        ]
    return "\n".join(text)


def _readable(row: Row, variance: float) -> Row:
    """Without what rounding left of a bias of 0."""
    return {**row, "bias_part": 0.0} if row["bias_part"] and row["bias_part"] < _ROUNDING * variance else row


def _picture(path: str, planned: Sequence[Planned], args: argparse.Namespace, source: PriorFile, records: int) -> bytes:
    ordered = sorted(planned, key=lambda each: each.epsilon)
    epsilons = [each.epsilon for each in ordered]
    splits = [each.split for each in ordered]
    lines = [
        Line(
            "default split",
            epsilons,
            [split and split.default.value for split in splits],
            band=[split and split.default.standard_error for split in splits],
        ),
        Line(
            "best split",
            epsilons,
            [split and split.best.value for split in splits],
            band=[split and split.best.standard_error for split in splits],
        ),
        Line("prior known", epsilons, [split and split.known for split in splits]),
        Line("flat prior, no histogram", epsilons, [split and split.flat for split in splits]),
    ]
    return draw_lines(
        path,
        lines,
        title=f"What epsilon buys: {args.mechanism}, {len(source.prior.labels)} labels, {records:,} records",
        x_label="epsilon of histogram and labels together",
        y_label=f"expected {args.loss} loss",
        levels=[("one output for all", loss_without_labels(source.prior, loss_named(args.loss)))],
    )
