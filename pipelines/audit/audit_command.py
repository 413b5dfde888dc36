"""`labeldp audit`: checks a mechanism file or a release and prints a report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .audit_mechanism import Audit
from .audit_release import audit_path


def audit_report(audit: Audit) -> str:
    """Formats an audit as a few lines of plain ASCII.

    Args:
      audit: The result of an audit.

    Returns:
      The lines, the last of them "PASS", or "FAIL: " and every problem.
    """
    lines = []
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
        ]
    if audit.total_epsilon is not None:
        lines.append(
            f"release      total epsilon {audit.total_epsilon!r}, including {audit.prior_epsilon!r} for the prior"
        )
    lines.append("FAIL: " + "; ".join(audit.problems) if audit.problems else "PASS")
    return "\n".join(lines)


def run(argv: Sequence[str] | None = None) -> int:
    """Runs the command and prints the report.

    Bad usage, including a path that does not exist, raises SystemExit(2) with a message on standard error.

    Args:
      argv: Arguments after the command's name; default those of the process.

    Returns:
      The exit code: 0 if every check holds, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="labeldp audit",
        description="Recompute epsilon, bias and fingerprint of a mechanism file from its integer weights.",
        epilog="Exit status: 0 every check holds, 1 a check fails, 2 bad usage.",
    )
    parser.add_argument("path", metavar="FILE|FOLDER", help="a mechanism file, release.json or output folder")
    path = parser.parse_args(argv).path
    try:
        audit = audit_path(path)
    except FileNotFoundError:
        parser.error(f"{path!a} does not exist: name a mechanism file, or a folder with mechanism.json in it")
    print(audit_report(audit))
    return 1 if audit.problems else 0
