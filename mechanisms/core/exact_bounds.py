"""Exact bounds on logarithms and exponentials, directed rounding to floats, and the decimals that floats mean."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

# Decimal digits of exp and ln. The decimal module rounds both correctly (to half a unit in the last place), so the next
# decimal below or above the result is a bound.
_DIGITS = 60
_DECIMAL_DIGITS = 10
"""Digits of a budget that a person writes. Of computed bounds, one in a million is the float of such a decimal."""


def decimal_value(number: float) -> Fraction:
    """Reads a budget, a finite float or an integer, as it was written.

    The result is the decimal of at most ten significant digits that the float was read from, such as 1/10 of 0.1. It is
    the float itself if there is none: a computed bound counts as it is.
    """
    number = float(number)
    decimal = Decimal(repr(number))
    return Fraction(decimal) if len(decimal.normalize().as_tuple().digits) <= _DECIMAL_DIGITS else Fraction(number)


def within_decimal(number: float) -> float:
    """Largest float that is neither above a finite number nor above its `decimal_value`."""
    return round_down(min(Fraction(number), decimal_value(number)))


def shown_above(exact: Fraction) -> float:
    """Rounds a sum of budgets to a float that is written as no less.

    The result is the nearest float if its `decimal_value` is at least the sum, such as 0.3 for 3/10; else the next one
    above.
    """
    nearest = float(exact)
    return nearest if decimal_value(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """Largest float that is not above a rational, which is within the range of floats."""
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def round_up(exact: Fraction) -> float:
    """Smallest float that is not below a rational, which is within the range of floats."""
    return 0.0 - round_down(-exact)


def exp_below(exponent: Fraction) -> Fraction:
    """Rational >= 1 that is proven not to be above exp(exponent), for an exponent >= 0.

    Its relative error is at most 10^-50.
    """
    if exponent == 0:
        return Fraction(1)
    below = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    argument = below.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return max(Fraction(below.next_minus(below.exp(argument))), Fraction(1))


def exp_above(exponent: Fraction) -> Fraction:
    """Rational that is proven not to be below exp(exponent), for an exponent >= 0.

    For exponents below 10^8 its relative error is at most 10^-50.
    """
    if exponent == 0:
        return Fraction(1)
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    argument = above.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(above.next_plus(above.exp(argument)))


def log_above(ratio: Fraction) -> float:
    """Smallest float that is proven not to be below ln(ratio), for a ratio >= 1."""
    if ratio == 1:
        return 0.0
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    argument = above.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return round_up(Fraction(above.next_plus(above.ln(argument))))


def satisfies_epsilon(ratio: Fraction, epsilon: float) -> bool:
    """True if ln(ratio) <= epsilon is proven, for a likelihood ratio >= 1 and an epsilon >= 0."""
    return ratio <= exp_below(Fraction(epsilon))
