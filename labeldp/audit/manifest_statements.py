"""Members of a manifest that stand alone: the table of the input, removals since, and how shards are written.

The table itself is not there to be compared: the statement says which snapshot to ask its owner for.

`release.records` stays the number of records that were counted and released at first. The shards hold those that
remain, so both differ by the records of all removals (`labeldp remove`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .documents import RefusedDocument, printable

_LARGEST_SNAPSHOT = (1 << 63) - 1
_SCHEMAS = {"iceberg": re.compile(r"0|[1-9][0-9]{0,9}"), "delta": re.compile(r"[0-9a-f]{16}")}
_ENDINGS = {
    ("tfrecord", "none"): ".tfrecord",
    ("tfrecord", "gzip"): ".tfrecord.gz",
    ("parquet", "none"): ".parquet",
    ("parquet", "gzip"): ".parquet",
}


def table_problems(release: Mapping[str, Any]) -> Iterator[str]:
    """Checks the member `table` of a manifest; one line for each check that fails, none without a table."""
    if "table" not in release:
        return
    table = release["table"]
    if (table["format"] == "iceberg") != ("/" in table["name"]):
        yield "release.table.name is not that of a table"
    if int(table["snapshot"]) > _LARGEST_SNAPSHOT:
        yield "release.table.snapshot is beyond the numbers of snapshots"
    if not _SCHEMAS[table["format"]].fullmatch(table["schema"]):
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


def removal_problems(release: Mapping[str, Any]) -> Iterator[str]:
    """Checks the member `removals` of a manifest; one line for each check that fails, none without removals."""
    removals = release.get("removals", [])
    dates = [removal["date"] for removal in removals]
    if not all(map(_is_date, dates)):
        yield "release.removals has a date that is not YYYY-MM-DD"
    elif dates != sorted(dates):
        yield "release.removals are not in the order of their dates"
    if len({removal["manifest"] for removal in removals}) < len(removals):
        yield "release.removals has the SHA-256 of an earlier release.json twice"
    if removals and removed_records(release) >= release["records"]:
        yield "release.removals are not fewer records than release.records"


def _is_date(text: str) -> bool:
    try:
        return bool(datetime.date.fromisoformat(text))
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
    output = manifest["output"]
    form, compression = output["format"], output["compression"]
    if not all(name.endswith(_ENDINGS[form, compression]) for name in manifest["shards"]):
        raise RefusedDocument("release.output does not state format and compression of the shards")
    if form == "tfrecord":
        return OutputStatement(form, compression, 0, ())
    columns = [(column["name"], column["type"]) for column in output["columns"]]
    names = [name for name, _ in columns]
    if len(set(names)) < len(names):
        raise RefusedDocument("release.output.columns has a name twice")
    if list(map(_folded, names)).count(_folded(manifest["label"])) > 1:
        raise RefusedDocument("release.output.columns has a column that differs from the label by case or space only")
    return OutputStatement(form, compression, output["row_group"], tuple(columns))


def _folded(name: str) -> str:
    return "".join(name.split()).casefold()
