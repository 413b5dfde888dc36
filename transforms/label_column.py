"""The label column of a log: its name, its public domain, and how its values are rounded to the domain."""

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
    """Which column is private, over which public domain, and what names a record.

    name: the column. domain: (k,) ascending; labels outside are clamped. id_column: unique ids that follow a record
    wherever it moves; None for its file and row. rounding: labels between two of the domain become the "nearest", or
    are "randomized", which is right on average (see `label_rounding`).
    """

    name: str
    domain: tuple[float, ...]
    id_column: str | None = None
    rounding: str = NEAREST

    def __post_init__(self) -> None:
        """Raises ValueError for a bad domain, a label that is its own id, or an unknown rounding."""
        check_domain(np.array(self.domain, np.float64))
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.id_column == self.name:
            raise ValueError("id_column must be another column than the label")

    @property
    def labels(self) -> np.ndarray:
        """(k,) float64."""
        return np.array(self.domain, np.float64)

    def indices(self, values: np.ndarray, identities: Identities, secret: bytes) -> np.ndarray:
        """Which labels of the domain these labels become: the same whenever they are asked for.

        values: (n,) finite float64. identities: their records' names. secret: 32 bytes, of the coins.
        Returns (n,) integers in [0, k).
        """
        if self.rounding == NEAREST:
            return self._rounder.nearest(values)
        purpose = f"rounding {self.name}".encode()
        return self._rounder.randomized(values, lambda: words(secret, purpose, identities))

    @cached_property
    def _rounder(self) -> LabelRounder:
        # Made once: it costs as much as the domain is long.
        return LabelRounder(self.labels)

    @property
    def columns(self) -> list[str]:
        """All that fitting has to read."""
        return [self.name] if self.id_column is None else [self.name, self.id_column]
