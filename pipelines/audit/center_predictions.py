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
from typing import Any

import numpy as np

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
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class CenterPredictions:
    """Comparison of the centers of records with those that a linear center predicts.

    Attributes:
      numbers: Names of the features that are numbers.
      categories: Names of the features that are categories.
      rounded: Number of records so far whose center is not predicted, but possible before features were rounded.
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
        self._float32 = float32
        self._domain = domain.astype(np.float32).astype(np.float64) if float32 else domain

    def wrong(self, columns: Mapping[str, Column], centers: np.ndarray) -> np.ndarray:
        """Finds the records whose center is not the predicted one; shape (n,), bool.

        `columns` has the features of n records, those of `numbers` and `categories`; centers have shape (n,), float64.
        """
        size = self._weights.shape[1]
        terms = np.zeros((len(centers), size), np.int64)
        for name, feature in self._features.items():
            terms += feature.terms(columns[name])
        found = self._indices(terms, terms)[0]
        wrong = self._domain[found].view(np.uint64) != centers.view(np.uint64)
        if not self._float32 or not wrong.any():
            return wrong
        rows = np.flatnonzero(wrong)
        low, high = np.zeros((len(rows), size), np.int64), np.zeros((len(rows), size), np.int64)
        for name, feature in self._features.items():
            least, most = feature.bounds(columns[name], rows)
            low, high = low + least, high + most
        first, last = self._indices(low, high)
        # Equal labels in float32 are one.
        place = np.searchsorted(self._domain, np.nan_to_num(centers[rows]))
        same = self._domain[np.minimum(place, len(self._domain) - 1)].view(np.uint64) == centers[rows].view(np.uint64)
        possible = same & (self._domain[first] <= centers[rows]) & (centers[rows] <= self._domain[last])
        self.rounded += int(possible.sum())
        wrong[rows[possible]] = False
        return wrong

    def _indices(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest label for sums of terms between two bounds, shape (n, m), int64."""
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
        unit = 2 * COEFFICIENT_UNIT * ROW_UNIT
        doubled = (2 * end.sum(axis=1) + self._labels * (unit // 2) for end in (np.minimum(*ends), np.maximum(*ends)))
        least, most = (np.clip(each // unit, 0, self._labels - 1) for each in doubled)
        return least, most

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
        parts = [np.where(rounded, end, exact)[:, None] * self._weights for end in (least, most)]
        return np.minimum(*parts), np.maximum(*parts)

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
        places = np.array([*(self._place(value) for value in column.values), self._width])
        return self._table[places[column.codes]]

    def bounds(self, column: Column, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on the terms of some records. A category of rounded floats may be any place."""
        exact, rounded = self.terms(column)[rows], column.floats[rows][:, None]
        return np.where(rounded, self._table.min(axis=0), exact), np.where(rounded, self._table.max(axis=0), exact)

    def _place(self, value: Any) -> int:
        if isinstance(value, int) and self._values == ["False", "True"]:
            value = bool(value)  # TFRecords hold booleans as integers
        text = str(value)
        if self._own:
            return self._own.get(text, self._width)
        return zlib.crc32(text.encode(errors="surrogatepass")) % self._width
