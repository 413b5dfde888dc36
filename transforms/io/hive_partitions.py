"""Partition columns: folders named KEY=VALUE in the path of a file, as Hive and Spark write them.

A column is of int32 if the values of all files are integers of 32 bits that are written as numbers are, otherwise of
text: 00501 and 501 are two texts, as in CSV, where `pyarrow.dataset` would infer one integer. Values are URI-encoded;
`__HIVE_DEFAULT_PARTITION__` is a missing one. The folders are in the names of files, which are public, so a partition
column is a feature and never a label. Shards can be written to such folders again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, unquote_to_bytes

import pyarrow as pa

from ..errors import InputError

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
# As Hive does, and NUL.
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


@dataclass(frozen=True)
class Partition:
    """Value of one partition column in one file; None if it is missing.

    The column is of int32 if `integer`, otherwise of text.
    """

    name: str
    value: int | str | None
    integer: bool

    @property
    def type(self) -> pa.DataType:
        """Type of the column."""
        return pa.int32() if self.integer else pa.string()

    def column(self, rows: int) -> pa.Array:
        """Repeats the value for a number of records."""
        return pa.repeat(pa.scalar(self.value, self.type), rows)


@dataclass(frozen=True)
class OutputPartitions:
    """Folders of shards, one for each combination of values of some partition columns of the input.

    Attributes:
      columns: Name of each column and whether it is of int32, from the outermost folder on.
      folders: Paths of the folders below that of all shards, such as month=1/country=de; one empty path if records
        are not divided.
    """

    columns: tuple[tuple[str, bool], ...] = ()
    folders: tuple[str, ...] = ("",)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(name for name, _ in self.columns)

    def place(self, path: str) -> int:
        """Index of the folder of the records of an input file.

        Raises InputError if there is no such folder: the file was added after the folders were listed.
        """
        try:
            return self._places[folder_of(path, self.columns)]
        except KeyError:
            raise InputError(
                f"{path} was added to the input while the job ran: run again when the files are complete"
            ) from None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {folder: place for place, folder in enumerate(self.folders)}

    def shard_name(self, number: int, num_shards: int, suffix: str) -> str:
        """Path of a shard below the folder of all shards.

        `number` is its number among the shards of all folders, `num_shards` that of the shards of each folder; `suffix`
        has no leading dot.
        """
        place, shard = divmod(number, num_shards)
        folder = self.folders[place]
        return f"{folder}{'/' if folder else ''}part-{shard:05d}-of-{num_shards:05d}.{suffix}"

    def drop(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drops the columns from a batch, because readers take them from the names of the folders."""
        return batch.select([name for name in batch.schema.names if name not in self.names]) if self.columns else batch


ONE_FOLDER = OutputPartitions()
"""All shards in one folder."""


def folder_of(path: str, columns: Sequence[tuple[str, bool]]) -> str:
    """Path of the folder of the shards of a file's records, such as month=1/country=de.

    Special characters are escaped as Hive does. `columns` are names, and whether each is of int32, from the outermost
    folder on.
    """
    texts = dict(_folders(path))
    values = [(name, texts.get(name)) for name, _ in columns]
    return "/".join(f"{_escaped(name)}={_MISSING if text is None else _escaped(text)}" for name, text in values)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def find_partitions(paths: Sequence[str], root: str = "") -> list[tuple[Partition, ...]]:
    """Partitions of each of the files that are read together, in the order of its folders.

    All files have the same columns. `root` is the folder below which the folders are looked at; empty for all folders
    of the paths. Raises InputError if a file has other columns than the first one, a column twice, or a value that is
    not UTF-8 text.
    """
    found = [_folders(path[len(root) :]) for path in paths]
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


def folder_names(paths: Iterable[str]) -> set[str]:
    """Names of all folders KEY=VALUE of some paths, whether they are read as partitions or not."""
    folders = {folder for parent in {path.rpartition("/")[0] for path in paths} for folder in parent.split("/")}
    return {unquote(name) for name, equals, _ in (folder.partition("=") for folder in folders) if equals}


def without_values(path: str, names: Collection[str]) -> str:
    """The path with dots for the values of partitions of these names."""
    *folders, file = path.split("/")
    parts = [folder.partition("=") for folder in folders]
    hidden = [(key, "=", "...") if equals and _decoded(key, path) in names else (key, equals, text)
              for key, equals, text in parts]  # fmt: skip
    return "/".join([*map("".join, hidden), file])


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

    Raises InputError, which names the folder and the column.
    """
    for partition in partitions:
        if partition.name in columns:
            raise InputError(
                f"{path}: the folder {partition.name}=... and the column {partition.name!r} in the file give two "
                "columns of one name: rename one of them, or read without partitions (`partitions` none)"
            )
