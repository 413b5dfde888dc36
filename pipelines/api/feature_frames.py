"""Frames of features in memory: pandas, polars, Arrow, dicts of columns and two-dimensional arrays. Loads no Beam.

Features are public, and so are the messages about them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ...mechanisms.center.feature_rows import Number, RowMap
from ...transforms.arrow_values import holds_numbers, index_levels, kept_values, namesakes, plain_schema, value_type
from ..errors import did_you_mean
from .label_arrays import arrow_column, check_index, is_of, swapped, width

if TYPE_CHECKING:
    import pandas
    import polars
    from typing_extensions import TypeIs

    from .label_arrays import Column

    DataFrame: TypeAlias = pandas.DataFrame | polars.DataFrame | pa.Table | pa.RecordBatch
    Frame: TypeAlias = DataFrame | Mapping[str, Column] | np.ndarray | "FeatureFrame"

DATA_FRAMES = "a pandas or polars DataFrame, or an Arrow table or record batch"
FRAMES = f"{DATA_FRAMES}, a dict of columns, or a two-dimensional array"
BLOCK = 1 << 16
"""Records whose features are in memory at a time."""
_HOLDERS = (Mapping, list, tuple, np.ndarray)
# Beginning of the name that pandas has for the column of an index level without a name.
_UNNAMED = "__index_level_"


@dataclass(frozen=True, eq=False)
class FeatureFrame:
    """Features of n records, with the types that files have.

    Attributes:
      batch: The columns. Those of an array are named x0, x1, ...
      source: What stands for the file in messages.
    """

    batch: pa.RecordBatch = field(repr=False)
    source: str = "features"

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.batch.schema

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self.schema.names

    def __len__(self) -> int:
        return self.batch.num_rows

    def column(self, name: str) -> pa.Array | None:
        """Looks up a column; None if there is none of this name."""
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)

    def keep(self, mask: np.ndarray) -> FeatureFrame:
        """Selects records of a mask, shape (n,), bool."""
        if mask.all():
            return self
        columns = [kept_values(column, mask) for column in self.batch.columns]
        return FeatureFrame(pa.RecordBatch.from_arrays(columns, schema=self.batch.schema), self.source)

    def blocks(self, mask: np.ndarray | None = None) -> Iterator[FeatureFrame]:
        """Divides records, those of a mask, into consecutive blocks that are in memory at a time."""
        kept = self if mask is None else self.keep(mask)
        return (kept.slice(start, start + BLOCK) for start in range(0, len(kept), BLOCK))

    def without_levels(self, center_features: object) -> tuple[FeatureFrame, str | None]:
        """Leaves out index levels without a name that are not named as features, and says so, as `public_frame`."""
        left_out = _levels(self.batch.schema, named_features(center_features))
        names = [name for name in self.names if name not in left_out]
        return self.select(names) if left_out else self, _left_out(left_out)

    def select(self, names: Sequence[str]) -> FeatureFrame:
        """Leaves out other columns."""
        return FeatureFrame(self.batch.select(names), self.source)

    def slice(self, start: int, stop: int) -> FeatureFrame:
        """Selects consecutive records, without a copy; `stop` may be behind the last one."""
        return FeatureFrame(self.batch.slice(start, stop - start), self.source)

    def check(self, map: RowMap) -> None:
        """Checks that the features of a center are there. Raises ValueError, which names the column."""
        for encoder in map.encoders:
            column = self.column(encoder.name)
            if column is None:
                meant = did_you_mean(encoder.name, self.names)
                raise ValueError(f"{self.source} has no column {encoder.name!r}, which the model needs{meant}")
            kind = value_type(column.type)
            wanted = "numbers" if isinstance(encoder, Number) else "text"
            taken = holds_numbers(kind) if wanted == "numbers" else not pa.types.is_nested(kind)
            if not taken:
                raise ValueError(f"{self.source}: {encoder.name!r} holds {kind}, but the center takes {wanted}")


def _levels(schema: pa.Schema, named: Sequence[Any]) -> list[str]:
    """Columns that are index levels without a name in pandas, and are not named by the user."""
    levels = index_levels(schema).items()
    return [name for name, level in levels if name == level and name.startswith(_UNNAMED) and name not in named]


def _left_out(levels: Sequence[str]) -> str | None:
    if not levels:
        return None
    return (
        f"not released, and no features: index levels without a name ({', '.join(levels)}), which may hold copies of "
        "the label. Name a level that is public to release it, as frame.rename_axis('row') does in pandas"
    )


def named_features(center_features: object) -> list[Any]:
    """Names in a value of `center_features`, which need not have been checked."""
    if isinstance(center_features, str):
        return center_features.split(",")
    return list(center_features) if isinstance(center_features, Iterable) else []


def is_frame(data: object) -> bool:
    """Tests whether data can be features: whether it has rows and columns."""
    return isinstance(data, Mapping) or width(data) is not None


def read_frame(data: object, source: str = "features") -> FeatureFrame:
    """Reads a frame, one of `FRAMES`; `source` is what stands for it in messages.

    One that was read before is returned as it is. Raises TypeError if it is of another kind, and ValueError, which
    names the column, if one has values of several types or another length, or two have one name.
    """
    if isinstance(data, FeatureFrame):
        return data
    columns = _columns(data, source)
    names = [name for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{source} has several columns {twice!r}: names of columns must be unique")
    if not columns:
        raise ValueError(f"{source} has no columns")
    arrays = [arrow_column(column, f"{source}: column {name!r}") for name, column in columns]
    for name, array in zip(names, arrays, strict=True):
        if len(array) != len(arrays[0]):
            raise ValueError(f"{source}: column {name!r} has {len(array):,} values, {names[0]!r} {len(arrays[0]):,}")
    return FeatureFrame(pa.RecordBatch.from_arrays(arrays, names), source)


def _columns(data: object, source: str) -> list[tuple[str, Column]]:
    if isinstance(data, pa.Table | pa.RecordBatch):
        return list(zip(data.schema.names, data.columns, strict=True))
    if is_of(data, "pandas", "DataFrame"):
        return [(str(name), data.iloc[:, place]) for place, name in enumerate(data.columns)]
    if is_of(data, "polars", "DataFrame"):
        return [(column.name, column) for column in data.get_columns()]
    if isinstance(data, np.ndarray) and data.ndim == 2:
        return [(f"x{place}", data[:, place]) for place in range(data.shape[1])]
    if isinstance(data, Mapping):
        return [(str(name), column) for name, column in data.items()]
    raise TypeError(f"{source} must be {FRAMES}, not {_described(data)}")


def _described(data: object) -> str:
    if isinstance(data, np.ndarray):
        return f"an array of shape {data.shape}"
    return f"{type(data).__name__}{': collect it first' if is_of(data, 'polars', 'LazyFrame') else ''}"


def labels_and_features(first: object, second: object, features: object) -> tuple[object, object]:
    """Tells labels from features by their shapes: (labels, features) and scikit-learn's (X, y) are both understood.

    `second` is None where labels alone are given by position, with `features` by name or not at all. Raises ValueError
    if the shapes leave a choice: labels that are taken for features would be released as they are.
    """
    if second is None:
        return first, features
    if features is not None:
        raise ValueError("features are given twice: give (X, y), or labels and features=")
    can_be_labels = [not isinstance(data, Mapping) and width(data) in (None, 1) for data in (first, second)]
    can_be_features = [is_frame(data) for data in (first, second)]
    as_labels_first = can_be_labels[0] and can_be_features[1]
    as_features_first = can_be_features[0] and can_be_labels[1]
    if as_labels_first == as_features_first:
        raise ValueError(
            "of two arguments one must be labels, one column, and the other features, a frame or an array of shape "
            "(n, m): name them, fit_transform(labels, features=X)"
        )
    return (first, second) if as_labels_first else (second, first)


def is_data_frame(data: object) -> TypeIs[DataFrame]:
    """Tests whether data is one of `DATA_FRAMES`."""
    return not isinstance(data, np.ndarray) and width(data) is not None


def frame_column(frame: DataFrame, place: int) -> Column:
    """Takes a column of one of `DATA_FRAMES`, as a Series or an Arrow array."""
    if is_of(frame, "pandas", "DataFrame"):
        return frame.iloc[:, place]
    return frame.to_series(place) if is_of(frame, "polars", "DataFrame") else frame.column(place)


def public_frame(frame: DataFrame, label: str, named: Sequence[Any]) -> tuple[DataFrame, str | None]:
    """Leaves out index levels without a name, which may hold copies of the label, by their names and kinds alone.

    Of one of `DATA_FRAMES`. A level with a name is a column that the user has named; a RangeIndex holds nothing. In
    place of a pandas index, records have their places. Returns the frame, which shares its data with the given one, and
    a text that says what is left out; None for nothing. Raises ValueError if a level has the name of the label.
    """
    names = _names(frame)
    schema = (
        frame.schema if isinstance(frame, pa.Table | pa.RecordBatch) else pa.schema([(n, pa.null()) for n in names])
    )
    check_index(frame, label, [level for name, level in index_levels(schema).items() if name != label])
    left_out = _levels(schema, named)
    if is_of(frame, "pandas", "DataFrame"):
        pandas = sys.modules["pandas"]
        index, places = frame.index, [place for place, name in enumerate(names) if name not in left_out]
        frame = frame.iloc[:, places] if left_out else frame.copy(deep=False)
        unnamed = [place for place, name in enumerate(index.names) if name is None]
        if unnamed and not isinstance(index, pandas.RangeIndex):
            left_out.append("index")
            whole = len(unnamed) == index.nlevels
            frame.index = pandas.RangeIndex(len(frame)) if whole else index.droplevel(unnamed)
    elif left_out:
        frame = frame.select([name for name in names if name not in left_out])
    return frame, _left_out(left_out)


def check_namesakes(frame: DataFrame, label: str, left_out: Sequence[Any]) -> None:
    """Refuses what has the label's name in another column of one of `DATA_FRAMES`, as the command does.

    Raises ValueError, which names the column or the field within it, unless the column is left out.
    """
    columns = ((name, column) for name, column in _columns(frame, "frame") if name not in left_out)
    for column, other in namesakes(label, ((name, _nested(column)) for name, column in columns)):
        raise ValueError(
            f"label {label!r}: the frame also has {'a column' if column == other else 'a field'} {other!r}, which "
            f"would be released as it is: drop or rename it, or give leave_out={[column]}"
        )


def map_columns(schema: pa.Schema, label: str, left_out: Sequence[Any]) -> list[str]:
    """Names the released columns with maps, whose keys only values tell to `check_namesakes`."""
    return [each.name for each in schema if "map<" in str(each.type) and each.name not in {label, *left_out}]


def _nested(column: Column) -> pa.Array:
    """The column as Arrow has it if there may be names within it, otherwise an empty one."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.Array):
        return column
    if is_of(column, "polars", "Series"):
        return column.to_arrow() if column.dtype.is_nested() else pa.nulls(0)
    if is_of(column, "pandas", "Series") and isinstance(column.dtype, sys.modules["pandas"].ArrowDtype):
        return _nested(pa.array(column))
    names = dict.fromkeys(name for value in column if isinstance(value, _HOLDERS) for name in _keys(value))
    return pa.array([], pa.struct([(name, pa.null()) for name in names]))


