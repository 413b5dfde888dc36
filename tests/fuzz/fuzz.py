"""Fuzzes the readers, the files and the command line of labeldp: `make fuzz`.

Runs all targets in turn on new random inputs for FUZZ_SECONDS seconds, prints how many were tried, accepted and
refused, and writes inputs that fail below build/fuzz. `--replay FILE` tries one of those again. `--wire FILE` takes
another build of wire.c, such as one with sanitizers.
"""

import argparse
import faulthandler
import importlib.util
import os
import random
import sys
import time
from pathlib import Path

from harness import Campaign, Failure, Target, case_text, read_case, tried

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz"
# Behind the rest: it has the reference of the compiled part.
sys.path.append(str(ROOT))
# Inputs of one target before the next target has its turn, as a multiple of those in the short run.
_ROUND = 1.0


def all_targets() -> list[Target]:
    """All targets. Loads the libraries and generates the valid inputs.

    Returns:
      The targets.
    """
    from center_targets import center_targets
    from class_targets import class_targets
    from command_targets import command_targets
    from file_targets import file_targets
    from format_targets import format_targets
    from job_targets import job_targets
    from name_targets import name_targets

    groups = (format_targets, file_targets, command_targets, job_targets, name_targets, center_targets, class_targets)
    return [target for group in groups for target in group()]


def table(campaign: Campaign) -> str:
    """Counts by target, as text.

    Args:
      campaign: The campaign.

    Returns:
      Aligned lines.
    """
    lines = [f"{'target':<16}{'tried':>10}{'accepted':>10}{'refused':>10}{'per second':>12}"]
    for name, counts in campaign.counts.items():
        rate = counts.tried / counts.seconds if counts.seconds else 0.0
        lines.append(f"{name:<16}{counts.tried:>10,}{counts.accepted:>10,}{counts.refused:>10,}{rate:>12,.0f}")
    return "\n".join(lines)


def save(failure: Failure, folder: Path) -> Path:
    """Writes a failing input, and beside it how it fails.

    Args:
      failure: The failure.
      folder: Folder for failing inputs.

    Returns:
      Path of the input.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (path := folder / f"{failure.target}-{number}.json").exists():
        number += 1
    path.write_text(case_text(failure.target, failure.case))
    path.with_suffix(".txt").write_text(failure.error)
    return path


def _replay(path: Path) -> int:
    name, case = read_case(path)
    target = next(target for target in all_targets() if target.name == name)
    for part, content in case.items():
        print(f"{part}: {content[:2000]!r}")
    accepted = tried(target, case)
    print("accepted" if accepted else "refused, as it should be")
    return 0


def _load_wire(path: Path) -> None:
    """Loads a build of wire.c in place of the installed one, before any other module does."""
    # It is for this process alone: others would start slowly with the library of a sanitizer.
    os.environ.pop("LD_PRELOAD", None)
    name = "labeldp.transforms.tfrecord._wire"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    from labeldp.transforms.tfrecord import _wire, wire

    assert _wire.__file__ == str(path)
    assert wire.frame is _wire.frame


def _fuzz(seconds: float, names: list[str]) -> int:
    targets = [target for target in all_targets() if not names or target.name in names]
    campaign, number = Campaign(FOLDER), random.SystemRandom().getrandbits(32)
    print(f"first seed {number}", flush=True)
    until = time.monotonic() + seconds
    failed: set[str] = set()
    while time.monotonic() < until and len(failed) < len(targets):
        for target in targets:
            # A target that failed would fail the same way again.
            if target.name in failed or time.monotonic() > until:
                continue
            failure = campaign.run(target, number, max(int(_ROUND * target.examples), 1), until)
            if failure is not None:
                failed.add(target.name)
                path = save(failure, FOLDER)
                print(f"FAILURE of {target.name}: {failure.error.strip().splitlines()[-1][:300]}")
                print(
                    f"  reproduce: {os.path.relpath(sys.executable)} {os.path.relpath(__file__)} --replay {path}",
                    flush=True,
                )
        number += 1
    print(table(campaign))
    return 1 if failed else 0


def main() -> int:
    """Runs the program.

    Returns:
      The exit code: 1 if an input failed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "600")), metavar="S")
    parser.add_argument("--target", nargs="*", default=[], metavar="NAME", help="only these targets")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try one input that failed")
    parser.add_argument("--wire", type=Path, metavar="FILE", help="compiled wire.c in place of the installed one")
    args = parser.parse_args()
    if args.wire:
        _load_wire(args.wire)
    if args.replay:
        return _replay(args.replay)
    # Libraries in C++ write to standard error what they find wrong with an input.
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "stderr.log", "wb") as log:
        os.dup2(log.fileno(), 2)
        faulthandler.enable()
        return _fuzz(args.seconds, args.target)


if __name__ == "__main__":
    sys.exit(main())
