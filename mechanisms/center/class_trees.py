"""Boosted trees of class counts: what the noised counts of a partition's cells say about each record.

As in `cell_center`, the target is not known for records, but for cells: the counts of the classes, with a noise of
known variance. Trees start from logits that are given, and the sums of their probabilities over the cells come close to
the noised counts. The distance is that of generalized least squares: with n records in a cell, of mean probabilities p,
counts have the covariance of a multinomial plus that of noise of sum 0,

    n (diag p - p p^T)  +  tau (I - 1 1^T / K),    tau = K / (K - 1) times the variance of the noise of a count,

and x = (r - a p) / (n p + tau), where a makes the entries of x add up to 0, solves covariance x = r.

All classes share the splits of a tree, which are chosen on random signed sums of the gradients of the classes
(Iosipoi, Vakhrushev 2022, "SketchBoost"). The number of trees is the one that is best on all cells that were held out,
and none if they are not significantly better than no trees. Logits that were fitted to the cells of each fold may take
the place of the given ones, if they are better on the cells held out. Nothing but the noised counts depends on labels,
so this costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .boosting import DEPTH, FOLDS, Boosting, ObliviousTrees, hashed
from .class_logit import LOGIT_UNIT
from .latest_fit import keep_latest
from .logit_fit import row_sums, softmax

_SIZES = (0, 10, 20, 40, 80, 140, 220, 320)
# Sizes without a gain, after which no more trees are grown.
_PATIENCE = 2
_RATE, _SKETCHES = 0.2, 3
# Curvature that leaves are shrunk by: of the whole sample, and of their own.
_SHRINKAGE, _DAMPING = 1 / 1000, 0.1
# Standard errors from 0 that the gain on the cells held out must have.
_SIGNIFICANT = 1.0
_TINY = 1e-12
# Information about a leaf that halves it.
_PRIOR = 1.0


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Noised counts of classes in cells, and what is known of the records.

    Attributes:
      cells: Cell of each record of the sample, shape (s,), integers; each cell has one.
      counts: Noised counts, shape (c, K), float64; each row adds up to the number of records of the cell.
      noise: Variance of the noise of a count.
    """

    cells: np.ndarray
    counts: np.ndarray
    noise: float

    @cached_property
    def records(self) -> np.ndarray:
        """Number of records of each cell, shape (c,), float64."""
        return np.add.reduce(self.counts, axis=1)

    @cached_property
    def sampled(self) -> np.ndarray:
        """Number of records of the sample in each cell, shape (c,)."""
        return np.bincount(self.cells, minlength=len(self.counts))

    @cached_property
    def weights(self) -> np.ndarray:
        """Records that each one of the sample stands for, shape (s, 1)."""
        return (self.records / self.sampled)[self.cells][:, None]

    @property
    def spread(self) -> float:
        """The tau of the noise."""
        classes = self.counts.shape[1]
        return self.noise * classes / (classes - 1)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Means of the sample by cell, shape (c, K), of values of shape (s, K)."""
        size = len(self.sampled)
        return np.stack([np.bincount(self.cells, each, size) for each in values.T], axis=1) / self.sampled[:, None]

    def residuals(self, means: np.ndarray) -> np.ndarray:
        """Counts less those expected of mean probabilities, both of shape (c, K)."""
        return self.counts - self.records[:, None] * means

    def whitened(self, residuals: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Solutions of covariance x = residuals of each cell, for mean probabilities `shares`; all of shape (c, K)."""
        diagonal = self.records[:, None] * shares + self.spread
        shift = row_sums(residuals / diagonal) / row_sums(shares / diagonal)
        return (residuals - shift[:, None] * shares) / diagonal


@keep_latest
def boost_classes(
    codes: np.ndarray, targets: CellCounts, logits: np.ndarray, refits: Sequence[np.ndarray]
) -> tuple[ObliviousTrees, bool]:
    """Fits trees to noised counts, on top of logits of shape (s, K), float64, or of `refits`, those of each fold.

    Returns whether the latter were better, too. The sample has codes of shape (s, d), uint8.
    """
    by_column = np.ascontiguousarray(codes.T)
    models = [_CountBoosting(by_column, targets, fold, each, logits) for fold, each in enumerate(refits)]
    refitted = sum(float(np.add.reduce(model.gains(0))) for model in models) > 0
    if not refitted:
        models = [_CountBoosting(by_column, targets, fold, logits, logits) for fold in range(FOLDS)]
    gains: list[np.ndarray] = []
    totals: list[float] = []
    for size in _SIZES:
        gains.append(np.concatenate([model.gains(size) for model in models]))
        totals.append(float(np.add.reduce(gains[-1])))
        if len(totals) > _PATIENCE and max(totals) not in totals[-_PATIENCE:]:
            break
    best = int(np.argmax(totals))
    if not _significant(gains[best] - gains[0]):
        return ObliviousTrees.none(targets.counts.shape[1]), refitted
    return ObliviousTrees.mean(models, _SIZES[best], LOGIT_UNIT), refitted


