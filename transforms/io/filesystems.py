"""Files and folders on any filesystem that Beam knows, on object stores (s3:// and gs://), and on local disks.

Object stores are used through `transforms.stores`, with the options of this process. Local files can be synced, so that
they survive a loss of power, and their owner alone may write to them, whatever the umask.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import fnmatch
import gzip
import hashlib
import importlib
import io
import lzma
import os
import re
import shutil
import stat
import sys
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from ..errors import InputError, StageError, StoreConflict, StoreNotFound, describe, named_file, system_text
from ..stores.object_store import EXTRAS, ObjectInfo, ObjectStore, install, is_store

if TYPE_CHECKING:
    from apache_beam.io.filesystem import CompressionTypes, FileSystem
    from apache_beam.io.filesystems import FileSystems
else:

    class _LoadedWhenUsed:
        """Class of Beam, imported when one of its members is first used: local files need no Beam."""

        def __init__(self, module: str, name: str):
            self._place = module, name

        def __getattr__(self, member: str) -> Any:
            return getattr(self._loaded(), member)

        def __call__(self, *arguments: Any) -> Any:
            return self._loaded()(*arguments)

        def _loaded(self) -> Any:
            module, name = self._place
            return getattr(importlib.import_module(module), name)

    CompressionTypes = _LoadedWhenUsed("apache_beam.io.filesystem", "CompressionTypes")
    FileSystem = _LoadedWhenUsed("apache_beam.io.filesystem", "FileSystem")
    FileSystems = _LoadedWhenUsed("apache_beam.io.filesystems", "FileSystems")

GZIP_MAGIC = b"\x1f\x8b\x08"
"""First bytes of a gzip file."""
GZIP_WITHOUT_NAME = (
    "is compressed with gzip, but its name does not end in .gz, or it is compressed twice: rename or decompress it"
)
"""Error of a file that is gzip where records should be."""

_ARCHIVE = "is {} archive: unpack it, and give a glob of the files that were in it"
# Bytes of the first header of a tar archive.
_TAR_HEADER = 512
# Bytes decompressed at a time.
_PART_BYTES = 1 << 18
# Name of a staging folder beside a local output.
_FOLDER_OF_RUN = re.compile(r"\..+\.[0-9a-f]{12}", re.DOTALL)
# A disk syncs several files at once in the time that one takes.
_AT_ONCE = 8
_STORES: dict[str, tuple[Any, ObjectStore]] = {}
"""By scheme, the options and the store that they were last asked for with."""


def is_remote(path: str) -> bool:
    """Tests whether a path or pattern has a scheme, such as gs://."""
    return "://" in path


def absolute(pattern: str) -> str:
    """Makes a local pattern absolute, so that record identities do not depend on where the job was started.

    Remote ones stay as they are. Raises InputError if it begins with an unexpanded home folder.
    """
    if re.match(r"~[^/]*/|~$", pattern):
        raise InputError(
            f"{pattern}: the shell has not expanded ~: write the whole path, or ./{pattern} for a folder of that name"
        )
    return pattern if is_remote(pattern) else os.path.abspath(pattern)


def store_of(path: str) -> ObjectStore:
    """Store of a URL, with the options that Beam's filesystems have in this process.

    Raises InputError, which names the extra, if its library is not installed.
    """
    # Local files need no Beam.
    from apache_beam.options.pipeline_options import PipelineOptions

    from ..beam_internals import options_of_filesystems

    scheme = path.partition(":")[0]
    options = options_of_filesystems()
    # Parsing options takes some milliseconds, and there is a store for each operation.
    known = _STORES.get(scheme)
    if known is not None and known[0] is options:
        return known[1]
    if isinstance(options, dict):
        parsed = PipelineOptions.from_dictionary(options)
    else:
        parsed = PipelineOptions([]) if options is None else options
    try:
        if scheme == "s3":
            from ..stores.s3_store import S3Store as Store
        else:
            from ..stores.google_store import GoogleStore as Store
        store = Store(parsed)
        _STORES[scheme] = options, store
        return store
    except ImportError:
        raise InputError(f"{scheme}:// needs the extra {EXTRAS[scheme]}: {install(scheme)}") from None


