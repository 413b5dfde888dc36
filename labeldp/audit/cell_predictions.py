"""Second implementation of cells: codes of each record, sums of leaves, and the numbers of records of each cell.

Where features were rounded, a code lies between the codes of both ends, and a record is in one of the leaves that these
allow: the sum over the trees lies between the sums of their least and of their largest leaf.

The number of records of each cell is public, and the codes of the sample are those of records. Both are compared with
the records, where the center was made from these: they could hold labels otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .center_document import DEPTH, Cells, CodedColumn
from .center_rows import CenterRows, Ends, codes_of_cuts
from .class_center_document import ClassCells
from .shard_columns import Column


class CellRecords:
    """Codes, cells and trees of the records of a release, which are counted.

    Attributes:
      sample: The sample, of which the records so far were taken.
    """

    def __init__(
        self,
        cells: Cells | ClassCells,
        columns: Sequence[Any],
        sample: Sequence[bytes],
        records: Sequence[int],
        rows: CenterRows,
    ):
        """Takes columns of codes, values of the sample by column, and the number of records of each cell."""
        self._nodes, self._columns, self._features = cells.nodes, columns, list(rows.features.items())
        width = [len(cells.coefficients[0])] if isinstance(cells, ClassCells) else []
        self._splits, self._leaves = cells.splits, np.array(cells.leaves, np.int64).reshape(-1, 1 << DEPTH, *width)
        self.sample = SampledRecords(np.array([np.frombuffer(values, np.uint8) for values in sample]))
        self._missing, self._uncertain = np.array(records), 0

    def codes(
        self, columns: Mapping[str, Column], records: int, rows: np.ndarray | None, values: Callable[[Any], Ends]
    ) -> Ends:
        """Least and largest codes of some records, shape (d, n), uint8.

        With `rows`, their features may be rounded. `values` gives bounds on what a column codes that is none of a
        feature.
        """
        low = np.empty((len(self._columns), records), np.uint8)
        high = low if rows is None else np.empty_like(low)
        for number, coded in enumerate(self._columns):
            if isinstance(coded, CodedColumn) and coded.feature >= 0:
                name, feature = self._features[coded.feature]
                if rows is None:
                    low[number] = feature.codes(columns[name], coded)
                else:
                    low[number], high[number] = feature.code_bounds(columns[name], rows, coded)
            else:
                least, most = values(coded)
                low[number] = codes_of_cuts(coded.cuts, least)
                if rows is not None:
                    high[number] = codes_of_cuts(coded.cuts, most)
        return low, high

    def sums(self, low: np.ndarray, high: np.ndarray) -> Ends:
        """Bounds on the sums of the leaves of records whose codes are between two bounds, shape (n,) or (n, K)."""
        least = np.zeros((low.shape[1], *self._leaves.shape[2:]), np.int64)
        most = least if low is high else np.zeros_like(least)
        for (columns, cuts), leaves in zip(self._splits, self._leaves, strict=True):
            first = leaf_of(low, columns, cuts)
            exact = leaves[first]
            least += exact
            if low is high:
                continue
            most += exact
            # Where both ends agree on a level, so do all codes between them.
            free = first ^ leaf_of(high, columns, cuts)
            varied = np.flatnonzero(free)
            reached = [leaves[first[varied] ^ (flipped & free[varied])] for flipped in range(1 << DEPTH)]
            least[varied] += np.minimum.reduce(reached) - exact[varied]
            most[varied] += np.maximum.reduce(reached) - exact[varied]
        return least, most

    def count(self, codes: np.ndarray, uncertain: np.ndarray) -> np.ndarray:
        """Counts n records in their cells, which it returns; uncertain ones, shape (n,), bool, may be in others."""
        cells = cells_of(self._nodes, codes)
        self._missing -= np.bincount(cells[~uncertain], minlength=len(self._missing))
        self._uncertain += int(uncertain.sum())
        return cells

    def problems(self, others: int, removed: int = 0) -> Iterator[str]:
        """Compares cells and sample with the records; one line for each failed check.

        `others` is the number of records that may be in the sample, but were never in the release, and `removed` that
        of the records that were removed from it since.
        """
        if (self._missing < 0).any() or int(self._missing.sum()) != self._uncertain + removed:
            yield "center.linear.cells.records are not the numbers of records in each cell"
        if not self.sample.fit(others + removed):
            yield "center.linear.cells.codes are not those of a sample of the records"


class SampledRecords:
    """Records of a public sample that were not found so far.

    Attributes:
      size: Number of records in the sample.
      uncertain: Number of uncertain records so far, which depend on how a feature was rounded.
    """

    def __init__(self, sample: np.ndarray):
        """Takes the values of the sample, shape (d, s), uint8."""
        self._wanted, self._missing = np.unique(_as_texts(sample), return_counts=True)
        self.size, self.uncertain = sample.shape[1], 0

    def find(self, values: np.ndarray, uncertain: np.ndarray) -> None:
        """Takes values of n records, shape (d, n), from those of the sample; uncertain ones may have others."""
        self.uncertain += int(uncertain.sum())
        texts, counts = np.unique(_as_texts(values[:, ~uncertain]), return_counts=True)
        numbers = np.minimum(np.searchsorted(self._wanted, texts), len(self._wanted) - 1)
        known = self._wanted[numbers] == texts
        self._missing[numbers[known]] -= counts[known]

    @property
    def matches(self) -> int:
        """Number of records of the sample whose values are those of records so far."""
        return self.size - int(np.maximum(self._missing, 0).sum())

    def fit(self, others: int) -> bool:
        """True if the sample may be one of these records and of others."""
        return self.size - self.matches <= others + self.uncertain


def cells_of(nodes: Sequence[tuple[int, int, int]], codes: np.ndarray) -> np.ndarray:
    """Finds the cells of records whose codes have shape (d, n), integers; the result has shape (n,)."""
    cells, leaf = np.zeros(codes.shape[1], np.intp), 0
    members = {0: np.arange(codes.shape[1])}
    # Children come after their node.
    for node, (column, cut, child) in enumerate(nodes):
        rows = members.pop(node)
        if child == node:
            cells[rows] = leaf
            leaf += 1
            continue
        second = codes[column, rows] >= cut
        members[child], members[child + 1] = rows[~second], rows[second]
    return cells


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
