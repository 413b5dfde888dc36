"""Access to object stores, checked before any work: URLs, libraries, credentials, names and permissions.

Functions raise UsageError if a URL is malformed or holds credentials, or its library is not installed, and InputError
if a store does not answer, or refuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from ...transforms.errors import InputError, StoreError
from ...transforms.io.filesystems import store_of
from ...transforms.progress_log import LOGGER
from ...transforms.stores.object_store import EXTRAS, check_url, is_store
from ..errors import UsageError
from .machine import check_extra

_LIBRARIES = {"s3": "boto3", "gs": "google.cloud.storage"}
_LISTED = ("input", "output")
_PATHS = (
    "input",
    "output",
    "domain_file",
    "mechanism_file",
    "validate",
    "label_values",
    "label_classes",
    "noise_key_file",
    "ledger",
)
_SECRETS = ("s3_secret_access_key", "s3_session_token")


def open_stores(args: Mapping[str, Any], flags: Sequence[str]) -> None:
    """Gives Beam's filesystems the flags of the runner, and asks each store that a flag names once.

    `args` are the values of the command's flags by name; those that are no paths are passed over.
    """
    options = PipelineOptions(list(flags))
    _check_endpoint(options.view_as(S3Options))
    # A pipeline does this as well, but the flags are checked, and files are read, before there is one.
    FileSystems.set_options(options)
    for name in _PATHS:
        path = args.get(name)
        if name == "input" and isinstance(path, str):
            # A Delta table may lie on a store.
            path = re.sub(r"^delta://(.*?)(@[0-9]*)?$", r"\1", path)
        if isinstance(path, str) and is_store(path):
            check_store(f"--{name}", path, listing=name in _LISTED)


def check_store(flag: str, path: str, listing: bool) -> None:
    """Checks the URL of an object, or a pattern, that a flag or argument names, and asks its store once.

    With `listing`, objects below it are listed.
    """
    try:
        check_url(path)
    except ValueError as error:
        text = str(error)
        # The URL may hold a password.
        raise UsageError(f"{flag}: {text}" if text.startswith("a ") else f"{flag} {path} {text}") from None
    scheme = path.partition(":")[0]
    check_extra(f"{flag} {scheme}://", EXTRAS[scheme], _LIBRARIES[scheme])
    literal = re.match(r"[^*?\[]*", path)
    try:
        store_of(path).probe(literal[0] if listing and literal else path, listing)
    except StoreError as error:
        raise InputError(f"{flag} {path}: {error.reason}") from None


def _check_endpoint(options: S3Options) -> None:
    endpoint = options.s3_endpoint_url
    if endpoint is not None:
        try:
            parts = urlsplit(endpoint)
            named = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            parts, named = None, False
        if parts is not None and parts.username is not None:
            raise UsageError("--s3_endpoint_url takes no credentials: give them in the environment")
        if not named:
            raise UsageError("--s3_endpoint_url must be of the form https://HOST or http://HOST:PORT")
    if any(getattr(options, name) is not None for name in _SECRETS):
        LOGGER.warning(
            "the secret in --%s is in the list of processes, and a cluster may show it: set AWS_SECRET_ACCESS_KEY or "
            "AWS_PROFILE instead", next(name for name in _SECRETS if getattr(options, name) is not None)
        )  # fmt: skip
