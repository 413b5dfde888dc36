"""Protocol of centers, of numbers or of classes: what ledger, report and attack ask them for."""

from __future__ import annotations

from typing import Protocol

from ..noise.noised_part import NoisedPart
from .feature_rows import RowMap


class Center(Protocol):
    """Prediction from features that was made of numbers with noise."""

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        """Everything that was released with noise, in its order."""

    @property
    def epsilon(self) -> float:
        """Budget that was spent, rounded up."""

    @property
    def map(self) -> RowMap:
        """Map of the features that it predicts from."""
