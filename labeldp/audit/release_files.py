"""Checks of the files that release.json lists: shards, and the dead letters, which name records without a usable label.

The checks yield one line for each that fails.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .documents import RefusedDocument, printable
from .manifest_statements import removed_records

_SHARD_NAME = re.compile(
    r"((?:[^/=\0]+=[^/\0]*/)*)part-([0-9]{5})-of-([0-9]{5})\.(tfrecord|tfrecord\.gz|parquet)", re.DOTALL
)
_MISSING = "__HIVE_DEFAULT_PARTITION__"

_LETTERS_NAME = re.compile(r"dead_letters(?:-([0-9]{5})-of-([0-9]{5}))?\.jsonl")
_LETTER_MEMBERS = {"source": str, "row": int, "stage": str, "error": str}
_LETTER_REASON = ("privatize", "unusable label")
_LINE_BYTES = 1 << 20


_VALIDATION = {"feature_stats.pb", "output_stats.pb", "schema.pbtxt", "anomalies.pbtxt"}


def check_plain(folder: Path, release: Mapping[str, Any], inner: tuple[str, ...]) -> None:
    """Checks that a folder of a release has its own files alone, all regular, with no link on the way to one.

    `inner` are the folders that other checks compare with the manifest: data, and labels; none for one of a label.
    The code that writes and copies releases has a check of its own, which this one does not share, as all of the audit.
    Raises RefusedDocument, which names the file.
    """
    # The page of `labeldp report` is made of the release, and not looked at.
    files = {"release.json", "signature.json", "report.html"} | (
        {"mechanism.json", "center.json"} if "labels" not in inner else set()
    )
    validated = bool(inner) and release.get("validation") is not None
    for path in sorted(folder.rglob("*")):
        mode, name = path.lstat().st_mode, path.relative_to(folder).as_posix()
        top, _, below = name.partition("/")
        known = top in inner or (validated and top == "validation" and below in {"", *_VALIDATION})
        # Which dead letters there may be, the manifest says.
        if not known and name not in files and not (inner and _LETTERS_NAME.fullmatch(name)):
            raise RefusedDocument(f"{printable(name)} is not a file of the release: move it elsewhere")
        if not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and known and (top in inner or not below))):
            raise RefusedDocument(f"{printable(name)} is not a regular file")


def folder_values(name: str) -> dict[str, str | None]:
    """Reads the columns that the folders of a shard are named by, such as month=1/part-00000-of-00004.parquet.

    A value is None where it is missing. Raises RefusedDocument if two folders name one column, or a name is not
    URI-encoded UTF-8.
    """
    values: dict[str, str | None] = {}
    for folder in name.split("/")[:-1]:
        try:
            column, value = (unquote(text, errors="strict") for text in folder.split("=", 1))
        except UnicodeDecodeError:
            raise RefusedDocument(
                f"release.shards has a folder that is not URI-encoded UTF-8: {printable(folder)}"
            ) from None
        if column in values:
            raise RefusedDocument(f"release.shards has two folders of one column: {printable(name)}")
        values[column] = None if value == _MISSING else value
    return values


def shard_problems(release: Mapping[str, Any], data: Path) -> Iterator[str]:
    """Compares the shards that a manifest lists with its record count and with the files of the data folder.

    Raises RefusedDocument if a name is not that of a shard.
    """
    shards = release["shards"]
    if not shards or not release["records"]:
        raise RefusedDocument("release.shards is empty, or release.records is 0")
    sets: dict[str, list[tuple[int, int]]] = {}
    formats, columns = set(), set()
    for name in shards:
        part = _SHARD_NAME.fullmatch(name)
        if part is None:
            raise RefusedDocument(
                f"release.shards has a name that is not part-NNNNN-of-NNNNN.FORMAT: {printable(name)}"
            )
        sets.setdefault(part[1], []).append((int(part[2]), int(part[3])))
        formats.add(part[4])
        columns.add(tuple(folder_values(name)))
    whole = all(sorted(parts) == [(number, len(parts)) for number in range(len(parts))] for parts in sets.values())
    if not whole or len(formats) > 1:
        yield "release.shards are not all shards of one set: their names do not have all numbers, or two formats"
    if len(columns) > 1:
        yield "release.shards have folders of different columns"
    if any(release.get("label") in names for names in columns):
        yield "release.shards have folders that are named by the label"
    removed = removed_records(release)
    if sum(shards.values()) != release["records"] - removed:
        yield f"release.shards do not add up to release.records{', less release.removals' if removed else ''}"
    if not data.is_dir():
        yield "data/ is missing"
        return
    if data.is_symlink():
        yield "data/ is a link"
        return
    folders = {name[: end + 1] for name in sets for end, character in enumerate(name) if character == "/"}
    files = dict(_entries(data, "", folders))
    yield from (f"data/{printable(name)} is missing" for name in sorted({*shards} - {*files}))
    yield from (f"data/{printable(name)} is not one of release.shards" for name in sorted({*files} - {*shards}))
    yield from (
        f"data/{printable(name)} is not a regular file"
        for name in sorted({*shards} & {*files})
        if not stat.S_ISREG(files[name].lstat().st_mode)
    )


def _entries(data: Path, folder: str, folders: set[str]) -> Iterator[tuple[str, Path]]:
    """Names and paths of what is in a folder and, below it, in the folders of shards."""
    for path in (data / folder).iterdir():
        name = folder + path.name
        if f"{name}/" in folders and path.is_dir() and not path.is_symlink():
            yield from _entries(data, f"{name}/", folders)
        else:
            yield name, path


def letter_problems(folder: Path, release: Mapping[str, Any]) -> Iterator[str]:
    """Compares the dead letters in the folder of a release with its manifest, which passed its audit."""
    stated = release.get("dead_letters", {})
    yield from letter_name_problems(folder, release)
    if "dead_letters" in release and not _is_stated(stated):
        return
    if sum(stated.values()) != release["records_without_label"]:
        yield "release.dead_letters do not add up to release.records_without_label"
    for name, count in stated.items():
        if not (folder / name).exists():
            yield f"{name} is missing"
            continue
        try:
            if _lines(folder / name) != count:
                yield f"{name} does not have as many lines as release.json states"
        except RefusedDocument as refused:
            yield f"{name} {refused}"


def letter_name_problems(folder: Path, release: Mapping[str, Any]) -> Iterator[str]:
    """Lines if a manifest's member `dead_letters` does not name files of dead letters, or not all in the folder."""
    stated = release.get("dead_letters", {})
    if "dead_letters" in release and not _is_stated(stated):
        yield "release.dead_letters does not name the files of dead letters"
        return
    names = sorted(path.name for path in folder.iterdir() if _LETTERS_NAME.fullmatch(path.name))
    yield from (f"{name} is not one of release.dead_letters" for name in names if name not in stated)


