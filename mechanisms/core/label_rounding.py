"""Rounding of real labels to the public label domain: to the nearest label, or to one of two neighbors at random.

Randomizers take the labels of a finite domain. Rounding to the nearest label adds a bias of up to half the label
spacing, with any randomizer. Randomized rounding adds no bias, but variance: (v - a) (b - v) for a label v between the
neighbors a < b.

Privacy. The random bits of randomized rounding may be any fixed function of a record's identity and a secret key.
Unlike the noise, they need not be bound to the data, so the histogram, the privatized labels and later releases can all
use the same rounded labels. Proof: fix all random bits (they could even be public). Each rounded label is then a
function of the record's own label. Two inputs that differ in the label of one record become two inputs over the domain
that differ in at most one label, and for those the histogram and the privatized labels satisfy their epsilon. A bound
that holds for every value of the random bits also holds for random bits that are independent of the labels and the
noise. Here they are: identities do not depend on labels, and keys for different purposes are independent. The same
argument holds for several releases with the same random bits: their epsilons add up for every value of the bits. The
rounded labels themselves never leave the job.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

NEAREST, RANDOMIZED = ROUNDINGS = ("nearest", "randomized")
"""Names of the two kinds of rounding of labels that are released."""

OUTWARD = "outward"
"""Rounding of labels that are only counted: away from 0, so that each label of the domain ends a cell."""

# A word's high 53 bits, as a fraction of 2^53, are a uniform float in [0, 1).
_UNUSED_BITS = np.uint64(11)
_WORD_TO_UNIT = 2.0**-53


class LabelRounder:
    """Rounds real labels to the labels of a domain. Labels outside the domain are clamped to its ends.

    Values have shape (n,), float64, finite; results have shape (n,), integer indices in [0, k). Cost: for a label grid,
    a few array operations whose cost does not depend on k; otherwise a binary search.
    """

    def __init__(self, labels: np.ndarray):
        """Prepares the rounding. labels: shape (k,), float64, finite and strictly ascending."""
        self._labels = labels
        self._nearest = _Cells(_halfway(labels))
        self._below = _Cells(labels[1:])
        self._halves = labels * 0.5
        self._gaps = np.maximum(np.diff(self._halves), math.ulp(0.0))

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """Rounds to the nearest label; a value halfway between two labels is rounded up.

        Exact, except for labels so small that half of one is not representable as a float.
        """
        return self._nearest.find(values)

    def outward(self, values: np.ndarray) -> np.ndarray:
        """Rounds away from 0, to the closest label that is not closer to 0."""
        above = np.searchsorted(self._labels, values, side="left")
        below = np.searchsorted(self._labels, values, side="right") - 1
        return np.clip(np.where(values >= 0, above, below), 0, len(self._labels) - 1)

    def randomized(self, values: np.ndarray, words: Callable[[], np.ndarray]) -> np.ndarray:
        """Rounds without bias to one of the two neighboring labels.

        A value v with a < v < b becomes b with probability (v - a) / (b - a), up to 2^-51, and otherwise a. Labels of
        the domain are unchanged. `words` returns (n,) uniform uint64, one per value; it is called only if some value
        lies between two labels.
        """
        values = np.clip(values, self._labels[0], self._labels[-1])
        indices = self._below.find(values)
        between = np.flatnonzero(values != self._labels[indices])
        if between.size:
            below = indices[between]
            # Differences of halves do not overflow.
            chances = (values[between] * 0.5 - self._halves[below]) / self._gaps[below]
            indices[between] += (words()[between] >> _UNUSED_BITS) * _WORD_TO_UNIT < chances
        return indices


def _halfway(labels: np.ndarray) -> np.ndarray:
    """Shape (k - 1,), float64: for each pair of neighbors the smallest float that is not below their mean."""
    lower, upper = labels[:-1] * 0.5, labels[1:] * 0.5
    mean = lower + upper
    # The exact rounding error of the sum (Knuth's two-sum).
    part = mean - lower
    error = (lower - (mean - part)) + (upper - part)
    above = np.where(error > 0, np.nextafter(mean, math.inf), mean)
    return np.clip(above, np.nextafter(labels[:-1], math.inf), labels[1:])


class _Cells:
    """Counts the separators that are not above a value: np.searchsorted(separators, values, "right").

    If the separators are evenly spaced up to rounding, a linear function predicts the count to within one, and
    comparisons with the separators correct it. The result is identical.
    """

    def __init__(self, separators: np.ndarray):
        """Prepares the search. separators: shape (m,), float64, finite and strictly ascending."""
        self._separators = separators
        self._lower = np.append(-math.inf, separators)
        self._upper = np.append(separators, math.inf)
        self._slope = self._find_slope()

    def _find_slope(self) -> float | None:
        """Counts per unit, if the prediction is never off by more than one; otherwise None.

        The prediction is monotone. So it suffices that at each separator, where the count increases by one, it equals
        the count before or after.
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
        """Counts for values of shape (n,), float64; shape (n,), in [0, m]."""
        if self._slope is None:
            return np.searchsorted(self._separators, values, side="right")
        counts = self._predict(values)
        counts += values >= self._upper[counts]
        counts -= values < self._lower[counts]
        return counts
