"""Exact rational bounds on logarithms and exponentials, for the auditor."""

from __future__ import annotations

import math
from fractions import Fraction


def ln_bounds(x: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Bounds ln(x) from below and from above by rationals; both are 0 for x = 1.

    Each further term of the series, >= 1, shrinks the distance between the bounds by a factor of at least 9. Raises
    ValueError if x <= 0.
    """
    if x <= 0:
        raise ValueError("ln needs a number > 0")
    if x < 1:
        lower, upper = ln_bounds(1 / x, terms)
        return -upper, -lower
    exponent = math.floor(x).bit_length() - 1
    rest = x / (1 << exponent)  # in [1, 2), so that z below is in [0, 1/3)
    lower, upper = _twice_atanh((rest - 1) / (rest + 1), terms)
    two_lower, two_upper = _twice_atanh(Fraction(1, 3), terms)  # ln 2
    return lower + exponent * two_lower, upper + exponent * two_upper


def _twice_atanh(z: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Bounds 2 atanh(z) = ln((1 + z) / (1 - z)), the sum of 2 z^(2i+1) / (2i+1), for 0 <= z < 1.

    The omitted terms, i >= n, are >= 0 and sum to at most 2 z^(2n+1) / (2n+1) * (1 + z^2 + z^4 + ...).
    """
    power, total = 2 * z, Fraction(0)
    for i in range(terms):
        total += power / (2 * i + 1)
        power *= z * z
    return total, total + power / ((2 * terms + 1) * (1 - z * z))


def ln_at_most(x: Fraction, bound: Fraction) -> bool:
    """Decides ln(x) <= bound exactly, for x > 0.

    Terminates: ln of a rational other than 1 is irrational (Lindemann) and therefore never equals the bound; ln 1 is
    computed exactly.
    """
    terms = 32
    while True:
        lower, upper = ln_bounds(x, terms)
        if upper <= bound or lower > bound:
            return upper <= bound
        terms *= 2


def ln_rounded_up(x: Fraction) -> float:
    """Least float >= ln(x), for x >= 1."""
    value = rounded_up(ln_bounds(x, 32)[1])
    while value > 0 and ln_at_most(x, Fraction(below := math.nextafter(value, 0))):
        value = below
    return value


def rounded_up(x: Fraction) -> float:
    """Least float >= x; infinity above the largest float."""
    try:
        value = float(x)
    except OverflowError:
        return math.inf
    return value if Fraction(value) >= x else math.nextafter(value, math.inf)


def exp_lower_bound(x: Fraction) -> Fraction:
    """Bounds e^x from below, as a sum of the first terms of its series, each rounded down, for x in [0, 64].

    The relative distance is about 2^-340.
    """
    unit = 1 << 512
    power, total, n = unit, 0, 0
    while power:
        total += power
        n += 1
        power = power * x.numerator // (n * x.denominator)
    return Fraction(total, unit)
