"""Checks of what a release is written to: output, ledger with its caps, noise key file, records that may be left out.

What cannot be used is a FieldError. Loads no Beam.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple, NoReturn

from ...transforms.errors import InputError, StoreError
from ...transforms.io.filesystems import FileSystems, absolute, exists, is_empty_folder, is_remote, store_of
from ...transforms.noise_key_file import NoiseKeyFile, default_key_path
from ...transforms.progress_log import LOGGER
from ...transforms.stores.lease import lease_path
from ...transforms.stores.object_store import is_store
from ..errors import Fact, FieldError, as_flag, field_errors
from ..ledger.ledger import default_ledger_path, is_database
from ..ledger.spent_budget import Caps, Window
from .label_folders import MANIFEST_NAME
from .machine import check_can_create, check_extra, unwritable_above
from .signing_key import SigningKeyFile


class PathState(NamedTuple):
    """State of a path that is to be written.

    Attributes:
      exists: Whether something is there that would be replaced. Of a folder, an empty one is not; nor, on an object
        store, what a killed run has left: it is removed when the next one begins.
      released: Whether a release is there; for a file, the file.
      unwritable: Path above it that is no writable folder; None if it can be created.
      is_folder: Whether it is a local folder.
      usable: Whether what is there can be read and written.
    """

    exists: bool
    released: bool = False
    unwritable: str | None = None
    is_folder: bool = False
    usable: bool = True


def look_at_target(field: str, target: str) -> Fact[PathState]:
    """Looks at the path of an output: for the field `output` a folder, for others a file."""
    return Fact.of(lambda: _target_state(field, target))


def _target_state(field: str, target: str) -> PathState:
    folder = field == "output"
    manifest = f"{target.rstrip('/')}/{MANIFEST_NAME}" if folder else target
    if is_store(target):
        try:
            released = exists(manifest)
            empty = folder and not released and (is_empty_folder(target) or leftovers_exist(target))
        except StoreError as error:
            raise InputError(f"{as_flag(field)} {target}: {error.reason}") from None
        return PathState(released or (folder and not empty), released)
    if is_remote(target):
        inside = FileSystems.match([FileSystems.join(target, "*")], [1])[0].metadata_list
        return PathState(FileSystems.exists(target) or bool(inside), FileSystems.exists(manifest))
    empty = folder and os.path.isdir(target) and not os.path.islink(target) and not os.listdir(target)
    taken = os.path.lexists(target) and not empty
    return PathState(taken, os.path.exists(manifest), None if taken else unwritable_above(target))


def look_at_file(path: str) -> PathState:
    """Looks at the path of a local file that is to be written, or added to."""
    usable = os.access(path, os.R_OK | os.W_OK)
    return PathState(os.path.lexists(path), False, unwritable_above(path), os.path.isdir(path), usable)


def check_target(field: str, target: str, state: Fact[PathState], may_exist: bool = False) -> None:
    """Checks that an output can be created: it is new, or an empty folder, unless it may be a release.

    The field `output` takes a folder, others a file; `state` is what `look_at_target` gives of it.
    """

    def refuse(problem: str, **values: str) -> NoReturn:
        raise FieldError(f"{{{field}}} {{target}}{problem}", target=target, **values)

    if not target.strip():
        raise FieldError(f"{{{field}}} is empty: name a path")
    path_of(field, target)
    if set(target) & set("*?[]"):
        refuse(": Beam reads *, ?, [ and ] as a glob; name a path without them")
    found = state.get()
    if may_exist and found.released:
        return
    if found.exists:
        kept = " and is not empty" if is_remote(target) else " and is not an empty folder"
        refuse(f" exists{kept if field == 'output' else ''}: name another, or delete it")
    check_can_create(field, target, found.unwritable)


class LedgerState(NamedTuple):
    """Ledger of a request: its path, absolute if it is local, or the URL of its database.

    Of a local file, also that of SQLite, `file` and `state` are its path and what is there.
    """

    place: str
    file: str | None = None
    state: PathState | None = None
    has_password: bool = False


def look_at_ledger(path: str | None, target: str) -> Fact[LedgerState]:
    """Looks at the ledger. `path` is the value of `--ledger`; None for the default beside the output.

    A database is looked at when it is read, before the job.
    """
    return Fact.of(lambda: _ledger_state(path, target))


def _ledger_state(path: str | None, target: str) -> LedgerState:
    if path and is_database(path):
        check_extra("--ledger with the URL of a database", "ledger", "sqlalchemy")
        from ..ledger.ledger_database import parse_database_url

        with field_errors("{ledger}: {problem}"):
            url = parse_database_url(path)
        text, file = url.render_as_string(hide_password=False), url.database or ""
        if url.drivername == "sqlite":
            return LedgerState(text, file, look_at_file(file))
        check_extra("--ledger with the URL of a PostgreSQL database", "ledger", "psycopg")
        return LedgerState(text, has_password=url.password is not None)
    if path and is_remote(path):
        check_scheme(path)
    ledger = path_of("ledger", path) if path else default_ledger_path(absolute(target))
    return LedgerState(ledger) if is_remote(ledger) else LedgerState(ledger, ledger, look_at_file(ledger))


def check_ledger(ledger: LedgerState, target: str) -> str:
    """Checks that a ledger can be written and does not lie inside the output; returns its path or URL."""
    path, state = ledger.file or ledger.place, ledger.state
    if state is not None and state.is_folder:
        raise FieldError("{ledger} {path} is a folder: name a file", path=path)
    if (state is not None or is_store(path)) and _inside(path, target):
        kind = "path" if state is not None else "object"
        raise FieldError(
            f"{{ledger}} {{path}} lies inside {{output}}, which is released: name {'a' if state else 'an'} {kind} "
            "outside it",
            path=path,
        )
    if state is None and is_remote(path) and not is_store(path) and not is_database(path):
        raise FieldError(
            "{ledger} {path}: this filesystem has no conditional writes, so two runs could exceed a cap; name a local "
            "file, an object on s3:// or gs://, sqlite:///FILE or postgresql://USER@HOST/DATABASE",
            path=path,
        )
    if state is not None and not state.exists:
        check_can_create("ledger", path, state.unwritable)
    elif state is not None and not state.usable:
        raise FieldError("{ledger} {path} cannot be read and written; every release is charged there", path=path)
    if ledger.has_password:
        LOGGER.warning("the password in --ledger is in the list of processes: set PGPASSWORD or ~/.pgpass instead")
    return ledger.place


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


class KeyState(NamedTuple):
    """Noise key file of a request; of its bytes, only whether they could be read.

    Attributes:
      key: The file.
      named: Whether the user named it, instead of the default.
      in_folder: Whether it is local and missing, in a folder that exists.
      state: What is there; None if it is remote.
      loaded: Raises InputError if it holds no key.
    """

    key: NoiseKeyFile
    named: bool
    in_folder: bool
    state: PathState | None
    loaded: Fact[None]


def look_at_noise_key(path: str | None, mode: str | None = None) -> Fact[KeyState]:
    """Looks at the noise key file: `path`, or the default for None. `mode` is that of `KEY_MODES`."""

    def state() -> KeyState:
        key = noise_key_file(path, mode)
        at = None if is_remote(key.path) else look_at_file(key.path)
        return KeyState(key, path is not None, os.path.isdir(os.path.dirname(key.path)), at, _loaded(key))

    return Fact.of(state)


def _loaded(key: NoiseKeyFile | SigningKeyFile) -> Fact[None]:
    def load() -> None:
        key.load()

    return Fact.of(load)


def resolve_noise_key(found: KeyState, target: str, create: bool = True, create_named: bool = True) -> NoiseKeyFile:
    """Checks the noise key file. Creates one that does not exist: the default, or in a local folder.

    The file must not lie inside the output. Without `create`, it need not exist; `create_named` is False where a new
    key would be wrong. A group's file is mounted, and never created.
    """
    key, state = found.key, found.state
    if _inside(key.path, target):
        raise FieldError(
            "{noise_key_file} {path} lies inside {output}, which is released: move it elsewhere", path=key.path
        )
    may_create = not found.named or (create_named and not key.group and found.in_folder)
    if may_create and state is not None and not state.exists:
        if found.named:
            check_can_create("noise_key_file", key.path, state.unwritable)
        if create:
            create_key(key)
        return key
    with field_errors("{noise_key_file}: {problem}", InputError):
        found.loaded.get()
    return key


def noise_key_file(path: str | None, mode: str | None = None) -> NoiseKeyFile:
    """The noise key file that is named, or the user's default file; `mode` is that of `KEY_MODES`."""
    if path is not None:
        return NoiseKeyFile(path_of("noise_key_file", path), mode == "group")
    if mode == "group":
        raise FieldError("{noise_key_mode} group needs {noise_key_file}: the default file is its owner's")
    with field_errors("{problem}: name the file of the secret key with {noise_key_file}", InputError):
        return NoiseKeyFile(default_key_path())


