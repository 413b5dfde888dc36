"""Checks of what a manifest states of the table that its records come from.

The table itself is not there to be compared: the statement says which snapshot to ask its owner for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .documents import RefusedDocument, printable, read_decimal, read_member

_FORMATS = ("iceberg", "delta")
_MEMBERS = {"format", "name", "id", "snapshot", "schema"}
_LARGEST_SNAPSHOT = (1 << 63) - 1
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SCHEMAS = {"iceberg": re.compile(r"0|[1-9][0-9]{0,9}"), "delta": re.compile(r"[0-9a-f]{16}")}


def table_problems(release: dict[str, Any]) -> Iterator[str]:
    """Checks the member `release.table`; one line for each check that fails, none without a table.

    Raises RefusedDocument if a member is missing or has the wrong type.
    """
    if "release.table" not in release:
        return
    table = _read_table(release)
    kind, name = table["release.table.format"], table["release.table.name"]
    if kind not in _FORMATS:
        yield "release.table.format is neither iceberg nor delta"
        return
    if not name or (kind == "iceberg") != ("/" in name):
        yield "release.table.name is not that of a table"
    if not _UUID.fullmatch(table["release.table.id"]):
        yield "release.table.id is not the id of a table"
    if read_decimal(table["release.table.snapshot"], "release.table.snapshot") > _LARGEST_SNAPSHOT:
        yield "release.table.snapshot is beyond the numbers of snapshots"
    if not _SCHEMAS[kind].fullmatch(table["release.table.schema"]):
        yield "release.table.schema is not that of a table"


def _read_table(release: dict[str, Any]) -> dict[str, str]:
    table = read_member(release, "release.table", dict)
    if set(table) != _MEMBERS:
        raise RefusedDocument(f"release.table has other members than {', '.join(sorted(_MEMBERS))}")
    named = {f"release.table.{key}": value for key, value in table.items()}
    return {key: read_member(named, key, str) for key in named}


def table_line(manifest: dict[str, Any]) -> str:
    """Line of the report for a manifest that passed the checks; empty without a table."""
    table = manifest.get("table")
    if table is None:
        return ""
    return (
        f"table        {table['format']} '{printable(table['name'])}', id {table['id']}, snapshot {table['snapshot']}, "
        f"schema {table['schema']}"
    )
