"""The optimal randomizer with no bias, or with a limited one, solved without an output grid.

Source: Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label Differential Privacy". Their
Theorem 6 (Claims 11 to 14) shows that some optimum consists of staircase columns on intervals: output t has
probability w (E if a <= y <= b else 1), E = exp(epsilon). Here those columns are generated rather than taken from a
grid: a linear program over the columns found so far, and, from its prices, the best new column of every interval in
closed form, which also proves how far the program is from the optimum over all columns.

Two things make it fast. Rows are differences of neighbouring labels' rows: a staircase column then has six entries,
since only the label where it starts and the one after its end see a step. And labels are solved for at half the
resolution first, whose intervals, moved by at most one label, are nearly all that the full resolution needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import highspy
import numpy as np

from .prior import Prior, check_epsilon
from .randomizer import Randomizer
from .rounding import HAIR, integer_weights

_MAX_ROUNDS = 500
_MAX_STALLED = 40
_COARSEST = 24
_COARSE_GAP = 1e-3
# A column is worth adding when its reduced cost is below this; the scaled labels lie in [-1, 1].
_WORTHWHILE = -1e-13
_ROUNDING = 1e-12
# About epsilon 14. Beyond it the masses and losses that matter drown in HiGHS' tolerances.
_LARGEST_RATIO = 1e6


@dataclass(frozen=True)
class Unbiased:
    """The randomizer of least squared loss among those with E[M(y)] = y for every label.

    gap: the relative optimality gap to reach; what was reached is in the randomizer's file.
    """

    name: ClassVar[str] = "unbiased"
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Some hundreds of labels take a fraction of a second. Beyond epsilon 14 it is debiased randomized response,
        which the optimum tends to, with no gap proven. Raises ValueError for an epsilon out of range."""
        return _solve(self.name, prior, epsilon, 0.0, self.gap, {})


@dataclass(frozen=True)
class BiasLimited:
    """The randomizer of least squared loss among those with |E[M(y)] - y| <= bias * (largest - smallest label).

    bias: 0 gives `unbiased`, 1 or more allows any bias, which gives the loss of `rr_on_bins`. gap: as for `unbiased`.
    """

    name: ClassVar[str] = "bias_limited"
    bias: float = 0.1
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """As `Unbiased.solve`. Raises ValueError for a bias that is negative or not a number, too."""
        if not self.bias >= 0:
            raise ValueError(f"bias must be at least 0, a fraction of the label range, not {self.bias:g}")
        return _solve(self.name, prior, epsilon, min(self.bias, 1.0), self.gap, {"bias": self.bias})


