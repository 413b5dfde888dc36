"""Object stores behind one interface: objects appear whole under their names, and only if a condition holds.

Objects are read in ranges and written in parts. Beam's own filesystems read and write objects, too, but have no
conditions, retry for minutes, and finish an object that its writer gave up. Options and credentials are those of Beam:
its flags, or the environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Protocol

from ..errors import InputError, StoreConflict, StoreError, StoreNotFound

EXTRAS: dict[str, str] = {"s3": "aws", "gs": "gcp"}
"""Extra of each scheme."""

ABSENT = "absent"
"""Version of an object that does not exist."""

WRONG = "1"
"""Version that no object has."""

_ATTEMPTS = 3
_PROBE = b"labeldp checks that this store honors the conditions of writes\n"
_SCHEME = re.compile(r"(s3|gs)://")
_URL = re.compile(r"(s3|gs)://([A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9])/(.*)", re.DOTALL)


@dataclass(frozen=True)
class ObjectInfo:
    """An object of a store.

    Attributes:
      path: Its URL.
      size: In bytes.
      version: Changes whenever the object is written: ETag or generation.
      tag: Name of the run that wrote it, for objects that `create` made; None if unknown, as in a listing.
    """

    path: str
    size: int
    version: str
    tag: str | None = None


class ObjectReader(io.RawIOBase):
    """Reads an object as one stream from the present position on; a seek begins a new one.

    A stream that breaks off is opened again where it ended.
    """

    BUFFER = 1 << 20
    mode = "rb"

    def __init__(self, size: int, stream: Callable[[int], Any], reasons: Callable[[], AbstractContextManager[None]]):
        """Opens nothing yet; `size` is that of the object in bytes.

        `stream` opens a stream, with `read` and `close`, from a byte on. `reasons` is a context that raises StoreError
        for errors of `read`.
        """
        self._size = size
        self._open_stream = stream
        self._reasons = reasons
        self._stream: Any = None
        self._position = 0

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tells that it can seek."""
        return True

    def tell(self) -> int:
        """Position in bytes from the start."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position, as in `io.IOBase`, and returns it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        position = max(base + offset, 0)
        if position != self._position:
            self._drop()
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer, as in `io.RawIOBase`.

        Returns the number of bytes read; 0 at the end. Raises StoreError if the store refuses, or the stream breaks off
        three times.
        """
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                if self._stream is None:
                    self._stream = self._open_stream(self._position)
                with self._reasons():
                    found = self._stream.read(wanted)
                if found:
                    buffer[: len(found)] = found
                    self._position += len(found)
                    return len(found)
                raise StoreError("the object ended early")
            except StoreError:
                self._drop()
                if not attempts_left:
                    raise
        return 0

    def readall(self) -> bytes:
        """Reads the rest; `io.RawIOBase` would ask for 8 KiB at a time, each a request on Google's store."""
        return b"".join(iter(lambda: self.read(self.BUFFER), b""))

    def close(self) -> None:
        """Closes the stream."""
        self._drop()
        super().close()

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Upload(Protocol):
    """An object that is being written."""

    def part_bytes(self) -> int:
        """Size of the next part in bytes."""
        ...

    def add(self, content: bytes) -> None:
        """Writes a part."""
        ...

    def finish(self, rest: bytes) -> None:
        """Makes the object appear; `rest` is the last part, which may be empty."""
        ...

    def give_up(self) -> None:
        """Drops what was written."""
        ...


