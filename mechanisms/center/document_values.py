"""Checks of a document of a center, which has its form: of sizes, and of what follows from noised numbers.

They raise ValueError, which names the member and says what is wrong.
"""

from __future__ import annotations

from typing import Any


def read_sized(values: list[Any], name: str, size: int) -> list[Any]:
    """Takes a list of exactly so many entries."""
    if len(values) != size:
        raise ValueError(f"{name} of the center has {len(values)} entries instead of {size}")
    return values


def check_same(document: object, written: object, name: str, source: str) -> None:
    """Takes what is exactly as it is written when it is computed again."""
    if document != written:
        raise ValueError(f"the {name} of the center do not follow from {source}: the document was changed")
