"""Types of the columns of files that are read together: one for all files, if theirs hold the same values.

A layout that Parquet output has not (views), or that cannot hold the values of all files (short indices of categories),
is replaced in every file.
"""

from __future__ import annotations

import pyarrow as pa

from ..arrow_values import is_binary, is_list, is_list_of_one, is_string, with_inner


def read_type(kind: pa.DataType, files: int) -> pa.DataType:
    """Type with which a column of one file is read, given the number of files that are read together.

    Views become `string` and `binary`, lists of the fixed size 1 lists, and indices of categories int32: shorter ones
    cannot hold the categories of several files or row groups together. Categories of several files have no common
    order; those within another column, which Arrow cannot join over row groups, become their values.
    """
    if pa.types.is_primitive(kind):
        return kind
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), read_type(kind.value_type, files), kind.ordered and files == 1)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if is_list_of_one(kind):
        kind = pa.list_(kind.value_field)
    if is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_fixed_size_list(kind):
        return with_inner(kind, lambda field: field.with_type(_inner_type(field.type, files)))
    return kind


def _inner_type(kind: pa.DataType, files: int) -> pa.DataType:
    return read_type(kind.value_type if pa.types.is_dictionary(kind) else kind, files)


def has_inner_categories(kind: pa.DataType) -> bool:
    """Tells whether a column has categories within it."""
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return any(pa.types.is_dictionary(one) or has_inner_categories(one) for one in inner)


def common_type(kind: pa.DataType, first: pa.DataType) -> pa.DataType | None:
    """Finds the type of the first file for a column of another file.

    Both types are of `read_type`. The result is the layout of the first file, with nulls allowed where the other file
    allows them; None if the two types do not hold the same values. A column without a value in one of the files has the
    type of the other one.
    """
    if pa.types.is_null(first) or pa.types.is_null(kind):
        return kind if pa.types.is_null(first) else first
    if pa.types.is_dictionary(first) or pa.types.is_dictionary(kind):
        own, leading = (each.value_type if pa.types.is_dictionary(each) else each for each in (kind, first))
        return None if common_type(own, leading) is None else first
    if any(test(kind) and test(first) for test in (is_string, is_binary)):
        return first
    if is_list(kind) and is_list(first):
        field = _common_field(kind.value_field, first.value_field)
        return None if field is None else with_inner(first, lambda _: field)
    if pa.types.is_map(kind) and pa.types.is_map(first):
        parts = zip((kind.key_field, kind.item_field), (first.key_field, first.item_field), strict=True)
        key, item = (_common_field(*pair) for pair in parts)
        return None if key is None or item is None else pa.map_(key, item, first.keys_sorted)
    if pa.types.is_struct(kind) and pa.types.is_struct(first) and kind.names == first.names:
        fields = [_common_field(*pair) for pair in zip(kind, first, strict=True)]
        return None if any(field is None for field in fields) else pa.struct(fields)
    return first if first.equals(kind) else None


def _common_field(field: pa.Field, first: pa.Field) -> pa.Field | None:
    kind = common_type(field.type, first.type)
    return None if kind is None else pa.field(first.name, kind, field.nullable)


def converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts values to a type of `common_type` that holds them."""
    if values.type.equals(kind):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if not pa.types.is_dictionary(kind):
        return (values.dictionary_decode() if pa.types.is_dictionary(values.type) else values).cast(kind)
    if not pa.types.is_dictionary(values.type):
        values = values.cast(kind.value_type).dictionary_encode()
    indices, dictionary = values.indices.cast(kind.index_type), values.dictionary.cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=kind.ordered)
