"""`labeldp plan --units`: what each number of records per unit is worth, from public ids of the input."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from labeldp import InputError, Prior, UsageError

from ..mechanisms.center.residuals import MODEL_PARAMETERS
from ..mechanisms.core.randomizer import label_variance
from ..mechanisms.release.records_per_unit import best_bound, bound_options
from ..pipelines.cli.text_format import Row, table_lines
from ..pipelines.job.unit_counts import UnitCountJob
from ..pipelines.spec.fields import Fields
from ..pipelines.spec.label_domain import GRID, label_domain, working_domain
from ..pipelines.spec.prior_file import PriorFile
from .study_commands import check_study_flags, describe_prior, load_prior, map_with_progress, write_results

_COLUMNS = ("epsilon", "max_records", "records", "units_cut", "record_epsilon", "model_error", "best")
# Numbers of records that are shown for each epsilon, so that their curves can be compared.
_SHOWN = 8


def run_units(args: argparse.Namespace, runner_flags: Sequence[str]) -> None:
    """Counts the records of the units, prints what each number of records is worth, and writes the requested files.

    Takes the parsed flags of `plan`. Raises UsageError and InputError.
    """
    check_study_flags(args)
    if args.features is not None and args.features < 0:
        raise UsageError(f"--features must be at least 0, not {args.features}")
    job = UnitCountJob.of(args, runner_flags)
    _report(args, _prior(args, job.fields), job.run())


def _prior(args: argparse.Namespace, fields: Fields) -> PriorFile:
    """The prior of --prior, or a flat one over the label domain."""
    if args.prior is None:
        labels = np.array(working_domain(fields, max(args.epsilon)).labels)
        return PriorFile(Prior(labels, np.ones(len(labels))))
    stated = load_prior(args)
    given = [name for name in (*GRID, "label_values") if getattr(args, name) is not None]
    labels = tuple(stated.prior.labels.tolist())
    if given and labels not in _domains(args, fields):
        raise UsageError(f"--prior {args.prior} is over other labels than --{given[0]} says: leave one of them out")
    return stated


def _domains(args: argparse.Namespace, fields: Fields) -> list[tuple[float, ...]]:
    """The declared label domain, and those that mechanisms use of it."""
    return [tuple(label_domain(fields).tolist()), *(working_domain(fields, each).labels for each in args.epsilon)]


def compare_bounds(epsilon: float, units: Mapping[int, int], prior: Prior, parameters: int) -> list[Row]:
    """Compares numbers of records for one epsilon of a unit, of which `units` has the number by number of records.

    Gives a row for each number of records; a single one with the reason if epsilon is too small.
    """
    try:
        options = bound_options(units, prior, epsilon, parameters, _SHOWN)
    except ValueError as error:
        return [{**dict.fromkeys(_COLUMNS), "epsilon": epsilon, "reason": str(error)}]
    best = best_bound(options)
    return [
        {
            "epsilon": epsilon,
            "max_records": option.max_records,
            "records": option.records,
            "units_cut": option.units_cut,
            "record_epsilon": option.epsilon,
            "model_error": option.model_error,
            "best": option == best,
            "reason": None,
        }
        for option in options
    ]


def _report(args: argparse.Namespace, source: PriorFile, units: dict[int, int]) -> None:
    prior, parameters = source.prior, MODEL_PARAMETERS if args.features is None else args.features + 1
    work = partial(compare_bounds, units=units, prior=prior, parameters=parameters)
    rows = list(itertools.chain.from_iterable(map_with_progress(work, args.epsilon, args.processes, "planned")))
    total, largest = sum(records * number for records, number in units.items()), max(units)
    counted = f"{sum(units.values()):,} units with {total:,} records"
    write_results(
        args, source, rows,
        label=args.label, unit_column=args.unit_column, units=sum(units.values()), records=total,
        most_records_of_a_unit=largest, parameters=parameters,
    )  # fmt: skip
    about = describe_prior(args, source) if args.prior else f"a flat prior of {len(prior.labels)} labels"
    reasons = ["reason"] if any(row["reason"] for row in rows) else []
    text = [
        f"{counted}; a unit has at most {largest:,}",
        "",
        f"squared error of a model of {parameters} parameters on labels of --mechanism auto, expected over {about}; "
        "record_epsilon is for histogram and label of one record",
        *table_lines([{**row, "best": "*" if row["best"] else ""} for row in rows], [*_COLUMNS, *reasons]),
        f"for scale: the labels' variance is {label_variance(prior):.5g}. Larger max_records than listed are not "
        "better",
    ]
    print("\n".join(text))
    if all(row["reason"] for row in rows):
        raise InputError("no epsilon could be planned for: see the reasons in the table")
