"""Features of a batch as numbers and categories, for a center. Loads no Beam."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...mechanisms.center.feature_rows import Categories, Category, Columns, HashedTexts, MappedColumns, RowMap
from ...mechanisms.release.feature_sample import CenterFeatures, FeatureSample, identifying
from ..arrow_values import (
    float_values,
    is_binary,
    is_number,
    is_string,
    is_text,
    is_time,
    single_values,
    time_texts,
    value_type,
)
from ..errors import InputError, listed
from ..progress_log import LOGGER
from ..tfrecord.wire import hash_texts


class FeatureBatch(Protocol):
    """Records with features: a LabelledBatch, or a frame in memory."""

    @property
    def source(self) -> str:
        """Name of the records in messages."""
        ...

    @property
    def batch(self) -> pa.RecordBatch:
        """Columns of the records."""
        ...

    def column(self, name: str) -> pa.Array | None:
        """Looks up a column; None if there is none of this name."""
        ...


def feature_columns(
    batch: FeatureBatch, names: Sequence[str], categories: Iterable[str] | None = None
) -> dict[str, np.ndarray | Categories]:
    """Extracts features of n records.

    `categories` are the columns that are categories, whatever they hold; all others are numbers. It is None where this
    is not known yet: text columns are categories then, and columns without a type, which have no value, are left out.
    Raises InputError, which names the column, if one holds neither numbers nor text, or text where there must be
    numbers.

    Text is a category. Numbers and booleans are numbers, except in the columns that are named as categories. A record
    without exactly one value has none. A column that the batch does not have, or that has no value at all, is missing
    in all records.
    """
    known = None if categories is None else set(categories)
    found: dict[str, np.ndarray | Categories] = {}
    for name in names:
        values, present = _values(batch, name)
        kind = values.type
        if known is not None and not len(values):
            found[name] = _missing(batch.batch.num_rows, name in known)
        elif pa.types.is_null(kind):
            continue
        elif pa.types.is_nested(kind):
            raise InputError(
                f"{batch.source}: feature {name!r} holds {kind}, neither numbers nor text: "
                "leave it out of `center_features`"
            )
        elif name in known if known is not None else is_text(kind):
            found[name] = _categories(values, present)
        elif is_number(kind):
            found[name] = _numbers(values, present)
        elif known is None:
            raise InputError(
                f"{batch.source}: feature {name!r} holds {kind}, neither numbers nor text: "
                "name the features to use with `center_features`"
            )
        else:
            raise InputError(
                f"{batch.source}: feature {name!r} holds {kind}, but numbers in other files: make it numbers in all of "
                "them, or leave it out of `center_features`"
            )
    return found


def chosen_features(sample: FeatureSample, features: CenterFeatures) -> FeatureSample:
    """Chooses the columns of a sample that a center is made of, in the order of their names, as the encoders are.

    Those that nobody named and that identify records are left out, which is logged. Samples may have been merged in any
    order, and one that lacks a column may have been the first or the last.
    """
    left_out = identifying(sample.columns) if features.all_columns else []
    if left_out:
        LOGGER.info(
            "center: not from %s: nearly all values differ, as those of ids do; released all the same, unless "
            "`leave_out` names it. To use it, name the features with `center_features`",
            listed(left_out),
        )
    kept = {name: sample.columns[name] for name in features.names if name in sample.columns and name not in left_out}
    return dataclasses.replace(sample, columns=kept)


def center_columns(batch: FeatureBatch, map: RowMap) -> MappedColumns:
    """Extracts the features of a map from a batch.

    Without features, the result is a column of the right length under no name of a feature. Raises InputError if a
    feature has the wrong type.
    """
    categories = {each.name: each for each in map.encoders if isinstance(each, Category)}
    hashed = {name: hashed_texts(batch, name) for name, each in categories.items() if each.hashed}
    found: dict[str, Any] = {name: texts for name, texts in hashed.items() if texts is not None}
    found |= feature_columns(batch, [name for name in map.columns if name not in found], categories)
    return found or {"": np.zeros(batch.batch.num_rows)}


def _values(batch: FeatureBatch, name: str) -> tuple[pa.Array, np.ndarray]:
    column = batch.column(name)
    if column is None:
        return pa.nulls(0), np.zeros(batch.batch.num_rows, bool)
    return single_values(column)


def _missing(rows: int, category: bool) -> np.ndarray | Categories:
    return Categories(np.full(rows, -1), ()) if category else np.full(rows, np.nan)


def hashed_texts(batch: FeatureBatch, name: str) -> HashedTexts | None:
    """Hashes the texts of a column, missing where a record has not exactly one; None if it holds no text in UTF-8."""
    values, present = _values(batch, name)
    if not (is_string(values.type) or is_binary(values.type)):
        return None
    try:
        # It checks UTF-8, and copies no text.
        values = values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None
    _, bounds, content = values.buffers()
    if content is None:
        return HashedTexts(np.full(len(present), -1))
    ends = np.frombuffer(bounds, np.int64)[values.offset : values.offset + len(values) + 1]
    own, hashes = np.empty(len(values), np.int64), np.full(len(present), -1)
    hash_texts(content, ends, own)
    hashes[present] = own
    return HashedTexts(hashes)


def _categories(values: pa.Array, present: np.ndarray) -> Categories:
    encoded = values.dictionary_encode()
    codes = np.full(len(present), -1)
    codes[present] = encoded.indices.to_numpy()
    return Categories(codes, _texts(encoded.dictionary))


def _texts(values: pa.Array) -> tuple[str, ...]:
    if is_binary(values.type):
        # Arrow decodes all at once, if all are UTF-8.
        with contextlib.suppress(pa.ArrowInvalid):
            values = values.cast(pa.large_string())
    if is_time(values.type):
        # As in TFRecords.
        values = time_texts(values)
    if is_string(values.type):
        return tuple(values.to_pylist())
    return tuple(_text(each) for each in values.to_pylist())


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    # Integers are floats in files where some are missing.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _numbers(values: pa.Array, present: np.ndarray) -> np.ndarray:
    numbers = float_values(values)
    if len(values) < len(present):
        found, numbers = numbers, np.full(len(present), np.nan)
        numbers[present] = found
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def is_feature(kind: pa.DataType) -> bool:
    """Tests whether a column can be a feature: numbers, booleans and text, and lists of them."""
    kind = value_type(kind)
    return is_text(kind) or is_number(kind)


def concatenated(parts: Sequence[Columns], sizes: Sequence[int]) -> dict[str, np.ndarray | Categories]:
    """Joins the features of consecutive batches of `sizes` records; the order of the records is that of the parts.

    The result has the columns that any part has; a column that a part does not have is missing there. Raises
    InputError, which names the column, if one has numbers in one part and text in another.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    found: dict[str, np.ndarray | Categories] = {}
    for name in names:
        columns = [part.get(name) for part in parts]
        kinds = {type(column) for column in columns if column is not None}
        if len(kinds) > 1:
            raise InputError(
                f"feature {name!r} holds numbers in some records and text in others: make it one of them in all files, "
                "or leave it out of `center_features`"
            )
        category = kinds == {Categories}
        filled = [
            _missing(size, category) if column is None else column for column, size in zip(columns, sizes, strict=True)
        ]
        found[name] = _joined(filled) if category else np.concatenate([np.asarray(each) for each in filled])
    return found


def _joined(parts: Sequence[np.ndarray | Categories]) -> Categories:
    places: dict[str, int] = {}
    codes = []
    for part in parts:
        assert isinstance(part, Categories)
        own = [places.setdefault(value, len(places)) for value in part.values]
        codes.append(np.array([*own, -1])[part.codes])
    return Categories(np.concatenate(codes) if codes else np.zeros(0, np.int64), tuple(places))
