"""Values of an untrusted document of a center: each function takes a value only if it has the expected form.

Otherwise it raises ValueError, which names the member and says what is wrong.
"""

from __future__ import annotations

import json
from typing import Any, cast


def read_object(document: object, keys: tuple[str, ...], title: str) -> dict[str, Any]:
    """Takes an object with exactly these keys; `title` names it in errors."""
    if not isinstance(document, dict):
        raise ValueError(f"{title} is not an object")
    missing = [key for key in keys if key not in document]
    if missing or len(document) != len(keys):
        raise ValueError(f"{title} must have the keys {', '.join(keys)}, and no others")
    return cast("dict[str, Any]", document)


def read_list(document: object, name: str, most: int) -> list[Any]:
    """Takes a list of at most so many entries."""
    if not isinstance(document, list):
        raise ValueError(f"{name} of the center is not a list")
    if len(document) > most:
        raise ValueError(f"{name} of the center has {len(document)} entries; at most {most} are allowed")
    return document


def read_wholes(document: object, name: str, size: int, least: int, most: int) -> tuple[int, ...]:
    """Takes a list of exactly so many integers within bounds."""
    found = read_list(document, name, size)
    if len(found) != size:
        raise ValueError(f"{name} of the center has {len(found)} entries instead of {size}")
    return tuple(read_whole(each, name, least, most) for each in found)


def read_whole(value: object, name: str, least: int, most: int) -> int:
    """Takes an integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} of the center must be an integer")
    if not least <= value <= most:
        raise ValueError(f"{name} of the center must be between {least} and {most}")
    return value


def read_real(value: object, name: str, least: float, most: float) -> float:
    """Takes a number within bounds, as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} of the center must be a number")
    # Compared before it is converted: an integer may be too large for a float. NaN is not between any numbers.
    if not least <= value <= most:
        raise ValueError(f"{name} of the center must be finite and between {least:g} and {most:g}")
    return float(value)


def read_text(value: object, name: str) -> str:
    """Takes text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} of the center must be text")
    return value


def check_same(document: object, written: object, name: str, source: str) -> None:
    """Takes what is exactly as it is written when it is computed again, types included."""
    # Equality comes first: a document of another depth is not written.
    if document != written or json.dumps(document, sort_keys=True) != json.dumps(written, sort_keys=True):
        raise ValueError(f"the {name} of the center do not follow from {source}: the document was changed")
