"""Boosted trees of cell means: what the noised sums of a partition's cells say about each record.

The target is not known for records, but for the means of cells, with noise of known variance. Trees are boosted
(Friedman 2001) on the records of a public sample so that the means of their predictions over the cells come close to
the noised means, in squared distance weighted by the inverse variances. They see which records of a cell differ, and
cells of similar features share what they learn, which neither the means themselves nor trees on the cells' centroids
would do.

Trees are oblivious: all nodes of a level split the same column at the same code, so a leaf is the binary number of a
record's comparisons. Each fold of the cells is held out once; the number of trees is the one that is best on all cells
that were held out, and none if that is not significantly better than 0. The model is the mean of the folds' models.

Nothing but the noised means depends on labels, so this costs no budget. Sums have a fixed order, so that trees are the
same on every CPU, and the audit can compute them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cell_partition import CODES

DEPTH = 3
LEAF_UNIT = 1 << 16
"""Leaves are integer multiples of 1 / LEAF_UNIT steps of the label domain."""
FOLDS = 3
_SIZES = (20, 40, 80, 140, 220, 320)
MOST_TREES = FOLDS * _SIZES[-1]
_RATE = 0.2
# Records whose codes are compared at a time, and trees whose leaves are looked up at a time, in one table.
_BLOCK, _TOGETHER = 1 << 15, 3
# Records that a leaf has before its mean counts half, as a share of the sample; curvature that leaves are shrunk by.
_SHRINKAGE, _DAMPING = 1 / 1000, 0.1
# Standard errors from 0 that the agreement with the cells held out must have.
_SIGNIFICANT = 2.5


@dataclass(frozen=True, eq=False)
class ObliviousTrees:
    """Trees over codes; predictions are sums of their leaves, in steps of the label domain times LEAF_UNIT.

    Attributes:
      columns: Column of codes of each level, shape (t, DEPTH), int64.
      cuts: Codes from this on count as 1, shape (t, DEPTH), int64.
      leaves: Shape (t, 2^DEPTH), int64. The first level is the highest bit.
    """

    columns: np.ndarray
    cuts: np.ndarray
    leaves: np.ndarray

    @classmethod
    def none(cls) -> ObliviousTrees:
        """No trees: predictions are 0."""
        empty = np.zeros((0, DEPTH), np.int64)
        return cls(empty, empty, np.zeros((0, 1 << DEPTH), np.int64))

    def predict(self, codes: np.ndarray) -> np.ndarray:
        """Sums of the leaves of records with codes of shape (n, d), uint8; int64, shape (n,)."""
        found, size = np.zeros(len(codes), np.int64), len(self.leaves)
        groups = [slice(first, min(first + _TOGETHER, size)) for first in range(0, size, _TOGETHER)]
        tables = [added_leaves(self.leaves[group]) for group in groups]
        for start in range(0, len(codes), _BLOCK):
            part = slice(start, start + _BLOCK)
            by_column = np.ascontiguousarray(codes[part].T)
            for group, table in zip(groups, tables, strict=True):
                leaf = leaf_of(by_column, self.columns[group].ravel(), self.cuts[group].ravel(), np.uint16)
                found[part] += table[leaf.astype(np.intp)]
        return found


def added_leaves(leaves: np.ndarray) -> np.ndarray:
    """Sums of one leaf of each of some trees, by the binary number of all of their comparisons.

    Leaves have shape (t, 2^DEPTH) or (t, 2^DEPTH, K), the sums (2^(t DEPTH)) or (2^(t DEPTH), K).
    """
    table = leaves[0]
    for each in leaves[1:]:
        table = (table[:, None] + each).reshape(-1, *each.shape[1:])
    return table


def leaf_of(by_column: np.ndarray, columns: np.ndarray, cuts: np.ndarray, kind: type = np.uint8) -> np.ndarray:
    """Binary number of the comparisons of some levels, shape (n,), of an unsigned kind with as many bits."""
    leaf, above = np.zeros(by_column.shape[1], kind), np.empty(by_column.shape[1], bool)
    for column, cut in zip(columns.tolist(), cuts.tolist(), strict=True):
        np.greater_equal(by_column[column], np.uint8(cut), out=above)
        leaf <<= 1
        leaf |= above.view(np.uint8)
    return leaf


@dataclass(frozen=True, eq=False)
class CellMeans:
    """Noised means of cells.

    Attributes:
      cells: Cell of each record of the sample, shape (s,), integers; each cell has one.
      means: Noised mean of each cell in steps, shape (c,), float64.
      variances: Variance of each, > 0, shape (c,), float64.
    """

    cells: np.ndarray
    means: np.ndarray
    variances: np.ndarray


def boost(codes: np.ndarray, targets: CellMeans) -> ObliviousTrees:
    """Fits trees to the noised means of cells; there are none without a significant agreement.

    The sample has codes of shape (s, d), uint8.
    """
    by_column = np.ascontiguousarray(codes.T)
    models, agreements = [], []
    for fold in range(FOLDS):
        model = _Boosting(by_column, targets, fold)
        agreements.append(model.grow())
        models.append(model)
    products, squares = (np.concatenate(each, axis=1) for each in zip(*agreements, strict=True))
    count = products.shape[1]
    total = np.add.reduce(products, axis=1)
    gains = 2 * total - np.add.reduce(squares, axis=1)
    means = total / max(count, 1)
    spread = np.sqrt(np.add.reduce((products - means[:, None]) ** 2, axis=1) / max(count, 1) / max(count, 1))
    significant = (means > _SIGNIFICANT * spread) & (gains > 0)
    if not significant.any():
        return ObliviousTrees.none()
    best = int(np.argmax(np.where(significant, gains, -np.inf)))
    kept = _SIZES[best]
    columns, cuts, leaves = (
        np.concatenate([getattr(model, name)[:kept] for model in models]) for name in ("columns", "cuts", "leaves")
    )
    return ObliviousTrees(columns, cuts, np.rint(leaves * (LEAF_UNIT / FOLDS)).astype(np.int64))


class _Boosting:
    """Trees of one fold.

    Attributes:
      columns, cuts, leaves: As in `ObliviousTrees`; leaves are float64.
      weight: Weight of each cell, of mean 1 over the records.
    """

    def __init__(self, by_column: np.ndarray, targets: CellMeans, fold: int):
        self._codes, self._targets, self._fold = by_column, targets, fold
        # Each cell has a record of the sample.
        self._counts = np.bincount(targets.cells, minlength=len(targets.means))
        weight = 1 / targets.variances
        self._held = hashed(np.arange(len(weight)), 7) % FOLDS == fold
        self._judged = np.flatnonzero(self._held)
        scale = np.add.reduce((weight / self._counts)[targets.cells]) / max(len(targets.cells), 1)
        self.weight = weight / scale
        self._weight = np.where(self._held, 0.0, self.weight)
        curvature = (self._weight / self._counts)[targets.cells]
        self._curvature = curvature
        self._splits = Splits(by_column, ~self._held[targets.cells], fold, _SIZES[-1])
        self._splits.weigh(curvature)
        self._cells_seen = targets.cells[self._splits.seen]
        self._shrinkage = _SHRINKAGE * float(np.add.reduce(curvature))
        size = _SIZES[-1]
        self.columns = np.zeros((size, DEPTH), np.int64)
        self.cuts = np.full((size, DEPTH), CODES)
        self.leaves = np.zeros((size, 1 << DEPTH))

    def grow(self) -> tuple[np.ndarray, np.ndarray]:
        """Grows all trees; for each size, products and squares over the cells held out, shape (sizes, cells)."""
        cells, means = self._targets.cells, self._targets.means
        current = np.zeros(len(cells))
        products, squares = [], []
        for tree in range(_SIZES[-1]):
            residuals = means - np.bincount(cells, current, len(means)) / self._counts
            gradient = (self._weight / self._counts * residuals)[self._cells_seen]
            self.columns[tree], self.cuts[tree] = self._splits.choose(tree, [gradient], self._shrinkage)
            leaf = leaf_of(self._codes, self.columns[tree], self.cuts[tree])
            values = _RATE * self._values(leaf, residuals)
            self.leaves[tree] = values
            current += values[leaf]
            if tree + 1 in _SIZES:
                own = (np.bincount(cells, current, len(means)) / self._counts)[self._judged]
                weight = self.weight[self._judged]
                products.append(weight * own * means[self._judged])
                squares.append(weight * own**2)
        return np.array(products), np.array(squares)

    def _values(self, leaf: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        """Newton's step of each leaf, where its curvature is that of the cells' means."""
        size = 1 << DEPTH
        shares = np.bincount(self._targets.cells * size + leaf, minlength=len(residuals) * size).reshape(-1, size)
        shares = shares / self._counts[:, None]
        slope = np.add.reduce((self._weight * residuals)[:, None] * shares, axis=0)
        curvature = np.add.reduce(self._weight[:, None] * shares**2, axis=0)
        damping = _DAMPING * np.bincount(leaf, self._curvature, size)
        return slope / (curvature + damping + self._shrinkage)


class Splits:
    """Choice of the splits of a fold's trees.

    Attributes:
      seen: Records of the sample that the fold learns from, shape (n,), integers. Sums over all records are the same:
        the others add 0.
    """

    def __init__(self, by_column: np.ndarray, learnt: np.ndarray, fold: int, most: int):
        """Takes codes of shape (d, s), uint8, whether each record is learnt from, and the most trees of a fold."""
        self.seen = np.flatnonzero(learnt)
        self._codes = by_column[:, self.seen]
        self._first = fold * most

    def weigh(self, weight: np.ndarray) -> None:
        """Sets the curvature of each record of the sample, shape (s,)."""
        self._weight = weight[self.seen]
        self._whole: dict[int, np.ndarray] = {}

    def choose(self, tree: int, gradients: Sequence[np.ndarray], shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
        """Columns and cuts of a tree's levels, each the best for all leaves so far.

        Gradients are those of the records in `seen`; the gain of a cut is the sum of its gains for each of them.
        """
        columns, cuts = np.zeros(DEPTH, np.int64), np.full(DEPTH, CODES)
        # Bytes take little of the cache: a leaf of the last level and a code are below 256 together.
        start, place = np.zeros(len(self.seen), np.uint8), np.empty(len(self.seen), np.intp)
        for level in range(DEPTH):
            tried, size = self._tried(tree, level), CODES << level
            first, second = [], []
            for column in tried:
                place[:] = start + self._codes[column]
                first.append([np.bincount(place, each, size) for each in gradients])
                second.append(self._weights(column, place, size))
            sums = np.cumsum(np.array(first).reshape(len(tried), len(gradients), -1, CODES), axis=3)
            gains = _gain_of_cuts(sums, np.array(second), shrinkage)
            best = int(np.argmax(gains))
            if gains.flat[best] > -np.inf:
                columns[level], cuts[level] = tried[best // (CODES - 1)], best % (CODES - 1) + 1
            start *= 2
            start += np.uint8(CODES) * (self._codes[columns[level]] >= cuts[level])
        return columns, cuts

    def _weights(self, column: int, place: np.ndarray, size: int) -> np.ndarray:
        """Curvatures by leaf and code, cumulated over the codes; those of the only leaf of the first level are kept."""
        if size == CODES and column in self._whole:
            return self._whole[column]
        found = np.cumsum(np.bincount(place, self._weight, size).reshape(-1, CODES), axis=1)
        if size == CODES:
            self._whole[column] = found
        return found

    def _tried(self, tree: int, level: int) -> list[int]:
        """About half of the columns."""
        every = np.arange(len(self._codes))
        chosen = every[hashed(every, 1 + level + DEPTH * (tree + self._first)) % 2 == 0]
        return (chosen if len(chosen) else every).tolist()


def _gain_of_cuts(first: np.ndarray, second: np.ndarray, shrinkage: float) -> np.ndarray:
    """Gain of each cut of some columns, shape (t, CODES - 1).

    Takes gradients by column, kind, leaf and code, shape (t, g, l, CODES), and curvatures by column, leaf and code,
    both cumulated over the codes.
    """
    total = np.zeros((len(first), CODES - 1))
    weight = second[..., :-1] + shrinkage
    rest = second[..., -1:] - second[..., :-1] + shrinkage
    for each in first.swapaxes(0, 1):
        below = each[..., :-1]
        above = each[..., -1:] - below
        total += np.add.reduce(below**2 / weight + above**2 / rest, axis=1)
    return total


def hashed(values: np.ndarray, seed: int) -> np.ndarray:
    """Mixes integers with a seed (finalizer of MurmurHash3); uint64."""
    mixed = values.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % (1 << 64))
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(multiplier)
    return mixed ^ (mixed >> np.uint64(33))
