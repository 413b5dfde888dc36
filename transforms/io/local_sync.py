"""Local files that survive a loss of power, and that their owner alone may write to, whatever the umask."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

# A disk syncs several files at once in the time that one takes.
_AT_ONCE = 8


def make_folders(folder: str, mode: int = 0o755) -> None:
    """Makes a local folder and its parents, unless they exist; `mode` is before the umask. Raises OSError."""
    try:
        os.mkdir(folder, mode)
    except FileNotFoundError:
        parent = os.path.dirname(folder.rstrip("/"))
        if not parent:
            raise
        make_folders(parent, mode)
        make_folders(folder, mode)
    except OSError:
        if not os.path.isdir(folder):
            raise


def open_mode(mode: int) -> int:
    """Permissions of a file that is created with a mode: without the bits of the umask."""
    # It can only be read by setting it. Files that other threads create meanwhile are too private, not too open.
    umask = os.umask(0o077)
    os.umask(umask)
    return mode & ~umask


def sync_tree(folder: str) -> None:
    """Syncs all files below a folder, then all folders, and takes from others the permission to write to them.

    Nothing is being written to the folder, which is local. Raises OSError if the operating system refuses.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for paths in (_files(folder), _folders(folder)):
            for _ in pool.map(_sync, paths):
                pass


def sync_folder(folder: str) -> None:
    """Syncs the names in a local folder, such as one that was just created or renamed. Raises OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        # Files may be created in a folder that may not be read.
        return
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network filesystems do not sync folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _files(folder: str) -> Iterator[str]:
    return (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)


def _folders(folder: str) -> Iterator[str]:
    return (root for root, _, _ in os.walk(folder))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o022:
            os.fchmod(descriptor, mode & ~0o022)
        _fsync(descriptor)
    finally:
        os.close(descriptor)
