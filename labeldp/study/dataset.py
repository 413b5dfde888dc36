"""Dataset in memory: features, as a matrix and as columns, and labels, with a split into training and test records."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from labeldp import Equals, Format, InputError, LabelledBatch

from ..mechanisms.center.feature_rows import Categories, Columns
from ..pipelines.errors import did_you_mean
from ..transforms.arrow_values import float_values, is_number, is_text, is_time, single_values
from ..transforms.batches import center_values, label_values
from ..transforms.center.feature_columns import concatenated, feature_columns
from ..transforms.errors import listed
from ..transforms.io.filesystems import match
from ..transforms.io.input_format import file_parts
from ..transforms.readers.file_reader import FileReader

_MOST_CATEGORIES = 50
_TEST_SHARE = 5  # one record in five is a test record


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with a usable label.

    Attributes:
      names: Names of the d feature columns; a category is NAME=VALUE.
      features: Features, shape (n, d), float64, NaN where missing.
      labels: True, private labels, shape (n,), float64, finite; of classes their places.
      columns: The features of the log before they were encoded, by name, for a center.
      center: Values of the center column, shape (n,), float64, NaN where missing; None without one.
    """

    names: tuple[str, ...]
    features: np.ndarray
    labels: np.ndarray
    columns: Columns
    center: np.ndarray | None = None

    @classmethod
    def from_arrays(
        cls,
        names: Sequence[str],
        features: np.ndarray,
        labels: np.ndarray,
        columns: Columns | None = None,
        center: np.ndarray | None = None,
    ) -> Dataset:
        """Makes a dataset of the records with a finite label. Raises InputError if there are fewer than 10.

        Features have the shape (n, d), labels and center (n,), all float64; features are NaN where missing, labels NaN
        or infinite where unusable. `columns` are by default those of the matrix, as numbers.
        """
        usable = np.isfinite(labels)
        if columns is None:
            columns = dict(zip(names, features.T, strict=True))
        columns = select_records(columns, usable)
        center = None if center is None else center[usable]
        features, labels = np.ascontiguousarray(features[usable]), labels[usable]
        if len(labels) < 2 * _TEST_SHARE:
            raise InputError(
                f"--input has {len(labels)} records with a usable label; at least {2 * _TEST_SHARE} are needed"
            )
        return cls(tuple(names), features, labels, columns, center)

    def part(self, chosen: np.ndarray) -> Dataset:
        """Selects records, as `select_records`."""
        center = None if self.center is None else self.center[chosen]
        columns = select_records(self.columns, chosen)
        return Dataset(self.names, self.features[chosen], self.labels[chosen], columns, center)

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Splits the records into training and test records, 80 to 20; ascending indices of both.

        The split is a function of n and the seed alone; it does not depend on the labels.
        """
        order = np.random.default_rng(seed).permutation(len(self.labels))
        test = len(order) // _TEST_SHARE
        return np.sort(order[test:]), np.sort(order[:test])


def select_records(columns: Columns, chosen: np.ndarray) -> Columns:
    """Selects records, by a mask of shape (n,), bool, or by their indices, in this order."""
    return {
        name: Categories(column.codes[chosen], column.values) if isinstance(column, Categories) else column[chosen]
        for name, column in columns.items()
    }


def read_dataset(
    pattern: str,
    format: Format,
    label: str,
    features: Sequence[str] | None = None,
    where: Equals | None = None,
    center: str | None = None,
    recipient_features: Sequence[str] = (),
) -> Dataset:
    """Reads all matching files into memory.

    Numbers and booleans become one column. Text becomes a column of zeros and ones for each of its 50 most frequent
    values, and a single column if there are two values and none is missing. Features are public, so all records count.

    `features` are by default all columns but the label and the column of `where`. The center column is a feature as
    well, unless `features` leaves it out. `recipient_features` are features that the log lacks: models have them, but
    not `Dataset.columns`. Raises InputError if the input cannot be read, has no record or no feature, or a feature is
    neither number nor text.
    """
    batches = _read(pattern, format, label, features, where, center)
    classes = (format.classes or {}).get(label)
    labels = np.concatenate([label_values(batch, label, classes) for batch in batches])
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
        raise InputError(f"--input {pattern} has no feature to train on besides the label {label!r}")
    sizes, own = [batch.batch.num_rows for batch in batches], _of_log(chosen, recipient_features)
    raw = concatenated([feature_columns(batch, own) for batch in batches], sizes)
    centers = None if center is None else np.concatenate([center_values(batch, center) for batch in batches])
    return Dataset.from_arrays(names, np.stack(columns, axis=1), labels, raw, centers)


def _read(
    pattern: str,
    format: Format,
    label: str,
    features: Sequence[str] | None,
    where: Equals | None,
    center: str | None,
) -> list[LabelledBatch]:
    parts = file_parts(list(match(pattern)), format)
    wanted = None
    if features is not None:
        wanted = list(dict.fromkeys(name for name in (label, *features, center) if name is not None))
    reader = FileReader(format, wanted, where, label)
    batches = [_with_texts(batch) for part in parts for batch in reader.read(part)]
    if not batches or not any(batch.batch.num_rows for batch in batches):
        raise InputError(f"--input {pattern} has no record to train on")
    for batch in batches:
        for name, flag in ((label, "label"), (center, "center_column")):
            if name is not None and batch.column(name) is None:
                names = batch.batch.schema.names
                raise InputError(
                    f"{batch.source} has no column {name!r}: name another with --{flag}; it has: {listed(names)}"
                    f"{did_you_mean(name, names)}"
                )
    return batches


def _of_log(features: Sequence[str], recipient_features: Sequence[str]) -> list[str]:
    """Features that the log has."""
    for name in recipient_features:
        if name not in features:
            raise InputError(
                f"--recipient_feature names {name!r}, which is no feature to train on; features are: {listed(features)}"
                f"{did_you_mean(name, features)}"
            )
    own = [name for name in features if name not in recipient_features]
    if not own:
        raise InputError("--recipient_feature names all features: leave out those that the log has")
    return own


def _with_texts(batch: LabelledBatch) -> LabelledBatch:
    """The batch with dates and times as text, which models take as categories."""
    temporal = [is_time(kind) for kind in batch.batch.schema.types]
    if not any(temporal):
        return batch
    columns = [
        column.cast(pa.string()) if cast else column for column, cast in zip(batch.batch.columns, temporal, strict=True)
    ]
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays(columns, batch.batch.schema.names))


def _encode(name: str, parts: Sequence[tuple[str, pa.Array | None]]) -> list[tuple[str, np.ndarray]]:
    """Encodes one feature as columns of numbers, by name."""
    found: list[pa.Array] = []
    present: list[np.ndarray] = []
    for source, column in parts:
        if column is None:
            raise InputError(f"{source} has no column {name!r}: name others with --feature")
        values, mask = single_values(column)
        found.append(values)
        present.append(mask)
    mask = np.concatenate(present)
    kinds = {values.type for values in found if not pa.types.is_null(values.type)}
    if len(kinds) > 1:
        raise InputError(f"{parts[0][0]}: column {name!r} changes type from {' to '.join(map(str, kinds))}")
    kind = kinds.pop() if kinds else pa.null()
    if pa.types.is_null(kind):
        return []
    if is_number(kind):
        return [(name, _spread(mask, found))]
    if is_text(kind):
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
    # By count, then by value, so that the order of the records does not matter.
    counted = sorted(Counter(texts[present]).items(), key=lambda each: (-each[1], each[0]))
    kept = [value for value, _ in counted[:_MOST_CATEGORIES]]
    if present.all() and len(kept) <= 2:
        kept = kept[1:]
    return [(f"{name}={value}", (texts == value).astype(np.float64)) for value in kept]


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
