"""Second implementation of a linear center's predictions: the center of each record from its own released features.

A record's center is released as it is, so one that says more than the published map and coefficients do could be the
true label. After encoding, everything is exact integer arithmetic.

TFRecords hold floats of 24 bits, but the job may have read more of them, from CSV or Parquet. A float x of a TFRecord
then stands for all numbers that round to x. Encoding is monotone, so the encoded feature lies between those of the two
ends; components, rows, and predictions are bounded from the bounds of their terms. Where this interval is one label,
only that label passes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .cell_document import CodedColumn
from .cell_predictions import CellPredictions, codes_of_cuts
from .center_audit import (
    COEFFICIENT_UNIT,
    FEATURE_UNIT,
    LARGEST_FEATURE,
    ROW_UNIT,
    WEIGHT_UNIT,
    category_steps,
    read_linear_center,
)
from .documents import read_center
from .shard_columns import Column

# A component in units of 1 / (FEATURE_UNIT WEIGHT_UNIT) has this many bits more than one in units of 1 / ROW_UNIT.
_SHIFT = (FEATURE_UNIT * WEIGHT_UNIT // ROW_UNIT).bit_length() - 1
_UNIT = COEFFICIENT_UNIT * ROW_UNIT
# Leaves of trees are in units of 1 / 2^16 steps.
_TO_SUMS = _UNIT >> 16
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_NO_CODES = (np.zeros((0, 0), np.uint8),) * 2


class _Bounds(NamedTuple):
    """Bounds on the linear predictions of n records, each of shape (n,), and on their codes, each of shape (d, n).

    Without cells there are no codes. Bounds that are equal are one array.
    """

    sums: tuple[np.ndarray, np.ndarray]
    codes: tuple[np.ndarray, np.ndarray] = _NO_CODES


class CenterPredictions:
    """Comparison of the centers of records with those that a linear center predicts.

    Attributes:
      numbers: Names of the features that are numbers.
      categories: Names of the features that are categories.
      rounded: Number of records so far whose center is not predicted, but possible before features were rounded.
      cells: Cells of the center and their trees; None without cells.
    """

    def __init__(self, mechanism: dict[str, Any], float32: bool):
        """Prepares the comparison; `float32` says whether records are TFRecords.

        The mechanism file, with a linear center, passed its audit.
        """
        linear = read_linear_center(mechanism)
        assert linear is not None
        rows, coefficients = linear["center.linear.weights"], linear["center.linear.coefficients"]
        weights = np.array(rows, np.int64).reshape(len(rows), len(coefficients) - 1)
        self._features: dict[str, _Number | _Category] = {}
        place = 0
        for encoder in linear["center.linear.encoders"]:
            width = len(encoder.get("shares", [None]))
            kind = _Category if "shares" in encoder else _Number
            self._features[encoder["name"]] = kind(encoder, weights[place : place + width])
            place += width
        self.numbers = [name for name, each in self._features.items() if isinstance(each, _Number)]
        self.categories = [name for name in self._features if name not in self.numbers]
        self.rounded = 0
        self._weights = weights
        self._norm, self._labels = linear["center.linear.norm"], linear["center.linear.labels"]
        self._coefficients = np.array(coefficients, np.int64)
        domain = np.array(read_center(mechanism)["center.domain"])
        cells = linear["center.linear.cells"]
        self.cells = None if cells is None else CellPredictions(cells, self._features)
        self._float32 = float32
        self._domain = domain.astype(np.float32).astype(np.float64) if float32 else domain

    def wrong(self, columns: Mapping[str, Column], centers: np.ndarray) -> np.ndarray:
        """Finds the records whose center is not the predicted one; shape (n,), bool.

        `columns` has the features of n records, those of `numbers` and `categories`; centers have shape (n,), float64.
        """
        exact = self._exact(columns, len(centers))
        found, _ = self._labels_of(exact)
        wrong = self._domain[found].view(np.uint64) != centers.view(np.uint64)
        if self.cells is not None:
            self._count(self.cells, columns, exact.codes[0])
        if not self._float32 or not wrong.any():
            return wrong
        rows = np.flatnonzero(wrong)
        first, last = self._labels_of(self._possible(columns, rows))
        # Equal labels in float32 are one.
        place = np.searchsorted(self._domain, np.nan_to_num(centers[rows]))
        same = self._domain[np.minimum(place, len(self._domain) - 1)].view(np.uint64) == centers[rows].view(np.uint64)
        possible = same & (self._domain[first] <= centers[rows]) & (centers[rows] <= self._domain[last])
        self.rounded += int(possible.sum())
        wrong[rows[possible]] = False
        return wrong

    def _exact(self, columns: Mapping[str, Column], records: int) -> _Bounds:
        """What all records have, if no feature was rounded."""
        terms = np.zeros((records, self._weights.shape[1]), np.int64)
        for name, feature in self._features.items():
            terms += feature.terms(columns[name])
        sums, _ = self._sums(terms, terms)
        if self.cells is None:
            return _Bounds((sums, sums))
        codes = self.cells.codes(columns, self._rounded(sums))
        return _Bounds((sums, sums), (codes, codes))

    def _possible(self, columns: Mapping[str, Column], rows: np.ndarray) -> _Bounds:
        """What some records may have had before their features were rounded."""
        low, high = (np.zeros((len(rows), self._weights.shape[1]), np.int64) for _ in range(2))
        for name, feature in self._features.items():
            least, most = feature.bounds(columns[name], rows)
            low, high = low + least, high + most
        sums = self._sums(low, high)
        if self.cells is None:
            return _Bounds(sums)
        return _Bounds(sums, self.cells.code_bounds(columns, rows, *map(self._rounded, sums)))

    def _count(self, cells: CellPredictions, columns: Mapping[str, Column], codes: np.ndarray) -> None:
        """Counts the records of each cell; those that features before rounding may move are uncertain."""
        uncertain = np.zeros(codes.shape[1], bool)
        if self._float32:
            low, high = self._possible(columns, np.arange(codes.shape[1])).codes
            uncertain = (low != high).any(axis=0)
        cells.count(codes, uncertain)

    def _labels_of(self, bounds: _Bounds) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the least and the largest label that are predicted within bounds."""
        low, high = bounds.sums
        if self.cells is not None:
            least, most = self.cells.sums(*bounds.codes)
            limit = (self._labels - 1) * (_UNIT // 2)
            low, high = (
                np.clip(each, -limit, limit) + trees * _TO_SUMS for each, trees in ((low, least), (high, most))
            )
        return self._rounded(low), self._rounded(high)

    def _sums(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest linear prediction, less the middle of the domain, in units of 1 / _UNIT steps.

        The terms of the components are between two bounds, shape (n, m), int64.
        """
        half = 1 << (_SHIFT - 1)
        front = np.full((len(low), 1), ROW_UNIT)
        low = np.concatenate([front, (low + half) >> _SHIFT], axis=1)
        high = np.concatenate([front, (high + half) >> _SHIFT], axis=1)
        outer = np.maximum(np.abs(low), np.abs(high))
        inner = np.where((low <= 0) & (high >= 0), 0, np.minimum(np.abs(low), np.abs(high)))
        longest = np.maximum(outer.sum(axis=1), self._norm)[:, None]
        shortest = np.maximum(inner.sum(axis=1), self._norm)[:, None]
        # Rows are shortened to the norm toward 0: the least for the largest length, where they are above 0.
        low = self._shortened(low, np.where(low < 0, shortest, longest))
        high = self._shortened(high, np.where(high < 0, longest, shortest))
        ends = low * self._coefficients, high * self._coefficients
        return np.minimum(*ends).sum(axis=1), np.maximum(*ends).sum(axis=1)

    def _rounded(self, sums: np.ndarray) -> np.ndarray:
        """Number of the label that is closest to a prediction, less the middle of the domain."""
        return np.clip((2 * sums + self._labels * _UNIT) // (2 * _UNIT), 0, self._labels - 1)

    def _shortened(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return np.sign(rows) * (np.abs(rows) * self._norm // lengths)


class _Number:
    def __init__(self, encoder: dict[str, Any], weights: np.ndarray):
        self._mean, self._spread, self._weights = encoder["mean"], encoder["spread"], weights

    def terms(self, column: Column) -> np.ndarray:
        """Terms of the components, shape (n, m), int64."""
        return self._encoded(column.numbers)[:, None] * self._weights

    def bounds(self, column: Column, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the terms of some records for all numbers that round to theirs."""
        parts = [end[:, None] * self._weights for end in self._encoded_bounds(column, rows)]
        return np.minimum(*parts), np.maximum(*parts)

    def codes(self, column: Column, coded: CodedColumn) -> np.ndarray:
        """Codes of a column of codes, shape (n,)."""
        return codes_of_cuts(coded, self._encoded(column.numbers))

    def code_bounds(self, column: Column, rows: np.ndarray, coded: CodedColumn) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest codes of some records for all numbers that round to theirs."""
        least, most = self._encoded_bounds(column, rows)
        return codes_of_cuts(coded, least), codes_of_cuts(coded, most)

    def _encoded_bounds(self, column: Column, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the encoded numbers of some records, shape (n,)."""
        numbers = column.numbers[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            single = numbers.astype(np.float32)
            below, above = (np.nextafter(single, np.float32(side)).astype(np.float64) for side in (-np.inf, np.inf))
            # Between the largest floats and infinity, numbers round as if floats went on.
            below = np.where(np.isinf(below), 2 * numbers - above, below)
            above = np.where(np.isinf(above), 2 * numbers - below, above)
            ends = [self._encoded(numbers + (end - numbers) / 2) for end in (below, above)]
        exact = self._encoded(numbers)
        least, most = np.minimum(ends[0], exact), np.maximum(ends[1], exact)
        # An infinite one may be too large for a float32, or missing.
        least = np.where(numbers == np.inf, np.minimum(self._encoded(_LARGEST_FLOAT32), 0), least)
        most = np.where(numbers == np.inf, LARGEST_FEATURE * FEATURE_UNIT, most)
        least = np.where(numbers == -np.inf, -LARGEST_FEATURE * FEATURE_UNIT, least)
        most = np.where(numbers == -np.inf, np.maximum(self._encoded(-_LARGEST_FLOAT32), 0), most)
        rounded = column.floats[rows] & ~np.isnan(numbers)
        return np.where(rounded, least, exact), np.where(rounded, most, exact)

    def _encoded(self, numbers: np.ndarray | float) -> np.ndarray:
        """Standardized, clipped, and rounded to multiples of 1 / FEATURE_UNIT; 0 for a missing number."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(np.isfinite(numbers), (np.asarray(numbers) - self._mean) / self._spread, 0.0)
        return np.rint(np.clip(scaled, -LARGEST_FEATURE, LARGEST_FEATURE) * FEATURE_UNIT).astype(np.int64)


class _Category:
    def __init__(self, encoder: dict[str, Any], weights: np.ndarray):
        self._values, self._width = encoder["values"], len(encoder["shares"])
        self._own = {value: place for place, value in enumerate(self._values)}
        step, means = category_steps(encoder)
        shift = (np.array(means, np.int64)[:, None] * weights).sum(axis=0)
        # The last place is that of missing and unknown values.
        self._table = np.concatenate([step * weights - shift, np.zeros((1, weights.shape[1]), np.int64)])

    def terms(self, column: Column) -> np.ndarray:
        """Terms of the components, shape (n, m), int64."""
        return self._table[self._places(column)]

    def bounds(self, column: Column, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the terms of some records. A category of rounded floats may be any place."""
        exact, rounded = self.terms(column)[rows], column.floats[rows][:, None]
        return np.where(rounded, self._table.min(axis=0), exact), np.where(rounded, self._table.max(axis=0), exact)

    def codes(self, column: Column, coded: CodedColumn) -> np.ndarray:
        """Codes of a column of codes, shape (n,)."""
        return np.array(coded.places)[self._places(column)]

    def code_bounds(self, column: Column, rows: np.ndarray, coded: CodedColumn) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest codes of some records, as of `bounds`."""
        exact, rounded = self.codes(column, coded)[rows], column.floats[rows]
        return np.where(rounded, min(coded.places), exact), np.where(rounded, max(coded.places), exact)

    def _places(self, column: Column) -> np.ndarray:
        """Places of the values of n records, shape (n,)."""
        places = np.array([*(self._place(value) for value in column.values), self._width])
        return places[column.codes]

    def _place(self, value: Any) -> int:
        if isinstance(value, int) and self._values == ["False", "True"]:
            value = bool(value)  # TFRecords hold booleans as integers
        text = str(value)
        if self._own:
            return self._own.get(text, self._width)
        return zlib.crc32(text.encode(errors="surrogatepass")) % self._width
