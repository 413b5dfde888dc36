"""Amazon S3 and stores that speak its protocol, such as MinIO. Needs the extra `aws`.

S3 makes one object of several out of parts: ranges that it copies itself, and ranges that must be sent.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import PipelineOptions, S3Options
from boto3.session import Session
from botocore import exceptions as boto
from botocore.config import Config

from ..errors import StoreConflict, StoreError, StoreNotFound
from .object_store import ABSENT, ObjectInfo, ObjectReader, ObjectStore, Upload, split_url

_TAG = "labeldp-run"
_DELETED_AT_ONCE = 1000
# An object has at most 10,000 parts: they grow, so that one of 5 TiB can be written.
_PARTS_OF_ONE_SIZE = 500

LEAST_PART = 5 << 20
"""Bytes that every part but the last has at least."""

_LEAST_COPIED = 1 << 20
# An object has at most 10,000 parts, of 5 GiB at most. Smaller parts are copied within the timeout of a request.
_PARTS = 4_000
_MOST_COPIED = 512 << 20
_REASONS = {
    "NoSuchBucket": "no such bucket",
    "AccessDenied": "access denied: the credentials lack a permission for it (docs/guides/engines.md lists them)",
    "403": "access denied: the credentials lack a permission for it (docs/guides/engines.md lists them)",
    "AllAccessDisabled": "access denied",
    "InvalidAccessKeyId": "the credentials are not valid: the access key is unknown",
    "SignatureDoesNotMatch": "the credentials are not valid: the secret key is wrong",
    "ExpiredToken": "the credentials have expired",
    "InvalidToken": "the credentials are not valid: the session token is wrong",
    "PermanentRedirect": "the bucket is in another region: set AWS_REGION or --s3_region_name",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set AWS_REGION or --s3_region_name",
    "301": "the bucket is in another region: set AWS_REGION or --s3_region_name",
    "SlowDown": "the store asks to slow down",
    "InvalidBucketName": "this is no valid name of a bucket",
    "InvalidObjectState": "the object is archived: restore it first",
    "EntityTooLarge": "the object is larger than the store allows",
}
_CLASSES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError),
        "no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where there is a role",
    ),
    ((boto.SSOError, boto.UnauthorizedSSOTokenError), "the credentials have expired: run aws sso login"),
    ((boto.ProfileNotFound,), "the profile of AWS_PROFILE is not configured"),
    ((boto.NoRegionError,), "no region: set AWS_REGION or --s3_region_name"),
    ((boto.SSLError,), "the certificate of the endpoint is not trusted: check --s3_verify and AWS_CA_BUNDLE"),
    (
        (boto.HTTPClientError, boto.ConnectionError, boto.ReadTimeoutError),
        "the endpoint is not reachable: check the network, AWS_ENDPOINT_URL and --s3_endpoint_url",
    ),
    ((boto.ParamValidationError,), "this is no valid name of a bucket or an object"),
)  # fmt: skip
_ANSWERS = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict", "OperationAborted")
_MISSING = ("404", "NoSuchKey", "NotFound", "NoSuchUpload")


@contextlib.contextmanager
def _reasons() -> Iterator[None]:
    """Raises StoreError in place of boto's errors, whose texts may quote a request."""
    try:
        yield
    except boto.ClientError as error:
        status = str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise _failure(code, status) from None
    except boto.BotoCoreError as error:
        found = next((reason for kinds, reason in _CLASSES if isinstance(error, kinds)), None)
        raise StoreError(found or f"the client failed: {type(error).__name__}") from None


def _failure(code: str, status: str) -> StoreError:
    if code in _ANSWERS or status == "412":
        return StoreConflict("the object was changed by another run meanwhile")
    if code in _MISSING:
        return StoreNotFound("no such object")
    reason = _REASONS.get(code) or _REASONS.get(status)
    return StoreError(reason or f"the store answered with HTTP status {status or 'unknown'}")