def match(pattern: str) -> dict[str, int]:
    """Lists the input files that match a pattern, as Spark does: without hidden ones.

    Returns path to size in bytes, in the order of the paths; at least one. Raises InputError if no file matches, or
    files cannot be listed.

    Hidden are files and folders whose names start with . or _, such as _SUCCESS, .part-0.crc and _temporary, but not
    _KEY=VALUE, unless the pattern has a name that starts so.
    """
    if pattern.startswith(("iceberg://", "delta://")):
        raise InputError(f"{pattern}: tables are read by privatize, fit, apply, domain and plan; name files here")
    try:
        if not is_remote(pattern) and os.path.isfile(pattern):
            # Its name may have brackets.
            found = {pattern: os.path.getsize(pattern)}
        elif is_store(pattern):
            found = {info.path: info.size for info in _matching_objects(pattern)}
        else:
            files = FileSystems.match([pattern])[0].metadata_list
            found = {file.path: file.size_in_bytes for file in sorted(files, key=lambda file: file.path)}
    except InputError:
        raise
    except Exception as error:
        reason = system_text(error) if is_store(pattern) else describe(error)
        raise InputError(f"`input` {pattern} cannot be listed ({reason}): check the path") from None
    if not found:
        brackets = (
            "; [...] stands for one of the characters in it: write [[] for a [ in a name" if "[" in pattern else ""
        )
        raise InputError(f"`input` {pattern} matches no file: check the path and quote the glob{brackets}")
    shown = {path: size for path, size in found.items() if not _is_hidden(path, pattern)}
    if not shown:
        raise InputError(
            f"`input` {pattern} matches only hidden files, whose names or folders start with . or _: "
            "give a pattern that starts so, too"
        )
    return shown


def _is_hidden(path: str, pattern: str) -> bool:
    """Tells whether a name in the path starts with . or _, which none in the pattern does that it matches."""
    named = [name for name in pattern.split("/") if name.startswith((".", "_"))]
    return any(
        name.startswith((".", "_")) and not (name.startswith("_") and "=" in name)
        for name in path.split("/")
        if not any(name == own or fnmatch.fnmatchcase(name, own) for own in named)
    )


def _matching_objects(pattern: str) -> list[ObjectInfo]:
    """Objects of a store that match a pattern, in the order of their names."""
    store = store_of(pattern)
    literal = re.match(r"[^*?\[]*", pattern)
    prefix = literal[0] if literal else ""
    if (prefix == pattern or "[" in pattern) and not pattern.endswith("/"):
        info = store.head(pattern)
        if info is not None or prefix == pattern:
            return [] if info is None else [info]
    matches = re.compile(FileSystem.translate_pattern(pattern if prefix != pattern else f"{pattern}*"))
    # Consoles make folders as empty objects whose names end with a slash.
    found = [info for info in store.list(prefix) if matches.match(info.path) and not info.path.endswith("/")]
    return sorted(found, key=lambda info: info.path)


def exists(path: str) -> bool:
    """Tests whether a file exists."""
    if is_store(path):
        return store_of(path).head(path) is not None
    return FileSystems.exists(path) if is_remote(path) else os.path.exists(path)


def open_file(path: str) -> BinaryIO:
    """Opens a file as it is, whatever its extension."""
    if is_store(path):
        return store_of(path).open(path)
    if is_remote(path):
        return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return open(path, "rb")


def open_input(path: str) -> BinaryIO:
    """Opens an input file, decompressed according to its extension.

    Bytes are decompressed as they are asked for, whatever a file expands to, and reading a truncated file to its end
    fails. Raises InputError if the file cannot be opened.
    """
    try:
        file = open_file(path)
        expand = next((expand for suffix, expand in _EXPANDED.items() if path.lower().endswith(suffix)), None)
        return file if expand is None else _DecompressedFile(file, expand(file))  # pyrefly: ignore[bad-return]
    except InputError:
        raise
    except Exception as error:
        raise not_opened(path, error) from None


def archive_problem(start: bytes) -> str | None:
    """Says that a file is a tar or ZIP archive, compressed or not, by its first 512 bytes; None if it is none."""
    if start.startswith(GZIP_MAGIC):
        with contextlib.suppress(zlib.error):
            start = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, _TAR_HEADER)
    if start[257:262] == b"ustar":
        return _ARCHIVE.format("a tar")
    return _ARCHIVE.format("a ZIP") if start.startswith(b"PK\x03\x04") else None


