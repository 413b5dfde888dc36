"""Versions of Delta tables, through deltalake (extra `delta`), which reads the log of a table, never a data file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ..arrow_values import plain_schema, record_bytes
from ..errors import InputError, describe
from ..io.filesystems import is_remote, match
from ..io.input_format import FilePart
from ..io.table_columns import TableColumn, TableColumns
from .parquet_reader import ParquetReader
from .table_snapshot import (
    LARGEST_METADATA,
    TableFile,
    TableSnapshot,
    TableUrl,
    name_in_table,
    readable_type,
    sorted_files,
)

_READABLE = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"}
"""Features of a table that change no data file, or are checked here."""
# Version 2 added column mapping, and version 3 a list of features.
_LAST_PROTOCOL = 3
_LOG = "_delta_log"
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.(?:[0-9]{10}\.([0-9]{10})\.)?.*")
_REWRITE = "rewrite the table without it, or export it to Parquet files"


def delta_snapshot(url: TableUrl) -> TableSnapshot:
    """Finds the data files and columns of a version: of the one that the URL names, or the current one.

    Raises InputError, which names the table, if there is no such version, or it cannot be read as a list of Parquet
    files.
    """
    what = f"delta://{url.table}" + ("" if url.snapshot is None else f"@{url.snapshot}")
    if not is_remote(url.table) and not os.path.isdir(os.path.join(url.table, _LOG)):
        raise InputError(f"{what}: there is no Delta table: {url.table} has no folder {_LOG}")
    try:
        return _snapshot(url, what)
    except InputError:
        raise
    except Exception as error:
        version = "the table" if url.snapshot is None else f"the table, and that version {url.snapshot} is still there"
        raise InputError(f"{what} cannot be read ({describe(error)}): check {version}") from None


def _snapshot(url: TableUrl, what: str) -> TableSnapshot:
    from deltalake import DeltaTable

    _check_log(url, what)
    table = DeltaTable(url.table, version=url.snapshot)
    _check_features(table, what)
    schema = pa.schema(table.schema())
    plain, partitioned = plain_schema(schema), table.metadata().partition_columns
    columns = TableColumns(tuple(TableColumn(field.name, readable_type(field.type)) for field in plain))
    return TableSnapshot(
        format="delta",
        table=url.table,
        table_id=_table_id(table, what),
        snapshot=table.version(),
        schema_id=_schema_id(columns),
        folder=url.table,
        files=sorted_files(_files(table, columns, partitioned, url.table, what), what),
        columns=columns,
        ordered_by=frozenset(partitioned),
    )


def _check_log(url: TableUrl, what: str) -> None:
    """Checks the sizes of the files of the log, and what checkpoints expand to, before deltalake reads them.

    Raises InputError, which names the file.
    """
    sizes = _sizes(f"{url.table}/{_LOG}")
    checkpoints = _checkpoints(sizes, url.snapshot)
    for path, size in sizes.items():
        expanded = size
        batches = ParquetReader(None).read(FilePart(path, path)) if path in checkpoints else iter(())
        while expanded <= LARGEST_METADATA and (batch := next(batches, None)) is not None:
            expanded += int(record_bytes(batch).sum())
        if expanded > LARGEST_METADATA:
            raise InputError(
                f"{what}: {path} has more than {LARGEST_METADATA >> 20} MiB when expanded: write a checkpoint with "
                "fewer files and statistics, or export the table to Parquet files"
            )


def _sizes(log: str) -> dict[str, int]:
    """Files of a log, with those that its checkpoints name, and their sizes in bytes."""
    if is_remote(log):
        return match(f"{log}/*")
    return {
        entry.path: entry.stat().st_size
        for folder in (log, f"{log}/_sidecars")
        if os.path.isdir(folder)
        for entry in os.scandir(folder)
        if entry.is_file()
    }


def _checkpoints(paths: Collection[str], version: int | None) -> set[str]:
    """Those files that may be read for a version: the newest checkpoint, any incomplete ones after it, and sidecars."""
    found = {path for path in paths if "/_sidecars/" in path}
    named = {path: name for path in paths if (name := _CHECKPOINT.fullmatch(path.rpartition("/")[2]))}
    for number in sorted({int(name[1]) for name in named.values()}, reverse=True):
        if version is None or number <= version:
            own = {path: name[2] for path, name in named.items() if int(name[1]) == number}
            found |= own.keys()
            if any(parts is None or int(parts) == len(own) for parts in own.values()):
                break
    return {path for path in found if path.endswith(".parquet")}


def _table_id(table: Any, what: str) -> str:
    try:
        # It is released: the log might state any text.
        return str(uuid.UUID(table.metadata().id))
    except ValueError:
        raise InputError(f"{what}: the id of the table is no UUID, as Delta tables have: {_REWRITE}") from None


def _check_features(table: Any, what: str) -> None:
    """Refuses what would make other records of the data files than those that they hold."""
    protocol, settings = table.protocol(), table.metadata().configuration
    features = set(protocol.reader_features or ())
    if settings.get("delta.columnMapping.mode", "none") != "none" or "columnMapping" in features:
        raise InputError(
            f"{what} has column mapping: names in its files are other ones, and labeldp does not know them; {_REWRITE}"
        )
    unknown = sorted(features - _READABLE)
    if unknown or protocol.min_reader_version > _LAST_PROTOCOL:
        name = f"the feature {unknown[0]}" if unknown else f"the reader version {protocol.min_reader_version}"
        raise InputError(f"{what} needs {name}, which labeldp does not know: {_REWRITE}")
    if any(batch.num_rows for batch in _deletions(table, what)):
        raise InputError(
            f"{what} has deletion vectors, which labeldp does not apply: deleted records would be released. Run REORG "
            "TABLE ... APPLY (PURGE) on it, or export it to Parquet files"
        )


def _deletions(table: Any, what: str) -> Iterator[pa.RecordBatch]:
    """Files with deleted records."""
    try:
        yield from pa.RecordBatchReader.from_stream(table.deletion_vectors())
    except Exception as error:
        raise InputError(
            f"{what} cannot be read ({describe(error)}): it has deletion vectors that are damaged or missing, which "
            f"labeldp would not apply either; {_REWRITE}"
        ) from None


def _files(table: Any, columns: TableColumns, partitioned: list[str], folder: str, what: str) -> Iterator[TableFile]:
    """The data files, without the statistics that the log has of them."""
    names = ["path", "size_bytes", *(["partition"] if partitioned else [])]
    actions = pa.table(table.get_add_actions(flatten=False)).select(names)
    for row in actions.to_pylist():
        # The log has paths as URIs, relative to the folder; those of shallow clones are absolute.
        path = unquote(row["path"])
        path = path if path.startswith("/") or is_remote(path) else f"{folder}/{path}"
        constants = tuple(
            (name, pa.scalar(row["partition"][name], columns.schema.field(name).type)) for name in partitioned
        )
        yield TableFile(name_in_table(path, folder, what), row["size_bytes"], constants)


def _schema_id(columns: TableColumns) -> str:
    """Hash of names and types alone: comments and other metadata may hold what was computed from labels."""
    text = json.dumps([[column.name, str(column.type)] for column in columns.columns])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
