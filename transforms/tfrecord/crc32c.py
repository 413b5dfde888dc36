"""Update of a CRC-32C after bytes of the message were changed or appended, without reading the rest of it.

A checksum is linear: if four bytes of a message change, its checksum changes by the difference of those bytes, as a
polynomial over GF(2), times x^8 for each byte that follows, modulo the checksum's polynomial. Bits are reflected, as in
the Castagnoli CRC: the highest bit of a number is the coefficient of x^0.

Source: RFC 3720, appendix B.4, for the polynomial.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)
# The polynomials 1 and x^8.
_ONE, _BYTE = np.uint32(1 << 31), np.uint32(1 << 23)
# Powers of x^8 are looked up in two tables: for the low and the high 16 bits of the exponent.
_TABLE_BITS = 16


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
    return _shifted_alike(checksums, size) ^ _shifted_alike(last, 4) ^ np.uint32(ending)


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


def _shifted_alike(values: np.ndarray, count: int) -> np.ndarray:
    """Products of the values and x^8 to the power of count: the sum of those of their four bytes."""
    products = np.zeros(len(values), np.uint32)
    for place, table in enumerate(_byte_products(count)):
        products ^= table[values >> np.uint32(8 * place) & np.uint32(0xFF)]
    return products


@cache
def _byte_products(count: int) -> np.ndarray:
    """Products of x^8 to the power of count and each value of each byte of a number, shape (4, 256)."""
    values = np.arange(256, dtype=np.uint32) << np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None]
    return _shifted(values.ravel(), np.full(values.size, count)).reshape(values.shape)


def _shifted(values: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Products of the values and x^8 to the power of count, which is below 2^32."""
    low, high = count & ((1 << _TABLE_BITS) - 1), count >> _TABLE_BITS
    values = _product(values, _powers(_BYTE, _TABLE_BITS)[low])
    if high.any():
        factor = _shifted(_powers(_BYTE, _TABLE_BITS)[-1:], np.ones(1, np.int64))
        values = _product(values, _powers(factor[0], _TABLE_BITS)[high])
    return values


def _product(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Products of polynomials, modulo the checksum's polynomial."""
    product = np.zeros(len(one), np.uint32)
    for bit in range(31, -1, -1):
        product ^= two * (one >> np.uint32(bit) & np.uint32(1))
        two = two >> np.uint32(1) ^ _POLYNOMIAL * (two & np.uint32(1))
    return product


@cache
def _powers(base: np.uint32, bits: int) -> np.ndarray:
    """The powers base^0, base^1, ..., base^(2^bits - 1)."""
    powers, factor = np.array([_ONE]), np.array([base])
    for _ in range(bits):
        powers = np.concatenate([powers, _product(powers, factor)])
        factor = _product(factor, factor)
    return powers
