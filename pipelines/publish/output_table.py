"""Release as a part of a table: its shards are added in one commit, once they are charged and published.

An Iceberg table takes the shards where they are. A Delta table takes copies in its folder: VACUUM deletes files there
that the table does not know, such as a manifest or a ledger. The summary of the commit states facts of the release. A
table that has the shards is not changed: a run that is repeated with `--if_exists verify` adds those of a release whose
commit failed.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...transforms.arrow_values import plain_schema
from ...transforms.errors import InputError, describe
from ...transforms.io.filesystems import (
    absolute,
    create,
    is_remote,
    make_directory,
    match,
    open_file,
    open_input,
    read_text,
)
from ...transforms.readers.table_snapshot import TableUrl, local_path
from ..spec.label_folders import DATA_NAME, MANIFEST_NAME

_FACTS = (
    "label", "epsilon", "certified_epsilon", "delta", "certified_delta", "mechanism", "mechanism_fingerprint",
    "records", "input_digest",
)  # fmt: skip
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True)
class _Shards:
    """Shards of a release that have records: paths, sizes in bytes and records; their columns, and facts.

    `name` is that of the release, by its manifest.
    """

    name: str
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    records: tuple[int, ...]
    schema: pa.Schema
    facts: Mapping[str, str]


def commit_to_table(url: TableUrl, release: str) -> bool:
    """Adds the shards of a published release to a table, which is created if it does not exist.

    Returns whether the table did not have them yet. Raises InputError, which says that the release is there and
    charged, if they cannot be added.
    """
    named = f"{url.format}://{url.table}"
    try:
        shards = _read_shards(absolute(release).rstrip("/"))
        add = _add_to_iceberg if url.format == "iceberg" else _add_to_delta
        return bool(shards.paths) and add(url, shards)
    except (Exception, KeyboardInterrupt) as error:
        reason = str(error) if isinstance(error, InputError) else describe(error)
        raise InputError(
            f"{release} is released and charged, but was not added to {named} ({reason}): when that is mended, run "
            "again with --if_exists verify, which adds it without a charge"
        ) from None


def _read_shards(release: str) -> _Shards:
    text = read_text(f"{release}/{MANIFEST_NAME}")
    manifest = json.loads(text)
    sizes = match(f"{release}/{DATA_NAME}/*")
    paths = [f"{release}/{DATA_NAME}/{name}" for name, records in manifest["shards"].items() if records]
    schema = pa.schema([])
    if paths:
        with open_input(paths[0]) as file:
            schema = _plain_types(pq.read_schema(file))
    facts = {name: manifest[name] for name in _FACTS if name in manifest}
    if "labels" in manifest:
        facts["label"] = ",".join(entry["label"] for entry in manifest["labels"])
    return _Shards(
        hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), tuple(paths), tuple(sizes[path] for path in paths),
        tuple(records for records in manifest["shards"].values() if records),
        schema, {f"labeldp.{name}": str(value) for name, value in facts.items()},
    )  # fmt: skip


def _plain_types(schema: pa.Schema) -> pa.Schema:
    """Types as tables have them: categories are their values, and all columns may have nulls."""
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return plain_schema(pa.schema([pa.field(name, kind) for name, kind in zip(schema.names, kinds, strict=True)]))


def _missing(known: Collection[str], paths: Sequence[str]) -> bool:
    """Tells whether the shards are not in the table. Raises InputError if some are and others are not."""
    found = [path in known for path in paths]
    if any(found) and not all(found):
        raise InputError("the table has only some of the shards: somebody has deleted the others from it")
    return not any(found)


def _add_to_iceberg(url: TableUrl, shards: _Shards) -> bool:
    # The library of an extra.
    from ...transforms.readers.iceberg_table import check_properties, open_catalog

    paths = [path if is_remote(path) else f"file://{path}" for path in shards.paths]
    with open_catalog(url.table, f"iceberg://{url.table}") as (catalog, name):
        table = catalog.create_table_if_not_exists(name, shards.schema)
        check_properties(table.metadata.properties, f"iceberg://{url.table}")
        if table.current_snapshot() is not None:
            known = {local_path(path) for path in table.inspect.files()["file_path"].to_pylist()}
            if not _missing(known, shards.paths):
                return False
        table.add_files(paths, snapshot_properties=dict(shards.facts))
    return True


def _add_to_delta(url: TableUrl, shards: _Shards) -> bool:
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    names = [f"labeldp-{shards.name}-{posixpath.basename(path)}" for path in shards.paths]
    stated = CommitProperties(custom_metadata=dict(shards.facts))
    now = int(time.time() * 1000)
    actions: list[Any] = [
        AddAction(name, size, {}, now, True, json.dumps({"numRecords": records}))
        for name, size, records in zip(names, shards.sizes, shards.records, strict=True)
    ]
    schema: Any = Schema.from_arrow(shards.schema)
    if not DeltaTable.is_deltatable(url.table):
        _copy(shards.paths, url.table, names)
        create_table_with_add_actions(url.table, schema, actions, "error", commit_properties=stated)
        return True
    table = DeltaTable(url.table)
    known = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
    if not _missing(known, names):
        return False
    if table.schema() != schema or table.metadata().partition_columns:
        raise InputError("the table has other columns than the shards, or partitions: name another table")
    _copy(shards.paths, url.table, names)
    table.create_write_transaction(actions, "append", schema, commit_properties=stated)
    return True


def _copy(paths: Sequence[str], folder: str, names: Sequence[str]) -> None:
    make_directory(folder)
    for path, name in zip(paths, names, strict=True):
        with open_file(path) as source, create(f"{folder}/{name}") as copy:
            shutil.copyfileobj(source, copy, _COPIED_BYTES)
