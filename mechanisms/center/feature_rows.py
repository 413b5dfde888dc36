"""Integer feature rows of bounded norm: the map from public features to the rows that a linear center is built on.

A row is a(x) = (1, u_1, ..., u_m), where u_j are principal components of the encoded features, whitened, so that each
has variance 1 over the records. Rows are rounded to integers and shortened to an L1 norm of at most A. Changing one
label by one unit then changes the sum of a(x) y over all records by at most A in L1 norm, so discrete Laplace noise
protects the sum. The map is computed from a public sample of features and contains nothing about labels.

Features are encoded as follows. A number is standardized and clipped to four standard deviations; a missing one is
the mean. A category becomes one indicator for each value, or for each of a declared number of places to which its
values are hashed, less the mean, and scaled so that the whole category has variance 1; a missing or an unknown one is
the mean.

After encoding, everything is exact integer arithmetic, so rows are the same on every CPU.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ..core.reproducible import one_blas_thread

ROW_UNIT = 1 << 8
"""Rows are integer multiples of 1 / ROW_UNIT; the constant in front has this value."""
FEATURE_UNIT = 1 << 10
"""Encoded features are integer multiples of 1 / FEATURE_UNIT."""
WEIGHT_UNIT = 1 << 14
"""Weights of the components are integer multiples of 1 / WEIGHT_UNIT."""
LARGEST_FEATURE = 4
"""Standardized numbers are clipped here: outliers would dominate the components."""
MOST_ENCODED = 1 << 12
"""Largest number of encoded features."""
MOST_WEIGHT = 1 << 26
"""Largest weight."""

MOST_NORM = 1 << 24
"""Largest norm of a row, in units of 1 / ROW_UNIT."""

# Whole numbers below this, and their sums in any order, are exact in float64.
_MOST_EXACT = 2.0**53
# Records whose rows are computed at a time.
_BLOCK = 1 << 9
_SHIFT = (FEATURE_UNIT * WEIGHT_UNIT // ROW_UNIT).bit_length() - 1


@dataclass(frozen=True, eq=False)
class Categories:
    """Column of categories.

    Attributes:
      codes: Index of the value of each record, shape (n,), integers; -1 where it is missing.
      values: The distinct values.
    """

    codes: np.ndarray
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, eq=False)
class HashedTexts:
    """Column of texts of which only hashes are needed.

    Attributes:
      hashes: CRC-32 of each text in UTF-8, shape (n,), int64; -1 where it is missing.
    """

    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.hashes)


Columns = Mapping[str, "np.ndarray | Categories"]
"""Features of n records by name: numbers, shape (n,), float64, NaN where missing; or categories."""

MappedColumns = Mapping[str, "np.ndarray | Categories | HashedTexts"]
"""The same for a map: hashes may take the place of categories of which all values are hashed."""


@dataclass(frozen=True)
class Number:
    """Encoder of a numeric feature, from its mean and its standard deviation, > 0, over the sample."""

    name: str
    mean: float
    spread: float

    width = 1

    def encode(self, column: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Encodes numbers, shape (n,), float64, NaN where missing, as multiples of 1 / FEATURE_UNIT, whole float64.

        They are written to `out`, of the same shape and type, unless it is None.
        """
        # In place: with a new array for each step it takes three times as long.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.subtract(column, self.mean, out=out)
            scaled /= self.spread
        scaled[~np.isfinite(column)] = 0.0
        np.minimum(np.maximum(scaled, -LARGEST_FEATURE, out=scaled), LARGEST_FEATURE, out=scaled)
        scaled *= FEATURE_UNIT
        return np.rint(scaled, out=scaled)

    def largest(self, sizes: np.ndarray) -> np.ndarray:
        """Bounds the terms that this feature adds to the components, shape (m,).

        `sizes` are absolute weights, shape (1, m), whole float64.
        """
        return LARGEST_FEATURE * FEATURE_UNIT * sizes[0]


