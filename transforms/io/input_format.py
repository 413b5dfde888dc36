"""Input file formats, parts of files that are read apart, and the filter by a public feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import InputError
from .csv_blocks import has_rows
from .csv_dialect import COMMA, Dialect
from .hive_partitions import Partition, find_partitions

FORMATS = ("tfrecord", "parquet", "csv")
CSV_TYPES = ("int64", "uint64", "float64", "string", "date", "timestamp")
BATCH_ROWS = 1 << 14
SMALL_FILE_SIZE = 1 << 19
"""In bytes. For smaller files, what Beam and Python do for each of them costs more than its records."""

_MOST_LISTED = 20
# CSV files that are looked at for the type of a column without a value in the first ones.
_SAMPLED_FILES = 8


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
      csv_types: Column name to one of `CSV_TYPES`, for CSV columns whose type cannot be inferred from the first
        65,536 rows. The types of other columns are inferred.
      partitions: Whether folders named KEY=VALUE in the path of a file are columns of it (`find_partitions`).
      root: Folder below which such folders are columns; empty for all folders of a path.
      dialect: Delimiter, encoding, marks of numbers and columns of CSV files.
    """

    name: str
    csv_types: Mapping[str, str] | None = None
    partitions: bool = True
    dialect: Dialect = COMMA
    root: str = ""

    def __post_init__(self) -> None:
        """Checks the names. Raises ValueError if the format or a type is unknown."""
        if self.name not in FORMATS:
            raise ValueError(f"unknown format {self.name!r}; known: {', '.join(FORMATS)}")
        for name, kind in (self.csv_types or {}).items():
            if kind not in CSV_TYPES:
                raise ValueError(f"csv_types of {name!r} must be one of {', '.join(CSV_TYPES)}, not {kind!r}")


@dataclass(frozen=True)
class FilePart:
    """File, or part of one, that one worker reads.

    A part is named by its number alone: where it begins follows from the file, whose sizes can depend on labels, and
    sizes of elements are shown by runners.

    Attributes:
      path: The file.
      first: The file whose schema this one must have: the first one that matched, of CSV the first one with a record.
      number: Number of this part of the file, from 0.
      parts: Number of parts of the file, >= 1.
      files: Number of files that are read together.
      partitions: Columns that all records of the file have from its folders.
      samples: `first` and files after it, of CSV, whose first rows determine the types of columns.
      cuts: Rows of the file at which the records of another shard begin, ascending, where the reader knows them.
    """

    path: str
    first: str
    number: int = 0
    parts: int = 1
    files: int = 1
    partitions: tuple[Partition, ...] = ()
    samples: tuple[str, ...] = ()
    cuts: tuple[int, ...] = ()


def file_parts(paths: Sequence[str], format: Format) -> list[FilePart]:
    """Describes whole files that are read together; the first one sets the schema, of CSV the first with a record.

    Raises InputError if the partition columns of the files differ.
    """
    found = find_partitions(paths, format.root) if format.partitions else [()] * len(paths)
    samples = _samples(paths, format.dialect) if format.name == "csv" else ()
    first = samples[0] if samples else paths[0]
    return [
        FilePart(path, first, files=len(paths), partitions=own, samples=samples)
        for path, own in zip(paths, found, strict=True)
    ]


def _samples(paths: Sequence[str], dialect: Dialect) -> tuple[str, ...]:
    """The first CSV file with a record, and files after it; the first files if none has one."""
    begin = 0
    if len(paths) > 1:
        begin = next((place for place, path in enumerate(paths) if has_rows(path, dialect)), 0)
    return tuple(paths[begin : begin + _SAMPLED_FILES])


def listed(names: Sequence[str]) -> str:
    """First 20 column names, separated by commas, for an error message."""
    return ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")


def check_unique_columns(names: Sequence[str], path: str) -> None:
    """Checks that no column name of a file occurs twice. Raises InputError if one does."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs twice: column names must be unique")
