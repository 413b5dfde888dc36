"""Google Cloud Storage. Needs the extra `gcp`."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import google.auth
import requests
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud import storage
from google.cloud.storage.exceptions import InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY

from ..beam_internals import impersonated
from ..errors import StoreConflict, StoreError, StoreNotFound
from .object_store import ABSENT, ObjectInfo, ObjectReader, ObjectStore, Upload, split_url

_TAG = "labeldp-run"
_DELETED_AT_ONCE = 100
_COMPOSED_AT_ONCE = 32
_PART_BYTES = 4 << 20
# Keywords of a request. Timeouts are those to connect and to read.
_PATIENT: dict[str, Any] = {"retry": DEFAULT_RETRY.with_timeout(45), "timeout": (10, 60)}
_ONCE: dict[str, Any] = {"retry": None, "timeout": (4, 10)}
_CONTENT = "application/octet-stream"

_NO_CREDENTIALS = (
    "no credentials: run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS; "
    "--no_auth reads public buckets"
)
_REASONS = {
    401: "access denied: the credentials are not valid, or there are none (gcloud auth application-default login)",
    403: "access denied: the credentials lack a permission for it (docs/guides/engines.md lists them)",
    429: "the store asks to slow down",
}


@contextlib.contextmanager
def _reasons() -> Iterator[None]:
    """Raises StoreError in place of Google's errors, whose texts may quote a request."""
    try:
        yield
    except GoogleAPICallError as error:
        raise _failure(error.code or 0, error.message or "") from None
    except DefaultCredentialsError:
        raise StoreError(_NO_CREDENTIALS) from None
    except (requests.ConnectionError, requests.Timeout, TransportError, RetryError):
        raise StoreError("the endpoint is not reachable: check the network and STORAGE_EMULATOR_HOST") from None
    except GoogleAuthError:
        raise StoreError("the credentials are not valid or have expired: log in again") from None
    except (requests.RequestException, InvalidResponse) as error:
        raise _failure(getattr(getattr(error, "response", None), "status_code", 0) or 0, "") from None


def _failure(code: int, message: str) -> StoreError:
    if code == 412:
        return StoreConflict("the object was changed by another run meanwhile")
    if code == 404:
        # The message is only searched for, never shown.
        missing_bucket = "bucket" in message and "does not exist" in message
        return StoreError("no such bucket") if missing_bucket else StoreNotFound("no such object")
    return StoreError(_REASONS.get(code) or f"the store answered with HTTP status {code or 'unknown'}")


class GoogleStore(ObjectStore):
    """Objects of gs:// URLs."""

    BUFFER = _PART_BYTES

    def __init__(self, options: PipelineOptions):
        """Connects when it is used; the options include Beam's `GoogleCloudOptions`."""
        flags = options.view_as(GoogleCloudOptions)
        self._flags = (
            flags.no_auth, flags.project, flags.impersonate_service_account, tuple(flags.gcp_oauth_scopes or ()),
        )  # fmt: skip

    @property
    def _client(self) -> storage.Client:
        # A requests.Session, which the client has, is not meant for several threads.
        return _client(self._flags, os.environ.get("STORAGE_EMULATOR_HOST"), threading.get_ident(), os.getpid())

    def _blob(self, path: str) -> storage.Blob:
        bucket, name = split_url(path)
        return self._client.bucket(bucket).blob(name)

    def probe(self, path: str, listing: bool) -> None:
        bucket, name = split_url(path)
        with _reasons():
            if listing:
                found = self._client.list_blobs(bucket, prefix=name, max_results=1, **_ONCE)
                next(iter(found), None)
                return
            try:
                self._blob(path).reload(**_ONCE)
            except GoogleAPICallError as error:
                if not isinstance(_failure(error.code or 0, error.message or ""), StoreNotFound):
                    raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        bucket, name = split_url(prefix)
        with _reasons():
            fields = "items(name,size,generation),nextPageToken"
            found = iter(self._client.list_blobs(bucket, prefix=name, fields=fields, **_PATIENT))
        while True:
            with _reasons():
                blob = next(found, None)
            if blob is None:
                return
            yield ObjectInfo(f"gs://{bucket}/{blob.name}", blob.size or 0, str(blob.generation))

    def _head(self, path: str) -> ObjectInfo:
        blob = self._blob(path)
        with _reasons():
            blob.reload(**_PATIENT)
        return ObjectInfo(path, blob.size or 0, str(blob.generation), (blob.metadata or {}).get(_TAG))

    def _reader(self, info: ObjectInfo) -> ObjectReader:
        return ObjectReader(info.size, lambda start: _Ranges(self, info, start), contextlib.nullcontext)

    def read(self, path: str) -> tuple[bytes, str] | None:
        blob = self._blob(path)
        for _ in range(3):
            info = self.head(path)
            if info is None:
                return None
            # An object that is replaced between the two requests is read again.
            with contextlib.suppress(StoreConflict, StoreNotFound):
                with _reasons():
                    content = blob.download_as_bytes(
                        raw_download=True, if_generation_match=int(info.version), **_PATIENT
                    )
                return content, info.version
        raise StoreConflict("the object is changed again and again by other runs")

    def write(self, path: str, content: bytes, replaces: str | None = None) -> str:
        blob = self._blob(path)
        with _reasons():
            blob.upload_from_string(
                content, content_type=_CONTENT, if_generation_match=_generation(replaces), **_PATIENT
            )
        return str(blob.generation)

    def _upload(self, path: str, tag: str | None) -> Upload:
        return _Upload(self._new_blob(path, tag), tag)

    def join(self, sources: Sequence[tuple[str, int]], path: str, tag: str) -> None:
        names = [source for source, size in sources if size]
        if not names:
            self._upload(path, tag).finish(b"")
            return
        intermediate: list[str] = []
        try:
            while len(names) > _COMPOSED_AT_ONCE:
                groups = [names[at : at + _COMPOSED_AT_ONCE] for at in range(0, len(names), _COMPOSED_AT_ONCE)]
                # Beside the sources, where they are removed with them if this process is killed.
                names = [f"{group[0]}-{uuid.uuid4().hex}" for group in groups]
                for group, joined in zip(groups, names, strict=True):
                    self._compose(group, joined, None)
                    intermediate.append(joined)
            if len(names) == 1:
                self._copy(names[0], path, tag)
            else:
                self._compose(names, path, tag)
        finally:
            if intermediate:
                with contextlib.suppress(StoreError):
                    self.delete(intermediate)

    def _compose(self, sources: Sequence[str], path: str, tag: str | None) -> None:
        with _reasons():
            blobs = [self._blob(source) for source in sources]
            self._new_blob(path, tag).compose(blobs, if_generation_match=_new_of(tag), **_PATIENT)

    def _copy(self, source: str, target: str, tag: str) -> None:
        blob, made, token = self._blob(source), self._new_blob(target, tag), None
        with _reasons():
            while True:
                token, _, _ = made.rewrite(blob, token=token, if_generation_match=0, **_PATIENT)
                if token is None:
                    return

    def _new_blob(self, path: str, tag: str | None) -> storage.Blob:
        blob = self._blob(path)
        blob.content_type = _CONTENT
        if tag is not None:
            blob.metadata = {_TAG: tag}
        return blob

    def delete(self, paths: Iterable[str]) -> None:
        waiting = list(paths)
        client = self._client
        for first in range(0, len(waiting), _DELETED_AT_ONCE):
            with _reasons():
                batch = client.batch(raise_exception=False)
                with batch:
                    for path in waiting[first : first + _DELETED_AT_ONCE]:
                        self._blob(path).delete(client=client)
            for answer in batch._responses:
                if answer.status_code >= 400 and answer.status_code != 404:
                    raise _failure(answer.status_code, "")

    def delete_version(self, path: str, version: str) -> None:
        with contextlib.suppress(StoreNotFound), _reasons():
            self._blob(path).delete(if_generation_match=int(version), **_PATIENT)

    def abort_uploads(self, prefix: str) -> None:
        """Does nothing: runs upload to their own folders alone, and a copy to another name is one request.

        The store itself drops unfinished uploads after a week, and does not charge for them.
        """


