"""Values of Arrow columns, identities of records by their ids, and columns without metadata. No Beam."""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..mechanisms.noise.keyed_words import Identities, integer_identities, packed_identities
from .errors import InputError

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
# Numbers in any decimal spelling, and integers in their plain one. White space around a number is no part of it.
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_LISTS = [(pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)]
# pyarrow has these from version 16 on.
if hasattr(pa, "list_view"):
    _LISTS += [(pa.types.is_list_view, pa.list_view), (pa.types.is_large_list_view, pa.large_list_view)]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Drops the metadata of a schema, of its fields and of fields within them.

    Names, types and nullability stay.

    Types stay as they are, with the values and the order of dictionaries and with time zones. Of an extension type,
    whose name and parameters are metadata, the storage type stays.
    """
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), field.nullable)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    return with_inner(kind, _plain_field)


def with_inner(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """The type with the fields within it changed; a type without any as it is."""
    if pa.types.is_struct(kind):
        return pa.struct([change(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    for test, make in _LISTS:
        if test(kind):
            return make(change(kind.value_field))
    return kind


def plain_batch(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Makes a batch without metadata, of columns with any metadata in their types. `schema` is their `plain_schema`."""
    plain = [
        column if column.type.equals(field.type, check_metadata=True) else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(plain, schema=schema)


def index_levels(schema: pa.Schema) -> dict[str, str]:
    """Finds the columns that are levels of a pandas index, by names alone: those that pandas gives, and its metadata.

    Returns the name of each level by its column. A level without a name has that of its column.
    """
    levels = {name: name for name in schema.names if re.fullmatch("__index_level_[0-9]+__", name)}
    try:
        pandas = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        # A RangeIndex is no column, and its entry no name.
        levels |= {name: name for name in pandas.get("index_columns", ()) if name in schema.names}
        for column in pandas.get("columns", ()):
            if column.get("field_name") in levels and column.get("name") is not None:
                levels[column["field_name"]] = str(column["name"])
    except (ValueError, TypeError, AttributeError, RecursionError):
        # The metadata is not that of pandas.
        pass
    return levels


def namesakes(name: str, columns: Iterable[tuple[str, pa.Array]]) -> Iterator[tuple[str, str]]:
    """Finds what has a name but for case and white space: columns, fields within them, and keys of maps.

    Yields the column, and the full name of what has the name, such as `event.weeks`. `columns` are names and values, or
    no values, which then have no keys.
    """
    for column, values in columns:
        if column != name and folded(column) == folded(name):
            yield column, column
        for path in _inner_names(values):
            if folded(path[-1]) == folded(name):
                yield column, ".".join([column, *path])


def folded(name: str) -> str:
    """The name without case and white space."""
    return "".join(name.split()).casefold()


def _inner_names(values: pa.Array) -> Iterator[tuple[str, ...]]:
    """Paths of the fields and of the keys of maps within values of any type; elements of lists have no name."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        yield from _inner_names(values.storage)
    elif pa.types.is_dictionary(kind):
        yield from _inner_names(values.dictionary)
    elif pa.types.is_run_end_encoded(kind):
        yield from _inner_names(values.values)
    elif pa.types.is_struct(kind):
        for place, field in enumerate(kind):
            yield (field.name,)
            yield from ((field.name, *path) for path in _inner_names(values.field(place)))
    elif pa.types.is_map(kind):
        if is_text(value_type(kind.key_type)):
            texts = plain_values(values.keys).cast(pa.large_binary()).unique().drop_null()
            yield from ((text.decode(errors="replace"),) for text in texts.to_pylist())
        for part in (values.keys, values.items):
            yield from _inner_names(part)
    elif pa.types.is_nested(kind) and hasattr(values, "values"):
        yield from _inner_names(values.values)


def is_list(kind: pa.DataType) -> bool:
    """Tells whether a column holds lists or large lists."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def is_number(kind: pa.DataType) -> bool:
    """Tells whether a column holds numbers: integers, floats, decimals, and booleans, which are 0 and 1."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def holds_numbers(kind: pa.DataType) -> bool:
    """Tells whether the single values of a column (`value_type`) are numbers, or there is none: the type is null."""
    kind = value_type(kind)
    return is_number(kind) or pa.types.is_null(kind)


def is_string(kind: pa.DataType) -> bool:
    """Tells whether a column holds strings, in any of Arrow's layouts: string, large_string and string_view."""
    return any(test(kind) for test in _TEXTS)


def is_binary(kind: pa.DataType) -> bool:
    """Tells whether a column holds bytes of any length: binary, large_binary and binary_view."""
    return any(test(kind) for test in _BYTES)


def is_text(kind: pa.DataType) -> bool:
    """Tells whether a column holds text: strings, or bytes of any length, as tf.Examples have it."""
    return is_string(kind) or is_binary(kind)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Type of the single values of a column: of those in lists, runs or a dictionary, of its storage, or its own."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    for test in (pa.types.is_run_end_encoded, is_list, is_list_of_one, pa.types.is_dictionary):
        if test(kind):
            kind = kind.value_type
    return kind


def is_list_of_one(kind: pa.DataType) -> bool:
    """Tells whether a column holds lists of the fixed size 1."""
    return pa.types.is_fixed_size_list(kind) and kind.list_size == 1


def is_time(kind: pa.DataType) -> bool:
    """Tests whether a type is one of dates, times of day or timestamps, which are text where there is no such type.

    False for durations.
    """
    return pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)


