"""Update of a CRC-32C after bytes of the message were changed or appended, without reading the rest of it.

A checksum is linear: if four bytes of a message change, its checksum changes by the difference of those bytes, as a
polynomial over GF(2), times x^8 for each byte that follows, modulo the checksum's polynomial. Bits are reflected, as in
the Castagnoli CRC: the highest bit of a number is the coefficient of x^0.
"""

from __future__ import annotations

import numpy as np

from .wire import shift_checksums


def changed_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Unmasked CRC-32C of messages after four bytes of each changed, shape (n,), uint32.

    `before` and `after` are those bytes, little-endian uint32; `behind` is the number of message bytes after them,
    int64, below 2^32 - 4.
    """
    return checksums ^ _shifted(before ^ after, behind + 4)


def appended_checksums(checksums: np.ndarray, ending: int, last: np.ndarray, size: int) -> np.ndarray:
    """Unmasked CRC-32C of messages after an ending of `size` >= 4 bytes, shape (n,), uint32.

    The endings differ in their last four bytes only: `last` holds these, little-endian uint32, and `ending` is the
    unmasked CRC-32C of an ending in which they are 0.
    """
    return _shifted(checksums, size) ^ _shifted(last, 4) ^ np.uint32(ending)


def restarted_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Unmasked CRC-32C of messages after their first bytes were replaced, shape (n,), uint32.

    `before` and `after` are the unmasked CRC-32C of the first bytes alone, which may differ in length; `behind` is the
    number of message bytes after them, int64, below 2^32.
    """
    return checksums ^ _shifted(before ^ after, behind)


def _shifted(values: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Products of the values and x^8 to the power of count."""
    products = values.astype(np.uint32)
    shift_checksums(products, np.array(np.broadcast_to(count, values.shape), np.int64))
    return products
