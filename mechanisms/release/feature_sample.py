"""Features of a center, and the sample of records that it is designed for. Both are public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..center.feature_rows import Categories, Columns
from ..center.linear_center import MOST_SAMPLE
from ..noise.keyed_words import Identities, words

# Records of a sample in which values may all differ by chance, and expected pairs of equal values that tell a counter.
_FEW, _REPEATED = 1000, 20


@dataclass(frozen=True)
class CenterFeatures:
    """Features of a center; text columns are categories.

    Without `id_column`, the column of unique ids, records are identified by file and row. `cells` tells whether the
    linear center may get cells; of classes, whether their center was asked for, whatever the histogram says. With
    `marginals`, the center is one of marginal sums; with both, `marginals_pay` chooses. The sample has at most `most`
    records. With `all_columns`, nobody named the features: `identifying` ones are left out.
    """

    names: tuple[str, ...]
    id_column: str | None = None
    cells: bool = False
    most: int = MOST_SAMPLE
    all_columns: bool = False
    marginals: bool = False

    @property
    def columns(self) -> list[str]:
        """Names of all columns to read."""
        return list(dict.fromkeys([*self.names, *([self.id_column] if self.id_column else [])]))


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Sample of some records: those with the smallest words.

    Attributes:
      words: Words of the sampled records, shape (s,), uint64, ascending.
      columns: Their features, in the same order.
      records: Number of records that were sampled from.
    """

    words: np.ndarray
    columns: Columns
    records: int


NO_SAMPLE = FeatureSample(np.zeros(0, np.uint64), {}, 0)
"""Sample for passes that read no features."""


def sample_words(secret: bytes, identities: Identities) -> np.ndarray:
    """Draws the words by which records are sampled, shape (n,), uint64: functions of identities and secret alone."""
    return words(secret, b"center sample", identities)


def smallest(drawn: np.ndarray, columns: Columns, records: int, most: int) -> FeatureSample:
    """Keeps at most `most` records with the smallest words, in the order of their words.

    `drawn` is the word of each record, shape (n,), uint64; `records` is the number of records that they were sampled
    from.
    """
    order = np.argsort(drawn, kind="stable")[:most]
    kept: dict[str, np.ndarray | Categories] = {}
    for name, column in columns.items():
        kept[name] = _picked(column, order) if isinstance(column, Categories) else column[order]
    return FeatureSample(drawn[order], kept, records)


def identifying(columns: Columns) -> list[str]:
    """Columns in which nearly all values differ as those of ids do: a model learns nothing from them.

    Of texts, nine of ten values differ. Whole numbers are a counter: all differ, where draws from as wide a range would
    repeat with a probability of at least 1 - exp(-20); so measurements are kept, however fine. Small samples have none.
    """
    return [name for name, column in columns.items() if _identifies(column)]


def _identifies(column: np.ndarray | Categories) -> bool:
    if isinstance(column, Categories):
        known = int(np.sum(column.codes >= 0))
        return known > _FEW and 10 * len(np.unique(column.codes[column.codes >= 0])) > 9 * known
    numbers = np.sort(column[np.isfinite(column)])
    if len(numbers) <= _FEW or not np.array_equal(numbers, np.floor(numbers)):
        return False
    # Of n draws from r values, however they are distributed, at least n (n - 1) / 2 r pairs are expected to be equal.
    pairs, values = len(numbers) * (len(numbers) - 1) / 2, numbers[-1] - numbers[0] + 1
    return bool(np.all(numbers[1:] > numbers[:-1]) and pairs > _REPEATED * values)


def _picked(column: Categories, order: np.ndarray) -> Categories:
    """Categories of some records, without the values that none of them has: they may be far more than the records."""
    codes = column.codes[order]
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(column.values)))
    # The code of a missing value, -1, is the last place.
    places = np.full(len(column.values) + 1, -1)
    places[used] = np.arange(len(used))
    return Categories(places[codes], tuple(column.values[code] for code in used))
