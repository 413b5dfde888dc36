"""Labels of the records that are classes, and probabilities that they were drawn from.

Each class is in one spelling, and all of them in one type. The type is that of the column which was read, so nothing
else states it. Of two spellings of a class, such as 1 and "1", or 0.0 and -0.0, each record could have the one or the
other, and hide a bit in that. The K probabilities of a record are floats in one encoding.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from .documents import RefusedDocument, printable

PROBABILITY_UNIT = 1 << 16
"""Probabilities are integer multiples of 1 / PROBABILITY_UNIT, which float32 holds exactly."""

_TRUTH = {"false": False, "true": True, "0": False, "1": True}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_INT64 = range(-(1 << 63), 1 << 63)
_NO_CLASS = np.nan


class ClassLabels:
    """Places of the classes that labels are, and the types in which they were found."""

    def __init__(self, values: Sequence[str]):
        """values: the K classes as text."""
        self._values = values
        self._types: dict[str, None] = {}
        self._messages = _messages(values)

    def problems(self) -> Iterable[str]:
        """Yields one line if labels have several types."""
        if len(self._types) > 1:
            yield f"labels have several types: {', '.join(self._types)}"

    def of_column(self, column: pa.Array) -> np.ndarray:
        """Places of the classes of a Parquet column, shape (n,), float64; NaN for a value that is no class.

        The column is flat, or holds lists of one. Raises RefusedDocument if its type holds other values than these
        classes, or a label is missing or has several values.
        """
        self._types[printable(str(column.type))] = None
        column = single_values(column)
        if column.null_count:
            raise RefusedDocument("has labels that are missing")
        listed = self._listed(column.type)
        if listed is None:
            raise RefusedDocument("has labels of a type that does not hold the classes")
        if pa.types.is_floating(column.type):
            column = column.cast(pa.float64())  # exact, and Arrow encodes no float16
        encoded = column.dictionary_encode()
        places = np.array([listed.get(_spelled(value), _NO_CLASS) for value in encoded.dictionary.to_pylist()], float)
        return places[encoded.indices.to_numpy(zero_copy_only=False)]

    def of_messages(self, messages: Sequence[bytes]) -> np.ndarray:
        """Places of the classes in encoded Features, shape (n,), float64; NaN for one that is no class.

        Only the shortest encoding is known, in which each list has one field.
        """
        known = [self._messages.get(message, ("", _NO_CLASS)) for message in messages]
        self._types |= dict.fromkeys(kind for kind, _ in known if kind)
        return np.array([place for _, place in known], float)

    def _listed(self, kind: pa.DataType) -> dict[object, int] | None:
        """Places by value as `_spelled` has them; None if the type does not hold the classes, or cannot tell them."""
        values: Sequence[object] | None = None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            values = self._values
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
            values = [value.encode() for value in self._values]
        elif pa.types.is_boolean(kind):
            values = _booleans(self._values)
        elif pa.types.is_integer(kind):
            values = _integers(self._values)
        elif pa.types.is_floating(kind):
            values = _floats(self._values, kind.bit_width)
        return None if values is None else {_spelled(value): place for place, value in enumerate(values)}


def _spelled(value: object) -> object:
    """A value as what tells it from all others: 0.0 and -0.0 are equal numbers."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def _integers(values: Sequence[str]) -> list[int] | None:
    """The classes as integers of 64 bits, if all of them are, each in its plain form."""
    if not all(map(_INTEGER.fullmatch, values)):
        return None
    numbers = list(map(int, values))
    return numbers if all(number in _INT64 for number in numbers) else None


def _booleans(values: Sequence[str]) -> list[bool] | None:
    """The classes as false and true, if they are both of these."""
    truths = [_TRUTH[value] for value in values if value in _TRUTH]
    return truths if sorted(truths) == [False, True] and len(values) == 2 else None


def _floats(values: Sequence[str], bits: int) -> list[float] | None:
    """The classes as floats of so many bits, if these hold all of them exactly."""
    integers, letter = _integers(values), {16: "<e", 32: "<f", 64: "<d"}[bits]
    if integers is None:
        return None
    try:
        floats = [struct.unpack(letter, struct.pack(letter, number))[0] for number in integers]
    except (OverflowError, struct.error):
        return None
    return floats if floats == integers else None


def _messages(values: Sequence[str]) -> dict[bytes, tuple[str, float]]:
    """Type and place by the encoded Feature of each class, in each type that holds them."""
    integers = _integers(values)
    if integers is None:
        integers = _booleans(values)
    kinds: list[tuple[str, int, list[bytes] | None]] = [
        ("bytes", 1, [_field(1, value.encode()) for value in values]),
        ("float", 2, _packed(_floats(values, 32), lambda value: struct.pack("<f", value))),
        ("int64", 3, _packed(integers, lambda value: _varint(int(value) % (1 << 64)))),
    ]
    return {
        _field(number, content): (name, place)
        for name, number, contents in kinds
        for place, content in enumerate(contents or ())
    }


def _packed(numbers: Sequence[float] | None, encode: Callable[[float], bytes]) -> list[bytes] | None:
    return None if numbers is None else [_field(1, encode(number)) for number in numbers]


def _field(number: int, content: bytes) -> bytes:
    """Field of a protocol buffer that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Shortest encoding of an integer, in groups of seven bits."""
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def single_values(column: pa.Array) -> pa.Array:
    """Labels of a Parquet column that is flat, or holds lists of one."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        if (lengths != 1).any():
            raise RefusedDocument("has a record whose label is not one value")
        column = column.flatten()
    return column


def probabilities_of_column(column: pa.Array, classes: int) -> np.ndarray:
    """Reads lists of float32 of a Parquet column, as multiples of 1 / PROBABILITY_UNIT: shape (n, K), int64.

    Raises RefusedDocument if a record does not have exactly K of them, in their only representation.
    """
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise RefusedDocument("has probabilities that are not lists")
    if not pa.types.is_float32(column.type.value_type):
        raise RefusedDocument("has probabilities that are not float32")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values = column.flatten()
    if (lengths != classes).any() or values.null_count:
        raise RefusedDocument(f"has a record without exactly {classes} probabilities")
    return _multiples(values.to_numpy(zero_copy_only=False).reshape(len(column), classes))


def probabilities_of_messages(messages: Sequence[bytes], classes: int) -> np.ndarray:
    """Reads encoded Features, one packed list of float32 each, in multiples of 1 / PROBABILITY_UNIT; (n, K), int64.

    Raises RefusedDocument if one is anything else, or not in the shortest encoding, which could hide a label.
    """
    header = _field(2, _field(1, bytes(4 * classes)))[: -4 * classes]
    if any(len(message) != len(header) + 4 * classes or not message.startswith(header) for message in messages):
        raise RefusedDocument(f"has a record whose probabilities are not one packed list of {classes} floats")
    octets = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), len(header) + 4 * classes)
    return _multiples(np.ascontiguousarray(octets[:, len(header) :]).view("<f4"))


def _multiples(values: np.ndarray) -> np.ndarray:
    """Floats in multiples of 1 / PROBABILITY_UNIT; -1 for any that is none, as its bits could hide a label."""
    scaled = values.astype(np.float64) * PROBABILITY_UNIT
    whole = np.rint(np.where((scaled >= 0) & (scaled <= PROBABILITY_UNIT), scaled, -1)).astype(np.int64)
    same = (whole / PROBABILITY_UNIT).astype("<f4").view("<u4") == np.ascontiguousarray(values, "<f4").view("<u4")
    return np.where(same, whole, -1)
