"""Files and folders on any filesystem that Beam knows."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError, describe


def is_remote(path: str) -> bool:
    """Whether a path names a filesystem other than the local one."""
    return "://" in path


def absolute(pattern: str) -> str:
    """Local patterns from the root, so that a record's identity does not depend on where the job was started."""
    return pattern if is_remote(pattern) else os.path.abspath(pattern)


def match(pattern: str) -> dict[str, int]:
    """The files that match, in order, with their sizes in bytes. Raises InputError when there are none."""
    try:
        files = FileSystems.match([pattern])[0].metadata_list
        found = {file.path: file.size_in_bytes for file in sorted(files, key=lambda file: file.path)}
    except Exception as error:
        raise InputError(f"--input {pattern} cannot be listed ({describe(error)}): check the path") from None
    if not found:
        raise InputError(f"--input {pattern} matches no file: check the path and quote the glob")
    return found


def make_directory(path: str) -> None:
    """Makes a folder, and those above it, unless it is there."""
    if not FileSystems.exists(path):
        # Another worker may make it first.
        with contextlib.suppress(OSError):
            FileSystems.mkdirs(path)


def create(path: str) -> BinaryIO:
    """A new file of exactly the bytes that are written to it, whatever its name ends in.

    Local folders are not made: a worker that outlives its job does not bring back what the job's end has removed.
    """
    if not is_remote(path):
        return open(path, "wb")
    return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def delete_folder(folder: str) -> None:
    """Deletes a folder with all that is in it, if it is there."""
    if is_remote(folder):
        # Object stores know no folders: without the slash, they look for an object of that name.
        FileSystems.delete([folder.rstrip("/") + "/"])
    elif os.path.isdir(folder):
        shutil.rmtree(folder)


def read_text(path: str) -> str:
    """The text of a file on any filesystem. Raises InputError when it cannot be read."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read().decode()
    except Exception:
        raise InputError(f"{path} cannot be read: check the path") from None


def write_text(path: str, text: str) -> None:
    """Writes a text file on any filesystem, in a folder that is there, under another name first."""
    partial = f"{path}.{uuid.uuid4().hex}"
    with create(partial) as file:
        file.write(text.encode())
    FileSystems.rename([partial], [path])
