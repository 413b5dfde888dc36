"""Snapshots of tables in table formats, Iceberg and Delta: one fixed list of Parquet files, in a fixed order.

A table changes while it is read, and its folder also holds files that were deleted from it. So the files are listed
once, when a job is requested. Their records are named by the id of the table, the path of the file below the table's
folder and the row: the same for every snapshot that has the file, wherever the table lies.

The metadata of a table is untrusted. It may name only files below the table's folder, each of them once, in one way of
writing. Statistics of columns in it, such as the largest label, are never read.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ..errors import InputError
from ..io.filesystems import absolute, is_remote
from ..io.input_format import FilePart
from ..io.table_columns import TableColumns

SCHEMES = ("iceberg", "delta")
"""Table formats, as a URL names them."""
MOST_FILES = 100_000
"""More are refused: the list is a part of the job graph."""

LARGEST_METADATA = 1 << 28
"""Bytes of the largest file of metadata, when expanded."""

_URL = re.compile(r"(?P<format>iceberg|delta)://(?P<table>[^@].*?)(?:@(?P<snapshot>[^@/]*))?", re.DOTALL)
_LARGEST_SNAPSHOT = (1 << 63) - 1


@dataclass(frozen=True)
class TableUrl:
    """URL of a table.

    Attributes:
      format: One of `SCHEMES`.
      table: Catalog and name of an Iceberg table, folder of a Delta table; absolute if it is local.
      snapshot: Id of the snapshot, or version of the Delta table; None for the current one.
    """

    format: str
    table: str
    snapshot: int | None = None

    @classmethod
    def parse(cls, text: str) -> TableUrl:
        """Reads iceberg://CATALOG/NAMESPACE.TABLE[@SNAPSHOT_ID] or delta://PATH[@VERSION].

        Raises InputError if the text is neither.
        """
        match, form = _URL.fullmatch(text), "iceberg://CATALOG/NAMESPACE.TABLE[@SNAPSHOT_ID] or delta://PATH[@VERSION]"
        if match is None:
            raise InputError(f"{text} is not of the form {form}")
        format, table, given = match["format"], match["table"], match["snapshot"]
        if given is not None and not (re.fullmatch("[0-9]{1,19}", given, re.ASCII) and int(given) <= _LARGEST_SNAPSHOT):
            raise InputError(f"{text}: a snapshot is named by its number, as in {form}")
        if format == "iceberg" and not re.fullmatch(r"[^/]+/[^/.]+(\.[^/.]+)+", table):
            raise InputError(f"{text} is not of the form {form}")
        if format == "delta":
            table = absolute(table).rstrip("/")
        return cls(format, table, None if given is None else int(given))


def is_table(pattern: str) -> bool:
    """Tests whether a path or pattern is the URL of a table."""
    return pattern.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


@dataclass(frozen=True)
class TableFile:
    """Data file of a snapshot: its path below the table's folder, its size in bytes, and values of all its records."""

    name: str
    size: int
    constants: tuple[tuple[str, pa.Scalar], ...] = ()


@dataclass(frozen=True)
class TableSnapshot:
    """One snapshot of a table.

    Attributes:
      format: One of `SCHEMES`.
      table: As in `TableUrl`.
      table_id: Id that the table has for good.
      snapshot: Id of the snapshot, or version.
      schema_id: Id of the schema; for Delta a hash of names and types of the columns.
      folder: Folder of the table, without a slash at its end.
      files: Data files, sorted by name; at least one.
      columns: Columns of the table.
      ordered_by: Columns on which the files of records, or their order, depend.
    """

    format: str
    table: str
    table_id: str
    snapshot: int
    schema_id: str
    folder: str
    files: tuple[TableFile, ...]
    columns: TableColumns
    ordered_by: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        """URL with the snapshot."""
        return f"{self.format}://{self.table}@{self.snapshot}"

    @property
    def size(self) -> int:
        """Size of all files in bytes, as the table states it."""
        return sum(file.size for file in self.files)

    @property
    def statement(self) -> dict[str, str]:
        """Names of table, snapshot and schema, as a manifest states them; of a Delta table, its folder's name."""
        name = self.table if self.format == "iceberg" else posixpath.basename(self.table)
        return {
            "format": self.format,
            "name": name,
            "id": self.table_id,
            "snapshot": str(self.snapshot),
            "schema": self.schema_id,
        }

    def parts(self) -> list[FilePart]:
        """The files, as parts that workers read."""
        paths = [f"{self.folder}/{file.name}" for file in self.files]
        return [
            FilePart(
                path, paths[0], files=len(paths),
                name=f"{self.format}:{self.table_id}/{file.name}", constants=file.constants,
            )
            for path, file in zip(paths, self.files, strict=True)
        ]  # fmt: skip


def name_in_table(path: str, folder: str, what: str) -> str:
    """Path of a data file below the folder of its table.

    `path` is absolute or a URL as the folder is. Raises InputError, which begins with `what`, if the file does not lie
    there, also by a link, or its path has another way of writing.
    """
    name = path[len(folder) + 1 :] if path.startswith(f"{folder}/") else ""
    if not name or any(part in ("", ".", "..") for part in name.split("/")):
        raise InputError(
            f"{what} names the file {path}, which does not lie below the table's folder {folder}: such a path may "
            "lead to any file, so it is not read. Copy the data into the table, or export it to Parquet files"
        )
    if not is_remote(folder) and not os.path.realpath(path).startswith(f"{os.path.realpath(folder)}/"):
        raise InputError(
            f"{what} names the file {path}, which is a link out of the table's folder {folder}, so it is not read. "
            "Replace the link by a copy of the file"
        )
    return name


def sorted_files(files: Iterable[TableFile], what: str) -> tuple[TableFile, ...]:
    """Sorts the files of a snapshot by name.

    Raises InputError, which begins with `what`, if there is none, there are too many, or one is there twice.
    """
    found: dict[str, TableFile] = {}
    for file in files:
        if file.name in found:
            # Two records would have one name, and so the same noise.
            raise InputError(f"{what} names the data file {file.name} twice: export the table to Parquet files")
        found[file.name] = file
        if len(found) > MOST_FILES:
            raise InputError(f"{what} has more than {MOST_FILES:,} data files: compact the table (rewrite, optimize)")
    if not found:
        raise InputError(f"{what} has no data file: nothing would be released")
    return tuple(found[name] for name in sorted(found))


def readable_type(kind: pa.DataType) -> pa.DataType:
    """Type of a table's column as which it is read: without metadata, nulls allowed, in layouts of 32-bit offsets."""
    if isinstance(kind, pa.BaseExtensionType):
        return readable_type(kind.storage_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", readable_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, readable_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (readable_type(part) for part in (kind.key_type, kind.item_type))
        return pa.map_(key, item)
    return kind


def local_path(location: str) -> str:
    """Path of a location in metadata, without a slash at its end: that of a file: URL; s3: for s3a: and s3n:."""
    path = re.sub(r"^file:(?://)?(?=/)", "", re.sub(r"^s3[an]://", "s3://", location))
    return path.rstrip("/") if is_remote(path) else f"/{path.strip('/')}" if path.startswith("/") else path


def scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """A value as Arrow has it in a column of this type."""
    if value is None or not isinstance(value, int) or isinstance(value, bool) or pa.types.is_integer(kind):
        return pa.scalar(value, kind)
    # Days and microseconds since 1970, as Iceberg has dates and times.
    wide = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.scalar(value, wide).cast(kind)
