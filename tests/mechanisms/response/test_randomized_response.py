"""Randomized response: the paper's probabilities, rounded so that epsilon holds; refused where rounding cannot."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.response.randomized_response import RandomizedResponse, randomized_response

TOTAL = 1 << 62


def rr(k: int, epsilon: float):
    return RandomizedResponse().solve(Prior(np.arange(k, dtype=float), np.ones(k)), epsilon)


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(0.01, 20))
def test_probabilities_are_those_of_the_formula(k, epsilon):
    ratio = math.exp(epsilon)
    expected = np.full((k, k), 1 / (ratio + k - 1))
    np.fill_diagonal(expected, ratio / (ratio + k - 1))
    np.testing.assert_allclose(rr(k, epsilon).probabilities(), expected, rtol=1e-15 * (8 + epsilon), atol=2e-18)


@settings(deadline=None)
@given(k=st.integers(2, 60), epsilon=st.floats(0.01, 30))
def test_the_exact_ratio_is_just_under_exp_epsilon(k, epsilon, exp_bracket):
    randomizer = rr(k, epsilon)
    ratio = randomizer.certificate().ratio
    assert ratio is not None
    low, high = exp_bracket(Fraction(epsilon))
    assert ratio <= high
    other = int(randomizer.weights.min())
    # Taking one more unit from each of the other outputs would exceed epsilon.
    assert Fraction(TOTAL - (k - 1) * (other - 1), other - 1) > low
    # The other outputs' weight is rounded up by less than one unit, which reduces the ratio by at most this much.
    assert ratio >= low * (1 - Fraction(1, other)) - Fraction(k - 1, other)
    assert randomizer.certificate().epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 5.0, 30.0])
def test_two_labels_use_every_unit_that_epsilon_allows(epsilon, exp_bracket):
    low, high = exp_bracket(Fraction(epsilon))
    own = int(rr(2, epsilon).weights.max())
    assert own == TOTAL * low // (1 + low) == TOTAL * high // (1 + high)


def test_labels_are_reported_at_their_own_output():
    randomizer = randomized_response(
        np.arange(4.0), np.array([10.0, 20.0]), np.array([0, 0, 1, 0]), math.log(3) + 1e-12, "rr"
    )
    np.testing.assert_allclose(
        randomizer.probabilities(), [[0.75, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.25]], rtol=1e-11
    )


def test_the_prior_plays_no_part():
    labels = np.array([0.0, 1.0, 5.0])
    first, second = (solve("rr", Prior(labels, np.array(weights)), 1.0) for weights in ([1, 0, 0], [1, 2, 3]))
    assert first == second


def test_an_epsilon_too_small_for_so_many_outputs_is_refused():
    # Rounding the weight of the d - 1 other outputs up takes more from the own output than exp(epsilon) adds to it.
    outputs = 1_000_000
    with pytest.raises(ValueError, match="epsilon 1e-09 is too small for 1000000 outputs"):
        randomized_response(np.zeros(1), np.zeros(outputs), np.zeros(1, np.int64), 1e-9, "rr")


def test_too_many_cells_are_refused_before_they_are_made():
    with pytest.raises(ValueError, match="use a larger label step"):
        rr(8193, 1.0)
