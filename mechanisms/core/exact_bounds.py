"""Exact bounds on logarithms and exponentials, directed rounding to floats, and the decimals that floats mean."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

# Decimal digits of exp and ln. The decimal module rounds both correctly (to half a unit in the last place), so the next
# decimal below or above the result is a bound.
_DIGITS = 60
_DECIMAL_DIGITS = 15
"""Different decimals of so many digits are different floats."""


def decimal_value(number: float) -> Fraction:
    """Reads a budget as it was written.

    Args:
      number: A finite float, or an integer.

    Returns:
      The decimal of at most 15 significant digits that the float was read from, such as 1/10 of 0.1. The float itself
      if there is none: a computed bound counts as it is.
    """
    decimal = Decimal(repr(number))
    return Fraction(decimal) if len(decimal.normalize().as_tuple().digits) <= _DECIMAL_DIGITS else Fraction(number)


def within_decimal(number: float) -> float:
    """Rounds a budget down where its float is above the decimal that was written.

    Args:
      number: A finite float.

    Returns:
      The largest float that is neither above the number nor above its `decimal_value`.
    """
    return round_down(min(Fraction(number), decimal_value(number)))


def shown_above(exact: Fraction) -> float:
    """Rounds a sum of budgets to a float that is written as no less.

    Args:
      exact: Any rational within the range of floats.

    Returns:
      The nearest float if its `decimal_value` is at least the sum, such as 0.3 for 3/10; else the next one above.
    """
    nearest = float(exact)
    return nearest if decimal_value(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """Rounds a rational down to a float.

    Args:
      exact: Any rational within the range of floats.

    Returns:
      The largest float that is not above `exact`.
    """
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def round_up(exact: Fraction) -> float:
    """Rounds a rational up to a float.

    Args:
      exact: Any rational within the range of floats.

    Returns:
      The smallest float that is not below `exact`.
    """
    return 0.0 - round_down(-exact)


def exp_below(exponent: Fraction) -> Fraction:
    """Computes a rational lower bound of exp(exponent).

    Args:
      exponent: A rational >= 0.

    Returns:
      A rational >= 1 that is proven not to be above exp(exponent); its relative error is at most 10^-50.
    """
    if exponent == 0:
        return Fraction(1)
    below = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    argument = below.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return max(Fraction(below.next_minus(below.exp(argument))), Fraction(1))


def exp_above(exponent: Fraction) -> Fraction:
    """Computes a rational upper bound of exp(exponent).

    Args:
      exponent: A rational >= 0.

    Returns:
      A rational that is proven not to be below exp(exponent); for exponents below 10^8 its relative error is at most
      10^-50.
    """
    if exponent == 0:
        return Fraction(1)
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    argument = above.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(above.next_plus(above.exp(argument)))


def log_above(ratio: Fraction) -> float:
    """Computes a float upper bound of ln(ratio).

    Args:
      ratio: A rational >= 1.

    Returns:
      The smallest float that is proven not to be below ln(ratio).
    """
    if ratio == 1:
        return 0.0
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    argument = above.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return round_up(Fraction(above.next_plus(above.ln(argument))))


def satisfies_epsilon(ratio: Fraction, epsilon: float) -> bool:
    """Checks a likelihood ratio against epsilon.

    Args:
      ratio: Largest likelihood ratio, >= 1.
      epsilon: Privacy parameter, >= 0.

    Returns:
      True if ln(ratio) <= epsilon is proven.
    """
    return ratio <= exp_below(Fraction(epsilon))
