"""Numbers of CSV fields. A text becomes a number only if the number keeps all of it; else it is refused.

Labels may be truth values as well: true is 1 and false is 0, in any case.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pa_csv

from ..io.csv_dialect import Dialect

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute

MISSING = pa.array(pa_csv.ConvertOptions().null_values, pa.string())
"""Texts that are missing values in columns of numbers, such as NA and the empty text."""

TOGETHER = 1 << 13
"""Texts that are checked at a time: few stay in the processor's cache."""
# Significant digits that doubles are written with: each double has its own text of that many.
_DIGITS = 17
# Doubles below hold every integer; others are written with at least so many digits.
_WHOLE, _WHOLE_DIGITS = 2.0**53, 16
_LEAST_NORMAL = np.finfo(np.float64).tiny
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _EXPONENT, _LOWER = b"-+.09e "
# No number, whatever the marks are.
_INVALID = pa.scalar("?")
_TRUTH = {"true": "1", "false": "0"}

Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray)


def read_numbers(
    texts: pa.Array, kind: pa.DataType, dialect: Dialect, rounded: bool = False, together: int = TOGETHER
) -> pa.Array:
    """Converts texts to numbers of `kind`: int64, uint64 or float64.

    `texts` are fields of n records, binary; spaces around a number are no part of it. The result has shape (n,), with
    null where the text is one of `MISSING`, or spaces and tabs. If `rounded`, any decimal text becomes the nearest
    double, instead of only those that it keeps. Raises pa.ArrowInvalid if a text is no number, or another one than the
    number is written as. `together` texts are checked at a time.
    """
    texts = _without(texts.view(pa.string()), None)
    numbers = None if dialect.marked else _numbers(texts, kind)
    # Most spellings of missing values are no numbers, but some are NaN.
    if numbers is None or (kind == pa.float64() and np.isnan(_values(numbers)).any()):
        texts = _without(texts, MISSING)
        if dialect.marked:
            texts = plain_texts(pc.ascii_trim(texts, " \t"), dialect)
        numbers = _numbers(texts, kind)
        if numbers is None:
            texts = _without(pc.ascii_trim(texts, " \t"), MISSING)
            numbers = texts.cast(kind)
    # Missing values are texts that no check looks at.
    for begin in range(0, len(texts), together):
        some = texts.slice(begin, together)
        fields = _Fields.of(some)
        values = _values(numbers.slice(begin, together))
        if not (_canonical(fields) if kind != pa.float64() else _kept(some, fields, values, rounded)):
            raise pa.ArrowInvalid
    return numbers


def with_truth_numbers(texts: Texts) -> Texts:
    """Replaces truth values among labels by texts of numbers, and texts of missing numbers by nulls.

    Each text is replaced by itself, whatever the others are. It has no spaces around it where it is a truth value.
    """
    texts = pc.if_else(pc.is_in(pc.ascii_trim(texts, " \t"), MISSING), None, texts)
    lower = pc.utf8_lower(texts)
    for word, number in _TRUTH.items():
        texts = pc.if_else(pc.equal(lower, word), number, texts)
    return texts


