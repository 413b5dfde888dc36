"""`labeldp plan`: the best split of epsilon, the expected losses, and a mechanism for training, from a prior."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from labeldp import InputError, UsageError, loss_named

from ..mechanisms.analysis.planning import expected_loss, plan_model, plan_split
from ..mechanisms.core.randomizer import label_variance
from ..pipelines.cli.store_copies import run_with_copies
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

_MOST_RECORDS = 10**15
_ROUNDING = 1e-12  # of the labels' variance: a smaller bias part is rounding error
_SPLIT_COLUMNS = ("epsilon", "default_e1", "default_loss", "best_e1", "best_loss", "known_loss", "flat_loss")
_MODEL_COLUMNS = ("epsilon", "recommended", "model_e1", "model_error", "bias_part", "variance_part",
                  "default_error", "unbiased_error", "rr_on_bins_error", "flat_error")  # fmt: skip


def run(args: argparse.Namespace, runner_flags: Sequence[str]) -> None:
    """Prints the plan and writes the requested files. Raises UsageError and InputError.

    With `--units` it reads no prior but its input, as a job does.
    """
    if args.units:
        # Loads Beam.
        from .plan_units import run_units

        run_units(args, runner_flags)
    else:
        run_with_copies(_plan, args, runner_flags)


def _plan(args: argparse.Namespace) -> None:
    check_study_flags(args)
    (spec,) = parse_mechanisms([args.mechanism], args)
    source = load_prior(args)
    records = _check_records(args, source)
    work = partial(plan_epsilon, args=args, spec=spec, source=source, records=records)
    rows = map_with_progress(work, args.epsilon, args.processes, "planned")
    write_results(
        args, source, rows,
        records=records, mechanism=args.mechanism, features=args.features, explained=args.explained, draws=args.draws,
    )  # fmt: skip
    print(_text(rows, args, source, records))
    if all(row["reason"] for row in rows):
        raise InputError("no epsilon could be planned for: see the reasons in the table")


def _check_records(args: argparse.Namespace, source: PriorFile) -> int:
    """Number of records; checks it and the flags that depend on it."""
    records = source.records if args.records is None else args.records
    if records is None:
        raise UsageError("--records is missing: give the number of records that will be released")
    if not 1 <= records <= _MOST_RECORDS:
        raise UsageError(f"--records must be between 1 and {_MOST_RECORDS}, not {records}")
    if args.draws < 1:
        raise UsageError(f"--draws must be at least 1, not {args.draws}")
    if args.features is not None and not 0 <= args.features < records - 1:
        raise UsageError(f"--features must be at least 0 and below the number of records minus 1, {records - 1}")
    if args.explained is not None and args.features is None:
        raise UsageError("--explained needs --features: give both")
    if args.explained is not None and not 0 <= args.explained <= 1:
        raise UsageError(f"--explained must be between 0 and 1, not {args.explained:g}")
    return records


def plan_epsilon(epsilon: float, args: argparse.Namespace, spec: MechanismSpec, source: PriorFile, records: int) -> Row:
    """Plans for one epsilon, with the flags of the command; gives values by column.

    `*_e1` is the epsilon of the histogram. `*_loss` and `*_error` are the values of a `SplitPlan` for labels and for a
    model. `*_deviation` are their standard errors. There is a reason in place of all where a mechanism could not be
    solved.
    """
    prior, residuals, reason = source.prior, source.residuals is not None, None
    split = model = None
    try:
        mechanism, measure = spec.mechanism(args.loss), expected_loss(prior, loss_named(args.loss))
        split = plan_split(mechanism, prior, records, epsilon, measure, args.draws, residuals)
        if args.features is not None:
            model = plan_model(prior, records, epsilon, args.features, args.explained, args.draws, residuals)
    except (ValueError, ArithmeticError, MemoryError) as error:
        split, reason = None, str(error) or type(error).__name__
    best = None if model is None else model.split.best
    return {
        "epsilon": epsilon,
        "default_e1": split and split.default.prior_epsilon,
        "default_loss": split and split.default.value,
        "default_loss_deviation": split and split.default.standard_error,
        "best_e1": split and split.best.prior_epsilon,
        "best_loss": split and split.best.value,
        "best_loss_deviation": split and split.best.standard_error,
        "known_loss": split and split.known_prior,
        "flat_loss": split and split.uniform_prior,
        "recommended": model and model.mechanism,
        "model_e1": best and best.prior_epsilon,
        "model_error": best and best.value,
        "model_error_deviation": best and best.standard_error,
        "bias_part": best and best.parts[0],
        "variance_part": best and best.parts[1],
        "default_error": model and model.split.default.value,
        "unbiased_error": model and model.unbiased,
        "rr_on_bins_error": model and model.rr_on_bins,
        "flat_error": model and model.split.uniform_prior,
        "reason": reason,
    }


def _text(rows: Sequence[Row], args: argparse.Namespace, source: PriorFile, records: int) -> str:
    reason = ["reason"] if any(row["reason"] for row in rows) else []
    what = "label" if source.residuals is None else "residual"
    text = [
        f"expected over {describe_prior(args, source)}; {records:,} records",
        "",
        f"{args.loss} loss of a {what}, {args.mechanism}: e1 of epsilon for the histogram, the rest for the {what}s",
        *table_lines(rows, [*_SPLIT_COLUMNS, *reason]),
    ]
    if args.features is not None:
        variance = label_variance(source.prior)
        if args.explained is None:
            given, scale = "at most, whatever they explain", ""
        else:
            given = f"which is regularized, if they explain {args.explained:g} of the {what}s' variance"
            scale = f"; the features explain {args.explained * variance:.5g} of it"
        true_labels = (args.features + 1) / records * (1 - (args.explained or 0.0)) * variance
        text += [
            "",
            f"squared error that training on such labels adds to a linear model of {args.features} features, {given}",
            *table_lines([_readable(row, variance) for row in rows], _MODEL_COLUMNS),
            f"for scale: the {what}s' variance is {variance:.5g}{scale}; "
            f"true labels would add at most {true_labels:.5g}",
        ]
    return "\n".join([*text, *explain_residuals(source)])


def _readable(row: Row, variance: float) -> Row:
    """The row with a bias part of 0 where only rounding error is left of it."""
    return {**row, "bias_part": 0.0} if row["bias_part"] and row["bias_part"] < _ROUNDING * variance else row