def _keys(value: object) -> Iterator[str]:
    """Keys of dictionaries within a value of Python, at any depth."""
    if isinstance(value, Mapping):
        yield from map(str, value)
        value = list(value.values())
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        for inner in value:
            yield from _keys(inner)


def _names(frame: DataFrame) -> list[str]:
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return frame.schema.names
    return [str(name) for name in frame.columns]


def released_frame(
    frame: DataFrame, place: int, labels: Column, kept: np.ndarray, centers: tuple[str, np.ndarray] | None
) -> DataFrame:
    """Makes one of `DATA_FRAMES` of the same kind with other labels, and without the records outside of a mask.

    `labels` is a column of the frame's kind, for that at `place`, and `kept` the mask, shape (n,), bool. Centers are
    added at the end, under their name; those of classes, shape (n, K), as lists. Metadata is dropped, because it may
    hold statistics and samples of values.
    """
    if is_of(frame, "pandas", "DataFrame"):
        assert is_of(labels, "pandas", "Series")
        # Without the true labels from the start: columns of one type share an array, of which a view would keep all.
        others = [number for number in range(frame.shape[1]) if number != place]
        # pandas selects no records of another byte order.
        orders = {name: kind.newbyteorder("=") for name, kind in frame.dtypes.items() if swapped(kind)}
        found = (frame.astype(orders) if orders else frame).iloc[np.flatnonzero(kept), others].copy()
        found.attrs = {}
        found.insert(place, frame.columns[place], labels[kept].array)
        if centers is not None:
            found.insert(found.shape[1], centers[0], _rows(centers[1][kept]))
        return found
    if is_of(frame, "polars", "DataFrame"):
        polars = sys.modules["polars"]
        added = [] if centers is None else [polars.Series(centers[0], _rows(centers[1]))]
        return frame.with_columns(labels, *added).filter(polars.Series(kept))
    table = pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
    table = table.set_column(place, table.schema.names[place], labels)
    if centers is not None:
        kind = pa.float64() if centers[1].ndim == 1 else pa.list_(pa.float64())
        table = table.append_column(centers[0], pa.array(_rows(centers[1]), kind))
    schema = plain_schema(table.schema)
    columns = [kept_values(column, kept) for column in table.columns]
    table = pa.Table.from_arrays(columns, schema=table.schema).cast(schema)
    if isinstance(frame, pa.RecordBatch):
        arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return table


def without_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Drops columns from one of `DATA_FRAMES`."""
    if not names:
        return frame
    kept = [place for place, (name, _) in enumerate(_columns(frame, "frame")) if name not in names]
    if is_of(frame, "pandas", "DataFrame"):
        # A view would keep the others.
        return frame.iloc[:, kept].copy()
    return frame[:, kept] if is_of(frame, "polars", "DataFrame") else frame.select(kept)


def _rows(centers: np.ndarray) -> np.ndarray | list[list[float]]:
    """Centers as values of a column."""
    return centers if centers.ndim == 1 else centers.tolist()
