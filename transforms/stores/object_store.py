"""Object stores behind one interface: objects appear whole under their names, and only if a condition holds.

Beam's own filesystems read and write objects, too, but have no conditions, retry for minutes, and finish an object that
its writer gave up. Options and credentials are those of Beam: its flags, or the environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from ..errors import InputError, StoreConflict, StoreError, StoreNotFound
from .object_streams import ObjectReader, ObjectWriter, Upload

if TYPE_CHECKING:
    from .lease import LeaseHold

EXTRAS: dict[str, str] = {"s3": "aws", "gs": "gcp"}
"""Extra of each scheme."""

ABSENT = "absent"
"""Version of an object that does not exist."""

WRONG = "1"
"""Version that no object has."""

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

    def create(self, path: str, tag: str | None = None, hold: LeaseHold | None = None) -> BinaryIO:
        """Creates an object, which appears when the stream is closed.

        `tag` is the name of the run: if given, the object must not exist, and closing the stream raises StoreConflict
        if it does. With `hold`, which needs a tag, the run must hold its lease until the object appears: otherwise
        closing the stream raises StageError, StoreConflict or StoreNotFound. As a context manager, the stream gives the
        object up if the block raises.
        """
        return ObjectWriter(self._upload(path, tag, hold))  # type: ignore[return-value]

    @abstractmethod
    def join(self, sources: Sequence[tuple[str, int]], path: str, tag: str, hold: LeaseHold | None = None) -> None:
        """Creates an object that has the bytes of others, one after the other, as far as possible within the store.

        `sources` are the others, with their sizes in bytes; `path` must not exist, and is in their bucket. `tag` is the
        name of the run. `hold` is its lease, as in `create`; the others are in its temporary folder. Raises
        StoreConflict if the object exists.
        """

    def copy(self, source: str, target: str) -> None:
        """Copies an object within its bucket, unless it was copied before.

        Raises StoreNotFound if there is no such object, StoreConflict if the target exists and is no copy of it.
        """
        info, tag = self.head(source), hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
        if info is None:
            raise StoreNotFound("no such object")
        try:
            self.join([(source, info.size)], target, tag)
        except StoreConflict:
            found = self.head(target)
            if found is None or (found.tag, found.size) != (tag, info.size):
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

        `prefix` is the beginning of their URLs.
        """

    @abstractmethod
    def _head(self, path: str) -> ObjectInfo:
        """Describes an object, which exists."""

    @abstractmethod
    def _reader(self, info: ObjectInfo) -> ObjectReader:
        """Reader of the version that was described: an object that is replaced meanwhile is not read in parts."""

    @abstractmethod
    def _upload(self, path: str, tag: str | None, hold: LeaseHold | None) -> Upload:
        """Takes the parts of an object that is created."""


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
