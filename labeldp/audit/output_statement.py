"""Statement of a manifest on its shards: format, compression, row groups, columns and their types."""

from __future__ import annotations

from typing import Any, NamedTuple

from .documents import RefusedDocument, read_member

_ROW_GROUP = 1 << 16


class OutputStatement(NamedTuple):
    """The member `output` of a manifest.

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


def read_output(manifest: dict[str, Any]) -> OutputStatement:
    """Reads the member `output` of a manifest.

    Raises RefusedDocument if it is missing, does not fit to the names of the shards, or has a column twice.
    """
    output = {f"release.output.{key}": value for key, value in read_member(manifest, "output", dict).items()}
    form, compression = (read_member(output, f"release.output.{key}", str) for key in ("format", "compression"))
    endings = {("tfrecord", "none"): ".tfrecord", ("tfrecord", "gzip"): ".tfrecord.gz"}
    endings |= {("parquet", each): ".parquet" for each in ("none", "gzip")}
    ending = endings.get((form, compression))
    if ending is None or not all(name.endswith(ending) for name in manifest["shards"]):
        raise RefusedDocument("release.output does not state format and compression of the shards")
    if form == "tfrecord":
        if len(output) > 2:
            raise RefusedDocument("release.output states row groups or columns of TFRecords, which have none")
        return OutputStatement(form, compression, 0, ())
    if read_member(output, "release.output.row_group", int) != _ROW_GROUP:
        raise RefusedDocument(f"release.output.row_group is not {_ROW_GROUP}, the one that labeldp writes")
    columns = []
    for column in read_member(output, "release.output.columns", list):
        if not isinstance(column, dict) or list(column) != ["name", "type"]:
            raise RefusedDocument("release.output.columns has something else than objects of name and type")
        columns.append((read_member(column, "name", str), read_member(column, "type", str)))
    names = [name for name, _ in columns]
    if len(set(names)) < len(names):
        raise RefusedDocument("release.output.columns has a name twice")
    folded = [_folded(name) for name in names]
    if folded.count(_folded(manifest["label"])) > 1:
        raise RefusedDocument("release.output.columns has a column that differs from the label by case or space only")
    return OutputStatement(form, compression, _ROW_GROUP, tuple(columns))


def _folded(name: str) -> str:
    return "".join(name.split()).casefold()
