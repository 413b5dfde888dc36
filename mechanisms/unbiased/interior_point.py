"""Primal-dual interior-point method for the heights and outputs of staircase columns on given intervals.

A column of height h and output center + z / h has the loss spread h + mass z^2 / h (see `LossCurves`). With a variable
q >= z^2 / h in place of the quotient, everything is linear except that the matrices [[h, z], [z, q]], one for each
column, must be positive semidefinite. This is a semidefinite program whose matrices are 2 by 2, so that all quantities
have closed forms. Prices are feasible where the matrices

    [[first, -slope / 2], [-slope / 2, mass]],    first = spread - price - center slope,

are positive semidefinite; price and slope are the column's prices of the two kinds of rows. No output then gives the
column a negative reduced cost.

The directions are those of Helmberg, Rendl, Vanderbei and Wolkowicz 1996 (HKM), with the predictor and corrector of
Mehrotra 1992. Prices are feasible at every iterate; the rows hold at the end.

The normal matrix of the equations has two rows for every boundary between labels. A column enters the rows of the
boundary where its interval starts, of the one where it stops and, because every label has some of its probability, of
the last one. With few columns the matrix is therefore sparse except for its last rows, and its factors are nearly as
sparse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.reproducible import dot
from .sparse_cholesky import SymbolicFactor
from .staircase_columns import Columns, Program, boundary_differences

_MAX_STEPS = 60
# Share of the longest feasible step that is taken.
_STEP_SHARE = 0.97
# Largest residual of a row.
_FEASIBILITY_TOLERANCE = 1e-9
# The iteration ends where the complementarity is this share of the requested one and rows still have residuals: the
# precision of floats is exhausted.
_EXHAUSTED = 1e-4
# Earlier iterates that are kept, to see which heights vanish.
_HISTORY = 3
# Regularization, relative to the diagonal, where the first factorization fails.
_RIDGE = 1e-12


@dataclass(frozen=True, eq=False)
class InteriorSolution:
    """Solution inside the cone: all heights are positive.

    Attributes:
      columns: The n columns.
      used: Shape (n,), bool; columns whose heights do not vanish with further steps.
      potentials: Prices of the rows, cumulated over the labels, shape (2, k + 1).
      bias: Means less the labels, shape (k,).
      slack: Distance of each bias from its limit, shape (k,); 0 where no bias is allowed.
    """

    columns: Columns
    used: np.ndarray
    potentials: np.ndarray
    bias: np.ndarray
    slack: np.ndarray


def solve_interior_point(program: Program, start: np.ndarray, stop: np.ndarray, gap: float) -> InteriorSolution:
    """Solves the program over the columns on the given intervals, with any outputs.

    The rows of the result hold to about 1e-9. Where the precision of floats is exhausted earlier, the result is the
    best iterate reached.

    `start` and `stop` have the first and the last label of each interval, both included, shape (n,). The pairs are
    distinct and include every single label. The relative gap is > 0.
    """
    iterate = _Iterate(program, start, stop)
    nearest, found = np.inf, iterate.solution()
    for _ in range(_MAX_STEPS):
        distance, complementarity = iterate.distance()
        distance = max(distance, complementarity / gap)
        if distance < nearest:
            nearest, found = distance, iterate.solution()
        if nearest <= 1 or complementarity < _EXHAUSTED * gap or not iterate.step():
            break
    return found


@dataclass(frozen=True, eq=False)
class _Direction:
    """Changes of the variables of the same names."""

    potentials: np.ndarray
    first: np.ndarray
    slope: np.ndarray
    h: np.ndarray
    z: np.ndarray
    q: np.ndarray
    bias: np.ndarray
    slack: np.ndarray
    multiplier: np.ndarray


class _Iterate:
    """Current point of the iteration.

    Where a bias is allowed, each label also has the slack (2, k) between its bias and the limit above and below, and
    the multiplier of that limit. Their product tends to 0, like that of the matrices. The price of a mean is the
    multiplier below less the one above.
    """

    def __init__(self, program: Program, start: np.ndarray, stop: np.ndarray):
        self._program, self._start, self._stop = program, start, stop
        self._curves = program.loss_curves(start, stop)
        self._matrix = _NormalMatrix(program, start, stop)
        k, scale = len(program.labels), _loss_scale(program)
        self._least_loss = 1e-6 * scale
        self._potentials = np.zeros((2, k + 1))
        self._potentials[0] = -scale / k * np.arange(k + 1)
        sizes = program.total_probability(start, stop)
        self._h = 0.5 * k / sizes.sum() + np.where(start == stop, 0.5 / (1 + k * program.base), 0.0)
        self._z = np.zeros(len(start))
        self._evaluate()
        self._q = self._h * self._cost / self._curves.mass
        self._history = [(self._h, self._cost)]
        limited = k if program.bias_limit > 0 else 0
        self._bias = np.zeros(limited)
        self._slack = np.full((2, limited), program.bias_limit)
        self._multiplier = np.full((2, limited), scale / (k * k * (program.bias_limit or 1.0)))

    def _evaluate(self) -> None:
        """Updates the price matrix of every column, its best output less the center, and its least reduced cost."""
        curves = self._curves
        price, self._slope = self._program.column_prices(self._potentials, self._start, self._stop)
        self._shift = 0.5 * self._slope / curves.mass
        self._first = curves.spread - price - curves.center * self._slope
        self._cost = self._first - 0.5 * self._shift * self._slope
        # The inverse of the price matrix is [[1, shift], [shift, last]] / cost.
        self._last = self._cost / curves.mass + self._shift * self._shift

    def solution(self) -> InteriorSolution:
        k = len(self._program.labels)
        columns = Columns(self._start, self._stop, self._h, self._curves.center + self._z / self._h)
        bias, slack = (self._bias, self._slack.min(axis=0)) if self._slack.size else (np.zeros(k), np.zeros(k))
        # The product of height and cost tends to 0, and one of the two stays about constant.
        height, cost = self._history[0]
        used = self._h * cost >= self._cost * height
        return InteriorSolution(columns, used, self._potentials, bias, slack)

    def _bias_scaling(self) -> np.ndarray:
        return 1 / (self._multiplier / self._slack).sum(axis=0)

    def _gathered(self, h: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Sums over the columns in every row, shape (2, k + 1)."""
        return self._matrix.gather(np.stack([h, self._curves.center * h + z]))

    def distance(self) -> tuple[float, float]:
        """Returns the largest residual relative to the tolerance, and the complementarity relative to the loss."""
        self._residual = self._program.rhs - self._gathered(self._h, self._z)
        if self._slack.size:
            self._residual[1] += boundary_differences(self._bias)
        self._residual[:, 0] = 0.0
        self._complementarity = self._inner(self._h, self._z, self._q, self._first, self._slope)
        self._complementarity += float((self._multiplier * self._slack).sum())
        loss = dot(self._h, self._curves.spread) + dot(self._q, self._curves.mass)
        return float(np.abs(self._residual).max()) / _FEASIBILITY_TOLERANCE, self._complementarity / max(
            loss, self._least_loss
        )

    def _inner(self, h: np.ndarray, z: np.ndarray, q: np.ndarray, first: np.ndarray, slope: np.ndarray) -> float:
        return dot(h, first) - dot(z, slope) + dot(q, self._curves.mass)

    def step(self) -> bool:
        """Moves to the next iterate, after `distance`; False where the equations exceed the precision of floats."""
        h, z, q, cost, shift, last = self._h, self._z, self._q, self._cost, self._shift, self._last
        center = self._curves.center
        half = center * h + 0.5 * z
        third = center * (half + 0.5 * z) + shift * half + 0.25 * (q + last * h)
        bias_scaling = self._bias_scaling()
        if not self._matrix.factorize(h / cost, (half + 0.5 * shift * h) / cost, third / cost, bias_scaling):
            return False
        slack_products: np.ndarray = np.asarray(self._multiplier * self._slack)
        predictor = self._direction(-h, -z, -q, -slack_products, bias_scaling)
        primal, dual = (min(1.0, length) for length in self._step_lengths(predictor))
        predicted = self._inner(
            h + primal * predictor.h,
            z + primal * predictor.z,
            q + primal * predictor.q,
            self._first + dual * predictor.first,
            self._slope + dual * predictor.slope,
        )
        predicted += float(
            ((self._slack + primal * predictor.slack) * (self._multiplier + dual * predictor.multiplier)).sum()
        )
        target = (predicted / self._complementarity) ** 2 * self._complementarity / (2 * len(h) + slack_products.size)
        sym_h, sym_z, sym_q = self._symmetrized(predictor.h, predictor.z, predictor.q, predictor.first, predictor.slope)
        centered = target / cost
        step = self._direction(
            centered - h - sym_h,
            centered * shift - z - sym_z,
            centered * last - q - sym_q,
            target - slack_products - predictor.multiplier * predictor.slack,
            bias_scaling,
        )
        if not np.all(np.isfinite(step.potentials)):
            return False
        primal, dual = (min(1.0, _STEP_SHARE * length) for length in self._step_lengths(step))
        self._h = h + primal * step.h
        self._z = z + primal * step.z
        self._q = q + primal * step.q
        self._bias = self._bias + primal * step.bias
        self._slack = self._slack + primal * step.slack
        self._multiplier = self._multiplier + dual * step.multiplier
        self._potentials = self._potentials + dual * step.potentials
        self._evaluate()
        self._history = [*self._history[-_HISTORY + 1 :], (h, cost)]
        return bool(self._cost.min() > 0 and self._determinant().min() > 0)

    def _determinant(self) -> np.ndarray:
        return self._h * self._q - self._z * self._z

    def _symmetrized(
        self, h: np.ndarray, z: np.ndarray, q: np.ndarray, first: np.ndarray, slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries of the symmetric part of X dS S^-1: X = [[h, z], [z, q]], S the price matrix, dS its change.

        dS = [[first, -slope / 2], [-slope / 2, 0]].
        """
        cost, shift, last = self._cost, self._shift, self._last
        by_h, by_z = h * first - 0.5 * z * slope, -0.5 * h * slope
        by_z2, by_q = z * first - 0.5 * q * slope, -0.5 * z * slope
        return (
            (by_h + by_z * shift) / cost,
            0.5 * ((by_h + by_q) * shift + by_z * last + by_z2) / cost,
            (by_z2 * shift + by_q * last) / cost,
        )

    def _direction(
        self, h: np.ndarray, z: np.ndarray, q: np.ndarray, slack_products: np.ndarray, bias_scaling: np.ndarray
    ) -> _Direction:
        """Solves the Newton equations.

        h, z, q: wanted change of the columns at fixed prices. slack_products: wanted change of slack times multiplier.
        """
        rhs = self._residual - self._gathered(h, z)
        bias, slack, multiplier = self._bias, self._slack, self._multiplier
        targets = pull = np.empty(0)
        if slack.size:
            targets = slack_products / slack
            pull = multiplier[1] - multiplier[0] - np.diff(self._potentials[1]) + targets[1] - targets[0]
            rhs[1] += boundary_differences(pull * bias_scaling)
        potentials = self._matrix.solve(rhs)
        price, slope = self._program.column_prices(potentials, self._start, self._stop)
        first = -price - self._curves.center * slope
        sym_h, sym_z, sym_q = self._symmetrized(self._h, self._z, self._q, first, slope)
        if slack.size:
            bias = np.asarray((pull - np.diff(potentials[1])) * bias_scaling, np.float64)
            by_slack = np.stack([-bias, bias])
            slack, multiplier = by_slack, targets - multiplier / slack * by_slack
        return _Direction(potentials, first, slope, h - sym_h, z - sym_z, q - sym_q, bias, slack, multiplier)

    def _step_lengths(self, step: _Direction) -> tuple[float, float]:
        """Returns how far the columns' and the price matrices stay positive definite, at most 10."""
        determinant, mass = self._determinant(), self._curves.mass
        trace = (self._q * step.h - 2 * self._z * step.z + self._h * step.q) / determinant
        primal = _negated_least_eigenvalue(trace, (step.h * step.q - step.z * step.z) / determinant)
        trace = (step.first - self._shift * step.slope) / self._cost
        dual = _negated_least_eigenvalue(trace, -0.25 * step.slope * step.slope / (mass * self._cost))
        if self._slack.size:
            primal = max(primal, float(-(step.slack / self._slack).min()))
            dual = max(dual, float(-(step.multiplier / self._multiplier).min()))
        return 1 / max(primal, 0.1), 1 / max(dual, 0.1)


def _negated_least_eigenvalue(trace: np.ndarray, determinant: np.ndarray) -> float:
    """Returns minus the least eigenvalue of symmetric 2 by 2 matrices."""
    half = 0.5 * trace
    return float((np.sqrt(np.maximum(half * half - determinant, 0.0)) - half).max())


def _loss_scale(program: Program) -> float:
    """Returns the smaller loss of debiased randomized response and of the two-point mechanism on the ends."""
    response, _ = program.debiased_response()
    end = 1 + 2 * program.base
    return min(program.loss(response), end * end - dot(program.weights, program.labels**2))


class _NormalMatrix:
    """Sum over columns of g g^T times a 2 by 2 matrix.

    g has shape (k + 1,): 1 at the boundary where the column stops, -1 where it starts, and `base` more at the last one.
    Boundary 0 is left out, since its potentials are 0.
    """

    def __init__(self, program: Program, start: np.ndarray, stop: np.ndarray):
        """Computes the sparsity pattern for columns of distinct intervals.

        `start` and `stop` have the first and the last label of each column, shape (n,). The program gives the number of
        labels and `base`.
        """
        self._k, self._base, self._start, self._end = len(program.labels), program.base, start, stop + 1
        self._boundaries = boundaries = self._k + 1
        # Entries of the lower half: boundaries joined by columns, neighbors, the diagonal and the last row.
        rows = np.arange(boundaries)
        parts = [
            self._end * boundaries + start,
            (rows * boundaries + rows - 1)[1:],
            rows * boundaries + rows,
            self._k * boundaries + rows,
        ]
        cells, where = np.unique(np.concatenate(parts), return_inverse=True)
        self._count = len(cells)
        parts = np.split(where, np.cumsum([len(part) for part in parts])[:-1])
        self._arrange(cells // boundaries, cells % boundaries)
        self._joined, self._neighbors, self._diagonal, self._last = parts

    def _arrange(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Computes the pattern of the whole matrix, and the value of the three lower halves at each entry."""
        inner = np.flatnonzero(columns > 0)
        below = inner[rows[inner] > columns[inner]]
        parts = []
        for p in (0, 1):
            for q in (0, 1):
                block = (p + q) * len(rows)
                parts.append((2 * rows[inner] - 2 + p, 2 * columns[inner] - 2 + q, block + inner))
                parts.append((2 * columns[below] - 2 + q, 2 * rows[below] - 2 + p, block + below))
        row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._row, self._column, self._values = row, column, value
        self._symbolic = SymbolicFactor(2 * self._k, row, column)

    def gather(self, terms: np.ndarray) -> np.ndarray:
        """Sums terms, shape (2, n), times g over the columns; shape (2, k + 1)."""
        sums = np.empty((2, self._boundaries))
        for row, term in zip(sums, terms, strict=True):
            stops, starts = self._boundary_sums(term)
            np.subtract(stops, starts, out=row)
            row[-1] += self._base * term.sum()
        return sums

    def _boundary_sums(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the columns that stop, and of those that start, at every boundary; shape (k + 1,) each."""
        return np.bincount(self._end, terms, self._boundaries), np.bincount(self._start, terms, self._boundaries)

    def factorize(self, first: np.ndarray, second: np.ndarray, third: np.ndarray, bias_scaling: np.ndarray) -> bool:
        """Factorizes the matrix for the 2 by 2 matrices [[first, second], [second, third]] of the columns.

        False where the matrix is singular to the precision of floats. `bias_scaling`, shape (k,), or (0,) if no bias is
        allowed, is the addition to `third` of a column on each single label, without `base`. The other arguments have
        shape (n,).
        """
        halves = np.zeros((3, self._count))
        for half, terms in zip(halves, (first, second, third), strict=True):
            stops, starts = self._boundary_sums(terms)
            last = self._base * (stops - starts)
            last[-1] += 0.5 * self._base**2 * terms.sum()
            half[self._joined] = -terms
            half[self._diagonal] += stops + starts
            half[self._last] += last
            half[self._last[-1]] += last[-1]
        if bias_scaling.any():
            halves[2, self._neighbors] -= bias_scaling
            halves[2, self._diagonal[1:]] += bias_scaling
            halves[2, self._diagonal[:-1]] += bias_scaling
        if self._factorized(halves):
            return True
        diagonal = halves[::2, self._diagonal]
        halves[::2, self._diagonal] += _RIDGE * diagonal + (diagonal == 0)
        return self._factorized(halves)

    def _factorized(self, halves: np.ndarray) -> bool:
        self._entries = halves.ravel()[self._values]
        factor = self._symbolic.factorize(self._entries)
        if factor is None:
            return False
        self._factor = factor
        return True

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """Solves the equations for right-hand sides of shape (2, k + 1), after `factorize`."""
        wanted = rhs[:, 1:].T.ravel()
        found = self._factor.solve(wanted)
        # One step of refinement: inverse diagonal blocks are less accurate than substitution.
        residual = wanted - np.bincount(self._row, self._entries * found[self._column], len(found))
        found += self._factor.solve(residual)
        solution = np.zeros_like(rhs)
        solution[:, 1:] = found.reshape(-1, 2).T
        return solution