class ObjectWriter(io.RawIOBase):
    """Writes an object, which appears when the stream is closed, and never if the `with` block raises."""

    def __init__(self, upload: Upload):
        """Begins."""
        self._upload = upload
        self._buffer = bytearray()
        self._written = 0
        self._ended = False

    def writable(self) -> bool:
        """Tells that it can be written to."""
        return True

    def tell(self) -> int:
        """Number of bytes written."""
        return self._written

    def write(self, content: Any) -> int:
        """Writes all of the content, as in `io.BufferedIOBase`: bytes, or an object with a buffer of bytes.

        Returns the number of bytes written.
        """
        size = memoryview(content).nbytes
        self._buffer += content
        self._written += size
        while len(self._buffer) > (part := self._upload.part_bytes()):
            self._upload.add(bytes(self._buffer[:part]))
            del self._buffer[:part]
        return size

    def close(self) -> None:
        """Makes the object appear."""
        if not self._ended:
            self._ended = True
            try:
                self._upload.finish(bytes(self._buffer))
            except BaseException:
                self._give_up()
                raise
            finally:
                self._buffer.clear()
                super().close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Closes the stream, or gives the object up if the block raised."""
        if kind is None:
            self.close()
        else:
            self.discard()

    def discard(self) -> None:
        """Gives the object up."""
        if not self._ended:
            self._ended = True
            self._buffer.clear()
            self._give_up()
            super().close()

    def __del__(self) -> None:
        """Gives the object up: a writer that was not closed is of a bundle that failed."""
        if not self._ended:
            self._ended = True
            super().close()

    def _give_up(self) -> None:
        try:
            self._upload.give_up()
        except StoreError:
            # A later run, or a rule of the bucket, removes the parts.
            return


class ObjectStore(ABC):
    """Objects by URL. All methods raise StoreError if the store refuses or does not answer."""

    BUFFER: ClassVar[int] = ObjectReader.BUFFER

    @abstractmethod
    def probe(self, path: str, listing: bool) -> None:
        """Asks the store once, with short timeouts, so that a wrong name or missing credentials are found at once.

        `path` is an object, which need not exist, or a prefix. Lists if `listing`, else reads.
        """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Lists the objects whose URLs begin with a prefix, in the order of their names."""

    def head(self, path: str) -> ObjectInfo | None:
        """Describes an object; None if it does not exist."""
        try:
            return self._head(path)
        except StoreNotFound:
            return None

    def open(self, path: str) -> BinaryIO:
        """Opens an object as a buffered stream that can seek. Raises StoreNotFound if it does not exist."""
        info = self.head(path)
        if info is None:
            raise StoreNotFound("no such object")
        return io.BufferedReader(self._reader(info), self.BUFFER)

    @abstractmethod
    def read(self, path: str) -> tuple[bytes, str] | None:
        """Reads content and version of a small object at once; None if it does not exist.

        Raises StoreConflict if it is replaced again and again.
        """

    @abstractmethod
    def write(self, path: str, content: bytes, replaces: str | None = None) -> str:
        """Writes a small object at once, and returns its new version.

        `replaces` is the version that it must have, or ABSENT; None for any. Raises StoreConflict if it has another
        version; it is not written then.
        """

    def create(self, path: str, tag: str | None = None) -> BinaryIO:
        """Creates an object, which appears when the stream is closed.

        `tag` is the name of the run: if given, the object must not exist, and closing the stream raises StoreConflict
        if it does. As a context manager, the stream gives the object up if the block raises.
        """
        return ObjectWriter(self._upload(path, tag))  # type: ignore[return-value]

    @abstractmethod
    def join(self, sources: Sequence[tuple[str, int]], path: str, tag: str) -> None:
        """Creates an object that has the bytes of others, one after the other, as far as possible within the store.

        `sources` are the others, with their sizes in bytes; `path` must not exist, and is in their bucket. `tag` is the
        name of the run. Raises StoreConflict if the object exists.
        """

    def copy(self, source: str, target: str, tag: str | None = None) -> None:
        """Copies an object within its bucket, unless it was copied before.

        Once the source is deleted, and then the uploads of the target are aborted, no copy appears. `tag` is the name
        of the run; without it, a copy is known by its source. Raises StoreNotFound if there is no such object,
        StoreConflict if the target exists and was not copied from one of this size and tag.
        """
        tag = tag or hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
        try:
            self._copy(source, target, tag)
        except StoreConflict:
            found = self.head(target)
            if found is None or (found.tag, found.size) != (tag, self._head(source).size):
                raise

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Deletes objects; those that do not exist are passed over."""

    @abstractmethod
    def delete_version(self, path: str, version: str) -> None:
        """Deletes an object if it has a version. Raises StoreConflict if it has another one."""

    @abstractmethod
    def abort_uploads(self, prefix: str) -> None:
        """Gives up the unfinished uploads of other writers, none of which makes an object from then on.

        `prefix` is the beginning of their URLs, up to a slash, or the URL of one object.
        """

    @abstractmethod
    def _head(self, path: str) -> ObjectInfo:
        """Describes an object, which exists."""

    @abstractmethod
    def _reader(self, info: ObjectInfo) -> ObjectReader:
        """Reader of the version that was described: an object that is replaced meanwhile is not read in parts."""

    @abstractmethod
    def _upload(self, path: str, tag: str | None) -> Upload:
        """Takes the parts of an object that is created."""

    @abstractmethod
    def _copy(self, source: str, target: str, tag: str) -> None:
        """Copies an object. Raises StoreNotFound without one, StoreConflict if the target exists."""


def is_store(path: str) -> bool:
    """Tests whether a path or pattern is on an object store: s3:// or gs://."""
    return _SCHEME.match(path) is not None


