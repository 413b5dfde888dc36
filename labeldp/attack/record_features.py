"""Features of records for a predictor: columns as they are read, and the matrix that trees are fitted to.

Times become numbers, because a time that is set after the label tells much about it. A missing value is a value of its
own: trees send it to one side of each split.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute
from labeldp import LabelledBatch

from ..mechanisms.center.feature_rows import Categories, Columns
from ..transforms.arrow_values import is_number, is_text, is_time, plain_values, single_values, value_type
from ..transforms.center.feature_columns import concatenated, feature_columns

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute

MOST_INNER = 64
"""Largest number of elements of a list, keys of a map and members of a JSON text that are features."""
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


def read_features(
    batches: Sequence[LabelledBatch], without: Collection[str]
) -> tuple[dict[str, np.ndarray | Categories], list[str]]:
    """Reads all columns of consecutive batches as features: numbers, texts and times, also those within columns.

    Values within a column are features of their own: fields, elements of lists, values of the keys of maps, and members
    of JSON texts. Returns the features, and what is none of these, as "name (type)". Raises InputError as
    `read_columns`.
    """
    unread: dict[str, str] = {}
    found = []
    for batch in batches:
        leaves: dict[str, pa.Array] = {}
        for name, column in zip(batch.batch.schema.names, batch.batch.columns, strict=True):
            if name not in without:
                for leaf, values in _read_leaves(name, column):
                    if values is None:
                        unread.setdefault(leaf, f"{leaf} ({column.type})")
                    else:
                        leaves[_unused(leaf, leaves)] = values
        arrays = pa.RecordBatch.from_arrays([*leaves.values(), pa.nulls(len(batch.rows))], [*leaves, ""])
        found.append(dataclasses.replace(batch, batch=arrays))
    columns = read_columns(found, list(dict.fromkeys(name for part in found for name in part.batch.schema.names[:-1])))
    for name, column in list(columns.items()):
        if isinstance(column, Categories):
            for leaf, values in _members(name, column):
                columns[_unused(leaf, columns)] = values
    return columns, list(unread.values())


def _unused(name: str, names: Collection[str]) -> str:
    """The name, with primes if a column and a value within another have the same."""
    while name in names:
        name += "'"
    return name


def _read_leaves(name: str, column: pa.Array) -> list[tuple[str, pa.Array | None]]:
    try:
        return list(_leaves(name, column))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        # A layout that Arrow cannot convert.
        return [(name, None)]


def _leaves(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array | None]]:
    """Values of a column and within it, n each, with their names; None for what cannot be read."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    column = plain_values(column)
    kind = column.type
    if pa.types.is_null(kind) or _is_feature(kind):
        yield name, column
    if pa.types.is_duration(kind):
        yield name, column.cast(pa.int64())
    elif pa.types.is_fixed_size_binary(kind):
        yield name, column.cast(pa.binary())
    elif pa.types.is_struct(kind):
        for field, values in zip(kind, column.flatten(), strict=True):
            yield from _leaves(f"{name}.{field.name}", values)
    elif pa.types.is_map(kind):
        yield from _values_of_keys(name, column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    elif pa.types.is_nested(kind) and hasattr(kind, "value_type"):
        yield from _elements(name, column.cast(pa.large_list(kind.value_type)))
    elif not (pa.types.is_null(kind) or _is_feature(kind)):
        yield name, None


def _elements(name: str, lists: pa.Array) -> Iterator[tuple[str, pa.Array | None]]:
    """Elements of lists by their place, if a record has more than one, or they have values within them."""
    lengths, starts = _lengths(lists), lists.offsets.to_numpy()[:-1]
    most = int(lengths.max(initial=0))
    if most <= 1 and _is_feature(lists.type):
        return
    yield f"{name}.length", pa.array(lengths)
    for place in range(min(most, MOST_INNER)):
        yield from _leaves(f"{name}[{place}]", lists.values.take(pa.array(starts + place, mask=lengths <= place)))
    if most > MOST_INNER:
        yield f"{name}[{MOST_INNER}:]", None


def _values_of_keys(name: str, entries: pa.Array) -> Iterator[tuple[str, pa.Array | None]]:
    """Values of the keys of maps, lists of pairs; the first one of a record."""
    lengths, starts = _lengths(entries), entries.offsets.to_numpy()[:-1]
    records = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(records)) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    keys, items = entries.values.field(0), entries.values.field(1)
    encoded = plain_values(keys.take(pa.array(places))).dictionary_encode()
    codes, names = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
    for code in sorted(range(len(names)), key=lambda code: str(names[code]))[:MOST_INNER]:
        own = np.flatnonzero(codes == code)
        owners, firsts = np.unique(records[own], return_index=True)
        chosen, missing = np.zeros(len(lengths), np.int64), np.ones(len(lengths), bool)
        chosen[owners], missing[owners] = places[own[firsts]], False
        yield from _leaves(f"{name}.{names[code]}", items.take(pa.array(chosen, mask=missing)))
    if len(names) > MOST_INNER:
        yield f"{name}: further keys", None


def _lengths(lists: pa.Array) -> np.ndarray:
    return pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _members(name: str, column: Categories) -> Iterator[tuple[str, np.ndarray | Categories]]:
    """Members of texts that are JSON objects or lists, by their paths; nothing of other texts."""
    members: dict[str, dict[int, object]] = {}
    for code, text in enumerate(column.values):
        if text[:1] in ("{", "["):
            try:
                inner = dict(_scalars(name, json.loads(text)))
            except (ValueError, RecursionError):
                continue
            for path, value in inner.items():
                if path in members or len(members) < MOST_INNER:
                    members.setdefault(path, {})[code] = value
    for path, values in members.items():
        if all(isinstance(value, int | float) and abs(value) < 1e300 for value in values.values()):
            numbers = np.full(len(column.values) + 1, np.nan)
            numbers[list(values)] = list(values.values())
            yield path, numbers[column.codes]
        else:
            texts, own = np.unique([str(value) for value in values.values()], return_inverse=True)
            codes = np.full(len(column.values) + 1, -1)
            codes[list(values)] = own
            yield path, Categories(codes[column.codes], tuple(texts.tolist()))


def _scalars(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _scalars(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value[:MOST_INNER]):
            yield from _scalars(f"{path}[{place}]", inner)
    elif value is not None:
        yield path, value


def _is_feature(kind: pa.DataType) -> bool:
    kind = value_type(kind)
    return is_number(kind) or is_text(kind) or is_time(kind)


PLACES = FILE, ROW, ROW_OF_ALL = "file of the record", "row in its file", "row of all"
"""Features of every record that no column has: files and the order of records are public."""


def places_of(files: np.ndarray, rows: np.ndarray, rows_of_all: np.ndarray) -> dict[str, np.ndarray | Categories]:
    """The place of each of n records as features: number of its file, row in it, and row of all, of shape (n,) each."""
    names, codes = np.unique(files, return_inverse=True)
    if len(names) == 1:
        return {ROW_OF_ALL: rows_of_all.astype(np.float64)}
    return {
        FILE: Categories(codes, tuple(map(str, names))),
        ROW: rows.astype(np.float64),
        ROW_OF_ALL: rows_of_all.astype(np.float64),
    }


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
