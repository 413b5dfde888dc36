"""Opening of input files, compressed or not."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..errors import InputError


def open_input(path: str) -> BinaryIO:
    try:
        if path.endswith(".gz"):
            # Beam's own reader takes a file that ends too early for a whole one.
            return _GzipFile(fileobj=FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED))
        return FileSystems.open(path, compression_type=CompressionTypes.AUTO)
    except Exception:
        raise not_opened(path) from None


def not_opened(path: str) -> InputError:
    what = "is a folder: give a glob of the files in it" if os.path.isdir(path) else "cannot be opened"
    return InputError(f"{path}: {what}")


class _GzipFile(gzip.GzipFile):
    """Closes the file below as well."""

    def __init__(self, fileobj: BinaryIO):
        super().__init__(fileobj=fileobj, mode="rb")
        self._below = fileobj

    def close(self) -> None:
        super().close()
        self._below.close()


def check_columns(names: Sequence[str], wanted: Sequence[str] | None, path: str) -> None:
    for name in wanted or ():
        if name not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"{path}: there is no column {name!r}; it has: {listed}")


def check_unique_columns(names: Sequence[str], path: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs twice: give each a name of its own")
