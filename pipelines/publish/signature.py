"""Signature of a release, signature.json: size and SHA-256 of every other file of it, signed with Ed25519.

It is written last, before the release is charged, and holds nothing that differs between two runs with the same bytes.
`audit/signature_audit` checks it, without this code. The bytes that are signed are the line `labeldp-signature-1` and
the document without its member `signature`, as JSON with sorted keys and without spaces.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import named_file
from ...transforms.io.filesystems import delete_files, exists, is_remote, open_file, write_text
from ...transforms.progress_log import LOGGER
from ..spec.label_folders import SIGNATURE_NAME
from ..spec.signing_key import SigningKey
from .output_folder import Staging, check_files, staged_files

FORMAT = "labeldp-signature-1"
# Disks and stores serve several files in the time that one takes; local files wait for the processor alone.
_AT_ONCE = 8
_READ_BYTES = 1 << 20
_SECONDS_BETWEEN_LINES = 10.0


class FileDigest(NamedTuple):
    """Size of a file in bytes and its SHA-256 in hexadecimal digits."""

    bytes: int
    sha256: str


def sign_release(
    staging: Staging, files: Collection[str], manifests: Sequence[str], key: SigningKey | None
) -> tuple[str, ...]:
    """Checks that a staged release has its files alone, and signs it if there is a key.

    A signature that an earlier attempt to publish the release has left is removed.

    Args:
      staging: Place of its files.
      files: Names of its other files below it.
      manifests: Paths of its manifests, the one that makes it a release last.
      key: The signing key; None for a release without a signature.

    Returns:
      The manifests, with the signature before the last one.

    Raises:
      InputError: If other files are there, or one is missing.
      StageError: If a file cannot be read or written.
    """
    path = FileSystems.join(staging.release, SIGNATURE_NAME)
    if exists(path):
        delete_files([path])
    check_files(staging, files, manifests)
    if key is None:
        return tuple(manifests)
    files = staged_files(staging)
    LOGGER.info("signing: reading %d files of the release", len(files))
    write_text(path, signature_text(_digests(files), key), staging.work)
    return *manifests[:-1], SIGNATURE_NAME, *manifests[-1:]


def signature_text(files: Mapping[str, FileDigest], key: SigningKey) -> str:
    """Text of signature.json for the files of a release, by path below it."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "public_key": key.public,
        "files": {name: files[name]._asdict() for name in sorted(files)},
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    signed = {**document, "signature": key.sign(f"{FORMAT}\n{canonical}".encode())}
    return json.dumps(signed, indent=2) + "\n"


def _digests(files: Mapping[str, str]) -> dict[str, FileDigest]:
    """Reads all files once, several at a time, and logs a line every ten seconds."""
    at_once = _AT_ONCE if any(map(is_remote, files.values())) else min(_AT_ONCE, os.cpu_count() or 1)
    found, said = {}, time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        for name, digest in zip(files, pool.map(file_digest, files.values()), strict=True):
            found[name] = digest
            if time.monotonic() - said > _SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                LOGGER.info("signing: read %d of %d files", len(found), len(files))
    return found


def file_digest(path: str) -> FileDigest:
    """Reads a file in parts. Raises StageError if it cannot be read."""
    digest, size = hashlib.sha256(), 0
    with named_file("reading", path), open_file(path) as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
            size += len(part)
    return FileDigest(size, digest.hexdigest())
