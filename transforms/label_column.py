"""The private label column: its name, its public domain, and the rounding of labels to that domain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..mechanisms.core.label_grid import check_domain
from ..mechanisms.core.label_rounding import NEAREST, ROUNDINGS, LabelRounder
from ..mechanisms.noise.keyed_words import words
from ..mechanisms.noise.record_identities import Identities


@dataclass(frozen=True)
class LabelColumn:
    """Private column with its public domain, and the identity of its records.

    Attributes:
      name: Name of the column.
      domain: The k labels of the public domain, ascending. Labels outside are clamped.
      id_column: Column of unique ids, which stay with a record when it moves to another file or row. None to identify
        records by file and row.
      rounding: "nearest" maps a label to the closest one of the domain; "randomized" draws one of the two neighbors,
        so that rounding is unbiased (see `label_rounding`).
    """

    name: str
    domain: tuple[float, ...]
    id_column: str | None = None
    rounding: str = NEAREST

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid domain, an id column that is the label column, or an unknown rounding."""
        check_domain(np.array(self.domain, np.float64))
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.id_column == self.name:
            raise ValueError("id_column must not be the label column")

    @property
    def labels(self) -> np.ndarray:
        """The domain as an array, shape (k,), float64."""
        return np.array(self.domain, np.float64)

    def indices(self, values: np.ndarray, identities: Identities, secret: bytes) -> np.ndarray:
        """Rounds labels to the domain. Deterministic: the same arguments always give the same result.

        Args:
          values: Labels, shape (n,), finite float64.
          identities: Identities of the n records.
          secret: Secret key, 32 bytes, for randomized rounding.

        Returns:
          Indices into the domain, shape (n,), integers in [0, k).
        """
        if self.rounding == NEAREST:
            return self._rounder.nearest(values)
        purpose = f"rounding {self.name}".encode()
        return self._rounder.randomized(values, lambda: words(secret, purpose, identities))

    @cached_property
    def _rounder(self) -> LabelRounder:
        # Cached: building it takes time proportional to the size of the domain.
        return LabelRounder(self.labels)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that fitting reads."""
        return [self.name] if self.id_column is None else [self.name, self.id_column]
