"""Signing key of releases: an Ed25519 private key in a PEM file, readable by its owner only.

Only the command that publishes a release reads it. Jobs, their options and their requests do not name it.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from ...transforms.errors import InputError, system_text
from ...transforms.noise_key_file import check_secret_file

GENERATE = "openssl genpkey -algorithm ed25519 -out FILE; chmod 600 FILE"
_HEADER = "-----BEGIN {}-----"
_ENCRYPTED = ("ENCRYPTED PRIVATE KEY", "DEK-Info:")
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, repr=False)
class SigningKey:
    """A private key that was read, for one command: it is in no file, log line or text."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> str:
        """The public key in the base64 text of its DER form, the middle line of its PEM file."""
        return base64.b64encode(self._der).decode()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key in DER, in hexadecimal digits."""
        return hashlib.sha256(self._der).hexdigest()

    @property
    def _der(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, message: bytes) -> str:
        """Signs a message; the same message has one signature. Returns its 64 bytes in base64."""
        return base64.b64encode(self.private.sign(message)).decode()


@dataclass(frozen=True)
class SigningKeyFile:
    """Reference to a signing key.

    Attributes:
      path: Local PEM file with a private key of Ed25519 in PKCS8, not encrypted.
      group: Whether it may be readable by a group of this process, too.
    """

    path: str
    group: bool = False

    def load(self) -> SigningKey:
        """Reads the key.

        Raises InputError, which quotes nothing of the file, if it is missing, accessible to other users, encrypted, or
        none of Ed25519.
        """
        check_secret_file("signing key file", self.path, self.group, "`noise_key_mode` group")
        try:
            with open(self.path, "rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError as error:
            raise InputError(f"signing key file {self.path} cannot be read: {system_text(error)}") from None
        return SigningKey(self._parse(content))

    def _parse(self, content: bytes) -> Ed25519PrivateKey:
        text = content.decode("ascii", errors="replace")
        if any(mark in text for mark in _ENCRYPTED):
            raise InputError(
                f"signing key file {self.path} is encrypted: decrypt it with `openssl pkey -in {self.path} -out FILE`, "
                "to a file of mode 0600"
            )
        if _HEADER.format("PUBLIC KEY") in text:
            raise InputError(f"signing key file {self.path} holds a public key: name the file of the private key")
        if _HEADER.format("PRIVATE KEY") not in text:
            raise self._wrong("does not hold a private key in PEM and PKCS8")
        try:
            key = load_pem_private_key(content, None)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            # The library's text may quote the file.
            raise self._wrong("holds a private key that cannot be read") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise self._wrong("holds a key of another kind than Ed25519")
        return key

    def _wrong(self, problem: str) -> InputError:
        return InputError(f"signing key file {self.path} {problem}: make one with `{GENERATE}`")
