"""Second implementation of the partition of a center of classes: the tree over the codes of its sample.

The node of most records is split, at the median of its widest column. The width of a column is the spread of the ranks
of its codes, times a scale. Without class sums, the scales of components are public and those of features are 0. With
sums, the scales of features are not published, for they are spreads of their values; but they are the same for all
nodes, from 0.1 to 1.1, and do not rise from column to column, and those of all others are 0. So every split compares
scales, and all of these comparisons must be true of some scales: a split cannot hold a label by itself.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import numpy as np

from .cell_document import CODES
from .class_center_document import ClassCells, ClassCenter

_NAME = "class_center.center.cells.tree"
_LEAST_SCALE, _LARGEST_SCALE = 0.1, 1.1
_CLOSE = 1e-9


def partition_problems(center: ClassCenter, cells: ClassCells, codes: np.ndarray, least: int) -> Iterator[str]:
    """Checks the tree against the codes of the sample, shape (d, s). Yields one line if a check fails.

    It has at least so many cells, unless the codes of no cell differ.
    """
    scales = Scales(center, cells)
    ranks = _ranks(codes)
    heap, made, leaves = [(-codes.shape[1], 0, np.arange(codes.shape[1]))], 1, 1
    stopped = False
    while heap:
        _, node, members = heapq.heappop(heap)
        column, cut, child = cells.nodes[node]
        varied = codes[:, members].max(axis=1) > codes[:, members].min(axis=1)
        stopped = stopped or leaves == len(cells.counts)
        if stopped or not varied.any():
            if child != node:
                yield f"{_NAME} has a split that its rule does not make: it could hold labels"
                return
            if varied.any() and len(cells.counts) < least:
                yield f"{_NAME} has fewer cells than the budget and the sample allow"
                return
            continue
        own = codes[column, members]
        if child != made or not varied[column] or cut != _median_cut(own):
            yield f"{_NAME} has a node that is not split at its median, or out of turn: it could hold labels"
            return
        spreads = ((ranks[:, members] - ranks[:, members].mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        if not scales.allow(column, varied, spreads):
            yield f"{_NAME} has a split of a column that is not the widest: it could hold labels"
            return
        for place, part in enumerate((members[own < cut], members[own >= cut])):
            heapq.heappush(heap, (-len(part), child + place, part))
        made, leaves = made + 2, leaves + 1
    if not scales.exist():
        yield f"{_NAME} has splits of columns that are the widest under no scales: they could hold labels"


def _ranks(codes: np.ndarray) -> np.ndarray:
    """Mean rank of each code among those of its column, as a share of the records; shape (d, s)."""
    found = np.empty(codes.shape)
    for place, each in enumerate(codes):
        counts = np.bincount(each, minlength=CODES)
        found[place] = ((np.cumsum(counts) - counts / 2) / len(each))[each]
    return found


def _median_cut(codes: np.ndarray) -> int:
    """Code from which on codes are above, so that both parts are as equal as they can be; there are two codes."""
    below = np.cumsum(np.bincount(codes, minlength=CODES))[:-1]
    uneven = np.where((below == 0) | (below == len(codes)), 2 * len(codes), np.abs(2 * below - len(codes)))
    return int(np.argmin(uneven)) + 1


class Scales:
    """Scales of columns, by what splits say of them: logarithms x with x_c - x_j >= w_cj for all c and j."""

    def __init__(self, center: ClassCenter, cells: ClassCells):
        features, others = len(cells.features), len(cells.others)
        self._known: np.ndarray | None = None
        self._scaled = np.arange(features + others) < features
        if not center.sums:
            self._scaled = ~self._scaled
            signal = [0.0 if each.logit else center.signal[each.place - 1] for each in cells.others]
            self._known = np.concatenate([np.zeros(features), np.array(signal)])
        self._least = np.full((features + others, features + others), -math.inf)
        if center.sums and features:
            for place in range(features - 1):
                self._least[place, place + 1] = 0.0
            self._least[features - 1, 0] = math.log(_LEAST_SCALE / _LARGEST_SCALE)

    def allow(self, column: int, varied: np.ndarray, spreads: np.ndarray) -> bool:
        """True if a column may be the widest of those that vary, by squared spreads of ranks; keeps what it says."""
        candidates = np.flatnonzero(varied & self._scaled)
        if not len(candidates):
            return column == int(np.argmax(varied))
        if not self._scaled[column]:
            return False
        if self._known is not None:
            widths = self._known * spreads
            return bool(widths[column] >= widths[candidates].max() * (1 - _CLOSE))
        least = (np.log(spreads[candidates]) - math.log(spreads[column])) / 2
        self._least[column, candidates] = np.maximum(self._least[column, candidates], least)
        return True

    def exist(self) -> bool:
        """True if some scales satisfy all comparisons: no cycle of them adds up to more than 0."""
        longest = self._least.copy()
        for place in range(len(longest)):
            longest = np.maximum(longest, longest[:, [place]] + longest[[place]])
        return bool((longest.diagonal() <= _CLOSE).all())
