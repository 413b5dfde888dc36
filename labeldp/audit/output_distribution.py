"""Test of the released labels' distribution: that which the channel makes of the noised counts, within proven bounds.

Let c_k be the records with label k, n their number, z_k the discrete Laplace noise of the count, and w the noised
counts as weights: w_k = max(c_k + z_k, 0) / S, where S is the sum of the clipped counts. With e_k = max(z_k, -c_k), the
error of the clipped count, S w_k = c_k + e_k and S = n + sum e. For a set A of outputs with probability f_k given label
k, and q = sum w_k f_k, the expected number of records with an output in A is

    sum c_k f_k = S q - sum e_k f_k = n q - sum e_k (f_k - q).

The mechanism was solved for a prior that was estimated from the noised counts, so f depends on the noise, and bounds
must hold for all f at once, however the prior is estimated: sums of e over every interval of labels are bounded by
Chernoff's method, with a union bound over the intervals. f - q is a sum of steps on intervals, those above 0 minus
those below, so the bounds of its steps add up to one of the whole.

From below, e_k >= z_k. From above, e_k <= max(z_k, 0), and e_k <= max(z_k, -C) where c_k >= C. A label with c_k < C has
S w_k >= C + b only if z_k > b; the number of such labels is bounded as one of rare independent events. So at most that
many labels of an interval have c_k < C, beside those with S w_k < C + b.

A cell of residuals (see `center` in the mechanism file) spans several labels with probabilities of their own, and
the records of a cell may be spread over them in any way. So f_k is bounded by the least and by the largest of them.

Given the noise, outputs are independent draws, and Hoeffding's inequality in its relative entropy form bounds the
observed number around every possible expectation, with a union bound over the sets.

Of a release from which R records were removed since, n - R are observed. The noised counts are those of all n, so the
expected number of the others is that of all less sum r_k f_k, where r_k are the removed records with label k. That sum
lies between R times the least and R times the largest f_k. This holds for records that were not chosen by their
outputs: then the outputs of the others are independent draws as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import numpy as np

FALSE_ALARM = 1e-6
"""Probability, at most, with which the labels of a correct release fail the test."""

_MOST_CELLS = 128
# Relative error of sums of floats, well above the true one.
_ROUNDING = 1e-9

# Multiple of the scale that few draws of noise reach.
_LARGE = 5

# Values of t * scale at which the bound is evaluated. It holds for each of them; more of them make it tighter.
_GRID = np.geomspace(1e-3, 0.999, 400)


@dataclass(frozen=True)
class Distribution:
    """Result of the test.

    Attributes:
      sets: Number of sets of outputs that were compared; 0 where the noised counts bound nothing.
      wrong: The sets that deviate, as the number of the first output and the one after the last.
      widest: Largest half width of a set's interval of expectations, as a share of the records.
    """

    sets: int
    wrong: tuple[tuple[int, int], ...]
    widest: float


def check_distribution(
    observed: np.ndarray,
    channel: np.ndarray,
    weights: np.ndarray,
    scale: float,
    false_alarm: float = FALSE_ALARM,
    widths: np.ndarray | None = None,
    removed: int = 0,
) -> Distribution:
    """Compares the number of records of each output with the channel and the prior.

    `observed` are the records by output, shape (m,), integers; `channel` the probability of each output, which ascend,
    given each label, shape (k, m), float64. `weights` are the noised counts, clipped at 0 and normalized, shape (k,),
    float64, sum 1; of cells if the histogram has cells of labels, with `widths` labels each, shape (cells,), integers
    that sum to k. `scale` is that of the discrete Laplace noise of each count. `removed` is the number of further
    records that were counted, and have been removed since without regard to their outputs. Labels of a correct release
    fail with a probability of at most `false_alarm`.
    """
    observed_records, labels = int(observed.sum()), len(weights)
    records = observed_records + removed
    # Half of the probability is for the noise: both sides of each interval, the largest, the number of large ones.
    tails = NoiseTails(scale, false_alarm / 2 / (labels * (labels + 1) + 2))
    if (weights == weights[0]).all() and records <= labels * tails.single(labels):
        # Uniform weights may replace a histogram without a positive count; then they say nothing.
        return Distribution(0, (), 1.0)
    errors = _Errors(tails, weights * (records - tails.above(labels)))
    widths = np.ones(labels, np.int64) if widths is None else widths
    starts = np.cumsum(widths) - widths
    sets = list(_sets(np.repeat(weights / widths, widths) @ channel))
    threshold = math.log(2 * len(sets) / (false_alarm / 2))
    sums = np.pad(np.cumsum(channel, axis=1), ((0, 0), (1, 0)))
    wrong, widest = [], 0.0
    for first, stop in sets:
        chances = sums[:, stop] - sums[:, first]
        low, _ = errors.expectations(np.minimum.reduceat(chances, starts), weights, records)
        _, high = errors.expectations(np.maximum.reduceat(chances, starts), weights, records)
        if removed:
            low, high = _of_others(low, high, chances, records, removed)
        share = int(observed[first:stop].sum()) / observed_records
        nearest = min(max(share, low), high)
        if share != nearest and observed_records * divergence(share, nearest) > threshold:
            wrong.append((first, stop))
        widest = max(widest, (high - low) / 2)
    return Distribution(len(sets), tuple(wrong), widest)


def _of_others(low: float, high: float, chances: np.ndarray, records: int, removed: int) -> tuple[float, float]:
    """Bounds on the expected share of the records that were not removed, from those on the share of all records."""
    least, most, others = float(chances.min()), float(chances.max()), records - removed
    below = (records * low - removed * most) / others - _ROUNDING
    above = (records * high - removed * least) / others + _ROUNDING
    return max(below, least - _ROUNDING, 0.0), min(above, most + _ROUNDING, 1.0)


def _sets(expected: np.ndarray) -> Iterator[tuple[int, int]]:
    """Intervals of outputs to compare: at most 128 cells of about equal probability, and all below each cell."""
    outputs = len(expected)
    if outputs <= _MOST_CELLS:
        bounds = list(range(outputs + 1))
    else:
        cells = np.floor(np.append(0, np.cumsum(expected))[:-1] * _MOST_CELLS)
        bounds = [*np.flatnonzero(np.append(True, np.diff(cells) > 0)).tolist(), outputs]
    yield from pairwise(bounds)
    yield from ((0, bound) for bound in bounds[2:-1])


class _Errors:
    """Errors of the clipped counts, bounded over every interval of labels."""

    def __init__(self, tails: NoiseTails, counts: np.ndarray):
        """counts: lower bounds of the clipped noised counts, shape (k,)."""
        self._floor = tails.large
        few = counts < self._floor + tails.large
        self._few = np.append(0, np.cumsum(few)).tolist()
        self._unseen = tails.exceeding(len(counts))
        self._sum = lru_cache(maxsize=None)(tails.above)

    def expectations(self, chances: np.ndarray, weights: np.ndarray, records: int) -> tuple[float, float]:
        """Least and largest share of records that may be expected in a set with these chances, shape (k,)."""
        mean = float(weights @ chances)
        above, below = [*_steps(np.maximum(chances - mean, 0.0))], [*_steps(np.maximum(mean - chances, 0.0))]
        up, down = self._total(above, below), self._total(below, above)
        low, high = mean - up / records - _ROUNDING, mean + down / records + _ROUNDING
        return max(low, 0.0), min(high, 1.0)

    def _total(self, above: list[tuple[float, int, int]], below: list[tuple[float, int, int]]) -> float:
        """Bound on the sum of the errors times the steps above 0, minus that times the steps below 0."""
        return sum(height * self._above(*ends) for height, *ends in above) + sum(
            height * self._below(*ends) for height, *ends in below
        )

    def _above(self, start: int, stop: int) -> float:
        count = stop - start
        clipped = min(self._few[stop] - self._few[start] + self._unseen, count)
        return self._sum(count, clipped, self._floor)

    def _below(self, start: int, stop: int) -> float:
        return self._sum(stop - start)


def _steps(values: np.ndarray) -> Iterator[tuple[float, int, int]]:
    """Writes values >= 0 as a sum of steps: height, first index, index after the last."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])).tolist()
    stack = [(0, 0.0)]
    for start, value in [*zip(starts, values[starts].tolist(), strict=True), (len(values), 0.0)]:
        begin = start
        while stack[-1][1] > value:
            begin, level = stack.pop()
            yield level - max(value, stack[-1][1]), begin, start
        if stack[-1][1] < value:
            stack.append((begin, value))


