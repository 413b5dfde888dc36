"""Small local files: whether they can be made, checked before any work; written whole or not at all."""

from __future__ import annotations

import contextlib
import os

from .arguments import UsageError


def check_file(flag: str, path: str) -> None:
    """Raises UsageError, naming the flag, unless a file can be put there."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{flag} {path} lies in a folder that does not exist: make it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} {path} lies in a folder that cannot be written to: name another")
    if os.path.isdir(path):
        raise UsageError(f"{flag} {path} is a folder: name a file")


def check_parent(flag: str, target: str) -> None:
    """Raises UsageError, naming the flag, unless a file or folder can be made there, with the folders above it."""
    parent = os.path.dirname(os.path.abspath(target))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not (os.path.isdir(parent) and os.access(parent, os.W_OK)):
        raise UsageError(f"{flag} {target} cannot be made: {parent} is not a folder that can be written to")


def write_file(path: str, content: str | bytes) -> None:
    """Writes under another name first: readers see the old file or the new one, never a half.

    Raises OSError when that fails; nothing is left of it.
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
