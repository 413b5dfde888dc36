"""Center of classes in a mechanism file: the column of its probabilities, and the center itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...mechanisms.center.class_center import ClassCenter
from ...mechanisms.center.class_document import class_document, read_class_center
from ...mechanisms.core.prior import Prior


@dataclass(frozen=True, eq=False)
class ClassStatement:
    """Member `class_center` of a mechanism file.

    Attributes:
      column: Column of the probabilities of each record.
      center: The center, from which the classes were drawn.
    """

    column: str
    center: ClassCenter

    @property
    def epsilon(self) -> float:
        """Epsilon that the center has spent."""
        return self.center.epsilon

    @property
    def prior(self) -> Prior:
        """Shares of the classes, by the released counts."""
        shares = self.center.shares
        return Prior(np.arange(len(shares), dtype=np.float64), shares)

    def to_document(self) -> dict[str, Any]:
        """Writes the member, which center.json holds as well."""
        return {"column": self.column, "center": class_document(self.center)}

    @classmethod
    def from_document(cls, document: Any, classes: int, audited: bool = False) -> ClassStatement:
        """Reads the member, which is untrusted, of a file of so many classes; `audited` as for `read_class_center`.

        Raises ValueError if it is wrong.
        """
        if not isinstance(document, dict) or set(document) != {"column", "center"}:
            raise ValueError("its class_center must have a column and a center")
        if not isinstance(document["column"], str) or not document["column"]:
            raise ValueError("the column of its class_center is not a name")
        center = read_class_center(document["center"], audited)
        if len(center.counts) != classes:
            raise ValueError("its class_center is for another number of classes")
        return cls(document["column"], center)
