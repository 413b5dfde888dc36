"""Public label domain: an evenly spaced grid from exact decimals, the working grid, and the rounding of labels to it.

Working grid. A mechanism is solved on the working grid: the declared labels, or for a finer grid a coarser one over the
same range. More labels cost time, and around a center the histogram of their residuals has more cells, but they gain
next to nothing, because labels are rounded to the grid at random and without bias. With s steps of length h = L / s
over the range L, rounding adds a variance of at most h^2 / 4. At every label y, the variance of every unbiased
epsilon-DP mechanism is at least

    (L / 2)^2 / (e^epsilon + e^-epsilon - 2) = L^2 / (16 sinh(epsilon / 2)^2)

by the bound of Hammersley, Chapman and Robbins: one end of the range is L / 2 or more away from y, the means of its
output and of that of y differ by as much, and two distributions whose probabilities have ratios between e^-epsilon and
e^epsilon have a chi-squared divergence of at most e^epsilon + e^-epsilon - 2. So rounding adds at most a hundredth of
the variance if s is at least 20 sinh(epsilon / 2). The rule depends on the declared labels and on epsilon alone.

Rounding. Rounding to the nearest label adds a bias of up to half the label spacing, with any randomizer. Randomized
rounding, to one of the two neighbors a < b of a value v, adds no bias, but variance: (v - a) (b - v).

Privacy of randomized rounding. Its random bits may be any fixed function of a record's identity and a secret key.
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
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .budget import check_epsilon
from .reproducible import expm1

MOST = 1e100
"""Largest magnitude of a label: squares of errors are then finite floats, at any epsilon."""

MOST_LABELS = 1 << 20
"""Largest number of labels of a declared grid."""

MOST_UNEVEN = 1 << 12
"""Largest number of labels that are not evenly spaced: they are all used, and more take minutes or gigabytes."""

# Steps of a working grid, at most: 512 up to an epsilon of 6.5, then twice 20 sinh(epsilon / 2), so that half as many
# are enough. From epsilon 7.9 on, 1,024, for the sake of the time to solve.
_FEW_STEPS, _MANY_STEPS = 512, 1024

# Relative to the label range: labels of a grid are rounded decimals.
_SPACING_TOLERANCE = 1e-9

NEAREST, RANDOMIZED = ROUNDINGS = ("nearest", "randomized")
"""Names of the two kinds of rounding of labels that are released."""

OUTWARD = "outward"
"""Rounding of labels that are only counted: away from 0, so that each label of the domain ends a cell."""

# A word's high 53 bits, as a fraction of 2^53, are a uniform float in [0, 1).
_UNUSED_BITS = np.uint64(11)
_WORD_TO_UNIT = 2.0**-53


_EXPONENT = re.compile(r"[eE]([+-]?\d{1,10})")
_LARGEST_EXPONENT, _LONGEST_NUMBER = 400, 1000


def check_domain(labels: np.ndarray) -> None:
    """Raises ValueError unless labels, shape (k,), k >= 1, are at most `MOST` in magnitude and strictly ascending."""
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError("the label domain needs at least one label")
    if not np.all(np.isfinite(labels)):
        raise ValueError("labels of the domain must be finite")
    if np.any(np.abs(labels) > MOST):
        raise ValueError(f"labels of the domain must be at most {MOST:g} in magnitude: scale the labels down")
    if np.any(labels[1:] <= labels[:-1]):
        raise ValueError("labels of the domain must be strictly ascending")


def label_grid(low: str, high: str, step: str) -> np.ndarray:
    """Builds the label grid low, low + step, ..., high.

    The bounds are decimal strings, so that 0.1 is exactly one tenth. Labels are computed exactly, then rounded.

    Args:
      low: Smallest label, a decimal.
      high: Largest label, a decimal above `low`.
      step: Spacing of the grid, a positive decimal that divides high - low.

    Returns:
      Shape (k,), float64, each label correctly rounded; k is at most 2^20.

    Raises:
      ValueError: If an argument is not a number, the bounds are not ascending, the step is not positive or does not
        divide the range, or the grid has too many labels.
    """
    first, last, stride = decimal_of("label_min", low), decimal_of("label_max", high), decimal_of("label_step", step)
    if first >= last:
        raise ValueError(f"label_min must be below label_max, but {low} >= {high}")
    if stride <= 0:
        raise ValueError(f"label_step must be positive, not {step}")
    steps = (last - first) / stride
    if steps.denominator != 1:
        end = float(first + math.ceil(steps) * stride)
        raise ValueError(f"label_step {step} does not divide the range from {low} to {high}, but that to {end:.12g}")
    if steps >= MOST_LABELS:
        raise ValueError(f"label_step {step} makes {int(steps) + 1} labels; at most {MOST_LABELS} are allowed")
    if max(abs(first), abs(last)) > MOST:
        raise ValueError(f"label_max {high} or label_min {low} is above {MOST:g} in magnitude: scale the labels down")
    # Quotients of integers are rounded correctly.
    unit = math.lcm(first.denominator, stride.denominator)
    start, distance = int(first * unit), int(stride * unit)
    labels = np.array([(start + i * distance) / unit for i in range(int(steps) + 1)])
    check_domain(labels)
    return labels


def is_even(labels: np.ndarray) -> bool:
    """True if ascending labels are evenly spaced, up to the rounding of decimals; also True for a single label."""
    even = np.linspace(labels[0], labels[-1], len(labels))
    return bool(np.max(np.abs(labels - even)) <= _SPACING_TOLERANCE * (labels[-1] - labels[0]))


@dataclass(frozen=True)
class DeclaredGrid:
    """Label grid as it was declared, where the working grid is a coarser one over the same range.

    `labels` is the number of declared labels, `epsilon` the one that the working grid was chosen for.
    """

    labels: int
    epsilon: float


def working_grid(labels: np.ndarray, epsilon: float) -> tuple[np.ndarray, DeclaredGrid | None]:
    """Chooses the labels that a mechanism is solved for, by a public rule.

    A grid of at most 512 steps is used as it is, and one of at most 1,024 at an epsilon from 7.9 on. Of a finer one,
    every m-th label is used, for the smallest m that divides the number of its steps and leaves at most 512 of them, or
    1,024. If less than half as many remain, the range is divided into 512 or 1,024 steps of equal length. In between,
    from epsilon 6.5 on, the number is 2 ceil(20 sinh(epsilon / 2)).

    The declared domain has shape (k,), float64, strictly ascending. The labels to use have shape (at most 1025,) for an
    even domain; the declared grid comes with them, None if all labels are used. Raises ValueError if epsilon is out of
    range, there are more than 2^20 labels, or more than 4,096 that are not evenly spaced.
    """
    steps = len(labels) - 1
    if steps <= _FEW_STEPS:
        return labels, None
    check_epsilon(epsilon)
    most = _most_steps(epsilon)
    if steps <= most:
        return labels, None
    if len(labels) > MOST_LABELS:
        raise ValueError(f"{len(labels):,} labels; at most {MOST_LABELS:,} are allowed")
    if not is_even(labels):
        if len(labels) > MOST_UNEVEN:
            raise ValueError(
                f"{len(labels):,} labels that are not evenly spaced, of which at most {MOST_UNEVEN:,} are supported: "
                "leave some out"
            )
        return labels, None
    declared = DeclaredGrid(len(labels), epsilon)
    for number in range(most, most // 2, -1):
        if steps % number == 0:
            return labels[:: steps // number], declared
    low, high = Fraction(float(labels[0])), Fraction(float(labels[-1]))
    return np.array([float(low + (high - low) * i / most) for i in range(most + 1)]), declared


def _most_steps(epsilon: float) -> int:
    growth = float(expm1(epsilon / 2))
    # 20 sinh(x) = 10 (e^x - e^-x), and e^x = growth + 1.
    enough = math.ceil(10 * (growth + growth / (growth + 1)))
    return min(max(2 * enough, _FEW_STEPS), _MANY_STEPS)


def decimal_of(name: str, text: str) -> Fraction:
    """Reads a bound or a step exactly. Raises ValueError, which begins with `name`, if the text is not a number."""
    exponent = _EXPONENT.search(text)
    if len(text) > _LONGEST_NUMBER or (exponent is not None and abs(int(exponent[1])) > _LARGEST_EXPONENT):
        # A fraction of as many digits would be made of it.
        raise ValueError(f"{name} is out of the range of floats")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number, not {text!r}") from None


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