def time_texts(values: pa.Array) -> pa.Array:
    """Writes dates, times of day and timestamps (`is_time`) as text; null where a value is.

    The text of a value is the same in every unit: 2024-01-31 10:00:00, with 6 digits of a second if there is a
    fraction, 9 if there are nanoseconds, and the offset +01:00 if there is a time zone.
    """
    encoded = values.dictionary_encode()
    distinct, kind = encoded.dictionary, values.type
    nanoseconds = np.zeros(len(distinct), np.int64)
    if getattr(kind, "unit", None) == "ns":
        # Python has no nanoseconds.
        whole, nanoseconds = np.divmod(distinct.cast(pa.int64()).to_numpy(), 1000)
        micros = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")
        distinct = pa.array(whole, pa.int64()).cast(micros)
    texts = [_time_text(value, rest) for value, rest in zip(distinct, nanoseconds.tolist(), strict=True)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _time_text(value: pa.Scalar, nanoseconds: int) -> str:
    try:
        moment = value.as_py()
    except (ValueError, OverflowError, KeyError):
        # A year or a time zone that Python does not know.
        return str(value.cast(pa.string()))
    if not nanoseconds:
        return str(moment)
    text = moment.isoformat(timespec="microseconds").replace("T", " ")
    place = text.index(".") + 7
    return f"{text[:place]}{nanoseconds:03}{text[place:]}"


def record_bytes(batch: pa.RecordBatch, without: Collection[str] = ()) -> np.ndarray:
    """Bytes of the texts of each record, and 8 for each value of its columns and within them. Shape (n,), int64.

    Categories count as their texts, to which they may be expanded. The sizes follow from the values alone, however the
    batch was cut. Each column `without` counts 8.
    """
    sizes = np.full(batch.num_rows, 8 * sum(name in without for name in batch.schema.names))
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name not in without:
            sizes += _value_bytes(column)
    return sizes


def _value_bytes(column: pa.Array) -> np.ndarray:
    kind, sizes = column.type, np.full(len(column), 8)
    if is_text(kind):
        return sizes + np.asarray(pc.binary_length(column).fill_null(0))  # type: ignore[attr-defined]
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)  # type: ignore[attr-defined]
        return sizes + np.asarray(lengths.fill_null(0))
    if pa.types.is_fixed_size_binary(kind):
        return sizes + kind.byte_width
    if pa.types.is_struct(kind):
        return sum(map(_value_bytes, column.flatten()), sizes)
    if not pa.types.is_nested(kind):
        return sizes
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    ends = np.cumsum(np.asarray(pc.list_value_length(column).fill_null(0)))  # type: ignore[attr-defined]
    return sizes + np.diff(np.append(0, np.cumsum(_value_bytes(column.flatten())))[np.append(0, ends)])


