"""Center as a model of its own, which predicts labels for new records: center.json of a release.

Documents are untrusted: every number of one that is read is checked, and the coefficients must follow from the sums.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.budget import check_epsilon
from ..core.document_form import check_form
from .cell_center import CellCenter
from .cell_document import cells_document, read_cells
from .document_values import check_same, read_sized
from .feature_rows import (
    MOST_ENCODED,
    Categories,
    Category,
    Encoder,
    MappedColumns,
    Number,
    RowMap,
    category_spread,
)
from .linear_center import CenterDesign, LinearCenter
from .marginal_center import MarginalCenter, marginals_document, read_marginals
from .residuals import check_even

CENTER_FORMAT = "labeldp-center-1"


@dataclass(frozen=True, eq=False)
class CenterModel:
    """A released linear center with the labels that it predicts.

    It is a linear regression under label DP that costs the center's epsilon alone. A release has it as `center.json`.

    Attributes:
      column: Name of the column that holds its predictions in the release.
      domain: The k labels of the public domain, ascending.
      linear: The center.
    """

    column: str
    domain: tuple[float, ...]
    linear: LinearCenter

    @classmethod
    def from_json(cls, text: str) -> CenterModel:
        """Reads a center.json, which is untrusted.

        Args:
          text: The file's text.

        Returns:
          The model.

        Raises:
          ValueError: If it is not a center, or its coefficients do not follow from its noised sums.
        """
        document = json.loads(text)
        check_form(document, "center_file", "center.json")
        column, domain = document["column"], document["domain"]
        check_even(np.array(domain))
        linear = read_center(document["linear"])
        if linear.labels != len(domain):
            raise ValueError("the linear center is for another number of labels than those of its domain")
        return cls(column, tuple(domain), linear)

    def to_document(self) -> dict[str, Any]:
        """Writes the model as a document.

        Returns:
          The object that center.json holds.
        """
        linear = center_document(self.linear)
        return {"format": CENTER_FORMAT, "column": self.column, "domain": list(self.domain), "linear": linear}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self.linear.design.map.columns)

    @property
    def epsilon(self) -> float:
        """Budget that the center has spent."""
        return self.linear.epsilon

    def predict(self, columns: Mapping[str, Iterable[Any]]) -> np.ndarray:
        """Predicts labels.

        For records of the release, it gives the center column; where that is float32, as in TFRecords, up to rounding.

        Args:
          columns: Features of n records by name, all of `features` and at least one column: arrays, lists or Series.
            Numbers are numbers or booleans; categories are text, bytes or whatever the release held. None and NaN are
            missing.

        Returns:
          Labels of the domain, shape (n,), float64.

        Raises:
          ValueError: If a feature is missing or has the wrong type, or the columns have different lengths.
        """
        found = mapped_columns(self.linear.design.map, columns)
        return np.array(self.domain)[self.linear.indices(found)]


def mapped_columns(row_map: RowMap, columns: Mapping[str, Iterable[Any]]) -> MappedColumns:
    """Reads features of records for a map, as of `CenterModel.predict`, which says what is taken and raised."""
    values = {
        name: column.tolist() if isinstance(column, np.ndarray) else list(column) for name, column in columns.items()
    }
    missing = [name for name in row_map.columns if name not in values]
    if missing:
        raise ValueError(f"the center needs a column {missing[0]!r}")
    lengths = {len(column) for column in values.values()}
    if len(lengths) != 1:
        raise ValueError("the center needs at least one column, and all of one length")
    found: dict[str, np.ndarray | Categories] = {"": np.zeros(lengths.pop())}
    for encoder in row_map.encoders:
        column = values[encoder.name]
        categories = isinstance(encoder, Category)
        found[encoder.name] = _categories(column) if categories else _numbers(encoder.name, column)
    if row_map.columns:
        del found[""]
    return found


def _numbers(name: str, values: Sequence[Any]) -> np.ndarray:
    if any(isinstance(each, (str, bytes)) for each in values):
        raise ValueError(f"the center takes column {name!r} as numbers, but it has text")
    try:
        return np.array([math.nan if each is None else float(each) for each in values])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the center takes column {name!r} as numbers, but it has other values") from None


def _categories(values: Sequence[Any]) -> Categories:
    codes = np.full(len(values), -1)
    places: dict[str, int] = {}
    for row, value in enumerate(values):
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            text = value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
            codes[row] = places.setdefault(text, len(places))
    return Categories(codes, tuple(places))


def center_document(center: LinearCenter) -> dict[str, Any]:
    """Writes a linear center as a document: objects, lists, text and numbers, for a JSON file.

    All of it is public or released: the noised sums and the coefficients that follow from them are the only parts that
    depend on labels.
    """
    design = center.design
    document = {
        **row_map_document(design.map),
        "epsilon": design.epsilon,
        "gram": design.gram.tolist(),
        "sampled": design.sampled,
        "signal": list(design.signal),
        "records": design.records,
        "labels": center.labels,
        "sums": list(center.sums),
        "coefficients": list(center.coefficients),
    }
    if isinstance(center, MarginalCenter):
        return {**document, "marginals": marginals_document(center.marginals)}
    return {**document, "cells": cells_document(center.cells)} if isinstance(center, CellCenter) else document


def read_center(document: Any) -> LinearCenter:
    """Reads a linear center from an untrusted document, parsed JSON, as `center_document` writes it.

    The number of labels is in proportion to the coefficients' variances and to the noise alike, so they do not confirm
    it: compare it with that of the label domain. Raises ValueError, which says what is wrong, if the document is
    anything else, or its coefficients do not follow from its sums.
    """
    check_form(document, "linear", "center")
    row_map = read_row_map(document)
    size = row_map.size - 1
    signal = tuple(read_sized(document["signal"], "signal", size))
    design = CenterDesign(
        row_map,
        _epsilon(document["epsilon"], size),
        _gram(document["gram"], size + 1, document["sampled"] * row_map.norm**2),
        document["sampled"],
        signal,
        document["records"],
    )
    sums = tuple(read_sized(document["sums"], "sums", size + 1 if size else 0))
    labels = document["labels"]
    with np.errstate(all="ignore"):
        center = LinearCenter.fit(design, labels, sums)
    check_same(document["coefficients"], list(center.coefficients), "coefficients", "its sums")
    if "marginals" in document:
        return MarginalCenter.of(labels, read_marginals(document["marginals"], center))
    return CellCenter.of(center, read_cells(document["cells"], center)) if "cells" in document else center


def read_row_map(document: Mapping[str, Any]) -> RowMap:
    """Reads the map of a center from the members `encoders`, `weights` and `norm` of a document that has its form."""
    encoders = tuple(map(_encoder, document["encoders"]))
    names = [encoder.name for encoder in encoders]
    if len(set(names)) < len(names):
        raise ValueError("two encoders of the center have the same name")
    width = sum(encoder.width for encoder in encoders)
    if width > MOST_ENCODED:
        raise ValueError(f"the center has {width} encoded features; at most {MOST_ENCODED} are allowed")
    rows = read_sized(document["weights"], "weights", width)
    size = len(rows[0]) if rows else 0
    weights = np.array([read_sized(row, "weights", size) for row in rows], np.int64).reshape(width, size)
    return RowMap(encoders, weights, document["norm"])


def row_map_document(row_map: RowMap) -> dict[str, Any]:
    """Writes the map of a center as the members of a document."""
    return {
        "encoders": [_encoder_document(each) for each in row_map.encoders],
        "weights": row_map.weights.tolist(),
        "norm": row_map.norm,
    }


def _encoder_document(encoder: Encoder) -> dict[str, Any]:
    if isinstance(encoder, Number):
        return {"name": encoder.name, "mean": encoder.mean, "spread": encoder.spread}
    return {
        "name": encoder.name,
        "values": list(encoder.values),
        "shares": list(encoder.shares),
        "spread": encoder.spread,
    }


def _encoder(document: dict[str, Any]) -> Encoder:
    name, spread = document["name"], document["spread"]
    if "shares" not in document:
        return Number(name, document["mean"], spread)
    values, shares = tuple(document["values"]), tuple(document["shares"])
    if len(set(values)) < len(values):
        raise ValueError("two values of a category of the center are the same")
    if values and len(values) != len(shares):
        raise ValueError(f"a category of the center has {len(shares)} shares for {len(values)} values")
    # Shares are rounded.
    if math.fsum(shares) > 1 + 1e-9:
        raise ValueError("the shares of a category of the center add up to more than 1")
    if spread != category_spread(shares):
        raise ValueError("the spread of a category of the center does not follow from its shares")
    return Category(name, values, shares, spread)


def _gram(document: list[list[int]], size: int, most: int) -> np.ndarray:
    rows = [read_sized(row, "gram", size) for row in read_sized(document, "gram", size)]
    if any(abs(value) > most for row in rows for value in row):
        raise ValueError("gram of the center is not that of so many rows")
    if rows[0][0] < 1 or any(rows[i][i] < 0 for i in range(size)):
        raise ValueError("gram of the center has a diagonal that no rows have")
    for i, j in itertools.combinations(range(size), 2):
        if rows[i][j] != rows[j][i] or rows[i][j] ** 2 > rows[i][i] * rows[j][j]:
            raise ValueError("gram of the center is not a matrix of inner products")
    return np.array(rows, np.int64)


def _epsilon(epsilon: float, size: int) -> float:
    if size:
        check_epsilon(epsilon)
    elif epsilon:
        raise ValueError("the center has an epsilon but no component")
    return epsilon