class S3Store(ObjectStore):
    """Objects of s3:// URLs."""

    def __init__(self, options: PipelineOptions):
        """Connects when it is used; the options include Beam's `S3Options`."""
        flags = options.view_as(S3Options)
        names = (
            "s3_access_key_id", "s3_secret_access_key", "s3_session_token", "s3_endpoint_url", "s3_region_name",
            "s3_api_version", "s3_verify", "s3_disable_ssl",
        )  # fmt: skip
        self._flags = tuple(getattr(flags, name) for name in names)

    @property
    def _client(self) -> Any:
        return self._connected(patient=True)

    def _connected(self, patient: bool) -> Any:
        environment = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
        return _client(self._flags, environment, patient, os.getpid())

    def probe(self, path: str, listing: bool) -> None:
        bucket, name = split_url(path)
        with _reasons():
            client = self._connected(patient=False)
            if listing:
                client.list_objects_v2(Bucket=bucket, Prefix=name, MaxKeys=1)
                return
            try:
                # Not head_object: its answer has no body that tells a missing bucket from a missing object.
                client.get_object(Bucket=bucket, Key=name, Range="bytes=0-0")["Body"].close()
            except boto.ClientError as error:
                if error.response.get("Error", {}).get("Code") not in ("NoSuchKey", "InvalidRange"):
                    raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        bucket, name = split_url(prefix)
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=name))
        while True:
            with _reasons():
                page = next(pages, None)
            if page is None:
                return
            for item in page.get("Contents", ()):
                yield ObjectInfo(f"s3://{bucket}/{item['Key']}", item["Size"], item["ETag"])

    def _head(self, path: str) -> ObjectInfo:
        bucket, name = split_url(path)
        with _reasons():
            found = self._client.head_object(Bucket=bucket, Key=name)
        return ObjectInfo(path, found["ContentLength"], found["ETag"], found["Metadata"].get(_TAG))

    def _reader(self, info: ObjectInfo) -> ObjectReader:
        bucket, name = split_url(info.path)

        def stream(start: int) -> Any:
            with _reasons():
                found = self._client.get_object(Bucket=bucket, Key=name, Range=f"bytes={start}-", IfMatch=info.version)
            return found["Body"]

        return ObjectReader(info.size, stream, _reasons)

    def read(self, path: str) -> tuple[bytes, str] | None:
        bucket, name = split_url(path)
        try:
            with _reasons():
                found = self._client.get_object(Bucket=bucket, Key=name)
                return found["Body"].read(), found["ETag"]
        except StoreNotFound:
            return None

    def write(self, path: str, content: bytes, replaces: str | None = None) -> str:
        bucket, name = split_url(path)
        with _reasons():
            return self._client.put_object(Bucket=bucket, Key=name, Body=content, **_condition(replaces))["ETag"]

    def _upload(self, path: str, tag: str | None) -> Upload:
        return _Upload(self, path, tag)

    def join(self, sources: Sequence[tuple[str, int]], path: str, tag: str) -> None:
        parts = joined_parts(sources)
        with _uploading(self, path, tag) as upload:
            if len(parts) == 1 and not parts[0].copied:
                upload.finish(self._bytes(parts[0]))
                return
            for part in parts:
                if part.copied:
                    upload.add_copy(part.ranges[0])
                else:
                    upload.add(self._bytes(part))
            upload.finish(b"")

    def _copy(self, source: str, target: str, tag: str) -> None:
        with _uploading(self, target, tag) as upload:
            # Whoever deletes the source and then aborts the uploads finds this one, or it finds no source.
            upload.begin()
            size = self._head(source).size
            for part in copied_parts(Range(source, 0, size)):
                upload.add_copy(part)
            if not size:
                upload.add(b"")
            upload.finish(b"")

    def _bytes(self, part: Part) -> bytes:
        return b"".join(map(self._range, part.ranges))

    def _range(self, wanted: Range) -> bytes:
        bucket, name = split_url(wanted.path)
        with _reasons():
            found = self._client.get_object(Bucket=bucket, Key=name, Range=wanted.header)["Body"].read()
        if len(found) != wanted.stop - wanted.start:
            raise StoreError("the object ended early")
        return found

    def delete(self, paths: Iterable[str]) -> None:
        buckets: dict[str, list[str]] = {}
        for path in paths:
            bucket, name = split_url(path)
            buckets.setdefault(bucket, []).append(name)
        for bucket, names in buckets.items():
            for first in range(0, len(names), _DELETED_AT_ONCE):
                keys = [{"Key": name} for name in names[first : first + _DELETED_AT_ONCE]]
                with _reasons():
                    found = self._client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
                failed = [error.get("Code", "") for error in found.get("Errors", ())]
                if failed:
                    raise _failure(failed[0], "")

    def delete_version(self, path: str, version: str) -> None:
        bucket, name = split_url(path)
        with contextlib.suppress(StoreNotFound), _reasons():
            self._client.delete_object(Bucket=bucket, Key=name, IfMatch=version)

    def abort_uploads(self, prefix: str) -> None:
        bucket, name = split_url(prefix)
        with _reasons():
            for page in self._client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=name):
                for upload in page.get("Uploads", ()):
                    if not (upload["Key"] == name or name.endswith("/")):
                        continue
                    # Its writer may finish it, or give it up, at the same time.
                    with contextlib.suppress(StoreNotFound), _reasons():
                        self._client.abort_multipart_upload(
                            Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )


