"""Input file formats, and the filter by a public feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BATCH_ROWS = 1 << 14
FORMATS = ("tfrecord", "parquet", "csv")


CSV_TYPES = ("int64", "float64", "string")


@dataclass(frozen=True)
class Equals:
    """Keeps the records whose feature has this value, compared as text. The feature must not depend on the label."""

    column: str
    value: str


@dataclass(frozen=True)
class Format:
    """How files are laid out.

    name: one of tfrecord, parquet, csv. csv_types: column name to int64, float64 or string, for CSV columns whose
    first block of rows misleads; other columns' types are inferred.
    """

    name: str
    csv_types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown format or type."""
        if self.name not in FORMATS:
            raise ValueError(f"unknown format {self.name!r}; known: {', '.join(FORMATS)}")
        for name, kind in (self.csv_types or {}).items():
            if kind not in CSV_TYPES:
                raise ValueError(f"csv_types of {name!r} must be one of {', '.join(CSV_TYPES)}, not {kind!r}")