def plain_texts(texts: pa.Array, dialect: Dialect) -> pa.Array:
    """Texts of numbers with a decimal point and without marks of thousands.

    A text that is not written with the marks of the dialect is no number any more.
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


def _numbers(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _values(numbers: pa.Array) -> np.ndarray:
    return np.asarray(numbers.fill_null(0))


def _without(texts: pa.Array, spellings: pa.Array | None) -> pa.Array:
    """The texts, null where they are one of some spellings; without these, where they are empty."""
    if spellings is None:
        missing = np.asarray(pc.binary_length(texts)) == 0
    else:
        missing = np.asarray(pc.is_in(texts, spellings).fill_null(False))
        missing |= np.asarray(texts.is_null())
    if not missing.any():
        return texts
    _, offsets, content = texts.buffers()
    valid = pa.array(~np.append(np.zeros(texts.offset, bool), missing)).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, offsets, content], offset=texts.offset)


@dataclass(frozen=True)
class _Fields:
    """Bytes of n texts of numbers. Those of a missing one may be those of the next text.

    Attributes:
      codes: All bytes, and one more.
      begins: Place of each text, then the end of the last, shape (n + 1,).
      heads: First byte of each, shape (n,).
      signed: Whether each begins with a minus, shape (n,).
    """

    codes: np.ndarray
    begins: np.ndarray
    heads: np.ndarray
    signed: np.ndarray

    @classmethod
    def of(cls, texts: pa.Array) -> _Fields:
        _, offsets, content = texts.buffers()
        begins = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.intp)
        codes = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
        heads = codes.take(begins[:-1], mode="clip")
        return cls(codes, begins, heads, heads == _MINUS)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Place of each number, behind its sign, shape (n,)."""
        return self.begins[:-1] + self.signed if self.signed.any() else self.begins[:-1]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Length of each number without its sign, shape (n,)."""
        lengths = np.diff(self.begins)
        return np.maximum(lengths - self.signed, 0) if self.signed.any() else lengths

    @functools.cached_property
    def first(self) -> np.ndarray:
        """First byte of each number, behind its sign, shape (n,)."""
        return self.codes.take(self.starts, mode="clip") if self.signed.any() else self.heads


def _canonical(fields: _Fields) -> bool:
    """Tells whether texts of integers are what these are written as: without leading zeros, and none is -0."""
    zero = fields.first == _ZERO
    return not zero.any() or not (zero & (fields.signed & (fields.lengths > 0) | (fields.lengths > 1))).any()


def _kept(texts: pa.Array, fields: _Fields, values: np.ndarray, rounded: bool) -> bool:
    """Tells whether doubles keep their texts: digits, exponent, and a magnitude that is neither too large nor small."""
    first, lengths = fields.first, fields.lengths
    sizes = np.abs(values)
    if sizes.max(initial=0) == np.inf and ((sizes == np.inf) & (first <= _NINE)).any():
        return False
    if rounded:
        return True
    # A number begins with one zero at most, before its point.
    zero = first == _ZERO
    longer = zero & (lengths > 1)
    if (longer & (fields.codes.take(fields.starts + 1, mode="clip") != _POINT)).any():
        return False
    if (fields.heads == _PLUS).any() and ((fields.heads == _PLUS) & (lengths > 0)).any():
        return False
    long, scaled = lengths >= _WHOLE_DIGITS, _scaled(fields)
    if not len(scaled) and not long.any():
        return True
    whole = long.copy()
    if len(scaled):
        if not pc.all(pc.match_substring_regex(texts.take(pa.array(scaled)), r"^-?[0-9]*\.[0-9]*[eE]")).as_py():
            return False
        whole[scaled], long[scaled] = False, True
    # Doubles of this magnitude are no longer all integers.
    if (whole & (sizes >= _WHOLE)).any():
        return False
    # Zeros before the first other digit do not count, and neither does the point.
    digits = lengths - 1
    for bound in (1.0, 0.1, 0.01, 0.001):
        if not (long & (digits > _DIGITS)).any():
            break
        digits = digits - (zero & (sizes < bound))
    doubtful = np.flatnonzero(long & ((digits > _DIGITS) | (sizes < _LEAST_NORMAL)))
    return not len(doubtful) or _short(texts.take(pa.array(doubtful)), sizes[doubtful])


def _scaled(fields: _Fields) -> np.ndarray:
    """Indices of the texts with an exponent, ascending."""
    begin, end = fields.begins[0], fields.begins[-1]
    codes = fields.codes[begin:end]
    places = np.flatnonzero((codes | _LOWER) == _EXPONENT)
    # No missing value, and no text of infinity, has this letter.
    return np.unique(np.searchsorted(fields.begins, places + begin, side="right") - 1)


def _short(texts: pa.Array, sizes: np.ndarray) -> bool:
    """Tells whether no text has too many significant digits, and none but zeros is zero."""
    mantissas = pc.replace_substring_regex(texts, "[eE].*$", "")
    # Zeros at the end say nothing more: whole numbers that are too large were refused already.
    digits = pc.ascii_trim(pc.replace_substring_regex(mantissas, "[-.]", ""), "0")
    counts = np.asarray(pc.binary_length(digits))
    return bool((counts <= _DIGITS).all() and ((sizes >= _LEAST_NORMAL) | (counts == 0)).all())
