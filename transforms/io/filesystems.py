"""Files and folders on any filesystem that Beam knows."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sys
import uuid
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError, describe, named_file, system_text

GZIP_MAGIC = b"\x1f\x8b\x08"
"""First bytes of a gzip file."""
GZIP_WITHOUT_NAME = (
    "is compressed with gzip, but its name does not end in .gz, or it is compressed twice: rename or decompress it"
)
"""Error of a file that is gzip where records should be."""

# Bytes decompressed at a time.
_GZIP_BYTES = 1 << 18


def is_remote(path: str) -> bool:
    """Tests whether a path is on another filesystem than the local one.

    Args:
      path: A path or pattern.

    Returns:
      True for paths with a scheme, such as gs://.
    """
    return "://" in path


def absolute(pattern: str) -> str:
    """Makes a local pattern absolute, so that record identities do not depend on where the job was started.

    Args:
      pattern: A path or pattern.

    Returns:
      The absolute pattern; remote ones stay as they are.
    """
    return pattern if is_remote(pattern) else os.path.abspath(pattern)


def match(pattern: str) -> dict[str, int]:
    """Lists the input files that match a pattern.

    Args:
      pattern: A path or glob.

    Returns:
      Path to size in bytes, in the order of the paths; at least one.

    Raises:
      InputError: If no file matches, or files cannot be listed.
    """
    try:
        files = FileSystems.match([pattern])[0].metadata_list
        found = {file.path: file.size_in_bytes for file in sorted(files, key=lambda file: file.path)}
    except Exception as error:
        raise InputError(f"--input {pattern} cannot be listed ({describe(error)}): check the path") from None
    if not found:
        raise InputError(f"--input {pattern} matches no file: check the path and quote the glob")
    return found


def open_input(path: str) -> BinaryIO:
    """Opens an input file, decompressed according to its extension.

    Args:
      path: The file.

    Returns:
      A stream of the decompressed bytes. Reading a truncated gzip file to its end fails.

    Raises:
      InputError: If it cannot be opened.
    """
    try:
        if path.endswith(".gz"):
            # Beam's own reader accepts a truncated gzip file as a complete one.
            return _GzipFile(fileobj=FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED))
        return FileSystems.open(path, compression_type=CompressionTypes.AUTO)
    except Exception as error:
        raise not_opened(path, error) from None


def not_opened(path: str, error: Exception) -> InputError:
    """Error for an input file that cannot be opened.

    Args:
      path: The file.
      error: What opening it raised.

    Returns:
      The exception, to be raised by the caller.
    """
    if os.path.isdir(path):
        return InputError(f"{path}: is a folder: give a glob of the files in it")
    text = system_text(error)
    return InputError(f"{path}: cannot be opened: {text}" if text else f"{path}: cannot be opened")


class _GzipFile(gzip.GzipFile):
    """Gzip reader that closes the compressed file as well."""

    def __init__(self, fileobj: BinaryIO):
        super().__init__(fileobj=fileobj, mode="rb")
        self._compressed = fileobj
        self._defect: Exception | None = None

    def read(self, size: int | None = -1) -> bytes:
        """Reads until `size` bytes or the end. Bytes before a defect are given; the next call fails."""
        size = sys.maxsize if size is None or size < 0 else size
        parts: list[bytes] = []
        while size > 0 and self._defect is None:
            try:
                part = self.read1(min(size, _GZIP_BYTES))
            except Exception as error:
                self._defect = error
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        if self._defect is not None and not parts:
            raise self._defect
        return b"".join(parts)

    def close(self) -> None:
        super().close()
        self._compressed.close()


def make_directory(path: str) -> None:
    """Makes a folder and its parents, unless it exists.

    Args:
      path: The folder.
    """
    if not FileSystems.exists(path):
        # Another worker may make it first.
        with contextlib.suppress(OSError):
            FileSystems.mkdirs(path)


def create(path: str) -> BinaryIO:
    """Creates a file without compression, whatever its extension.

    Does not make local folders: a worker that outlives its job must not restore a folder that the end of the job has
    removed.

    Args:
      path: The file.

    Returns:
      A stream to write to.
    """
    if not is_remote(path):
        return open(path, "wb")
    return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def delete_folder(folder: str) -> None:
    """Deletes a folder with its content, if it exists.

    Args:
      folder: The folder.
    """
    if is_remote(folder):
        # Object stores have no folders: without the slash, they look for an object of that name.
        FileSystems.delete([folder.rstrip("/") + "/"])
    elif os.path.isdir(folder):
        shutil.rmtree(folder)


def read_text(path: str) -> str:
    """Reads a text file.

    Args:
      path: The file.

    Returns:
      Its text.

    Raises:
      InputError: If it cannot be read or is not UTF-8.
    """
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read().decode()
    except Exception as error:
        raise InputError(f"{path} cannot be read: {system_text(error) or 'check the path'}") from None


def write_text(path: str, text: str) -> None:
    """Writes a text file under a temporary name, then renames it.

    Args:
      path: The file, in a folder that exists.
      text: Its content.

    Raises:
      StageError: If the operating system refuses, for example because the disk is full.
    """
    partial = f"{path}.{uuid.uuid4().hex}"
    with named_file("writing", path):
        with create(partial) as file:
            file.write(text.encode())
        FileSystems.rename([partial], [path])
