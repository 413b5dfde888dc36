"""Normal matrix of the interior-point equations, with two rows for every boundary between labels.

A column enters the rows of the boundary where its interval starts, of the one where it stops and, because every label
has some of its probability, of the last one. With few columns the matrix is therefore sparse except for its last rows,
and its factors are nearly as sparse.
"""

from __future__ import annotations

import numpy as np

from .sparse_cholesky import SymbolicFactor
from .staircase_columns import Program

# Regularization, relative to the diagonal, where the first factorization fails.
_RIDGE = 1e-12


class NormalMatrix:
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
