"""Rounding of a solver's float probabilities to the integer weights of the sampler, under an exact epsilon."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .alias_table import TOTAL
from .exact_bounds import exp_below

EPSILON_MARGIN = 1e-11
"""Solvers solve for epsilon less this margin, so that integers close to their floats still satisfy epsilon."""


def integer_weights(probabilities: np.ndarray, epsilon: float) -> np.ndarray:
    """Rounds probabilities to integer weights: row sums of 2^62, likelihood ratios of at most exp(epsilon).

    Each column is clipped to [low, exp(epsilon) * low], where low is its smallest value, rounded up. The difference of
    a row sum from 2^62 is then corrected in the entries that are furthest from their bounds, usually by a few units.

    Probabilities have shape (k, m), are >= 0 and sum to 1 in each row up to rounding; columns have a largest ratio of
    about exp(epsilon). Weights have the same shape, uint64. Raises ValueError if a probability is negative or not
    finite, or no integers close to them satisfy epsilon.
    """
    if not np.all(np.isfinite(probabilities)) or np.min(probabilities) < 0:
        raise ValueError("probabilities must be finite and not negative")
    rows = probabilities / probabilities.sum(axis=1, keepdims=True)
    scaled = rows * float(TOTAL)
    weights = np.rint(scaled).astype(np.int64)
    low = np.maximum(np.ceil(scaled.min(axis=0)).astype(np.int64), 1)
    ratio = exp_below(Fraction(epsilon))
    top, bottom = ratio.numerator, ratio.denominator
    high = np.array([min(lowest * top // bottom, TOTAL) for lowest in low.tolist()], np.int64)
    possible = weights.max(axis=0) > 0
    weights = np.where(possible, np.clip(weights, low, high), 0)
    for row in weights:
        _repair(row, np.where(possible, low, 0), np.where(possible, high, 0))
    return weights.astype(np.uint64)


def _repair(row: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Corrects the sum of a row to 2^62 in place, beginning with the entries furthest from their bounds."""
    missing = TOTAL - sum(row.tolist())
    slack = high - row if missing > 0 else row - low
    for column in np.argsort(-slack, kind="stable").tolist():
        if missing == 0:
            return
        step = min(abs(missing), int(slack[column]))
        row[column] += step if missing > 0 else -step
        missing += -step if missing > 0 else step
    if missing:
        raise ValueError("no integer weights close to these probabilities satisfy epsilon")
