"""Multifrontal Cholesky factorization of sparse symmetric matrices with the same bits on every CPU.

Source: Duff, Reid 1983, "The multifrontal solution of indefinite sparse symmetric linear equations". Columns are
eliminated in a fill-reducing order. Neighboring columns of nearly equal pattern form a supernode, which is eliminated
in a dense matrix, its front; what it changes in later columns is added to the front of its parent. Operations in a
front are elementwise, or products by `matmul`, whose roundings do not depend on the CPU. LAPACK and SuperLU are not
used for values, because their last digits, and mechanism files with them, differ between CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from ..core.reproducible import matmul, matvec, stacked_matmul, vecmat

# Largest number of columns of a supernode, and of zeros that joining columns of unequal pattern adds to it.
_MOST_COLUMNS, _MORE_CELLS = 64, 1000
# Up to this many columns, a front is updated column by column, which takes less time than a product of slices.
_FEW_COLUMNS = 4


@dataclass(frozen=True, eq=False)
class _Supernode:
    """Columns that are eliminated together, in the elimination order.

    Attributes:
      start: First column.
      stop: Column after the last one.
      rows: Later rows of these columns that may differ from 0, shape (r,), ascending.
      entries: Entries of the matrix that belong to these columns, shape (e,).
      cells: Their cells in the front of w + r rows and w columns, shape (e,).
      parent: Supernode to whose front the update is added; -1 for none.
      places: Rows of this supernode in the front of its parent, shape (r,).
    """

    start: int
    stop: int
    rows: np.ndarray
    entries: np.ndarray
    cells: np.ndarray
    parent: int
    places: np.ndarray


class SymbolicFactor:
    """Elimination order and pattern of the Cholesky factor of symmetric matrices of one pattern."""

    def __init__(self, size: int, rows: np.ndarray, columns: np.ndarray):
        """Computes the order and the supernodes of a matrix of `size` rows.

        `rows` and `columns`, shape (e,), have the entries that may differ from 0, of both halves; entries may repeat.
        """
        self.size = size
        if 2 * len(rows) > size * size:
            self.order = place = np.arange(size)
            later = [place[j + 1 :] for j in range(size)]
        else:
            self.order, later = _reordered(size, rows, columns)
            place = np.argsort(self.order, kind="stable")
        row, column = place[rows], place[columns]
        starts, stops = _supernodes(later)
        owner = np.repeat(np.arange(len(starts)), stops - starts)
        entries = np.flatnonzero(row >= starts[owner[column]])
        entries = entries[np.argsort(column[entries], kind="stable")]
        parts = np.split(entries, np.searchsorted(column[entries], starts[1:]))
        self.supernodes: list[_Supernode] = []
        for start, stop, part in zip(starts.tolist(), stops.tolist(), parts, strict=True):
            below = later[stop - 1]
            front = np.concatenate([np.arange(start, stop), below])
            cells = np.searchsorted(front, row[part]) * (stop - start) + column[part] - start
            parent, places = -1, below
            if len(below):
                parent = int(owner[below[0]])
                ahead = np.concatenate([np.arange(starts[parent], stops[parent]), later[stops[parent] - 1]])
                places = np.searchsorted(ahead, below)
            self.supernodes.append(_Supernode(start, stop, below, part, cells, parent, places))

    def factorize(self, values: np.ndarray) -> Factor | None:
        """Factorizes a matrix; None where it is not positive definite to the precision of floats.

        The entries, shape (e,), are in the order of the rows and columns; repeated ones are added.
        """
        updates: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in self.supernodes]
        parts = []
        for node, children in zip(self.supernodes, updates, strict=True):
            width, below = node.stop - node.start, len(node.rows)
            panel = np.bincount(node.cells, values[node.entries], (width + below) * width).reshape(-1, width)
            rest = np.zeros((below, below))
            for places, update in children:
                cut = int(np.searchsorted(places, width))
                first, second = places[:cut], places[cut:] - width
                panel[places[:, None], first] -= update[:, :cut]
                rest[second[:, None], second] -= update[cut:, cut:]
            children.clear()
            inverse = _eliminate(panel)
            if inverse is None:
                return None
            lower = panel[width:]
            parts.append((inverse, lower))
            if below:
                updates[node.parent].append((node.places, _outer(lower) - rest))
        return Factor(self, parts)


class Factor:
    """Cholesky factor of one matrix."""

    def __init__(self, symbolic: SymbolicFactor, parts: list[tuple[np.ndarray, np.ndarray]]):
        """Keeps the factor. `SymbolicFactor.factorize` computes it.

        `parts` has for each supernode of w columns the inverse of the diagonal block, shape (w, w), and the rows below
        it, shape (r, w).
        """
        self._symbolic, self._parts = symbolic, parts

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """Solves the equations for a right-hand side; shape (n,)."""
        symbolic = self._symbolic
        y = rhs[symbolic.order]
        for node, (inverse, lower) in zip(symbolic.supernodes, self._parts, strict=True):
            part = y[node.start : node.stop] = matvec(inverse, y[node.start : node.stop])
            if len(node.rows):
                y[node.rows] -= matvec(lower, part)
        for node, (inverse, lower) in zip(reversed(symbolic.supernodes), reversed(self._parts), strict=True):
            part = y[node.start : node.stop]
            if len(node.rows):
                part = part - vecmat(y[node.rows], lower)
            y[node.start : node.stop] = vecmat(part, inverse)
        found = np.empty(symbolic.size)
        found[symbolic.order] = y
        return found


def _reordered(size: int, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns a fill-reducing postorder, and the rows below the diagonal of each column of the factor."""
    order = _minimum_degree_order(size, rows, columns)
    place = np.argsort(order, kind="stable")
    later = _column_patterns(size, place[rows], place[columns])
    postorder = _postorder([int(part[0]) if len(part) else -1 for part in later])
    moved = np.argsort(postorder, kind="stable")
    return order[postorder], [np.sort(moved[later[j]]) for j in postorder]


