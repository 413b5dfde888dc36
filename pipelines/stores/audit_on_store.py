"""`labeldp audit` of a file or release on an object store: it is fetched into a temporary folder and audited there.

The auditor itself reads local files only, with the standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..audit import audit_command
from ..cli.arguments import UsageError
from ..cli.exit_codes import run_command

_URL = re.compile(r"(s3|gs)://")
_DOCUMENTS = ("release.json", "mechanism.json", "center.json")
# More than the auditor reads of a document, so that it refuses the rest itself.
_MOST_BYTES = (128 << 20) + 1
# No folder is named . or .., and no file.
_SHARD = re.compile(r"data/([^/=\0]+=[^/\0]*/)*(?!\.{1,2}$)[^/\0]+")


def run(args: argparse.Namespace, store_flags: Sequence[str]) -> int:
    """Runs `labeldp audit`.

    Args:
      args: Parsed arguments: `path` and `data`.
      store_flags: Beam's flags for the store, if the path is a URL.

    Returns:
      The exit code.
    """
    if not _URL.match(args.path) and not store_flags:
        return audit_command.run(args)
    codes: list[int] = []
    failed = run_command("labeldp audit", lambda: codes.append(_audit(args, store_flags)), _shown())
    return failed or codes[0]


def _audit(args: argparse.Namespace, flags: Sequence[str]) -> int:
    from ...transforms.errors import InputError, StoreError

    if not _URL.match(args.path):
        raise UsageError(f"{flags[0]}: flags of an object store need a URL, s3:// or gs://")
    with tempfile.TemporaryDirectory(prefix="labeldp-audit-") as folder:
        try:
            local = _fetch(args.path, flags, args.data, Path(folder))
        except StoreError as error:
            raise InputError(f"{args.path} cannot be read: {error.reason}") from None
        return audit_command.run(argparse.Namespace(**{**vars(args), "path": str(local)}))


def _shown() -> tuple[type[Exception], ...]:
    from ...transforms.errors import InputError

    return (InputError, OSError)


def _fetch(url: str, flags: Sequence[str], data: bool, folder: Path) -> Path:
    """Fetches what the auditor needs; shards that it only counts become empty files."""
    from ...transforms.stores.object_store import store_of
    from .store_access import check_store, open_stores

    open_stores({}, flags)
    url = url.rstrip("/")
    check_store("the argument", url, listing=True)
    store = store_of(url)
    parent, _, name = url.rpartition("/")
    if name != "release.json" and store.head(url) is not None:
        _copy(url, folder / name)
        return folder / name
    if name == "release.json":
        url = parent
    found = {info.path[len(url) + 1 :]: info.path for info in store.list(f"{url}/")}
    if not any(name in found for name in _DOCUMENTS):
        raise UsageError(f"{url} does not exist: name a mechanism file, or a folder with mechanism.json in it")
    for name, path in found.items():
        if name in _DOCUMENTS:
            _copy(path, folder / name, _MOST_BYTES)
        elif _SHARD.fullmatch(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if data:
                _copy(path, folder / name)
            else:
                (folder / name).touch()
    return folder


def _copy(path: str, target: Path, most: int | None = None) -> None:
    from ...transforms.stores.object_store import store_of

    with store_of(path).open(path) as source, target.open("wb") as file:
        if most is None:
            shutil.copyfileobj(source, file, 1 << 20)
        else:
            file.write(source.read(most))
    os.chmod(target, 0o600)
