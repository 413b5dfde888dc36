"""Numbers as text for readers of the report: labels, probabilities and proven bounds."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction


def number(value: float) -> str:
    """Formats a value to four significant digits.

    Args:
      value: Any float but NaN.

    Returns:
      The text, with thousands separators and a typographic minus sign; "infinite" for an infinite value.
    """
    if value == 0 or not math.isfinite(value):
        return {0.0: "0"}.get(value, "infinite")
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", "\u2212")


def exact(value: float) -> str:
    """Formats a label without rounding it.

    Args:
      value: A finite float.

    Returns:
      Up to 15 significant digits, with thousands separators and a typographic minus sign.
    """
    return f"{value:,.15g}".replace("-", "\u2212")


def label_range(first: float, last: float) -> str:
    """Formats a range of labels.

    Args:
      first: Lowest label.
      last: Highest label, >= first.

    Returns:
      Both ends, or the label itself where they are equal.
    """
    return exact(first) if first == last else f"{exact(first)} to {exact(last)}"


def percent(share: float) -> str:
    """Formats a probability in percent to three significant digits.

    Args:
      share: In [0, 1].

    Returns:
      The text. "100%" and "0%" stand for exactly 1 and 0.
    """
    text = f"{100 * share:.3g}"
    if text == "100" and share < 1:
        text = "99.9+"
    return f"{text}%".replace("-", "\u2212")


def whole_percent(share: float) -> str:
    """Formats a probability in whole percent, where there is no space for `percent`.

    Args:
      share: In [0, 1].

    Returns:
      The text. "100%" and "0%" stand for exactly 1 and 0.
    """
    text = f"{100 * share:.0f}%"
    if text == "0%" and share > 0:
        return "<1%"
    return ">99%" if text == "100%" and share < 1 else text


def upper_bound(value: float | Fraction) -> str:
    """Formats a proven upper bound to four significant digits, rounded up.

    Args:
      value: The bound, finite.

    Returns:
      A decimal number that is not below the value.
    """
    fraction = Fraction(value)
    rounded = Context(prec=4, rounding=ROUND_CEILING).divide(Decimal(fraction.numerator), Decimal(fraction.denominator))
    return f"{float(rounded):.4g}"


def all_digits(value: float) -> str:
    """Formats a float so that it can be read back without loss.

    Args:
      value: Any float but NaN.

    Returns:
      The shortest text that stands for this float; "infinite" for an infinite value.
    """
    return repr(value) if math.isfinite(value) else "infinite"


def clipped(text: str, max_length: int) -> str:
    """Shortens a text that a user chose, such as a column name.

    Args:
      text: The text.
      max_length: Characters to keep at most, >= 1.

    Returns:
      The text, or its beginning and an ellipsis if it is longer.
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "\u2026"
