"""What a CRC-32C becomes when a few bytes of its message change, without the rest of the message.

A checksum is linear: the one of a message with four bytes changed differs by the change itself, as a polynomial over
GF(2) of which each following byte is a factor x^8, modulo the checksum's polynomial. Bits are reflected, as in the
Castagnoli CRC: the highest bit of a number is the coefficient of x^0.

Source: RFC 3720, appendix B.4, for the polynomial.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)


_ONE = np.uint32(1 << 31)


# x^8, and x^8 for each of 65,536 bytes: the steps of two tables.
_BYTE = np.uint32(1 << 23)


_TABLE_BITS = 16


def changed_checksums(checksums: np.ndarray, before: np.ndarray, after: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """The CRC-32C of messages in each of which four bytes changed.

    checksums: (n,) uint32, of the messages before. before, after: (n,) uint32, the four bytes, little-endian. behind:
    (n,) int64, how many bytes follow them. Returns (n,) uint32.
    """
    return checksums ^ _shifted(before ^ after, behind + 4)


def _shifted(values: np.ndarray, count: np.ndarray) -> np.ndarray:
    """values times x^8 to the power of count, which is below 2^32."""
    low, high = count & ((1 << _TABLE_BITS) - 1), count >> _TABLE_BITS
    values = _product(values, _powers(_BYTE, _TABLE_BITS)[low])
    if high.any():
        factor = _shifted(_powers(_BYTE, _TABLE_BITS)[-1:], np.ones(1, np.int64))
        values = _product(values, _powers(factor[0], _TABLE_BITS)[high])
    return values


def _product(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Products of polynomials, modulo the checksum's."""
    product = np.zeros(len(one), np.uint32)
    for bit in range(31, -1, -1):
        product ^= two * (one >> np.uint32(bit) & np.uint32(1))
        two = two >> np.uint32(1) ^ _POLYNOMIAL * (two & np.uint32(1))
    return product


@cache
def _powers(base: np.uint32, bits: int) -> np.ndarray:
    """base to the powers 0, 1, ..., 2^bits - 1."""
    powers, factor = np.array([_ONE]), np.array([base])
    for _ in range(bits):
        powers = np.concatenate([powers, _product(powers, factor)])
        factor = _product(factor, factor)
    return powers
