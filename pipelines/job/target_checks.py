"""Checks of the places that a job writes to: output, ledger and key."""

from __future__ import annotations

import os

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, is_remote
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.progress_log import LOGGER
from ..cli.arguments import UsageError
from ..cli.local_files import check_parent
from ..release.ledger import ledger_beside


def check_target(flag: str, target: str) -> None:
    """Raises UsageError unless the target can be made where it is: it is new, or an empty folder."""
    if not target.strip():
        raise UsageError(f"{flag} is empty: name a place")
    if set(target) & set("*?[]"):
        raise UsageError(f"{flag} {target}: Beam takes *, ?, [ and ] for a pattern: name a place without them")
    if is_remote(target):
        if FileSystems.exists(target) or FileSystems.match([FileSystems.join(target, "*")], [1])[0].metadata_list:
            raise UsageError(f"{flag} {target} exists and is not empty: name another, or delete it")
        return
    folder = flag == "--output"
    empty = folder and os.path.isdir(target) and not os.path.islink(target) and not os.listdir(target)
    if os.path.lexists(target) and not empty:
        kind = "exists and is not an empty folder" if folder else "exists"
        raise UsageError(f"{flag} {target} {kind}: name another, or delete it")
    check_parent(flag, target)


def resolve_ledger(path: str | None, target: str) -> str:
    found = absolute(path) if path else ledger_beside(absolute(target))
    if not is_remote(found):
        if os.path.isdir(found):
            raise UsageError(f"--ledger {found} is a folder: name a file")
        if not is_remote(target) and _inside(found, target):
            raise UsageError(f"--ledger {found} lies inside --output, which is released: keep it elsewhere")
        if not os.path.lexists(found):
            check_parent("--ledger", found)
        elif not os.access(found, os.R_OK | os.W_OK):
            raise UsageError(f"--ledger {found} cannot be read and written: what is released is written down there")
    return found


def _made(key: NoiseKeyFile) -> bool:
    try:
        return key.create()
    except OSError as error:
        raise UsageError(
            f"--noise_key_file is missing, and {key.path} cannot be made ({error.strerror}): name a file of 32 secret "
            "bytes, mode 0600"
        ) from None


def _inside(path: str, folder: str) -> bool:
    return os.path.commonpath([path, absolute(folder)]) == absolute(folder)


def resolve_noise_key(path: str | None, target: str) -> NoiseKeyFile:
    key = NoiseKeyFile(absolute(path) if path else _default_key_path())
    if path is None and _made(key):
        LOGGER.info("made a secret noise key: %s (keep it private; the README says when to destroy it)", key.path)
    if not is_remote(key.path) and not is_remote(target) and _inside(key.path, target):
        raise UsageError(f"--noise_key_file {key.path} lies inside --output, which is released: keep it elsewhere")
    try:
        key.load()
    except InputError as error:
        raise UsageError(f"--noise_key_file: {error}") from None
    return key


def _default_key_path() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "labeldp", "noise.key")
