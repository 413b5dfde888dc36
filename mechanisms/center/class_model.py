"""Center of classes as a model of its own, which predicts probabilities for new records: center.json of a release."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core.document_form import check_form
from ..core.label_classes import LabelClasses
from .center_model import CENTER_FORMAT, mapped_columns
from .class_center import PROBABILITY_UNIT, ClassCenter
from .class_document import class_document, read_class_center


@dataclass(frozen=True, eq=False)
class ClassModel:
    """A released center of classes, a classifier under label DP that costs the center's epsilon alone.

    A release of classes that were drawn from a center has it as `center.json`.

    Attributes:
      column: Name of the column that holds its probabilities in the release.
      classes: The K classes, in the order of the probabilities.
      center: The center.
    """

    column: str
    classes: LabelClasses
    center: ClassCenter

    @classmethod
    def from_json(cls, text: str) -> ClassModel:
        """Reads a center.json, which is untrusted.

        Args:
          text: The file's text.

        Returns:
          The model.

        Raises:
          ValueError: If it is not a center of classes, or what it says does not follow from its noised numbers.
        """
        document = json.loads(text)
        check_form(document, "class_center_file", "center.json")
        column, listed = document["column"], document["classes"]
        classes, center = LabelClasses(tuple(listed["values"]), listed["other"]), read_class_center(document["center"])
        if len(classes) != len(center.counts):
            raise ValueError("the center is for another number of classes")
        return cls(column, classes, center)

    def to_document(self) -> dict[str, Any]:
        """Writes the model as a document.

        Returns:
          The object that center.json holds.
        """
        center, classes = class_document(self.center), {**asdict(self.classes), "values": list(self.classes.values)}
        return {"format": CENTER_FORMAT, "column": self.column, "classes": classes, "center": center}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self.center.linear.design.map.columns)

    @property
    def epsilon(self) -> float:
        """Budget that the center has spent."""
        return self.center.epsilon

    def predict(self, columns: Mapping[str, Iterable[Any]]) -> np.ndarray:
        """Predicts the probabilities of the classes.

        For records of the release, they are the column of probabilities; where features are float32, as in TFRecords,
        up to rounding.

        Args:
          columns: Features of n records by name, as for `CenterModel.predict`.

        Returns:
          Shape (n, K), float64; rows add up to 1.

        Raises:
          ValueError: If a feature is missing or has the wrong type, or the columns have different lengths.
        """
        found = mapped_columns(self.center.linear.design.map, columns)
        return self.center.probabilities(found) / PROBABILITY_UNIT


@functools.lru_cache(maxsize=16)
def center_fingerprint(center: ClassCenter) -> str:
    """Fingerprint of a center of classes, 64 hexadecimal digits: BLAKE2b of its canonical JSON."""
    text = json.dumps(class_document(center), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
