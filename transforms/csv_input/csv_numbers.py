"""Numbers of CSV fields. A text becomes a number only if the number keeps all of it; else it is refused."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from .csv_dialect import Dialect

MISSING = pa.array(pa_csv.ConvertOptions().null_values, pa.string())
"""Texts that are missing values in columns of numbers, such as NA and the empty text."""

# Significant digits that doubles are written with: each double has its own text of that many.
_DIGITS = 17
# Doubles below hold every integer; others are written with at least so many digits.
_WHOLE, _WHOLE_DIGITS = 2.0**53, 16
_LEAST_NORMAL = np.finfo(np.float64).tiny
_MINUS, _PLUS, _POINT, _ZERO, _NINE = b"-+.09"
# No number, whatever the marks are.
_INVALID = pa.scalar("?")


def read_numbers(texts: pa.Array, kind: pa.DataType, dialect: Dialect, rounded: bool = False) -> pa.Array:
    """Converts texts to numbers. Spaces around a number are no part of it.

    Args:
      texts: Fields of n records, binary.
      kind: int64, uint64 or float64.
      dialect: Marks of decimals and thousands.
      rounded: Whether any decimal text becomes the nearest double, instead of only those that it keeps.

    Returns:
      The numbers, shape (n,); null where the text is one of `MISSING`.

    Raises:
      pa.ArrowInvalid: If a text is no number, or another one than the number is written as.
    """
    texts = _without(texts.view(pa.string()), None)
    try:
        if dialect.marked:
            raise pa.ArrowInvalid
        numbers = texts.cast(kind)
        # Most spellings are no numbers, but some are NaN.
        again = pa.types.is_floating(kind) and bool(np.isnan(_values(numbers)).any())
    except pa.ArrowInvalid:
        again = True
    if again:
        texts = pc.ascii_trim(_without(texts, MISSING), " \t")  # type: ignore[attr-defined]
        texts = plain_texts(texts, dialect) if dialect.marked else texts
        numbers = texts.cast(kind)
    present, values = texts.drop_null(), _values(numbers.drop_null())
    if len(present) and not (_canonical(present) if kind != pa.float64() else _kept(present, values, rounded)):
        raise pa.ArrowInvalid
    return numbers


def _values(numbers: pa.Array) -> np.ndarray:
    return np.asarray(numbers.fill_null(0))


def _without(texts: pa.Array, spellings: pa.Array | None) -> pa.Array:
    """The texts, null where they are one of some spellings; without these, where they are empty."""
    if spellings is None:
        missing = np.asarray(pc.binary_length(texts)) == 0  # type: ignore[attr-defined]
    else:
        missing = np.asarray(pc.is_in(texts, spellings).fill_null(False))  # type: ignore[attr-defined]
        missing |= np.asarray(texts.is_null())
    if not missing.any():
        return texts
    _, offsets, content = texts.buffers()
    valid = pa.array(~np.append(np.zeros(texts.offset, bool), missing)).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, offsets, content], offset=texts.offset)


def plain_texts(texts: pa.Array, dialect: Dialect) -> pa.Array:
    """Replaces the marks of numbers.

    Args:
      texts: Texts of numbers.
      dialect: Their marks.

    Returns:
      The texts with a decimal point and without marks of thousands; one that is not written so is no number any more.
    """
    decimal, thousands = dialect.decimal, dialect.thousands
    if thousands:
        # A group of digits too long or short may be a decimal of another dialect: 1.5 is not 15.
        groups = rf"^[+-]?[1-9][0-9]{{0,2}}({re.escape(thousands)}[0-9]{{3}})+({re.escape(decimal)}[0-9]*)?$"
        wrong = pc.and_not(pc.match_substring(texts, thousands), pc.match_substring_regex(texts, groups))
        texts = pc.if_else(wrong, _INVALID, pc.replace_substring(texts, thousands, ""))
    if decimal != ".":
        texts = pc.if_else(pc.match_substring(texts, "."), _INVALID, pc.replace_substring(texts, decimal, "."))
    return texts


def _bytes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes, starts, lengths): the bytes of texts of numbers, where each begins after its sign, and their number."""
    _, places, content = texts.buffers()
    offsets = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    codes = np.frombuffer(content, np.uint8)
    signed = codes[offsets[:-1]] == _MINUS
    return codes, offsets[:-1] + signed, np.diff(offsets) - signed


def _canonical(texts: pa.Array) -> bool:
    """Tells whether texts of integers are what these are written as: without leading zeros, and none is -0."""
    codes, starts, lengths = _bytes(texts)
    zero = codes[starts] == _ZERO
    if not zero.any():
        return True
    negative = starts[zero] > 0
    negative[negative] = codes[starts[zero][negative] - 1] == _MINUS
    # The byte before may be the end of the text before, but this one is not a minus.
    return bool((lengths[zero] == 1).all() and not negative.any())


def _kept(texts: pa.Array, values: np.ndarray, rounded: bool) -> bool:
    """Tells whether doubles keep their texts: digits, exponent, and a magnitude that is neither too large nor small."""
    codes, starts, lengths = _bytes(texts)
    first = codes[starts]
    if (np.isinf(values) & (first <= _NINE)).any():
        return False
    if rounded:
        return True
    # A number begins with one zero at most, before its point.
    longer = np.flatnonzero((first == _ZERO) & (lengths > 1))
    if (codes[starts[longer] + 1] != _POINT).any() or (first == _PLUS).any():
        return False
    begin, end = int(starts[0]), int(starts[-1] + lengths[-1])
    content = codes[begin:end].tobytes()
    long = lengths >= _WHOLE_DIGITS
    if b"e" in content or b"E" in content:
        exponents = pc.match_substring(texts, "e", ignore_case=True)  # type: ignore[attr-defined]
        points = pc.match_substring_regex(texts, r"^-?[0-9]*\.[0-9]*[eE]")  # type: ignore[attr-defined]
        if pc.any(pc.and_not(exponents, points)).as_py():  # type: ignore[attr-defined]
            return False
        scaled = np.asarray(exponents)
    else:
        scaled = np.zeros(len(texts), bool)
    sizes = np.abs(values)
    # Doubles of this magnitude are no longer all integers.
    if (long & ~scaled & (sizes >= _WHOLE)).any():
        return False
    long |= scaled
    if not long.any():
        return True
    # Zeros before the first other digit do not count, and neither does the point.
    digits = lengths - 1
    small = first == _ZERO
    for bound in (1.0, 0.1, 0.01, 0.001):
        digits = digits - (small & (sizes < bound))
    doubtful = np.flatnonzero(long & ((digits > _DIGITS) | (sizes < _LEAST_NORMAL)))
    return not len(doubtful) or _short(texts.take(pa.array(doubtful)), sizes[doubtful])


def _short(texts: pa.Array, sizes: np.ndarray) -> bool:
    """Tells whether no text has too many significant digits, and none but zeros is zero."""
    mantissas = pc.replace_substring_regex(texts, "[eE].*$", "")  # type: ignore[attr-defined]
    # Zeros at the end say nothing more: whole numbers that are too large were refused already.
    digits = pc.ascii_trim(pc.replace_substring_regex(mantissas, "[-.]", ""), "0")  # type: ignore[attr-defined]
    counts = np.asarray(pc.binary_length(digits))  # type: ignore[attr-defined]
    return bool((counts <= _DIGITS).all() and ((sizes >= _LEAST_NORMAL) | (counts == 0)).all())
