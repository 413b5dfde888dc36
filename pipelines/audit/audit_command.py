"""`labeldp audit`: checks a mechanism file or a release and prints a report."""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from typing import Any

from .audit_mechanism import Audit
from .audit_release import NoRecords, audit_path
from .documents import printable
from .exact_log import rounded_up


def audit_report(audit: Audit) -> str:
    """Formats an audit as lines of plain ASCII, the last of them "PASS", or "FAIL: " and every problem."""
    lines = []
    for label, part in audit.parts:
        # Without the verdict of the part, which is one of those of the whole.
        lines += [f"label        '{printable(label)}'", *audit_report(part).splitlines()[:-1]]
    if audit.parts and audit.total_epsilon is not None:
        lines.append(f"together     total epsilon {audit.total_epsilon!r} for all {len(audit.parts)} labels")
    if audit.labels:
        delta = f"at most {audit.delta!r}; certified {audit.certified_delta!r}, requested {audit.requested_delta!r}"
        ratio = "unbounded" if audit.ratio is None else f"{audit.ratio.numerator}/{audit.ratio.denominator}"
        lines += [
            f"mechanism    {audit.mechanism}: {audit.labels} labels, {audit.outputs} outputs, "
            f"probabilities in units of 2^-{audit.bits}",
            f"epsilon      at most {audit.epsilon!r}, recomputed from the weights; "
            f"certified {audit.certified_epsilon!r}, requested {audit.requested_epsilon!r}",
            *([f"delta        {delta}"] if audit.requested_delta > 0 else []),
            f"ratio        {ratio}, the largest ratio of two labels' probabilities of one output",
            f"bias         at most {audit.max_bias!r} in absolute value, over all labels",
            f"fingerprint  {audit.fingerprint}",
            *([audit.center_line] if audit.center_line else []),
            *([_unit_line(audit, audit.unit_column)] if audit.unit_column is not None else []),
        ]
    if audit.total_epsilon is not None and not audit.parts:
        most, units = audit.records_per_unit, ""
        if audit.unit_column is not None:
            units = " for all labels of a unit"
        prior, center = (
            rounded_up(most * Fraction(part or 0.0)) for part in (audit.prior_epsilon, audit.center_epsilon)
        )
        spent = f"{prior!r} for the prior" + (f" and {center!r} for the center" if center else "")
        lines.append(f"release      total epsilon {audit.total_epsilon!r}{units}, including {spent}")
    lines += audit.data_lines
    lines.append("FAIL: " + "; ".join(audit.problems) if audit.problems else "PASS")
    return "\n".join(lines)


def _unit_line(audit: Audit, column: str) -> str:
    most = audit.records_per_unit
    spent = rounded_up(most * Fraction(audit.certified_epsilon))
    delta = rounded_up(most * Fraction(audit.certified_delta))
    if audit.unit_labels is not None:
        composed, delta = audit.unit_labels
        return (
            f"unit         column '{printable(column)}', at most {most} records each: for all labels of a unit, the "
            f"randomizer has epsilon {composed!r} with delta {delta!r}, as stated; for that of one record, as above"
        )
    times = f"{spent!r}{f' and delta {delta!r}' if delta else ''}, {most} times that of one record, as above"
    return (
        f"unit         column '{printable(column)}', at most {most} {'record' if most == 1 else 'records'} each: for "
        f"all labels of a unit, the randomizer has epsilon {times}"
    )


def add_flags(parser: Any) -> None:
    """Adds the arguments of the command to a parser of argparse."""
    parser.description = (
        "Recompute epsilon, bias and fingerprint of a mechanism file from its integer weights. "
        "Of a release, check the manifest against it too, and the records with --data."
    )
    parser.epilog = "Exit status: 0 every check holds, 1 a check fails, 2 bad usage, 74 the report cannot be written."
    group = parser.add_argument_group("Input")
    group.add_argument(
        "path", metavar="FILE|FOLDER", help="a mechanism file, release.json or output folder; on s3:// or gs:// too"
    )
    group.add_argument(
        "--data",
        action="store_true",
        help="read the shards of a release too: every label must be an output of the mechanism, row counts those of "
        "the manifest, and the distribution of the labels that of the mechanism for the noised histogram; "
        "dead letters are counted",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command and prints the report.

    Exit code 0 if every check holds, 1 if one does not, 2 for bad usage, such as a path that does not exist, which is
    one line on standard error.
    """
    try:
        # The local copy of a release on an object store.
        audit = audit_path(getattr(args, "copies", {}).get(args.path, args.path), args.data)
    except FileNotFoundError:
        return _bad_usage(f"{args.path!a} does not exist: name a mechanism file, or a folder with mechanism.json in it")
    except NoRecords:
        return _bad_usage(f"--data needs a release, but {args.path!a} is a mechanism file: name an output folder")
    print(audit_report(audit))
    return 1 if audit.problems else 0


def _bad_usage(message: str) -> int:
    print(f"labeldp audit: error: {printable(message)} (see `labeldp audit --help`)", file=sys.stderr)
    return 2
