"""Checks of what a release is written to: output, ledger with its caps, noise key file, records that may be left out.

What cannot be used is a FieldError. Loads no Beam.
"""

from __future__ import annotations

import math
import os
from typing import NoReturn

from ...transforms.errors import InputError, StoreError
from ...transforms.io.filesystems import FileSystems, absolute, exists, is_remote, store_of
from ...transforms.noise_key_file import NoiseKeyFile, default_key_path
from ...transforms.progress_log import LOGGER
from ...transforms.stores.claim import Output, claimed_error, in_staging
from ...transforms.stores.object_store import is_store
from ..errors import FieldError, as_flag, field_errors
from ..ledger.ledger import default_ledger_path, is_database
from ..ledger.spent_budget import Caps, Window
from .label_folders import MANIFEST_NAME
from .machine import check_can_create, check_extra
from .signing_key import SigningKeyFile


def check_target(field: str, target: str, may_exist: bool = False) -> None:
    """Checks that an output can be created: it is new, or an empty folder, unless it may be a release or become one.

    The field `output` takes a folder, others a file.
    """

    def refuse(problem: str, **values: str) -> NoReturn:
        raise FieldError(f"{{{field}}} {{target}}{problem}", target=target, **values)

    if not target.strip():
        raise FieldError(f"{{{field}}} is empty: name a path")
    path_of(field, target)
    if set(target) & set("*?[]"):
        refuse(": Beam reads *, ?, [ and ] as a glob; name a path without them")
    folder = field == "output"
    released_file = f"{target.rstrip('/')}/{MANIFEST_NAME}" if folder else target
    other_store = is_remote(target) and not is_store(target)
    if may_exist and (FileSystems.exists if other_store else exists)(released_file):
        return
    if is_store(target):
        if in_staging(target):
            refuse(" lies in a folder of releases that are not published yet: name a path outside it")
        try:
            output = Output(store_of(target), target.rstrip("/"))
            claim = None if exists(released_file) else output.claim()
            if claim is not None and claim[0] == "claimed":
                if may_exist:
                    return
                raise claimed_error(target)
            if not output.is_empty():
                refuse(f" {'exists and is not empty' if folder else 'exists'}: name another, or delete it")
        except StoreError as error:
            raise InputError(f"{as_flag(field)} {target}: {error.reason}") from None
    elif is_remote(target):
        if FileSystems.exists(target) or FileSystems.match([FileSystems.join(target, "*")], [1])[0].metadata_list:
            refuse(" exists and is not empty: name another, or delete it")
    else:
        empty = folder and os.path.isdir(target) and not os.path.islink(target) and not os.listdir(target)
        if os.path.lexists(target) and not empty:
            refuse(f" {'exists and is not an empty folder' if folder else 'exists'}: name another, or delete it")
        check_can_create(field, target)


def resolve_ledger(path: str | None, target: str) -> str:
    """Finds the ledger and checks that it can be written. A database is checked when it is read, before the job.

    `path` is the value of `--ledger`; None for the default beside the output, in which it must not lie. The result is a
    path, absolute if it is local, or the URL of a database.
    """
    if path and is_database(path):
        return _resolve_database(path, target)
    if path and is_remote(path):
        check_scheme(path)
    ledger = path_of("ledger", path) if path else default_ledger_path(absolute(target))
    if is_store(ledger):
        if _inside(ledger, target):
            raise FieldError(
                "{ledger} {path} lies inside {output}, which is released: name an object outside it", path=ledger
            )
    elif is_remote(ledger):
        raise FieldError(
            "{ledger} {path}: this filesystem has no conditional writes, so two runs could exceed a cap; name a local "
            "file, an object on s3:// or gs://, sqlite:///FILE or postgresql://USER@HOST/DATABASE",
            path=ledger,
        )
    else:
        _check_ledger_file(ledger, target)
    return ledger


def _resolve_database(text: str, target: str) -> str:
    check_extra("--ledger with the URL of a database", "ledger", "sqlalchemy")
    from ..ledger.ledger_database import parse_database_url

    with field_errors("{ledger}: {problem}"):
        url = parse_database_url(text)
    if url.drivername == "sqlite":
        _check_ledger_file(url.database or "", target)
    else:
        check_extra("--ledger with the URL of a PostgreSQL database", "ledger", "psycopg")
    if url.password is not None:
        LOGGER.warning("the password in --ledger is in the list of processes: set PGPASSWORD or ~/.pgpass instead")
    return url.render_as_string(hide_password=False)


def check_scheme(path: str) -> None:
    """Checks that Beam knows the filesystem of a URL that names a ledger."""
    try:
        FileSystems.get_filesystem(path)
    except ValueError:
        # The rest of the URL may hold a password.
        raise FieldError(
            "{ledger}: {scheme}:// is neither a filesystem that Beam can use here nor a database: name a file, "
            "sqlite:///FILE or postgresql://USER@HOST/DATABASE",
            scheme=path.partition("://")[0],
        ) from None


