"""A log in memory, as models take it: a matrix of features beside the labels; split into training and test records."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...transforms.batches import LabelledBatch, float_values, label_values, only_values
from ...transforms.errors import InputError
from ...transforms.io.filesystems import match
from ...transforms.io.input_format import Equals, Format
from ...transforms.io.read_files import read_file

_MOST_CATEGORIES = 50


_TEST_SHARE = 5  # one record in so many is for testing


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with a usable label.

    names: of the (d,) columns of features, a category as NAME=VALUE. features: (n, d) float64, NaN where missing.
    labels: (n,) finite float64, true and private. digest: of features, names and labels, to tell whether two datasets
    are the same; unkeyed, so not to be released.
    """

    names: tuple[str, ...]
    features: np.ndarray
    labels: np.ndarray
    digest: str

    @classmethod
    def of(cls, names: Sequence[str], features: np.ndarray, labels: np.ndarray) -> Dataset:
        """Drops records without a usable label. Raises InputError when too few are left to train and test on."""
        usable = np.isfinite(labels)
        features, labels = np.ascontiguousarray(features[usable]), labels[usable]
        if len(labels) < 2 * _TEST_SHARE:
            raise InputError(
                f"--input has {len(labels)} records with a usable label; at least {2 * _TEST_SHARE} needed"
            )
        state = hashlib.sha256("\n".join(names).encode())
        state.update(features.tobytes())
        state.update(labels.tobytes())
        return cls(tuple(names), features, labels, state.hexdigest())

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Which records are for training, and which, a fifth, for testing. A function of n and the seed alone, so that
        the split says nothing of the labels."""
        order = np.random.default_rng(seed).permutation(len(self.labels))
        test = len(order) // _TEST_SHARE
        return np.sort(order[test:]), np.sort(order[:test])


def read_dataset(
    pattern: str,
    format: Format,
    label: str,
    features: Sequence[str] | None = None,
    where: Equals | None = None,
) -> Dataset:
    """Reads all files that match into memory.

    features: which columns to train on; by default all but the label and the column of `where`. Numbers and booleans
    are taken as they are. Text becomes a column of zeros and ones for each of its 50 most frequent values; of two
    values, one column. Features are public: what a value is worth is looked up in all records.
    Raises InputError for what cannot be read, for a feature that is neither number nor text, or no feature at all.
    """
    batches = _read(pattern, format, label, features, where)
    labels = np.concatenate([label_values(batch, label) for batch in batches])
    chosen = features
    if chosen is None:
        skipped = {label, where.column if where else label}
        chosen = [name for name in batches[0].batch.schema.names if name not in skipped]
    names: list[str] = []
    columns: list[np.ndarray] = []
    for name in chosen:
        for part, values in _encode(name, [(batch.source, batch.column(name)) for batch in batches]):
            names.append(part)
            columns.append(values)
    if not columns:
        raise InputError(f"{pattern} has no feature to train on besides the label {label!r}")
    return Dataset.of(names, np.stack(columns, axis=1), labels)


def _read(
    pattern: str, format: Format, label: str, features: Sequence[str] | None, where: Equals | None
) -> list[LabelledBatch]:
    paths = list(match(pattern))
    wanted = None if features is None else [label, *features]
    batches = [batch for path in paths for batch in read_file(path, paths[0], format, wanted, where, label)]
    if not batches or not any(batch.batch.num_rows for batch in batches):
        raise InputError(f"--input {pattern}: no record to train on")
    for batch in batches:
        if batch.column(label) is None:
            raise InputError(f"{batch.source}: there is no column {label!r}: name another with --label")
    return batches


def _encode(name: str, parts: Sequence[tuple[str, pa.Array | None]]) -> list[tuple[str, np.ndarray]]:
    """The columns of numbers that one feature becomes, by name."""
    found: list[pa.Array] = []
    present: list[np.ndarray] = []
    for source, column in parts:
        if column is None:
            raise InputError(f"{source}: there is no column {name!r}: name others with --feature")
        values, mask = only_values(column)
        found.append(values)
        present.append(mask)
    mask = np.concatenate(present)
    kinds = {values.type for values in found if not pa.types.is_null(values.type)}
    if len(kinds) > 1:
        raise InputError(f"{parts[0][0]}: column {name!r} changes its type from {' to '.join(map(str, kinds))}")
    kind = kinds.pop() if kinds else pa.null()
    if pa.types.is_null(kind):
        return []
    if pa.types.is_boolean(kind):
        return [(name, _spread(mask, [values.cast(pa.int8()) for values in found]))]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return [(name, _spread(mask, found))]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return _one_hot(name, mask, found)
    raise InputError(f"{parts[0][0]}: column {name!r} holds {kind}, not numbers or text: leave it out with --feature")


def _spread(present: np.ndarray, parts: Sequence[pa.Array]) -> np.ndarray:
    column = np.full(len(present), np.nan)
    column[present] = np.concatenate([float_values(values) for values in parts])
    column[~np.isfinite(column)] = np.nan
    return column


def _one_hot(name: str, present: np.ndarray, parts: Sequence[pa.Array]) -> list[tuple[str, np.ndarray]]:
    texts = np.full(len(present), None, object)
    texts[present] = [_text(value) for values in parts for value in values.to_pylist()]
    # By count, then by value: the order of the records plays no part.
    counted = sorted(Counter(texts[present]).items(), key=lambda each: (-each[1], each[0]))
    kept = [value for value, _ in counted[:_MOST_CATEGORIES]]
    if present.all() and len(kept) <= 2:
        kept = kept[1:]
    return [(f"{name}={value}", (texts == value).astype(np.float64)) for value in kept]


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