@dataclass(frozen=True)
class Category:
    """Encoder of a category.

    Attributes:
      name: Name of the column.
      values: The values that have a place of their own; empty if all values are hashed.
      shares: Share of each place in the records of the sample that have a value, in [0, 1].
      spread: Square root of the sum of s (1 - s) over the shares s, > 0.
    """

    name: str
    values: tuple[str, ...]
    shares: tuple[float, ...]
    spread: float

    @property
    def width(self) -> int:
        """Number of places."""
        return len(self.shares)

    @property
    def hashed(self) -> bool:
        """True if all values are hashed."""
        return not self.values

    def places(self, column: np.ndarray | Categories | HashedTexts) -> np.ndarray:
        """Finds the places of n records, integers in [0, width); `width` where the value is missing or unknown."""
        width = self.width
        if isinstance(column, HashedTexts) and self.hashed:
            # A remainder of a power of two is the lowest bits: numpy divides integers slowly.
            places = column.hashes & (width - 1) if width & (width - 1) == 0 else column.hashes % width
            return np.where(column.hashes < 0, width, places)
        assert isinstance(column, Categories)
        if self.values:
            own = {value: place for place, value in enumerate(self.values)}
            found = np.array([own.get(each, width) for each in column.values], np.int64)
        else:
            found = hashed_places(column.values, width)
        # The code of a missing value, -1, is the last place.
        return np.append(found, width)[column.codes]

    def steps(self, weights: np.ndarray) -> np.ndarray:
        """Tabulates what each place adds to the components.

        The weights of the places have shape (width, m), the result (width + 1, m), both whole float64. The last row,
        for a missing value, is 0.
        """
        step, means = self._units()
        shift = (means[:, None] * weights).sum(axis=0)
        return np.concatenate([step * weights - shift, np.zeros((1, weights.shape[1]))])

    def gathered(self, sums: np.ndarray) -> np.ndarray:
        """Computes sums of encoded features times numbers, shape (width, m), from the sums of these numbers.

        The latter are sums over the records of each place, shape (width + 1, m); the last row, of missing values, adds
        nothing.
        """
        step, means = self._units()
        return step * sums[:-1] - means[:, None] * sums[:-1].sum(axis=0)

    def squares(self, counts: np.ndarray) -> float:
        """Computes the sum of the squares of the encoded features over all records and places.

        `counts` are the records in each place, shape (width,).
        """
        step, means = self._units()
        return float((counts * ((step - means) ** 2 - means**2)).sum() + counts.sum() * (means**2).sum())

    def largest(self, sizes: np.ndarray) -> np.ndarray:
        """Bounds the terms that this feature adds to the components, and the terms of `steps`; shape (m,).

        `sizes` are absolute weights of the places, shape (width, m), whole float64.
        """
        step, means = self._units()
        return step * sizes.max(axis=0) + (means[:, None] * sizes).sum(axis=0)

    def _units(self) -> tuple[float, np.ndarray]:
        """Contribution of an indicator to its encoded feature, and the means of the indicators, in multiples of it."""
        return np.rint(FEATURE_UNIT / self.spread), np.rint(FEATURE_UNIT * np.array(self.shares) / self.spread)


Encoder = Number | Category


def hashed_places(values: Sequence[str], places: int) -> np.ndarray:
    """Hashes categories to places: CRC-32 of each value, in UTF-8, modulo `places`, >= 1; int64."""
    return np.array([zlib.crc32(each.encode(errors="surrogatepass")) for each in values], np.int64) % places


@dataclass(frozen=True, eq=False)
class RowMap:
    """Map from features to integer rows of bounded L1 norm.

    Attributes:
      encoders: Encoders of the features.
      weights: Weights of the encoded features in each component, shape (w, m), int64, w the total width.
      norm: Bound A on the L1 norm of a row, in units of 1 / ROW_UNIT, >= ROW_UNIT.
    """

    encoders: tuple[Encoder, ...]
    weights: np.ndarray
    norm: int

    def __post_init__(self) -> None:
        """Raises ValueError if the weights do not fit the encoders, or numbers are too large for exact arithmetic."""
        if self.weights.ndim != 2 or len(self.weights) != sum(each.width for each in self.encoders):
            raise ValueError("the weights of the center do not fit its features")
        if len(self.weights) > MOST_ENCODED or np.abs(self.weights).max(initial=0) > MOST_WEIGHT:
            raise ValueError("the weights of the center are too many or too large")
        if self._largest() >= _MOST_EXACT:
            raise ValueError("the weights of the center are too large for the spread of its features")
        if not ROW_UNIT <= self.norm <= MOST_NORM:
            raise ValueError("the norm of the center's rows is out of range")

    def _largest(self) -> float:
        """Bound on the sum of the absolute values of all terms of a component, before it is rounded to a row."""
        total, place = np.zeros(self.weights.shape[1]), 0
        for each in self.encoders:
            part = np.abs(self.weights[place : place + each.width]).astype(np.float64)
            total += each.largest(part)
            place += each.width
        return float(total.max(initial=0.0))

    @property
    def columns(self) -> list[str]:
        """Names of the features."""
        return [each.name for each in self.encoders]

    @property
    def size(self) -> int:
        """Length of a row, m + 1."""
        return self.weights.shape[1] + 1

    @cached_property
    def _parts(self) -> tuple[np.ndarray, list[Category], np.ndarray]:
        """Weights of the numbers, the categories, and their tables on top of each other."""
        bounds = np.cumsum([0, *(each.width for each in self.encoders)])
        parts = [self.weights[a:b].astype(np.float64) for a, b in itertools.pairwise(bounds)]
        numbers = [part for each, part in zip(self.encoders, parts, strict=True) if isinstance(each, Number)]
        categories = [each for each in self.encoders if isinstance(each, Category)]
        tables = [
            each.steps(part) for each, part in zip(self.encoders, parts, strict=True) if isinstance(each, Category)
        ]
        none = np.zeros((0, self.size - 1))
        return np.concatenate([none, *numbers]), categories, np.concatenate([none, *tables])

    def rows(self, columns: MappedColumns) -> np.ndarray:
        """Maps features of n records to rows, shape (n, m + 1), int64: the L1 norm of each is at most `norm`."""
        weights, categories, tables = self._parts
        numbers = [each for each in self.encoders if isinstance(each, Number)]
        records = len(next(iter(columns.values())))
        encoded = np.empty((len(numbers), records))
        for each, place in zip(numbers, encoded, strict=True):
            each.encode(np.asarray(columns[each.name], np.float64), place)
        # All terms and their sums are integers below 2^53, so BLAS adds them exactly, in whatever order.
        with one_blas_thread():
            found = encoded.T @ weights
        if categories:
            found += indicators(categories, columns) @ tables
        rows = np.empty((records, self.size), np.int64)
        rows[:, 0] = ROW_UNIT
        # Blocks that stay in the processor's cache.
        for start in range(0, records, _BLOCK):
            block = slice(start, start + _BLOCK)
            whole = found[block].astype(np.int64)
            whole += 1 << (_SHIFT - 1)
            np.right_shift(whole, _SHIFT, out=rows[block, 1:])
            shorten(rows[block], self.norm)
        return rows


