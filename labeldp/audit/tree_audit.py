"""Second implementation of the trees of a center's cells: each split, each leaf and their number, from the noised sums.

Trees are boosted on a public sample of records, so that the means of their predictions over the cells come close to the
noised means, in squared distance weighted by the inverse variances. All nodes of a level split one column at one code.
The cells are cut into three folds; for each, trees are grown without its cells, and judged on them. The trees that are
published are the first of each fold, so many as are best on all held-out cells, or none without a significant
agreement.

Published splits are followed, so that rounding cannot lead elsewhere: each must have the largest gain, and lie at the
least code of those that split the sample alike. Leaves must be those of Newton's step, rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .cell_document import CODES, DEPTH, Cells

_NAME = "center.linear.cells.trees"
_FOLDS, _SIZES = 3, (20, 40, 80, 140, 220, 320)
_LEAF_UNIT = 1 << 16
_RATE, _SHRINKAGE, _DAMPING, _SIGNIFICANT = 0.2, 1 / 1000, 0.1, 2.5
# Results of floating-point arithmetic that are this close, relatively, are equal.
_CLOSE = 1e-9
_WORD = 1 << 64
_MULTIPLIERS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False)
class CellMeans:
    """Noised mean of the residuals of each cell, in steps, and its variance, > 0; both shape (c,), float64."""

    means: np.ndarray
    variances: np.ndarray


def tree_problems(cells: Cells, targets: CellMeans) -> Iterator[str]:
    """Checks the trees against the means of cells. Yields one line for each failed check."""
    size, rest = divmod(len(cells.leaves), _FOLDS)
    if rest or size not in (0, *_SIZES):
        yield f"{_NAME} are not as many as any number of trees of {_FOLDS} folds"
        return
    sample = _Sample(cells)
    scores: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for fold in range(_FOLDS):
            boosting = _Boosting(sample, targets, fold)
            for tree in range(size):
                problem = boosting.follow(tree, *_tree(cells, fold * size + tree))
                if problem:
                    yield f"{_NAME}: {problem}, in tree {fold * size + tree}: it could hold labels"
                    return
            boosting.grow(range(size, _SIZES[-1]))
            scores.append(boosting.scores())
        if not _follows(size, np.concatenate(scores, axis=2)):
            yield f"{_NAME} are not as many as the cells that were held out choose"


def _tree(cells: Cells, place: int) -> tuple[list[int], list[int], np.ndarray]:
    return *cells.splits[place], np.array(cells.leaves[place], np.float64)


def _follows(size: int, scores: np.ndarray) -> bool:
    """True if a number of trees of each fold may be the best one, up to rounding.

    The scores, shape (2, sizes, cells), are weighted products of predictions and means, and squares of predictions.
    """
    products, squares = scores
    if not products.shape[1] or not np.isfinite(scores).all():
        return size == 0
    count = products.shape[1]
    totals = products.sum(axis=1)
    gains = 2 * totals - squares.sum(axis=1)
    limits = _SIGNIFICANT * np.sqrt(((products - totals[:, None] / count) ** 2).sum(axis=1))
    slack = _CLOSE * (np.abs(products).sum(axis=1) + squares.sum(axis=1))
    certain = (totals > limits + slack) & (gains > slack)
    if not size:
        return not certain.any()
    place = _SIZES.index(size)
    possible = totals[place] > limits[place] - slack[place] and gains[place] > -slack[place]
    return bool(possible and (gains[place] + slack[place] >= gains[certain] - slack[certain]).all())


class _Sample:
    """Codes of the sample, by column, cells of its records, and the records of each cell.

    Attributes:
      codes: Shape (d, s), integers.
      cells: Shape (s,), integers.
      known: Records of each cell in the sample, shape (c,), integers.
      counts: The same, at least 1.
      present: Codes that records of the sample have in each column, shape (d, CODES), bool.
    """

    def __init__(self, cells: Cells):
        self.codes = np.array([np.frombuffer(codes, np.uint8) for codes in cells.codes]).astype(np.intp)
        self.cells = cells_of(cells.nodes, self.codes)
        self.known = np.bincount(self.cells, minlength=len(cells.records))
        self.counts = np.maximum(self.known, 1)
        self.present = np.array([np.bincount(codes, minlength=CODES) > 0 for codes in self.codes])


def cells_of(nodes: Sequence[tuple[int, int, int]], codes: np.ndarray) -> np.ndarray:
    """Finds the cells of records whose codes have shape (d, n), integers; the result has shape (n,)."""
    found = np.zeros(codes.shape[1], np.intp)
    numbers = {node: place for place, node in enumerate(_leaves(nodes))}
    members = {0: np.arange(codes.shape[1])}
    # Children come after their node.
    for node, (column, cut, child) in enumerate(nodes):
        own = members.pop(node)
        if child == node:
            found[own] = numbers[node]
            continue
        second = codes[column, own] >= cut
        members[child], members[child + 1] = own[~second], own[second]
    return found


def _leaves(nodes: Sequence[tuple[int, int, int]]) -> list[int]:
    return [node for node, (_, _, child) in enumerate(nodes) if child == node]


class _Boosting:
    """Trees of the fold of this number, whose cells are held out."""

    def __init__(self, sample: _Sample, targets: CellMeans, fold: int):
        self._sample, self._means, self._fold = sample, targets.means, fold
        held = np.array([mixed(cell, 7) % _FOLDS == fold for cell in range(len(targets.means))])
        self._judged = held & (sample.known > 0)
        # Of mean 1 over the records of the sample.
        weights = 1 / targets.variances
        self._weights = weights / (weights[sample.known > 0].sum() / len(sample.cells))
        self._used = np.where(held, 0.0, self._weights)
        self._curvature = (self._used / sample.counts)[sample.cells]
        # The others have no weight.
        self._seen = np.flatnonzero(~held[sample.cells])
        # Bytes take little of the cache: a leaf of the last level and a code are below 256 together.
        self._codes = sample.codes[:, self._seen].astype(np.uint8)
        self._shrinkage = _SHRINKAGE * self._curvature.sum()
        # Means of the predictions in each cell.
        self._fitted = np.zeros(len(targets.means))
        start = np.zeros(len(sample.cells), np.intp)
        self._first = self._histograms([self._curvature], start, range(len(sample.codes)))[0]
        self._scores: list[tuple[np.ndarray, np.ndarray]] = []

    def follow(self, tree: int, columns: list[int], cuts: list[int], leaves: np.ndarray) -> str:
        """Adds a published tree; returns what is wrong with it, or an empty text."""
        gradient, leaf = self._gradient(), np.zeros(len(self._sample.cells), np.intp)
        for level, (column, cut) in enumerate(zip(columns, cuts, strict=True)):
            tried = self._tried(tree, level)
            gains = self._gains(gradient, leaf, tried)
            if column not in tried or cut == CODES:
                return "a split is none of those that are tried"
            if not gains[tried.index(column), cut - 1] >= gains.max() - _CLOSE * abs(gains.max()):
                return "a split is not the best one"
            if cut > 1 and not self._sample.present[column, cut - 1]:
                return "a split is not the first of those that are alike"
            leaf = 2 * leaf + (self._sample.codes[column] >= cut)
        exact = self._add(leaf) * (_LEAF_UNIT / _FOLDS)
        wrong = np.abs(leaves - exact) > 0.5 + _CLOSE * max(np.abs(exact).max(), 1.0)
        self._judge(tree)
        return "a leaf does not follow from the sums" if wrong.any() else ""

    def grow(self, trees: range) -> None:
        """Adds trees that are not published."""
        for tree in trees:
            gradient, leaf = self._gradient(), np.zeros(len(self._sample.cells), np.intp)
            for level in range(DEPTH):
                tried = self._tried(tree, level)
                best = int(np.argmax(self._gains(gradient, leaf, tried)))
                column, cut = tried[best // (CODES - 1)], best % (CODES - 1) + 1
                leaf = 2 * leaf + (self._sample.codes[column] >= cut)
            self._add(leaf)
            self._judge(tree)

    def scores(self) -> np.ndarray:
        """For each number of trees that is judged, products and squares of the held-out cells: (2, sizes, cells)."""
        return np.array(self._scores).transpose(1, 0, 2)

    def _gradient(self) -> np.ndarray:
        """Weighted distance of each record's cell from its mean, shape (s,)."""
        sample = self._sample
        return (self._used / sample.counts * (self._means - self._fitted))[sample.cells]

    def _tried(self, tree: int, level: int) -> list[int]:
        """Columns that are tried for a level, about half of them."""
        seed = 1 + level + DEPTH * (tree + _SIZES[-1] * self._fold)
        every = range(len(self._sample.codes))
        return [column for column in every if mixed(column, seed) % 2 == 0] or list(every)

    def _histograms(self, values: Sequence[np.ndarray], leaf: np.ndarray, tried: range | list[int]) -> np.ndarray:
        """Sums of each of some values of the records by column, leaf and code, cumulated over the codes."""
        size, start = int(leaf.max(initial=0)) + 1, (leaf[self._seen] * CODES).astype(np.uint8)
        own = [each[self._seen] for each in values]
        places = ((start + self._codes[column]).astype(np.intp) for column in tried)
        found = np.array([[np.bincount(place, each, size * CODES) for each in own] for place in places])
        return np.cumsum(found.reshape(len(tried), len(own), size, CODES), axis=3).swapaxes(0, 1)

    def _gains(self, gradient: np.ndarray, leaf: np.ndarray, tried: list[int]) -> np.ndarray:
        """Gain of each cut of each column that is tried, in all leaves together, shape (columns, CODES - 1)."""
        if leaf.any():
            slopes, curvatures = self._histograms([gradient, self._curvature], leaf, tried)
        else:
            slopes, curvatures = self._histograms([gradient], leaf, tried)[0], self._first[tried]
        gains = np.zeros((len(tried), CODES - 1))
        for sums, weights in ((slopes, curvatures), (slopes[..., -1:] - slopes, curvatures[..., -1:] - curvatures)):
            gains += (sums[..., :-1] ** 2 / (weights[..., :-1] + self._shrinkage)).sum(axis=1)
        return gains

    def _add(self, leaf: np.ndarray) -> np.ndarray:
        """Adds a tree with the leaves of the records; returns what its leaves are."""
        sample, leaves = self._sample, 1 << DEPTH
        flat = np.bincount(sample.cells * leaves + leaf, minlength=len(self._means) * leaves)
        shares = flat.reshape(-1, leaves) / sample.counts[:, None]
        slopes = (self._used * (self._means - self._fitted)) @ shares
        curvatures = self._used @ shares**2 + _DAMPING * np.bincount(leaf, self._curvature, leaves)
        found = _RATE * slopes / (curvatures + self._shrinkage)
        self._fitted += shares @ found
        return found

    def _judge(self, tree: int) -> None:
        if tree + 1 in _SIZES:
            own, weights = self._fitted[self._judged], self._weights[self._judged]
            self._scores.append((weights * own * self._means[self._judged], weights * own**2))


def mixed(value: int, seed: int) -> int:
    """Mixes a number with a seed (finalizer of MurmurHash3)."""
    found = (value + seed * _STEP) % _WORD
    for multiplier in _MULTIPLIERS:
        found = (found ^ found >> 33) * multiplier % _WORD
    return found ^ found >> 33
