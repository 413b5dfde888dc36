"""Second implementation of the rows of a center: from the released features of records, through the published map.

After encoding, everything is exact integer arithmetic.

TFRecords hold floats of 24 bits, but the job may have read more of them, from CSV or Parquet. A float x of a TFRecord
then stands for all numbers that round to x. Encoding is monotone, so the encoded feature lies between those of the two
ends; components and rows are bounded from the bounds of their terms.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .center_document import FEATURE_UNIT, LARGEST_FEATURE, ROW_UNIT, WEIGHT_UNIT, CodedColumn, category_steps
from .shard_columns import Column

# A component in units of 1 / (FEATURE_UNIT WEIGHT_UNIT) has this many bits more than one in units of 1 / ROW_UNIT.
_SHIFT = (FEATURE_UNIT * WEIGHT_UNIT // ROW_UNIT).bit_length() - 1
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

Ends = tuple[np.ndarray, np.ndarray]
"""Bounds on what records had before their features were rounded; one array twice where none was."""


def codes_of_cuts(cuts: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Codes of encoded values: the numbers of cuts that are at most these."""
    return np.searchsorted(np.array(cuts, np.int64), values, side="right")


class CenterRows:
    """Map from features to rows of m + 1 integers.

    Attributes:
      features: Encoders by name.
      numbers: Names of the features that are numbers.
      categories: Names of the features that are categories.
    """

    def __init__(self, encoders: Sequence[dict[str, Any]], weights: np.ndarray, norm: int):
        """Takes the encoders of a document, their weights, shape (w, m), int64, and the norm of rows."""
        self.features: dict[str, _Number | _Category] = {}
        first = 0
        for encoder in encoders:
            width = len(encoder.get("shares", [None]))
            kind = _Category if "shares" in encoder else _Number
            self.features[encoder["name"]] = kind(encoder, weights[first : first + width])
            first += width
        self.numbers = [name for name, feature in self.features.items() if isinstance(feature, _Number)]
        self.categories = [name for name in self.features if name not in self.numbers]
        self._components, self._norm = weights.shape[1], norm

    def exact(self, columns: Mapping[str, Column], records: int) -> np.ndarray:
        """Rows of n records, shape (n, m + 1), if no feature was rounded."""
        terms = np.zeros((records, self._components), np.int64)
        for name, feature in self.features.items():
            terms += feature.terms(columns[name])
        return self._rows(terms, terms)[0]

    def bounds(self, columns: Mapping[str, Column], rows: np.ndarray) -> Ends:
        """Bounds on the rows of some records before their features were rounded, each of shape (n, m + 1)."""
        low, high = (np.zeros((len(rows), self._components), np.int64) for _ in range(2))
        for name, feature in self.features.items():
            least, most = feature.bounds(columns[name], rows)
            low, high = low + least, high + most
        return self._rows(low, high)

    def _rows(self, low: np.ndarray, high: np.ndarray) -> Ends:
        """Bounds on rows whose components have terms between two bounds, shape (n, m), int64."""
        half = 1 << (_SHIFT - 1)
        front = np.full((len(low), 1), ROW_UNIT)
        low = np.concatenate([front, (low + half) >> _SHIFT], axis=1)
        high = np.concatenate([front, (high + half) >> _SHIFT], axis=1)
        outer = np.maximum(np.abs(low), np.abs(high))
        inner = np.where((low <= 0) & (high >= 0), 0, np.minimum(np.abs(low), np.abs(high)))
        longest = np.maximum(outer.sum(axis=1), self._norm)[:, None]
        shortest = np.maximum(inner.sum(axis=1), self._norm)[:, None]
        # Rows are shortened to the norm toward 0: the least for the largest length, where they are above 0.
        return (
            self._shortened(low, np.where(low < 0, shortest, longest)),
            self._shortened(high, np.where(high < 0, longest, shortest)),
        )

    def _shortened(self, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return np.sign(rows) * (np.abs(rows) * self._norm // lengths)


class _Number:
    def __init__(self, encoder: dict[str, Any], weights: np.ndarray):
        self._mean, self._spread, self._weights = encoder["mean"], encoder["spread"], weights

    def terms(self, column: Column) -> np.ndarray:
        """Terms of the components, shape (n, m), int64."""
        return self._encoded(column.numbers)[:, None] * self._weights

    def bounds(self, column: Column, rows: np.ndarray) -> Ends:
        """Bounds on the terms of some records for all numbers that round to theirs."""
        parts = [end[:, None] * self._weights for end in self._encoded_bounds(column, rows)]
        return np.minimum(*parts), np.maximum(*parts)

    def codes(self, column: Column, coded: CodedColumn) -> np.ndarray:
        """Codes of a column of codes, shape (n,)."""
        return codes_of_cuts(coded.cuts, self._encoded(column.numbers))

    def code_bounds(self, column: Column, rows: np.ndarray, coded: CodedColumn) -> Ends:
        """Least and largest codes of some records for all numbers that round to theirs."""
        least, most = self._encoded_bounds(column, rows)
        return codes_of_cuts(coded.cuts, least), codes_of_cuts(coded.cuts, most)

    def _encoded_bounds(self, column: Column, rows: np.ndarray) -> Ends:
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
        self._place_of = {value: place for place, value in enumerate(self._values)}
        step, means = category_steps(encoder)
        shift = (np.array(means, np.int64)[:, None] * weights).sum(axis=0)
        # The last place is that of missing and unknown values.
        self._table = np.concatenate([step * weights - shift, np.zeros((1, weights.shape[1]), np.int64)])

    def terms(self, column: Column) -> np.ndarray:
        """Terms of the components, shape (n, m), int64."""
        return self._table[self._places(column)]

    def bounds(self, column: Column, rows: np.ndarray) -> Ends:
        """Bounds on the terms of some records. A category of rounded floats may be any place."""
        exact, rounded = self.terms(column)[rows], column.floats[rows][:, None]
        return np.where(rounded, self._table.min(axis=0), exact), np.where(rounded, self._table.max(axis=0), exact)

    def codes(self, column: Column, coded: CodedColumn) -> np.ndarray:
        """Codes of a column of codes, shape (n,)."""
        return np.array(coded.places)[self._places(column)]

    def code_bounds(self, column: Column, rows: np.ndarray, coded: CodedColumn) -> Ends:
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
        if self._place_of:
            return self._place_of.get(text, self._width)
        return zlib.crc32(text.encode(errors="surrogatepass")) % self._width
