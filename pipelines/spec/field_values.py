"""Values of the fields of a request, each as one of the types of its field."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import os
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Union

from ..errors import FieldError, one_line

_KINDS = ((bool, "true or false"), (int, "a whole number"), (float, "a number"), (str, "text"))
_SECRET = ("noise_key_file", "ledger", "sign")
"""Fields that may hold a key or a password by mistake: their values are not quoted."""
CLASS_FIELDS = ("label_classes", "other_class")
"""Fields of classes, which are text, integers or booleans."""
# Beyond it, a float stands for several integers.
_LARGEST_WHOLE = 2**53
_LONGEST_QUOTE = 200


def flag_name(name: str) -> str:
    """Name of a field as a flag and in messages: `for` for `for_`, which is a keyword of Python."""
    return name.removesuffix("_")


@functools.lru_cache
def kinds_of(cls: type) -> dict[str, tuple[Any, ...]]:
    """Types that the values of each attribute can have."""
    hints, by_name = typing.get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        union = typing.get_origin(hint) in (Union, types.UnionType)
        kinds = typing.get_args(hint) if union else (hint,)
        by_name[field.name] = tuple(typing.get_origin(kind) or kind for kind in kinds if kind is not type(None))
    return by_name


def typed_value(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """The value as one of the types of its field; NumPy's numbers and paths become Python's own numbers and text."""
    if name in CLASS_FIELDS and not isinstance(value, Mapping):
        classes = _class_texts(value, kinds)
        if classes is not None:
            return classes
    elif bool in kinds and isinstance(value, bool):
        return value
    elif str in kinds:
        if name == "missing_label" and _class_text(value) is not None:
            return _class_text(value)
        if isinstance(value, str | os.PathLike):
            return os.fspath(value)
        if float in kinds and isinstance(value, numbers.Real) and not isinstance(value, bool):
            # The text of a float is the shortest decimal that it is read from.
            return str(value)
    elif isinstance(value, bool) or bool in kinds:
        pass
    elif int in kinds and isinstance(value, numbers.Integral):
        return int(value)
    elif float in kinds and isinstance(value, numbers.Real):
        return float(value)
    if Mapping in kinds and isinstance(value, Mapping):
        return value
    wanted = next(text for kind, text in _KINDS if kind in kinds)
    if Sequence in kinds:
        numeric = name == "label_values"
        if _is_sequence(value) and len(value):
            items = tuple(value)
            if all(map(_is_number if numeric else is_name, items)):
                return tuple(map(float, items)) if numeric else items
        wanted = "a file, or a list of numbers" if numeric else "text, or a list of texts"
        if name in CLASS_FIELDS:
            wanted = "a file, or a list of texts, integers or booleans"
    elif Mapping in kinds:
        wanted = "text, or a mapping"
    if bool in kinds and str in kinds:
        wanted = "true, false or a file"
    if name in _SECRET:
        raise FieldError(f"{{{name}}} must be {{wanted}}", wanted=wanted)
    raise FieldError(f"{{{flag_name(name)}}} must be {{wanted}}, not {{value}}", wanted=wanted, value=quoted(value))


def _class_texts(value: Any, kinds: tuple[Any, ...]) -> str | tuple[str, ...] | None:
    """A class or several as text: whole numbers in decimal digits, booleans as false and true; None for others."""
    if Sequence not in kinds or not _is_sequence(value):
        return os.fspath(value) if isinstance(value, os.PathLike) else _class_text(value)
    texts = tuple(map(_class_text, value))
    return None if None in texts else tuple(text for text in texts if text is not None)


def _class_text(value: Any) -> str | None:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_WHOLE:
        value = int(value)
    return str(value) if isinstance(value, str | int) else None


def _is_sequence(value: Any) -> bool:
    # Also an array or a column, of one dimension.
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        return False
    return isinstance(value, Sequence) or getattr(value, "ndim", None) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_name(value: Any) -> bool:
    """True for a text that is not empty."""
    return isinstance(value, str) and bool(value)


def quoted(value: Any) -> str:
    """A value for a message, in one line and not too long."""
    text = one_line(repr(value))
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