def _significant(gains: np.ndarray) -> bool:
    mean = float(np.add.reduce(gains)) / len(gains)
    square = float(np.add.reduce((gains - mean) ** 2)) / len(gains)
    return mean > _SIGNIFICANT * math.sqrt(square / len(gains))


class _CountBoosting(Boosting):
    """Trees of one fold, of the likelihood of the counts; predictions are logits."""

    def __init__(self, by_column: np.ndarray, targets: CellCounts, fold: int, start: np.ndarray, judged: np.ndarray):
        """`start` are the logits before the trees, `judged` those that gains are compared with."""
        super().__init__(by_column, targets.cells, len(targets.counts), fold, _SIZES[-1], start)
        self._targets, self._fold = targets, fold
        # Covariances are those of the logits that gains are compared with, so that those are comparable.
        self._shares = targets.means(softmax(judged))
        variances = targets.records[:, None] * self._shares * (1 - self._shares) + targets.noise
        self._inverse = np.where(self.held[:, None], 0.0, 1 / variances)
        self._before = self._errors(self._shares)

    def _errors(self, means: np.ndarray) -> np.ndarray:
        """Half the squared distance of the cells held out from these mean probabilities."""
        residuals = self._targets.residuals(means)
        white = self._targets.whitened(residuals, self._shares)
        return row_sums(residuals * white)[self.held] / 2

    def gains(self, size: int) -> np.ndarray:
        """Grows trees up to a size; gains of the cells held out, shape (cells held out,)."""
        self.grow(size)
        return self._before - self._errors(self._targets.means(softmax(self.current)))

    def choose(self, tree: int) -> tuple[np.ndarray, np.ndarray]:
        self._derive()
        totals = np.add.reduce(self._curvature, axis=0) + _TINY
        self.splits.weigh(row_sums(self._curvature / totals) / len(totals))
        sketches = self._sketches(self._gradient / np.sqrt(totals), tree)
        shrinkage = _SHRINKAGE + _PRIOR * len(totals) / float(np.add.reduce(totals))
        return self.splits.choose(tree, [sketch[self.splits.seen] for sketch in sketches], shrinkage)

    def _derive(self) -> None:
        """By record and class: gradient, change of the cell's count with the logit, and about the curvature."""
        targets, chances = self._targets, softmax(self.current)
        white = targets.whitened(targets.residuals(targets.means(chances)), self._shares)
        white[self.held] = 0.0
        of_record = white[targets.cells]
        shift = row_sums(chances * of_record)[:, None]
        self._gradient = targets.weights * chances * (of_record - shift)
        self._slopes = targets.weights * chances * (1 - chances)
        whole = targets.means(self._slopes) * targets.sampled[:, None]
        self._curvature = self._slopes * (whole * self._inverse)[targets.cells]

    def _sketches(self, gradient: np.ndarray, tree: int) -> list[np.ndarray]:
        """Signed sums of the gradients of the classes; of two classes, one says all."""
        classes = gradient.shape[1]
        if classes == 2:
            return [gradient[:, 0]]
        drawn = hashed(np.arange(classes * _SKETCHES), 991 + tree + 1000 * self._fold) % 2
        signs = (drawn.astype(np.float64) * 2 - 1).reshape(_SKETCHES, classes)
        return [row_sums(gradient * each) for each in signs]

    def values(self, leaf: np.ndarray) -> np.ndarray:
        """Newton's step of each leaf and class, where the curvature is that of the cells' counts."""
        size, (cells, classes) = 1 << DEPTH, self._targets.counts.shape
        place = self._targets.cells * size + leaf
        steps = np.empty((size, classes))
        for one in range(classes):
            slope = np.bincount(leaf, self._gradient[:, one], size)
            parts = np.bincount(place, self._slopes[:, one], cells * size).reshape(cells, size)
            whole = np.add.reduce(self._inverse[:, one, None] * parts**2, axis=0)
            damping = np.bincount(leaf, self._curvature[:, one], size)
            steps[:, one] = slope / (whole + _DAMPING * damping + _SHRINKAGE * np.add.reduce(damping) + _PRIOR)
        return _RATE * (classes - 1) / classes * steps
