"""Floating-point functions with the same bits on every CPU, with every BLAS library and any number of threads.

IEEE 754 rounds sums, differences, products, quotients and square roots correctly, so an algorithm of these alone, in a
fixed order, has one result everywhere. BLAS, LAPACK, and numpy's and the C library's elementary functions do not: their
kernels differ between CPUs in the order of sums, in fused multiply-adds and in polynomials. A mechanism file must be a
function of the request and the input alone, because the records' random words depend on it. Solvers therefore take
these functions instead:

- `exp`, `expm1`, `log`, `log_quotient`, `power`: range reduction and a polynomial, or repeated products, in a fixed
  order;
- `dot`, `matvec` and `vecmat`: elementwise products, then numpy's sum over an axis, whose order is fixed;
- `stacked_matmul`: the same for stacks of small matrices;
- `matmul`: Ozaki, Ogita, Oishi, Rump 2012, "Error-free transformations of matrix multiplication by using fast routines
  of matrix multiplication and its applications", Numerical Algorithms 59. Both factors are split into slices of
  integers so short that BLAS adds their products without rounding, in whatever order.
"""

from __future__ import annotations

import functools
import threading
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# ln 2 = high + low. `high` has 33 bits, so its product with an integer below 2^20 is exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
# Slices of each factor of a product.
_SLICES = 3
# Slices are multiples of at least 2^-500, so that their products do not underflow.
_LEAST_SCALE = -430
# exp is 0 below the first and infinite above the second.
_LEAST_EXPONENT, _LARGEST_EXPONENT = -746.0, 710.0


def _exp_coefficients(terms: int) -> list[float]:
    """1 / (n + 2)! for n = 0..terms - 1: exp(r) = 1 + r + r^2 (1/2! + r/3! + ...)."""
    factorial, found = 1, []
    for n in range(2, terms + 2):
        factorial *= n
        found.append(1 / factorial)
    return found


_EXP = _exp_coefficients(13)
# 2 artanh(s) = 2 s + s^3 P(s^2): the minimax polynomial P of fdlibm, with an error below 2^-58 for s^2 <= 0.0295.
_ARTANH = [
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
]


def exp(x: np.ndarray | float) -> np.ndarray:
    """Computes e^x elementwise, with an error below 2 units in the last place.

    The result is 0 below about -745 and infinite above about 709.8.
    """
    n, r = _reduced(x)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(1 + (r + r * r * _polynomial(r, _EXP)), n)


def expm1(x: np.ndarray | float) -> np.ndarray:
    """Computes e^x - 1 elementwise, with an error of a few units in the last place, for small x too."""
    n, r = _reduced(x)
    part = r + r * r * _polynomial(r, _EXP)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        scale = np.ldexp(1.0, n)
        found = np.where(n == 0, part, scale * part + (scale - 1))
    return np.where(np.isinf(scale), np.inf, found)


def log(x: np.ndarray | float) -> np.ndarray:
    """Computes ln x elementwise, with an error of a few units in the last place; -inf at 0, nan below it."""
    x = np.asarray(x, np.float64)
    return _log_values(x, *_log_parts(x))


def log_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Computes ln(a / b) elementwise, with an error of a few units in the last place, for a close to b too.

    Broadcasts a >= 0 with b > 0; -inf where a is 0.
    """
    x, excess = a / b, (a - b) / b
    d, n, ordinary = _log_parts(x)
    near = np.abs(excess) < 0.25
    return _log_values(x, np.where(near, excess, d), np.where(near, 0, n), ordinary)


def power(x: np.ndarray | float, n: np.ndarray | int) -> np.ndarray:
    """Computes x^n elementwise for whole exponents n >= 0, by repeated squaring; 1 where n is 0.

    The shapes of x and n broadcast.
    """
    square, exponents = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(n, np.int64))
    found = np.ones(exponents.shape)
    with np.errstate(over="ignore", under="ignore"):
        while exponents.any():
            found = np.where(exponents & 1, found * square, found)
            exponents = exponents >> 1
            square = np.where(exponents > 0, square * square, square)
    return found


def geomspace(first: float, last: float, count: int) -> np.ndarray:
    """Numbers that are evenly spaced on a logarithmic scale, both ends (> 0) included; shape (count,), count >= 2."""
    low, high = log(first), log(last)
    found = exp(low + np.arange(count) * ((high - low) / (count - 1)))
    found[0], found[-1] = first, last
    return found


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Computes the inner product of two vectors of shape (n,)."""
    return float(np.add.reduce(a * b))


