"""Update of a CRC-32C after bytes of the message were changed or appended, without reading the rest of it.

A checksum is linear: if four bytes of a message change, its checksum changes by the difference of those bytes, as a
polynomial over GF(2), times x^8 for each byte that follows, modulo the checksum's polynomial. Bits are reflected, as in
the Castagnoli CRC: the highest bit of a number is the coefficient of x^0.
"""

from __future__ import annotations

import numpy as np

from .wire import shift_checksums


def changed_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Checksums of messages after four bytes of each changed.

    Args:
      checksums: Unmasked CRC-32C of each message before the change, shape (n,), uint32.
      before: The four bytes before the change, little-endian, shape (n,), uint32.
      after: The four bytes after the change, little-endian, shape (n,), uint32.
      behind: Number of message bytes after those four, below 2^32 - 4, shape (n,), int64.

    Returns:
      Unmasked CRC-32C of each changed message, shape (n,), uint32.
    """
    return checksums ^ _shifted(before ^ after, behind + 4)


def appended_checksums(checksums: np.ndarray, ending: int, last: np.ndarray, size: int) -> np.ndarray:
    """Checksums of messages after an ending was appended, which differs in its last four bytes.

    Args:
      checksums: Unmasked CRC-32C of each message without its ending, shape (n,), uint32.
      ending: Unmasked CRC-32C of an ending whose last four bytes are 0.
      last: The last four bytes of each ending, little-endian, shape (n,), uint32.
      size: Bytes of an ending, >= 4.

    Returns:
      Unmasked CRC-32C of each message with its ending, shape (n,), uint32.
    """
    return _shifted(checksums, size) ^ _shifted(last, 4) ^ np.uint32(ending)


def restarted_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Checksums of messages after their first bytes were replaced by others, perhaps by more or fewer.

    Args:
      checksums: Unmasked CRC-32C of each message before, shape (n,), uint32.
      before: Unmasked CRC-32C of its first bytes alone, shape (n,), uint32.
      after: Unmasked CRC-32C of the bytes that take their place, shape (n,), uint32.
      behind: Number of message bytes after them, below 2^32, shape (n,), int64.

    Returns:
      Unmasked CRC-32C of each changed message, shape (n,), uint32.
    """
    return checksums ^ _shifted(before ^ after, behind)


def _shifted(values: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Products of the values and x^8 to the power of count."""
    products = values.astype(np.uint32)
    shift_checksums(products, np.array(np.broadcast_to(count, values.shape), np.int64))
    return products
