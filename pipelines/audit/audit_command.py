"""Audits a mechanism file, or a whole release, from the integers in it: the command `labeldp audit`.

A second implementation of the certificate, on purpose: it imports the standard library only, so a mistake in
the solvers cannot hide itself here. Every check is decided in exact integers and rationals, where a float in
a file stands for the rational number that it is. A file is hostile until it has been checked.

A mechanism file gives integers W with P(output c | label y) = W[y, c] / 2^bits. Its true epsilon is ln of the
largest ratio, over outputs and pairs of labels, of two weights for one output. A file with a delta claims
(epsilon, delta)-DP instead: there the sum over outputs of what P(c | y) has above e^epsilon P(c | y') is recomputed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .audit_mechanism import Audit
from .audit_release import audit_path


def report(audit: Audit) -> str:
    """The audit in a few plain ASCII lines, the last of them "PASS", or "FAIL: " and every problem."""
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
            f"ratio        {ratio}, the largest factor between two labels' chances of one output",
            f"bias         at most {audit.max_bias!r}, for every label",
            f"fingerprint  {audit.fingerprint}",
        ]
    if audit.total_epsilon is not None:
        spent = f"epsilon {audit.total_epsilon!r} in total, of it {audit.prior_epsilon!r} for the prior"
        lines.append(f"release      {spent}")
    lines.append("FAIL: " + "; ".join(audit.problems) if audit.problems else "PASS")
    return "\n".join(lines)


def run(argv: Sequence[str] | None = None) -> int:
    """The command. Prints the report; returns 0 when everything holds and 1 when it does not.

    Bad usage, a path that does not exist included, raises SystemExit(2) with a message on standard error.
    """
    parser = argparse.ArgumentParser(
        prog="labeldp audit",
        description="Recomputes a mechanism file's epsilon, bias and fingerprint from its integer weights.",
        epilog="Exit status: 0 everything holds, 1 something does not, 2 bad usage.",
    )
    parser.add_argument("path", metavar="FILE|FOLDER", help="a mechanism file, release.json or output folder")
    path = parser.parse_args(argv).path
    try:
        audit = audit_path(path)
    except FileNotFoundError:
        parser.error(f"{path!a} does not exist: name a mechanism file, or a folder with mechanism.json in it")
    print(report(audit))
    return 1 if audit.problems else 0
