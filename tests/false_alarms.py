"""Bounds of statistical tests on draws that differ between runs, from one false-alarm rate.

A test whose key, identities and requests are fixed gets the same draws in every run and needs none of these bounds.
Records without ids are named by file and row: below a temporary folder, their noise differs between runs.
"""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-8
"""Probability that one assertion fails although the code is right: a hundred have one in a million."""


def standard_errors(false_alarm: float = FALSE_ALARM) -> float:
    """Largest distance of a normal estimate from its mean, either way, in standard errors."""
    return float(stats.norm.isf(false_alarm / 2))


def count_bounds(trials: int, chance: float, false_alarm: float = FALSE_ALARM) -> tuple[float, float]:
    """Least and largest number of independent events of one chance: binomial quantiles."""
    return float(stats.binom.ppf(false_alarm / 2, trials, chance)), float(
        stats.binom.isf(false_alarm / 2, trials, chance)
    )


def chi_square_bounds(freedom: int, false_alarm: float = FALSE_ALARM) -> tuple[float, float]:
    """Least and largest chi-square statistic: one that is too small shows wrong noise, too."""
    return float(stats.chi2.ppf(false_alarm / 2, freedom)), float(stats.chi2.isf(false_alarm / 2, freedom))


def mean_bound(variances: np.ndarray, spread: float, false_alarm: float = FALSE_ALARM) -> float:
    """Largest distance of the mean of independent numbers from its expectation, either way, by Bernstein's inequality.

    `variances` are those of the numbers, shape (n,), or bounds of them; no number is further than `spread` from its
    expectation.
    """
    records, log = len(variances), np.log(2 / false_alarm)
    return float(np.sqrt(2 * variances.sum() * log + (spread * log / 3) ** 2) + spread * log / 3) / records


def share_bound(chances: np.ndarray, false_alarm: float = FALSE_ALARM) -> float:
    """Largest distance of a share of independent events of these chances, shape (n,), from their mean, either way."""
    return mean_bound(chances * (1 - chances), 1.0, false_alarm)
