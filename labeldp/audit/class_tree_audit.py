"""Second implementation of the trees of a center of classes: each split, each leaf, their number, from noised counts.

Trees are boosted on a public sample of records from given logits, so that the sums of probabilities over the cells come
close to the noised counts, in the metric of their covariance. All classes share the splits, which are chosen on random
signed sums of the gradients. Cells are cut into three folds; for each, trees are grown without its cells and judged on
them. The published trees are the first of each fold, so many as are best on all held-out cells, or none if these are
not significantly better.

Published splits are followed, as in `tree_audit`: each must have the largest gain, and lie at the least code of those
that split the sample alike. Leaves must be those of Newton's step, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from .cell_document import CODES, DEPTH
from .class_center_document import ClassCells
from .class_logits import LOGIT_UNIT, CellTargets, softmax
from .tree_audit import mixed

FOLDS = 3
"""Number of folds of the cells."""

_NAME = "class_center.center.cells.trees"
_SIZES, _PATIENCE = (0, 10, 20, 40, 80, 140, 220, 320), 2
_RATE, _SKETCHES, _SIGNIFICANT = 0.2, 3, 1.0
_SHRINKAGE, _DAMPING, _PRIOR, _TINY = 1 / 1000, 0.1, 1.0, 1e-12
# Results of floating-point arithmetic that are this close, relatively, are equal.
_CLOSE = 1e-9


def held_out(cells: int, fold: int) -> np.ndarray:
    """Cells that a fold does not learn from, shape (cells,), bool."""
    return np.array([mixed(cell, 7) % FOLDS == fold for cell in range(cells)])


class CodedSample:
    """Codes of the records of the sample of cells, and their targets.

    Attributes:
      codes: Shape (d, s), integers.
      targets: Noised counts of the cells.
      present: Codes that records have in each column, shape (d, CODES), bool.
    """

    def __init__(self, codes: np.ndarray, targets: CellTargets):
        """Takes codes of shape (d, s)."""
        self.codes, self.targets = codes.astype(np.intp), targets
        self.present = np.array([np.bincount(each, minlength=CODES) > 0 for each in self.codes])


def refits_are_better(sample: CodedSample, given: np.ndarray, refits: Sequence[np.ndarray]) -> bool | None:
    """True if logits fitted to the cells of each fold predict the others better; None where rounding decides.

    `given` are logits of shape (s, K), and `refits` those of each fold.
    """
    gains = [Boosting(sample, fold, each, given).gains() for fold, each in enumerate(refits)]
    total, slack = sum(float(each.sum()) for each, _ in gains), _CLOSE * sum(size for _, size in gains)
    return None if abs(total) <= slack else total > 0


def class_tree_problems(
    cells: ClassCells, sample: CodedSample, given: np.ndarray, starts: Sequence[np.ndarray]
) -> Iterator[str]:
    """Checks the trees of cells, which start from logits of shape (s, K) for each fold. Yields one line if one fails.

    `given` are logits that gains are compared with.
    """
    size, rest = divmod(len(cells.leaves), FOLDS)
    if rest or size not in _SIZES:
        yield f"{_NAME} are not as many as any number of trees of {FOLDS} folds"
        return
    models = [Boosting(sample, fold, start, given) for fold, start in enumerate(starts)]
    gains: list[np.ndarray] = []
    slacks: list[float] = []
    for stop in _SIZES:
        for fold, model in enumerate(models):
            for tree in range(model.grown, stop):
                place = fold * size + tree
                problem = model.follow(*cells.splits[place], cells.leaves[place]) if tree < size else model.grow()
                if problem:
                    yield f"{_NAME}: {problem}, in tree {place}: it could hold labels"
                    return
        found = [model.gains() for model in models]
        gains.append(np.concatenate([each for each, _ in found]))
        slacks.append(_CLOSE * sum(slack for _, slack in found))
        totals = [each.sum() for each in gains]
        if len(totals) > _PATIENCE and int(np.argmax(totals)) < len(totals) - _PATIENCE:
            break
    if not _follows(_SIZES.index(size), gains, slacks):
        yield f"{_NAME} are not as many as the cells that were held out choose"


def _follows(place: int, gains: list[np.ndarray], slacks: list[float]) -> bool:
    """True if the number of trees at this place may be chosen, up to rounding."""
    totals = [float(each.sum()) for each in gains]
    best = max(totals)
    likely = [each for each, total in enumerate(totals) if total >= best - max(slacks)]
    if place in likely and (not place or _significance(gains, place) > -slacks[place]):
        return True
    return not place and any(_significance(gains, each) <= slacks[each] for each in likely)


def _significance(gains: list[np.ndarray], place: int) -> float:
    """Total gain of a number of trees, less its limit; significant above 0."""
    own = gains[place] - gains[0]
    return float(own.sum()) - _SIGNIFICANT * math.sqrt(float(((own - own.mean()) ** 2).sum()))


class Boosting:
    """Trees of the fold of this number, whose cells are held out.

    Attributes:
      grown: Number of trees so far.
    """

    def __init__(self, sample: CodedSample, fold: int, start: np.ndarray, judged: np.ndarray):
        """Takes the logits before the trees, and those that gains are compared with; both of shape (s, K)."""
        self._sample, self._targets, self._fold, self.grown = sample, sample.targets, fold, 0
        targets = self._targets
        self._held = held_out(len(targets.counts), fold)
        # The others have no weight.
        self._seen = np.flatnonzero(~self._held[targets.cells])
        # Bytes take little of the cache: a leaf of the last level and a code are below 256 together.
        self._codes = sample.codes[:, self._seen].astype(np.uint8)
        self._shares = targets.means(softmax(judged))
        variances = targets.records[:, None] * self._shares * (1 - self._shares) + targets.noise
        self._inverse = np.where(self._held[:, None], 0.0, 1 / variances)
        self._before = self._errors(self._shares)
        self._logits = start

    def _errors(self, means: np.ndarray) -> np.ndarray:
        residuals, white = self._targets.whitened(means, self._shares)
        return (residuals * white).sum(axis=1)[self._held] / 2

    def gains(self) -> tuple[np.ndarray, float]:
        """Decrease of the squared distance of each held-out cell, and a sum that rounding errors are relative to."""
        errors = self._errors(self._targets.means(softmax(self._logits)))
        return self._before - errors, float(self._before.sum() + errors.sum())

    def follow(self, columns: list[int], cuts: list[int], leaves: list[list[int]]) -> str:
        """Adds a published tree; returns what is wrong with it, or an empty text."""
        step = _Step(self._targets, self._shares, self._inverse, self._held, softmax(self._logits))
        sketched = step.sketched(self._signs())
        leaf = np.zeros(len(self._logits), np.intp)
        for level, (column, cut) in enumerate(zip(columns, cuts, strict=True)):
            tried = self._tried(level)
            if column not in tried or cut == CODES:
                return "a split is none of those that are tried"
            gains = self._gains(sketched, leaf, tried)
            if not gains[tried.index(column), cut - 1] >= gains.max() * (1 - _CLOSE):
                return "a split is not the best one"
            if cut > 1 and not self._sample.present[column, cut - 1]:
                return "a split is not the first of those that are alike"
            leaf = 2 * leaf + (self._sample.codes[column] >= cut)
        exact = self._add(step, leaf) * (LOGIT_UNIT / FOLDS)
        wrong = np.abs(np.array(leaves) - exact) > 0.5 + _CLOSE * max(np.abs(exact).max(), 1.0)
        return "a leaf does not follow from the counts" if wrong.any() else ""

    def grow(self) -> str:
        """Adds a tree that is not published; nothing is wrong with it."""
        step = _Step(self._targets, self._shares, self._inverse, self._held, softmax(self._logits))
        sketched = step.sketched(self._signs())
        leaf = np.zeros(len(self._logits), np.intp)
        for level in range(DEPTH):
            tried = self._tried(level)
            best = int(np.argmax(self._gains(sketched, leaf, tried)))
            column, cut = tried[best // (CODES - 1)], best % (CODES - 1) + 1
            leaf = 2 * leaf + (self._sample.codes[column] >= cut)
        self._add(step, leaf)
        return ""

    def _add(self, step: _Step, leaf: np.ndarray) -> np.ndarray:
        """Adds a tree with the leaves of the records; returns what its leaves are, shape (2^DEPTH, K)."""
        classes = self._logits.shape[1]
        found = _RATE * (classes - 1) / classes * step.values(leaf)
        self._logits = self._logits + found[leaf]
        self.grown += 1
        return found

    def _signs(self) -> np.ndarray:
        """Signs of the classes in each sum of gradients; of two classes, one says all."""
        classes = self._logits.shape[1]
        if classes == 2:
            return np.array([[1.0, 0.0]])
        seed = 991 + self.grown + 1000 * self._fold
        drawn = [mixed(place, seed) % 2 for place in range(classes * _SKETCHES)]
        return np.array(drawn).reshape(_SKETCHES, classes) * 2.0 - 1

    def _tried(self, level: int) -> list[int]:
        """Columns that are tried for a level, about half of them."""
        seed = 1 + level + DEPTH * (self.grown + _SIZES[-1] * self._fold)
        every = range(len(self._sample.codes))
        return [column for column in every if mixed(column, seed) % 2 == 0] or list(every)

    def _gains(self, sketched: _Sketched, leaf: np.ndarray, tried: list[int]) -> np.ndarray:
        """Gain of each cut of each column that is tried, in all leaves together, shape (columns, CODES - 1)."""
        gains, size = np.empty((len(tried), CODES - 1)), (int(leaf.max(initial=0)) + 1) * CODES
        start, values = (
            (leaf[self._seen] * CODES).astype(np.uint8),
            [each[self._seen] for each in (sketched.weight, *sketched.gradients)],
        )
        for place, column in enumerate(tried):
            own = (start + self._codes[column]).astype(np.intp)
            sums = [np.bincount(own, each, size) for each in values]
            weights, *slopes = np.cumsum(np.array(sums).reshape(len(sums), -1, CODES), axis=2)
            below, above = weights[:, :-1], weights[:, -1:] - weights[:, :-1]
            first = np.array(slopes)[..., :-1]
            second = np.array(slopes)[..., -1:] - first
            parts = first**2 / (below + sketched.shrinkage) + second**2 / (above + sketched.shrinkage)
            gains[place] = parts.sum(axis=(0, 1))
        return gains


class _Sketched:
    """Sums of gradients, shape (sketches, s), weights of the records, shape (s,), and what leaves are shrunk by."""

    def __init__(self, gradients: np.ndarray, weight: np.ndarray, shrinkage: float):
        self.gradients, self.weight, self.shrinkage = gradients, weight, shrinkage


class _Step:
    """Derivatives of the squared distance at some probabilities, shape (s, K), by record and class."""

    def __init__(
        self, targets: CellTargets, shares: np.ndarray, inverse: np.ndarray, held: np.ndarray, chances: np.ndarray
    ):
        self._targets, self._inverse = targets, inverse
        _, white = targets.whitened(targets.means(chances), shares)
        own = np.where(held[:, None], 0.0, white)[targets.cells]
        self._gradient = targets.weights * chances * (own - (chances * own).sum(axis=1, keepdims=True))
        self._slopes = targets.weights * chances * (1 - chances)
        whole = targets.means(self._slopes) * targets.sampled[:, None]
        self._curvature = self._slopes * (whole * inverse)[targets.cells]

    def sketched(self, signs: np.ndarray) -> _Sketched:
        """Signed sums of the scaled gradients, for signs of shape (sketches, K)."""
        totals = self._curvature.sum(axis=0) + _TINY
        weight = (self._curvature / totals).sum(axis=1) / len(totals)
        gradients = signs @ (self._gradient / np.sqrt(totals)).T
        return _Sketched(gradients, weight, _SHRINKAGE + _PRIOR * len(totals) / float(totals.sum()))

    def values(self, leaf: np.ndarray) -> np.ndarray:
        """Newton's step of each leaf and class, shape (2^DEPTH, K)."""
        leaves, cells = 1 << DEPTH, len(self._targets.counts)
        place, found = self._targets.cells * leaves + leaf, []
        for gradient, slopes, curvature, inverse in zip(
            self._gradient.T, self._slopes.T, self._curvature.T, self._inverse.T, strict=True
        ):
            parts = np.bincount(place, slopes, cells * leaves).reshape(cells, leaves)
            own = np.bincount(leaf, curvature, leaves)
            damping = _DAMPING * own + _SHRINKAGE * own.sum() + _PRIOR
            found.append(np.bincount(leaf, gradient, leaves) / (inverse @ parts**2 + damping))
        return np.stack(found, axis=1)
