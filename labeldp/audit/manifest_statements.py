"""Members of a manifest that stand alone: the table of the input, removals since, and how shards are written.

The table itself is not there to be compared: the statement says which snapshot to ask its owner for.

`release.records` stays the number of records that were counted and released at first. The shards hold those that
remain, so both differ by the records of all removals (`labeldp remove`).

The functions raise RefusedDocument if a member is missing or has the wrong type.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .documents import Members, RefusedDocument, printable

_TABLE_KEYS, _REMOVAL_KEYS = {"format", "name", "id", "snapshot", "schema"}, {"date", "records", "manifest"}
_LARGEST_SNAPSHOT = (1 << 63) - 1
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SCHEMAS = {"iceberg": re.compile(r"0|[1-9][0-9]{0,9}"), "delta": re.compile(r"[0-9a-f]{16}")}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}")
_ROW_GROUP = 1 << 16
_ENDINGS = {
    ("tfrecord", "none"): ".tfrecord",
    ("tfrecord", "gzip"): ".tfrecord.gz",
    ("parquet", "none"): ".parquet",
    ("parquet", "gzip"): ".parquet",
}


def table_problems(release: Members) -> Iterator[str]:
    """Checks the member `table` of a manifest; one line for each check that fails, none without a table."""
    if "table" not in release:
        return
    table = release.members("table")
    if set(table) != _TABLE_KEYS:
        raise RefusedDocument(f"release.table has other members than {', '.join(sorted(_TABLE_KEYS))}")
    kind, name, identity, schema = map(table.text, ("format", "name", "id", "schema"))
    if kind not in _SCHEMAS:
        yield "release.table.format is neither iceberg nor delta"
        return
    if not name or (kind == "iceberg") != ("/" in name):
        yield "release.table.name is not that of a table"
    if not _UUID.fullmatch(identity):
        yield "release.table.id is not the id of a table"
    if table.decimal("snapshot") > _LARGEST_SNAPSHOT:
        yield "release.table.snapshot is beyond the numbers of snapshots"
    if not _SCHEMAS[kind].fullmatch(schema):
        yield "release.table.schema is not that of a table"


def table_line(manifest: Mapping[str, Any]) -> str:
    """Line of the report for a manifest that passed the checks; empty without a table."""
    table = manifest.get("table")
    if table is None:
        return ""
    return (
        f"table        {table['format']} '{printable(table['name'])}', id {table['id']}, snapshot {table['snapshot']}, "
        f"schema {table['schema']}"
    )


def removed_records(manifest: Mapping[str, Any]) -> int:
    """Number of records that were removed from a release, by a manifest that passed the checks; 0 without removals."""
    return sum(removal["records"] for removal in manifest.get("removals", ()))


def stated_removals(release: Members) -> list[tuple[str, int, str]]:
    """Date, number of records and hash of the manifest before, of each removal that a manifest states."""
    removals = []
    for entry in release.read("removals", list) if "removals" in release else []:
        if not isinstance(entry, dict) or set(entry) != _REMOVAL_KEYS:
            raise RefusedDocument(
                f"release.removals has something else than objects of {', '.join(sorted(_REMOVAL_KEYS))}"
            )
        removal = Members(entry, "release.removals")
        removals.append((removal.text("date"), removal.count("records"), removal.text("manifest")))
    return removals


def removal_problems(release: Members) -> Iterator[str]:
    """Checks the member `removals` of a manifest; one line for each check that fails, none without removals."""
    if "removals" not in release:
        return
    removals = stated_removals(release)
    if not removals:
        yield "release.removals is empty"
    dates = [date for date, _, _ in removals]
    if not all(map(_is_date, dates)):
        yield "release.removals has a date that is not YYYY-MM-DD"
    elif dates != sorted(dates):
        yield "release.removals are not in the order of their dates"
    if not all(count > 0 for _, count, _ in removals):
        yield "release.removals has a removal of no record"
    hashes = [manifest for _, _, manifest in removals]
    if not all(map(_HASH.fullmatch, hashes)) or len(set(hashes)) < len(hashes):
        yield "release.removals has a manifest that is not the SHA-256 of an earlier release.json, or one twice"
    if sum(count for _, count, _ in removals) >= release.count("records"):
        yield "release.removals are not fewer records than release.records"


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def removals_line(manifest: Mapping[str, Any]) -> str:
    """Line of the report for a manifest that passed the checks; empty without removals."""
    removals = manifest.get("removals")
    if not removals:
        return ""
    dates = ", ".join(f"{removal['records']} on {removal['date']}" for removal in removals)
    return (
        f"removed      {removed_records(manifest)} of {manifest['records']} records since: {dates}; noised statistics "
        "still count them"
    )


class OutputStatement(NamedTuple):
    """Statement of a manifest on its shards.

    Attributes:
      format: tfrecord or parquet.
      compression: none or gzip.
      row_group: Most records of each row group of a Parquet shard; 0 for TFRecords.
      columns: Names and Arrow types of the columns of Parquet shards; empty for TFRecords, whose records name theirs.
    """

    format: str
    compression: str
    row_group: int
    columns: tuple[tuple[str, str], ...]


def read_output(manifest: Mapping[str, Any]) -> OutputStatement:
    """Reads the member `output` of a manifest that passed its audit.

    Raises RefusedDocument also if it does not fit to the names of the shards, or has a column twice.
    """
    output = Members(manifest, "release").members("output")
    form, compression = output.text("format"), output.text("compression")
    ending = _ENDINGS.get((form, compression))
    if ending is None or not all(name.endswith(ending) for name in manifest["shards"]):
        raise RefusedDocument("release.output does not state format and compression of the shards")
    if form == "tfrecord":
        if len(output) > 2:
            raise RefusedDocument("release.output states row groups or columns of TFRecords, which have none")
        return OutputStatement(form, compression, 0, ())
    if output.read("row_group", int) != _ROW_GROUP:
        raise RefusedDocument(f"release.output.row_group is not {_ROW_GROUP}, the one that labeldp writes")
    columns = []
    for entry in output.read("columns", list):
        if not isinstance(entry, dict) or list(entry) != ["name", "type"]:
            raise RefusedDocument("release.output.columns has something else than objects of name and type")
        column = Members(entry)
        columns.append((column.text("name"), column.text("type")))
    names = [name for name, _ in columns]
    if len(set(names)) < len(names):
        raise RefusedDocument("release.output.columns has a name twice")
    if list(map(_folded, names)).count(_folded(manifest["label"])) > 1:
        raise RefusedDocument("release.output.columns has a column that differs from the label by case or space only")
    return OutputStatement(form, compression, _ROW_GROUP, tuple(columns))


def _folded(name: str) -> str:
    return "".join(name.split()).casefold()
