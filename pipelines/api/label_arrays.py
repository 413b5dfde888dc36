"""Columns of labels in memory: numpy, pandas, polars, Arrow and lists. Reads one, and gives back the same kind.

Functions take one of `KINDS`, and raise TypeError if it is of no known kind. A frame of one column and an array of
shape (n, 1), as scikit-learn has labels, are read as the column.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
import pyarrow as pa

from ...mechanisms.noise.keyed_words import Identities, first_repeated
from ...transforms.arrow_values import (
    ENCODE_CLASSES,
    NotWholeError,
    as_number,
    column_identities,
    holds_numbers,
    is_list,
    label_lists,
    named_units,
    plain_values,
    single_ids,
    single_numbers,
    value_type,
)

if TYPE_CHECKING:
    import pandas
    import polars
    from typing_extensions import TypeIs

    Column: TypeAlias = np.ndarray | pandas.Series | polars.Series | pa.Array | pa.ChunkedArray | list | tuple

KINDS = "a one-dimensional numpy array, a pandas or polars Series, an Arrow array, a list, or a frame of one column"


@dataclass(frozen=True, eq=False)
class LabelArray:
    """Column of numbers of some kind.

    Attributes:
      values: The numbers, shape (n,), float64; NaN where there is none (missing, NaN or infinite).
      nulls: Records whose value is null, shape (n,), bool; NaN is no null. Of lists, those without a single number.
      restore: Function (values, shape (n,), float64) -> a column of the same kind, name and index, null where this
        column is null.
    """

    values: np.ndarray
    nulls: np.ndarray
    restore: Callable[[np.ndarray], Any]


def read_numbers(data: object, name: str, missing: float | None = None) -> LabelArray:
    """Reads a copy of a column of numbers, booleans (0 and 1), or categories or lists of these, with the way back.

    `name` is that of the argument, for messages. With `missing`, the value that a missing one counts as, every record
    has a value, and the way back leaves none out. Raises ValueError if it has another number of dimensions, or holds
    anything but numbers. No value is in the message.
    """
    data, wrap = only_column(data, name)
    column = arrow_column(data, name)
    if not holds_numbers(column.type):
        kind = value_type(column.type)
        advice = f": {as_number(kind) or ENCODE_CLASSES}" if name == "labels" else ""
        raise ValueError(f"{name} holds {kind}, not numbers{advice}")
    values = single_numbers(column, len(column))
    nulls = np.isnan(values) if is_list(column.type) else np.asarray(column.is_null())
    if missing is not None:
        nulls, values = np.zeros(len(column), bool), np.where(np.isnan(values), missing, values)
    restored = _restorer(data, nulls, column.type)
    return LabelArray(values, nulls, lambda values: wrap(restored(values)))


def read_identities(data: object, id_column: str) -> Identities:
    """Reads ids, integers, texts or bytes; the noise is bound to the name of the id column.

    Raises ValueError, which names rows, if an id is missing or occurs twice, or ids are anything else.
    """
    column = arrow_column(only_column(data, "ids")[0], "ids")
    try:
        values, present = single_ids(column)
    except NotWholeError as error:
        raise ValueError(f"row {error.index}: {error.problem('its id')}") from None
    if not present.all():
        raise ValueError(f"row {int(present.argmin())} has no id: each record needs one")
    identities = column_identities(values, id_column)
    if identities is None:
        raise ValueError(f"ids hold {column.type}, not integers, text or bytes")
    repeated = first_repeated(identities.blocks)
    if repeated is not None:
        raise ValueError(f"rows {repeated[0]} and {repeated[1]} have the same id: ids must be unique")
    return identities


def read_units(data: object, unit_column: str) -> tuple[Identities, np.ndarray]:
    """Reads the privacy units of records, integers, texts or bytes; a missing one, or empty text, is no unit.

    Returns the units of the m records that have one, and a mask of these records, shape (n,), bool. Raises ValueError
    if units are anything else.
    """
    column = arrow_column(only_column(data, "units")[0], "units")
    try:
        units = named_units(column, unit_column)
    except NotWholeError as error:
        raise ValueError(f"row {error.index}: {error.problem('its unit')}") from None
    if units is None:
        raise ValueError(f"units hold {column.type}, not integers, text or bytes")
    return units


def width(data: object) -> int | None:
    """Number of columns of a frame or of a two-dimensional array; None for anything else."""
    if isinstance(data, np.ndarray):
        return data.shape[1] if data.ndim == 2 else None
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data.num_columns
    return data.shape[1] if is_of(data, "pandas", "DataFrame") or is_of(data, "polars", "DataFrame") else None


def column_name(data: object) -> str | None:
    """Name that a column has of its own, as that of a Series or of a frame's only column; None if it has none."""
    if is_of(data, "pandas", "DataFrame"):
        data = data.iloc[:, 0]
    elif is_of(data, "polars", "DataFrame"):
        data = data.to_series(0)
    elif isinstance(data, pa.Table | pa.RecordBatch):
        return data.schema.names[0]
    if is_of(data, "pandas", "Series") or is_of(data, "polars", "Series"):
        return None if data.name is None else str(data.name)
    return None


