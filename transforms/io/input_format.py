"""Input file formats, parts of files that are read apart, and the filter by a public feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import InputError

FORMATS = ("tfrecord", "parquet", "csv")
CSV_TYPES = ("int64", "float64", "string")
BATCH_ROWS = 1 << 14

_MOST_LISTED = 20


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
        65,536 rows. The types of other columns are inferred.
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
class FilePart:
    """File, or part of one, that one worker reads.

    A part is named by its number alone: which rows it has follows from the row groups of the file, whose sizes can
    depend on labels, and sizes of elements are shown by runners.

    Attributes:
      path: The file.
      first: The file whose schema this one must have: the first one that matched.
      number: Number of this part of a Parquet file, from 0.
      parts: Number of parts of the file, >= 1.
    """

    path: str
    first: str
    number: int = 0
    parts: int = 1


def listed(names: Sequence[str]) -> str:
    """Lists column names for an error message.

    Args:
      names: The names.

    Returns:
      The first 20 of them, separated by commas.
    """
    return ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")


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
