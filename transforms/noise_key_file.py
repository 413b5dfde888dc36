"""Where the secret key of all noise is kept: a file of 32 bytes that nobody else can read.

Pipelines carry the file's name, never its bytes: every worker reads the key for itself, so it appears in no job
graph, no pipeline option and no log.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass

from apache_beam.io.filesystems import FileSystems

from ..mechanisms.noise.keyed_words import KEY_BYTES
from .errors import InputError
from .io.filesystems import is_remote


@dataclass(frozen=True)
class NoiseKeyFile:
    """A reference to the secret key. path: a file of exactly 32 bytes, local ones readable by their owner alone."""

    path: str

    def load(self) -> bytes:
        """The 32 bytes. Raises InputError when the file is missing, of another length or readable by others."""
        if not is_remote(self.path):
            self._check_mode()
        try:
            with FileSystems.open(self.path, compression_type="uncompressed") as file:
                key = file.read(KEY_BYTES + 1)
        except Exception:
            raise InputError(f"noise key file {self.path} cannot be read: check the path and its owner") from None
        if len(key) != KEY_BYTES:
            raise InputError(
                f"noise key file {self.path} does not hold exactly {KEY_BYTES} bytes: "
                f"make one with `head -c {KEY_BYTES} /dev/urandom > FILE; chmod 600 FILE`"
            )
        return key

    def _check_mode(self) -> None:
        try:
            mode = os.stat(self.path).st_mode
        except OSError:
            raise InputError(f"noise key file {self.path} does not exist: check the path") from None
        if not stat.S_ISREG(mode):
            raise InputError(f"noise key file {self.path} is not a regular file")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"noise key file {self.path} can be read by others: run `chmod 600 {self.path}`")

    def create(self) -> bool:
        """Makes the file with a fresh key of the operating system, mode 0600, unless it is there already.

        Returns whether it was made. Two processes that start together agree on one key.
        """
        os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
        # Written in full under another name first: no other process ever sees half a key.
        partial = f"{self.path}.{secrets.token_hex(8)}"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            os.link(partial, self.path)
        except FileExistsError:
            return False
        finally:
            os.unlink(partial)
        return True