def check_index(data: object, label: str, stored: Sequence[str] = ()) -> None:
    """Checks that no level of a pandas index has the name of the label: the index is released as it is.

    `stored` has the names of levels that are columns. Raises ValueError if one has.
    """
    levels = data.index.names if is_of(data, "pandas", "DataFrame") or is_of(data, "pandas", "Series") else ()
    if label in stored or label in (str(name) for name in levels if name is not None):
        raise ValueError(
            f"the index has a level {label!r}, the name of the label, and an index is not randomized: leave the level "
            "out, as reset_index(drop=True) does, or give it another name if it is public"
        )


def only_column(data: object, name: str) -> tuple[Column, Callable[[Any], object]]:
    """Finds the only column of a frame or of a two-dimensional array, and the way back; a column is its own.

    `name` is that of the argument. Raises ValueError if there are several columns.
    """
    count = width(data)
    if count is None:
        return _plain(data), lambda column: column
    if count != 1:
        features = "; features are given as features=frame" if name == "labels" else ""
        raise ValueError(f"{name} must be one column, not {count} columns{features}")
    if isinstance(data, np.ndarray):
        return _plain(data[:, 0]), lambda column: column[:, None]
    if isinstance(data, pa.Table | pa.RecordBatch):
        kind, names = type(data), data.schema.names
        return data.column(0), lambda column: kind.from_arrays([column], names)
    if is_of(data, "pandas", "DataFrame"):
        return _plain(data.iloc[:, 0]), lambda column: column.to_frame(data.columns[0])
    assert is_of(data, "polars", "DataFrame")
    return data.to_series(0), lambda column: column.to_frame()


def arrow_column(data: object, name: str) -> pa.Array:
    """Converts a column to one Arrow array of plain values. Errors of libraries, which may quote a value, stay hidden.

    `name` is that of the argument, for messages. Raises ValueError if values are of several types, or the data has
    another number of dimensions.
    """
    if isinstance(data, pa.ChunkedArray):
        return plain_values(data.combine_chunks() if data.num_chunks != 1 else data.chunk(0))
    if isinstance(data, pa.Array):
        return plain_values(data)
    if not (
        isinstance(data, np.ndarray | list | tuple)
        or is_of(data, "pandas", "Series")
        or is_of(data, "polars", "Series")
    ):
        raise TypeError(f"{name} must be {KINDS}, not {type(data).__name__}")
    if isinstance(data, np.ndarray) and data.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {data.shape}")
    plain, column, kind = _plain(data), None, ""
    # Arrow takes no integers of Python for uint64 by itself.
    for wanted in (None, pa.uint64()):
        try:
            column = _converted(plain, wanted)
            break
        except Exception as error:
            # Raised below: inside the block, the library's error would be attached.
            kind = type(error).__name__
        if kind != OverflowError.__name__:
            break
    if column is None:
        reason, advice = "it holds integers beyond 64 bits: give texts", ""
        if kind != OverflowError.__name__:
            reason = kind if isinstance(plain, list | tuple) else f"{kind} from {plain.dtype}"
            advice = ": give texts, or numbers of at most 64 bits"
        raise ValueError(f"{name} cannot be read as one column of one type ({reason}){advice}")
    return plain_values(column)


def swapped(dtype: object) -> TypeIs[np.dtype]:
    """Tests whether values of a type have another byte order than those of this machine."""
    return isinstance(dtype, np.dtype) and not dtype.isnative


def _plain(data: Column) -> Column:
    """The column in the byte order of this machine and dense, as Arrow takes it."""
    if isinstance(data, np.ndarray) or is_of(data, "pandas", "Series"):
        if swapped(data.dtype):
            return data.astype(data.dtype.newbyteorder("="))
        if not isinstance(data, np.ndarray) and isinstance(data.dtype, sys.modules["pandas"].SparseDtype):
            return data.sparse.to_dense()  # type: ignore[attr-defined]
    return data


