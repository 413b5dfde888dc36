"""Groups of records by a public column, whose residuals have ranges of their own."""

from __future__ import annotations

from dataclasses import dataclass

from ..noise.keyed_words import Groups

MOST_VALUES = 15
"""Largest number of declared values."""


@dataclass(frozen=True)
class LabelGroups:
    """Groups of records: one for each declared value of a public column, then one for all other records.

    Attributes:
      column: Name of the column. It holds text, integers or booleans.
      values: The declared values as text, all different. Integers are written in decimal digits, booleans as 0 and 1.
    """

    column: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for no value, too many, or two equal ones."""
        if not 1 <= len(self.values) <= MOST_VALUES:
            raise ValueError(f"groups need 1 to {MOST_VALUES} values, not {len(self.values)}")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"two groups have the same value of {self.column!r}")

    @property
    def size(self) -> int:
        """Number of groups; the last one is that of all other values, and of records without a value."""
        return len(self.values) + 1

    @property
    def request(self) -> Groups:
        """The groups as noise is bound to them."""
        return self.column, self.values
