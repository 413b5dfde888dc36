"""Small local files: checked before any work, and written atomically."""

from __future__ import annotations

import argparse
import contextlib
import os

from ..errors import UsageError


def local_copy(args: argparse.Namespace, path: str) -> str:
    """Finds the local copy of a path that a command reads.

    Args:
      args: Parsed flags; `copies`, if there is one, has the local copies of paths on object stores.
      path: The path, as it was given.

    Returns:
      The copy; the path itself if it is local.
    """
    return getattr(args, "copies", {}).get(path, path)


def check_file(flag: str, path: str) -> None:
    """Checks that a file can be written in an existing folder.

    Args:
      flag: The flag that names the file.
      path: Path of the file.

    Raises:
      UsageError: If it cannot be written; names the flag.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{flag} {path} lies in a folder that does not exist: create it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} {path} lies in a folder that is not writable: name another")
    if os.path.isdir(path):
        raise UsageError(f"{flag} {path} is a folder: name a file")


def check_can_create(flag: str, target: str) -> None:
    """Checks that a file or folder can be created, with the folders above it.

    Args:
      flag: The flag that names it.
      target: Path of the file or folder.

    Raises:
      UsageError: If it cannot be created; names the flag.
    """
    parent = os.path.dirname(os.path.abspath(target))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not (os.path.isdir(parent) and os.access(parent, os.W_OK)):
        raise UsageError(f"{flag} {target} cannot be created: {parent} is not a writable folder")


def write_file(path: str, content: str | bytes) -> None:
    """Writes a file under another name first, then renames it: readers see the old file or the new one.

    Args:
      path: Path of the file.
      content: Text, written as UTF-8, or bytes.

    Raises:
      OSError: If the file cannot be written; no partial file is left.
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