class _Ranges:
    """A stream that asks for one range after the other."""

    def __init__(self, store: GoogleStore, info: ObjectInfo, start: int):
        self._store = store
        self._info = info
        self._position = start

    def read(self, size: int) -> bytes:
        end = self._position + size - 1
        with _reasons():
            found = self._store._blob(self._info.path).download_as_bytes(
                start=self._position, end=end, raw_download=True, if_generation_match=int(self._info.version),
                **_PATIENT,
            )  # fmt: skip
        self._position += len(found)
        return found

    def close(self) -> None:
        pass


class _Upload:
    """An object that is written: in one request if it is small, else as a resumable upload."""

    def __init__(self, blob: storage.Blob, tag: str | None):
        self._blob = blob
        self._generation = _new_of(tag)
        self._writer: Any = None

    def part_bytes(self) -> int:
        return _PART_BYTES

    def add(self, content: bytes) -> None:
        with _reasons():
            if self._writer is None:
                self._writer = self._blob.open(
                    "wb", chunk_size=_PART_BYTES, ignore_flush=True, content_type=_CONTENT,
                    if_generation_match=self._generation, **_PATIENT,
                )  # fmt: skip
            self._writer.write(content)

    def finish(self, rest: bytes) -> None:
        with _reasons():
            if self._writer is not None:
                self._writer.write(rest)
                self._writer.close()
                return
            self._blob.upload_from_string(rest, content_type=_CONTENT, if_generation_match=self._generation, **_PATIENT)

    def give_up(self) -> None:
        if self._writer is not None:
            with _reasons():
                self._writer.terminate()


def _new_of(tag: str | None) -> int | None:
    """Condition of an object that a run creates; without a run, there is none."""
    return _generation(None if tag is None else ABSENT)


def _generation(replaces: str | None) -> int | None:
    if replaces is None:
        return None
    return 0 if replaces == ABSENT else int(replaces)


@functools.lru_cache(maxsize=64)
def _client(flags: tuple[Any, ...], emulator: str | None, thread: int, process: int) -> storage.Client:
    no_auth, project, *_ = flags
    if no_auth or emulator:
        return storage.Client.create_anonymous_client()
    with _reasons():
        return storage.Client(project=project, credentials=_credentials(flags))


@functools.lru_cache(maxsize=4)
def _credentials(flags: tuple[Any, ...]) -> Any:
    """Beam's credentials, without its half minute of retries where there are none."""
    _, _, account, scopes = flags
    found, _ = google.auth.default(scopes=scopes)
    options = PipelineOptions([], impersonate_service_account=account, gcp_oauth_scopes=list(scopes))
    return impersonated(found, options)