def matvec(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Computes a matrix, shape (..., m, n), times a vector, shape (n,); shape (..., m)."""
    return np.add.reduce(a * x, axis=-1)


def vecmat(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Computes a vector, shape (m,), times a matrix, shape (m, n); shape (n,)."""
    return np.add.reduce(x[:, None] * a, axis=0)


def stacked_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Computes products of stacks of small matrices, adding over the inner index in ascending order.

    Takes shapes (..., m, n), n >= 1, and (..., n, p), whose leading axes broadcast; returns (..., m, p). For large
    matrices `matmul` is faster.
    """
    total = a[..., :1] * b[..., :1, :]
    for i in range(1, a.shape[-1]):
        total += a[..., i : i + 1] * b[..., i : i + 1, :]
    return total


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Computes a product of matrices of finite entries. Differences below 1e-149 of entries are ignored.

    For moderate n, the error is about 2^-60 of the largest product of an entry of a row of `a` and an entry of a column
    of `b`.
    """
    bits = _slice_bits(a.shape[1])
    left, right = _sliced(a, bits, 1), _sliced(b, bits, 0)
    # One product for all pairs of slices of the same size: BLAS adds their sum exactly, too.
    total = np.zeros((a.shape[0], b.shape[1]))
    for count in range(_SLICES, 0, -1):
        total += np.concatenate(left[:count], axis=1) @ np.concatenate(right[count - 1 :: -1], axis=0)
    return total


class _OneThread:
    """Limit of BLAS to one thread while any context of this process is open: contexts of several threads overlap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._open += 1
            if self._open == 1:
                self._limit = _controller().limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """Limits BLAS to one thread, until the context ends.

    The products here are small: more threads mostly wait for each other, and take the time of other workers.
    """
    return _ONE_THREAD


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _reduced(x: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Returns integers n and r with x = n ln 2 + r and |r| <= 0.35, for x within the range of exp."""
    x = np.clip(np.asarray(x, np.float64), _LEAST_EXPONENT, _LARGEST_EXPONENT)
    n = np.rint(np.where(np.isnan(x), 0.0, x) * _LOG2_E)
    return n.astype(np.int64), (x - n * _LN2_HIGH) - n * _LN2_LOW


def _log_parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns d, n and whether x is finite and positive: then x = (1 + d) 2^n and -0.293 <= d < 0.415."""
    ordinary = (x > 0) & (x < np.inf)
    part, n = np.frexp(x if ordinary.all() else np.where(ordinary, x, 1.0))
    low = part < _SQRT_HALF
    return np.where(low, 2 * part, part) - 1, n - low, ordinary


def _log_values(x: np.ndarray, d: np.ndarray, n: np.ndarray, ordinary: np.ndarray) -> np.ndarray:
    """Returns ln x = ln(1 + d) + n ln 2, where ln(1 + d) = 2 artanh(d / (2 + d)); infinite or nan at the ends."""
    s = d / (2 + d)
    square = s * s
    found = (n * _LN2_LOW + s * square * _polynomial(square, _ARTANH)) + 2 * s + n * _LN2_HIGH
    if ordinary.all():
        return found
    return np.where(x > 0, np.where(x == np.inf, np.inf, found), np.where(x == 0, -np.inf, np.nan))


def _polynomial(x: np.ndarray, coefficients: list[float]) -> np.ndarray:
    """Evaluates a polynomial with these coefficients, the lowest first, by Horner's rule."""
    total = np.array(coefficients[-1] * x + coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        total *= x
        total += coefficient
    return total


def _slice_bits(n: int) -> int:
    """Bits of a slice, so few that a sum of n products of slices, for _SLICES pairs of slices, stays below 2^53."""
    return (53 - max(n - 1, 1).bit_length()) // 2 - 2


def _sliced(a: np.ndarray, bits: int, axis: int) -> list[np.ndarray]:
    """Returns matrices that sum to about a.

    Entries of one row (axis 1) or column (axis 0) of a slice are multiples, by integers of `bits` bits, of one power of
    2, which depends on the row's or column's largest entry.
    """
    largest = np.abs(a).max(axis=axis, keepdims=True, initial=0.0)
    unit = np.ldexp(1.0, np.maximum(np.frexp(largest)[1], _LEAST_SCALE) - bits)
    found, rest = [], a
    for _ in range(_SLICES):
        part = np.rint(rest / unit) * unit
        found.append(part)
        rest = rest - part
        unit = unit * 2.0**-bits
    return found