def _solve(
    name: str, prior: Prior, epsilon: float, bias: float, gap: float, parameters: dict[str, float]
) -> Randomizer:
    check_epsilon(epsilon)
    labels = prior.labels
    if len(labels) == 1:
        return Randomizer(labels, labels, integer_weights(np.ones((1, 1)), epsilon), epsilon, name, parameters, 0.0)
    middle, half = (labels[0] + labels[-1]) / 2, (labels[-1] - labels[0]) / 2
    problem = _Problem((labels - middle) / half, prior.weights, np.exp(epsilon - HAIR), 2 * bias)
    solution = _multiscale(problem, gap)
    columns, masses = solution.columns, _refined(problem, solution)
    probabilities = problem.steps(columns) * masses
    if not problem.allows(probabilities, columns.output):
        columns, masses = problem.debiased_response()
        probabilities = problem.steps(columns) * masses
    loss = problem.loss(columns, masses)
    proven = max(1 - solution.bound / loss, 0.0) if loss > 0 else 0.0
    weights = integer_weights(probabilities, epsilon)
    return Randomizer(labels, columns.output * half + middle, weights, epsilon, name, parameters, proven)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Staircase columns: labels start..stop (included) are E times as likely to give this output as the others."""

    start: np.ndarray
    stop: np.ndarray
    output: np.ndarray

    @classmethod
    def joined(cls, parts: list[_Columns]) -> _Columns:
        return cls(
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.stop for part in parts]),
            np.concatenate([part.output for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class _Problem:
    """labels: (k,) ascending, from -1 to 1. weights: (k,) the prior. ratio: E. slack: the largest bias allowed."""

    labels: np.ndarray
    weights: np.ndarray
    ratio: float
    slack: float

    def steps(self, columns: _Columns) -> np.ndarray:
        """(k, m): E inside a column's interval, 1 outside."""
        place = np.arange(len(self.labels))[:, None]
        inside = (columns.start <= place) & (place <= columns.stop)
        return np.where(inside, self.ratio, 1.0)

    def stepped_sums(self, terms: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The sum of the terms, those of start..stop (included) counted E times. terms: (k,); start and stop
        broadcast. Meaningless for stop < start."""
        cumulated = np.append(0.0, np.cumsum(terms))
        return cumulated[-1] + (self.ratio - 1) * (cumulated[stop + 1] - cumulated[start])

    def loss(self, columns: _Columns, masses: np.ndarray) -> float:
        """The expected squared loss of columns with these masses."""
        distances = (columns.output - self.labels[:, None]) ** 2
        return float(self.weights @ (self.steps(columns) * distances) @ masses)

    def dual_value(self, prices: np.ndarray, bias_prices: np.ndarray) -> float:
        """The value of prices for the rows: what they say the right-hand sides are worth."""
        return float(prices.sum() + bias_prices @ self.labels - self.slack * np.abs(bias_prices).sum())

    def allows(self, probabilities: np.ndarray, outputs: np.ndarray) -> bool:
        """Whether rows sum to 1 and biases are within the limit, up to the rounding of floats."""
        missed = np.abs(probabilities.sum(axis=1) - 1).max()
        bias = np.abs(probabilities @ outputs - self.labels).max() - self.slack
        tolerance = _ROUNDING * max(1.0, np.abs(outputs).max())
        return bool(missed <= tolerance and bias <= tolerance)

    def debiased_response(self) -> tuple[_Columns, np.ndarray]:
        """Debiased randomized response, Algorithm 2, and its masses: a feasible start."""
        k, place = len(self.labels), np.arange(len(self.labels))
        outputs = ((self.ratio + k - 1) * self.labels - self.labels.sum()) / (self.ratio - 1)
        return _Columns(place, place, outputs), np.full(k, 1 / (self.ratio + k - 1))

    def halved(self) -> _Problem:
        """Every second label and the last one, each with the prior of the labels nearest to it."""
        chosen = self.halved_labels()
        middles = (self.labels[chosen][1:] + self.labels[chosen][:-1]) / 2
        weights = np.bincount(np.searchsorted(middles, self.labels), self.weights, len(chosen))
        return _Problem(self.labels[chosen], weights, self.ratio, self.slack)

    def halved_labels(self) -> np.ndarray:
        last = len(self.labels) - 1
        return np.unique(np.append(np.arange(0, last + 1, 2), last))

    def refined(self, coarse: _Columns) -> _Columns:
        """Columns of the halved problem on the labels of this one, their ends moved by up to one label."""
        chosen, last = self.halved_labels(), len(self.labels) - 1
        parts = []
        for before in (-1, 0):
            for after in (0, 1):
                start = np.maximum(chosen[coarse.start] + before, 0)
                stop = np.minimum(chosen[coarse.stop] + after, last)
                parts.append(_Columns(start, stop, coarse.output))
        return _Columns.joined(parts)


@dataclass(frozen=True, eq=False)
class _Solution:
    """columns with their masses w, those that are positive. bound: no randomizer has a smaller loss."""

    columns: _Columns
    masses: np.ndarray
    bound: float


def _multiscale(problem: _Problem, gap: float) -> _Solution:
    start, _ = problem.debiased_response()
    if len(problem.labels) > _COARSEST:
        coarse = _multiscale(problem.halved(), max(gap, _COARSE_GAP))
        start = _Columns.joined([start, problem.refined(coarse.columns)])
    return _generate(problem, start, gap)


def _generate(problem: _Problem, start: _Columns, gap: float) -> _Solution:
    """Column generation from a feasible start, until the gap is reached or no column helps.

    Where the linear program is beyond floating point, the last solution stands, at worst debiased randomized
    response, with whatever gap is proven for it.
    """
    master = _Master(problem)
    master.add(start)
    columns, masses = problem.debiased_response()
    bound = 0.0
    distance, stalled = np.inf, 0
    for _ in range(_MAX_ROUNDS if problem.ratio <= _LARGEST_RATIO else 0):
        prices = master.solve()
        if prices is None:
            break
        columns, masses = master.support()
        outputs, costs = _price(problem, *prices)
        # Masses sum to at most 1, so no set of columns can save more than the best reduced cost.
        bound = max(bound, problem.dual_value(*prices) + min(float(costs.min()), 0.0))
        found = _worthwhile(outputs, costs)
        loss = problem.loss(columns, masses)
        stalled = 0 if loss - bound < 0.99 * distance else stalled + 1
        distance = min(distance, loss - bound)
        if loss * (1 - gap) <= bound or found is None or stalled > _MAX_STALLED:
            break
        master.add(found)
    return _Solution(columns, masses, bound)


def _price(problem: _Problem, prices: np.ndarray, bias_prices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best output of every interval and its reduced cost, a quadratic in the output; (k, k), infinite below
    the diagonal."""
    p, y = problem.weights, problem.labels
    place = np.arange(len(y))

    def stepped(terms: np.ndarray) -> np.ndarray:
        return problem.stepped_sums(terms, place[:, None], place[None, :])

    mass = stepped(p)
    outputs = (stepped(p * y) + stepped(bias_prices) / 2) / mass
    costs = stepped(p * y * y) - stepped(prices) - outputs**2 * mass
    costs[np.tril_indices(len(y), -1)] = np.inf
    return outputs, costs


def _worthwhile(outputs: np.ndarray, costs: np.ndarray) -> _Columns | None:
    """The best interval from each label and the best one to each label, where they help."""
    place = np.arange(len(costs))
    start = np.concatenate([place, costs.argmin(axis=0)])
    stop = np.concatenate([costs.argmin(axis=1), place])
    helps = costs[start, stop] < _WORTHWHILE
    if not helps.any():
        return None
    pairs = np.unique(np.stack([start[helps], stop[helps]]), axis=1)
    return _Columns(pairs[0], pairs[1], outputs[pairs[0], pairs[1]])


class _Master:
    """The linear program over the columns found so far, kept warm in HiGHS.

    Rows 0..k-1: probabilities sum to 1. Rows k..2k-1: E[M(y)] - bias(y) = y. Each block holds its first label's row as
    it is, then the differences of neighbouring rows. The first k variables are the biases; the others are masses
    times E - 1, the height of the step. That makes them about probabilities, and the objective, E - 1 times the loss,
    about 1 to 1000, whatever epsilon is: HiGHS' tolerances are absolute.
    """

    def __init__(self, problem: _Problem):
        self._problem = problem
        self._parts: list[_Columns] = []
        k = len(problem.labels)
        self._highs = highspy.Highs()
        for option, setting in (
            ("output_flag", False),
            ("presolve", "off"),
            ("solver", "simplex"),
            # Primal simplex goes on from the last basis when columns are added.
            ("simplex_strategy", 4),
            ("primal_feasibility_tolerance", 1e-10),
            ("dual_feasibility_tolerance", 1e-10),
            ("small_matrix_value", 1e-12),
        ):
            self._highs.setOptionValue(option, setting)
        sides = np.zeros(2 * k)
        sides[0], sides[k] = 1.0, problem.labels[0]
        sides[k + 1 :] = np.diff(problem.labels)
        empty = np.zeros(0, np.int32)
        self._highs.addRows(2 * k, sides, sides, 0, np.zeros(2 * k, np.int32), empty, np.zeros(0))
        place = np.arange(k)
        rows = np.stack([k + place, k + place + 1], axis=1)
        values = np.stack([np.full(k, -1.0), np.where(place < k - 1, 1.0, 0.0)], axis=1)
        self._add(np.zeros(k), -problem.slack * np.ones(k), problem.slack * np.ones(k), rows, values)

    def _add(
        self, costs: np.ndarray, lower: np.ndarray, upper: np.ndarray, rows: np.ndarray, values: np.ndarray
    ) -> None:
        used = values != 0
        starts = np.append(0, np.cumsum(used.sum(axis=1)))[:-1]
        self._highs.addCols(
            len(costs), costs, lower, upper, int(used.sum()), starts.astype(np.int32), rows[used].astype(np.int32),
            values[used],
        )  # fmt: skip

    def add(self, columns: _Columns) -> None:
        """Offers columns to the program."""
        p, y, ratio = self._problem.weights, self._problem.labels, self._problem.ratio
        k, a, b, t = len(y), columns.start, columns.stop, columns.output

        def stepped(terms: np.ndarray) -> np.ndarray:
            return self._problem.stepped_sums(terms, a, b)

        costs = stepped(p) * t**2 - 2 * stepped(p * y) * t + stepped(p * y * y)
        up, down = (a > 0).astype(float), -(b < k - 1).astype(float)
        first = np.where(a == 0, ratio, 1.0) / (ratio - 1)
        rows = np.stack([np.zeros_like(a), a, b + 1, np.full_like(a, k), k + a, k + b + 1], axis=1)
        values = np.stack([first, up, down, first * t, up * t, down * t], axis=1)
        self._add(costs, np.zeros(len(a)), np.full(len(a), highspy.kHighsInf), rows, values)
        self._parts.append(columns)

    def solve(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The prices of the original rows, (k,) of the probabilities and (k,) of the means; None where HiGHS fails."""
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            # Once more from the beginning: a basis carried along can go numerically bad.
            self._highs.clearSolver()
            self._highs.setOptionValue("simplex_scale_strategy", 0)
            self._highs.run()
            if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return None
        k = len(self._problem.labels)
        duals = np.array(self._highs.getSolution().row_dual)
        # A row is its label's less the one's before, except the first.
        prices, bias_prices = (block - np.append(block[1:], 0.0) for block in (duals[:k], duals[k:]))
        step = self._problem.ratio - 1
        return prices / step, bias_prices / step

    def support(self) -> tuple[_Columns, np.ndarray]:
        """The columns with a positive mass, and their masses."""
        masses = np.array(self._highs.getSolution().col_value)[len(self._problem.labels) :] / (self._problem.ratio - 1)
        columns = _Columns.joined(self._parts)
        used = masses > 0
        return _Columns(columns.start[used], columns.stop[used], columns.output[used]), masses[used]


def _refined(problem: _Problem, solution: _Solution) -> np.ndarray:
    """The masses corrected until rounding of floats, not the linear program's tolerance, is what their rows miss.

    The correction is the smallest one that mends the rows: probabilities to 1, means to what they were or, for the
    unbiased randomizer, to the labels.
    """
    steps = problem.steps(solution.columns)
    rows = np.concatenate([steps, steps * solution.columns.output])
    masses = solution.masses
    means = rows[len(problem.labels) :] @ masses
    sides = np.concatenate(
        [np.ones(len(means)), np.clip(means, problem.labels - problem.slack, problem.labels + problem.slack)]
    )
    for _ in range(3):
        missed = sides - rows @ masses
        masses = masses + np.linalg.lstsq(rows, missed, rcond=None)[0]
    return np.maximum(masses, 0.0)
