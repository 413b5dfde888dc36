"""Keeps the latest results of fits: a job reads a center back from the file that it has just written."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST_KEPT = 1
"""Number of results that are kept of each function."""


def keep_latest(fit: Callable[_P, _R]) -> Callable[_P, _R]:
    """Keeps the latest result of a function of numbers, texts, arrays of them, and tuples, dicts or dataclasses of all.

    The result is kept with a hash of all arguments, so it must follow from them alone, and its
    arrays are made read-only: whoever wrote to one would change the result of others.
    """
    kept: dict[bytes, _R] = {}

    @functools.wraps(fit)
    def fitted(*arguments: _P.args, **named: _P.kwargs) -> _R:
        digest = hashlib.blake2b(digest_size=32)
        _add(digest, (arguments, tuple(named.items())))
        key = digest.digest()
        # Threads may compute a result twice, but get the same.
        found = kept.pop(key, None)
        kept[key] = found = _read_only(fit(*arguments, **named)) if found is None else found
        for old in list(kept)[:-MOST_KEPT]:
            kept.pop(old, None)
        return found

    return fitted


def _read_only(result: _R) -> _R:
    """The result, whose arrays cannot be written to, nor those within its tuples, lists, dicts and dataclasses."""
    values: Iterable[Any] = ()
    if isinstance(result, np.ndarray):
        result.flags.writeable = False
    elif dataclasses.is_dataclass(result):
        values = (getattr(result, field.name) for field in dataclasses.fields(result))
    elif isinstance(result, (tuple, list, Mapping)):
        values = result.values() if isinstance(result, Mapping) else result
    for value in values:
        _read_only(value)
    return result


def _add(digest: hashlib.blake2b, value: Any) -> None:
    """Adds a value with its type and size, so that different values add different bytes."""
    if dataclasses.is_dataclass(value):
        value = (type(value).__name__, *(getattr(value, each.name) for each in dataclasses.fields(value)))
    elif isinstance(value, Mapping):
        digest.update(b"{")
        value = tuple(value.items())
    if isinstance(value, (tuple, list)) and not all(isinstance(each, (str, int, float)) for each in value):
        digest.update(f"({len(value)} ".encode())
        for each in value:
            _add(digest, each)
        return
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("the bytes of an array of objects do not say what they are")
        text, content = f"{value.dtype.str} {value.shape}", value.tobytes()
    else:
        text, content = repr(value), b""
    digest.update(f"{len(text)} {text}".encode() + content)
