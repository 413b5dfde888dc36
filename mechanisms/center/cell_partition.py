"""Partition of records into cells of similar public features: a k-d tree over the encoded features of a linear center.

A record lies in one cell, so a changed label changes one sum, whatever the number of cells is. The partition is chosen
from a public sample of features and a released linear center, and contains nothing about labels but what the latter
says.

Each feature becomes a column of codes, integers from 0 to 63: its rank in the sample, in steps. The places of a
category are ranked by what they add to the linear center, and the center's own prediction is one more column. The tree
(Bentley 1975) splits the column of the largest spread at its median, where a column's spread counts in proportion to
what its feature adds to the linear center, with a tenth of the largest for all.

All of it is arithmetic of integers, or of floats in a fixed order, so it is the same on every CPU.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .feature_rows import FEATURE_UNIT, LARGEST_FEATURE, Category, Columns, Encoder, MappedColumns, Number
from .linear_center import COEFFICIENT_UNIT, LinearCenter

CODES = 64
"""Codes of a column are below this."""
MOST_COLUMNS = 32
"""Columns of codes besides that of the linear center: those of the features that add most to it."""
LEAST_CELLS, MOST_CELLS = 30, 1 << 12
"""Bounds on the number of cells: fewer would not tell how well trees predict the cells that they have not seen."""
# The spread of a column counts at least this share of the largest one.
_LEAST_SCALE, _CENTER_SCALE = 0.1, 0.0
# Columns of one code, which no cell is split by.
_NEVER = CODES
# Encoded numbers are between this and its negative.
_MOST_ENCODED = LARGEST_FEATURE * FEATURE_UNIT


@dataclass(frozen=True)
class CodedColumn:
    """Column of codes of one feature, or of the linear center.

    Attributes:
      feature: Place of the encoder among those of the linear center; -1 for the linear center itself.
      cuts: Of a number, or of the center's index into the domain: ascending integers; the code is the number of cuts
        that are at most the encoded value. Empty for a category.
      places: Code of each place of a category, and of a missing value; empty for a number.
    """

    feature: int
    cuts: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    def table(self, first: int, last: int) -> np.ndarray:
        """Codes of the places of a category; of a number or an index, those of all integers first, ..., last."""
        if self.places:
            return np.array(self.places, np.uint8)
        return np.searchsorted(np.array(self.cuts, np.int64), np.arange(first, last + 1), side="right").astype(np.uint8)


@dataclass(frozen=True, eq=False)
class CellTree:
    """k-d tree over codes; node 0 is the root, and the children of a node follow each other.

    Attributes:
      columns: Column of codes that a node splits, shape (t,), int64; 0 for a leaf.
      cuts: Codes from this on go to the second child, shape (t,), int64; CODES for a leaf.
      children: First child, shape (t,), int64; a leaf is its own.
    """

    columns: np.ndarray
    cuts: np.ndarray
    children: np.ndarray

    @cached_property
    def leaves(self) -> np.ndarray:
        """Nodes that are leaves, in the order of their cells."""
        return np.flatnonzero(self.children == np.arange(len(self.children)))

    @cached_property
    def depth(self) -> int:
        """Largest number of splits above a leaf."""
        depths = np.zeros(len(self.children), np.int64)
        for node, child in enumerate(self.children.tolist()):
            if child != node:
                depths[child : child + 2] = depths[node] + 1
        return int(depths.max())

    def cells(self, codes: np.ndarray) -> np.ndarray:
        """Cells of records with codes of shape (n, d), uint8; integers in [0, cells), shape (n,)."""
        place = np.full(len(self.children), -1)
        place[self.leaves] = np.arange(len(self.leaves))
        start, flat = np.arange(len(codes)) * codes.shape[1], codes.ravel()
        nodes = np.zeros(len(codes), np.int64)
        for _ in range(self.depth):
            nodes = self.children[nodes] + (flat[start + self.columns[nodes]] >= self.cuts[nodes])
        return place[nodes]


@dataclass(frozen=True, eq=False)
class CellPartition:
    """Columns of codes and the tree over them."""

    columns: tuple[CodedColumn, ...]
    tree: CellTree

    def codes(self, features: MappedColumns, center: LinearCenter, indices: np.ndarray) -> np.ndarray:
        """Codes of n records, shape (n, d), uint8.

        `indices` are those that the linear center predicts, shape (n,); `features` are all features of its map.
        """
        return column_codes(self.columns, features, center, indices)


def column_codes(
    columns: Sequence[CodedColumn], features: MappedColumns, center: LinearCenter, indices: np.ndarray
) -> np.ndarray:
    """Codes of n records, shape (n, d), uint8, as of `CellPartition.codes`."""
    found = np.empty((len(indices), len(columns)), np.uint8)
    own = [place for place, column in enumerate(columns) if column.feature >= 0]
    found[:, own] = feature_codes([columns[place] for place in own], center.design.map.encoders, features)
    for place, column in enumerate(columns):
        if column.feature < 0:
            found[:, place] = column.table(0, center.labels - 1)[indices]
    return found


def feature_codes(columns: Sequence[CodedColumn], encoders: Sequence[Encoder], features: MappedColumns) -> np.ndarray:
    """Codes of the columns of features of n records, shape (n, d), uint8."""
    found = np.empty((len(next(iter(features.values()))), len(columns)), np.uint8)
    # A category has several columns.
    places: dict[int, np.ndarray] = {}
    for place, column in enumerate(columns):
        encoder = encoders[column.feature]
        if column.feature not in places:
            values = features[encoder.name]
            places[column.feature] = (
                encoder.places(values)
                if isinstance(encoder, Category)
                else encoder.encode(np.array(values, np.float64)).astype(np.intp) + _MOST_ENCODED
            )
        found[:, place] = column.table(-_MOST_ENCODED, _MOST_ENCODED)[places[column.feature]]
    return found


def choose_partition(sample: Columns, center: LinearCenter, cells: int) -> tuple[CellPartition, np.ndarray]:
    """Chooses a partition into at most `cells` cells, 1 <= cells <= MOST_CELLS, from a public sample of features.

    Returns it with the codes of the sample in ascending order, shape (s, d), uint8. There are fewer cells where the
    sample has fewer records, or codes that do not differ.
    """
    columns, scales = _coded_columns(sample, center)
    codes = column_codes(columns, sample, center, center.indices(sample))
    # The order of a sample follows from the secret key. Sums of floats, and what is published, must not depend on it.
    codes = codes[np.lexsort(codes.T[::-1])]
    return CellPartition(columns, split_cells(codes, code_ranks(codes) * scales, cells)), codes


def code_ranks(codes: np.ndarray) -> np.ndarray:
    """Mean rank of each code among those of its column, as a share of the records; shape (s, d), float64."""
    found = np.empty(codes.shape)
    for place, column in enumerate(codes.T):
        counts = np.bincount(column, minlength=CODES)
        found[:, place] = ((np.cumsum(counts) - counts / 2) / max(len(codes), 1))[column]
    return found


def _coded_columns(sample: Columns, center: LinearCenter) -> tuple[tuple[CodedColumn, ...], list[float]]:
    """Columns of the features that add most to the linear center, that of the center, and their scales."""
    row_map, records = center.design.map, len(next(iter(sample.values())))
    slopes = (row_map.weights.astype(np.float64) * np.array(center.coefficients[1:], np.float64)).sum(axis=1)
    slopes /= COEFFICIENT_UNIT
    found: list[tuple[float, float, CodedColumn]] = []
    place = 0
    for feature, encoder in enumerate(row_map.encoders):
        own = slopes[place : place + encoder.width]
        place += encoder.width
        if isinstance(encoder, Number):
            values = encoder.encode(np.array(sample[encoder.name], np.float64))
            effect = deviation(values * own[0])
            found.append((effect, effect, CodedColumn(feature, even_cuts(values))))
            continue
        steps, places = encoder.steps(own[:, None])[:, 0], encoder.places(sample[encoder.name])
        effect = deviation(steps[places])
        found.append((effect, effect, CodedColumn(feature, places=ranked_codes(steps))))
        counts = np.bincount(places, minlength=len(steps))[:-1]
        for value in np.flatnonzero(counts).tolist() if encoder.width > 2 else ():
            share = counts[value] / records
            own_effect = abs(float(steps[value])) * float(np.sqrt(share * (1 - share)))
            indicator = tuple(int(each == value) for each in range(len(steps)))
            found.append((own_effect, effect, CodedColumn(feature, places=indicator)))
    found.sort(key=lambda each: -each[0])
    found = found[:MOST_COLUMNS]
    largest = max((effect for _, effect, _ in found), default=0.0) or 1.0
    scales = [effect / largest + _LEAST_SCALE for _, effect, _ in found]
    own_column = CodedColumn(-1, even_cuts(center.indices(sample)))
    return (*(column for _, _, column in found), own_column), [*scales, _CENTER_SCALE]


def deviation(values: np.ndarray) -> float:
    """Standard deviation of values, shape (n,)."""
    return float(np.sqrt(((values - values.sum() / len(values)) ** 2).sum() / len(values)))


def even_cuts(values: np.ndarray) -> tuple[int, ...]:
    """Cuts of whole numbers into codes of about equally many records each."""
    ascending = np.sort(values)
    picked = np.unique(ascending[np.arange(1, CODES) * len(ascending) // CODES].astype(np.int64))
    # The smallest value has the code 0.
    return tuple(picked[picked > ascending[0]].tolist())


def ranked_codes(effects: np.ndarray) -> tuple[int, ...]:
    """Codes of the places of a category, by their effects."""
    codes = np.empty(len(effects), np.int64)
    codes[np.argsort(effects, kind="stable")] = np.arange(len(effects)) * min(CODES, len(effects)) // len(effects)
    return tuple(codes.tolist())


def split_cells(codes: np.ndarray, positions: np.ndarray, cells: int) -> CellTree:
    """Splits the node of most records until there are `cells` leaves, at the median of its widest column."""

    def widest(node: int, members: np.ndarray, varied: np.ndarray) -> int:
        # Equal positions may have a spread by rounding, and those of a scale of 0 have none.
        return int(np.argmax(np.where(varied, squared_spreads(positions[members]), -1.0)))

    return split_columns(codes, cells, widest)


def squared_spreads(positions: np.ndarray) -> np.ndarray:
    """Sums of squared distances from the mean, shape (d,), of positions of shape (n, d)."""
    return ((positions - positions.sum(axis=0) / len(positions)) ** 2).sum(axis=0)


def split_columns(codes: np.ndarray, cells: int, choose: Callable[[int, np.ndarray, np.ndarray], int]) -> CellTree:
    """Splits the node of most records until there are `cells` leaves, at the median of a column.

    `choose` takes a node, the places of its records, and which columns vary among them, and gives one of these.
    """
    columns, cuts, children = [0], [_NEVER], [0]
    open_nodes = [(-len(codes), 0, np.arange(len(codes)))]
    leaves = 1
    while open_nodes and leaves < cells:
        _, node, members = heapq.heappop(open_nodes)
        if len(members) < 2:
            break
        varied = codes[members].max(axis=0) > codes[members].min(axis=0)
        if not varied.any():
            continue
        column = choose(node, members, varied)
        values = codes[members, column]
        cut = _median_cut(values)
        columns[node], cuts[node], children[node] = column, cut, len(columns)
        above = values >= cut
        for part in (members[~above], members[above]):
            heapq.heappush(open_nodes, (-len(part), len(columns), part))
            columns.append(0)
            cuts.append(_NEVER)
            children.append(len(children))
        leaves += 1
    return CellTree(*(np.array(each, np.int64) for each in (columns, cuts, children)))


def _median_cut(values: np.ndarray) -> int:
    """Code from which on values are above, so that both parts are as equal as they can be; they have two codes."""
    below = np.cumsum(np.bincount(values, minlength=CODES))[:-1]
    uneven = np.abs(2 * below - len(values))
    uneven[(below == 0) | (below == len(values))] = 2 * len(values)
    return int(np.argmin(uneven)) + 1
