"""Boosted trees of cell means: what the noised sums of a partition's cells say about each record.

The target is not known for records, but for the means of cells, with noise of known variance. The means of the trees'
predictions over the cells come close to the noised means, in squared distance weighted by the inverse variances. They
see which records of a cell differ, and cells of similar features share what they learn, which neither the means
themselves nor trees on the cells' centroids would do.

The number of trees is the one that is best on all cells that were held out, and none if that is not significantly
better than 0. Nothing but the noised means depends on labels, so this costs no budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .boosting import DEPTH, FOLDS, Boosting, ObliviousTrees
from .latest_fit import keep_latest

LEAF_UNIT = 1 << 16
"""Leaves are integer multiples of 1 / LEAF_UNIT steps of the label domain."""
_SIZES = (20, 40, 80, 140, 220, 320)
_RATE = 0.2
# Records that a leaf has before its mean counts half, as a share of the sample; curvature that leaves are shrunk by.
_SHRINKAGE, _DAMPING = 1 / 1000, 0.1
# Standard errors from 0 that the agreement with the cells held out must have.
_SIGNIFICANT = 2.5


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


@keep_latest
def boost(codes: np.ndarray, targets: CellMeans) -> ObliviousTrees:
    """Fits trees to the noised means of cells; there are none without a significant agreement.

    The sample has codes of shape (s, d), uint8.
    """
    by_column = np.ascontiguousarray(codes.T)
    models = [_MeanBoosting(by_column, targets, fold) for fold in range(FOLDS)]
    agreements = [model.agreements() for model in models]
    products, squares = (np.concatenate(parts, axis=1) for parts in zip(*agreements, strict=True))
    count = products.shape[1]
    total = np.add.reduce(products, axis=1)
    gains = 2 * total - np.add.reduce(squares, axis=1)
    means = total / max(count, 1)
    spread = np.sqrt(np.add.reduce((products - means[:, None]) ** 2, axis=1) / max(count, 1) / max(count, 1))
    significant = (means > _SIGNIFICANT * spread) & (gains > 0)
    if not significant.any():
        return ObliviousTrees.none(1)
    best = int(np.argmax(np.where(significant, gains, -np.inf)))
    return ObliviousTrees.mean(models, _SIZES[best], LEAF_UNIT)


class _MeanBoosting(Boosting):
    """Trees of one fold, of a weighted squared distance to the means.

    Attributes:
      weight: Weight of each cell, of mean 1 over the records.
    """

    def __init__(self, by_column: np.ndarray, targets: CellMeans, fold: int):
        cells, self._targets = targets.cells, targets
        super().__init__(by_column, cells, len(targets.means), fold, _SIZES[-1], np.zeros((len(cells), 1)))
        # Each cell has a record of the sample.
        self._counts = np.bincount(cells, minlength=len(targets.means))
        weight = 1 / targets.variances
        scale = np.add.reduce((weight / self._counts)[cells]) / max(len(cells), 1)
        self.weight = weight / scale
        self._weight = np.where(self.held, 0.0, self.weight)
        self._curvature = (self._weight / self._counts)[cells]
        self.splits.weigh(self._curvature)
        self._cells_seen = cells[self.splits.seen]
        self._shrinkage = _SHRINKAGE * float(np.add.reduce(self._curvature))

    def agreements(self) -> tuple[np.ndarray, np.ndarray]:
        """Grows all trees; for each size, products and squares over the cells held out, shape (sizes, cells)."""
        weight, means = self.weight[self.held], self._targets.means[self.held]
        products, squares = [], []
        for size in _SIZES:
            self.grow(size)
            predicted = self._predicted()[self.held]
            products.append(weight * predicted * means)
            squares.append(weight * predicted**2)
        return np.array(products), np.array(squares)

    def _predicted(self) -> np.ndarray:
        return np.bincount(self._targets.cells, self.current[:, 0], len(self._counts)) / self._counts

    def choose(self, tree: int) -> tuple[np.ndarray, np.ndarray]:
        self._residuals = self._targets.means - self._predicted()
        gradient = (self._weight / self._counts * self._residuals)[self._cells_seen]
        return self.splits.choose(tree, [gradient], self._shrinkage)

    def values(self, leaf: np.ndarray) -> np.ndarray:
        """Newton's step of each leaf, where its curvature is that of the cells' means."""
        size = 1 << DEPTH
        shares = np.bincount(self._targets.cells * size + leaf, minlength=len(self._counts) * size).reshape(-1, size)
        shares = shares / self._counts[:, None]
        slope = np.add.reduce((self._weight * self._residuals)[:, None] * shares, axis=0)
        curvature = np.add.reduce(self._weight[:, None] * shares**2, axis=0)
        damping = _DAMPING * np.bincount(leaf, self._curvature, size)
        return (_RATE * (slope / (curvature + damping + self._shrinkage)))[:, None]
