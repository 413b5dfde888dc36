"""Second implementation of what cells add to a linear center's predictions: codes of each record, and sums of leaves.

Where features were rounded, a code lies between the codes of both ends, and a record is in one of the leaves that these
allow: the sum over the trees lies between the sums of their least and of their largest leaf.

The number of records of each cell is public, and the codes of the sample are those of records. Both are compared with
the records, where the center was made from these: they could hold labels otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from .cell_document import DEPTH, Cells, CodedColumn
from .shard_columns import Column


def codes_of_cuts(coded: CodedColumn, values: np.ndarray) -> np.ndarray:
    """Codes of encoded values: the numbers of cuts that are at most these."""
    return np.searchsorted(np.array(coded.cuts, np.int64), values, side="right")


class CodedFeature(Protocol):
    """Feature of a linear center that columns of codes are made from."""

    def codes(self, column: Column, coded: CodedColumn) -> np.ndarray:
        """Codes of n records, shape (n,)."""
        ...

    def code_bounds(self, column: Column, rows: np.ndarray, coded: CodedColumn) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest code of some records, for all values that are rounded to theirs."""
        ...


class CellPredictions:
    """Codes and trees of the records of a release."""

    def __init__(self, cells: Cells, features: Mapping[str, CodedFeature]):
        """Starts without records; features are in the order of the encoders."""
        self._cells = cells
        self._features = list(features.items())
        self._splits = np.array(cells.splits, np.intp).reshape(-1, 2, DEPTH)
        self._leaves = np.array(cells.leaves, np.int64).reshape(-1, 1 << DEPTH)
        sample = np.array([np.frombuffer(codes, np.uint8) for codes in cells.codes])
        self._counts, self._sample = CellCounts(len(cells.records)), SampledRecords(sample)

    def codes(self, columns: Mapping[str, Column], indices: np.ndarray) -> np.ndarray:
        """Codes of n records, shape (d, n), uint8; `indices` are those that the linear center predicts."""
        found = np.empty((len(self._cells.columns), len(indices)), np.uint8)
        for place, coded in enumerate(self._cells.columns):
            if coded.feature < 0:
                found[place] = codes_of_cuts(coded, indices)
                continue
            name, feature = self._features[coded.feature]
            found[place] = feature.codes(columns[name], coded)
        return found

    def code_bounds(
        self, columns: Mapping[str, Column], rows: np.ndarray, least: np.ndarray, most: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest codes of some records, shape (d, n), uint8, whose index is between two bounds."""
        low, high = (np.empty((len(self._cells.columns), len(rows)), np.uint8) for _ in range(2))
        for place, coded in enumerate(self._cells.columns):
            if coded.feature < 0:
                low[place], high[place] = codes_of_cuts(coded, least), codes_of_cuts(coded, most)
                continue
            name, feature = self._features[coded.feature]
            low[place], high[place] = feature.code_bounds(columns[name], rows, coded)
        return low, high

    def sums(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the sums of the leaves of records whose codes are between two bounds, shape (d, n)."""
        least, most = (np.zeros(low.shape[1], np.int64) for _ in range(2))
        for (columns, cuts), leaves in zip(self._splits, self._leaves, strict=True):
            first = leaf_of(low, columns, cuts)
            if low is high:
                least += leaves[first]
                continue
            # Where both ends agree on a level, so do all codes between them.
            free = first ^ leaf_of(high, columns, cuts)
            reached = [
                np.where(flipped & ~free, leaves[first], leaves[first ^ flipped]) for flipped in range(1 << DEPTH)
            ]
            least += np.minimum.reduce(reached)
            most += np.maximum.reduce(reached)
        return (least, least) if low is high else (least, most)

    def count(self, codes: np.ndarray, uncertain: np.ndarray) -> None:
        """Counts the cells of n records, and takes their codes from those of the sample.

        Codes have shape (d, n); `uncertain`, shape (n,), are those of records whose features were rounded.
        """
        self._counts.add(cells_of(self._cells.nodes, codes), uncertain)
        self._sample.find(codes, uncertain)

    @property
    def sample(self) -> SampledRecords:
        """The sample, of which the records so far were taken."""
        return self._sample

    def problems(self, others: int, removed: int = 0) -> Iterator[str]:
        """Compares cells and sample with the records; one line for each failed check.

        `others` is the number of records that may be in the sample, but were never in the release, and `removed` that
        of the records that were removed from it since.
        """
        if not self._counts.fit(self._cells.records, removed):
            yield "center.linear.cells.records are not the numbers of records in each cell"
        if not self._sample.fit(others + removed):
            yield "center.linear.cells.codes are not those of a sample of the records"


class CellCounts:
    """Number of records in each cell."""

    def __init__(self, cells: int):
        """Starts without records."""
        self._found, self._uncertain = np.zeros(cells, np.int64), 0

    def add(self, cells: np.ndarray, uncertain: np.ndarray) -> None:
        """Counts the cells of n records, shape (n,); uncertain ones, shape (n,), bool, may be in others."""
        self._found += np.bincount(cells[~uncertain], minlength=len(self._found))
        self._uncertain += int(uncertain.sum())

    def fit(self, records: Sequence[int], removed: int = 0) -> bool:
        """True if cells may have had these numbers of records, of which some were removed."""
        rest = np.array(records) - self._found
        return bool((rest >= 0).all() and int(rest.sum()) == self._uncertain + removed)


class SampledRecords:
    """Records of a public sample that were not found so far.

    Attributes:
      size: Number of records in the sample.
    """

    def __init__(self, sample: np.ndarray):
        """Takes the values of the sample, shape (d, s), uint8."""
        self._wanted, counts = np.unique(_as_texts(sample), return_counts=True)
        self.size = sample.shape[1]
        self._counts, self._open, self._uncertain = counts, counts.astype(np.int64), 0

    def find(self, values: np.ndarray, uncertain: np.ndarray) -> None:
        """Takes values of n records, shape (d, n), from those of the sample; uncertain ones may have others."""
        self._uncertain += int(uncertain.sum())
        texts, counts = np.unique(_as_texts(values[:, ~uncertain]), return_counts=True)
        place = np.minimum(np.searchsorted(self._wanted, texts), len(self._wanted) - 1)
        known = self._wanted[place] == texts
        self._open[place[known]] -= counts[known]

    @property
    def found(self) -> int:
        """Number of records of the sample whose values are those of records so far."""
        return int((self._counts - np.maximum(self._open, 0)).sum())

    @property
    def uncertain(self) -> int:
        """Number of uncertain records so far."""
        return self._uncertain

    def fit(self, others: int) -> bool:
        """True if the sample may be one of these records and of others."""
        return int(np.maximum(self._open, 0).sum()) <= others + self._uncertain


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


def leaf_of(codes: np.ndarray, columns: Sequence[int], cuts: Sequence[int]) -> np.ndarray:
    """Leaf of an oblivious tree for each record, shape (n,), uint8, from its codes, shape (d, n)."""
    leaf = np.zeros(codes.shape[1], np.uint8)
    for column, cut in zip(columns, cuts, strict=True):
        leaf = 2 * leaf + (codes[column] >= np.uint8(cut))
    return leaf


def _as_texts(codes: np.ndarray) -> np.ndarray:
    """Codes of each record as one value of fixed size, shape (n,)."""
    rows = np.ascontiguousarray(codes.T)
    return rows.view(f"S{rows.shape[1]}")[:, 0] if len(rows) else np.zeros(0, f"S{len(codes)}")