def plain_values(column: pa.Array) -> pa.Array:
    """Replaces layouts that most functions of Arrow do not know.

    Returns the values of runs or of a dictionary, which may have a null among them, views as large strings or bytes,
    lists of the fixed size 1 as lists, and the storage of an extension; any other column as it is.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)  # type: ignore[attr-defined]
    if is_list_of_one(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def kept_values(column: pa.Array | pa.ChunkedArray, mask: np.ndarray) -> pa.Array | pa.ChunkedArray:
    """Selects the records of a mask, shape (n,), bool, from a column of any type."""
    try:
        return column.filter(pa.array(mask))
    except pa.ArrowNotImplementedError:
        # Arrow cannot filter views, run-end encodings, and types that contain them. It can concatenate them.
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        ends = np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)
        runs = [whole.slice(start, stop - start) for start, stop in ends.tolist()]
        return pa.concat_arrays(runs) if runs else whole.slice(0, 0)


def list_array(kind: pa.DataType, offsets: np.ndarray, values: pa.Array) -> pa.Array:
    """Lists, or large lists, as a type has them: of values between offsets, shape (n + 1,)."""
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def label_lists(kind: pa.DataType, labels: np.ndarray) -> pa.Array:
    """New labels, shape (n,), float64, as lists of one, for a column of lists of a type; some are of float32.

    Labels of tf.Examples are large lists, in some files of int64 and in others of float32: one type for all.
    """
    narrow = kind.value_type == pa.float32() or kind == pa.large_list(pa.int64())
    return list_array(kind, np.arange(len(labels) + 1), pa.array(labels.astype(np.float32) if narrow else labels))


def all_values(column: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Extracts the values of n records, from a flat column, a dictionary or a column of lists.

    Returns the values of all records, one after the other, without those of a dictionary being coded; the number of
    values of each record, shape (n,), int64; and whether it has a list or a value, shape (n,), bool.
    """
    column = plain_values(column)
    present = np.asarray(column.is_valid())
    if not is_list(column.type):
        return column.drop_null() if column.null_count else column, present.astype(np.int64), present
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = column.flatten()
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values, counts, present


