"""Generated log of ad clicks, some of which lead to a sale, for trying the jobs.

Its statistics are modeled on those published of the Criteo Sponsored Search Conversion Log (Tallis and Yadav 2018,
as used in Ghazi et al. 2022, Section 4.1): 10.8 % of clicks convert; the conversion value is skewed, with a median of
about 60 and a 95th percentile of 400, where it is clipped; a product has 390 clicks in a week on average; and most
columns are hashed categories. Features are known at the time of the click; the value depends on them and on noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from ...mechanisms.noise.discrete_laplace import ByteStream

LABEL = "SalesAmountInEuro"
LABEL_MAX = 400
CONVERTED = "Sale"

_CONVERSION_RATE = 1_732_721 / 15_995_634
_MEDIAN_VALUE = 60.0
# The 95th percentile of the values before clipping is LABEL_MAX.
_SPREAD = np.log(LABEL_MAX / _MEDIAN_VALUE) / ndtri(0.95)
_MEAN_CLICKS_1WEEK = 390.0
_CLICKS_SPREAD = 1.4


@dataclass(frozen=True)
class _Category:
    """A hashed categorical column.

    levels: number of categories. popularity: exponent of their Zipf law. effect: share of the log value's variance
    that the column explains.
    """

    name: str
    levels: int
    popularity: float
    effect: float


_CATEGORIES = (
    _Category("partner_id", 300, 1.0, 0.10),
    _Category("product_brand", 4000, 0.9, 0.14),
    _Category("product_category_1", 20, 0.7, 0.20),
    _Category("product_category_2", 150, 0.9, 0.12),
    _Category("product_category_3", 700, 1.0, 0.06),
    _Category("product_country", 15, 1.5, 0.02),
    _Category("device_type", 4, 0.8, 0.01),
    _Category("audience_id", 500, 0.8, 0.0),
)
_CLICKS_EFFECT = 0.05
_UNEXPLAINED = 1.0 - _CLICKS_EFFECT - sum(category.effect for category in _CATEGORIES)


def click_batches(clicks: int, seed: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Generates the log in batches of `batch_rows` records; the last batch may be smaller.

    A batch depends on the seed, its number and its size, not on other batches. Its columns are the hashed categories
    (text), nb_clicks_1week and hour (int64), Sale (int64, 0 or 1) and SalesAmountInEuro (float32 in [0, 400], null
    unless Sale is 1).
    """
    key, tables = _world(seed)
    for number, start in enumerate(range(0, clicks, batch_rows)):
        yield _batch(tables, ByteStream(key, b"batch %d" % number), min(batch_rows, clicks - start))


def new_clicks(clicks: int, seed: int) -> pa.RecordBatch:
    """Generates clicks that are not in the log of this seed, from the same distribution, as `click_batches` does."""
    key, tables = _world(seed)
    return _batch(tables, ByteStream(key, b"new clicks"), clicks)


def _world(seed: int) -> tuple[bytes, list[_Table]]:
    """Key of the random numbers of a log, and its categories."""
    key = hashlib.blake2b(f"conversion log {seed}".encode(), digest_size=32).digest()
    return key, [_Table(category, key) for category in _CATEGORIES]


class _Table:
    """Hashed names of a category, its cumulative popularity and its effects, of mean 0 and variance 1."""

    def __init__(self, category: _Category, key: bytes):
        stream = ByteStream(key, category.name.encode())
        popularity = np.arange(1, category.levels + 1) ** -category.popularity
        self.category = category
        self.cumulative = np.cumsum(popularity) / popularity.sum()
        effects = _normals(stream, category.levels)
        mean = effects @ popularity / popularity.sum()
        deviation = np.sqrt((effects - mean) ** 2 @ popularity / popularity.sum())
        self.effects = (effects - mean) / deviation
        names = stream.take(8 * category.levels).hex()
        self.names = pa.array([names[start : start + 16] for start in range(0, len(names), 16)])


def _uniforms(stream: ByteStream, count: int) -> np.ndarray:
    """Draws numbers strictly between 0 and 1; shape (count,), float64."""
    integers = np.frombuffer(stream.take(8 * count), "<u8")
    return ((integers >> np.uint64(12)).astype(np.float64) + 0.5) / (1 << 52)


def _normals(stream: ByteStream, count: int) -> np.ndarray:
    return ndtri(_uniforms(stream, count))


def _batch(tables: list[_Table], stream: ByteStream, rows: int) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {}
    log_value = np.sqrt(_UNEXPLAINED) * _normals(stream, rows)
    for table in tables:
        levels = np.searchsorted(table.cumulative, _uniforms(stream, rows))
        columns[table.category.name] = table.names.take(pa.array(levels))
        log_value += np.sqrt(table.category.effect) * table.effects[levels]
    busy = _normals(stream, rows)
    log_value += np.sqrt(_CLICKS_EFFECT) * busy
    clicks = np.exp(_CLICKS_SPREAD * busy) * _MEAN_CLICKS_1WEEK / np.exp(_CLICKS_SPREAD**2 / 2)
    columns["nb_clicks_1week"] = pa.array(clicks.astype(np.int64))
    columns["hour"] = pa.array((_uniforms(stream, rows) * 24).astype(np.int64))
    converted = _uniforms(stream, rows) < _CONVERSION_RATE
    columns[CONVERTED] = pa.array(converted.astype(np.int64))
    values = np.minimum(np.round(_MEDIAN_VALUE * np.exp(_SPREAD * log_value), 2), LABEL_MAX)
    columns[LABEL] = pa.array(values.astype(np.float32), mask=~converted)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
