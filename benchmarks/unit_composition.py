"""Epsilon of each label, and its noise, if all M records of a unit satisfy (epsilon, delta)-DP.

    python benchmarks/unit_composition.py [--mechanism NAME ...] [--records M ...] [--page FILE]

Three ways to find the epsilon of a label: adding up (epsilon / M, without the delta), the closed form of the optimal
composition, and the search by the randomizer's own loss distribution. The noise is the root of the expected squared
loss under a prior over 64 labels, in units of the label. The tables are printed; with --page they replace those of the
page, between its two marks.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from labeldp.mechanisms import SQUARED, Prior
from labeldp.mechanisms.composition.unit_composition import optimal_label_epsilon, solve_for_unit
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.registry import mechanism_named
from result_line import progress

MECHANISMS = ("rr_on_bins", "unbiased", "rr")
EPSILONS, DELTAS, RECORDS = (1.0, 4.0), (1e-6, 1e-9), (1, 2, 5, 10, 50)
BEGIN, END = "<!-- tables: begin, by benchmarks/unit_composition.py -->", "<!-- tables: end -->"
_HEADER = (
    "| epsilon | delta | M | label epsilon: adding up | closed form | own losses "
    "| noise: adding up | closed form | own losses |\n|" + "---:|" * 9
)


class Row(NamedTuple):
    """Label epsilons and noise of one case.

    Attributes:
      epsilon: Epsilon of the unit.
      delta: Delta of the unit.
      records: Records of the unit.
      label_epsilons: Epsilon of each label: by adding up, by the closed form, by the randomizer's own losses.
      noise: Root of the expected squared loss of a label, for the same three.
    """

    epsilon: float
    delta: float
    records: int
    label_epsilons: tuple[float, float, float]
    noise: tuple[float, float, float]

    def line(self) -> str:
        """The row of a Markdown table."""
        cells = [f"{self.epsilon:g}", f"{self.delta:g}", str(self.records)]
        cells += [f"{value:.4f}" for value in self.label_epsilons]
        cells += [f"{value:.4g}" for value in self.noise]
        return "| " + " | ".join(cells) + " |"


def prior() -> Prior:
    """A skewed prior over the labels 0 to 63, with mean 17 and standard deviation 12."""
    labels = np.arange(64.0)
    return Prior(labels, (labels + 1) * 0.9**labels)


def row(mechanism: str, epsilon: float, delta: float, records: int) -> Row:
    """Solves one case.

    Args:
      mechanism: Name of the mechanism.
      epsilon: Epsilon of the unit.
      delta: Delta of the unit.
      records: Records of the unit.

    Returns:
      The row.
    """
    labels, solver = prior(), mechanism_named(mechanism)

    def solve(label_epsilon: float) -> Randomizer:
        return solver.solve(labels, label_epsilon)

    adding_up = optimal_label_epsilon(epsilon, 0.0, records)
    closed = optimal_label_epsilon(epsilon, delta, records)
    own = solve_for_unit(solve, epsilon, delta, records).randomizer

    def noise(randomizer: Randomizer) -> float:
        return math.sqrt(randomizer.expected_loss(labels, SQUARED))

    return Row(
        epsilon,
        delta,
        records,
        (adding_up, closed, own.epsilon),
        (noise(solve(adding_up)), noise(solve(closed)), noise(own)),
    )


def tables(mechanisms: list[str], records: list[int]) -> str:
    """Solves all cases.

    Args:
      mechanisms: Names of the mechanisms.
      records: Numbers of records of a unit.

    Returns:
      Markdown: a heading and a table for each mechanism.
    """
    parts = []
    for mechanism in mechanisms:
        lines = [f"### {mechanism}", "", _HEADER]
        for epsilon in EPSILONS:
            for delta in DELTAS:
                for count in records:
                    progress(f"{mechanism}, epsilon {epsilon:g}, delta {delta:g}, {count} records")
                    lines.append(row(mechanism, epsilon, delta, count).line())
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(argv: list[str] | None = None) -> None:
    """Prints the tables, or renews those of a page.

    Args:
      argv: Arguments; by default those of the program.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mechanism", nargs="+", default=list(MECHANISMS))
    parser.add_argument("--records", nargs="+", type=int, default=list(RECORDS))
    parser.add_argument("--page", type=Path)
    args = parser.parse_args(argv)
    found = tables(args.mechanism, args.records)
    if args.page is None:
        print(found)
        return
    before, rest = args.page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    args.page.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
