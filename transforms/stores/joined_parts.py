"""Parts from which S3 makes one object of several: ranges that it copies itself, and ranges that must be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEAST_PART = 5 << 20
"""Bytes that every part but the last has at least."""

_LEAST_COPIED = 1 << 20
# An object has at most 10,000 parts, of 5 GiB at most. Smaller parts are copied within the timeout of a request.
_PARTS = 4_000
_MOST_COPIED = 512 << 20


class Range(NamedTuple):
    """Bytes of the object at a URL, from `start` to `stop`, exclusive."""

    path: str
    start: int
    stop: int

    @property
    def header(self) -> str:
        """Value of an HTTP header that asks for them."""
        return f"bytes={self.start}-{self.stop - 1}"


class Part(NamedTuple):
    """Part of an object.

    Attributes:
      ranges: Its bytes, one range after the other.
      copied: True if the store copies the only range itself; False if the bytes are read and sent.
    """

    ranges: tuple[Range, ...]
    copied: bool


def joined_parts(sources: Sequence[tuple[str, int]]) -> list[Part]:
    """Divides the bytes of several objects, in order and each with its size in bytes, into the parts of one.

    Returns at most 10,000 parts, each but the last of 5 MiB or more; none if there are no bytes. A single part that is
    not copied may be written as a whole.

    Few bytes are sent: those of objects shorter than a part, and the first bytes of an object after such a one. An only
    object below 1 MiB is sent as well, because that takes fewer requests than parts do.
    """
    total = sum(size for _, size in sources)
    least = max(LEAST_PART, total // _PARTS)
    most = max(_MOST_COPIED, 2 * least)
    parts: list[Part] = []
    held: list[Range] = []
    missing = least
    for path, size in sources:
        start = 0
        if held and size:
            start = min(size, missing)
            held.append(Range(path, 0, start))
            missing -= start
            if not missing:
                parts.append(Part(tuple(held), copied=False))
                held, missing = [], least
        rest = size - start
        if rest >= least:
            pieces = -(-rest // most)
            bounds = [start + rest * piece // pieces for piece in range(pieces + 1)]
            parts += [Part((Range(path, *bounds[at : at + 2]),), copied=True) for at in range(pieces)]
        elif rest:
            held.append(Range(path, start, size))
            missing -= rest
    if held:
        parts.append(Part(tuple(held), copied=len(held) == 1 and (len(parts) > 0 or total >= _LEAST_COPIED)))
    return parts