def install(scheme: str) -> str:
    """Command that installs the library of a store, s3 or gs."""
    return f"pip install 'labeldp[{EXTRAS[scheme]}]'"


def check_url(path: str) -> None:
    """Checks the form of a URL of `is_store`, or of a pattern.

    Raises ValueError if it is malformed or holds credentials; the message has no part of it that may be secret.
    """
    scheme, _, rest = path.partition("://")
    if "@" in rest.partition("/")[0] or re.match(r"[^/]*:", rest):
        raise ValueError(
            f"a {scheme}:// URL takes no credentials and no port: "
            f"write {scheme}://BUCKET/NAME and give credentials in the environment"
        )
    found = _URL.fullmatch(path)
    if found is None:
        raise ValueError(f"is not of the form {scheme}://BUCKET/NAME")
    if not found[3].strip("/"):
        raise ValueError(f"names a whole bucket: write {scheme}://BUCKET/NAME")
    parts = found[3].split("/")
    if "" in parts[:-1] or {".", ".."} & set(parts):
        raise ValueError("has an empty part, . or .. between slashes, which object stores take as names: leave it out")


def split_url(path: str) -> tuple[str, str]:
    """Splits a URL into its bucket and the name of the object, empty for a whole bucket."""
    bucket, _, name = path.partition("://")[2].partition("/")
    return bucket, name


def parent_and_name(path: str) -> tuple[str, str]:
    """Splits the URL of an object or prefix at its last slash: URL of the folder, and the name in it."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent, name


def require_conditions(store: ObjectStore, place: str) -> None:
    """Checks that a store honors the conditions of writes, by trying.

    Leaves no object behind. `place` is the URL that the tried object's name begins with. Raises InputError if the store
    does not.
    """
    # Another run that takes over deletes what it finds there, and then a store that honors conditions seems not to.
    if not (_honors_conditions(store, place) or _honors_conditions(store, place)):
        raise InputError(
            f"{place.partition('://')[0]}://{split_url(place)[0]}: this store ignores the conditions of writes "
            "(If-None-Match, If-Match or generation), without which two runs can overwrite each other: use another "
            "store, and for a ledger sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )


def _honors_conditions(store: ObjectStore, place: str) -> bool:
    path = f"{place}.probe-{uuid.uuid4().hex}"
    try:
        store.write(path, _PROBE, ABSENT)
        return _conflicts(store, path, ABSENT) and _conflicts(store, path, WRONG)
    finally:
        with contextlib.suppress(StoreError):
            store.delete([path])


def _conflicts(store: ObjectStore, path: str, replaces: str) -> bool:
    try:
        store.write(path, _PROBE, replaces)
    except (StoreConflict, StoreNotFound):
        return True
    return False
