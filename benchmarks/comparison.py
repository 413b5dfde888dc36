"""Comparison of programs: run in turns, each in a process of its own, at several sizes of their input."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from processes import Cost
from regression import fit
from result_line import progress
from workspace import Log, Workspace, folder_bytes

# Below it, times do not lie on a line: the sizes are too small for the noise, and slopes are not compared.
MIN_R_SQUARED = 0.9

# Largest relative difference between the sizes of output and input, and twice that where the output is larger. Parquet
# encodes and compresses other labels to another size, and labels around centers have more values; a TFRecord of the
# same features keeps its size, and a linear center adds one of some 20 bytes. CSV becomes Parquet, a fraction of its
# size.
_SIZE_TOLERANCE = {"tfrecord": 0.05, "parquet": 0.5, "csv": 0.97}

Measurement = Mapping[str, Any]
"""Figures of one program, as `Runs.measurement` gives them."""


@dataclass(frozen=True)
class Program:
    """A program that turns a log into an output folder.

    Attributes:
      name: Its name in the results.
      sizes: Numbers of records to run it with.
      log: Returns the log of a number of records.
      arguments: Returns Python's arguments for a log and an output folder.
      flags: Further arguments.
      whole: Whether it copies all records; otherwise some of them.
      wider: Whether it adds a column.
    """

    name: str
    sizes: Sequence[int]
    log: Callable[[int], Log]
    arguments: Callable[[Log, Path], list[str]]
    flags: Sequence[str] = ()
    whole: bool = True
    wider: bool = False


@dataclass
class Runs:
    """Costs of a program.

    Attributes:
      costs: All runs at each number of records.
    """

    costs: dict[int, list[Cost]] = field(default_factory=dict)

    def measurement(self) -> dict[str, Any]:
        """Summarizes the runs.

        Returns:
          In JSON types: the sizes, ascending; for each size the median wall and CPU time, the largest peak memory and
          the wall times of all runs; the line through the medians of the wall time (`fixed_seconds`,
          `seconds_per_record`, `r_squared`); and under `cpu` the same line of the CPU time.
        """
        sizes = sorted(self.costs)
        wall = [statistics.median(run.wall_seconds for run in self.costs[size]) for size in sizes]
        cpu = [statistics.median(run.cpu_seconds for run in self.costs[size]) for size in sizes]
        return {
            "sizes": sizes,
            "wall_seconds": wall,
            "cpu_seconds": cpu,
            "peak_bytes": [max(run.peak_bytes for run in self.costs[size]) for size in sizes],
            "runs": [[round(run.wall_seconds, 3) for run in self.costs[size]] for size in sizes],
            **asdict(fit(sizes, wall)),
            "cpu": asdict(fit(sizes, cpu)),
        }


def compare(space: Workspace, programs: Sequence[Program], rounds: int) -> dict[str, dict[str, Any]]:
    """Runs programs in turns, in the opposite order every other round.

    Args:
      space: Folder of the outputs.
      programs: The programs, with different names.
      rounds: Runs of each program at each size.

    Returns:
      The measurement of each program, by name.

    Raises:
      RuntimeError: If a program fails, or its output is not as large as its input although it copies all records, or
        larger.
    """
    runs = {program.name: Runs() for program in programs}
    for program in programs:
        for size in program.sizes:
            program.log(size)
    most_sizes = max(len(program.sizes) for program in programs)
    for number in range(rounds):
        for place in range(most_sizes):
            for program in programs if number % 2 == 0 else reversed(programs):
                if place >= len(program.sizes):
                    continue
                size = program.sizes[place]
                cost = _run(space, program, program.log(size))
                runs[program.name].costs.setdefault(size, []).append(cost)
                progress(
                    f"round {number + 1} of {rounds}: {program.name}, {size:,} records: {cost.wall_seconds:.2f} s, "
                    f"{cost.cpu_seconds:.2f} s of CPU time, {cost.peak_bytes / 1e6:.0f} MB"
                )
    return {name: of_program.measurement() for name, of_program in runs.items()}


def _run(space: Workspace, program: Program, log: Log) -> Cost:
    with space.output() as output:
        cost = space.run([*program.arguments(log, output), *program.flags])
        written = folder_bytes(output, f".{log.output_format}")
        expected, tolerance = log.encoded or log.size, _SIZE_TOLERANCE["tfrecord" if log.encoded else log.format]
        least = 1 - tolerance if program.whole else 0
        # A column adds at most half to the narrowest records.
        most = 1.5 if program.wider else 1
        if not least < written / expected <= most + 2 * tolerance:
            raise RuntimeError(f"{program.name} wrote {written:,} bytes, but its input has {expected:,}")
    return cost


def ratio(measured: Measurement, baseline: Measurement) -> float | None:
    """Divides the wall time per record of a program by that of a baseline.

    Args:
      measured: The program.
      baseline: The baseline.

    Returns:
      The ratio; None if the times of one of them do not lie on a rising line.
    """
    if any(line["r_squared"] < MIN_R_SQUARED or line["seconds_per_record"] <= 0 for line in (measured, baseline)):
        progress(
            f"no ratio: times do not lie on a rising line (R squared {measured['r_squared']:.2f}, "
            f"{baseline['r_squared']:.2f})"
        )
        return None
    return measured["seconds_per_record"] / baseline["seconds_per_record"]


def cpu_ratio(measured: Measurement, baseline: Measurement) -> float | None:
    """Divides the CPU time per record of a program by that of a baseline.

    Args:
      measured: The program.
      baseline: The baseline.

    Returns:
      The ratio; None if the times of one of them do not lie on a rising line.
    """
    return ratio(measured["cpu"], baseline["cpu"])


def parser(description: str | None, sizes: Sequence[int], rounds: int) -> argparse.ArgumentParser:
    """Makes a parser with the flags of all benchmarks that compare programs.

    Args:
      description: Shown by --help.
      sizes: Default numbers of records.
      rounds: Default number of runs.

    Returns:
      The parser.
    """
    made = argparse.ArgumentParser(description=description, allow_abbrev=False)
    made.add_argument(
        "--sizes", type=int, nargs="+", default=list(sizes), metavar="N",
        help="numbers of records, at least two; four over a factor of 10 are better "
        f"(default: {' '.join(map(str, sizes))})",
    )  # fmt: skip
    made.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"runs at each size (default: {rounds})")
    made.add_argument(
        "--temp_location", metavar="DIR", help="folder for logs and outputs (default: a temporary folder)"
    )
    return made
