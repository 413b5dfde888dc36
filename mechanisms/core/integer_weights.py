"""Integer weights of the sampler: their rounding from a solver's floats, and the alias table that draws from them.

The weights of a label are integers that sum to 2^62. They satisfy epsilon exactly, and one 64-bit word draws an output,
without rejection and without floats.

Sources: Walker 1977; Vose 1991, "A Linear Algorithm for Generating Random Numbers with a Given Distribution".
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .budget import exp_below

BITS = 62
"""Logarithm to base 2 of the sum of the integer weights of a label."""
TOTAL = 1 << BITS
"""Sum of the integer weights of a label."""
MAX_CELLS = 1 << 26
"""Largest number of labels times outputs: an alias table of more cells would not fit in a worker's memory."""
EPSILON_MARGIN = 1e-11
"""Solvers solve for epsilon less this margin, so that integers close to their floats still satisfy epsilon."""

_WORD_BITS = 64


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


class AliasTable:
    """Vose's alias table over integers: the high bits of a word select a column, the low bits decide within it.

    The m outputs are padded to `width`, a power of two. Each column holds 2^64 / width of the 2^64 words. A word whose
    low bits are below the column's threshold gives the column's own output, any other word gives the column's alias.

    Attributes:
      width: Columns per label, a power of two, at least 2.
      shift: Number of low bits of a word; a right shift by it gives the column.
      mask: Bit mask of the low bits of a word.
      thresholds: Shape (k * width,), uint64; row by row.
      aliases: Shape (k * width,), int32; indices of outputs.
    """

    def __init__(self, weights: np.ndarray):
        """Builds the table; labels of equal weights share the work.

        Weights have shape (k, m), uint64; every row sums to 2^62.
        """
        labels, outputs = weights.shape
        # At least two columns: the capacity of a single one would be 2^64, which does not fit in 64 bits.
        exponent = max(1, (outputs - 1).bit_length())
        self.width = 1 << exponent
        self.shift = np.uint64(_WORD_BITS - exponent)
        capacity = 1 << (_WORD_BITS - exponent)
        self.mask = np.uint64(capacity - 1)
        thresholds = np.empty((labels, self.width), np.uint64)
        aliases = np.empty((labels, self.width), np.int32)
        known: dict[bytes, int] = {}
        for label, row in enumerate(weights):
            same = known.setdefault(row.tobytes(), label)
            if same == label:
                thresholds[label], aliases[label] = self._fill(row, capacity)
            else:
                thresholds[label], aliases[label] = thresholds[same], aliases[same]
        self.thresholds, self.aliases = thresholds.ravel(), aliases.ravel()

    def _fill(self, row: np.ndarray, capacity: int) -> tuple[list[int], list[int]]:
        # Python integers: a weight of 2^62 becomes 2^64 here.
        mass = [weight << (_WORD_BITS - BITS) for weight in row.tolist()] + [0] * (self.width - len(row))
        alias = list(range(self.width))
        small = [column for column in range(self.width) if mass[column] < capacity]
        large = [column for column in range(self.width) if mass[column] > capacity]
        while small:
            under, over = small.pop(), large[-1]
            alias[under] = over
            mass[over] -= capacity - mass[under]
            if mass[over] <= capacity:
                large.pop()
                if mass[over] < capacity:
                    small.append(over)
        return mass, alias
