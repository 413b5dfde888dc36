"""Exact discrete Laplace noise from a keyed byte stream.

Source: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithm 2.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

from .keyed_words import keyed_blake2b

_STREAM_BLOCK = 64


class ByteStream:
    """Unbounded stream of uniform bytes, a function of a key and a purpose: BLAKE2b in counter mode.

    Streams of different purposes are independent.
    """

    def __init__(self, key: bytes, purpose: bytes):
        """Starts the stream. Raises ValueError unless the key has 32 bytes."""
        self._blank = keyed_blake2b(key, _STREAM_BLOCK, b"labeldp stream")
        self._blank.update(len(purpose).to_bytes(8, "little") + purpose)
        self._counter = 0
        # Bytes of the last blocks, and how many of them were taken.
        self._bytes, self._taken = b"", 0

    def take(self, count: int) -> bytes:
        """Returns the next `count` bytes of the stream."""
        start = self._taken
        stop = start + count
        if stop > len(self._bytes):
            blocks = -(-(stop - len(self._bytes)) // _STREAM_BLOCK)
            more = map(self._block, range(self._counter, self._counter + blocks))
            self._bytes = b"".join((self._bytes[start:], *more))
            self._counter += blocks
            start, stop = 0, count
        self._taken = stop
        return self._bytes[start:stop]

    def _block(self, counter: int) -> bytes:
        # Copying a keyed hash state is faster than building it again.
        state = self._blank.copy()
        state.update(counter.to_bytes(8, "little"))
        return state.digest()

    def below(self, bound: int) -> int:
        """Draws a uniform integer in [0, bound) exactly, by rejection sampling, for a bound >= 1."""
        if bound == 1:
            return 0
        size, mask = _form(bound)
        while True:
            # As `take`, without its call where a block has bytes left: all noise is drawn here.
            start, stop = self._taken, self._taken + size
            if stop > len(self._bytes):
                taken = self.take(size)
            else:
                taken, self._taken = self._bytes[start:stop], stop
            candidate = int.from_bytes(taken, "little") & mask
            if candidate < bound:
                return candidate


@functools.lru_cache(maxsize=256)
def _form(bound: int) -> tuple[int, int]:
    """Number of bytes and mask of the candidates for an integer in [0, bound)."""
    bits = (bound - 1).bit_length()
    return -(-bits // 8), (1 << bits) - 1


def bernoulli_exp(stream: ByteStream, numerator: int, denominator: int) -> bool:
    """True with probability exp(-numerator/denominator), exactly, for a fraction in [0, 1].

    Canonne, Kamath, Steinke 2020, Algorithm 1.
    """
    trials = 1
    while stream.below(denominator * trials) < numerator:
        trials += 1
    return trials % 2 == 1


def discrete_laplace(stream: ByteStream, scale: Fraction, count: int) -> np.ndarray:
    """Draws discrete Laplace noise exactly, as 64-bit integers: for scales below 2^53; shape (count,), int64.

    Raises ValueError unless the scale is positive.
    """
    return np.array(discrete_laplace_integers(stream, scale, count), np.int64).reshape(count)


def discrete_laplace_integers(stream: ByteStream, scale: Fraction, count: int) -> list[int]:
    """Draws discrete Laplace noise exactly: P(z) is proportional to exp(-|z| / scale) on the integers, of any size.

    Uses integers only, no floats (Canonne, Kamath, Steinke 2020, Algorithm 2). Raises ValueError unless the scale is
    positive.
    """
    if scale <= 0:
        raise ValueError(f"scale must be positive, not {scale}")
    t, s = scale.numerator, scale.denominator
    draws: list[int] = []
    while len(draws) < count:
        remainder = stream.below(t)
        if not bernoulli_exp(stream, remainder, t):
            continue
        quotient = 0
        while bernoulli_exp(stream, 1, 1):
            quotient += 1
        magnitude = (remainder + t * quotient) // s
        negative = stream.below(2) == 1
        if negative and magnitude == 0:
            continue
        draws.append(-magnitude if negative else magnitude)
    return draws
