"""Flags of privacy units: which column names the unit of a record, and how many records of a unit are released.

Functions raise UsageError if a flag is missing or out of range.
"""

from __future__ import annotations

import argparse
import dataclasses

from ...mechanisms.core.budget import split_budget
from ...mechanisms.release.unit_bound import UnitBound
from ..errors import UsageError
from .mechanism_file import MechanismFile


def unit_bound(args: argparse.Namespace, fitted: MechanismFile | None) -> UnitBound | None:
    """Reads the flags of the privacy unit; None for records.

    The unit of the mechanism file of `apply`, which is None for the other commands, holds for its labels, too.
    UsageError is also raised if a flag contradicts it.
    """
    name, most = args.unit_column, args.max_records_per_unit
    stated = None if fitted is None else fitted.unit
    if stated is not None:
        _check_stated(args, stated)
        return stated
    if name is None:
        if most is not None:
            raise UsageError(
                "--max_records_per_unit needs --unit_column, the column that names the unit of each record"
            )
        return None
    if name == args.label:
        raise UsageError("--unit_column must be another column than --label")
    if most is None:
        raise UsageError(
            "--unit_column needs --max_records_per_unit, the largest number of records of a unit: labeldp plan --units "
            "compares numbers"
        )
    if fitted is not None and (fitted.prior_epsilon or fitted.center_epsilon):
        raise UsageError(
            f"--mechanism_file {args.mechanism_file} was fitted without --unit_column: its histogram may hold any "
            "number of records of a unit. Run labeldp fit with --unit_column"
        )
    try:
        return UnitBound(name, most)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def with_delta(unit: UnitBound, delta: float) -> UnitBound:
    """Adds `--delta`, with which the epsilons of a unit's labels are composed.

    UsageError is also raised if a unit has too many records to be composed.
    """
    if not 0 < delta < 1:
        raise UsageError(f"--delta must be above 0 and below 1, not {delta:g}; for pure label DP leave it out")
    try:
        return dataclasses.replace(unit, delta=delta)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def check_record_budget(epsilon: float, prior_epsilon: float | None, unit: UnitBound) -> None:
    """Checks that enough of the budget of a unit, `--epsilon` and `--prior_epsilon`, is left for each of its records.

    `prior_epsilon` is None for the default. UsageError is raised if the part of one record is too small.
    """
    prior = None if prior_epsilon is None else unit.record_share(prior_epsilon)
    try:
        split_budget(unit.record_share(epsilon), 1, 1, prior)
    except ValueError as error:
        raise UsageError(
            f"--max_records_per_unit {unit.max_records} leaves each record too little of --epsilon {epsilon:g}: {error}"
        ) from None


def _check_stated(args: argparse.Namespace, stated: UnitBound) -> None:
    """Compares flags of `apply` with the unit of its mechanism file."""
    given = {"unit_column": args.unit_column, "max_records_per_unit": args.max_records_per_unit}
    for flag, expected in (("unit_column", stated.column), ("max_records_per_unit", stated.max_records)):
        if given[flag] not in (None, expected):
            raise UsageError(
                f"--{flag} {given[flag]} is not that of --mechanism_file, {expected}: leave it out, or fit again"
            )
