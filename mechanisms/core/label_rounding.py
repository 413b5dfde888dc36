"""Which label of the public domain a real label becomes: the nearest, or one of its two neighbours at random.

Randomizers take the labels of a finite domain. Rounding to the nearest adds a bias of up to half a step, whatever the
randomizer; randomized rounding adds none, and some variance, (v - a) (b - v) for a label v between neighbours a < b.

Privacy. The coins of randomized rounding may be any fixed function of a record's name and a secret. They need not be
bound to the data as noise is, so that counting and privatizing, and later releases, can round alike. For fix all
coins, even publish them: each record's rounded label is then a function of its own label. Two inputs that differ in
the label of one record become two inputs over the domain that differ in one label at most, and on those everything
that is released, histogram and labels, holds its epsilon. What holds for every choice of coins, with one epsilon,
holds for coins at random, if they are independent of the labels and of the noise: names do not depend on labels, and
keys of other purposes are independent. The same goes for several releases under the same coins: their epsilons add up
for every choice of coins. What never leaves the job is the rounded label itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

NEAREST, RANDOMIZED = ROUNDINGS = ("nearest", "randomized")
"""By name."""


_WORD_TO_UNIT = 2.0**-53


_UNUSED_BITS = np.uint64(11)


class LabelRounder:
    """Rounds to the labels of a domain. Labels outside of it are clamped to its ends first.

    A few array passes for n labels, however many labels the domain has, where it is an even grid; else a binary search.
    """

    def __init__(self, labels: np.ndarray):
        """labels: (k,) finite float64, strictly ascending."""
        self._labels = labels
        self._nearest = _Cells(_halfway(labels))
        self._below = _Cells(labels[1:])
        self._halves = labels * 0.5
        self._gaps = np.maximum(np.diff(self._halves), math.ulp(0.0))

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """The nearest label; halfway goes up. Exact, but for labels so small that half of one is no float.

        values: (n,) finite float64. Returns (n,) indices in [0, k).
        """
        return self._nearest.find(values)

    def randomized(self, values: np.ndarray, words: Callable[[], np.ndarray]) -> np.ndarray:
        """The neighbour above with the probability that makes the mean right, else the one below.

        A value v with a < v < b becomes b with probability (v - a) / (b - a), to within 2^-51. Labels of the domain
        stay what they are.

        values: (n,) finite float64. words: gives (n,) uniform uint64, one per value; called when a value lies
        between two labels. Returns (n,) indices in [0, k).
        """
        values = np.clip(values, self._labels[0], self._labels[-1])
        indices = self._below.find(values)
        between = np.flatnonzero(values != self._labels[indices])
        if between.size:
            below = indices[between]
            # Halves: their differences do not overflow.
            chances = (values[between] * 0.5 - self._halves[below]) / self._gaps[below]
            indices[between] += (words()[between] >> _UNUSED_BITS) * _WORD_TO_UNIT < chances
        return indices


def _halfway(labels: np.ndarray) -> np.ndarray:
    """Between each two neighbours, the least float that is not below their mean. (k - 1,) float64."""
    lower, upper = labels[:-1] * 0.5, labels[1:] * 0.5
    mean = lower + upper
    # What the sum was rounded by, exactly: Knuth's two-sum.
    part = mean - lower
    error = (lower - (mean - part)) + (upper - part)
    above = np.where(error > 0, np.nextafter(mean, math.inf), mean)
    return np.clip(above, np.nextafter(labels[:-1], math.inf), labels[1:])


class _Cells:
    """Counts the separators that are not above a value: np.searchsorted(separators, values, "right").

    Where they are evenly spaced, but for rounding, a line predicts the count to within one, and comparisons with the
    separators correct it: the result is the same, to the bit.
    """

    def __init__(self, separators: np.ndarray):
        """separators: (m,) finite float64, strictly ascending."""
        self._separators = separators
        self._lower = np.append(-math.inf, separators)
        self._upper = np.append(separators, math.inf)
        self._slope = self._find_slope()

    def _find_slope(self) -> float | None:
        """Counts per unit, if the prediction is never off by more than one; else None.

        The prediction grows with the value. So it is enough that at each separator, where the count grows by one,
        it is the count before or after.
        """
        steps = len(self._separators) - 1
        if steps < 1:
            return None
        with np.errstate(over="ignore"):
            slope = steps / (self._separators[-1] - self._separators[0])
        if not 0 < slope < math.inf:
            return None
        self._slope = float(slope)
        late = np.arange(1, steps + 2) - self._predict(self._separators)
        return self._slope if np.all((late == 0) | (late == 1)) else None

    def _predict(self, values: np.ndarray) -> np.ndarray:
        first, last = self._separators[0], self._separators[-1]
        return ((np.clip(values, first, last) - first) * self._slope + 1).astype(np.intp)

    def find(self, values: np.ndarray) -> np.ndarray:
        """(n,) float64 -> (n,) counts in [0, m]."""
        if self._slope is None:
            return np.searchsorted(self._separators, values, side="right")
        counts = self._predict(values)
        counts += values >= self._upper[counts]
        counts -= values < self._lower[counts]
        return counts
