"""Budget: the range of epsilon, a split that never exceeds it, and exact bounds.

Rationals bound exp and ln, and are rounded to floats in a direction.
"""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import split_budget
from labeldp.mechanisms.core.budget import (
    PUBLIC_SHARE,
    UNBIASED_SHARE,
    BudgetSplit,
    check_epsilon,
    decimal_budget,
    decimal_value,
    exp_below,
    log_above,
    round_down,
    round_up,
    satisfies_epsilon,
    shown_above,
    within_decimal,
)

EPSILON = st.floats(2e-9, 30.0)
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


@pytest.mark.parametrize("epsilon", [0, 0.0, -0.0, -1.0, 9e-10, 30.000001, math.inf, -math.inf, math.nan])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be between"):
        check_epsilon(epsilon)
    with pytest.raises(ValueError, match="epsilon must be between"):
        split_budget(epsilon, 10, 1000)


def test_the_rule_is_the_root_of_labels_over_records():
    split = split_budget(3.0, 100, 10_000)
    assert (split.prior, split.labels) == (pytest.approx(0.1, abs=2**-24), pytest.approx(2.9, abs=2**-24))


def test_the_histogram_gets_no_more_than_half():
    assert split_budget(0.5, 100, 400) == BudgetSplit(0.25, 0.25)
    assert split_budget(1.0, 400, 100) == BudgetSplit(0.5, 0.5)


def test_the_histogram_gets_no_more_than_the_share_of_the_mechanism():
    assert split_budget(1.0, 400, 100, most=UNBIASED_SHARE) == BudgetSplit(1 / 128, 127 / 128)
    assert split_budget(1.0, 400, 100, most=PUBLIC_SHARE) == BudgetSplit(1 / 256, 255 / 256)
    assert split_budget(8.0, 4, 10**6, most=UNBIASED_SHARE).prior == pytest.approx(0.002, abs=2**-24)


@settings(deadline=None)
@given(EPSILON, st.integers(1, 10**5), st.integers(1, 10**12))
def test_the_split_follows_the_rule_and_never_exceeds_epsilon(epsilon, labels, records):
    split = split_budget(epsilon, labels, records)
    rule = min(math.sqrt(labels / records), epsilon / 2)
    assert 0 < split.prior <= rule
    assert split.prior == rule or split.prior > rule - 2**-24
    assert split.total <= epsilon
    assert Fraction(split.prior) + Fraction(split.labels) <= Fraction(epsilon)
    assert Fraction(split.prior) + Fraction(math.nextafter(split.labels, math.inf)) > Fraction(epsilon)


@settings(deadline=None)
@given(EPSILON, st.floats(1e-9, 30.0))
def test_a_given_prior_epsilon_is_taken_as_it_is(epsilon, prior_epsilon):
    assume(epsilon - prior_epsilon >= 1.1e-9)
    split = split_budget(epsilon, 10, 1000, prior_epsilon)
    assert split.prior == prior_epsilon
    assert Fraction(split.prior) + Fraction(split.labels) <= Fraction(epsilon)
    assert Fraction(split.prior) + Fraction(math.nextafter(split.labels, math.inf)) > Fraction(epsilon)


@pytest.mark.parametrize("prior_epsilon", [0.0, -0.5, 1.0, 1.5, 1e-10, math.nan, math.inf, math.nextafter(1.0, 0.0)])
def test_a_prior_epsilon_that_leaves_nothing_is_refused(prior_epsilon):
    with pytest.raises(ValueError, match="prior_epsilon"):
        split_budget(1.0, 10, 1000, prior_epsilon)


@pytest.mark.parametrize("prior", [-1e-9, math.nan, math.inf, -math.inf])
def test_a_split_needs_a_finite_prior_epsilon_that_is_not_negative(prior):
    with pytest.raises(ValueError, match="of the prior must be finite and not negative"):
        BudgetSplit(prior, 1.0)


@pytest.mark.parametrize("labels", [0.0, -1.0, 9e-10, math.nan, math.inf])
def test_a_split_needs_an_epsilon_in_range_for_the_labels(labels):
    with pytest.raises(ValueError, match="epsilon must be between"):
        BudgetSplit(0.5, labels)


def test_the_parts_of_a_split_have_a_range_each_and_their_sum_has_none():
    assert BudgetSplit(0.0, 30.0).total == 30.0
    # The prior and the labels may have been released with separate budgets.
    assert BudgetSplit(15.0, 20.0).total == 35.0


def test_the_total_of_a_split_is_rounded_up():
    assert BudgetSplit(1e-20, 1.0).total == math.nextafter(1.0, math.inf)


@pytest.mark.parametrize("epsilon", [2e-9, 1e-9, 1e-8, 0.1, 0.3, 1.0, 1.1, 30.0])
def test_a_budget_is_not_above_its_decimal(epsilon: float) -> None:
    found = decimal_budget(epsilon)
    assert found in (epsilon, math.nextafter(epsilon, 0))
    assert Fraction(found) <= Fraction(str(epsilon)) or epsilon <= 2e-9
    split = split_budget(found, 5, 1000) if epsilon > 1e-9 else None
    assert split is None or Fraction(split.prior) + Fraction(split.labels) <= Fraction(found)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 1.1])
def test_the_parts_of_a_decimal_budget_add_up_to_at_most_it_in_a_ledger(epsilon: float) -> None:
    """Also where the randomizer leaves nothing of its part: parts count as the floats that they are."""
    for records in range(3, 20_000, 7):
        split = split_budget(decimal_budget(epsilon), 5, records)
        assert decimal_value(split.prior) + decimal_value(split.labels) <= decimal_value(epsilon)


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


# The decimals that floats mean.


@pytest.mark.parametrize("text", ["0.1", "0.3", "1", "30", "1e-06", "2.5e-9", "0.1234567891", "1.1", "0.0", "1e9"])
def test_a_decimal_counts_as_it_was_written(text):
    assert decimal_value(float(text)) == Fraction(text)
    assert within_decimal(float(text)) <= Fraction(text) < math.nextafter(within_decimal(float(text)), math.inf)


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
