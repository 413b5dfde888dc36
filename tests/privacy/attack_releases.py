"""Program that attacks whole releases of `LabelPrivatizer`: record and replay on neighbors, and discriminators.

`make privacy-test` runs it; `python -m tests.privacy.attack_releases --help` lists its flags. Exit code 0 if no attack
succeeds, 1 if one does. docs/privacy_tests.md describes the attacks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from labeldp.pipelines.spec.machine import available_cpus
from labeldp.study.study_commands import map_with_progress

from tests.privacy.findings import Finding, Setting
from tests.privacy.release_testers import TESTED, TESTED_PARTS, Mapper, check_testers
from tests.privacy.replay_checks import check_replays
from tests.privacy.whole_releases import CASES


def main(argv: Sequence[str] | None = None) -> int:
    """Attacks the releases and prints the findings; returns the exit code."""
    parser = argparse.ArgumentParser(description="Attack whole releases of LabelPrivatizer on synthetic records.")
    add = parser.add_argument
    add("--pairs", type=int, default=12, help="neighbors of each kind of release whose loss is computed; default 12")
    add("--releases", type=int, default=1000, help="releases of each of two neighbors to tell apart; 0 for none")
    add("--confidence", type=float, default=0.999, help="probability that a release without a fault passes")
    add("--processes", type=int, default=available_cpus(), help="worker processes; default CPU count")
    add("--seed", type=int, default=0, help="seed of test keys and samples; default 0")
    args = parser.parse_args(argv)
    pairs, releases = args.pairs, args.releases
    setting = Setting(0, (1 - args.confidence) / (1 + (TESTED_PARTS if releases else 0)), args.seed)
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
        about = f"{releases:,} releases of each of two neighbors; confidence {args.confidence:g} of all bounds together"
        print(_line("discriminators", about))
        for finding in check_testers(TESTED, releases, setting, _mapper(args.processes), _progress):
            failed += _print(finding)
    print(f"FAIL: {', '.join(failed)}" if failed else "PASS")
    return 1 if failed else 0


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


if __name__ == "__main__":
    sys.exit(main())
