"""`labeldp attack --whole`: attacks whole releases, by record and replay on neighbors and by discriminators."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from ..pipelines.errors import UsageError
from ..pipelines.spec.machine import available_cpus, check_extra
from ..study.study_commands import map_with_progress
from .claims import Finding, Setting
from .release_testers import TESTED, TESTED_PARTS, Mapper, check_testers
from .replay_checks import check_replays
from .whole_releases import CASES

CONFIDENCE = 0.999
_MOST_PAIRS, _LEAST_RELEASES, _MOST_RELEASES = 10_000, 200, 10**6


def attack_whole(args: argparse.Namespace) -> bool:
    """Attacks `LabelPrivatizer` and prints the findings; tells whether all passed.

    Raises UsageError if a flag is wrong, or the extra that discriminators need is not installed.
    """
    pairs, releases = args.pairs, args.releases
    confidence = CONFIDENCE if args.confidence is None else args.confidence
    processes = available_cpus() if args.processes is None else args.processes
    _check(args, pairs, releases, processes)
    setting = Setting(0, (1 - confidence) / (1 + (TESTED_PARTS if releases else 0)), args.seed)
    print(_line("release", f"LabelPrivatizer: {len(CASES)} kinds, synthetic records, test keys"))
    print(
        _line("record and replay", f"{pairs:,} pairs of neighbors of each kind; exact, if noise is that of its scale")
    )
    failed, shares = [], []
    for finding in check_replays(CASES, pairs, setting, _progress):
        failed += _print(finding)
        if finding.epsilon is not None:
            shares.append(finding.epsilon)
    print(_line("largest share", f"{max(shares):.4f} of the claim, in {pairs * len(CASES):,} pairs"), flush=True)
    if releases:
        about = f"{releases:,} releases of each of two neighbors; confidence {confidence:g} of all bounds together"
        print(_line("discriminators", about))
        for finding in check_testers(TESTED, releases, setting, _mapper(processes), _progress):
            failed += _print(finding)
    print(f"FAIL: {', '.join(failed)}" if failed else "PASS")
    return not failed


def _check(args: argparse.Namespace, pairs: int, releases: int, processes: int) -> None:
    if args.path is not None:
        raise UsageError(
            "--whole attacks LabelPrivatizer with records of its own: leave out the path, which is for one mechanism"
        )
    if not 1 <= pairs <= _MOST_PAIRS:
        raise UsageError(f"--pairs must be between 1 and {_MOST_PAIRS}, not {pairs}")
    if releases and not _LEAST_RELEASES <= releases <= _MOST_RELEASES:
        raise UsageError(
            f"--releases must be between {_LEAST_RELEASES} and {_MOST_RELEASES}, or 0 for none, not {releases}"
        )
    if processes < 1:
        raise UsageError(f"--processes must be at least 1, not {processes}")
    if releases:
        check_extra("attack --whole, unless --releases is 0,", "evaluation", "sklearn", "tqdm")


def _mapper(processes: int) -> Mapper:
    return lambda work, items: map_with_progress(work, items, processes, "made")


def _progress(text: str) -> None:
    print(f"labeldp: {text}", file=sys.stderr, flush=True)


def _print(finding: Finding) -> Iterable[str]:
    """Prints a finding; gives its name if it fails."""
    print(_line(finding.check, ("" if finding.passed else "FAIL: ") + finding.text), flush=True)
    return [] if finding.passed else [finding.check]


def _line(name: str, text: str) -> str:
    return f"{name:<27} {text}"
