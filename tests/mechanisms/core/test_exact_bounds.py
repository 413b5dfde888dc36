"""Exact bounds: exp and ln bounded by rationals, and rationals rounded to floats in a direction."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.exact_bounds import (
    decimal_value,
    exp_above,
    exp_below,
    log_above,
    round_down,
    round_up,
    satisfies_epsilon,
    shown_above,
    within_decimal,
)

EXPONENT = st.one_of(
    st.floats(0, 30).map(Fraction),
    st.floats(0, 1e-6).map(Fraction),
    st.fractions(0, 30),
)
RATIO = st.one_of(
    st.tuples(st.integers(1, 1 << 62), st.integers(1, 1 << 62)).map(lambda pair: Fraction(max(pair), min(pair))),
    # Ratios just above 1, as for a tiny epsilon.
    st.tuples(st.integers(1, 1 << 62), st.integers(0, 1 << 20)).map(lambda pair: Fraction(sum(pair), pair[0])),
)
FRACTION = st.one_of(
    st.fractions(-(10**9), 10**9),
    st.fractions().map(lambda exact: exact / 10**30),
    st.floats(-1e300, 1e300).map(Fraction),
)


# Bounds on exp and ln.


@settings(deadline=None)
@given(exponent=EXPONENT)
def test_exp_below_is_a_tight_lower_bound(exponent, exp_bracket):
    low, high = exp_bracket(exponent)
    bound = exp_below(exponent)
    # The bound may equal exp only at 0, where exp is rational.
    assert bound <= low
    assert bound >= high * (1 - Fraction(1, 10**50))
    assert bound >= 1


@settings(deadline=None)
@given(exponent=EXPONENT)
def test_exp_above_is_a_tight_upper_bound(exponent, exp_bracket):
    low, high = exp_bracket(exponent)
    bound = exp_above(exponent)
    assert high <= bound <= low * (1 + Fraction(1, 10**50))


@settings(deadline=None)
@given(ratio=RATIO)
def test_log_above_is_the_least_float_not_below(ratio, exp_bracket):
    bound = log_above(ratio)
    assert exp_bracket(Fraction(bound))[0] >= ratio
    if bound > 0:
        assert exp_bracket(Fraction(math.nextafter(bound, 0.0)))[1] < ratio


@settings(deadline=None)
@given(ratio=RATIO, epsilon=st.floats(1e-9, 30))
def test_satisfies_epsilon_is_the_exact_comparison(ratio, epsilon, exp_bracket):
    low, high = exp_bracket(Fraction(epsilon))
    assert satisfies_epsilon(ratio, epsilon) == (ratio <= high)
    assert low <= exp_bracket(Fraction(math.nextafter(epsilon, 31.0)))[0]


@settings(deadline=None)
@given(ratio=RATIO)
def test_the_certified_epsilon_admits_its_ratio(ratio):
    assert satisfies_epsilon(ratio, log_above(ratio))


def test_the_yardstick_agrees_with_the_math_module(exp_bracket):
    for exponent in (Fraction(0), Fraction(1), Fraction(1, 3), Fraction(30)):
        low, high = exp_bracket(exponent)
        assert low <= high <= low * (1 + Fraction(1, 1 << 300))
        assert float(low) == pytest.approx(math.exp(exponent), rel=1e-14)
    digits = 2718281828459045235360287471352662497757247093699959574966967627724076630353
    assert exp_bracket(Fraction(1))[0] <= Fraction(digits + 1, 10**75)
    assert exp_bracket(Fraction(1))[1] >= Fraction(digits, 10**75)


# Directed rounding.


@settings(deadline=None)
@given(FRACTION)
def test_rounding_down_and_up_enclose_tightly(exact):
    below, above = round_down(exact), round_up(exact)
    assert Fraction(below) <= exact < Fraction(math.nextafter(below, math.inf))
    assert Fraction(math.nextafter(above, -math.inf)) < exact <= Fraction(above)
    assert round_down(-exact) == -above


@given(st.floats(-1e300, 1e300))
def test_a_float_rounds_to_itself(value):
    assert round_down(Fraction(value)) == round_up(Fraction(value)) == value


# The decimals that floats mean.


@pytest.mark.parametrize("text", ["0.1", "0.3", "1", "30", "1e-06", "2.5e-9", "0.1234567891", "1.1", "0.0", "1e9"])
def test_a_decimal_counts_as_it_was_written(text):
    assert decimal_value(float(text)) == Fraction(text)
    assert within_decimal(float(text)) <= Fraction(text) < math.nextafter(within_decimal(float(text)), math.inf)


def test_whole_numbers_and_those_of_numpy_count_as_they_are():
    assert decimal_value(3) == 3
    assert decimal_value(np.float64(0.1)) == Fraction(1, 10)
    assert decimal_value(float(np.float32(0.1))) == Fraction(float(np.float32(0.1)))


@settings(deadline=None)
@given(digits=st.integers(0, 10**10 - 1), exponent=st.integers(-40, 9))
def test_every_decimal_of_ten_digits_is_told_from_its_float(digits, exponent):
    assert decimal_value(float(f"{digits}e{exponent}")) == Fraction(f"{digits}e{exponent}")


@settings(deadline=None)
@given(number=st.floats(0, 1e9))
def test_a_computed_bound_counts_as_it_is(number):
    digits = len(Decimal(repr(number)).normalize().as_tuple().digits)
    assert decimal_value(number) == (Fraction(repr(number)) if digits <= 10 else Fraction(number))
    assert within_decimal(number) in (number, math.nextafter(number, 0))


@settings(deadline=None)
@given(exact=st.fractions(0, 100) | st.floats(0, 100).map(Fraction))
def test_a_sum_is_shown_as_no_less_and_closely(exact):
    shown = shown_above(exact)
    assert decimal_value(shown) >= exact
    assert shown in (float(exact), math.nextafter(float(exact), math.inf))


def test_a_sum_of_decimals_is_shown_as_a_decimal():
    assert shown_above(3 * Fraction(1, 10)) == 0.3
