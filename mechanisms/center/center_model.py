"""Linear center as a model of its own: predicts labels for new records. Read from center.json of a release."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .center_document import center_document, read_center
from .feature_rows import Categories, Category
from .linear_center import LinearCenter
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
        if not isinstance(document, dict) or document.get("format") != CENTER_FORMAT:
            raise ValueError(f"this is not a center: its format is not {CENTER_FORMAT}")
        if set(document) != {"format", "column", "domain", "linear"}:
            raise ValueError("a center must have a column, a domain and a linear center, and nothing else")
        column, domain = document["column"], document["domain"]
        if not isinstance(column, str):
            raise ValueError("column of the center is not text")
        if not isinstance(domain, list) or not all(isinstance(each, float) and math.isfinite(each) for each in domain):
            raise ValueError("domain of the center is not a list of finite floats")
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
        values = {
            name: column.tolist() if isinstance(column, np.ndarray) else list(column)
            for name, column in columns.items()
        }
        missing = [name for name in self.features if name not in values]
        if missing:
            raise ValueError(f"the center needs a column {missing[0]!r}")
        lengths = {len(column) for column in values.values()}
        if len(lengths) != 1:
            raise ValueError("the center needs at least one column, and all of one length")
        found: dict[str, np.ndarray | Categories] = {"": np.zeros(lengths.pop())}
        for encoder in self.linear.design.map.encoders:
            column = values[encoder.name]
            categories = isinstance(encoder, Category)
            found[encoder.name] = _categories(column) if categories else _numbers(encoder.name, column)
        if self.features:
            del found[""]
        return np.array(self.domain)[self.linear.indices(found)]


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
