"""Oblivious trees over codes, and boosting them on what is known of cells of records.

Trees are boosted (Friedman 2001) on the records of a public sample, so that what they predict for the records of a cell
comes close to what was released of it. `cell_center` has the likelihood of noised means, `class_trees` that of noised
counts of classes. Both hold each fold of the cells out once, and the model is the mean of the folds' models.

Sums have a fixed order, so that trees are the same on every CPU, and a replay computes them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cell_partition import CODES

DEPTH = 3
FOLDS = 3
# Records whose codes are compared at a time, which stay in the cache, and trees whose leaves are looked up at a time,
# in one table.
_BLOCK, _TOGETHER = 1 << 14, 3


@dataclass(frozen=True, eq=False)
class ObliviousTrees:
    """Trees over codes: all nodes of a level split the same column at the same code. Predictions are sums of leaves.

    Attributes:
      columns: Column of codes of each level, shape (t, DEPTH), int64.
      cuts: Codes from this on count as 1, shape (t, DEPTH), int64.
      leaves: Shape (t, 2^DEPTH, K), int64; a leaf is the binary number of a record's comparisons, the first level its
        highest bit.
    """

    columns: np.ndarray
    cuts: np.ndarray
    leaves: np.ndarray

    @classmethod
    def none(cls, width: int) -> ObliviousTrees:
        """No trees: all K = width predictions are 0."""
        empty = np.zeros((0, DEPTH), np.int64)
        return cls(empty, empty, np.zeros((0, 1 << DEPTH, width), np.int64))

    @classmethod
    def mean(cls, models: Sequence[Boosting], size: int, unit: int) -> ObliviousTrees:
        """The mean of the folds' models of so many trees each, with leaves in multiples of 1 / unit."""
        columns, cuts, leaves = (
            np.concatenate([getattr(model, name)[:size] for model in models]) for name in ("columns", "cuts", "leaves")
        )
        return cls(columns, cuts, np.rint(leaves * (unit / FOLDS)).astype(np.int64))

    def predict(self, codes: np.ndarray) -> np.ndarray:
        """Sums of the leaves of records with codes of shape (n, d), uint8; int64, shape (n, K)."""
        size, width = len(self.leaves), self.leaves.shape[2]
        # Leaves of a document may be large; half the bytes take half the time.
        most = np.abs(self.leaves).max(axis=(1, 2), initial=0).sum()
        leaves = self.leaves.astype(np.int32 if most < 1 << 31 else np.int64)
        groups = [slice(first, min(first + _TOGETHER, size)) for first in range(0, size, _TOGETHER)]
        splits = [list(zip(self.columns[group], self.cuts[group].astype(np.uint8), strict=True)) for group in groups]
        tables = [_added(leaves[group]) for group in groups]
        sums = np.zeros((len(codes), width), leaves.dtype)
        for start in range(0, len(codes), _BLOCK):
            block = sums[start : start + _BLOCK]
            by_column, added = np.ascontiguousarray(codes[start : start + _BLOCK].T), np.empty_like(block)
            for trees, table in zip(splits, tables, strict=True):
                first, *others = (leaf_of(by_column, *tree) for tree in trees)
                place = first.astype(np.uint16)
                for leaf in others:
                    place <<= DEPTH
                    place |= leaf
                # All leaves are in the table: clipping saves a copy.
                block += table.take(place, axis=0, out=added, mode="clip")
        return sums.astype(np.int64)


def _added(leaves: np.ndarray) -> np.ndarray:
    """Sums of one leaf of each of some trees, shape (t, 2^DEPTH, K), by the binary number of all comparisons."""
    table = leaves[0]
    for tree in leaves[1:]:
        table = (table[:, None] + tree).reshape(-1, leaves.shape[2])
    return table


def leaf_of(by_column: np.ndarray, columns: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Leaf of each record in a tree, shape (n,), uint8, from codes of shape (d, n)."""
    leaf, above = np.zeros(by_column.shape[1], np.uint8), np.empty(by_column.shape[1], bool)
    for column, cut in zip(columns.tolist(), cuts.tolist(), strict=True):
        np.greater_equal(by_column[column], np.uint8(cut), out=above)
        np.add(leaf, leaf, out=leaf)
        leaf |= above.view(np.uint8)
    return leaf


def held_out(cells: int, fold: int) -> np.ndarray:
    """Cells that a fold does not learn from, shape (cells,), bool."""
    return hashed(np.arange(cells), 7) % FOLDS == fold


class Boosting(ABC):
    """Trees of one fold; a subclass says what its likelihood makes of splits and leaves.

    Attributes:
      held: Cells that are held out, shape (c,), bool.
      current: Predictions for the sample so far, shape (s, K), float64.
      columns, cuts, leaves: As in `ObliviousTrees`, of up to the most trees; leaves are float64.
    """

    def __init__(self, by_column: np.ndarray, cells: np.ndarray, count: int, fold: int, most: int, start: np.ndarray):
        """Takes codes of shape (d, s), the cell of each record, the number of cells, and predictions to start with."""
        self.held, self.current = held_out(count, fold), start.copy()
        self.splits = Splits(by_column, ~self.held[cells], fold, most)
        self.columns = np.zeros((most, DEPTH), np.int64)
        self.cuts = np.full((most, DEPTH), CODES)
        self.leaves = np.zeros((most, 1 << DEPTH, start.shape[1]))
        self._codes, self._grown = by_column, 0

    def grow(self, size: int) -> None:
        """Grows trees up to a size."""
        for tree in range(self._grown, size):
            self.columns[tree], self.cuts[tree] = self.choose(tree)
            leaf = leaf_of(self._codes, self.columns[tree], self.cuts[tree])
            self.leaves[tree] = self.values(leaf)
            self.current += self.leaves[tree][leaf]
        self._grown = max(size, self._grown)

    @abstractmethod
    def choose(self, tree: int) -> tuple[np.ndarray, np.ndarray]:
        """Columns and cuts of the next tree, by `splits`."""

    @abstractmethod
    def values(self, leaf: np.ndarray) -> np.ndarray:
        """Values of its leaves, shape (2^DEPTH, K), from the leaf of each record."""


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
