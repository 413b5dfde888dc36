"""Probabilities of the records of a release whose classes are drawn from a center: K integers each, in one encoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .documents import RefusedDocument

# Bytes of the varint of a probability.
_LONGEST = 3


def probabilities_of_column(column: pa.Array, classes: int) -> np.ndarray:
    """Reads lists of integers of a Parquet column, shape (n, K), int64.

    Raises RefusedDocument if a record does not have exactly K integers.
    """
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise RefusedDocument("has probabilities that are not lists")
    if not pa.types.is_integer(column.type.value_type):
        raise RefusedDocument("has probabilities that are not integers")
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values = column.flatten()
    if (lengths != classes).any() or values.null_count:
        raise RefusedDocument(f"has a record without exactly {classes} probabilities")
    return values.cast(pa.int64()).to_numpy(zero_copy_only=False).reshape(len(column), classes)


def probabilities_of_messages(messages: Sequence[bytes], classes: int) -> np.ndarray:
    """Reads encoded Features, one packed list of integers each, shape (n, K), int64.

    Raises RefusedDocument if one is anything else, or not in the shortest encoding, which could hide a label.
    """
    found = np.empty((len(messages), classes), np.int64)
    lengths = np.array([len(message) for message in messages])
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        octets = np.frombuffer(b"".join([messages[row] for row in rows.tolist()]), np.uint8).reshape(len(rows), length)
        found[rows] = _decoded(octets, classes)
    return found


def _decoded(octets: np.ndarray, classes: int) -> np.ndarray:
    """Integers of messages of one length, shape (n, bytes), uint8."""
    header = next((each for each in map(_header, range(classes, _LONGEST * classes + 1)) if _fits(each, octets)), None)
    values = octets[:, len(header) :] if header is not None else octets
    last = values < 0x80
    if header is None or (last.sum(axis=1) != classes).any() or not last[:, -1].all():
        raise RefusedDocument(f"has a record whose probabilities are not one packed list of {classes} integers")
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    flat = values.ravel()
    if sizes.max(initial=1) > _LONGEST or (flat[ends[sizes > 1]] == 0).any():
        raise RefusedDocument("has a record whose probabilities are not in the shortest encoding")
    shifts = 7 * (np.arange(flat.size) - np.repeat(starts, sizes))
    parts = (flat & 0x7F).astype(np.int64) << shifts
    return np.add.reduceat(parts, starts).reshape(len(values), classes)


def _fits(header: bytes, octets: np.ndarray) -> bool:
    """True if all messages begin with a header, and have as many bytes after it as it says."""
    size = octets.shape[1] - len(header)
    return size >= 0 and header == _header(size) and bool((octets[:, : len(header)] == np.array([*header])).all())


def _header(size: int) -> bytes:
    """First bytes of a Feature of a packed list of integers, in so many bytes."""
    own = bytes([0x0A, *_varint(size)])
    return bytes([0x1A, *_varint(len(own) + size), *own])


def _varint(number: int) -> list[int]:
    found = []
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return [*found, number]