def _is_stated(stated: Mapping[str, int]) -> bool:
    """Tells whether a member lists one file, or all files of one set."""
    parts = [_LETTERS_NAME.fullmatch(name) for name in stated]
    if not parts or not all(parts):
        return False
    numbers = [(int(part[1]), int(part[2])) for part in parts if part is not None and part[1] is not None]
    if not numbers:
        return True
    # A file of no lines is not written: numbers may be left out.
    return len(numbers) == len(parts) and len({files for _, files in numbers}) == 1 and all(
        number < files for number, files in numbers
    )  # fmt: skip


def _lines(path: Path) -> int:
    """Counts the dead letters of a file, each of which has the members of one and nothing else, in ascending order."""
    if not path.is_file():
        raise RefusedDocument("is not a regular file")
    count, last = 0, None
    try:
        with path.open("rb") as file:
            while line := file.readline(_LINE_BYTES):
                letter = json.loads(line.decode())
                # Nothing else fits in a line that is written in one way: no label, and no second member of a name.
                if not _is_letter(letter) or f"{json.dumps(letter)}\n".encode() != line:
                    raise RefusedDocument(f"has a line that is not a dead letter: line {count + 1}")
                record = letter["source"], letter["row"]
                if last is not None and record <= last:
                    raise RefusedDocument(f"lists records twice or in another order: line {count + 1}")
                count, last = count + 1, record
    except OSError as error:
        raise RefusedDocument(f"cannot be read: {printable(error.strerror or '')}") from None
    except (ValueError, RecursionError):
        raise RefusedDocument(f"has a line that is not a dead letter: line {count + 1}") from None
    return count


def _is_letter(letter: Any) -> bool:
    return (
        isinstance(letter, dict)
        and list(letter) == list(_LETTER_MEMBERS)
        and all(type(letter[name]) is kind for name, kind in _LETTER_MEMBERS.items())
        and letter["row"] >= 0
        and (letter["stage"], letter["error"]) == _LETTER_REASON
    )
