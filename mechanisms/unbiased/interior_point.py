"""The best heights and outputs of staircase columns on given intervals, by a primal-dual interior-point method.

A column of height h and output centre + z / h costs spread h + mass z^2 / h: see `Curves`. With q >= z^2 / h in place
of the quotient, everything is linear but for the matrices [[h, z], [z, q]], one per column, which must be positive
semidefinite. So this is a semidefinite program whose matrices are 2 by 2 and have closed forms for all that is asked
of them. Prices are feasible where the matrices

    [[first, -slope / 2], [-slope / 2, mass]],    first = spread - price - centre slope,

are positive semidefinite, price and slope being the prices of the rows as the column meets them: no output then gives
the column a negative reduced cost.

The directions are those of Helmberg, Rendl, Vanderbei and Wolkowicz 1996 (HKM), with the predictor and corrector of
Mehrotra 1992. Prices are feasible all along, the rows hold in the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .normal_matrix import NormalMatrix
from .staircase_columns import Columns, Program, at_places

_MAX_STEPS = 60


_BACK_OFF = 0.97


_FEASIBLE = 1e-9


# Products this much smaller than asked for show that floating point has ended.
_SPENT = 1e-4


_MEMORY = 3


@dataclass(frozen=True, eq=False)
class Interior:
    """columns: (n,), every height positive. used: (n,) bool, those whose heights do not vanish with more steps.
    potentials: (2, k + 1), the rows' prices. bias: (k,), the
    means less the labels. room: (k,), how far each bias is from its limit, 0 where none is allowed."""

    columns: Columns
    used: np.ndarray
    potentials: np.ndarray
    bias: np.ndarray
    room: np.ndarray


def interior_solution(program: Program, start: np.ndarray, stop: np.ndarray, gap: float) -> Interior:
    """The solution over columns on the intervals start..stop (included) and any outputs, within gap relatively.

    Its rows hold to about 1e-9. Where floating point ends first, the nearest point reached.

    start, stop: (n,) distinct pairs, every single label among them. gap: positive.
    """
    state = _State(program, start, stop)
    nearest, found = np.inf, state.solution()
    for _ in range(_MAX_STEPS):
        distance, products = state.distance()
        distance = max(distance, products / gap)
        if distance < nearest:
            nearest, found = distance, state.solution()
        if nearest <= 1 or products < _SPENT * gap or not state.step():
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
    room: np.ndarray
    multiplier: np.ndarray


class _State:
    """A point inside, and a step from it.

    Where a bias is allowed there are also, for every label, the room (2, k) between its bias and the limit above and
    below, and that limit's multiplier; their product is to vanish like that of the matrices. The price of a mean is
    the multiplier below less the one above.
    """

    def __init__(self, program: Program, start: np.ndarray, stop: np.ndarray):
        self._program, self._start, self._stop = program, start, stop
        self._curves = program.curves(start, stop)
        self._matrix = NormalMatrix(program, start, stop)
        k, scale = len(program.labels), _likely_loss(program)
        self._least_loss = 1e-6 * scale
        self._potentials = np.zeros((2, k + 1))
        self._potentials[0] = -scale / k * np.arange(k + 1)
        sizes = program.sizes(start, stop)
        self._h = 0.5 * k / sizes.sum() + np.where(start == stop, 0.5 / (1 + k * program.base), 0.0)
        self._z = np.zeros(len(start))
        self._evaluate()
        self._q = self._h * self._cost / self._curves.mass
        self._past = [(self._h, self._cost)]
        limited = k if program.slack > 0 else 0
        self._bias = np.zeros(limited)
        self._room = np.full((2, limited), program.slack)
        self._multiplier = np.full((2, limited), scale / (k * k * (program.slack or 1.0)))

    def _evaluate(self) -> None:
        """The price matrix of every column, its best output less the centre, and the reduced cost with that."""
        curves = self._curves
        price, self._slope = self._program.stepped(self._potentials, self._start, self._stop)
        self._shift = 0.5 * self._slope / curves.mass
        self._first = curves.spread - price - curves.centre * self._slope
        self._cost = self._first - 0.5 * self._shift * self._slope
        # The inverse of the price matrix is [[1, shift], [shift, last]] / cost.
        self._last = self._cost / curves.mass + self._shift * self._shift

    def solution(self) -> Interior:
        k = len(self._program.labels)
        columns = Columns(self._start, self._stop, self._h, self._curves.centre + self._z / self._h)
        bias, room = (self._bias, self._room.min(axis=0)) if self._room.size else (np.zeros(k), np.zeros(k))
        # Of a height and a cost whose product vanishes, one stays as it is.
        height, cost = self._past[0]
        used = self._h * cost >= self._cost * height
        return Interior(columns, used, self._potentials, bias, room)

    def _give(self) -> np.ndarray:
        return 1 / (self._multiplier / self._room).sum(axis=0)

    def _gathered(self, h: np.ndarray, z: np.ndarray) -> np.ndarray:
        """(2, k + 1): what columns give the rows."""
        return self._matrix.gather(np.stack([h, self._curves.centre * h + z]))

    def distance(self) -> tuple[float, float]:
        """What rows lack, over what is allowed; and the products that are to vanish, over the loss."""
        self._lack = self._program.sides - self._gathered(self._h, self._z)
        if self._room.size:
            self._lack[1] += at_places(self._bias)
        self._lack[:, 0] = 0.0
        self._products = self._inner(self._h, self._z, self._q, self._first, self._slope)
        self._products += float((self._multiplier * self._room).sum())
        loss = self._h @ self._curves.spread + self._q @ self._curves.mass
        return float(np.abs(self._lack).max()) / _FEASIBLE, self._products / max(loss, self._least_loss)

    def _inner(self, h: np.ndarray, z: np.ndarray, q: np.ndarray, first: np.ndarray, slope: np.ndarray) -> float:
        return float(h @ first - z @ slope + q @ self._curves.mass)

    def step(self) -> bool:
        """Moves. False where the equations are beyond floating point. After `distance`."""
        h, z, q, cost, shift, last = self._h, self._z, self._q, self._cost, self._shift, self._last
        centre = self._curves.centre
        half = centre * h + 0.5 * z
        third = centre * (half + 0.5 * z) + shift * half + 0.25 * (q + last * h)
        give = self._give()
        if not self._matrix.factorise(h / cost, (half + 0.5 * shift * h) / cost, third / cost, give):
            return False
        boxes: np.ndarray = np.asarray(self._multiplier * self._room)
        ahead = self._direction(-h, -z, -q, -boxes, give)
        primal, dual = (min(1.0, length) for length in self._lengths(ahead))
        reached = self._inner(
            h + primal * ahead.h,
            z + primal * ahead.z,
            q + primal * ahead.q,
            self._first + dual * ahead.first,
            self._slope + dual * ahead.slope,
        )
        reached += float(((self._room + primal * ahead.room) * (self._multiplier + dual * ahead.multiplier)).sum())
        target = (reached / self._products) ** 2 * self._products / (2 * len(h) + boxes.size)
        bent_h, bent_z, bent_q = self._bent(ahead.h, ahead.z, ahead.q, ahead.first, ahead.slope)
        centred = target / cost
        step = self._direction(
            centred - h - bent_h,
            centred * shift - z - bent_z,
            centred * last - q - bent_q,
            target - boxes - ahead.multiplier * ahead.room,
            give,
        )
        if not np.all(np.isfinite(step.potentials)):
            return False
        primal, dual = (min(1.0, _BACK_OFF * length) for length in self._lengths(step))
        self._h = h + primal * step.h
        self._z = z + primal * step.z
        self._q = q + primal * step.q
        self._bias = self._bias + primal * step.bias
        self._room = self._room + primal * step.room
        self._multiplier = self._multiplier + dual * step.multiplier
        self._potentials = self._potentials + dual * step.potentials
        self._evaluate()
        self._past = [*self._past[-_MEMORY + 1 :], (h, cost)]
        return bool(self._cost.min() > 0 and self._determinant().min() > 0)

    def _determinant(self) -> np.ndarray:
        return self._h * self._q - self._z * self._z

    def _bent(
        self, h: np.ndarray, z: np.ndarray, q: np.ndarray, first: np.ndarray, slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The symmetric part of X dS / S for X = [[h, z], [z, q]], dS = [[first, -slope / 2], [-slope / 2, 0]] and the
        price matrix S: its three entries."""
        cost, shift, last = self._cost, self._shift, self._last
        by_h, by_z = h * first - 0.5 * z * slope, -0.5 * h * slope
        by_z2, by_q = z * first - 0.5 * q * slope, -0.5 * z * slope
        return (
            (by_h + by_z * shift) / cost,
            0.5 * ((by_h + by_q) * shift + by_z * last + by_z2) / cost,
            (by_z2 * shift + by_q * last) / cost,
        )

    def _direction(
        self, h: np.ndarray, z: np.ndarray, q: np.ndarray, boxes: np.ndarray, give: np.ndarray
    ) -> _Direction:
        """Newton's. h, z, q: how the columns should change if prices stayed; boxes: how products of room and
        multiplier should."""
        sides = self._lack - self._gathered(h, z)
        bias, room, multiplier = self._bias, self._room, self._multiplier
        if room.size:
            wanted = boxes / room
            pull = multiplier[1] - multiplier[0] - np.diff(self._potentials[1]) + wanted[1] - wanted[0]
            sides[1] += at_places(pull * give)
        potentials = self._matrix.solve(sides)
        price, slope = self._program.stepped(potentials, self._start, self._stop)
        first = -price - self._curves.centre * slope
        bent_h, bent_z, bent_q = self._bent(self._h, self._z, self._q, first, slope)
        if room.size:
            bias = np.asarray((pull - np.diff(potentials[1])) * give, np.float64)
            by_room = np.stack([-bias, bias])
            room, multiplier = by_room, wanted - multiplier / room * by_room
        return _Direction(potentials, first, slope, h - bent_h, z - bent_z, q - bent_q, bias, room, multiplier)

    def _lengths(self, step: _Direction) -> tuple[float, float]:
        """How far the columns' and the price matrices stay positive definite; at most 10."""
        determinant, mass = self._determinant(), self._curves.mass
        trace = (self._q * step.h - 2 * self._z * step.z + self._h * step.q) / determinant
        primal = _steepest(trace, (step.h * step.q - step.z * step.z) / determinant)
        trace = (step.first - self._shift * step.slope) / self._cost
        dual = _steepest(trace, -0.25 * step.slope * step.slope / (mass * self._cost))
        if self._room.size:
            primal = max(primal, float(-(step.room / self._room).min()))
            dual = max(dual, float(-(step.multiplier / self._multiplier).min()))
        return 1 / max(primal, 0.1), 1 / max(dual, 0.1)


def _steepest(trace: np.ndarray, determinant: np.ndarray) -> float:
    """Minus the least eigenvalue of symmetric 2 by 2 matrices."""
    half = 0.5 * trace
    return float((np.sqrt(np.maximum(half * half - determinant, 0.0)) - half).max())


def _likely_loss(program: Program) -> float:
    """The smaller loss of debiased randomized response and of the two-point mechanism on the ends."""
    response, _ = program.debiased_response()
    end = 1 + 2 * program.base
    return min(program.loss(response), float(end**2 - program.weights @ program.labels**2))
