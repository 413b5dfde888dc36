"""Numbers as text for readers: labels, probabilities in [0, 1], proven bounds."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction


def number(value: float) -> str:
    """Formats any float but NaN to four significant digits; "infinite" for an infinite one.

    The text has thousands separators and a typographic minus sign.
    """
    if value == 0 or not math.isfinite(value):
        return {0.0: "0"}.get(value, "infinite")
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", "\u2212")


def exact(value: float) -> str:
    """Formats a finite label without rounding it, in up to 15 significant digits.

    The text has thousands separators and a typographic minus sign.
    """
    return f"{value:,.15g}".replace("-", "\u2212")


def label_range(first: float, last: float) -> str:
    """Formats a range of labels: both ends, or the label itself where they are equal."""
    return exact(first) if first == last else f"{exact(first)} to {exact(last)}"


def percent(share: float) -> str:
    """Formats a probability in percent to three significant digits; "100%" and "0%" stand for exactly 1 and 0."""
    text = f"{100 * share:.3g}"
    if text == "100" and share < 1:
        text = "99.9+"
    return f"{text}%".replace("-", "\u2212")


def whole_percent(share: float) -> str:
    """Formats a probability in whole percent, where there is no space for `percent`.

    "100%" and "0%" stand for exactly 1 and 0.
    """
    text = f"{100 * share:.0f}%"
    if text == "0%" and share > 0:
        return "<1%"
    return ">99%" if text == "100%" and share < 1 else text


def upper_bound(value: float | Fraction) -> str:
    """Formats a proven, finite upper bound to four significant digits, rounded up: a number that is not below it."""
    fraction = Fraction(value)
    rounded = Context(prec=4, rounding=ROUND_CEILING).divide(Decimal(fraction.numerator), Decimal(fraction.denominator))
    return f"{float(rounded):.4g}"


def all_digits(value: float) -> str:
    """Shortest text from which any float but NaN can be read back without loss; "infinite" for an infinite one."""
    return repr(value) if math.isfinite(value) else "infinite"


def clipped(text: str, max_length: int) -> str:
    """Shortens a text that a user chose, such as a column name, to its beginning and an ellipsis.

    At most `max_length` characters are kept, >= 1.
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "\u2026"