@dataclass(frozen=True)
class NoiseTails:
    """Bounds on sums of discrete Laplace noise, each of which fails with a small probability.

    Attributes:
      scale: Scale of the noise, > 0.
      failure: Probability with which a single bound may fail.
    """

    scale: float
    failure: float

    def single(self, count: int) -> float:
        """Bounds the largest absolute value of `count` >= 1 draws, except with probability `failure`."""
        # P(|z| >= b) = 2 p^b / (1 + p) <= 2 p^b for p = exp(-1 / scale) and integers b >= 1.
        return math.ceil(self.scale * math.log(2 * count / self.failure))

    def exceeding(self, count: int) -> int:
        """Bounds how many of `count` draws are as large as `large`, except with probability `failure`."""
        # P(z >= b) = p^b / (1 + p).
        chance = math.exp(-self.large / self.scale) / (1 + math.exp(-1 / self.scale))
        likely = math.ceil(count * chance)
        return next(
            (
                number
                for number in range(likely, count)
                if count * divergence((number + 1) / count, chance) > -math.log(self.failure)
            ),
            count,
        )

    def above(self, count: int, clipped: int = 0, floor: int | None = None) -> float:
        """Bounds the sum of independent draws from above; by symmetry its negative bounds it from below.

        The bound fails with probability `failure`. `clipped` draws among them count as 0 if they are negative; the
        others count as -floor if they are below that, or as they are without `floor`.
        """
        if count == 0:
            return 0.0
        others = self._growth if floor is None else self._clipped_growth(floor)
        growth = (count - clipped) * others + clipped * self._clipped_growth(0)
        return float(((growth - math.log(self.failure)) / (_GRID / self.scale)).min())

    @property
    def large(self) -> int:
        """A noise that few draws reach."""
        return math.ceil(_LARGE * self.scale)

    @cached_property
    def _growth(self) -> np.ndarray:
        """ln E exp(t z) at each t of the grid, with p = exp(-1 / scale): (1-p)^2 / ((1 - p e^t) (1 - p e^-t))."""
        rate = 1 / self.scale
        t = _GRID * rate
        return 2 * np.log(-np.expm1(-rate)) - np.log(-np.expm1(t - rate)) - np.log(-np.expm1(-t - rate))

    @cache  # noqa: B019
    def _clipped_growth(self, floor: int) -> np.ndarray:
        """ln E exp(t max(z, -floor)) at each t: z = j has p^|j| (1 - p) / (1 + p), all z <= -j have p^j / (1 + p)."""
        rate = 1 / self.scale
        t, p, rest = _GRID * rate, math.exp(-rate), -math.expm1(-rate)
        zero_and_above = rest / -np.expm1(t - rate)
        # Powers j = 1 to floor - 1 of p e^-t; for a floor of 0 this takes the term of z = 0 away again.
        below = rest * (np.exp(-t - rate) - np.exp(-(t + rate) * floor)) / -np.expm1(-t - rate)
        return np.log((zero_and_above + below + np.exp(-(t + rate) * floor)) / (1 + p))


def divergence(share: float, mean: float) -> float:
    """Computes the relative entropy of two coins with the given probabilities of heads, in nats.

    The mean of n independent draws in [0, 1] with expectation `mean` is at least `share` > mean, or at most
    `share` < mean, with a probability of at most exp(-n * divergence) (Hoeffding 1963, Theorem 1).

    It is infinite if the other coin cannot show what the first one does. Both arguments are in [0, 1].
    """
    total = 0.0
    for p, q in ((share, mean), (1 - share, 1 - mean)):
        if p > 0:
            total += p * math.log(p / q) if q > 0 else math.inf
    return total
