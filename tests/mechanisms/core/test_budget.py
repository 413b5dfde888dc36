"""Budget: the range of epsilon, and a split that never exceeds it."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import split_budget
from labeldp.mechanisms.core.budget import PUBLIC_SHARE, UNBIASED_SHARE, BudgetSplit, check_epsilon, decimal_budget
from labeldp.mechanisms.core.exact_bounds import decimal_value

EPSILON = st.floats(2e-9, 30.0)


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
