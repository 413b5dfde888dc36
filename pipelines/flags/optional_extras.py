"""Checks for optional libraries, which name the extra that installs them."""

from __future__ import annotations

import importlib.util

from ..errors import UsageError


def check_extra(purpose: str, extra: str, *modules: str) -> None:
    """Checks that the modules of an extra are installed. Raises UsageError, which names the extra, if one is not.

    `purpose` is the subject of the message: the flag or command that needs the extra.
    """
    if not all(map(_importable, modules)):
        raise UsageError(f"{purpose} needs the extra {extra}: pip install 'labeldp[{extra}]'")


def check_tfrecord(purpose: str) -> None:
    """Checks that the library for TFRecord files is installed, as `check_extra` does for the extra `tfrecord`."""
    check_extra(purpose, "tfrecord", "google_crc32c")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
