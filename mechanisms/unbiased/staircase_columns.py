"""Staircase columns: their losses, and the lower bounds that prices of the rows prove.

Source: Badanidiyuru et al. 2023, Theorem 6 with Claims 11 to 14: some optimal unbiased randomizer consists of columns
in which one output t has one probability for the labels of an interval, and a probability E = exp(epsilon) times
smaller for all others. Here a column has a height h: its probability is h base outside its interval and h (base + 1)
inside, base = 1 / (E - 1). Heights are of the size of probabilities for every epsilon.

The rows of the program state that a label's probabilities sum to 1 and that its mean is the label. Prices of the rows
are kept cumulated over the labels, as potentials of the k + 1 boundaries before, between and after the labels. A column
then depends on three potentials only: at the two boundaries where its interval starts and stops, and at the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..core.reproducible import dot

# Intervals that are priced at once.
_CHUNK = 1 << 16
_ULP = 2.0**-52
# Prefix sums are kept in the longest floats of the machine.
_SUM_ULP = float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, eq=False)
class Columns:
    """Staircase columns.

    Attributes:
      start: First label inside each interval, shape (n,), int.
      stop: Last label inside, shape (n,), int.
      height: Height h, shape (n,).
      output: Output t, shape (n,), labels scaled to [-1, 1].
    """

    start: np.ndarray
    stop: np.ndarray
    height: np.ndarray
    output: np.ndarray

    def select(self, which: np.ndarray) -> Columns:
        """Selects columns by a mask or indices."""
        return Columns(self.start[which], self.stop[which], self.height[which], self.output[which])


@dataclass(frozen=True, eq=False)
class LossCurves:
    """Expected loss of columns of height 1 as a function of their output t: spread + mass (t - center)^2.

    Attributes:
      mass: Shape (n,).
      center: Output of least loss, shape (n,).
      spread: Least loss, shape (n,).
    """

    mass: np.ndarray
    center: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class Pricing:
    """Lower bound on the loss, and the intervals with the least reduced costs.

    Attributes:
      bound: No randomizer has a smaller loss.
      start: Shape (2 k,); for each label, the best interval that starts there, then the best one that ends there.
      stop: Last labels of these intervals, shape (2 k,).
      improves: Shape (2 k,), bool; whether the interval has a negative reduced cost.
    """

    bound: float
    start: np.ndarray
    stop: np.ndarray
    improves: np.ndarray


@dataclass(frozen=True, eq=False)
class Program:
    """Least squared loss over staircase columns, subject to the rows.

    Attributes:
      labels: Shape (k,), ascending, from -1 to 1.
      weights: Prior, shape (k,).
      base: 1 / (exp(epsilon) - 1).
      bias_limit: Largest bias allowed, on the scale of the labels.
      rhs: Right-hand sides of the rows, as differences at the boundaries, shape (2, k + 1).
      mean: Mean label under the prior.
    """

    labels: np.ndarray
    weights: np.ndarray
    base: float
    bias_limit: float
    rhs: np.ndarray = field(init=False)
    """Shape (2, k + 1): right-hand sides of the rows, as differences at the boundaries."""
    mean: float = field(init=False)
    _sums: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        p, y = self.weights, self.labels
        mean = dot(p, y) / float(p.sum())
        rhs = np.zeros((2, len(y) + 1))
        rhs[0, -1], rhs[1, 1:-1], rhs[1, -1] = 1.0, -np.diff(y), y[-1]
        sums = np.zeros((3, len(y) + 1), np.longdouble)
        exact, centered = p.astype(np.longdouble), y.astype(np.longdouble) - mean
        np.cumsum([exact, exact * centered, exact * centered**2], axis=1, out=sums[:, 1:])
        object.__setattr__(self, "rhs", rhs)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "_sums", sums)

    def loss_curves(self, start: np.ndarray, stop: np.ndarray) -> LossCurves:
        """Computes the loss curves of columns from their first and last labels, shape (n,), both included.

        Single labels lose no digits, however large epsilon is.
        """
        inside, moment, square = self._sums[:, stop + 1] - self._sums[:, start]
        single = start == stop
        mean = moment / np.maximum(inside, np.finfo(float).tiny)
        mean = np.clip(mean, self.labels[start] - self.mean, self.labels[stop] - self.mean)
        within = np.where(single, 0.0, np.maximum(square - moment * mean, 0.0)).astype(np.float64)
        inside = np.where(single, self.weights[start], inside).astype(np.float64)
        mean = mean.astype(np.float64)
        total = self.base * float(self._sums[0, -1])
        mass = total + inside
        share = inside / mass
        spread = within + self.base * float(self._sums[2, -1]) + total * share * mean**2
        return LossCurves(mass, self.mean + share * mean, spread)

    def column_prices(self, potential: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Sums the prices of the rows over columns of height 1: base + 1 times inside the interval, base times outside.

        The cumulated prices have shape (..., k + 1), the result (..., n).
        """
        return self.base * potential[..., -1:] + (potential[..., stop + 1] - potential[..., start])

    def total_probability(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Sums the probabilities of columns of height 1 over all labels; shape (n,)."""
        return self.base * len(self.labels) + (stop + 1 - start)

    def probabilities(self, columns: Columns, group: np.ndarray) -> np.ndarray:
        """Probability table of groups of columns that share an output; shape (k, m).

        `group`, shape (n,), is the group of each column, from 0 to m - 1.
        """
        size = int(group.max()) + 1
        rises, falls = columns.start * size + group, (columns.stop + 1) * size + group
        shape = (len(self.labels) + 1, size)
        steps = np.bincount(rises, columns.height, shape[0] * size) - np.bincount(
            falls, columns.height, shape[0] * size
        )
        inside = np.maximum(np.cumsum(steps.reshape(shape), axis=0)[:-1], 0.0)
        # Labels inside none or all of the group's columns take 0 or the group's height, without any rounding.
        counts = np.bincount(rises, minlength=shape[0] * size) - np.bincount(falls, minlength=shape[0] * size)
        high = np.cumsum(counts.reshape(shape), axis=0)[:-1]
        held = np.bincount(group, columns.height)
        inside = np.where(high == np.bincount(group), held, np.where(high == 0, 0.0, np.minimum(inside, held)))
        return self.base * held + inside

    def loss(self, columns: Columns) -> float:
        """Computes the expected squared loss of columns, labels scaled to [-1, 1]."""
        curves = self.loss_curves(columns.start, columns.stop)
        return dot(columns.height, curves.spread + curves.mass * (columns.output - curves.center) ** 2)

    def dual_value(self, potentials: np.ndarray) -> float:
        """Computes the dual objective at cumulated prices, shape (2, k + 1)."""
        return float((self.rhs * potentials).sum() - self.bias_limit * np.abs(np.diff(potentials[1])).sum())

    def price_intervals(self, potentials: np.ndarray) -> Pricing:
        """Prices every interval, at any cumulated prices, shape (2, k + 1). Time O(k^2), memory O(k).

        At any prices, a column of height 1 lowers the loss below the dual value by at most its reduced cost, where that
        is negative. Over any solution, heights times `total_probability` sum to k. So no solution has a loss below
        dual value + k min(reduced cost / total probability, 0). An upper bound on the rounding errors is subtracted.
        """
        k = len(self.labels)
        rows = max(1, _CHUNK // k)
        every = np.arange(k)
        least_from, stop_of, least_to, start_of = np.empty(k), np.empty(k, int), np.full(k, np.inf), np.zeros(k, int)
        for first in range(0, k, rows):
            starts = every[first : first + rows]
            start, stop = np.nonzero(every >= starts[:, None])
            shares = np.full((len(starts), k), np.inf)
            shares[start, stop] = self._reduced_costs(potentials, start + first, stop) / self.total_probability(
                start + first, stop
            )
            stop_of[starts] = shares.argmin(axis=1)
            least_from[starts] = shares[np.arange(len(starts)), stop_of[starts]]
            start_here = shares.argmin(axis=0)
            least_here = shares[start_here, every]
            better = least_here < least_to
            start_of[better], least_to[better] = start_here[better] + first, least_here[better]
        least = min(float(least_from.min()), 0.0)
        magnitude = np.abs(self.rhs * potentials).sum() + 2 * self.bias_limit * np.abs(potentials[1]).sum()
        bound = self.dual_value(potentials) + k * least - (k + 8) * _ULP * magnitude
        return Pricing(
            max(float(bound), 0.0),
            np.concatenate([every, start_of]),
            np.concatenate([stop_of, every]),
            np.concatenate([least_from, least_to]) < 0,
        )

    def _reduced_costs(self, potentials: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Returns the reduced costs of columns with their best outputs, less a bound on the rounding errors."""
        curves = self.loss_curves(start, stop)
        price, slope = self.column_prices(potentials, start, stop)
        shift = slope / (2 * curves.mass)
        output = curves.center + shift
        costs = curves.spread - price - (curves.center + shift / 2) * slope
        # Bounds a few roundings of each term; masses and spreads of wider intervals are differences of prefix sums.
        sizes = np.abs(potentials)
        prices, slopes = self.base * sizes[:, -1:] + sizes[:, stop + 1] + sizes[:, start]
        terms = curves.spread + prices + (np.abs(output) + 1) * slopes
        wide = np.where(start == stop, 0.0, len(self.labels) * ((output - self.mean) ** 2 + 4))
        return costs - 8 * _ULP * terms - _SUM_ULP * wide

    def debiased_response(self) -> tuple[Columns, np.ndarray]:
        """Computes the k columns of debiased randomized response (Algorithm 2), and its prices.

        The potentials, shape (2, k + 1), give a column on any single label a reduced cost of 0 at its output: 2 k
        equations with a closed form. They prove the optimality of debiased randomized response where it is optimal.
        """
        k, y, place = len(self.labels), self.labels, np.arange(len(self.labels))
        response = Columns(place, place, np.full(k, 1 / (1 + k * self.base)), y + self.base * (k * y - y.sum()))
        curves = self.loss_curves(place, place)
        # Written out so that no digits cancel: output less center is about base.
        shift = self.base * ((y - self.mean) / curves.mass + k * y - y.sum())
        slopes = 2 * curves.mass * shift
        costs = curves.spread - curves.mass * shift**2 - slopes * curves.center
        prices = np.stack([costs, slopes])
        prices = prices - self.base * (prices.sum(axis=1, keepdims=True) / (1 + k * self.base))
        return response, np.concatenate([np.zeros((2, 1)), np.cumsum(prices, axis=1)], axis=1)


def boundary_differences(terms: np.ndarray) -> np.ndarray:
    """Takes each label's term at the boundary after it, less the one at the boundary before; shape (k + 1,)."""
    return np.append(0.0, terms) - np.append(terms, 0.0)
