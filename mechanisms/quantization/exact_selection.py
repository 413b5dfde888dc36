"""Selection distributions of least loss for given bins: the bilinear program, solved directly.

Source: Cai et al. 2024, section 4.2. The probability of an output is a product of a left and a right distribution, so
the privacy constraints are bilinear. The paper's linear programs are in `bin_selection`; this module solves the
bilinear program itself, to a local optimum, from a given start. It is a primal-dual interior-point method with exact
second derivatives (Nocedal and Wright 2006, "Numerical Optimization", chapter 19) and reproducible arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core import reproducible
from ..core.losses import Loss
from .bin_selection import Layout, Selection, inverse_gaps, pair_costs, privacy_loss
from .input_scale import Inputs

# Weight of the uniform distributions in the start: all probabilities must be positive.
_UNIFORM = 0.1
# First and last barrier parameter, relative to the loss of the start. The loss found exceeds that of the local optimum
# by about the last one times the number of constraints.
_FIRST_BARRIER, _LAST_BARRIER = 0.1, 1e-10
# Steps at most. Most programs take 12 to 40.
_MOST_STEPS = 200
# Share of the way to the boundary that a step goes at most, and the shortest step.
_TO_BOUNDARY, _SHORTEST = 0.995, 1e-9
# First and largest number added to the diagonal of a Hessian that is not positive definite on the simplices.
_LEAST_SHIFT, _LARGEST_SHIFT = 1e-4, 1e20
# Penalty of the matrix for leaving the simplices. It changes no step; the matrix can then be definite everywhere.
_SIMPLEX_PENALTY = 10.0
# Multipliers are kept within this factor of barrier / slack.
_MULTIPLIER_RANGE = 1e10


class _Program:
    """Loss and constraints as functions of x: the layout's variables, then one floor for each output.

    A cell has m probabilities u: for the bins on its left those of the left draw, for the others those of the right
    draw. The probability of output i at an end of the cell is p = u_i (G u)_i; the expected loss is u C u / 2. The
    floor w_i is sqrt(E) times the least probability of output i. The constraints are w_i <= sqrt(E) p and
    p / sqrt(E) <= w_i.
    """

    def __init__(self, layout: Layout, inputs: Inputs, epsilon: float, loss: Loss, start: Selection):
        m, bins, cells = layout.m, layout.bins, np.array(layout.cells)
        self.m, self.count = m, layout.count + m
        is_left = np.arange(m) <= cells[:, None]
        self.own = np.where(is_left, layout.indices[0][cells], layout.indices[1][cells])
        # Places in x of each cell's probabilities and of the floors, shape (cells, 2 m).
        self.places = np.hstack([self.own, np.tile(layout.count + np.arange(m), (len(cells), 1))])
        self.simplices = np.hstack([layout.simplices, np.zeros((len(layout.simplices), m))])
        pairs = is_left[:, :, None] & ~is_left[:, None, :]
        costs = pair_costs(bins, inputs, loss)[cells] * pairs
        self.costs = costs + np.swapaxes(costs, -1, -2)
        # shares[j, e, l, r]: probability that B_l is reported when (l, r) was drawn for the input ends[j, e].
        shares = (bins - layout.ends[cells][..., None])[:, :, None, :] * inverse_gaps(bins)
        self.factors = shares * pairs[:, None] + np.swapaxes((1 - shares) * pairs[:, None], -1, -2)
        root = float(np.sqrt(reproducible.exp(epsilon)))
        # Factors of p and of w in the two constraints.
        self.by_chance, self.by_floor = np.array([[root], [-1 / root]]), np.array([[-1.0], [1.0]])
        # Derivatives of the constraints by the floors, behind the place of those by the probabilities.
        by_chance = np.zeros((len(cells), 2, 2, m, m))
        self.by_variable = np.concatenate(
            [by_chance, np.broadcast_to(self.by_floor[..., None] * np.eye(m), by_chance.shape)], axis=-1
        )
        # Places of the derivatives of each cell in the Hessian of all variables, flattened.
        self.pairs = (self.places[:, :, None] * self.count + self.places[:, None]).ravel()
        even = reproducible.vecmat(1 / layout.simplices.sum(axis=1), layout.simplices)
        self.start = np.append((1 - _UNIFORM) * layout.variables(start) + _UNIFORM * even, np.zeros(m))
        chances = self.constraints(self.start) / self.by_chance
        self.start[-m:] = np.sqrt(chances.min(axis=(0, 1, 2)) * chances.max(axis=(0, 1, 2)))
        self.costs /= abs(self.loss(self.start))

    def loss(self, x: np.ndarray) -> float:
        """Returns the expected loss, relative to that of the start."""
        u = x[self.own]
        return float((u * (self.costs * u[:, None]).sum(axis=-1)).sum()) / 2

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Returns the derivatives of the loss, shape (count,)."""
        by_own = (self.costs * x[self.own][:, None]).sum(axis=-1)
        return np.bincount(self.own.ravel(), by_own.ravel(), self.count)

    def constraints(self, x: np.ndarray) -> np.ndarray:
        """Returns the values that must not be negative, shape (cells, 2 ends, 2, m)."""
        u = x[self.own][:, None]
        chances = u * (self.factors * u[:, :, None]).sum(axis=-1)
        return self.by_chance * chances[:, :, None] + self.by_floor * x[-self.m :]

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """Returns the derivatives of the constraints by the cells' variables, shape (cells, 2 ends, 2, m, 2 m)."""
        u, slopes = x[self.own][:, None], self.by_variable.copy()
        by_own = u[..., None] * self.factors
        outputs = np.arange(self.m)
        by_own[..., outputs, outputs] += (self.factors * u[:, :, None]).sum(axis=-1)
        np.multiply(self.by_chance[..., None], by_own[:, :, None], out=slopes[..., : self.m])
        return slopes

    def combine(self, slopes: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Returns the sum of the constraints' derivatives times factors, shape (count,)."""
        by_cell = (slopes * factors[..., None]).sum(axis=(1, 2, 3))
        return np.bincount(self.places.ravel(), by_cell.ravel(), self.count)

    def hessian(self, slopes: np.ndarray, prices: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Returns the Hessian of loss - prices * constraints, plus the sum of weights * slopes slopes^T."""
        cells, m = self.own.shape
        rows = slopes.reshape(cells, 4 * m, 2 * m)
        by_cell = (rows[..., None] * (weights.reshape(cells, 4 * m, 1) * rows)[:, :, None]).sum(axis=1)
        bent = ((prices * self.by_chance).sum(axis=2)[..., None] * self.factors).sum(axis=1)
        by_cell[:, :m, :m] += self.costs - bent - np.swapaxes(bent, -1, -2)
        return np.bincount(self.pairs, by_cell.ravel(), self.count**2).reshape(self.count, self.count)


def exact_selection(layout: Layout, inputs: Inputs, epsilon: float, loss: Loss, start: Selection) -> Selection | None:
    """Searches for a local optimum of the expected loss under the exact privacy loss; None where none was found."""
    made = layout.selection(_Search(_Program(layout, inputs, epsilon, loss, start)).run())
    return made if privacy_loss(made) <= epsilon else None


@dataclass(frozen=True, eq=False)
class _Point:
    """A point of the search, and what its merit depends on.

    Attributes:
      x: Variables.
      slacks: Slacks of the constraints, at least the constraints' values.
      values: Values of the constraints.
      away: Constraints minus slacks, zero at a solution.
      gap: Sum of the absolute values of `away`.
      loss: Expected loss.
      logs: Sum of the logarithms of the slacks and of the probabilities.
    """

    x: np.ndarray
    slacks: np.ndarray
    values: np.ndarray
    away: np.ndarray
    gap: float
    loss: float
    logs: float

    @classmethod
    def of(cls, program: _Program, x: np.ndarray, least_slacks: np.ndarray) -> _Point:
        """Evaluates a point. Slacks below the constraints' values are raised to them."""
        values = program.constraints(x)
        slacks = np.maximum(least_slacks, values)
        away = values - slacks
        logs = reproducible.log(np.concatenate([slacks.ravel(), x[: -program.m]])).sum()
        return cls(x, slacks, values, away, float(np.abs(away).sum()), program.loss(x), float(logs))


class _Search:
    """State of the method: a point, multipliers and the barrier parameter."""

    def __init__(self, program: _Program):
        self.program, self.n = program, program.count - program.m
        x, self.barrier = program.start, _FIRST_BARRIER
        self.point = _Point.of(program, x, 0.01 * x[self.n :])
        # Multipliers of the constraints, of the bounds 0, and of the simplices.
        self.prices, self.bounds = self.barrier / self.point.slacks, self.barrier / x[: self.n]
        self.balances = np.zeros(len(program.simplices))
        self.penalty = _SIMPLEX_PENALTY * (program.simplices[:, :, None] * program.simplices[:, None]).sum(axis=0)
        # Shift of the last Hessian that needed one, and the least shift of the next one.
        self.last_shift, self.least_shift = 0.0, 0.0

    def run(self) -> np.ndarray:
        """Returns the variables at the end: a local optimum, unless the steps become too short or too many."""
        for _ in range(_MOST_STEPS):
            self.slope, self.slopes = self.program.slope(self.point.x), self.program.slopes(self.point.x)
            if self._converged() or not self._step():
                break
        return self.point.x[: self.n]

    def _converged(self) -> bool:
        """Lowers the barrier as far as the point solves its problem. Returns whether it solves the last one."""
        point, program = self.point, self.program
        dual = self.slope - program.combine(self.slopes, self.prices)
        dual -= reproducible.vecmat(self.balances, program.simplices)
        dual[: self.n] -= self.bounds
        feasible = max(float(np.abs(dual).max()), float(np.abs(point.away).max()))
        products = np.append(point.slacks * self.prices, point.x[: self.n] * self.bounds)
        while max(feasible, float(np.abs(products - self.barrier).max())) <= 10 * self.barrier:
            if self.barrier <= _LAST_BARRIER:
                return bool(point.values.min() >= 0)
            self.barrier = max(_LAST_BARRIER, min(0.2, float(np.sqrt(self.barrier))) * self.barrier)
        return False

    def _step(self) -> bool:
        """Takes a Newton step for the barrier problem, shortened until it improves. Returns whether one was found."""
        point, n, barrier = self.point, self.n, self.barrier
        found = self._factors()
        if found is None:
            return False
        factors, shift = found
        change, slack_change, balances = self._direction(factors, point.away)
        gap = point.gap
        down = reproducible.dot(self.slope, change)
        down -= barrier * float((slack_change / point.slacks).sum() + (change[:n] / point.x[:n]).sum())
        # Weight of the constraints' violation in the merit: above their multipliers, and so that the step descends.
        weight = max(1.5 * float(self.prices.max()), 2 * down / gap if gap > 1e-12 else 0.0)
        now = self._merit(point, weight)

        def improves(moved: _Point, length: float) -> bool:
            gain = 1e-4 * length * (down - weight * gap)
            return self._merit(moved, weight) <= now + gain + 1e-13 * abs(now)

        longest = length = self._reach(change, slack_change)
        moved = self._moved(length, change, slack_change)
        if not improves(moved, length):
            # The constraints bend: the same step, corrected by their violation at its end.
            bent = moved.values - point.slacks - length * slack_change + length * point.away
            corrected, slack_corrected, _ = self._direction(factors, bent)
            second = self._moved(self._reach(corrected, slack_corrected), corrected, slack_corrected)
            if improves(second, length):
                moved = second
            else:
                while not improves(moved, length):
                    length /= 2
                    if length < _SHORTEST:
                        return False
                    moved = self._moved(length, change, slack_change)
        self.least_shift = max(_LEAST_SHIFT, 3 * shift) if length < 0.1 * longest else 0.0
        # Multipliers take their own step length.
        price_change = barrier / point.slacks - self.prices - self.prices / point.slacks * slack_change
        bound_change = barrier / point.x[:n] - self.bounds - self.bounds / point.x[:n] * change[:n]
        length = min(_reach(self.prices, price_change, barrier), _reach(self.bounds, bound_change, barrier))
        self.point, self.balances = moved, balances
        self.prices = _near(self.prices + length * price_change, barrier / moved.slacks)
        self.bounds = _near(self.bounds + length * bound_change, barrier / moved.x[:n])
        return True

    def _factors(self) -> tuple[np.ndarray, float] | None:
        """Factors the matrix of the Newton equations, with a shift that makes its Hessian positive definite."""
        program, point, n = self.program, self.point, self.n
        count = program.count
        matrix = np.zeros((count + len(program.simplices),) * 2)
        matrix[:count, count:], matrix[count:, :count] = program.simplices.T, program.simplices
        matrix[:count, :count] = program.hessian(self.slopes, self.prices, self.prices / point.slacks) + self.penalty
        place = np.arange(count)
        matrix[place[:n], place[:n]] += self.bounds / point.x[:n]
        shift = self.least_shift
        while shift < _LARGEST_SHIFT:
            shifted = matrix.copy()
            shifted[place, place] += shift
            if _eliminate(shifted, count):
                self.last_shift = shift or self.last_shift
                return shifted, shift
            shift = 4 * shift if shift else max(_LEAST_SHIFT, self.last_shift / 3)
        return None

    def _direction(self, factors: np.ndarray, away: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Solves the Newton equations for the changes of x and of the slacks, and the simplices' multipliers."""
        program, point, count = self.program, self.point, self.program.count
        right = np.zeros(len(factors))
        pushes = (self.barrier - self.prices * away) / point.slacks
        right[:count] = program.combine(self.slopes, pushes) - self.slope
        right[: self.n] += self.barrier / point.x[: self.n]
        solved = _substitute(factors, right)
        change = solved[:count]
        slack_change = (self.slopes * change[program.places][:, None, None, None]).sum(axis=-1) + away
        return change, slack_change, -solved[count:]

    def _reach(self, change: np.ndarray, slack_change: np.ndarray) -> float:
        """Returns the longest step, at most 1, that keeps probabilities and slacks positive."""
        x, slacks = self.point.x[: self.n], self.point.slacks
        return min(_reach(x, change[: self.n], self.barrier), _reach(slacks, slack_change, self.barrier))

    def _moved(self, length: float, change: np.ndarray, slack_change: np.ndarray) -> _Point:
        return _Point.of(self.program, self.point.x + length * change, self.point.slacks + length * slack_change)

    def _merit(self, point: _Point, weight: float) -> float:
        """Returns the barrier problem's objective, plus weight times the constraints' violation."""
        return point.loss - self.barrier * point.logs + weight * point.gap


def _reach(values: np.ndarray, changes: np.ndarray, barrier: float) -> float:
    """Returns the longest step, at most 1, that keeps values positive."""
    falling, share = changes < 0, max(_TO_BOUNDARY, 1 - barrier)
    return float((-share * values[falling] / changes[falling]).min(initial=1.0))


def _near(multipliers: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Limits multipliers to a range around their values on the central path."""
    return np.clip(multipliers, centers / _MULTIPLIER_RANGE, centers * _MULTIPLIER_RANGE)


def _eliminate(matrix: np.ndarray, positive: int) -> bool:
    """Factors a symmetric matrix in place by elimination in order, as it is stable for quasidefinite matrices.

    Returns whether the first `positive` pivots are positive and the others negative. Otherwise the factors are not
    complete.
    """
    for k in range(len(matrix)):
        pivot = matrix[k, k]
        if not (pivot > 0 if k < positive else pivot < 0):
            return False
        column = matrix[k + 1 :, k : k + 1]
        column /= pivot
        rest = matrix[k + 1 :, k + 1 :]
        rest -= column * matrix[k, k + 1 :]
    return True


def _substitute(factors: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solves the equations of an eliminated matrix."""
    # Python's floats: the sums have few terms, and elimination takes longer in any case.
    rows, x = factors.tolist(), right.tolist()
    for i, row in enumerate(rows):
        rest = x[i]
        for factor, known in zip(row[:i], x, strict=False):
            rest -= factor * known
        x[i] = rest
    for i in range(len(x) - 1, -1, -1):
        rest = x[i]
        for factor, known in zip(rows[i][:i:-1], x[:i:-1], strict=True):
            rest -= factor * known
        x[i] = rest / rows[i][i]
    return np.array(x)
