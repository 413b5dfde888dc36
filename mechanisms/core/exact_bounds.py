"""Exact rational bounds on logarithms and exponentials, and directed rounding of rationals to floats."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

# Decimal digits of exp and ln. The decimal module rounds both correctly (to half a unit in the last place), so the next
# decimal below or above the result is a bound.
_DIGITS = 60


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