def single_values(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Extracts the single value of each of n records, from a flat column, a dictionary or a column of lists.

    Returns the values of the records that have exactly one non-null value, as an Arrow array, which is no dictionary;
    and a mask of these records, shape (n,), bool.
    """
    column = plain_values(column)
    if not column.null_count:
        alone = _alone(column)
        if alone is not None:
            return alone, np.full(len(column), True)
    if not is_list(column.type):
        present = np.asarray(column.is_valid())
        return column.filter(pa.array(present)), present
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    present = lengths == 1
    firsts = column.offsets.to_numpy(zero_copy_only=False)[:-1][present]
    values = plain_values(column.values).take(pa.array(firsts))
    valid = np.asarray(values.is_valid())
    present[np.flatnonzero(present)] = valid
    return values.filter(pa.array(valid)), present


def _alone(column: pa.Array) -> pa.Array | None:
    """The values of records all of which have exactly one, without a copy; None for other records."""
    if is_list(column.type):
        offsets = column.offsets.to_numpy(zero_copy_only=False)
        if not len(column) or not (np.diff(offsets) == 1).all():
            return None
        column = plain_values(column.values.slice(offsets[0], len(column)))
    return None if column.null_count or pa.types.is_null(column.type) else column


ENCODE_CLASSES = "declare classes, in privatize and fit, with `label_classes` A,B,..."
"""Advice for labels that are text."""


def as_number(kind: pa.DataType) -> str:
    """Advice for labels of a type that is neither numbers nor classes; empty for text, which classes are."""
    if is_text(kind):
        return ""
    unit = "seconds" if pa.types.is_time(kind) else "days"
    return "write it as a number" + (f", such as its {unit}" if is_time(kind) or pa.types.is_duration(kind) else "")


def check_label_type(kind: pa.DataType, label: str, source: str) -> None:
    """Checks that a label column holds numbers or booleans, or lists of them.

    Raises InputError, which names column and input file, if it holds anything else.
    """
    if not holds_numbers(kind):
        kind = value_type(kind)
        raise InputError(
            f"{source}: label column {label!r} holds {kind}, not numbers: {as_number(kind) or ENCODE_CLASSES}, or name "
            "another column with `label`"
        )


def single_numbers(column: pa.Array | None, rows: int) -> np.ndarray:
    """Single number of each record, shape (rows,), float64.

    It is NaN where there is no usable number (missing, several, NaN or infinite). The column holds numbers or booleans,
    or lists of them; None for no column.
    """
    values = np.full(rows, np.nan)
    if column is None:
        return values
    found, present = single_values(column)
    if present.any():
        values[present] = float_values(found)
    values[~np.isfinite(values)] = np.nan
    return values


def float_values(values: pa.Array) -> np.ndarray:
    """Converts an Arrow array of numbers or booleans without nulls to float64, shape (n,).

    Integers and decimals beyond 2^53 are rounded.
    """
    if not pa.types.is_floating(values.type):
        values = values.cast(pa.float64(), safe=False)
    return values.to_numpy(zero_copy_only=False).astype(np.float64)


def _packed(values: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated bytes of all values, and (n + 1,) offsets into them."""
    _, offsets, data = values.buffers()
    first, last = values.offset, values.offset + len(values) + 1
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return whole, np.frombuffer(offsets, np.int64)[first:last] if offsets is not None else np.zeros(1, np.int64)


def column_identities(values: pa.Array, id_column: str) -> Identities | None:
    """Identities of records from their ids, without nulls; None if these are no integers, text or bytes of any size."""
    if pa.types.is_integer(values.type):
        return integer_identities(id_column, values.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
    if is_text(values.type) or pa.types.is_fixed_size_binary(values.type):
        return packed_identities(id_column, *_packed(values.cast(pa.large_binary())))
    return None


class NotWholeError(ValueError):
    """An id or a unit is a number that is not whole. It has no text: callers say which record it is.

    Attributes:
      index: The first such record.
    """

    def __init__(self, index: int):
        super().__init__()
        self.index = index

    def problem(self, name: str) -> str:
        """Text without the value, for a column."""
        return f"{name} is a number that is not whole, or too large for a float to hold each whole number"


def single_ids(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """As `single_values`, for ids and units: whole floats are integers, int64, and NaN is missing.

    A float is one id only where floats hold every integer, below 2^53, and of float32 below 2^24. Raises NotWholeError
    for any other.
    """
    values, present = single_values(column)
    if not pa.types.is_floating(values.type):
        return values, present
    floats = values.to_numpy(zero_copy_only=False)
    limit = 2.0 ** (np.finfo(floats.dtype).nmant + 1)
    named = ~np.isnan(floats)
    floats = floats[named].astype(np.float64)
    present[np.flatnonzero(present)] = named
    wrong = (np.abs(floats) >= limit) | (floats != np.rint(floats))
    if wrong.any():
        raise NotWholeError(int(np.flatnonzero(present)[wrong.argmax()]))
    return pa.array(floats.astype(np.int64)), present


def named_units(column: pa.Array, name: str) -> tuple[Identities, np.ndarray] | None:
    """Finds the privacy unit of each record that has exactly one.

    Empty text names no unit. The column holds integers, whole floats, text or bytes, or lists of these. Returns the
    units of the m records that have one, and a mask of these records, shape (n,), bool; None if the column holds
    anything else. Raises NotWholeError.
    """
    values, present = single_ids(column)
    if pa.types.is_null(values.type):
        values = values.cast(pa.int64())
    if is_text(values.type):
        values = plain_number_texts(values)
    identities = column_identities(values, name)
    if identities is None or not is_text(values.type):
        return None if identities is None else (identities, present)
    # CSV has no other way to leave a value out.
    lengths: pa.Array = pc.binary_length(values)  # type: ignore[attr-defined]
    named = lengths.to_numpy(zero_copy_only=False) > 0
    present[np.flatnonzero(present)] = named
    return identities.keep(named), present


def plain_number_texts(texts: pa.Array) -> pa.LargeBinaryArray:
    """Texts as bytes, with one spelling of each number: `5`, `5.0`, `05`, `+5`, ` 5` and `5e0` are `5`.

    Files spell the ids of one person differently, such as those with a missing id, which some writers make floats of.
    """
    texts = texts.cast(pa.large_binary())
    numbers = np.asarray(pc.match_substring_regex(texts, _NUMBER))  # type: ignore[attr-defined]
    plain = np.asarray(pc.match_substring_regex(texts, _PLAIN_INTEGER))  # type: ignore[attr-defined]
    other = np.flatnonzero(numbers & ~plain)
    if not len(other):
        return texts
    encoded = texts.take(pa.array(other)).dictionary_encode()
    spelled = pa.array([_plain_number(text) for text in encoded.dictionary.to_pylist()], pa.large_binary())
    found = spelled.take(encoded.indices)
    return pc.replace_with_mask(texts, pa.array(numbers & ~plain), found)  # type: ignore[attr-defined]


def _plain_number(text: bytes) -> bytes:
    # Exact: as many digits as the text and its exponent can make.
    number = decimal.Context(prec=len(text) + 1000).normalize(decimal.Decimal(text.decode().strip()))
    return f"{number:f}".encode() if number else b"0"
