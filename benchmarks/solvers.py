"""Solvers: `unbiased` beside the linear program on a grid, its growth with the number of labels, and the quantizers.

Times are CPU times, the median of several runs in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from labeldp.mechanisms import SQUARED, Prior, Randomizer, solve
from result_line import print_result, progress

MESHES = (52, 104, 416)
SIZES = (52, 101, 401, 1001)
EPSILONS = (1.0, 8.0)
QUANTIZERS = ("rqm", "erm", "optm", "mvu", "quantizer")


def spiked(labels: int) -> Prior:
    """Makes a prior over 1..k with decreasing weights and spikes at the last label and in the middle.

    Args:
      labels: Number of labels k.

    Returns:
      The prior.
    """
    values = np.arange(1, labels + 1, dtype=float)
    weights = 0.3 * np.exp(-5 * values / labels)
    weights /= weights.sum()
    weights[-1] += 1.0
    weights[labels // 2] += 0.3
    return Prior(values, weights)


def timed(rounds: int, **solvers: Callable[[], Randomizer]) -> dict[str, tuple[float, Randomizer]]:
    """Runs solvers in turns.

    Args:
      rounds: Runs of each.
      solvers: Solvers by name.

    Returns:
      Median CPU time in seconds and the randomizer of each solver.
    """
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    found: dict[str, Randomizer] = {}
    for _ in range(rounds):
        for name, run in solvers.items():
            started = time.process_time()
            found[name] = run()
            seconds[name].append(time.process_time() - started)
    return {name: (statistics.median(times), found[name]) for name, times in seconds.items()}


def figures(seconds: float, randomizer: Randomizer, prior: Prior) -> dict[str, Any]:
    """Describes a solution.

    Args:
      seconds: CPU time.
      randomizer: The solution.
      prior: Prior that it was solved for.

    Returns:
      A row of a table, in JSON types.
    """
    span = float(prior.labels[-1] - prior.labels[0])
    return {
        "loss": randomizer.expected_loss(prior, SQUARED),
        "gap": randomizer.gap,
        "largest_bias_of_range": randomizer.certificate().max_bias / span,
        "outputs": len(randomizer.outputs),
        "seconds": seconds,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Times the solvers and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each solver (default: 3)")
    parser.add_argument("--labels", type=int, nargs="+", default=SIZES, metavar="K", help="numbers of labels")
    parser.add_argument("--meshes", type=int, nargs="+", default=MESHES, metavar="M", help="meshes of the output grid")
    args = parser.parse_args(argv)
    prior = spiked(52)
    solvers: dict[str, Callable[[], Randomizer]] = {"unbiased": partial(solve, "unbiased", prior, 1.0)}
    for mesh in args.meshes:
        solvers[f"grid {mesh}"] = partial(solve, "unbiased_grid", prior, 1.0, mesh=mesh)
    against = timed(args.rounds, **solvers)
    own = against["unbiased"][0]
    grid = [{"solver": name} | figures(*cell, prior) | {"times": cell[0] / own} for name, cell in against.items()]
    for row in grid:
        progress(f"{row['solver']}: loss {row['loss']:.6g}, {row['seconds']:.3f} s, {row['times']:.1f} times unbiased")
    growth = []
    for labels in args.labels:
        for epsilon in EPSILONS:
            many = spiked(labels)
            (cell,) = timed(1 if labels > 500 else args.rounds, one=partial(solve, "unbiased", many, epsilon)).values()
            growth.append({"labels": labels, "epsilon": epsilon} | figures(*cell, many))
            progress(f"unbiased, {labels} labels, epsilon {epsilon:g}: {cell[0]:.2f} s, gap {growth[-1]['gap']:.2g}")
    even = Prior(np.linspace(-1, 1, 21), np.ones(21))
    quantizers = []
    for name in QUANTIZERS:
        (cell,) = timed(1, one=partial(solve, name, even, 1.0, loss="squared")).values()
        quantizers.append({"mechanism": name} | figures(*cell, even))
        progress(f"{name}: loss {quantizers[-1]['loss']:.4g}, {cell[0]:.1f} s")
    print_result("solvers", {"grid": grid, "growth": growth, "quantizers": quantizers})


if __name__ == "__main__":
    main()
