"""Checks of the paths of a job: output, ledger and noise key file. Each raises UsageError if a path cannot be used."""

from __future__ import annotations

import os

from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError, StoreError
from ...transforms.io.filesystems import absolute, exists, is_empty_folder, is_remote
from ...transforms.noise_key_file import NoiseKeyFile, default_key_path
from ...transforms.progress_log import LOGGER
from ...transforms.stores.lease import lease_path
from ...transforms.stores.object_store import is_store
from ...transforms.stores.open_store import store_of
from ..errors import UsageError
from ..flags.local_files import check_can_create
from ..flags.optional_extras import check_extra
from ..ledger.ledger import default_ledger_path, is_database
from .label_folders import MANIFEST_NAME


def check_target(flag: str, target: str) -> None:
    """Checks that an output can be created: it is new, or an empty folder.

    `--output` takes a folder, other flags a file.
    """
    if not target.strip():
        raise UsageError(f"{flag} is empty: name a path")
    _absolute(flag, target)
    if set(target) & set("*?[]"):
        raise UsageError(f"{flag} {target}: Beam reads *, ?, [ and ] as a glob; name a path without them")
    if is_store(target):
        _check_store_target(flag, target)
        return
    if is_remote(target):
        if FileSystems.exists(target) or FileSystems.match([FileSystems.join(target, "*")], [1])[0].metadata_list:
            raise UsageError(f"{flag} {target} exists and is not empty: name another, or delete it")
        return
    folder = flag == "--output"
    empty = folder and os.path.isdir(target) and not os.path.islink(target) and not os.listdir(target)
    if os.path.lexists(target) and not empty:
        kind = "exists and is not an empty folder" if folder else "exists"
        raise UsageError(f"{flag} {target} {kind}: name another, or delete it")
    check_can_create(flag, target)


def _check_store_target(flag: str, target: str) -> None:
    """Leftovers of a killed run under an output are removed when the next one begins, unless it is a release."""
    folder = flag == "--output"
    try:
        released = exists(f"{target.rstrip('/')}/{MANIFEST_NAME}" if folder else target)
        if released or (folder and not is_empty_folder(target) and not leftovers_exist(target)):
            kind = "exists and is not empty" if folder else "exists"
            raise UsageError(f"{flag} {target} {kind}: name another, or delete it")
    except StoreError as error:
        raise InputError(f"{flag} {target}: {error.reason}") from None


def resolve_ledger(path: str | None, target: str) -> str:
    """Finds the ledger and checks that it can be written. A database is checked when it is read, before the job.

    `path` is the value of `--ledger`; None for the default beside the output, in which it must not lie. The result is a
    path, absolute if it is local, or the URL of a database.
    """
    if path and is_database(path):
        return _resolve_database(path, target)
    if path and is_remote(path):
        _check_scheme(path)
    found = _absolute("--ledger", path) if path else default_ledger_path(absolute(target))
    if is_store(found):
        if _inside(found, target):
            raise UsageError(f"--ledger {found} lies inside --output, which is released: name an object outside it")
    elif is_remote(found):
        raise UsageError(
            f"--ledger {found}: this filesystem has no conditional writes, so two runs could exceed a cap; name a "
            "local file, an object on s3:// or gs://, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )
    else:
        _check_ledger_file(found, target)
    return found


def _resolve_database(text: str, target: str) -> str:
    check_extra("--ledger with the URL of a database", "ledger", "sqlalchemy")
    from ..ledger.ledger_database import parse_database_url

    try:
        url = parse_database_url(text)
    except ValueError as error:
        raise UsageError(f"--ledger: {error}") from None
    if url.drivername == "sqlite":
        _check_ledger_file(url.database or "", target)
    else:
        check_extra("--ledger with the URL of a PostgreSQL database", "ledger", "psycopg")
    if url.password is not None:
        LOGGER.warning("the password in --ledger is in the list of processes: set PGPASSWORD or ~/.pgpass instead")
    return url.render_as_string(hide_password=False)


def _check_scheme(path: str) -> None:
    try:
        FileSystems.get_filesystem(path)
    except ValueError:
        # The rest of the URL may hold a password.
        raise UsageError(
            f"--ledger: {path.partition('://')[0]}:// is neither a filesystem that Beam can use here nor a database: "
            "name a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        ) from None


def _check_ledger_file(found: str, target: str) -> None:
    if os.path.isdir(found):
        raise UsageError(f"--ledger {found} is a folder: name a file")
    if _inside(found, target):
        raise UsageError(f"--ledger {found} lies inside --output, which is released: name a path outside it")
    if not os.path.lexists(found):
        check_can_create("--ledger", found)
    elif not os.access(found, os.R_OK | os.W_OK):
        raise UsageError(f"--ledger {found} cannot be read and written; every release is charged there")


def resolve_noise_key(path: str | None, target: str, create: bool = True) -> NoiseKeyFile:
    """Finds the noise key file and checks it. Creates the user's default file if none is named and it does not exist.

    The file must not lie inside the output. Without `create`, the default file need not exist.
    """
    try:
        key = NoiseKeyFile(_absolute("--noise_key_file", path) if path else default_key_path())
    except InputError as error:
        raise UsageError(str(error)) from None
    if path is None and not create and not os.path.lexists(key.path):
        return key
    if path is None and _created(key):
        LOGGER.info("created a noise key file: %s (keep it secret; the README says when to destroy it)", key.path)
    if _inside(key.path, target):
        raise UsageError(f"--noise_key_file {key.path} lies inside --output, which is released: move it elsewhere")
    try:
        key.load()
    except InputError as error:
        raise UsageError(f"--noise_key_file: {error}") from None
    return key


def _created(key: NoiseKeyFile) -> bool:
    try:
        return key.create()
    except OSError as error:
        raise UsageError(
            f"--noise_key_file is missing, and {key.path} cannot be created ({error.strerror}): name a file of 32 "
            "secret bytes, mode 0600"
        ) from None


def _absolute(flag: str, path: str) -> str:
    try:
        return absolute(path)
    except InputError as error:
        raise UsageError(f"{flag} {error}") from None


def _inside(path: str, folder: str) -> bool:
    if is_remote(path) or is_remote(folder):
        return f"{path}/".startswith(f"{folder.rstrip('/')}/")
    return os.path.commonpath([path, absolute(folder)]) == absolute(folder)


def leftovers_exist(target: str) -> bool:
    """Tells whether a run that writes to a target on an object store is going, or was killed: its lease is there."""
    return store_of(target).head(lease_path(target)) is not None
