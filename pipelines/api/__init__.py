"""Python interfaces: `LabelPrivatizer` and `privatize` in memory, without Beam, and `PrivatizeFiles` for pipelines."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..errors import UsageError
    from .callers import ReleaseWarning
    from .frames import ReleasedFrame, privatize
    from .label_privatizer import LabelPrivatizer, NotFittedError
    from .privatize_files import PrivatizeFiles

# Loaded when they are first used: only `PrivatizeFiles` needs Beam.
_MODULE_OF = {
    "LabelPrivatizer": ".label_privatizer",
    "NotFittedError": ".label_privatizer",
    "PrivatizeFiles": ".privatize_files",
    "ReleaseWarning": ".callers",
    "ReleasedFrame": ".frames",
    "UsageError": "..errors",
    "privatize": ".frames",
}

__all__ = [
    "LabelPrivatizer",
    "NotFittedError",
    "PrivatizeFiles",
    "ReleaseWarning",
    "ReleasedFrame",
    "UsageError",
    "privatize",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from the module that defines it (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name], __name__), name)
    return value
