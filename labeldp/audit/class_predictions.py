"""Second implementation of the probabilities of a center of classes: of each record from its own released features.

A record's probabilities are released as they are, so such as say more than the published center does could hold the
true class. Rows, codes, logits and trees are exact integer arithmetic; the exponentials of logits are not, so a
probability passes if it is one of the two next to a bound between two units.

For features that were rounded, rows and codes lie between bounds, so each logit does, and a probability is least for
the least logit of its class and the largest of all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .cell_predictions import CellRecords
from .center_document import ROW_UNIT
from .center_rows import CenterRows, Ends
from .class_center_document import COARSE, RowColumn, read_class_center
from .class_columns import PROBABILITY_UNIT
from .drawn_classes import DrawnClasses
from .interval_products import dot_bounds
from .manifest_statements import removed_records
from .shard_columns import Column

# Coefficients and logits are integer multiples of 1 / _LOGIT_UNIT.
_LOGIT_UNIT = 1 << 16
# Error of a probability in its units, in floating point.
_ERROR = 1e-6
_MOST_COARSE = 127


class _Logits(NamedTuple):
    """Bounds on the logits of n records, shape (n, K), int64, and on their codes, shape (d, n); without cells, none."""

    low: np.ndarray
    high: np.ndarray
    low_codes: np.ndarray
    high_codes: np.ndarray


class ClassPredictions:
    """Comparison of the probabilities of records with those that a center predicts, and of the drawn classes with them.

    Attributes:
      numbers: Names of the features that are numbers.
      categories: Names of the features that are categories.
      rounded: Number of records so far whose probabilities are not predicted, but possible before rounding.
      cells: Cells of the center and their trees; None without cells.
      drawn: Tallies of the drawn classes.
    """

    def __init__(self, mechanism: dict[str, Any], float32: bool):
        """Prepares the comparison; `float32` says whether records are TFRecords.

        The mechanism file, with a center of classes, passed its audit.
        """
        center = read_class_center(mechanism)
        assert center is not None
        self._center, self._float32, self.rounded = center, float32, 0
        self._rows = CenterRows(center.encoders, np.array(center.weights, np.int64), center.norm)
        self.numbers, self.categories = self._rows.numbers, self._rows.categories
        # With cells, logits have coefficients in place of the linear ones.
        self._linear = self._linear_or_cells = np.array(center.coefficients, np.float64)
        self._base = np.zeros(len(center.counts), np.int64)
        if center.cells is None and not center.sums:
            self._base = np.rint(np.log(center.shares) * _LOGIT_UNIT).astype(np.int64)
        self.cells, cells = None, center.cells
        if cells is not None:
            self._linear_or_cells = np.array(cells.coefficients, np.float64)
            records, sample = [sum(counts) for counts in cells.counts], [*cells.codes, *cells.rows]
            columns = [*cells.features, *cells.others]
            self.cells = CellRecords(cells, columns, sample, records, self._rows)
        self._sums = np.zeros((2, len(center.signal) + 1), object)
        self.drawn = DrawnClasses(center)

    def wrong(self, columns: Mapping[str, Column], probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Finds the records whose probabilities are not the predicted ones; shape (n,), bool.

        `columns` has the features of n records, those of `numbers` and `categories`; probabilities have shape (n, K),
        and labels, shape (n,), are places of classes, NaN for no class.
        """
        rows = self._rows.exact(columns, len(labels))
        exact = self._logits(columns, (rows, rows), None)
        wrong = (coded_probabilities(exact.low) != probabilities).any(axis=1)
        ends, possible = (rows, rows), exact
        if self._float32:
            everything = np.arange(len(labels))
            ends = self._rows.bounds(columns, everything)
            possible = self._logits(columns, ends, everything)
        self._sums += [end.sum(axis=0) for end in ends]
        self._count(ends, exact, possible, probabilities, labels, columns)
        suspects = np.flatnonzero(wrong)
        if not len(suspects):
            return wrong
        unrounded = _allowed(probabilities[suspects], exact.low[suspects], exact.high[suspects])
        allowed = _allowed(probabilities[suspects], possible.low[suspects], possible.high[suspects])
        self.rounded += int((allowed & ~unrounded).sum())
        wrong[suspects[allowed]] = False
        return wrong

    def _count(
        self,
        ends: Ends,
        exact: _Logits,
        possible: _Logits,
        probabilities: np.ndarray,
        labels: np.ndarray,
        columns: Mapping[str, Column],
    ) -> None:
        """Counts the classes of records by probability and by cell, and the records of each cell.

        Rows are between both ends.
        """
        cells = np.zeros(len(labels), np.intp)
        if self.cells is not None:
            uncertain, (low, high) = (possible.low_codes != possible.high_codes).any(axis=0), map(_coarse, ends)
            cells = self.cells.count(exact.low_codes, uncertain)
            values = np.concatenate([exact.low_codes, low.T.view(np.uint8)])
            self.cells.sample.find(values, uncertain | (low != high).any(axis=1))
        self.drawn.add(probabilities, labels, cells, columns)

    def made_from_these(self, release: dict[str, Any]) -> bool:
        """True if the center may be made from the records of a release: it has their numbers and sums of features.

        Sums and cells may have the records besides that were removed since.
        """
        center, removed = self._center, removed_records(release)
        if release["records"] != center.records:
            return False
        totals = [sum(row) for row in center.sums]
        least, most = self._sums.tolist()
        # No element of a row is above its norm.
        slack = removed * center.norm
        if any(not low - slack <= total <= high + slack for low, total, high in zip(least, totals, most, strict=False)):
            return False
        return self.cells is None or not any(self.cells.problems(release["records_without_label"], removed))

    def _logits(self, columns: Mapping[str, Column], rows: Ends, places: np.ndarray | None) -> _Logits:
        """Logits of records with these rows; with their places in the columns, of rows between two bounds."""
        cells, codes, trees = self.cells, (np.zeros((0, len(rows[0])), np.uint8),) * 2, (self._base, self._base)
        if cells is not None:
            logits = _products(rows, self._linear)

            def values(column: RowColumn) -> Ends:
                low, high = logits if column.logit else rows
                return low[:, column.place], high[:, column.place]

            codes = cells.codes(columns, len(rows[0]), places, values)
            trees = cells.sums(*codes)
        low, high = _products(rows, self._linear_or_cells)
        return _Logits(low + trees[0], high + trees[1], *codes)


