"""Rivals run in turns, each in a process of its own, at several sizes; and what their times say."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from processes import Cost
from regression import fit
from workspace import Log, Workspace, folder_bytes

Facts = Mapping[str, Any]
LEAST_R_SQUARED = 0.9
"""Below it, a slope says nothing: the sizes are too small for the noise."""
_LOAD_BEFORE = os.getloadavg()[0]
_PACKAGES = ("apache-beam", "numpy", "pyarrow", "tensorflow", "tfx-bsl")


@dataclass(frozen=True)
class Rival:
    """Something that turns a log into an output folder.

    sizes: records. log: the log of that many. arguments: (log, output folder) -> Python's arguments. flags: after them.
    """

    name: str
    sizes: Sequence[int]
    log: Callable[[int], Log]
    arguments: Callable[[Log, Path], list[str]]
    flags: Sequence[str] = ()


@dataclass
class Times:
    """What a rival cost at each size, a list of runs each."""

    runs: dict[int, list[Cost]] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Medians over the runs of a size, the most memory, and the lines through the medians: seconds of wall time
        against records, and the same of CPU time under `cpu`."""
        sizes = sorted(self.runs)
        wall = [statistics.median(run.wall_seconds for run in self.runs[size]) for size in sizes]
        cpu = [statistics.median(run.cpu_seconds for run in self.runs[size]) for size in sizes]
        return {
            "sizes": sizes,
            "wall_seconds": wall,
            "cpu_seconds": cpu,
            "peak_bytes": [max(run.peak_bytes for run in self.runs[size]) for size in sizes],
            "runs": [[round(run.wall_seconds, 3) for run in self.runs[size]] for size in sizes],
            **asdict(fit(sizes, wall)),
            "cpu": asdict(fit(sizes, cpu)),
        }


def race(space: Workspace, rivals: Sequence[Rival], rounds: int) -> dict[str, dict[str, Any]]:
    """The facts of every rival, by name. Rivals take turns, in the opposite order every other round.

    Raises RuntimeError when one fails, or its output is not as large as its input: all of them copy every record.
    """
    times = {rival.name: Times() for rival in rivals}
    most = max(len(rival.sizes) for rival in rivals)
    for number in range(rounds):
        for place in range(most):
            for rival in rivals if number % 2 == 0 else reversed(rivals):
                if place >= len(rival.sizes):
                    continue
                size = rival.sizes[place]
                cost = _run(space, rival, rival.log(size))
                times[rival.name].runs.setdefault(size, []).append(cost)
                say(f"round {number + 1} of {rounds}: {describe(rival.name, size, cost)}")
    return {name: found.facts() for name, found in times.items()}


def describe(name: str, size: int, cost: Cost) -> str:
    """A line for people."""
    return (
        f"{name}, {size:,} records: {cost.wall_seconds:.2f} s, {cost.cpu_seconds:.2f} s of CPU, "
        f"{cost.peak_bytes / 1e6:.0f} MB"
    )


def _run(space: Workspace, rival: Rival, log: Log) -> Cost:
    with space.output() as output:
        cost = space.run([*rival.arguments(log, output), *rival.flags])
        written = folder_bytes(output, f".{log.format}")
        # Formats that pack and compress give other sizes; a TFRecord of the same features does not.
        tolerance = 0.01 if log.format == "tfrecord" else 0.5
        if abs(written - log.size) > tolerance * log.size:
            raise RuntimeError(f"{rival.name} wrote {written:,} bytes where its input has {log.size:,}")
    return cost


def ratio(facts: Facts, rival: Facts) -> float | None:
    """The wall time per record over the rival's; None when the times of one do not lie on a rising line."""
    if any(line["r_squared"] < LEAST_R_SQUARED or line["seconds_per_record"] <= 0 for line in (facts, rival)):
        say(f"no ratio: times are not a line (R squared {facts['r_squared']:.2f}, {rival['r_squared']:.2f})")
        return None
    return facts["seconds_per_record"] / rival["seconds_per_record"]


def cpu_ratio(facts: Facts, rival: Facts) -> float | None:
    """The CPU time per record over the rival's, likewise."""
    return ratio(facts["cpu"], rival["cpu"])


def parser(description: str | None, sizes: Sequence[int], rounds: int) -> argparse.ArgumentParser:
    """The flags of all benchmarks that run jobs."""
    made = argparse.ArgumentParser(description=description, allow_abbrev=False)
    made.add_argument(
        "--sizes", type=int, nargs="+", default=list(sizes), metavar="N",
        help=f"records; two at least, better four over a factor of 10; default {' '.join(map(str, sizes))}",
    )  # fmt: skip
    made.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"runs of a size; default {rounds}")
    made.add_argument("--temp_location", metavar="DIR", help="where logs and outputs are; default a temporary folder")
    return made


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def result(benchmark: str, facts: dict[str, Any]) -> None:
    """Prints the benchmark's one JSON line, with the machine and the versions that it ran on."""
    print(json.dumps({"benchmark": benchmark, **facts, "machine": machine()}, allow_nan=False), flush=True)


def machine() -> dict[str, Any]:
    """Where and when. load_before: how many processes wanted to run in the minute before; they disturb what is
    measured."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_before": round(_LOAD_BEFORE, 2),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES if _installed(name)},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
