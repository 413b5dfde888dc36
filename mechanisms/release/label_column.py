"""The private label column: its name, its public domain, the rounding of labels to it, and their public center."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..center.residuals import ResidualDomain, check_even
from ..core.label_grid import check_domain
from ..core.label_rounding import NEAREST, ROUNDINGS, LabelRounder
from ..noise.keyed_words import words
from ..noise.record_identities import Identities


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
      center: Column of public predictions of the label, around which labels are privatized: the randomizer gets the
        label minus its center. None for labels without a center.
    """

    name: str
    domain: tuple[float, ...]
    id_column: str | None = None
    rounding: str = NEAREST
    center: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid domain, a column in two roles, an unknown rounding, or an uneven domain."""
        check_domain(np.array(self.domain, np.float64))
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.id_column == self.name:
            raise ValueError("id_column must not be the label column")
        if self.center == self.name:
            raise ValueError("the center must not be the label column: it is released as it is")
        if self.center is not None:
            check_even(self.labels)

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

    def center_indices(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Rounds centers to the nearest label of the domain; those outside are clamped to its ends.

        They are rounded to float32 first, the precision of features in TFRecords, so that a center that is read back
        from a release gives the same label. A missing or infinite center becomes the label in the middle of the domain.

        Args:
          values: Centers, shape (n,), float64; NaN where there is none.

        Returns:
          Indices into the domain, shape (n,), integers in [0, k), and the number of missing or infinite centers.
        """
        with np.errstate(over="ignore"):
            values = values.astype(np.float32).astype(np.float64)
        known = np.isfinite(values)
        indices = np.full(len(values), (len(self.domain) - 1) // 2)
        indices[known] = self._rounder.nearest(values[known])
        return indices, int((~known).sum())

    @cached_property
    def residuals(self) -> ResidualDomain:
        """Residuals of the labels around their centers.

        Raises:
          ValueError: If the domain is not evenly spaced.
        """
        return ResidualDomain(self.labels)

    @property
    def cells(self) -> int:
        """Number of cells of the histogram: k, or with a center the number of cells of residuals."""
        return len(self.domain) if self.center is None else self.residuals.cells

    @property
    def columns(self) -> list[str]:
        """Names of the columns that fitting reads."""
        return list(dict.fromkeys(name for name in (self.name, self.id_column, self.center) if name is not None))
