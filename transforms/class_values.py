"""Values of columns of classes: the place of each record's class in the public list, and columns of drawn classes.

A column holds text, integers, booleans, or floats, as integers with missing values among them become. Values that are
not listed count as the other class, silently: neither an error nor a missing label may tell of them.

Readers code classes as places in a dictionary of all of them. So elements of a job, whose sizes runners show, have
sizes that do not depend on how long the text of a class is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..mechanisms.core.label_classes import BOOLEAN, INTEGER, TEXT, LabelClasses
from .arrow_values import as_number, is_list, is_string, is_text, list_array, single_values, value_type
from .errors import InputError

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute

CSV_TYPES = {INTEGER: pa.int64(), BOOLEAN: pa.bool_(), TEXT: pa.string()}
"""Types of columns of classes from text that has no types, by the kind of the classes."""


def check_class_type(kind: pa.DataType, classes: LabelClasses, label: str, source: str) -> None:
    """Checks that a column can hold the classes.

    Raises InputError, which names column and input file, if its type is none of classes, or not of these.
    """
    if not pa.types.is_null(kind):
        _class_values(value_type(kind), classes, label, source)


def _class_values(kind: pa.DataType, classes: LabelClasses, label: str, source: str) -> pa.Array:
    """The classes in the order of their places, as values of a type without nulls."""
    wanted = ""
    if is_text(kind):
        return pa.array([value.encode() for value in classes.values], pa.large_binary())
    if pa.types.is_boolean(kind):
        values, wanted = classes.booleans, "false and true"
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values, wanted = classes.integers, "integers of its type"
    else:
        values = None
    if values is not None:
        try:
            found = pa.array(values, pa.float64() if pa.types.is_floating(kind) else kind)
            # Of two integers that the type rounds to one float, neither could be told from the other.
            if not pa.types.is_floating(kind) or found.cast(kind).to_pylist() == [*values]:
                return found
        except (pa.ArrowInvalid, OverflowError):
            pass
    if not wanted:
        raise InputError(
            f"{source}: label column {label!r} holds {kind}, and classes are text, integers or booleans: write it as "
            f"text, or without `label_classes`, {as_number(kind)}"
        )
    raise InputError(
        f"{source}: label column {label!r} holds {kind}, and the classes of `label_classes` are not {wanted}: list "
        "those of the column, or name another column with `label`"
    )


def coded_classes(
    column: pa.Array, classes: LabelClasses, label: str, source: str, missing: float | None = None
) -> pa.Array:
    """Codes a column of classes as a dictionary of all classes, of the type of its values; lists stay lists.

    A record that has several values keeps two of them, which say nothing, so that it is still known as one. With
    `missing`, the place of the class that a missing one counts as, the result is flat and has no nulls. Raises
    InputError as `check_class_type`.
    """
    kind = value_type(column.type)
    if pa.types.is_null(kind):
        if missing is None:
            return column
        kind = CSV_TYPES[classes.kind]
    listed = _typed_classes(kind, classes, label, source)
    places = class_places(column, classes, label, source, len(column))
    if missing is not None:
        known = np.where(np.isnan(places), missing, places).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(known), listed)
    absent = np.isnan(places)
    codes = np.where(absent, 0, places).astype(np.int32)
    if not is_list(column.type):
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=absent), listed)
    lengths = np.minimum(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), 2)
    values = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(codes, lengths), mask=np.repeat(absent, lengths)), listed
    )
    return list_array(column.type, np.append(0, np.cumsum(lengths)), values)


def _typed_classes(kind: pa.DataType, classes: LabelClasses, label: str, source: str) -> pa.Array:
    """The classes as values of the type of a column's values; of views, as large text or bytes."""
    listed = _class_values(kind, classes, label, source)
    if not is_text(kind):
        return listed.cast(kind)
    if is_string(kind):
        return listed.cast(pa.string() if pa.types.is_string(kind) else pa.large_string())
    return listed.cast(pa.binary() if pa.types.is_binary(kind) else pa.large_binary())


def class_places(column: pa.Array | None, classes: LabelClasses, label: str, source: str, rows: int) -> np.ndarray:
    """Places of the classes of records, shape (rows,), float64.

    They are NaN for records without a class: missing, several, an empty text, NaN or infinite. The column is flat or
    holds lists; None for no column. Raises InputError as `check_class_type`.
    """
    places = np.full(rows, np.nan)
    if column is None:
        return places
    if pa.types.is_dictionary(column.type):
        known = _typed_classes(value_type(column.type), classes, label, source)
        if column.dictionary.equals(known):
            return np.asarray(column.indices.cast(pa.float64()).fill_null(np.nan))
    values, present = single_values(column)
    if not len(values):
        if not pa.types.is_null(column.type):
            check_class_type(column.type, classes, label, source)
        return places
    listed = _class_values(values.type, classes, label, source)
    if is_text(values.type):
        values = values.cast(pa.large_binary())
        named = np.asarray(pc.binary_length(values)) > 0
    elif pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        named = np.isfinite(np.asarray(values))
    else:
        named = np.ones(len(values), bool)
    found = pc.index_in(values, value_set=listed).fill_null(classes.other)
    places[present] = np.where(named, np.asarray(found), np.nan)
    return places


def class_column(places: np.ndarray, kind: pa.DataType, classes: LabelClasses) -> pa.Array:
    """Column of classes by their places, shape (n,), integers; of the type of a column that `class_places` has read.

    Lists hold one class, and a dictionary becomes its values.
    """
    found = _typed_classes(value_type(kind), classes, "", "").take(pa.array(places))
    return list_array(kind, np.arange(len(places) + 1), found) if is_list(kind) else found


def from_texts(texts: pa.Array, missing: pa.Array, classes: LabelClasses) -> pa.Array:
    """Column of classes from the fields of a file of text, of the type of `CSV_TYPES`.

    Texts are binary, shape (n,). Null stands for those that are empty or one of `missing`, unless they are listed.
    Integers may have a decimal point and zeros behind it, as columns with missing values are written, booleans any
    case, and both spaces around them. A text that is no class becomes the other class.
    """
    encoded = texts.dictionary_encode()
    listed: dict[bytes, int | None] = {text.encode(): None for text in missing.to_pylist()}
    listed |= {value.encode(): place for place, value in enumerate(classes.values)}
    places = [_place(text, classes, listed) for text in encoded.dictionary.to_pylist()]
    if not places:
        return pa.nulls(len(texts), CSV_TYPES[classes.kind])
    own = pa.array(places, pa.int64()).take(encoded.indices)
    values = {INTEGER: classes.integers, BOOLEAN: classes.booleans}.get(classes.kind) or classes.values
    return pa.array(values, CSV_TYPES[classes.kind]).take(own)


def _place(text: bytes, classes: LabelClasses, listed: Mapping[bytes, int | None]) -> int | None:
    if text in listed:
        return listed[text]
    if classes.kind == TEXT:
        return classes.other
    plain = text.strip(b" \t").lower()
    if classes.kind == INTEGER and b"." in plain:
        whole, _, rest = plain.partition(b".")
        plain = whole if not rest.strip(b"0") else plain
    return listed.get(plain, classes.other)