def archive_in(file: Any) -> str | None:
    """Text of `archive_problem` for an open file, whose place changes."""
    file.seek(0)
    return archive_problem(file.read(_TAR_HEADER))


def not_opened(path: str, error: Exception) -> InputError:
    """Error for an input file that cannot be opened, to be raised by the caller."""
    if os.path.isdir(path):
        return InputError(f"{path}: is a folder: give a glob of the files in it")
    text = system_text(error)
    return InputError(f"{path}: cannot be opened: {text}" if text else f"{path}: cannot be opened")


class _DecompressedFile(io.RawIOBase):
    """Reader of a decompressed file that closes the compressed file as well."""

    def __init__(self, compressed: BinaryIO, stream: Any):
        self._compressed, self._stream = compressed, stream
        self._defect: Exception | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Reads until `size` bytes or the end. Bytes before a defect are given; the next call fails."""
        size = sys.maxsize if size is None or size < 0 else size
        parts: list[bytes] = []
        while size > 0 and self._defect is None:
            try:
                part = self._stream.read1(min(size, _PART_BYTES))
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
        self._stream.close()
        self._compressed.close()


def _arrow_stream(codec: str) -> Callable[[BinaryIO], Any]:
    return lambda file: pa.CompressedInputStream(pa.PythonFile(file, "r"), codec)


# Beam's own reader decompresses 16 MiB of a file at once, and accepts a truncated file as a complete one.
_EXPANDED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": _arrow_stream("zstd"),
    ".zstd": _arrow_stream("zstd"),
    # Arrow's reader of gzip finds out that it is zlib.
    ".deflate": _arrow_stream("gzip"),
}
"""By the end of a file's name, its decompressed stream."""


def make_directory(path: str, parents: bool = True) -> None:
    """Makes a folder, unless it exists; object stores have none.

    `parents` makes its parents on a local disk, too. A worker that outlives its job must not restore a folder that the
    end of the job has removed.
    """
    if not is_store(path) and not FileSystems.exists(path):
        # Another worker may make it first.
        with contextlib.suppress(OSError):
            if parents or is_remote(path):
                FileSystems.mkdirs(path)
            else:
                os.mkdir(path)


def makes_parents(folder: str) -> bool:
    """Tells whether workers make the parents of a temporary folder, too: not what is gone when the job has ended.

    That is a local parent that exists now, or the folder of a run.
    """
    parent, _ = FileSystems.split(folder)
    return is_remote(folder) or not (exists(parent) or _FOLDER_OF_RUN.fullmatch(FileSystems.split(parent)[1]))


def create(path: str) -> BinaryIO:
    """Creates a file without compression, whatever its extension.

    Does not make local folders: a worker that outlives its job must not restore a folder that the end of the job has
    removed.
    """
    if not is_remote(path):
        return open(path, "wb")
    if is_store(path):
        return store_of(path).create(path)
    return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def delete_folder(folder: str) -> None:
    """Deletes a folder with its content, if it exists."""
    if is_store(folder):
        store, prefix = store_of(folder), folder.rstrip("/") + "/"
        store.delete([info.path for info in store.list(prefix)])
    elif is_remote(folder):
        # Without the slash, some filesystems look for a file of that name.
        FileSystems.delete([folder.rstrip("/") + "/"])
    elif os.path.isdir(folder):
        shutil.rmtree(folder)


def read_text(path: str) -> str:
    """Reads a text file. Raises InputError if it cannot be read or is not UTF-8."""
    try:
        with open_file(path) as file:
            return file.read().decode()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path} cannot be read: {system_text(error) or 'check the path'}") from None


def write_text(path: str, text: str, temp: str | None = None) -> None:
    """Writes a text file under a temporary name, then renames it.

    On an object store, it appears whole anyway. The folder of the file exists. `temp` is the temporary folder of the
    run, for a file of its output, as in `complete_file`; None for a file in that folder, which no other run writes.
    Raises StageError if the operating system or the store refuses, for example because the disk is full, or because
    another run has written it.
    """
    with named_file("writing", path):
        if is_store(path) and temp is not None:
            with complete_file(path, temp) as file:
                file.write(text.encode())
            return
        if is_store(path):
            store_of(path).write(path, text.encode())
            return
        # In the temporary folder: what a killed process leaves there is not released.
        beside = path if temp is None else FileSystems.join(temp, FileSystems.split(path)[1])
        partial = f"{beside}.{uuid.uuid4().hex}"
        with create(partial) as file:
            file.write(text.encode())
        if is_remote(path):
            FileSystems.rename([partial], [path])
        else:
            os.replace(partial, path)


