"""Reader of untrusted JSON documents for the auditor, with numbers kept exact; and of what several checks need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

MAX_FILE_BYTES = 1 << 27
"""Largest document that is read."""
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")  # 2^63 has 19 digits
_MOST_DIGITS = 20


class RefusedDocument(Exception):
    """The document cannot be audited. The message is the reason, one line of ASCII."""


def printable(text: str) -> str:
    """Escapes text from a file to printable ASCII in one line, for a report: a line break could forge a verdict."""
    return "".join(c if c.isascii() and c.isprintable() else ascii(c)[1:-1] for c in text)


def load_document(path: Path) -> dict[str, Any]:
    """Reads a JSON object from a regular file of at most 128 MiB.

    Raises RefusedDocument if the file cannot be read, is too large, or is not strict JSON with unique keys.
    """
    name = ascii(path.name)
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device might never end
            raise RefusedDocument(f"{name} is not a regular file")
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise RefusedDocument(f"{name} has more than {MAX_FILE_BYTES} bytes")
        loaded = json.loads(text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique_members)
    except OSError as error:
        raise RefusedDocument(f"{name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise RefusedDocument(f"{name} is not valid JSON: {error}") from None
    except RecursionError:
        raise RefusedDocument(f"{name} is nested too deeply") from None
    if not isinstance(loaded, dict):
        raise RefusedDocument(f"{name} is not a JSON object")
    return loaded


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return members


def sized(values: list[Any], name: str, size: int) -> list[Any]:
    """Takes a list of exactly so many entries; `name` is that of the member."""
    if len(values) != size:
        raise RefusedDocument(f"{name} do not have {size} entries")
    return values


def shaped(rows: list[list[Any]], name: str, size: int, width: int) -> list[list[Any]]:
    """Takes so many rows of so many entries; `name` is that of the member."""
    return [sized(row, name, width) for row in sized(rows, name, size)]


def ascending(values: list[Any], name: str) -> list[Any]:
    """Takes a strictly ascending list; `name` is that of the member."""
    if any(left >= right for left, right in pairwise(values)):
        raise RefusedDocument(f"{name} is not strictly ascending")
    return values


def as_text(value: Any) -> str:
    """JSON to compare: 1, 1.0 and true are equal in Python, and 0.0 and -0.0, but other readers tell them apart."""
    return json.dumps(value, sort_keys=True)


def read_decimal(text: Any, name: str) -> int:
    """Reads a non-negative integer from its plain decimal digits. `name` is its name in the message.

    Raises RefusedDocument if the value is not a string of 1 to 20 digits without leading zeros.
    """
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise RefusedDocument(f"{name} is not a string of 1 to 20 decimal digits")
    return int(text)


def read_decimals(texts: list[Any], name: str) -> list[int]:
    """Reads non-negative integers like `read_decimal`, many at once."""
    # The digits of ASCII are 0 to 9. A text of digits that is not below "1" does not begin with 0, and is not empty.
    digits = texts and set(map(type, texts)) == {str} and "".join(texts).isascii() and all(map(str.isdigit, texts))
    if digits and min(texts) >= "1" and max(map(len, texts)) <= _MOST_DIGITS:
        return list(map(int, texts))
    return [read_decimal(text, name) for text in texts]


class Center(NamedTuple):
    """Center of a mechanism file whose labels are residuals around it.

    Attributes:
      column: Column of the centers.
      domain: The public labels.
      counts: Noised counts of the cells of residuals.
    """

    column: str
    domain: list[float]
    counts: list[int]


def read_center(mechanism: Mapping[str, Any]) -> Center:
    """Reads the center of a mechanism file that has one.

    Raises RefusedDocument if the domain is not evenly spaced, or has another number of cells than of counts.
    """
    column, domain, counts = (mechanism["center"][key] for key in ("column", "domain", "counts"))
    ascending(domain, "center.domain")
    # Exactly, in a unit of which all labels are multiples: their denominators are powers of two.
    ratios, most = [label.as_integer_ratio() for label in domain], len(domain) - 1
    unit = max(denominator for _, denominator in ratios)
    steps = [numerator * (unit // denominator) for numerator, denominator in ratios]
    span = steps[-1] - steps[0]
    if any(abs((step - steps[0]) * most - span * i) * 10**8 > span * most for i, step in enumerate(steps)):
        raise RefusedDocument("center.domain is not evenly spaced")
    if len(counts) != len(residual_cells(len(domain))):
        raise RefusedDocument("center.counts do not have one count for each cell of residuals")
    return Center(column, domain, counts)


def public_domain(mechanism: Mapping[str, Any], labels: list[float]) -> list[float]:
    """Labels of the public domain of a mechanism file: those of its center, or without a center its own `labels`."""
    return read_center(mechanism).domain if "center" in mechanism else labels


def residual_cells(labels: int) -> list[int]:
    """Number of residuals in each cell, ascending by residual, for a domain of a number of labels.

    Cells are 0, then have widths of a quarter of the distance from 0, at least 1, on both sides.
    """
    distance, widths = 1, []
    while distance < labels:
        widths.append(min(max(distance // 4, 1), labels - distance))
        distance += widths[-1]
    return [*reversed(widths), 1, *widths]


def read_unit(mechanism: Mapping[str, Any]) -> tuple[str | None, int]:
    """Reads the unit column of a mechanism file, and how many records of a unit it allows.

    They are None and 1 without units, where the labels of single records are protected.
    """
    unit = mechanism.get("unit")
    return (None, 1) if unit is None else (unit["column"], unit["max_records"])
