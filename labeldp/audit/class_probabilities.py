"""Probabilities of the records of a release whose classes are drawn from a center: K floats each, in one encoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .documents import RefusedDocument

PROBABILITY_UNIT = 1 << 16
"""Probabilities are integer multiples of 1 / PROBABILITY_UNIT, which float32 holds exactly."""


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
    size = 4 * classes
    own = bytes([0x0A, *_varint(size)])
    header = bytes([0x12, *_varint(len(own) + size), *own])
    if any(len(message) != len(header) + size or not message.startswith(header) for message in messages):
        raise RefusedDocument(f"has a record whose probabilities are not one packed list of {classes} floats")
    octets = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), len(header) + size)
    return _multiples(np.ascontiguousarray(octets[:, len(header) :]).view("<f4"))


def _multiples(values: np.ndarray) -> np.ndarray:
    """Floats in multiples of 1 / PROBABILITY_UNIT; -1 for any that is none, as its bits could hide a label."""
    scaled = values.astype(np.float64) * PROBABILITY_UNIT
    whole = np.rint(np.where((scaled >= 0) & (scaled <= PROBABILITY_UNIT), scaled, -1)).astype(np.int64)
    same = (whole / PROBABILITY_UNIT).astype("<f4").view("<u4") == np.ascontiguousarray(values, "<f4").view("<u4")
    return np.where(same, whole, -1)


def _varint(number: int) -> list[int]:
    found = []
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return [*found, number]
