"""From a solver's floats to the integers that a sampler uses, without losing epsilon."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .alias_table import TOTAL
from .exact_bounds import exp_below

EPSILON_MARGIN = 1e-11
"""Solvers aim for this much less than epsilon, so that integers near their floats still satisfy epsilon."""


def integer_weights(probabilities: np.ndarray, epsilon: float) -> np.ndarray:
    """Integers near 2^62 times the probabilities, every row summing to 2^62, every column within exp(epsilon).

    Each column is confined to [lo, exp(epsilon) lo], lo its least value rounded up; what a row then lacks or has
    too much goes to the entries with the most room, a few units of 2^-62 each.

    probabilities: (k, m) float64 >= 0, rows summing to 1 within rounding, columns within about exp(epsilon).
    Returns (k, m) uint64. Raises ValueError when no integers near the probabilities satisfy epsilon.
    """
    if not np.all(np.isfinite(probabilities)) or np.min(probabilities) < 0:
        raise ValueError("probabilities must be finite and not negative")
    rows = probabilities / probabilities.sum(axis=1, keepdims=True)
    scaled = rows * float(TOTAL)
    weights = np.rint(scaled).astype(np.int64)
    low = np.maximum(np.ceil(scaled.min(axis=0)).astype(np.int64), 1)
    ratio = exp_below(Fraction(epsilon))
    high = np.array([min(int(ratio * lowest), TOTAL) for lowest in low.tolist()], np.int64)
    possible = weights.max(axis=0) > 0
    weights = np.where(possible, np.clip(weights, low, high), 0)
    for row in weights:
        _repair(row, np.where(possible, low, 0), np.where(possible, high, 0))
    return weights.astype(np.uint64)


def _repair(row: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Makes a row sum to 2^62 in place, changing its roomiest entries first."""
    missing = TOTAL - sum(row.tolist())
    room = high - row if missing > 0 else row - low
    for column in np.argsort(-room, kind="stable").tolist():
        if missing == 0:
            return
        step = min(abs(missing), int(room[column]))
        row[column] += step if missing > 0 else -step
        missing += -step if missing > 0 else step
    if missing:
        raise ValueError("no integer weights near these probabilities satisfy epsilon")
