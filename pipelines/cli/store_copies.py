"""Local copies of files and releases on an object store, for commands that read local files.

`audit`, `attack` and `report` take a release or a mechanism file as their argument, `solve`, `compare` and `plan` take
a prior. Files on an object store are fetched into a temporary folder first. The auditor itself reads with the standard
library only. For the check of a signature, every object of the release is read once, whether it is kept or not.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from ..errors import UsageError
from ..spec.label_folders import SIGNATURE_NAME

_URL = re.compile(r"(s3|gs)://")
_DOCUMENTS = ("release.json", "mechanism.json", "center.json")
_READ_BYTES = 1 << 20
_MOST_NAME = 200
_OF_LABEL = re.compile(r"labels/[^/.]+/(release|mechanism|center)\.json")
# A folder of one of several labels, whose shards are in the release.
_LABEL = re.compile(r"(.+)/(labels/[^/.]+(?:/release\.json)?)")
# More than is read of a document, so that the command refuses the rest itself.
_MOST_BYTES = (128 << 20) + 1
_VALIDATION = re.compile(r"validation/[a-z_]+\.(pb|pbtxt)")
# No folder is named . or .., and no file.
_LETTERS = re.compile(r"dead_letters(-\d{5}-of-\d{5})?\.jsonl")
_SHARD = re.compile(r"data/([^/=\0]+=[^/\0]*/)*(?!\.{1,2}$)[^/\0]+")


def run_with_copies(
    work: Callable[[argparse.Namespace], int | None], args: argparse.Namespace, store_flags: Sequence[str]
) -> int | None:
    """Runs a command with local copies of what it reads from object stores; returns the exit code.

    The parsed arguments have the name of the command; `store_flags` are Beam's flags for the stores.
    """
    named = [*_paths(args), getattr(args, "ledger", None), _records_of(args)]
    if not store_flags and not any(_is_url(path) for path in named):
        return work(args)
    _check_urls(named, store_flags)
    with tempfile.TemporaryDirectory(prefix="labeldp-") as folder:
        digests: dict[str, dict[str, tuple[int, str]]] = {}
        copies = _copies(args, store_flags, Path(folder), digests)
        return work(argparse.Namespace(**vars(args), copies=copies, digests=digests))


def _check_urls(named: Sequence[str | None], store_flags: Sequence[str]) -> None:
    if not any(_is_url(path) for path in named):
        raise UsageError(f"{store_flags[0]}: flags of an object store need a URL, s3:// or gs://")


def _is_url(path: str | None) -> bool:
    return path is not None and _URL.match(path) is not None


def _records_of(args: argparse.Namespace) -> str | None:
    """Files with true labels that an attack or an evaluation reads, without a copy of them."""
    return getattr(args, "truth", None) or (getattr(args, "input", None) if getattr(args, "features", True) else None)


def _paths(args: argparse.Namespace) -> list[str | None]:
    """Paths that the command reads; None for an argument that was left out."""
    if hasattr(args, "prior"):
        return [args.prior]
    return [getattr(args, "path", None)]


def _copies(
    args: argparse.Namespace, flags: Sequence[str], folder: Path, digests: dict[str, dict[str, tuple[int, str]]]
) -> dict[str, str]:
    """Fetches every URL into a folder of its own; gives the local paths by URL.

    With `--signer`, `digests` gets size and SHA-256 of every file of the release, by URL and path.
    """
    from ...transforms.errors import InputError, StoreError
    from ..spec.store_access import check_store, open_stores

    open_stores({"ledger": getattr(args, "ledger", None)}, flags)
    records = _records_of(args)
    if records is not None and _is_url(records):
        check_store("--truth" if getattr(args, "truth", None) else "--input", records, listing=True)
    flag, copies = "--prior" if hasattr(args, "prior") else "", {}
    for url in _paths(args):
        if url is None or not _is_url(url):
            continue
        check_store(flag or "the argument", url, listing=True)
        place = folder / str(len(copies))
        place.mkdir()
        try:
            release, label = _release_of(url.rstrip("/"))
            if getattr(args, "signer", None) is not None:
                digests[url] = {}
            data = getattr(args, "data", False) or records is not None
            local = fetch(release, flag, data, place, digests.get(url))
            if args.command == "report":
                _fetch_ledger(release, local)
        except StoreError as error:
            raise InputError(f"{url} cannot be read: {error.reason}") from None
        copies[url] = str(local / label)
    return copies


def _release_of(url: str) -> tuple[str, str]:
    """The release that a URL is in, and the path below it of one of several labels; else the URL itself and ""."""
    from ...transforms.io.filesystems import store_of

    of_label = _LABEL.fullmatch(url)
    if of_label is None or store_of(url).head(f"{of_label[1]}/release.json") is None:
        return url, ""
    return of_label[1], of_label[2]


def fetch(url: str, flag: str, data: bool, folder: Path, digests: dict[str, tuple[int, str]] | None = None) -> Path:
    """Fetches a file, or the documents of a release; shards whose records are not read become empty files.

    `digests`, if given, gets size and SHA-256 of every object below the release, of the bytes that are fetched.
    """
    from ...transforms.io.filesystems import store_of

    wanted = url
    url = url.rstrip("/")
    store = store_of(url)
    parent, _, name = url.rpartition("/")
    if name != "release.json" and store.head(url) is not None:
        _copy(url, folder / name)
        return folder / name
    if name == "release.json":
        url, name = parent, parent.rpartition("/")[2]
    found = {info.path[len(url) + 1 :]: info.path for info in store.list(f"{url}/")}
    if not any(name in found for name in _DOCUMENTS):
        raise UsageError(f"{f'{flag} ' if flag else ''}{wanted} does not exist: name a mechanism file, or a folder "
                         "with mechanism.json in it")  # fmt: skip
    target = folder / name
    target.mkdir()
    for path, source in found.items():
        copy, most = None, None
        if path in (*_DOCUMENTS, SIGNATURE_NAME) or _VALIDATION.fullmatch(path) or _OF_LABEL.fullmatch(path):
            copy, most = target / path, _MOST_BYTES
        elif _SHARD.fullmatch(path) or _LETTERS.fullmatch(path):
            copy, most = target / path, None if data else 0
        else:
            # The auditor refuses it by its name, which may be none of a local file.
            copy, most = target / quote(path, safe="")[:_MOST_NAME], 0
        if copy is not None:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
        if digests is not None:
            digests[path] = _copy(source, copy, most, whole=True)
        elif copy is not None and most != 0:
            _copy(source, copy, most)
    return target


def _fetch_ledger(url: str, local: Path) -> None:
    """Fetches the ledger beside a release, where the report looks for it."""
    from ...transforms.errors import StoreError
    from ...transforms.io.filesystems import store_of
    from ..ledger.ledger import default_ledger_path

    ledger = default_ledger_path(url)
    # A reader of the release need not have access to the ledger of the labels party.
    with contextlib.suppress(StoreError):
        if store_of(ledger).head(ledger) is not None:
            _copy(ledger, Path(default_ledger_path(str(local))))


def _copy(path: str, target: Path | None, most: int | None = None, whole: bool = False) -> tuple[int, str]:
    """Copies at most a number of bytes of an object, None for all; with `whole`, the rest is read as well.

    Without a target, nothing is written. Returns size and SHA-256 of what was read.
    """
    from ...transforms.io.filesystems import store_of

    digest, size = hashlib.sha256(), 0
    with store_of(path).open(path) as source, open(os.devnull if target is None else target, "wb") as file:
        while part := source.read(_READ_BYTES if whole or most is None else min(_READ_BYTES, most - size)):
            file.write(part if most is None else part[: max(most - size, 0)])
            digest.update(part)
            size += len(part)
    if target is not None:
        os.chmod(target, 0o600)
    return size, digest.hexdigest()
