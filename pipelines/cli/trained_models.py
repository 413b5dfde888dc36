"""Test errors of a small model that the demo trains on the released and on the true labels.

The model is ridge regression on indicators of the categories. Its penalty is selected on held-out labels of the kind
that it is trained on, so the features party could do the same. With a center, it learns what the center misses. Needs
the extra `evaluation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ...mechanisms.center.center_model import CenterModel
from ...transforms.io.filesystems import match, read_text
from ...transforms.io.input_format import FilePart, Format
from ...transforms.readers.file_reader import FileReader
from ..publish.manifest import read_manifest
from ..spec.label_folders import CENTER_NAME, MANIFEST_NAME
from .conversion_log import CONVERTED, LABEL

_FEWEST_RECORDS = 20
"""Fewest records to train on, and to test on."""
_PENALTIES = (3.0, 30.0, 300.0, 3000.0)
_TOLERANCE = 1e-3
_FEWEST_IN_CATEGORY = 20
"""Rarer values of a category have no indicator."""
_HELD_OUT = 5
"""One record in so many selects the penalty."""


@dataclass(frozen=True)
class TestErrors:
    """Mean squared errors on records that are not in the log.

    Attributes:
      records: Number of these records.
      mean: Error of the mean of the released labels, without features.
      released: Error of the model trained on the released labels.
      true: Error of the model trained on the true labels.
    """

    records: int
    mean: float
    released: float
    true: float


def compare_models(true: pa.Table, release: str, new: pa.RecordBatch) -> TestErrors | None:
    """Trains on the true labels and on a release, and tests both models on clicks that are not in the log.

    `true` holds the conversions of the log; `release` is a folder. None if there are too few conversions. Raises
    InputError if a file cannot be read.
    """
    center = read_manifest(os.path.join(release, MANIFEST_NAME)).center
    test = pa.Table.from_batches([new]).filter(pc.field(CONVERTED) == 1)
    names = [name for name in test.schema.names if name not in (LABEL, CONVERTED)]
    released = _read_shards(os.path.join(release, "data", "*"), [*names, LABEL, *([center] if center else [])])
    if min(len(released), len(test)) < _FEWEST_RECORDS:
        return None
    encode = _encoder(released, names)
    expected, inputs = _floats(test, LABEL), encode(test)

    def error(predictions: np.ndarray | float) -> float:
        return float(np.mean((expected - predictions) ** 2))

    labels, offset, known = _floats(released, LABEL), np.zeros(len(released)), np.zeros(len(test))
    if center:
        model = CenterModel.from_json(read_text(os.path.join(release, CENTER_NAME)))
        known = model.predict({name: test[name].to_pylist() for name in model.features or names[:1]})
        offset = _floats(released, center)
    return TestErrors(
        len(test),
        error(float(labels.mean())),
        error(known + _predictions(encode(released), labels - offset, inputs)),
        error(_predictions(encode(true), _floats(true, LABEL), inputs)),
    )


def _read_shards(pattern: str, columns: Sequence[str]) -> pa.Table:
    paths = list(match(pattern))
    reader = FileReader(Format("tfrecord"), columns)
    batches = [batch.batch for path in paths for batch in reader.read(FilePart(path, paths[0]))]
    return pa.Table.from_batches(batches).select(columns)


def _floats(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy().astype(np.float64)


def _encoder(table: pa.Table, names: Sequence[str]) -> Callable[[pa.Table], sparse.csr_matrix]:
    """Encoder of features, fitted on one table: indicators of frequent categories, and standardized numbers."""
    numbers = [name for name in names if pa.types.is_integer(table[name].type)]
    frequent: dict[str, pa.Array] = {}
    for name in names:
        if name not in numbers:
            counted = table[name].cast(pa.string()).combine_chunks().value_counts()
            often = counted.field("counts").to_numpy() >= _FEWEST_IN_CATEGORY
            frequent[name] = counted.field("values").filter(pa.array(often))

    def amounts(table: pa.Table) -> np.ndarray:
        # Numbers of clicks are skewed.
        return np.log1p(np.stack([_floats(table, name) for name in numbers], 1))

    mean, deviation = amounts(table).mean(axis=0), amounts(table).std(axis=0)

    def encode(table: pa.Table) -> sparse.csr_matrix:
        parts: list[Any] = [(amounts(table) - mean) / deviation]
        for name, values in frequent.items():
            found = pc.index_in(table[name].cast(pa.string()), value_set=values)  # type: ignore[attr-defined]
            places = found.fill_null(len(values)).to_numpy()
            rows = np.arange(len(table) + 1)
            # Rare values have no indicator.
            parts.append(sparse.csr_matrix((np.ones(len(table)), places, rows), (len(table), len(values) + 1))[:, :-1])
        stacked: Any = sparse.hstack(parts, format="csr")
        return stacked

    return encode


def _predictions(inputs: sparse.csr_matrix, labels: np.ndarray, new: sparse.csr_matrix) -> np.ndarray:
    """Ridge regression, with the penalty of the least error on held-out labels."""
    from sklearn.linear_model import Ridge

    def model(penalty: float) -> Ridge:
        return Ridge(penalty, solver="lsqr", tol=_TOLERANCE)

    held_out = np.arange(len(labels)) % _HELD_OUT == 0
    trained, tested = inputs[~held_out], inputs[held_out]
    errors = [
        np.mean((labels[held_out] - model(penalty).fit(trained, labels[~held_out]).predict(tested)) ** 2)
        for penalty in _PENALTIES
    ]
    return model(_PENALTIES[int(np.argmin(errors))]).fit(inputs, labels).predict(new)
