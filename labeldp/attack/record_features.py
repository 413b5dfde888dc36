"""Features of records for a predictor: columns as they are read, and the matrix that trees are fitted to.

Times become numbers, because a time that is set after the label tells much about it. A missing value is a value of its
own: trees send it to one side of each split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..mechanisms.center.feature_rows import Categories, Columns
from ..transforms.arrow_values import is_number, is_text, is_time, single_values, value_type
from ..transforms.batches import LabelledBatch
from ..transforms.center.feature_columns import concatenated, feature_columns

MOST_CATEGORIES = 200
"""Largest number of values of a category that trees tell apart; rarer ones are one value together."""
# Days and milliseconds, too, fit into 64 bits.
_WIDTHS = {32: pa.int32(), 64: pa.int64()}


@dataclass(frozen=True, eq=False)
class FeatureMatrix:
    """Features of n records as numbers.

    Attributes:
      names: Names of the d columns.
      values: Shape (n, d), float64, NaN where missing. Of a category, places of its values.
      categories: Shape (d,), bool: the columns that are categories.
    """

    names: tuple[str, ...]
    values: np.ndarray = dataclasses.field(repr=False)
    categories: np.ndarray

    @classmethod
    def of(cls, columns: Columns, records: int) -> FeatureMatrix:
        """Makes the matrix of columns of n records; without columns, it has one that is 0."""
        if not columns:
            return cls(("",), np.zeros((records, 1)), np.zeros(1, bool))
        values = [_places(column) if isinstance(column, Categories) else column for column in columns.values()]
        kinds = [isinstance(column, Categories) for column in columns.values()]
        return cls(tuple(columns), np.stack(values, axis=1), np.array(kinds))

    def with_numbers(self, name: str, numbers: np.ndarray) -> FeatureMatrix:
        """Adds numbers, shape (n,) or (n, c), as further columns."""
        numbers = numbers.reshape(len(self.values), -1)
        added = numbers.shape[1]
        return FeatureMatrix(
            (*self.names, *[name] * added),
            np.concatenate([self.values, numbers], axis=1),
            np.append(self.categories, np.zeros(added, bool)),
        )


def _places(column: Categories) -> np.ndarray:
    """Places of the values by their frequency, shape (n,), float64; NaN where missing."""
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.values))
    # Of equally frequent values, the first in the order of the text: not that of the records.
    order = sorted(range(len(counts)), key=lambda code: (-counts[code], column.values[code]))
    ranks = np.empty(len(counts) + 1)
    ranks[order] = np.minimum(np.arange(len(counts)), MOST_CATEGORIES)
    ranks[-1] = np.nan
    return ranks[column.codes]


def column_names(schema: pa.Schema, without: Collection[str]) -> list[str]:
    """Names of the columns that can be features: numbers, text and times, and lists of them."""
    return [field.name for field in schema if field.name not in without and _is_feature(field.type)]


def _is_feature(kind: pa.DataType) -> bool:
    kind = value_type(kind)
    return is_number(kind) or is_text(kind) or is_time(kind)


def read_columns(batches: Sequence[LabelledBatch], names: Sequence[str]) -> dict[str, np.ndarray | Categories]:
    """Reads columns of consecutive batches; a column without any value is left out.

    Raises InputError, which names the column, if one has numbers in one batch and text in another.
    """
    parts = [feature_columns(_with_times_as_numbers(batch), names) for batch in batches]
    return concatenated(parts, [batch.batch.num_rows for batch in batches])


def _with_times_as_numbers(batch: LabelledBatch) -> LabelledBatch:
    kinds = batch.batch.schema.types
    if not any(is_time(value_type(kind)) for kind in kinds):
        return batch
    columns = [
        _time_numbers(column) if is_time(value_type(kind)) else column
        for column, kind in zip(batch.batch.columns, kinds, strict=True)
    ]
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays(columns, batch.batch.schema.names))


def _time_numbers(column: pa.Array) -> pa.Array:
    """Times as numbers in the unit of their type; missing where a record has not exactly one."""
    values, present = single_values(column)
    numbers = np.full(len(column), np.nan)
    numbers[present] = values.cast(_WIDTHS[values.type.bit_width]).cast(pa.float64(), safe=False).to_numpy()
    return pa.array(numbers)


def texts_of(column: np.ndarray | Categories) -> np.ndarray:
    """Text of each value, shape (n,), objects; "missing" where there is none."""
    if isinstance(column, Categories):
        return np.array([*column.values, "missing"], object)[column.codes]
    found, places = np.unique(column, return_inverse=True)
    return np.array(["missing" if np.isnan(value) else f"{value:.12g}" for value in found], object)[places]


def first_difference(ours: np.ndarray | Categories, theirs: np.ndarray | Categories) -> int | None:
    """First record in which two columns differ, beyond the rounding of float32; None if they agree, or cannot be told.

    A column of numbers and one of categories are not compared: types may change from one format to another.
    """
    if isinstance(ours, Categories) != isinstance(theirs, Categories):
        return None
    if isinstance(ours, Categories):
        differ = texts_of(ours) != texts_of(theirs)
    else:
        differ = ~np.isclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6, atol=1e-30, equal_nan=True)
    return int(differ.argmax()) if differ.any() else None