def _products(rows: Ends, coefficients: np.ndarray) -> Ends:
    """Bounds on logits of rows between two bounds, shape (n, K), int64. Products are below 2^53: floats are exact."""
    low, high = rows
    if low is high:
        exact = np.floor_divide(low.astype(np.float64) @ coefficients, ROW_UNIT).astype(np.int64)
        return exact, exact
    ends = [dot_bounds(low, high, column.astype(np.int64)) for column in coefficients.T]
    least, most = (np.stack(end, axis=1) // ROW_UNIT for end in zip(*ends, strict=True))
    return least, most


def _coarse(rows: np.ndarray) -> np.ndarray:
    """Rows as samples have them, shape (n, m + 1), int8."""
    return np.clip((rows + COARSE // 2) // COARSE, -_MOST_COARSE, _MOST_COARSE).astype(np.int8)


def coded_probabilities(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits, shape (n, K), in whole units, at least 1 each; the likeliest class has the rest."""
    whole = np.floor(_scaled(softmax(logits / _LOGIT_UNIT))).astype(np.int64) + 1
    whole[np.arange(len(whole)), whole.argmax(axis=1)] += PROBABILITY_UNIT - whole.sum(axis=1)
    return whole


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits, shape (n, K)."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _scaled(shares: np.ndarray) -> np.ndarray:
    return shares * (PROBABILITY_UNIT - shares.shape[1])


def _allowed(stated: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Finds records whose stated probabilities may be those of logits between two bounds; all of shape (n, K)."""
    classes = stated.shape[1]
    least, most = np.empty(stated.shape), np.empty(stated.shape)
    for k in range(classes):
        for of_class, of_others, bound, error in ((low, high, least, -_ERROR), (high, low, most, _ERROR)):
            ends = of_others.copy()
            ends[:, k] = of_class[:, k]
            bound[:, k] = np.floor(_scaled(softmax(ends / _LOGIT_UNIT))[:, k] + error) + 1
    likeliest = most >= least.max(axis=1, keepdims=True)
    fits = (stated >= least) & (stated <= most + np.where(likeliest, classes, 0))
    return fits.all(axis=1) & (stated.sum(axis=1) == PROBABILITY_UNIT)
