"""Labels of the records that are classes: each in one spelling, and all of them in one type.

The type is that of the column which was read, so nothing else states it. Of two spellings of a class, such as 1 and
"1", or 0.0 and -0.0, each record could have the one or the other, and hide a bit in that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from .documents import RefusedDocument, printable

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
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            if (lengths != 1).any():
                raise RefusedDocument("has a record whose label is not one value")
            column = column.flatten()
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
        found = [self._messages.get(message) for message in messages]
        self._types |= dict.fromkeys(each[0] for each in found if each is not None)
        return np.array([_NO_CLASS if each is None else each[1] for each in found], float)

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
    found = list(map(int, values))
    return found if all(number in _INT64 for number in found) else None


def _booleans(values: Sequence[str]) -> list[bool] | None:
    """The classes as false and true, if they are both of these."""
    found = [_TRUTH[value] for value in values if value in _TRUTH]
    return found if sorted(found) == [False, True] and len(values) == 2 else None


def _floats(values: Sequence[str], bits: int) -> list[float] | None:
    """The classes as floats of so many bits, if these hold all of them exactly."""
    integers, letter = _integers(values), {16: "<e", 32: "<f", 64: "<d"}[bits]
    if integers is None:
        return None
    try:
        found = [struct.unpack(letter, struct.pack(letter, number))[0] for number in integers]
    except (OverflowError, struct.error):
        return None
    return found if found == integers else None


def _messages(values: Sequence[str]) -> dict[bytes, tuple[str, int]]:
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
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
