"""Files that a command writes where a flag says: new ones, or in place of one that labeldp wrote.

Nothing else is deleted or overwritten. A file of an earlier run is recognized by its first bytes, just before it is
deleted or replaced. Every flag of a parser that names a file or folder to write has one of these kinds.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import uuid
from collections.abc import Iterable, Mapping

from ..errors import UsageError

NEW = "new"
"""A file that must not exist."""
FOLDER = "folder"
"""A folder that must be new or empty, or the output of an earlier run of the command."""
LEDGER = "ledger"
"""A ledger, to which lines are added."""
RESULT = "labeldp-result-1"
TABLE = "labeldp-table-1"
"""Kinds of JSON documents, as their first member `format` states them."""
CSV_TABLE = "csv"

_HEADS = {
    RESULT: rb'\{"format": "labeldp-result-1"',
    TABLE: rb'\{\n  "format": "labeldp-table-1"',
    # Columns of compare, plan and plan --units.
    CSV_TABLE: rb"mechanism,epsilon,certified,delta,mse,"
    rb"|epsilon,(default_e1,default_loss|max_records,records,units_cut),",
    LEDGER: rb'\{"',
}
_HEAD_BYTES = 256
_SQLITE, _SQLITE_HEAD = "sqlite:///", b"SQLite format 3\0"


class ForeignFile(UsageError):
    """A file that labeldp did not write stands where a command is to write."""


def check_written(
    values: Mapping[str, str], kinds: Mapping[str, str], read: Iterable[tuple[str, str]], named: Mapping[str, str]
) -> None:
    """Checks the files that the flags of a command name, before any work.

    Args:
      values: Path or URL of each file to write, by flag without dashes.
      kinds: Kind of each of them.
      read: Flag and path of each file that the command reads.
      named: Names of the flags and arguments in messages.

    Raises:
      UsageError: If two flags name one file, a file lies in a folder that is written, or a foreign file is in the way.
    """
    for flag, path in values.items():
        for other, taken in [*((name, taken) for name, taken in values.items() if name != flag), *read]:
            if _same(path, taken):
                raise UsageError(f"{named[flag]} and {named[other]} are the same file, {path}: name another one")
            if kinds.get(other) == FOLDER and kinds[flag] not in (FOLDER, LEDGER) and _inside(path, taken):
                raise UsageError(f"{named[flag]} {path} lies inside {named[other]}: name a path outside it")
        check_replaced(named[flag], path, kinds[flag])


def check_replaced(flag: str, path: str, kind: str) -> None:
    """Checks that what is at a path, if anything, is a file that labeldp wrote. Raises ForeignFile.

    New files and folders are checked where they are made. URLs and folders are passed over.
    """
    head = _HEADS.get(kind)
    if kind == LEDGER and path.startswith(_SQLITE):
        path, head = path.removeprefix(_SQLITE), re.escape(_SQLITE_HEAD)
    if head is None or "://" in path or os.path.isdir(path) or not os.path.lexists(path):
        return
    if not _begins_with(path, head, kind == LEDGER):
        what = {LEDGER: "a ledger", CSV_TABLE: "a table of labeldp"}.get(kind, kind)
        raise ForeignFile(
            f"{flag} {path} exists and is not {what}, so it is not overwritten: name another file, or delete it"
        )


def _begins_with(path: str, head: bytes, appended: bool) -> bool:
    """Tells whether a regular file begins so. One that lines are appended to may be empty, or a link."""
    try:
        if not stat.S_ISREG((os.stat if appended else os.lstat)(path).st_mode):
            return False
        with open(path, "rb") as file:
            start = file.read(_HEAD_BYTES)
    except OSError:
        # Its permissions are checked, and reported, elsewhere.
        return appended
    return re.match(head, start) is not None or (appended and not start.strip())


def remove_earlier(flag: str, path: str, kind: str) -> None:
    """Deletes the file of an earlier run. Raises ForeignFile if it is not one."""
    check_replaced(flag, path, kind)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write_file(path: str, content: str | bytes, kind: str | None = None, flag: str = "") -> None:
    """Writes a file under another name first, then renames it: readers see the old file or the new one.

    Args:
      path: The file.
      content: Bytes, or text, which is written as UTF-8.
      kind: NEW, for a file that must not exist; the kind of the file that may be there; None to replace any file.
      flag: Name of the flag in messages.

    Raises:
      OSError: If the file cannot be written; no partial file is left.
      ForeignFile: If there is a file of another kind meanwhile.
    """
    partial = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        with open(partial, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if kind == NEW:
            create_from(partial, path)
        else:
            if kind is not None:
                check_replaced(flag, path, kind)
            os.replace(partial, path)
    except FileExistsError:
        raise ForeignFile(f"{flag} {path} exists: name another file, or delete it") from None
    finally:
        with contextlib.suppress(OSError):
            os.remove(partial)


def create_from(staged: str, target: str) -> None:
    """Gives a complete file the name of a target, which must not exist. Raises FileExistsError if it does."""
    try:
        # Unlike renaming, this replaces no file.
        os.link(staged, target)
    except FileExistsError:
        raise
    except OSError:
        # The filesystem may have no hard links. An empty file that could be created is this process's.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(staged, target)


def _same(first: str, second: str) -> bool:
    with contextlib.suppress(OSError):
        # A second name of the file, or another spelling of its path.
        return os.path.samefile(first, second)
    return _place(first) == _place(second)


def _inside(path: str, folder: str) -> bool:
    return f"{_place(path)}/".startswith(f"{_place(folder)}/")


def _place(path: str) -> str:
    """The path without links; a URL without a slash at the end."""
    path = path.removeprefix(_SQLITE)
    return path.rstrip("/") if "://" in path else os.path.realpath(path)
