"""Input file formats, the filter by a public feature, and parts of files that are read apart.

Of TFRecord and CSV files, the rows must be found before a file is split; its parts are whole batches or whole shards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...mechanisms.core.label_classes import LabelClasses
from ..errors import InputError
from .csv_blocks import has_rows
from .csv_dialect import COMMA, Dialect
from .filesystems import CompressionTypes, is_remote
from .hive_partitions import Partition, find_partitions
from .limits import LIMITS, Limits
from .table_columns import TableColumns

FORMATS = ("tfrecord", "parquet", "csv", "orc")
CSV_TYPES = ("int64", "uint64", "float64", "string", "date", "timestamp")
BATCH_ROWS = LIMITS.batch_rows
SMALL_FILE_SIZE = 1 << 19
"""In bytes. For smaller files, what Beam and Python do for each of them costs more than its records."""

# Where there are as many files, workers are busy with whole ones; and with whole shards of a file that has as many.
ENOUGH_FILES = 8
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
      name: tfrecord, parquet, csv or orc.
      csv_types: Column name to one of `CSV_TYPES`, for CSV columns whose type cannot be inferred from the first
        65,536 rows. The types of other columns are inferred.
      partitions: Whether folders named KEY=VALUE in the path of a file are columns of it (`find_partitions`).
      root: Folder below which such folders are columns; empty for all folders of a path.
      dialect: Delimiter, encoding, marks of numbers and columns of CSV files.
      classes: Classes of private columns by name, as which they are read.
      missing: Labels that missing ones of private columns count as, by name; of classes their places.
      table: Columns as which Parquet files are read that may have others; None if all files need the same.
      hidden: Columns of Parquet and ORC files without a `table` that are read as if they were not there.
      limits: Sizes of the pieces in which files are read.
    """

    name: str
    csv_types: Mapping[str, str] | None = None
    partitions: bool = True
    dialect: Dialect = COMMA
    root: str = ""
    classes: Mapping[str, LabelClasses] | None = None
    missing: Mapping[str, float] | None = None
    table: TableColumns | None = None
    hidden: tuple[str, ...] = ()
    limits: Limits = LIMITS

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
      name: Name of the file in a table, by which its records are named; empty for a file that is named by its path.
      constants: Values of all records of the file, of Arrow, by name of a column of its table.
    """

    path: str
    first: str
    number: int = 0
    parts: int = 1
    files: int = 1
    partitions: tuple[Partition, ...] = ()
    samples: tuple[str, ...] = ()
    cuts: tuple[int, ...] = ()
    name: str = ""
    constants: tuple[tuple[str, Any], ...] = ()

    @property
    def source(self) -> str:
        """Name by which the records of the file are named."""
        return self.name or self.path


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


def splits(file: FilePart, encoding: str = "utf-8") -> bool:
    """Tells whether a whole file of rows is split into parts.

    Of CSV files, only those in UTF-8 are split: offsets in other encodings are not those of the text.

    Only few files are split that are local and not compressed: for others, finding the rows costs as much as it saves.
    """
    plain = CompressionTypes.detect_compression_type(file.path) == CompressionTypes.UNCOMPRESSED
    return encoding == "utf-8" and file.files < ENOUGH_FILES and plain and not is_remote(file.path)


def split_by_rows(
    file: FilePart, count: Callable[[], int], limits: Limits, encoding: str = "utf-8"
) -> Iterator[FilePart]:
    """Splits a whole file into parts that workers read in parallel, by its number of rows.

    Yields parts in order, at least one. `count` counts the rows, with another pass over the file; `encoding` is that of
    a CSV file.
    """
    parts = min(max(count() // limits.part_rows, 1), limits.parts) if splits(file, encoding) else 1
    for number in range(parts):
        yield dataclasses.replace(file, number=number, parts=parts)


def bounds_of_part(part: FilePart, batches: int, batch_rows: int) -> tuple[int, int | None]:
    """Rows of a part by `split_by_rows`, which are whole shards or whole batches of its file.

    `batches` is the number of batches of the file, of `batch_rows` rows each but the last. Returns (first, stop): the
    first row, and the one after the last; None for the end of the file. They are equal for a part without a shard:
    those come last, so that workers which take parts by turns get equally many shards. Parts are whole batches if the
    file has too few shards to occupy workers.

    A shard of one part is written once, by one worker; the segments of several are copied.
    """
    starts, parts = (0, *part.cuts), part.parts
    if len(starts) < ENOUGH_FILES:
        starts = range(0, batches * batch_rows, batch_rows)
    else:
        parts = min(parts, len(starts))
    if part.number >= parts:
        return 0, 0
    first, stop = (len(starts) * number // parts for number in (part.number, part.number + 1))
    return starts[first], starts[stop] if part.number < parts - 1 else None


def check_unique_columns(names: Sequence[str], path: str) -> None:
    """Checks that no column name of a file occurs twice. Raises InputError if one does."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs twice: column names must be unique")
