"""Noise key file: the 32-byte secret key that noise keys are derived from, readable by its owner only.

Pipelines carry the file's path, never its bytes. Every worker reads the key itself, so the key appears in no job graph,
pipeline option or log.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import stat
from dataclasses import dataclass

from ..mechanisms.noise.keyed_words import KEY_BYTES
from .errors import InputError, StoreConflict, system_text
from .io.filesystems import is_remote, make_folders, open_file, store_of
from .stores.object_store import ABSENT, is_store, require_conditions


@dataclass(frozen=True)
class NoiseKeyFile:
    """Reference to the secret key.

    Attributes:
      path: File of exactly 32 bytes. A local file must be readable by its owner only; who may read an object of a
        store is set there.
      group: Whether a local file may be readable by a group of this process, too, as the mounted secrets of Kubernetes
        are.
    """

    path: str
    group: bool = False

    def load(self) -> bytes:
        """Reads the key.

        Returns:
          32 bytes.

        Raises:
          InputError: If the file is missing, has another length, or is accessible to other users.
        """
        if not is_remote(self.path):
            check_secret_file("noise key file", self.path, self.group, "`noise_key_mode` group")
        try:
            with open_file(self.path) as file:
                key = file.read(KEY_BYTES + 1)
        except InputError:
            raise
        except Exception as error:
            reason = f" ({system_text(error)})" if is_store(self.path) else ""
            raise InputError(f"noise key file {self.path} cannot be read{reason}: check its path and owner") from None
        if len(key) != KEY_BYTES:
            advice = f"create one with `head -c {KEY_BYTES} /dev/urandom > FILE; chmod 600 FILE`"
            if is_store(self.path):
                advice = f"create one from `head -c {KEY_BYTES} /dev/urandom`, as docs/guides/engines.md shows"
            raise InputError(f"noise key file {self.path} does not hold exactly {KEY_BYTES} bytes: {advice}")
        return key

    def _remove_second_names(self) -> None:
        for partial in glob.glob(f"{glob.escape(self.path)}.{'[0-9a-f]' * 16}"):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samefile(partial, self.path):
                    os.unlink(partial)

    def create(self) -> bool:
        """Creates the file, mode 0600, with a fresh key from the operating system, unless it already exists.

        Two processes that start at the same time agree on one key. Second names of the key that a killed process has
        left behind are removed: the key is destroyed by deleting one file. On an object store, the key is written on
        the condition that there is no object of its name.

        Returns:
          True if the file was created, False if it existed.

        Raises:
          InputError: If an object store ignores that condition, so that a key could be overwritten.
          OSError: If it cannot be created.
        """
        if is_store(self.path):
            return self._create_object()
        make_folders(os.path.dirname(self.path) or ".", mode=0o700)
        self._remove_second_names()
        # Written completely under a temporary name first: no other process ever reads a partial key.
        partial = f"{self.path}.{secrets.token_hex(8)}"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            os.link(partial, self.path)
        except FileExistsError:
            return False
        finally:
            # Another process may have removed it as a second name of the key.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
        return True

    def _create_object(self) -> bool:
        store = store_of(self.path)
        require_conditions(store, self.path)
        try:
            store.write(self.path, secrets.token_bytes(KEY_BYTES), ABSENT)
        except StoreConflict:
            return False
        return True


def check_secret_file(kind: str, path: str, group: bool, flag: str) -> None:
    """Checks that a local file of a secret is a regular one that others than its owner cannot open.

    Args:
      kind: Name of such a file in messages.
      path: The file.
      group: Whether a group of this process may read it, too.
      flag: Flag that allows that.

    Raises:
      InputError: If the file is missing, or accessible to other users.
    """
    try:
        found = os.stat(path)
    except OSError:
        raise InputError(f"{kind} {path} does not exist: check the path") from None
    mode = found.st_mode
    if not stat.S_ISREG(mode):
        raise InputError(f"{kind} {path} is not a regular file")
    if not hasattr(os, "getegid"):
        # Windows has no modes: who may read the file is up to its folder.
        return
    # A group that can only read, and nobody else.
    for_group = mode & (stat.S_IRWXG | stat.S_IRWXO) == stat.S_IRGRP
    if group and for_group:
        if found.st_gid not in {os.getegid(), *os.getgroups()}:
            raise InputError(
                f"{kind} {path} is readable by group {found.st_gid}, which this process is not in: "
                f"run `chmod 600 {path}`, or set the group of the process (fsGroup)"
            )
    elif mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"; or, for a mounted secret, give {flag}" if for_group and not group else ""
        raise InputError(f"{kind} {path} is accessible to other users: run `chmod 600 {path}`{hint}")


def default_key_path() -> str:
    """Path of `labeldp/noise.key` in the user's configuration folder, for a user who names no key file.

    Raises InputError if the user has no such folder: HOME is not set, and the system does not know the user.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    if not os.path.isabs(home):
        raise InputError(
            "the default noise key file has no place, because neither HOME nor XDG_CONFIG_HOME names an absolute folder"
        )
    return os.path.join(home, "labeldp", "noise.key")
