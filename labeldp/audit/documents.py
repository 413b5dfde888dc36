"""Reader of untrusted JSON documents for the auditor, with numbers kept exact; and of what several checks need."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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


class Members(dict[str, Any]):
    """Object of a document. Its readers raise RefusedDocument, which names the member, for a value of another kind.

    Attributes:
      name: Name of the object in messages; empty for a whole document.
    """

    def __init__(self, members: Mapping[str, Any], name: str = ""):
        """Takes the members of an object."""
        super().__init__(members)
        self.name = name

    def path(self, key: str) -> str:
        """Name of a member in messages."""
        return f"{self.name}.{key}" if self.name else key

    def read(self, key: str, kind: type) -> Any:
        """Reads a member of a type: dict, list, str, int, or object for any type. Never accepts a boolean."""
        if key not in self:
            raise RefusedDocument(f"{self.path(key)} is missing")
        if not isinstance(self[key], kind) or isinstance(self[key], bool):
            raise RefusedDocument(f"{self.path(key)} is not {_JSON_TYPES[kind]}")
        return self[key]

    def text(self, key: str) -> str:
        """Reads a text."""
        return self.read(key, str)

    def members(self, key: str) -> Members:
        """Reads an object."""
        return Members(self.read(key, dict), self.path(key))

    def exactly(self, key: str, *keys: str) -> Members:
        """Reads an object that has exactly these members."""
        return exact_members(self.get(key), keys, self.path(key))

    def count(self, key: str) -> int:
        """Reads an integer from 0 to 2^53, exclusive."""
        value = self.read(key, int)
        if not 0 <= value < _MAX_COUNT:
            raise RefusedDocument(f"{self.path(key)} is not an integer from 0 to 2^53")
        return value

    def positive(self, key: str) -> int:
        """Reads a count that is not 0."""
        if not self.count(key):
            raise RefusedDocument(f"{self.path(key)} is 0")
        return self[key]

    def counts(self, key: str) -> list[int]:
        """Reads noised counts, integers between -2^62 and 2^62."""
        counts = self.read(key, list)
        if not all(type(count) is int and abs(count) < 1 << 62 for count in counts):
            raise RefusedDocument(f"{self.path(key)} are not integers")
        return counts

    def integers(self, key: str, size: int, least: int, most: int) -> list[int]:
        """Reads exactly so many integers within bounds."""
        return read_integers(self.read(key, object), self.path(key), size, least, most)

    def integer(self, key: str, least: int, most: int) -> int:
        """Reads an integer within bounds."""
        return read_integers([self.read(key, object)], self.path(key), 1, least, most)[0]

    def matrix(self, key: str, rows: int, width: int, most: int) -> list[list[int]]:
        """Reads rows of integers of at most this size."""
        return read_matrix(self.read(key, object), self.path(key), rows, width, most)

    def nonnegative(self, key: str) -> Fraction:
        """Reads a finite number >= 0 exactly: the rational number that the float is.

        An integer must be exact as a float.
        """
        value = self.read(key, object)
        if not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max or float(value) != value:
            raise RefusedDocument(f"{self.path(key)} is not a finite float >= 0")
        return Fraction(value)

    def decimal(self, key: str) -> int:
        """Reads a text of plain decimal digits."""
        return read_decimal(self.text(key), self.path(key))

    def floats(self, key: str) -> list[float]:
        """Reads a non-empty array of finite floats.

        Integers are refused: 1 and 1.0 would be one number with two fingerprints.
        """
        values = self.read(key, list)
        if not values or not all(isinstance(value, float) and math.isfinite(value) for value in values):
            raise RefusedDocument(f"{self.path(key)} is not a non-empty array of finite floats (1.0, not 1)")
        return values

    def ascending_floats(self, key: str) -> list[float]:
        """Reads a non-empty, strictly ascending array of finite floats."""
        values = self.floats(key)
        if any(left >= right for left, right in pairwise(values)):
            raise RefusedDocument(f"{self.path(key)} is not strictly ascending")
        return values


def exact_members(value: Any, keys: Iterable[str], name: str) -> Members:
    """Takes an object that has exactly these members."""
    if not isinstance(value, dict) or set(value) != {*keys}:
        raise RefusedDocument(f"{name} has not exactly the members {', '.join(keys)}")
    return Members(value, name)


def read_integers(values: Any, name: str, size: int, least: int, most: int) -> list[int]:
    """Takes a list of exactly so many integers within bounds; `name` is that of the member."""
    if not isinstance(values, list) or len(values) != size:
        raise RefusedDocument(f"{name} do not have {size} entries")
    if not all(type(value) is int and least <= value <= most for value in values):
        raise RefusedDocument(f"{name} are not integers from {least} to {most}")
    return values


def read_matrix(rows: Any, name: str, size: int, width: int, most: int) -> list[list[int]]:
    """Takes so many rows of integers of at most this size; `name` is that of the member."""
    if not isinstance(rows, list) or len(rows) != size:
        raise RefusedDocument(f"{name} do not have {size} rows")
    return [read_integers(row, name, width, -most, most) for row in rows]


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

    Raises RefusedDocument if a member is missing, unknown or of the wrong type, or the domain is not evenly spaced.
    """
    center = Members(mechanism).members("center")
    if not center.keys() <= {"column", "domain", "counts", "linear"}:
        raise RefusedDocument("center has other members than column, domain, counts and linear")
    column, domain, counts = center.text("column"), center.ascending_floats("domain"), center.counts("counts")
    # Exactly, in a unit of which all labels are multiples: their denominators are powers of two.
    ratios, most = [label.as_integer_ratio() for label in domain], len(domain) - 1
    unit = max(denominator for _, denominator in ratios)
    steps = [numerator * (unit // denominator) for numerator, denominator in ratios]
    span = steps[-1] - steps[0]
    if most < 1 or any(abs((step - steps[0]) * most - span * i) * 10**8 > span * most for i, step in enumerate(steps)):
        raise RefusedDocument("center.domain is not a grid of at least two labels")
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

    They are None and 1 without units, where the labels of single records are protected. Raises RefusedDocument if a
    member is missing or has the wrong type.
    """
    if "unit" not in mechanism:
        return None, 1
    unit = Members(mechanism).members("unit")
    if set(unit) != {"column", "max_records"}:
        raise RefusedDocument("unit of mechanism.json must have a column and max_records")
    if not isinstance(unit["column"], str):
        raise RefusedDocument("unit.column of mechanism.json is not a name")
    if unit.count("max_records") < 1:
        raise RefusedDocument("unit.max_records is below 1")
    return unit["column"], unit["max_records"]