def _minimum_degree_order(size: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Returns SuperLU's minimum degree order. It depends on the pattern alone: the values are safe."""
    entries = csc_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    entries.sum_duplicates()
    entries.data[:] = -1.0
    safe = (entries + (size + 2.0) * eye_array(size, format="csc")).tocsc()
    factors = splu(safe, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return np.argsort(factors.perm_c, kind="stable")


def _column_patterns(size: int, row: np.ndarray, column: np.ndarray) -> list[np.ndarray]:
    """Returns the rows below the diagonal of each column of the factor, ascending."""
    lower = np.flatnonzero(row > column)
    lower = lower[np.argsort(column[lower], kind="stable")]
    own = np.split(row[lower], np.searchsorted(column[lower], np.arange(1, size)))
    later: list[np.ndarray] = []
    children: list[list[np.ndarray]] = [[] for _ in range(size)]
    for j in range(size):
        found = np.unique(np.concatenate([own[j], *children[j]]))
        later.append(found)
        if len(found):
            children[found[0]].append(found[1:])
    return later


def _postorder(parents: list[int]) -> list[int]:
    """Returns the columns in a postorder of the elimination tree: those below a column come right before it."""
    sizes, children = [1] * len(parents), [[] for _ in parents]
    for j, parent in enumerate(parents):
        if parent >= 0:
            sizes[parent] += sizes[j]
            children[parent].append(j)
    # From the end, the largest subtree first: it can then form a supernode with its parent.
    found, waiting = [], [j for j, parent in enumerate(parents) if parent < 0]
    while waiting:
        j = waiting.pop()
        found.append(j)
        waiting.extend(sorted(children[j], key=lambda child: sizes[child]))
    return found[::-1]


def _supernodes(later: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first column and the end of each supernode, for columns in a postorder.

    A column joins the supernodes right before it that are below it in the elimination tree, while that adds few zeros:
    the rows of a column include the later rows of those below it.
    """
    starts, zeros, below = [], [], [1] * len(later)
    for j, rows in enumerate(later):
        if len(rows):
            below[rows[0]] += below[j]
        start, added = j, 0
        while starts and start > j + 1 - below[j] and j + 1 - starts[-1] <= _MOST_COLUMNS:
            more = zeros[-1] + (start - starts[-1]) * (len(rows) + j + 1 - start - len(later[start - 1]))
            if added + more > _MORE_CELLS:
                break
            added += more
            start = starts.pop()
            zeros.pop()
        starts.append(start)
        zeros.append(added)
    return np.array(starts), np.array([*starts[1:], len(later)])


def _eliminate(panel: np.ndarray) -> np.ndarray | None:
    """Eliminates the columns of a panel, the diagonal block first, in place.

    The rows below the diagonal block become those of the factor. Returns the inverse factor of the diagonal block,
    shape (w, w); None if the block is not positive definite.
    """
    m, n = panel.shape
    # Elimination of the block beside the identity turns the identity into the inverse factor. Each column of it takes
    # the place of the column that is eliminated, so that arrays are contiguous.
    work, kept, changes, pivots = panel.copy(), np.empty((n, m)), np.empty((m, n)), np.empty(n)
    for j in range(n):
        pivots[j] = pivot = work.item(j, j)
        if not pivot > 0:
            return None
        row = work[j : j + 1] / pivot
        row[0, j] = 1 / pivot
        later, column, change = work[j + 1 :], kept[j, j + 1 :], changes[j + 1 :]
        column[:] = later[:, j]
        later[:, j] = 0.0
        # Of one column and one row, BLAS adds nothing: the bits are those of an elementwise product.
        np.dot(column[:, None], row, change)
        np.subtract(later, change, later)
    roots = np.sqrt(pivots)
    np.divide(kept[:, n:].T, roots, panel[n:])
    inverse = np.tril(work[:n], -1)
    np.fill_diagonal(inverse, 1.0)
    return inverse / roots[:, None]


def _outer(lower: np.ndarray) -> np.ndarray:
    """Returns the product of a panel, shape (r, w), and its transpose."""
    product = matmul if lower.shape[1] > _FEW_COLUMNS else stacked_matmul
    return product(lower, lower.T)
