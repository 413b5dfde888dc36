"""Check of a signed release: signature.json is by the signer, and all other files have the bytes that were signed.

signature.json has the format, the signer's public key in DER and base64, size and SHA-256 of every other file of the
release by its path, and an Ed25519 signature in base64. Signed are the line `labeldp-signature-1` and the document
without its signature, as JSON with sorted keys and without spaces. Only one text of a document is accepted.

The functions that read signature.json raise RefusedDocument. The library `cryptography` is loaded for a check alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .document_members import check_form, written_problems
from .documents import RefusedDocument, load_document, printable

SIGNATURE_NAME = "signature.json"
_FORMAT = "labeldp-signature-1"
_FINGERPRINT = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
_DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""First bytes of every Ed25519 public key in DER; 32 follow (RFC 8410)."""
_MOST_PEM_BYTES = 1 << 16
_READ_BYTES = 1 << 20

Digest = tuple[int, str]
"""Size of a file in bytes and its SHA-256 in hexadecimal digits."""
_NO_BYTES = 0, ""
"""Of what is no readable file: no signed digest is equal to it."""


class NoPublicKey(Exception):
    """The text that names a signer is neither a public key nor a fingerprint. The message says what to do."""


@dataclass(frozen=True)
class Signer:
    """Key by which a release is to be signed.

    Attributes:
      fingerprint: SHA-256 of the public key in DER, in hexadecimal digits.
    """

    fingerprint: str

    @classmethod
    def read(cls, text: str) -> Signer:
        """Takes a fingerprint, or reads the PEM file of a public key.

        Raises NoPublicKey if the file is missing, or holds anything else.
        """
        fingerprint = _FINGERPRINT.fullmatch(text)
        if fingerprint is not None:
            return cls(fingerprint[1].lower())
        return cls(hashlib.sha256(_public_key_of(text)).hexdigest())


def _public_key_of(path: str) -> bytes:
    """The public key of a PEM file in DER."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_PEM_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise NoPublicKey(
            f"{path!a} cannot be read ({reason}): name the PEM file of a public key, or its fingerprint of 64 "
            "hexadecimal digits"
        ) from None
    if b"PRIVATE KEY-----" in content:
        raise NoPublicKey(
            f"{path!a} holds a private key: give the public one, of `openssl pkey -in KEY -pubout -out FILE`"
        )
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise NoPublicKey(f"{path!a} holds no public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise NoPublicKey(f"{path!a} holds a key of another kind than Ed25519")
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def signature_report(
    folder: Path, signer: Signer, files: Mapping[str, Digest] | None = None, read: Callable[[str], None] | None = None
) -> tuple[tuple[str, ...], str]:
    """Checks the signature of a release, and every file of it.

    Args:
      folder: The release.
      signer: Key by which it is to be signed.
      files: Sizes and digests of all its files by path; None to read those of the folder.
      read: Called with the path of each file that was read.

    Returns:
      One line for each check that fails, and a line on the signature for the report, empty if one fails.
    """
    if not (folder / SIGNATURE_NAME).exists():
        return (f"{SIGNATURE_NAME} is missing: the release is not signed",), ""
    try:
        document = _read(folder / SIGNATURE_NAME)
        signed = {name: (entry["bytes"], entry["sha256"]) for name, entry in document["files"].items()}
        problems = [*_key_problems(document, signer)]
    except RefusedDocument as refused:
        return (str(refused),), ""
    if files is None:
        actual, others = _read_files(folder, read)
        problems += others
    else:
        actual = {name: digest for name, digest in files.items() if name != SIGNATURE_NAME}
    problems += _file_problems(signed, actual)
    size = sum(size for size, _ in signed.values())
    line = f"signature    by sha256:{signer.fingerprint}: {len(signed)} files, {size:,} bytes, as they were signed"
    return tuple(problems), "" if problems else line


def _read(path: Path) -> dict[str, Any]:
    """Reads signature.json. Its text must be the one that its members have."""
    document = load_document(path)
    check_form(document, "signature", SIGNATURE_NAME)
    # Otherwise a byte of it could change that no signature covers, such as a space.
    if problems := list(written_problems(path, document, "signature", 2)):
        raise RefusedDocument(*problems)
    files = document["files"]
    if list(files) != sorted(files) or not files:
        raise RefusedDocument(f"{SIGNATURE_NAME} does not list files in the order of their paths")
    return document


def _key_problems(document: Mapping[str, Any], signer: Signer) -> Iterator[str]:
    """Checks that the signature is by the signer, and of this document."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key, signature = (_base64(document, name) for name in ("public_key", "signature"))
    if not key.startswith(_DER_PREFIX):
        raise RefusedDocument(f"{SIGNATURE_NAME}: public_key is not one of Ed25519")
    fingerprint = hashlib.sha256(key).hexdigest()
    if fingerprint != signer.fingerprint:
        yield (
            f"{SIGNATURE_NAME} is by another key, sha256:{fingerprint}, than that of --signer, "
            f"sha256:{signer.fingerprint}"
        )
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    message = f"{_FORMAT}\n{json.dumps(unsigned, sort_keys=True, separators=(',', ':'))}".encode()
    try:
        Ed25519PublicKey.from_public_bytes(key[len(_DER_PREFIX) :]).verify(signature, message)
    except (InvalidSignature, ValueError):
        yield f"{SIGNATURE_NAME}: the signature is not one of this document by its key"


def _base64(document: Mapping[str, Any], name: str) -> bytes:
    content = base64.b64decode(document[name])
    # Other texts stand for the same bytes.
    if base64.b64encode(content).decode() != document[name]:
        raise RefusedDocument(f"{SIGNATURE_NAME}: {name} is not in base64")
    return content


def _file_problems(signed: Mapping[str, Digest], actual: Mapping[str, Digest]) -> Iterator[str]:
    for name in sorted(signed.keys() | actual.keys()):
        if name not in actual:
            yield f"{printable(name)} was signed, but is missing"
        elif name not in signed:
            yield f"{printable(name)} was not signed: it was added"
        elif signed[name] != actual[name]:
            yield f"{printable(name)} is not as it was signed"


def _read_files(folder: Path, read: Callable[[str], None] | None) -> tuple[dict[str, Digest], list[str]]:
    """Digests of all files below a folder but signature.json, and lines on what is no file. Raises OSError."""
    actual: dict[str, Digest] = {}
    problems: list[str] = []
    for name in _names(folder):
        path = folder / name
        if name.endswith("/"):
            problems.append(f"{printable(name)} is an empty folder: it was added, or its files are missing")
        elif not stat.S_ISREG(path.lstat().st_mode):
            problems.append(f"{printable(name)} is not a regular file")
            actual[name] = _NO_BYTES
        elif name != SIGNATURE_NAME:
            try:
                actual[name] = _digest(path)
            except OSError as error:
                problems.append(f"{printable(name)} cannot be read: {error.strerror}")
                actual[name] = _NO_BYTES
            if read is not None:
                read(name)
    return actual, problems


def _names(folder: Path) -> Iterator[str]:
    """Paths of all files below a folder, hidden ones too; of empty folders, with a slash at the end."""

    def fail(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=fail):
        below = "" if root == str(folder) else f"{Path(root).relative_to(folder).as_posix()}/"
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        yield from (below + name for name in sorted([*names, *links]))
        if below and not names and not folders:
            yield below


def _digest(path: Path) -> Digest:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()
