"""Imports TensorFlow, and what imports it, without the lines that it logs whatever its level."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any


def import_quietly(name: str) -> Any:
    """Imports a module without what Python and native libraries log meanwhile.

    Raises ImportError if it is not installed.
    """
    if name not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with warnings.catch_warnings(), _discarded_standard_error():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    return sys.modules[name]


@contextlib.contextmanager
def _discarded_standard_error() -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as sink, contextlib.redirect_stderr(sink):
            os.dup2(sink.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