def _converted(data: Column, kind: pa.DataType | None) -> pa.Array:
    if isinstance(data, np.ma.MaskedArray):
        column = pa.array(np.asarray(data.data), mask=np.ma.getmaskarray(data))
    elif isinstance(data, np.ndarray):
        # None and NaN are both missing in an array of objects.
        column = pa.array(data, kind, from_pandas=data.dtype == object)
    elif is_of(data, "polars", "Series"):
        column = data.to_arrow()
    elif isinstance(data, list | tuple):
        column = pa.array([value.item() if isinstance(value, np.generic) else value for value in data], kind)
    else:
        # NaN of a float64 Series is a missing value of pandas, but no null: it is restored as NaN.
        column = pa.array(data, kind, from_pandas=data.dtype == object)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@overload
def is_of(data: object, library: Literal["pandas"], name: Literal["DataFrame"]) -> TypeIs[pandas.DataFrame]: ...
@overload
def is_of(data: object, library: Literal["pandas"], name: Literal["Series"]) -> TypeIs[pandas.Series]: ...
@overload
def is_of(data: object, library: Literal["polars"], name: Literal["DataFrame"]) -> TypeIs[polars.DataFrame]: ...
@overload
def is_of(data: object, library: Literal["polars"], name: Literal["Series"]) -> TypeIs[polars.Series]: ...
@overload
def is_of(data: object, library: Literal["polars"], name: Literal["LazyFrame"]) -> TypeIs[polars.LazyFrame]: ...
def is_of(data: object, library: str, name: str) -> bool:
    """Tests whether an object is of a class of a library, without importing the library."""
    module = sys.modules.get(library)
    return module is not None and isinstance(data, getattr(module, name))


def _restorer(data: Column, nulls: np.ndarray, kind: pa.DataType) -> Callable[[np.ndarray], Any]:
    def arrow(values: np.ndarray) -> pa.Array:
        if is_list(kind):
            return label_lists(kind, values).take(pa.array(np.arange(len(values)), mask=nulls))
        # Without nulls, the values are not copied.
        return pa.array(values, pa.float64(), mask=nulls if nulls.any() else None)

    if isinstance(data, pa.ChunkedArray):
        lengths = [len(chunk) for chunk in data.chunks]
        return lambda values: chunked(arrow(values), lengths)
    if isinstance(data, pa.Array):
        return arrow
    if isinstance(data, list):
        return lambda values: arrow(values).to_pylist()
    if isinstance(data, tuple):
        return lambda values: tuple(arrow(values).to_pylist())
    if is_of(data, "polars", "Series"):
        return lambda values: sys.modules["polars"].Series(data.name, arrow(values))
    if is_list(kind):
        return lambda values: _of_lists(arrow(values), data)
    if isinstance(data, np.ma.MaskedArray):
        return lambda values: np.ma.MaskedArray(values, nulls.copy())
    if isinstance(data, np.ndarray):
        return lambda values: values
    return _pandas_restorer(data.index, data.name, data.dtype, nulls)


def _of_lists(lists: pa.Array, data: np.ndarray | pandas.Series) -> np.ndarray | pandas.Series:
    """Lists as an array of objects, or as a Series of pandas of the kind of `data`."""
    objects = np.fromiter(lists.to_pylist(), object, len(lists))
    if isinstance(data, np.ndarray):
        return objects
    pandas = sys.modules["pandas"]
    if isinstance(data.dtype, np.dtype):
        return pandas.Series(objects, data.index, name=data.name)
    return pandas.Series(lists, data.index, dtype=pandas.ArrowDtype(lists.type), name=data.name)


def chunked(column: pa.Array, lengths: list[int]) -> pa.ChunkedArray:
    """Divides a column into chunks of these lengths."""
    ends = np.cumsum([0, *lengths]).tolist()
    chunks = [column.slice(start, length) for start, length in zip(ends, lengths, strict=False)]
    return pa.chunked_array(chunks, column.type)


def _pandas_restorer(
    index: pandas.Index, name: object, dtype: object, nulls: np.ndarray
) -> Callable[[np.ndarray], Any]:
    pandas = sys.modules["pandas"]
    if isinstance(dtype, np.dtype | pandas.CategoricalDtype):
        return lambda values: pandas.Series(values, index, name=name)
    if isinstance(dtype, pandas.ArrowDtype):
        kind = pandas.ArrowDtype(pa.float64())
        return lambda values: pandas.Series(pa.array(values, mask=nulls), index, dtype=kind, name=name)
    return lambda values: pandas.Series(pandas.arrays.FloatingArray(values, np.isnan(values)), index, name=name)
