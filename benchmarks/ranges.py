"""Ranges of residuals chosen from noised histograms beside those chosen from the exact ones.

    python benchmarks/ranges.py [--records N ...] [--epsilon E ...] [--draws D]

The objective is that of docs/mechanisms/center.md, for `unbiased` and models of 100 parameters, under the exact
distribution of the residuals of 53 labels. The ratio is the objective of the range chosen from a noised histogram to
that of the range chosen from the exact one, with the same epsilon for the labels; in parentheses the difference of the
two objectives in percent of the variance of the residuals. Residuals and noise are drawn from fixed seeds.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from labeldp.mechanisms import Prior, split_budget
from labeldp.mechanisms.center.residuals import (
    MODEL_PARAMETERS,
    ResidualDomain,
    choose_range,
    clipped_prior,
    clipping_error,
)
from labeldp.mechanisms.core.budget import LEAST_RESIDUAL_SHARE, RESIDUAL_SHARE
from labeldp.mechanisms.core.randomizer import variances
from labeldp.mechanisms.noise.noisy_histogram import noisy_counts
from labeldp.mechanisms.registry import mechanism_named

LABELS = 53
RECORDS, EPSILONS, DRAWS = (5_000, 30_000, 200_000), (0.1, 0.5, 1.0, 4.0), 2
UNBIASED = mechanism_named("unbiased")


def residuals_of(shape: str, records: int) -> np.ndarray:
    """Draws residuals.

    Args:
      shape: `normal`, `heavy` (Laplace), `skewed` (exponential), or `ends`: labels of which 2 in 3 lie at an end of the
        domain, around predictions near their mean.
      records: Number of records.

    Returns:
      Residuals in steps, shape (records,), integers in [-52, 52].
    """
    random = np.random.default_rng(records)
    if shape == "ends":
        kinds = random.random(records)
        labels = np.where(kinds < 0.45, 0, np.where(kinds < 0.67, LABELS - 1, random.integers(0, LABELS, records)))
        found = labels - labels.mean() - random.normal(0, 5, records)
    else:
        found = {
            "normal": lambda: random.normal(0, 5, records),
            "heavy": lambda: random.laplace(0, 4, records),
            "skewed": lambda: random.exponential(6, records) - 6,
        }[shape]()
    return np.clip(np.rint(found), 1 - LABELS, LABELS - 1).astype(np.int64)


SHAPES = ("normal", "heavy", "skewed", "ends")


class Comparison(NamedTuple):
    """Range chosen from a noised histogram beside that chosen from the exact one.

    Attributes:
      ratio: Ratio of their objectives.
      lost: Difference of their objectives, divided by the variance of the residuals.
    """

    ratio: float
    lost: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({100 * self.lost:.2f} %)"


def compare(shape: str, records: int, epsilon: float, draws: int) -> list[Comparison]:
    """Compares the ranges of one distribution of residuals.

    Args:
      shape: As for `residuals_of`.
      records: Number of records.
      epsilon: Budget of histogram and labels.
      draws: Number of noised histograms.

    Returns:
      The comparison for each.
    """
    domain = ResidualDomain(np.arange(float(LABELS)))
    steps = residuals_of(shape, records)
    exact = Prior(domain.grid, np.bincount(steps + domain.most, minlength=len(domain.grid)).astype(np.float64))
    budget = split_budget(epsilon, domain.cells, records, None, RESIDUAL_SHARE, LEAST_RESIDUAL_SHARE)

    def objective(prior: Prior) -> float:
        found = choose_range(prior, UNBIASED, budget.labels, records)
        clipped = clipped_prior(exact, found.first, found.last)
        noise = float(clipped.weights @ variances(UNBIASED.solve(clipped, budget.labels)))
        squared = clipping_error(exact, exact.labels[found.first], exact.labels[found.last]).squared
        return squared + min(MODEL_PARAMETERS / records, 1.0) * noise

    best, counts = objective(exact), domain.count(steps)
    texts = [f"{shape}, {records} records, epsilon {epsilon:g}, draw {draw}" for draw in range(draws)]
    keys = [hashlib.sha256(text.encode()).digest() for text in texts]
    errors = [objective(domain.prior(noisy_counts(counts, budget.prior, key), budget.prior)) for key in keys]
    return [Comparison(error / best, (error - best) / float(steps.var())) for error in errors]


def lines(records: Sequence[int], epsilons: Sequence[float], draws: int) -> Iterator[str]:
    """Formats the comparisons.

    Args:
      records: Numbers of records.
      epsilons: Budgets.
      draws: Number of noised histograms of each.

    Yields:
      A line for each number of records, epsilon and shape, then a summary for each number of records and epsilon.
    """
    found: dict[tuple[int, float], list[Comparison]] = defaultdict(list)
    for size, epsilon, shape in product(records, epsilons, SHAPES):
        each = compare(shape, size, epsilon, draws)
        found[size, epsilon] += each
        yield f"{size:>7,} records, epsilon {epsilon:g}, {shape:<6}  {'  '.join(map(str, each))}"
    for (size, epsilon), each in found.items():
        ratios = [one.ratio for one in each]
        yield (
            f"{size:>7,} records, epsilon {epsilon:g}: median {np.median(ratios):.2f}, largest {max(ratios):.2f}, "
            f"{sum(ratio <= 1.05 for ratio in ratios)} of {len(each)} within 5 %; "
            f"at most {100 * max(one.lost for one in each):.2f} % of the variance"
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the ratios.

    Args:
      argv: Arguments of the command line.
    """
    parser = argparse.ArgumentParser(description="Compare ranges of residuals from noised and exact histograms.")
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    args = parser.parse_args(argv)
    for line in lines(args.records, args.epsilon, args.draws):
        print(line, flush=True)


if __name__ == "__main__":
    main()
