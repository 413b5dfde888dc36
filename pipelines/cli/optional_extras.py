"""Libraries that not every command needs: named, with the extra that installs them, where they are missing."""

from __future__ import annotations

import importlib.util

from .arguments import UsageError


def check_extra(what: str, extra: str, *modules: str) -> None:
    """Raises UsageError, naming what needs it, when one of the extra's modules is not installed."""
    if not all(map(_importable, modules)):
        raise UsageError(f"{what} needs the extra {extra}: pip install 'labeldp[{extra}]'")


def check_tfx(what: str) -> None:
    """The same for what TFRecords need."""
    check_extra(what, "tfx", "tfx_bsl", "tensorflow_metadata", "google_crc32c")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
