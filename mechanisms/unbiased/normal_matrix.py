"""The matrix of the equations for staircase columns: two rows for every place between labels.

A column meets the place where its interval starts, the one where it stops and, because every label has some of its
probability, the last one. So with few columns the matrix is sparse but for its last rows, and its factors nearly as
sparse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

from .staircase_columns import Program

_DENSE = 64
"""Up to this many labels the matrix is factorised as a full one."""


_RIDGE = 1e-12


# Made at run time: type checkers do not see its functions.
_LAPACK: Any = lapack


class NormalMatrix:
    """The sum over columns of g g^T times a 2 by 2 matrix. g: (k + 1,), 1 at the place where the column stops, -1 where
    it starts, and base more at the last place. Place 0 is left out: its potentials are 0."""

    def __init__(self, program: Program, start: np.ndarray, stop: np.ndarray):
        """start, stop: (n,) distinct pairs, the first and the last label of each column."""
        self._k, self._base, self._start, self._end = len(program.labels), program.base, start, stop + 1
        self._places = places = self._k + 1
        # Cells of the lower half: places joined by columns, neighbours, the diagonal and the last row.
        rows = np.arange(places)
        parts = [
            self._end * places + start,
            (rows * places + rows - 1)[1:],
            rows * places + rows,
            self._k * places + rows,
        ]
        if self._k <= _DENSE:
            self._count = places**2
        else:
            cells, where = np.unique(np.concatenate(parts), return_inverse=True)
            self._count = len(cells)
            parts = np.split(where, np.cumsum([len(part) for part in parts])[:-1])
            self._arrange(cells // places, cells % places)
        self._joined, self._neighbours, self._diagonal, self._last = parts

    def _arrange(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """The pattern of the whole matrix, and which value of the three lower halves stands where."""
        inner = np.flatnonzero(columns > 0)
        below = inner[rows[inner] > columns[inner]]
        parts = []
        for p in (0, 1):
            for q in (0, 1):
                block = (p + q) * len(rows)
                parts.append((2 * rows[inner] - 2 + p, 2 * columns[inner] - 2 + q, block + inner))
                parts.append((2 * columns[below] - 2 + q, 2 * rows[below] - 2 + p, block + below))
        row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((row, column))
        pointers = np.searchsorted(column[order], np.arange(2 * self._k + 1))
        self._values = value[order]
        self._sparse = csc_array((np.zeros(len(row)), row[order].astype(np.intc), pointers.astype(np.intc)))

    def gather(self, terms: np.ndarray) -> np.ndarray:
        """(2, k + 1): the sum over columns of terms times g. terms: (2, n)."""
        sums = np.empty((2, self._places))
        for row, term in zip(sums, terms, strict=True):
            stops, starts = self._met(term)
            np.subtract(stops, starts, out=row)
            row[-1] += self._base * term.sum()
        return sums

    def _met(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(k + 1,) each: the sums of the columns that stop, and of those that start, at every place."""
        return np.bincount(self._end, terms, self._places), np.bincount(self._start, terms, self._places)

    def factorise(self, first: np.ndarray, second: np.ndarray, third: np.ndarray, give: np.ndarray) -> bool:
        """For the 2 by 2 matrices [[first, second], [second, third]], (n,) each. give: () or (k,), what a column on
        each single label adds to third, without the base. False where floating point ends."""
        halves = np.zeros((3, self._count))
        for half, terms in zip(halves, (first, second, third), strict=True):
            stops, starts = self._met(terms)
            last = self._base * (stops - starts)
            last[-1] += 0.5 * self._base**2 * terms.sum()
            half[self._joined] = -terms
            half[self._diagonal] += stops + starts
            half[self._last] += last
            half[self._last[-1]] += last[-1]
        if give.any():
            halves[2, self._neighbours] -= give
            halves[2, self._diagonal[1:]] += give
            halves[2, self._diagonal[:-1]] += give
        if self._factorised(halves):
            return True
        diagonal = halves[::2, self._diagonal]
        halves[::2, self._diagonal] += _RIDGE * diagonal + (diagonal == 0)
        return self._factorised(halves)

    def _factorised(self, halves: np.ndarray) -> bool:
        if self._k > _DENSE:
            self._sparse.data = halves.ravel()[self._values]
            try:
                factors = splu(self._sparse, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
            except RuntimeError:
                return False
            self._solve = factors.solve
            return True
        size, places = 2 * self._k, self._places
        whole = np.empty((places, 2, places, 2))
        for p in (0, 1):
            for q in (0, 1):
                whole[:, p, :, q] = halves[p + q].reshape(places, places)
        factor, failed = _LAPACK.dpotrf(whole[1:, :, 1:, :].reshape(size, size), lower=1)
        self._solve = lambda sides: _LAPACK.dpotrs(factor, sides, lower=1)[0]
        return not failed

    def solve(self, sides: np.ndarray) -> np.ndarray:
        """The solution, in the shape of the sides: (2, k + 1). After `factorise`."""
        solution = np.zeros_like(sides)
        solution[:, 1:] = self._solve(sides[:, 1:].T.ravel()).reshape(-1, 2).T
        return solution