def indicators(categories: Sequence[Category], columns: MappedColumns) -> csr_array:
    """Finds the places of categories, as a sparse matrix of n rows.

    For each encoder in turn, it has one indicator for each place, and one for missing or unknown values.
    """
    found: list[np.ndarray] = []
    width = 0
    for each in categories:
        found.append(each.places(columns[each.name]) + width)
        width += each.width + 1
    places = np.stack(found, axis=1) if found else np.zeros((len(next(iter(columns.values()))), 0), np.int64)
    ends = np.arange(len(places) + 1) * len(found)
    return csr_array((np.ones(places.size), places.ravel(), ends), shape=(len(places), width))


def shorten(rows: np.ndarray, norm: int) -> None:
    """Shortens rows in place, shape (n, m), int64, to an L1 norm of at most `norm`, >= 1.

    Each entry is rounded toward 0.
    """
    # Sums over short rows by `sum` take several times as long.
    lengths = np.einsum("ij->i", np.abs(rows))
    long = np.flatnonzero(lengths > norm)
    if len(long):
        found = rows[long]
        rows[long] = np.sign(found) * (np.abs(found) * norm // lengths[long, None])


def encoders_of(sample: Columns, places: int) -> tuple[Encoder, ...]:
    """Chooses encoders from a public sample of at least one record, in the order of the columns.

    Columns without information, of one value only, have none. A category of more than `places` values is hashed.
    """
    found: list[Encoder] = []
    for name, column in sample.items():
        encoder = _category(name, column, places) if isinstance(column, Categories) else number_of(name, column)
        if encoder is not None:
            found.append(encoder)
    return tuple(found)


def number_of(name: str, column: np.ndarray) -> Number | None:
    """Encoder of a number from its values in a sample, shape (n,); None where they do not differ."""
    known = column[np.isfinite(column)]
    if not len(known):
        return None
    # Sorted, so that the sums do not depend on the order of the sample; halved, so that they do not overflow.
    known = np.sort(known)
    scale = float(np.abs(known[[0, -1]]).max())
    # Means and spreads would overflow, or be subnormal numbers of few bits.
    if not 1e-280 < scale < np.finfo(np.float64).max / 4:
        return None
    unit = known / scale
    mean = unit.sum() / len(unit)
    spread = np.sqrt(((unit - mean) ** 2).sum() / len(unit))
    if not spread > 1e-9:
        return None
    return Number(name, float(mean * scale), float(spread * scale))


def _category(name: str, column: Categories, places: int) -> Category | None:
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.values))
    present = sorted(value for value, count in zip(column.values, counts, strict=True) if count)
    if len(present) < 2:
        return None
    own = tuple(present) if len(present) <= places else ()
    width = len(own) or places
    in_place = Category(name, own, (0.0,) * width, 1.0).places(column)
    totals = np.bincount(in_place, minlength=width + 1)[:width]
    # Of the records that have a value: the mean over all records is 0 then, as for numbers.
    shares = tuple((totals / totals.sum()).tolist())
    spread = category_spread(shares)
    return Category(name, own, shares, spread) if spread > 0 else None


def category_spread(shares: Sequence[float]) -> float:
    """Standard deviation of all indicators of a category together, from the shares of the records in each place.

    It is the square root of the sum of s (1 - s) over the shares s.
    """
    return math.sqrt(sum(share * (1 - share) for share in shares))
