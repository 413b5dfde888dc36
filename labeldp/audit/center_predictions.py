"""Second implementation of a linear center's predictions: the center of each record from its own released features.

A record's center is released as it is, so one that says more than the published map and coefficients do could be the
true label. Predictions are exact for the rows of `center_rows`, and bounded where these are: where this interval is one
label, only that label passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .cell_predictions import CellRecords
from .center_document import COEFFICIENT_UNIT, ROW_UNIT, read_linear_center
from .center_rows import CenterRows, Ends
from .documents import read_center
from .interval_products import dot_bounds
from .marginal_predictions import MarginalRecords
from .shard_columns import Column

_UNIT = COEFFICIENT_UNIT * ROW_UNIT
# Leaves of trees are in units of 1 / 2^16 steps.
_TO_SUMS = _UNIT >> 16
_NO_CODES = (np.zeros((0, 0), np.uint8),) * 2


class _Bounds(NamedTuple):
    """Bounds on the linear predictions of n records, each of shape (n,), and on their codes, each of shape (d, n).

    Without cells there are no codes. Bounds that are equal are one array.
    """

    sums: Ends
    codes: Ends = _NO_CODES


class CenterPredictions:
    """Comparison of the centers of records with those that a linear center predicts.

    Attributes:
      numbers: Names of the features that are numbers.
      categories: Names of the features that are categories.
      rounded: Number of records so far whose center is not predicted, but possible before features were rounded.
      cells: Cells of the center and their trees; None without cells.
      marginals: Marginal sums of the center; None without them.
    """

    def __init__(self, mechanism: dict[str, Any], float32: bool):
        """Prepares the comparison; `float32` says whether records are TFRecords.

        The mechanism file, with a linear center, passed its audit.
        """
        linear = read_linear_center(mechanism)
        assert linear is not None
        weights = np.array(linear.weights, np.int64).reshape(len(linear.weights), len(linear.coefficients) - 1)
        self._rows = CenterRows(linear.encoders, weights, linear.norm)
        self.numbers, self.categories = self._rows.numbers, self._rows.categories
        self.rounded = 0
        self._labels, self._coefficients = linear.labels, np.array(linear.coefficients, np.int64)
        domain, cells = np.array(read_center(mechanism).domain), linear.cells
        self.cells = None
        if cells is not None:
            self.cells = CellRecords(cells, cells.columns, cells.codes, cells.records, self._rows)
        self.marginals = None if linear.marginals is None else MarginalRecords(linear.marginals, self._rows)
        self._float32 = float32
        self._domain = domain.astype(np.float32).astype(np.float64) if float32 else domain

    def wrong(self, columns: Mapping[str, Column], centers: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Finds the records whose center is not the predicted one; shape (n,), bool.

        `columns` has the features of n records, those of `numbers` and `categories`; centers have shape (n,), float64.
        Labels do not matter.
        """
        exact = self._bounds(columns, len(centers), None)
        predicted, _ = self._labels_of(exact)
        wrong = self._domain[predicted].view(np.uint64) != centers.view(np.uint64)
        if self.cells is not None:
            self._count(self.cells, columns, exact.codes[0])
        if self.marginals is not None:
            self.marginals.count(columns, len(centers), self._float32)
        if not self._float32 or not wrong.any():
            return wrong
        rows = np.flatnonzero(wrong)
        first, last = self._labels_of(self._bounds(columns, len(rows), rows))
        # Equal labels in float32 are one.
        label = np.minimum(np.searchsorted(self._domain, np.nan_to_num(centers[rows])), len(self._domain) - 1)
        same = self._domain[label].view(np.uint64) == centers[rows].view(np.uint64)
        possible = same & (self._domain[first] <= centers[rows]) & (centers[rows] <= self._domain[last])
        self.rounded += int(possible.sum())
        wrong[rows[possible]] = False
        return wrong

    def _bounds(self, columns: Mapping[str, Column], records: int, rows: np.ndarray | None) -> _Bounds:
        """What all records have, if no feature was rounded; of some rows, what they may have had before."""
        if self.marginals is not None:
            low, high = self.marginals.sums(columns, records, rows)
            return _Bounds((low * ROW_UNIT, high * ROW_UNIT))
        if rows is None:
            exact = self._rows.exact(columns, records) @ self._coefficients
            sums = exact, exact
        else:
            sums = dot_bounds(*self._rows.bounds(columns, rows), self._coefficients)
        if self.cells is None:
            return _Bounds(sums)
        index = self._rounded(sums[0])
        indices = index, index if rows is None else self._rounded(sums[1])
        return _Bounds(sums, self.cells.codes(columns, records, rows, lambda _: indices))

    def _count(self, cells: CellRecords, columns: Mapping[str, Column], codes: np.ndarray) -> None:
        """Counts the records of each cell; those that features before rounding may move are uncertain."""
        uncertain = np.zeros(codes.shape[1], bool)
        if self._float32:
            low, high = self._bounds(columns, codes.shape[1], np.arange(codes.shape[1])).codes
            uncertain = (low != high).any(axis=0)
        cells.count(codes, uncertain)
        cells.sample.find(codes, uncertain)

    def _labels_of(self, bounds: _Bounds) -> Ends:
        """Numbers of the least and the largest label that are predicted within bounds."""
        low, high = bounds.sums
        if self.cells is not None:
            least, most = self.cells.sums(*bounds.codes)
            limit = (self._labels - 1) * (_UNIT // 2)
            low = np.clip(low, -limit, limit) + least * _TO_SUMS
            high = np.clip(high, -limit, limit) + most * _TO_SUMS
        return self._rounded(low), self._rounded(high)

    def _rounded(self, sums: np.ndarray) -> np.ndarray:
        """Number of the label that is closest to a prediction, less the middle of the domain."""
        return np.clip((2 * sums + self._labels * _UNIT) // (2 * _UNIT), 0, self._labels - 1)
