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

from .cell_document import DEPTH
from .cell_predictions import CellCounts, SampledRecords, cells_of, leaf_of
from .center_rows import CenterRows
from .class_center_document import COARSE, ClassCells, read_class_center
from .class_probabilities import PROBABILITY_UNIT
from .drawn_classes import DrawnClasses
from .interval_products import dot_bounds
from .removal_statement import removed_records
from .row_map_document import ROW_UNIT
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
        self._linear = np.array(center.coefficients, np.float64)
        self._base = np.zeros(len(center.counts), np.int64)
        if center.cells is None and not center.sums:
            self._base = np.rint(np.log(center.shares) * _LOGIT_UNIT).astype(np.int64)
        self._cells = None if center.cells is None else _Cells(center.cells, self._rows)
        self._sums = np.zeros((2, len(center.signal) + 1), object)
        self.drawn = DrawnClasses(center)

    def wrong(self, columns: Mapping[str, Column], probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Finds the records whose probabilities are not the predicted ones; shape (n,), bool.

        `columns` has the features of n records, those of `numbers` and `categories`; probabilities have shape (n, K),
        and labels, shape (n,), are places of classes, NaN for no class.
        """
        rows = self._rows.exact(columns, len(labels))
        exact = self._logits(columns, rows)
        wrong = (coded_probabilities(exact.low) != probabilities).any(axis=1)
        everything = np.arange(len(labels))
        ends = self._rows.bounds(columns, everything) if self._float32 else (rows, rows)
        self._sums += [end.sum(axis=0) for end in ends]
        possible = self._logits(columns, *ends, everything) if self._float32 else exact
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
        ends: tuple[np.ndarray, np.ndarray],
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
        if self._cells is not None:
            cells = cells_of(self._cells.nodes, exact.low_codes)
            self._cells.count(cells, exact.low_codes, ends, (possible.low_codes != possible.high_codes).any(axis=0))
        self.drawn.add(probabilities, labels, cells, columns)

    def made_from_these(self, release: dict[str, Any]) -> bool:
        """True if the center may be made from the records of a release: it has their numbers and sums of features.

        Sums and cells may have the records besides that were removed since.
        """
        center, others, removed = self._center, release["records_without_label"], removed_records(release)
        if release["records"] != center.records:
            return False
        totals = [sum(each) for each in center.sums]
        least, most = self._sums.tolist()
        # No element of a row is above its norm.
        slack = removed * center.norm
        if any(not low - slack <= total <= high + slack for low, total, high in zip(least, totals, most, strict=False)):
            return False
        return self._cells is None or self._cells.fit(others, removed)

    @property
    def sample(self) -> SampledRecords | None:
        """The sample of the center's cells, of which the records so far were taken; None without cells."""
        return None if self._cells is None else self._cells.sample

    def _logits(
        self,
        columns: Mapping[str, Column],
        low: np.ndarray,
        high: np.ndarray | None = None,
        places: np.ndarray | None = None,
    ) -> _Logits:
        """Logits of records with these rows, or of some records with rows between two bounds."""
        ends = _products(low, high, self._linear)
        if self._cells is None:
            none = np.zeros((0, len(low)), np.uint8)
            return _Logits(ends[0] + self._base, ends[1] + self._base, none, none)
        codes = self._cells.codes(columns, (low, low if high is None else high), ends, places)
        trees = self._cells.sums(*codes)
        ends = _products(low, high, self._cells.coefficients)
        return _Logits(ends[0] + trees[0], ends[1] + trees[1], *codes)


def _products(low: np.ndarray, high: np.ndarray | None, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on logits of rows between two bounds, shape (n, K), int64. Products are below 2^53: floats are exact."""
    if high is None:
        exact = np.floor_divide(low.astype(np.float64) @ coefficients, ROW_UNIT).astype(np.int64)
        return exact, exact
    ends = [dot_bounds(low, high, each.astype(np.int64)) for each in coefficients.T]
    least, most = (np.stack(each, axis=1) // ROW_UNIT for each in zip(*ends, strict=True))
    return least, most


class _Cells:
    """Codes, cells and trees of records.

    Attributes:
      nodes: Tree of the cells.
      coefficients: Shape (m + 1, K), whole float64.
    """

    def __init__(self, cells: ClassCells, rows: CenterRows):
        self.nodes, self.coefficients = cells.nodes, np.array(cells.coefficients, np.float64)
        self._cells, self._features = cells, list(rows.features.items())
        self._leaves = np.array(cells.leaves, np.int64).reshape(-1, 1 << DEPTH, self.coefficients.shape[1])
        sample = [np.frombuffer(each, np.uint8) for each in (*cells.codes, *cells.rows)]
        self._counts, self._sample = CellCounts(len(cells.counts)), SampledRecords(np.array(sample))

    def codes(
        self,
        columns: Mapping[str, Column],
        rows: tuple[np.ndarray, np.ndarray],
        logits: tuple[np.ndarray, np.ndarray],
        places: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest codes of n records, shape (d, n), uint8; `places` are there if features may be rounded."""
        features, others = self._cells.features, self._cells.others
        low = np.empty((len(features) + len(others), len(rows[0])), np.uint8)
        high = low if places is None else np.empty_like(low)
        for place, coded in enumerate(features):
            name, feature = self._features[coded.feature]
            if places is None:
                low[place] = feature.codes(columns[name], coded)
            else:
                low[place], high[place] = feature.code_bounds(columns[name], places, coded)
        for place, column in enumerate(others, len(features)):
            cuts = np.array(column.cuts, np.int64)
            for codes, values in zip((low, high), logits if column.logit else rows, strict=True):
                codes[place] = np.searchsorted(cuts, values[:, column.place], side="right")
        return low, high

    def sums(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the sums of the leaves of records whose codes are between two bounds, shape (n, K)."""
        least, most = (np.zeros((low.shape[1], self._leaves.shape[2]), np.int64) for _ in range(2))
        for (columns, cuts), leaves in zip(self._cells.splits, self._leaves, strict=True):
            first = leaf_of(low, columns, cuts)
            if low is high:
                least += leaves[first]
                continue
            # Where both ends agree on a level, so do all codes between them.
            free = first ^ leaf_of(high, columns, cuts)
            exact = leaves[first]
            least += exact
            most += exact
            open_rows = np.flatnonzero(free)
            reached = [leaves[first[open_rows] ^ (flipped & free[open_rows])] for flipped in range(1 << DEPTH)]
            least[open_rows] += np.minimum.reduce(reached) - exact[open_rows]
            most[open_rows] += np.maximum.reduce(reached) - exact[open_rows]
        return (least, least) if low is high else (least, most)

    def count(
        self, cells: np.ndarray, codes: np.ndarray, ends: tuple[np.ndarray, np.ndarray], uncertain: np.ndarray
    ) -> None:
        """Counts n records in cells, shape (n,), with codes of shape (d, n), and takes them from those of the sample.

        Rows are between both ends; `uncertain`, shape (n,), bool, are records whose codes are between two bounds.
        """
        low, high = (_coarse(end) for end in ends)
        self._counts.add(cells, uncertain)
        self._sample.find(np.concatenate([codes, low.T.view(np.uint8)]), uncertain | (low != high).any(axis=1))

    @property
    def sample(self) -> SampledRecords:
        return self._sample

    def fit(self, others: int, removed: int) -> bool:
        """True if cells have as many records as they say, and the sample is one of these and of others.

        `removed` is the number of records that were removed from the release since.
        """
        records = [sum(each) for each in self._cells.counts]
        return self._counts.fit(records, removed) and self._sample.fit(others + removed)


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
    for one in range(classes):
        for own, others, found, error in ((low, high, least, -_ERROR), (high, low, most, _ERROR)):
            ends = others.copy()
            ends[:, one] = own[:, one]
            found[:, one] = np.floor(_scaled(softmax(ends / _LOGIT_UNIT))[:, one] + error) + 1
    likeliest = most >= least.max(axis=1, keepdims=True)
    fits = (stated >= least) & (stated <= most + np.where(likeliest, classes, 0))
    return fits.all(axis=1) & (stated.sum(axis=1) == PROBABILITY_UNIT)
