"""Input file formats, parts of files that are read apart, and the filter by a public feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import InputError

FORMATS = ("tfrecord", "parquet", "csv")
CSV_TYPES = ("int64", "float64", "string")
BATCH_ROWS = 1 << 14


@dataclass(frozen=True)
class Equals:
    """Filter that keeps the records whose feature equals a value.

    Attributes:
      column: The feature. It must not depend on the label, because which records are released is public.
      value: The value as text; it is converted to the type of the column. Booleans are true and false, in any case.
    """

    column: str
    value: str


@dataclass(frozen=True)
class Format:
    """Input file format.

    Attributes:
      name: tfrecord, parquet or csv.
      csv_types: Column name to int64, float64 or string, for CSV columns whose type cannot be inferred from the first
        block of rows. The types of other columns are inferred.
    """

    name: str
    csv_types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Checks the names.

        Raises:
          ValueError: If the format or a type is unknown.
        """
        if self.name not in FORMATS:
            raise ValueError(f"unknown format {self.name!r}; known: {', '.join(FORMATS)}")
        for name, kind in (self.csv_types or {}).items():
            if kind not in CSV_TYPES:
                raise ValueError(f"csv_types of {name!r} must be one of {', '.join(CSV_TYPES)}, not {kind!r}")


@dataclass(frozen=True)
class RowGroups:
    """Part of a Parquet file.

    Attributes:
      first: Index of its first row group.
      stop: Index after its last row group.
      start: Row of the file at which the part begins.
    """

    first: int
    stop: int
    start: int


@dataclass(frozen=True)
class FilePart:
    """File, or part of one, that one worker reads.

    Attributes:
      path: The file.
      first: The file whose schema this one must have: the first one that matched.
      groups: Row groups of a Parquet file; None for the whole file.
    """

    path: str
    first: str
    groups: RowGroups | None = None


def check_unique_columns(names: Sequence[str], path: str) -> None:
    """Checks that no column name occurs twice.

    Args:
      names: The column names of a file.
      path: The file, for the message.

    Raises:
      InputError: If one does.
    """
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs twice: column names must be unique")