@contextlib.contextmanager
def complete_file(path: str, temp: str) -> Iterator[BinaryIO]:
    """Writes a file that appears under its name when it is complete.

    `temp` is the temporary folder of the run, on the same filesystem; it names the run. Bundles that are repeated write
    the file again, with the same bytes. Raises StageError if the store has an object of this name that another run has
    written.

    On an object store it is written under its name: an object appears whole, and is never replaced. Elsewhere it is
    written in the temporary folder and renamed.
    """
    if is_store(path):
        with _object_of_run(path, temp) as (store, run), store.create(path, run) as file:
            yield file
        return
    partial = FileSystems.join(temp, f"{FileSystems.split(path)[1]}-{uuid.uuid4().hex}")
    with create(partial) as file:
        yield file
    make_directory(FileSystems.split(path)[0])
    FileSystems.rename([partial], [path])


def join_files(sources: Sequence[tuple[str, int]], path: str, temp: str) -> None:
    """Creates an object of a store from the bytes of others, which as far as possible do not leave the store.

    `sources` are files in the temporary folder `temp` of the run, one after the other, each with its size in bytes;
    `path` is as in `complete_file`. Raises StageError if the store has an object of this name that another run has
    written.
    """
    with _object_of_run(path, temp) as (store, run):
        store.join(sources, path, run)


@contextlib.contextmanager
def _object_of_run(path: str, temp: str) -> Iterator[tuple[ObjectStore, str]]:
    """The store of an object that a block creates, and the name of the run. Creating it again changes nothing."""
    store, run = store_of(path), hashlib.blake2b(temp.encode(), digest_size=16).hexdigest()
    try:
        yield store, run
    except (StoreConflict, StoreNotFound):
        found = store.head(path)
        if found is None:
            raise
        if found.tag != run:
            raise StageError(f"writing {path} failed: another run has written it") from None


def move_files(moves: Sequence[tuple[str, str]]) -> None:
    """Moves files from path to new path, all on one filesystem, as many at a time as it takes.

    Object stores cannot rename: there, files are copied, within the store, and deleted together.
    """
    if moves and is_store(moves[0][0]):
        store = store_of(moves[0][0])
        for source, target in moves:
            store.copy(source, target)
        store.delete([source for source, _ in moves])
    elif moves:
        at_once = FileSystems.get_chunk_size(moves[0][0])
        for first in range(0, len(moves), at_once):
            sources, targets = zip(*moves[first : first + at_once], strict=True)
            FileSystems.rename(list(sources), list(targets))


def delete_files(paths: Iterable[str]) -> None:
    """Deletes files, all on one filesystem."""
    files = list(paths)
    if files and is_store(files[0]):
        store_of(files[0]).delete(files)
    elif files:
        FileSystems.delete(files)


def is_empty_folder(folder: str) -> bool:
    """Tests whether a folder is new or empty; False for a file."""
    if is_store(folder):
        return next(iter(store_of(folder).list(folder.rstrip("/") + "/")), None) is None
    if is_remote(folder):
        return not FileSystems.match([FileSystems.join(folder, "**")], [1])[0].metadata_list
    # Beam would interpret brackets in the name as a pattern.
    return not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))


def make_folders(folder: str, mode: int = 0o755) -> None:
    """Makes a local folder and its parents, unless they exist; `mode` is before the umask. Raises OSError."""
    try:
        os.mkdir(folder, mode)
    except FileNotFoundError:
        parent = os.path.dirname(folder.rstrip("/"))
        if not parent or os.path.isdir(parent):
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
    if not hasattr(os, "O_DIRECTORY"):
        # Windows opens no folders, and writes names by itself.
        return
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
    if not hasattr(os, "O_NOFOLLOW"):
        # Windows has no modes, and syncs files that are open for writing alone.
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o022:
            os.fchmod(descriptor, mode & ~0o022)
        _fsync(descriptor)
    finally:
        os.close(descriptor)
