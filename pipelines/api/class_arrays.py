"""Columns of classes in memory, of the kinds of `label_arrays`: reads their places, and gives back the same kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ...mechanisms.core.label_classes import LabelClasses
from ...transforms.class_values import class_column, class_places
from ...transforms.errors import InputError
from .label_arrays import LabelArray, arrow_column, chunked, is_of, only_column


def read_classes(data: Any, classes: LabelClasses, name: str, missing: float | None = None) -> LabelArray:
    """Reads a column of classes: the values are their places, NaN where there is none, and the way back takes places.

    `name` is that of the argument, for messages. `missing` is the place that a missing class counts as; None for none.
    Raises ValueError if it has another number of dimensions, or cannot
    hold these classes; no value is in the message. Raises TypeError if it is of no known kind.
    """
    data, wrap = only_column(data, name)
    column = arrow_column(data, name)
    try:
        places = class_places(column, classes, name, name, len(column))
    except InputError as error:
        problem = str(error)
    else:
        restored, nulls = _restorer(data, column.type, classes), np.asarray(column.is_null())
        if missing is not None:
            places, nulls = np.where(np.isnan(places), missing, places), np.zeros(len(column), bool)
        return LabelArray(places, nulls, lambda values: wrap(restored(values)))
    raise ValueError(problem)


def _restorer(data: Any, kind: pa.DataType, classes: LabelClasses) -> Callable[[np.ndarray], Any]:
    def arrow(values: np.ndarray) -> pa.Array:
        missing = ~np.isfinite(values)
        places = np.where(missing, 0, values).astype(np.int64)
        drawn = class_column(places, kind, classes)
        return drawn.take(pa.array(np.arange(len(values)), mask=missing)) if missing.any() else drawn

    if isinstance(data, pa.ChunkedArray):
        lengths = [len(chunk) for chunk in data.chunks]
        return lambda values: chunked(arrow(values), lengths)
    if isinstance(data, pa.Array):
        return arrow
    if isinstance(data, list | tuple):
        return lambda values: type(data)(arrow(values).to_pylist())
    if isinstance(data, np.ndarray):
        return lambda values: _numpy(arrow(values), data.dtype)
    if is_of(data, "polars", "Series"):
        return lambda values: sys.modules["polars"].Series(data.name, arrow(values)).cast(data.dtype)
    return lambda values: _pandas(arrow(values), data)


def _numpy(drawn: pa.Array, dtype: np.dtype) -> np.ndarray:
    """An array of the same type; of objects, with None for missing ones, if the type has no missing value."""
    if dtype.kind == "f":
        return drawn.to_numpy(zero_copy_only=False).astype(dtype)
    values = np.fromiter(drawn.to_pylist(), object, len(drawn))
    if drawn.null_count or dtype.kind == "O":
        return values
    # A fixed width may be too short for another class.
    return values.astype(dtype.kind if dtype.kind in "US" else dtype)


def _pandas(drawn: pa.Array, data: Any) -> Any:
    pandas: Any = sys.modules["pandas"]
    dtype, values = data.dtype, drawn.to_pylist()
    if isinstance(dtype, pandas.CategoricalDtype):
        known = [*dtype.categories, *(value for value in dict.fromkeys(values) if value is not None)]
        dtype = pandas.CategoricalDtype(list(dict.fromkeys(known)), dtype.ordered)
    elif isinstance(dtype, np.dtype):
        return pandas.Series(_numpy(drawn, dtype), data.index, name=data.name)
    return pandas.Series(values, data.index, dtype=dtype, name=data.name)
