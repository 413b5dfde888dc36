"""Default splits of epsilon between histogram and labels beside the best ones, and estimated beside clipped priors.

    python benchmarks/splits.py [--data FOLDER] [--mechanism NAME ...] [--labels K ...] [--draws D] [--each]

A split's value is the expected squared loss of the mechanism under the true prior, where the mechanism is solved for
the noised histogram of that prior's counts: the mean over draws of the noise, whose keys are fixed and the same for all
splits. The best split is that of least value among no histogram at all (a flat prior), the default and shares of
epsilon that are powers of 2 (for 401 labels of 4), so the true best one may be a little better.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv
from labeldp.mechanisms import SQUARED, Prior, split_budget
from labeldp.mechanisms.analysis.planning import expected_counts
from labeldp.mechanisms.noise.noisy_histogram import estimated_prior, noisy_counts
from labeldp.mechanisms.registry import mechanism_named, prior_share
from result_line import progress

RECORDS, LABELS, EPSILONS = (2_000, 16_512, 254_654), (11, 53, 401), (0.1, 0.5, 1.0, 2.0, 8.0)
MECHANISMS = ("rr_on_bins", "unbiased", "laplace")
_DATA = {
    "census": ("census_weeks.csv", "work", 52),
    "housing": ("california_housing.csv", "median_house_value", 500_001),
}


class Cell(NamedTuple):
    """A mechanism for a prior, a number of records and an epsilon."""

    mechanism: str
    prior: str
    labels: int
    records: int
    epsilon: float


class Row(NamedTuple):
    """Values of one cell.

    Attributes:
      default: With the default split.
      best: With the best split.
      best_share: The best split: share of epsilon for the histogram.
      old: With the split of earlier versions, sqrt(k / n) and at most epsilon / 2, for every mechanism.
      clipped: With the default split, where the prior is the noised counts, clipped at 0.
      error: Standard error of default - clipped, over the draws.
    """

    default: float
    best: float
    best_share: float
    old: float
    clipped: float
    error: float


def made_prior(name: str, labels: int, data: Path | None) -> Prior:
    """Makes a prior over a grid of labels.

    Args:
      name: `census` or `housing`, the labels of these data sets on the grid; `atoms`, a smooth distribution with much
        mass on both ends; `lognormal`; or `uniform`.
      labels: Number of labels k.
      data: Folder of the data sets.

    Returns:
      The prior.
    """
    grid = np.arange(labels, dtype=float)
    if name in _DATA:
        assert data is not None
        file, column, largest = _DATA[name]
        values = pyarrow.csv.read_csv(data / file)[column].to_numpy() / largest
        return Prior(grid, np.bincount(np.rint(values * (labels - 1)).astype(int), minlength=labels))
    places = (grid + 0.5) / labels
    lognormal = np.exp(-(np.log(places / 0.1) ** 2) / 2) / places
    weights = {"uniform": np.ones(labels), "lognormal": lognormal / lognormal.sum()}
    weights["atoms"] = 0.3 * weights["lognormal"]
    weights["atoms"][[0, -1]] += 0.5, 0.2
    return Prior(grid, weights[name])


def compare(cell: Cell, data: Path | None, draws: int) -> Row:
    """Computes the values of one cell.

    Args:
      cell: The cell.
      data: Folder of the data sets.
      draws: Draws of the noise for each split.

    Returns:
      The values.
    """
    prior = made_prior(cell.prior, cell.labels, data)
    mechanism, counts = mechanism_named(cell.mechanism), expected_counts(prior, cell.records)

    def loss(found: Prior, epsilon: float) -> float:
        return mechanism.solve(found, epsilon).expected_loss(prior, SQUARED)

    def values(prior_epsilon: float, clipped: bool = False) -> np.ndarray:
        split = split_budget(cell.epsilon, cell.labels, cell.records, prior_epsilon)
        noised = [noisy_counts(counts, split.prior, bytes([draw] * 32)) for draw in range(draws)]
        return np.array(
            [
                loss(
                    Prior.from_counts(prior.labels, each)
                    if clipped
                    else estimated_prior(prior.labels, each, cell.records, split.prior),
                    split.labels,
                )
                for each in noised
            ]
        )

    share = prior_share(cell.mechanism)
    default = split_budget(cell.epsilon, cell.labels, cell.records, most=share).prior
    old = split_budget(cell.epsilon, cell.labels, cell.records).prior
    usual, clipped = values(default), values(default, clipped=True)
    step = 2 if cell.labels == LABELS[-1] else 1
    found = {0.0: loss(Prior(prior.labels, np.ones(cell.labels)), cell.epsilon), default: float(usual.mean())}
    for prior_epsilon in (old, *(cell.epsilon / 2**power for power in range(1, 9, step))):
        if prior_epsilon not in found:
            found[prior_epsilon] = float(values(prior_epsilon).mean())
    best = min(found, key=found.__getitem__)
    error = float((usual - clipped).std(ddof=1)) / math.sqrt(draws) if draws > 1 else math.inf
    return Row(found[default], found[best], best / cell.epsilon, found[old], float(clipped.mean()), error)


def tables(rows: dict[Cell, Row], each: bool) -> Iterator[str]:
    """Writes the results as Markdown.

    Args:
      rows: Values by cell.
      each: Writes a row for each prior; otherwise the worst ratio over the priors.

    Yields:
      Lines.
    """
    priors = sorted({cell.prior for cell in rows})
    columns = "mechanism n k epsilon prior default best best_share old default/best old/best clipped default/clipped"
    yield f"| {' | '.join(columns.split())} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    keys = dict.fromkeys(cell._replace(prior="") for cell in rows)
    for key in keys:
        of_key = {prior: rows[key._replace(prior=prior)] for prior in priors}
        worst = max(of_key, key=lambda prior: of_key[prior].default / of_key[prior].best)
        for prior in priors if each else [worst]:
            row, least = of_key[prior], max(of_key.values(), key=lambda one: one.default / one.clipped)
            old = max(one.old / one.best for one in of_key.values())
            if each:
                least, old = row, row.old / row.best
            change = f"{100 * (least.default / least.clipped - 1):+.2f} ± {100 * least.error / least.clipped:.2f} %"
            yield (
                f"| {key.mechanism} | {key.records} | {key.labels} | {key.epsilon:g} | {prior} | {row.default:.5g} "
                f"| {row.best:.5g} | {row.best_share:.4g} | {row.old:.5g} | {row.default / row.best:.3f} | {old:.3f} "
                f"| {row.clipped:.5g} | {change} |"
            )
    ratios = [row.default / row.best for row in rows.values()]
    changes = [row.default / row.clipped - 1 for row in rows.values()]
    yield ""
    yield f"default/best: at most {max(ratios):.3f}; old/best: at most {max(r.old / r.best for r in rows.values()):.3f}"
    yield (
        f"estimated beside clipped prior, same noise: {100 * max(changes):+.2f} % at worst, "
        f"{100 * min(changes):+.2f} % at best, {100 * sum(changes) / len(changes):+.2f} % in the mean"
    )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the census and housing data sets; default: made priors")
    parser.add_argument("--mechanism", nargs="+", default=MECHANISMS)
    parser.add_argument("--labels", nargs="+", type=int, default=LABELS)
    parser.add_argument("--prior", nargs="+")
    parser.add_argument("--draws", type=int, default=3, help="draws of the noise for each split")
    parser.add_argument("--each", action="store_true", help="a row for each prior instead of the worst ratios")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    priors = args.prior or (*(tuple(_DATA) if args.data else ("atoms",)), "lognormal", "uniform")
    cells = [Cell(*cell) for cell in product(args.mechanism, priors, args.labels, RECORDS, EPSILONS)]
    rows = {}
    with ProcessPoolExecutor(args.processes) as pool:
        futures = {cell: pool.submit(compare, cell, args.data, args.draws) for cell in cells}
        for number, (cell, future) in enumerate(futures.items(), start=1):
            rows[cell] = future.result()
            progress(f"{number} of {len(cells)}: {cell}")
    print("\n".join(tables(rows, args.each)))


if __name__ == "__main__":
    main()
