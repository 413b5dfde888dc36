"""Reader of untrusted JSON documents for the auditor, with numbers kept exact.

The readers of members raise RefusedDocument if the member is missing or is not of the kind that they read.
"""

from __future__ import annotations

import json
import math
import re
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

_MAX_FILE_BYTES = 1 << 27
_MAX_COUNT = 1 << 53  # counts that are exact as floats, for the report
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")  # 2^63 has 19 digits
_MOST_DIGITS = 20
_JSON_TYPES = {dict: "an object", list: "an array", str: "a string", int: "an integer", object: "a number"}


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
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise RefusedDocument(f"{name} has more than {_MAX_FILE_BYTES} bytes")
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


def read_member(document: dict[str, Any], key: str, kind: type) -> Any:
    """Reads a member of the expected type: dict, list, str, int, or object for any type. Never accepts a boolean."""
    if key not in document:
        raise RefusedDocument(f"{key} is missing")
    if not isinstance(document[key], kind) or isinstance(document[key], bool):
        raise RefusedDocument(f"{key} is not {_JSON_TYPES[kind]}")
    return document[key]


def read_count(document: dict[str, Any], key: str) -> int:
    """Reads an integer from 0 to 2^53, exclusive."""
    value = read_member(document, key, int)
    if not 0 <= value < _MAX_COUNT:
        raise RefusedDocument(f"{key} is not an integer from 0 to 2^53")
    return value


def read_counts(document: dict[str, Any], key: str) -> list[int]:
    """Reads noised counts, integers between -2^62 and 2^62."""
    counts = read_member(document, key, list)
    if not all(type(count) is int and abs(count) < 1 << 62 for count in counts):
        raise RefusedDocument(f"{key} are not integers")
    return counts


def read_nonnegative(document: dict[str, Any], key: str) -> Fraction:
    """Reads a finite number >= 0 exactly: the rational number that the float is.

    An integer must be exact as a float.
    """
    value = read_member(document, key, object)
    if not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max or float(value) != value:
        raise RefusedDocument(f"{key} is not a finite float >= 0")
    return Fraction(value)


def read_floats(document: dict[str, Any], key: str) -> list[float]:
    """Reads a non-empty array of finite floats.

    Integers are refused: 1 and 1.0 would be one number with two fingerprints.
    """
    values = read_member(document, key, list)
    if not values or not all(isinstance(value, float) and math.isfinite(value) for value in values):
        raise RefusedDocument(f"{key} is not a non-empty array of finite floats (1.0, not 1)")
    return values


def read_ascending_floats(document: dict[str, Any], key: str) -> list[float]:
    """Reads a non-empty, strictly ascending array of finite floats."""
    values = read_floats(document, key)
    if any(left >= right for left, right in pairwise(values)):
        raise RefusedDocument(f"{key} is not strictly ascending")
    return values


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


def public_domain(mechanism: dict[str, Any], labels: list[float]) -> list[float]:
    """Labels of the public domain of a mechanism file: those of its center, or without a center its own `labels`."""
    return read_center(mechanism)["center.domain"] if "center" in mechanism else labels


def read_center(mechanism: dict[str, Any]) -> dict[str, Any]:
    """Reads the center of a mechanism file whose labels are residuals around it.

    The result has its members, with `center.` before each key: column, domain, counts and, for a linear center, linear.
    Raises RefusedDocument if a member is missing, unknown or of the wrong type, or the domain is not evenly spaced.
    """
    center = {f"center.{key}": value for key, value in read_member(mechanism, "center", dict).items()}
    if not center.keys() <= {"center.column", "center.domain", "center.counts", "center.linear"}:
        raise RefusedDocument("center has other members than column, domain, counts and linear")
    read_member(center, "center.column", str)
    domain, counts = read_ascending_floats(center, "center.domain"), read_counts(center, "center.counts")
    # Exactly, in a unit of which all labels are multiples: their denominators are powers of two.
    ratios, most = [label.as_integer_ratio() for label in domain], len(domain) - 1
    unit = max(denominator for _, denominator in ratios)
    steps = [numerator * (unit // denominator) for numerator, denominator in ratios]
    span = steps[-1] - steps[0]
    if most < 1 or any(abs((step - steps[0]) * most - span * i) * 10**8 > span * most for i, step in enumerate(steps)):
        raise RefusedDocument("center.domain is not a grid of at least two labels")
    if len(counts) != len(residual_cells(len(domain))):
        raise RefusedDocument("center.counts do not have one count for each cell of residuals")
    return center


def residual_cells(labels: int) -> list[int]:
    """Number of residuals in each cell, ascending by residual, for a domain of a number of labels.

    Cells are 0, then have widths of a quarter of the distance from 0, at least 1, on both sides.
    """
    distance, widths = 1, []
    while distance < labels:
        widths.append(min(max(distance // 4, 1), labels - distance))
        distance += widths[-1]
    return [*reversed(widths), 1, *widths]


def records_per_unit(mechanism: dict[str, Any]) -> int:
    """Reads how many records of a unit a mechanism file allows.

    It is 1 without units, where the labels of single records are protected. Raises RefusedDocument if a member is
    missing or has the wrong type.
    """
    if "unit" not in mechanism:
        return 1
    unit = read_member(mechanism, "unit", dict)
    if set(unit) != {"column", "max_records"}:
        raise RefusedDocument("unit of mechanism.json must have a column and max_records")
    if not isinstance(unit["column"], str):
        raise RefusedDocument("unit.column of mechanism.json is not a name")
    most = read_count({"unit.max_records": unit["max_records"]}, "unit.max_records")
    if most < 1:
        raise RefusedDocument("unit.max_records is below 1")
    return most