class SigningKeyState(NamedTuple):
    """File of the signing key of a request; `loaded` raises InputError if it holds none."""

    key: SigningKeyFile
    loaded: Fact[None]


def look_at_signing_key(path: str | None, mode: str | None = None) -> Fact[SigningKeyState | None]:
    """Looks at the file of the signing key; None if none is named. `mode` is that of `KEY_MODES`."""

    def state() -> SigningKeyState | None:
        if path is None:
            return None
        if not path.strip():
            raise FieldError("{sign} is empty: name the file of an Ed25519 private key")
        key = SigningKeyFile(path_of("sign", path), mode == "group")
        return SigningKeyState(key, _loaded(key))

    return Fact.of(state)


def check_signing_key(found: SigningKeyState | None, target: str) -> SigningKeyFile | None:
    """Checks the file of the signing key, if there is one: it must be local, and not inside the output."""
    if found is None:
        return None
    key = found.key
    if is_remote(key.path):
        raise FieldError("{sign} {path}: the key is read by this command alone; name a local file", path=key.path)
    if not is_remote(target) and _inside(key.path, target):
        raise FieldError("{sign} {path} lies inside {output}, which is released: move it elsewhere", path=key.path)
    with field_errors("{sign}: {problem}", InputError):
        found.loaded.get()
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


def leftovers_exist(target: str) -> bool:
    """Tells whether a run that writes to a target on an object store is going, or was killed: its lease is there."""
    return store_of(target).head(lease_path(target)) is not None


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
