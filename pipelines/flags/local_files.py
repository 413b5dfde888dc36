"""Small local files: checked before any work, and written atomically."""

from __future__ import annotations

import argparse
import contextlib
import os

from ..errors import UsageError


def local_copy(args: argparse.Namespace, path: str) -> str:
    """Local copy of a path that a command reads, of `args.copies` if there is one; the path itself if it is local."""
    return getattr(args, "copies", {}).get(path, path)


def check_file(flag: str, path: str) -> None:
    """Checks that a file can be written in an existing folder. Raises UsageError, which names the flag."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{flag} {path} lies in a folder that does not exist: create it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} {path} lies in a folder that is not writable: name another")
    if os.path.isdir(path):
        raise UsageError(f"{flag} {path} is a folder: name a file")


def check_can_create(flag: str, target: str) -> None:
    """Checks that a file or folder can be created, with the folders above it.

    Raises UsageError, which names the flag.
    """
    parent = os.path.dirname(os.path.abspath(target))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not (os.path.isdir(parent) and os.access(parent, os.W_OK)):
        raise UsageError(f"{flag} {target} cannot be created: {parent} is not a writable folder")


def write_file(path: str, content: str | bytes) -> None:
    """Writes a file under another name first, then renames it: readers see the old file or the new one.

    Text is written as UTF-8. Raises OSError if the file cannot be written; no partial file is left.
    """
    partial = f"{path}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise
