"""Partition columns: folders named KEY=VALUE in the path of a file, as Hive and Spark write them.

A column is of int32 if the values of all files are integers of 32 bits, otherwise of text, as `pyarrow.dataset` infers
it. Values are URI-encoded; `__HIVE_DEFAULT_PARTITION__` is a missing one. The folders are in the names of files, which
are public, so a partition column is a feature and never a label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from ..errors import InputError

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Partition:
    """Value of one partition column in one file.

    Attributes:
      name: Name of the column.
      value: The value; None if it is missing.
      integer: Whether the column is of int32; otherwise it is of text.
    """

    name: str
    value: int | str | None
    integer: bool

    @property
    def type(self) -> pa.DataType:
        """Type of the column."""
        return pa.int32() if self.integer else pa.string()

    def column(self, rows: int) -> pa.Array:
        """Repeats the value.

        Args:
          rows: Number of records.

        Returns:
          The column of these records.
        """
        return pa.repeat(pa.scalar(self.value, self.type), rows)


def find_partitions(paths: Sequence[str]) -> list[tuple[Partition, ...]]:
    """Finds the partition columns of files that are read together.

    Args:
      paths: The n files.

    Returns:
      The partitions of each file, in the order of its folders; all files have the same columns.

    Raises:
      InputError: If a file has other columns than the first one, a column twice, or a value that is not UTF-8 text.
    """
    found = [_folders(path) for path in paths]
    names = [name for name, _ in found[0]] if found else []
    for path, folders in zip(paths, found, strict=True):
        own = [name for name, _ in folders]
        for name in own:
            if own.count(name) > 1:
                raise InputError(f"{path}: two folders are named {name}=...: rename one of them")
        if own != names:
            raise InputError(
                f"{path}: its folders give the partition columns {_listed(own)}, but those of {paths[0]} give "
                f"{_listed(names)}: all files need the same"
            )
    integers = {name: _all_integers([folders[place][1] for folders in found]) for place, name in enumerate(names)}
    return [
        tuple(
            Partition(name, int(text) if text is not None and integers[name] else text, integers[name])
            for name, text in folders
        )
        for folders in found
    ]


def _folders(path: str) -> list[tuple[str, str | None]]:
    """Names and texts of the partitions of a path."""
    found = []
    for folder in path.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if name and equals:
            name, text = _decoded(name, path), _decoded(text, path)
            found.append((name, None if text == _MISSING else text))
    return found


def _decoded(text: str, path: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: the folder {text!r} is not URI-encoded UTF-8: rename it") from None


def _all_integers(texts: Sequence[str | None]) -> bool:
    known = [text for text in texts if text is not None]
    return bool(known) and all(_INTEGER.fullmatch(text) and -(2**31) <= int(text) < 2**31 for text in known)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def check_no_clash(partitions: Sequence[Partition], columns: Sequence[str], path: str) -> None:
    """Checks that a file has no column of the name of a partition.

    Args:
      partitions: Partitions of the file.
      columns: Names of its columns.
      path: The file.

    Raises:
      InputError: If it has; names the folder and the column.
    """
    for partition in partitions:
        if partition.name in columns:
            raise InputError(
                f"{path}: the folder {partition.name}=... and the column {partition.name!r} in the file give two "
                "columns of one name: rename one of them, or read without partitions (--partitions none)"
            )