class _Upload:
    """An object that is written: in one request if it is small, else in parts."""

    def __init__(self, store: S3Store, path: str, tag: str | None):
        self._client = store._client
        bucket, name = split_url(path)
        self._where = {"Bucket": bucket, "Key": name}
        self._options = {} if tag is None else {"Metadata": {_TAG: tag}}
        self._condition = _condition(None if tag is None else ABSENT)
        self._id: str | None = None
        self._parts: list[dict[str, Any]] = []

    def part_bytes(self) -> int:
        return LEAST_PART << len(self._parts) // _PARTS_OF_ONE_SIZE

    def add(self, content: bytes) -> None:
        with _reasons():
            found = self._client.upload_part(**self._next_part(), Body=content)
        self._added(found["ETag"])

    def add_copy(self, source: Range) -> None:
        """Adds a part that the store copies itself."""
        bucket, name = split_url(source.path)
        with _reasons():
            found = self._client.upload_part_copy(
                **self._next_part(), CopySource={"Bucket": bucket, "Key": name}, CopySourceRange=source.header
            )
        self._added(found["CopyPartResult"]["ETag"])

    def begin(self) -> None:
        """Begins to write parts, unless it has begun."""
        if self._id is None:
            with _reasons():
                self._id = self._client.create_multipart_upload(**self._where, **self._options)["UploadId"]

    def _next_part(self) -> dict[str, Any]:
        self.begin()
        return {**self._where, "UploadId": self._id, "PartNumber": len(self._parts) + 1}

    def _added(self, etag: str) -> None:
        self._parts.append({"ETag": etag, "PartNumber": len(self._parts) + 1})

    def finish(self, rest: bytes) -> None:
        if self._id is None:
            with _reasons():
                self._client.put_object(**self._where, Body=rest, **self._options, **self._condition)
            return
        if rest:
            self.add(rest)
        with _reasons():
            self._client.complete_multipart_upload(
                **self._where, UploadId=self._id, MultipartUpload={"Parts": self._parts}, **self._condition
            )

    def give_up(self) -> None:
        if self._id is not None:
            with _reasons():
                self._client.abort_multipart_upload(**self._where, UploadId=self._id)


@contextlib.contextmanager
def _uploading(store: S3Store, path: str, tag: str) -> Iterator[_Upload]:
    """An object that a block writes, and that is given up if it raises."""
    upload = _Upload(store, path, tag)
    try:
        yield upload
    except BaseException:
        # Parts that stay are removed by a later run, or by a rule of the bucket.
        with contextlib.suppress(StoreError):
            upload.give_up()
        raise


def _condition(replaces: str | None) -> dict[str, str]:
    if replaces is None:
        return {}
    return {"IfNoneMatch": "*"} if replaces == ABSENT else {"IfMatch": replaces}


@functools.lru_cache(maxsize=16)
def _client(flags: tuple[Any, ...], environment: object, patient: bool, process: int) -> Any:
    """A client for these flags and this environment; clients may be shared by threads, but not by processes."""
    key, secret, token, endpoint, region, version, verify, no_ssl = flags
    # A probe fails within seconds; later requests survive an outage of half a minute.
    config = Config(
        connect_timeout=10 if patient else 4,
        read_timeout=60 if patient else 10,
        retries={"mode": "standard", "total_max_attempts": 6 if patient else 2},
        max_pool_connections=64,
    )
    try:
        with _reasons():
            return Session().client(
                "s3", region_name=region, api_version=version, use_ssl=not no_ssl, verify=verify, endpoint_url=endpoint,
                aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, config=config,
            )  # fmt: skip
    except ValueError:
        raise StoreError("the endpoint is not a URL: check AWS_ENDPOINT_URL and --s3_endpoint_url") from None


class Range(NamedTuple):
    """Bytes of the object at a URL, from `start` to `stop`, exclusive."""

    path: str
    start: int
    stop: int

    @property
    def header(self) -> str:
        """Value of an HTTP header that asks for them."""
        return f"bytes={self.start}-{self.stop - 1}"


class Part(NamedTuple):
    """Part of an object.

    Attributes:
      ranges: Its bytes, one range after the other.
      copied: True if the store copies the only range itself; False if the bytes are read and sent.
    """

    ranges: tuple[Range, ...]
    copied: bool


def joined_parts(sources: Sequence[tuple[str, int]]) -> list[Part]:
    """Divides the bytes of several objects, in order and each with its size in bytes, into the parts of one.

    Returns at most 10,000 parts, each but the last of 5 MiB or more; none if there are no bytes. A single part that is
    not copied may be written as a whole.

    Few bytes are sent: those of objects shorter than a part, and the first bytes of an object after such a one. An only
    object below 1 MiB is sent as well, because that takes fewer requests than parts do.
    """
    total = sum(size for _, size in sources)
    least = max(LEAST_PART, total // _PARTS)
    most = max(_MOST_COPIED, 2 * least)
    parts: list[Part] = []
    held: list[Range] = []
    missing = least
    for path, size in sources:
        start = 0
        if held and size:
            start = min(size, missing)
            held.append(Range(path, 0, start))
            missing -= start
            if not missing:
                parts.append(Part(tuple(held), copied=False))
                held, missing = [], least
        rest = size - start
        if rest >= least:
            parts += [Part((each,), copied=True) for each in copied_parts(Range(path, start, size), most)]
        elif rest:
            held.append(Range(path, start, size))
            missing -= rest
    if held:
        parts.append(Part(tuple(held), copied=len(held) == 1 and (len(parts) > 0 or total >= _LEAST_COPIED)))
    return parts


def copied_parts(whole: Range, most: int = _MOST_COPIED) -> list[Range]:
    """Divides bytes into parts of about one size that the store copies itself, of at most so many bytes."""
    size = whole.stop - whole.start
    pieces = -(-size // max(most, size // _PARTS))
    bounds = [whole.start + size * piece // max(pieces, 1) for piece in range(pieces + 1)]
    return [Range(whole.path, *bounds[at : at + 2]) for at in range(pieces)]