def _check_ledger_file(path: str, target: str) -> None:
    if os.path.isdir(path):
        raise FieldError("{ledger} {path} is a folder: name a file", path=path)
    if _inside(path, target):
        raise FieldError("{ledger} {path} lies inside {output}, which is released: name a path outside it", path=path)
    if not os.path.lexists(path):
        check_can_create("ledger", path)
    elif not os.access(path, os.R_OK | os.W_OK):
        raise FieldError("{ledger} {path} cannot be read and written; every release is charged there", path=path)


def find_noise_key(
    path: str | None, target: str, create_named: bool = True, mode: str | None = None
) -> tuple[NoiseKeyFile, bool]:
    """Finds the noise key file and checks it; tells whether it is to be created: the default, or in a folder.

    The file must not lie inside the output. `create_named` is False where a new key would be wrong. `mode` is that of
    `KEY_MODES`: a group's file is mounted, and never created.
    """
    key = noise_key_file(path, mode)
    if _inside(key.path, target):
        raise FieldError(
            "{noise_key_file} {path} lies inside {output}, which is released: move it elsewhere", path=key.path
        )
    may_create = path is None or (create_named and not key.group and os.path.isdir(os.path.dirname(key.path)))
    if may_create and not is_remote(key.path) and not os.path.lexists(key.path):
        if path is not None:
            check_can_create("noise_key_file", key.path)
        return key, True
    with field_errors("{noise_key_file}: {problem}", InputError):
        key.load()
    return key, False


def resolve_noise_key(
    path: str | None, target: str, create_named: bool = True, mode: str | None = None
) -> NoiseKeyFile:
    """Finds the noise key file as `find_noise_key` does, and creates it if it is to be created."""
    key, missing = find_noise_key(path, target, create_named, mode)
    if missing:
        create_key(key)
    return key


def noise_key_file(path: str | None, mode: str | None = None) -> NoiseKeyFile:
    """The noise key file that is named, or the user's default file; `mode` is that of `KEY_MODES`."""
    if path is not None:
        return NoiseKeyFile(path_of("noise_key_file", path), mode == "group")
    if mode == "group":
        raise FieldError("{noise_key_mode} group needs {noise_key_file}: the default file is its owner's")
    with field_errors("{problem}: name the file of the secret key with {noise_key_file}", InputError):
        return NoiseKeyFile(default_key_path())


def resolve_signing_key(path: str | None, target: str, mode: str | None = None) -> SigningKeyFile | None:
    """Finds the file of the signing key, and checks that it holds one; None if none is named.

    The file must be local and not inside the output. `mode` is that of `KEY_MODES`.
    """
    if path is None:
        return None
    if not path.strip():
        raise FieldError("{sign} is empty: name the file of an Ed25519 private key")
    key = SigningKeyFile(path_of("sign", path), mode == "group")
    if is_remote(key.path):
        raise FieldError("{sign} {path}: the key is read by this command alone; name a local file", path=key.path)
    if not is_remote(target) and _inside(key.path, target):
        raise FieldError("{sign} {path} lies inside {output}, which is released: move it elsewhere", path=key.path)
    with field_errors("{sign}: {problem}", InputError):
        key.load()
    return key


def create_key(key: NoiseKeyFile) -> None:
    """Creates a noise key file, unless it exists."""
    try:
        created = key.create()
    except OSError as error:
        raise FieldError(
            "{noise_key_file} {path} does not exist, and cannot be created ({reason}): name a file of 32 secret "
            "bytes, mode 0600",
            path=key.path,
            reason=error.strerror,
        ) from None
    if created:
        LOGGER.info("created a noise key file: %s (keep it secret; docs/choosing.md says when to destroy it)", key.path)


def path_of(field: str, path: str) -> str:
    """The absolute path of a local file or folder, or the URL."""
    with field_errors(f"{{{field}}} {{problem}}", InputError):
        return absolute(path)


def _inside(path: str, folder: str) -> bool:
    if is_remote(path) or is_remote(folder):
        return f"{path}/".startswith(f"{folder.rstrip('/')}/")
    return os.path.commonpath([path, absolute(folder)]) == absolute(folder)


def read_caps(epsilon: float | None, delta: float | None, text: str | None) -> Caps:
    """The caps on what the ledger adds up to, `epsilon_cap`, `delta_cap` and `cap_window`; a window needs one."""
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise FieldError("{epsilon_cap} must be above 0 and finite, not {value:g}", value=epsilon)
    if delta is not None and not 0 <= delta < 1:
        raise FieldError("{delta_cap} must be at least 0 and below 1, not {value:g}", value=delta)
    window = None
    if text is not None:
        if epsilon is None and delta is None:
            raise FieldError("{cap_window} is the time in which a cap holds: give {epsilon_cap} or {delta_cap}")
        with field_errors("{cap_window} {problem}"):
            window = Window.parse(text)
    # A user who caps epsilon alone expects pure DP.
    return Caps(epsilon, 0.0 if delta is None and epsilon is not None else delta, window)


def read_unusable_fraction(fraction: float) -> float:
    """Checks the tolerated fraction of records without a usable label, from 0 to 1."""
    if not 0 <= fraction <= 1:
        raise FieldError("{max_unusable_fraction} must be between 0 and 1, not {value:g}", value=fraction)
    return fraction
