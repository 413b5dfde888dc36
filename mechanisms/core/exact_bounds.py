"""Exact rational bounds on logarithms and exponentials, and directed rounding of rationals to floats."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction


def round_down(exact: Fraction) -> float:
    """The largest float that is not above exact."""
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below exact."""
    return 0.0 - round_down(-exact)


# exp and ln of the decimal module are correctly rounded (to half a unit in the last place), so one step
# outwards at this precision is a bound.
_DIGITS = 60


def exp_below(exponent: Fraction) -> Fraction:
    """A rational that is certainly not above exp(exponent), and within a relative 10^-50 of it. exponent >= 0."""
    if exponent == 0:
        return Fraction(1)
    below = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    argument = below.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return max(Fraction(below.next_minus(below.exp(argument))), Fraction(1))


def log_above(ratio: Fraction) -> float:
    """The smallest float that is certainly not below ln(ratio). ratio >= 1."""
    if ratio == 1:
        return 0.0
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    argument = above.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return round_up(Fraction(above.next_plus(above.ln(argument))))


def within(ratio: Fraction, epsilon: float) -> bool:
    """Whether ln(ratio) <= epsilon is proven."""
    return ratio <= exp_below(Fraction(epsilon))
