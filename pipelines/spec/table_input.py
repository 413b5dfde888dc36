"""Tables that a job reads, of which one snapshot is pinned, or adds its shards to; and files with missing columns.

Functions raise FieldError if a field is wrong or a table cannot be read.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from ...transforms.errors import InputError
from ...transforms.io.filesystems import is_remote, store_of
from ...transforms.io.input_format import Equals, Format
from ...transforms.io.table_columns import TableColumn, TableColumns
from ...transforms.progress_log import LOGGER
from ...transforms.readers.column_types import common_type, read_type
from ...transforms.readers.parquet_reader import parquet_schema
from ...transforms.readers.table_snapshot import TableSnapshot, TableUrl
from ...transforms.stores.object_store import is_store
from ..errors import FieldError, one_line
from .machine import check_extra
from .release import InputSpec

_MODULES = {"iceberg": "pyiceberg", "delta": "deltalake"}
_AT_ONCE = 16
_WILDCARDS = "*?["
_METADATA = ".metadata.json"


def table_spec(table: str, format: Format, where: Equals | None) -> InputSpec:
    """Pins the snapshot of the table that `input` names, and lists its files. Without a number, says which it is."""
    if format.name != "parquet":
        raise FieldError("{input_format} {name}: tables have Parquet files: give parquet", name=format.name)
    try:
        url = TableUrl.parse(table)
        check_extra(f"--input {url.format}://", url.format, _MODULES[url.format])
        snapshot = _snapshot(url)
    except InputError as error:
        raise FieldError("{input} {problem}", problem=one_line(str(error))) from None
    if url.snapshot is None:
        LOGGER.info("reading %s, schema %s: name it to read it again", one_line(snapshot.url), snapshot.schema_id)
    # Folders named KEY=VALUE have no meaning of their own: the table says what its columns are.
    format = dataclasses.replace(format, partitions=False, table=snapshot.columns)
    parts = tuple(snapshot.parts())
    return InputSpec(snapshot.url, parts, snapshot.size / len(parts), format, where, snapshot)


def _snapshot(url: TableUrl) -> TableSnapshot:
    # The library of an extra is loaded for its own tables alone.
    if url.format == "iceberg":
        from ...transforms.readers.iceberg_table import iceberg_snapshot

        return iceberg_snapshot(url)
    from ...transforms.readers.delta_table import delta_snapshot

    return delta_snapshot(url)


def look_at_table(table: str | None) -> TableUrl | None:
    """Finds `output_table`, to which shards are added; None without it. A catalog must be known before the charge."""
    if table is None:
        return None
    try:
        url = TableUrl.parse(table)
        check_extra(f"--output_table {url.format}://", url.format, _MODULES[url.format])
        if url.format == "iceberg":
            from ...transforms.readers.iceberg_table import open_catalog

            with open_catalog(url.table, f"iceberg://{url.table}"):
                pass
    except InputError as error:
        raise FieldError("{output_table} {problem}", problem=one_line(str(error))) from None
    return url


def check_output_table(url: TableUrl | None, given: str | None, format: str, partitioned: bool) -> None:
    """Checks that shards of a format can be added to the table that is given, if one is."""
    if url is not None and url.snapshot is not None:
        raise FieldError("{output_table} {table}: a snapshot cannot be written to", table=given)
    if url is not None and (format != "parquet" or partitioned):
        raise FieldError("{output_table} takes shards of {output_format} parquet, without {partition_output}")


def check_not_ordered(table: TableSnapshot, label: str) -> None:
    """Refuses a label by which a table puts records into files or in order: both are released, as they are public."""
    if label in table.ordered_by:
        raise FieldError(
            "{label} {name}: the table is partitioned or sorted by it, so the file and the order of a record tell its "
            "label, and both are released: rewrite the table without that",
            name=label,
        )


def union_columns(paths: Sequence[str]) -> TableColumns:
    """Columns of all Parquet files that are read together: those of the first one, then further ones of each file.

    Raises InputError if a column has types in two files that do not hold the same values.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        schemas = list(threads.map(lambda path: parquet_schema(path)[0], paths))
    types: dict[str, tuple[pa.DataType, str]] = {}
    for path, schema in zip(paths, schemas, strict=True):
        for field in schema:
            kind = read_type(field.type, len(paths))
            known, first = types.get(field.name, (kind, path))
            common = common_type(kind, known)
            if common is None:
                raise InputError(
                    f"{path}: column {field.name!r} holds {kind}, but {known} in {first}: a column needs one type in "
                    "all files"
                )
            types[field.name] = common, first
    return TableColumns(tuple(TableColumn(name, kind) for name, (kind, _) in types.items()))


def check_no_table(pattern: str, paths: Sequence[str]) -> None:
    """Refuses a glob over the folder of a table: it matches files that were deleted from it, or are not yet in it.

    One file that is named without a wildcard is meant.
    """
    if list(paths) == [pattern] or not any(character in pattern for character in _WILDCARDS):
        return
    for folder in _folders(pattern, paths):
        kind = _table_at(folder)
        if kind is not None:
            url = f"delta://{folder}" if kind == "Delta" else "iceberg://CATALOG/NAMESPACE.TABLE"
            raise FieldError(
                "{input} {pattern} matches files of the {kind} table in {folder}, and so those that were deleted from "
                "it, too: read the table with {input} {url}, or name one file, without a wildcard, if that is meant",
                pattern=pattern, kind=kind, folder=folder, url=url,
            )  # fmt: skip


def _folders(pattern: str, paths: Sequence[str]) -> list[str]:
    """Folders in which files of a glob would be those of a table: all above them; on a store above the wildcard."""
    remote = is_remote(pattern)
    starts = {_parent(_literal(pattern))} if remote else {_parent(path) for path in paths}
    folders: dict[str, None] = {}
    for start in sorted(starts):
        folder = start
        while folder and folder not in folders and not folder.endswith(":/"):
            folders[folder] = None
            folder = _parent(folder)
    return list(folders)


def _literal(pattern: str) -> str:
    return pattern[: min(pattern.index(character) for character in _WILDCARDS if character in pattern)]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _table_at(folder: str) -> str | None:
    """Format of the table in a folder; None if there is none, or its filesystem cannot tell."""
    if is_store(folder):
        store = store_of(folder)
        if any(True for _ in store.list(f"{folder}/_delta_log/")):
            return "Delta"
        return "Iceberg" if any(i.path.endswith(_METADATA) for i in store.list(f"{folder}/metadata/")) else None
    if is_remote(folder):
        return None
    if os.path.isdir(f"{folder}/_delta_log"):
        return "Delta"
    metadata = f"{folder}/metadata"
    names = os.listdir(metadata) if os.path.isdir(metadata) and os.access(metadata, os.R_OK) else []
    return "Iceberg" if any(name.endswith(_METADATA) for name in names) else None
