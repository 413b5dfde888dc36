"""Staircase columns: what they cost, and what prices of the rows prove about all of them.

Source: Badanidiyuru et al. 2023, Theorem 6 with Claims 11 to 14: some optimal unbiased randomizer consists of columns
that give one output t with one probability to the labels of an interval and with E times less, E = exp(epsilon), to
all others. Here a column has a height h: its probability is h base outside its interval and h (base + 1) inside,
base = 1 / (E - 1). Heights are about probabilities, whatever epsilon is.

The rows of the program say that a label's probabilities sum to 1 and that its mean is the label. Prices of the rows
are kept cumulated over the labels, as potentials of the k + 1 places before, between and after the labels. A column
then sees the two places where its interval starts and stops, and the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# How many intervals are priced at once.
_CHUNK = 1 << 16


_ULP = 2.0**-52


# Prefix sums are kept with the digits that the machine has.
_SUM_ULP = float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, eq=False)
class Columns:
    """start, stop: the first and the last label inside. height, output: h and t. Each (n,)."""

    start: np.ndarray
    stop: np.ndarray
    height: np.ndarray
    output: np.ndarray

    def chosen(self, which: np.ndarray) -> Columns:
        """Those of a mask or of indices."""
        return Columns(self.start[which], self.stop[which], self.height[which], self.output[which])


@dataclass(frozen=True, eq=False)
class Curves:
    """The expected loss of columns of height 1 by their output t: spread + mass (t - centre)^2. Each (n,)."""

    mass: np.ndarray
    centre: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class Proof:
    """bound: no randomizer has a smaller loss. start, stop: (2 k,), the interval from each label, and the one to each
    label, that the prices favour most. helps: (2 k,) bool, which of them would raise the bound."""

    bound: float
    start: np.ndarray
    stop: np.ndarray
    helps: np.ndarray


@dataclass(frozen=True, eq=False)
class Program:
    """The least squared loss over staircase columns.

    labels: (k,) ascending, from -1 to 1. weights: (k,) the prior. base: 1 / (E - 1). slack: the largest bias allowed.
    """

    labels: np.ndarray
    weights: np.ndarray
    base: float
    slack: float
    sides: np.ndarray = field(init=False)
    """(2, k + 1): the right-hand sides of the rows, as potentials see them."""
    mean: float = field(init=False)
    _sums: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        p, y = self.weights, self.labels
        mean = float(p @ y / p.sum())
        sides = np.zeros((2, len(y) + 1))
        sides[0, -1], sides[1, 1:-1], sides[1, -1] = 1.0, -np.diff(y), y[-1]
        sums = np.zeros((3, len(y) + 1), np.longdouble)
        exact, centred = p.astype(np.longdouble), y.astype(np.longdouble) - mean
        np.cumsum([exact, exact * centred, exact * centred**2], axis=1, out=sums[:, 1:])
        object.__setattr__(self, "sides", sides)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "_sums", sums)

    def curves(self, start: np.ndarray, stop: np.ndarray) -> Curves:
        """Of the columns on labels start..stop (included). Nothing cancels for single labels, however large E is."""
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
        return Curves(mass, self.mean + share * mean, spread)

    def stepped(self, potential: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The sum of the prices, base + 1 times inside the interval and base times outside. potential: (..., k + 1)."""
        return self.base * potential[..., -1:] + (potential[..., stop + 1] - potential[..., start])

    def sizes(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """What a column of height 1 adds to all probabilities together."""
        return self.base * len(self.labels) + (stop + 1 - start)

    def probabilities(self, columns: Columns, group: np.ndarray) -> np.ndarray:
        """(k, m): of groups of columns that have one output each. group: (n,) from 0 to m - 1."""
        size = int(group.max()) + 1
        rises, falls = columns.start * size + group, (columns.stop + 1) * size + group
        shape = (len(self.labels) + 1, size)
        steps = np.bincount(rises, columns.height, shape[0] * size) - np.bincount(
            falls, columns.height, shape[0] * size
        )
        inside = np.maximum(np.cumsum(steps.reshape(shape), axis=0)[:-1], 0.0)
        # Where no column of the group is high, or all are, there is nothing to add up, nor to round.
        counts = np.bincount(rises, minlength=shape[0] * size) - np.bincount(falls, minlength=shape[0] * size)
        high = np.cumsum(counts.reshape(shape), axis=0)[:-1]
        held = np.bincount(group, columns.height)
        inside = np.where(high == np.bincount(group), held, np.where(high == 0, 0.0, np.minimum(inside, held)))
        return self.base * held + inside

    def loss(self, columns: Columns) -> float:
        """The expected squared loss."""
        curves = self.curves(columns.start, columns.stop)
        return float(columns.height @ (curves.spread + curves.mass * (columns.output - curves.centre) ** 2))

    def dual_value(self, potentials: np.ndarray) -> float:
        """What the prices say the right-hand sides are worth."""
        return float((self.sides * potentials).sum() - self.slack * np.abs(np.diff(potentials[1])).sum())

    def proof(self, potentials: np.ndarray) -> Proof:
        """Prices every interval: time O(k^2), memory O(k). potentials: (2, k + 1), any.

        Whatever the prices are, a column of height 1 lowers the loss below the dual value by at most its reduced cost
        where that is negative, and over any solution heights times `sizes` sum to k. So no solution is below
        dual value + k min(reduced cost / size, 0). What rounding may hide is taken off.
        """
        k = len(self.labels)
        rows = max(1, _CHUNK // k)
        every = np.arange(k)
        least_from, stop_of, least_to, start_of = np.empty(k), np.empty(k, int), np.full(k, np.inf), np.zeros(k, int)
        for first in range(0, k, rows):
            starts = every[first : first + rows]
            start, stop = np.nonzero(every >= starts[:, None])
            shares = np.full((len(starts), k), np.inf)
            shares[start, stop] = self._reduced_costs(potentials, start + first, stop) / self.sizes(start + first, stop)
            stop_of[starts] = shares.argmin(axis=1)
            least_from[starts] = shares[np.arange(len(starts)), stop_of[starts]]
            start_here = shares.argmin(axis=0)
            least_here = shares[start_here, every]
            better = least_here < least_to
            start_of[better], least_to[better] = start_here[better] + first, least_here[better]
        least = min(float(least_from.min()), 0.0)
        magnitude = np.abs(self.sides * potentials).sum() + 2 * self.slack * np.abs(potentials[1]).sum()
        bound = self.dual_value(potentials) + k * least - (k + 8) * _ULP * magnitude
        return Proof(
            max(float(bound), 0.0),
            np.concatenate([every, start_of]),
            np.concatenate([stop_of, every]),
            np.concatenate([least_from, least_to]) < 0,
        )

    def _reduced_costs(self, potentials: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Of the columns on these intervals with their best outputs, less what rounding may have added."""
        curves = self.curves(start, stop)
        price, slope = self.stepped(potentials, start, stop)
        shift = slope / (2 * curves.mass)
        output = curves.centre + shift
        costs = curves.spread - price - (curves.centre + shift / 2) * slope
        # A few roundings of each term; the masses and spreads of wider intervals are differences of sums.
        sizes = np.abs(potentials)
        prices, slopes = self.base * sizes[:, -1:] + sizes[:, stop + 1] + sizes[:, start]
        terms = curves.spread + prices + (np.abs(output) + 1) * slopes
        wide = np.where(start == stop, 0.0, len(self.labels) * ((output - self.mean) ** 2 + 4))
        return costs - 8 * _ULP * terms - _SUM_ULP * wide

    def debiased_response(self) -> tuple[Columns, np.ndarray]:
        """Debiased randomized response (Algorithm 2), and potentials (2, k + 1) that would prove it the best.

        The potentials give a column on any single label no reduced cost at its output: 2 k equations, in closed form.
        """
        k, y, place = len(self.labels), self.labels, np.arange(len(self.labels))
        response = Columns(place, place, np.full(k, 1 / (1 + k * self.base)), y + self.base * (k * y - y.sum()))
        curves = self.curves(place, place)
        # Written out so that nothing cancels: output less centre is about base.
        shift = self.base * ((y - self.mean) / curves.mass + k * y - y.sum())
        slopes = 2 * curves.mass * shift
        costs = curves.spread - curves.mass * shift**2 - slopes * curves.centre
        prices = np.stack([costs, slopes])
        prices = prices - self.base * (prices.sum(axis=1, keepdims=True) / (1 + k * self.base))
        return response, np.concatenate([np.zeros((2, 1)), np.cumsum(prices, axis=1)], axis=1)


def at_places(terms: np.ndarray) -> np.ndarray:
    """(k + 1,): each label's term at the place after it, less at the one before. terms: (k,)."""
    return np.append(0.0, terms) - np.append(terms, 0.0)
