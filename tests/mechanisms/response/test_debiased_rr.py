"""Debiased randomized response: its formula, a bias of one rounding error at most, and the certificate."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import SQUARED, Prior
from labeldp.mechanisms.response.debiased_rr import DebiasedResponse
from labeldp.mechanisms.response.randomized_response import RandomizedResponse

TOTAL = 1 << 62


@st.composite
def priors(draw: st.DrawFn) -> Prior:
    """1 to 60 labels, evenly spaced or not, with zero masses."""
    k = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    labels = np.cumsum(rng.choice([0.25, 1.0, 7.5], k) if draw(st.booleans()) else np.ones(k))
    weights = rng.random(k) * (rng.random(k) < 0.7)
    weights[rng.integers(k)] += 0.1
    return Prior(labels - draw(st.sampled_from([0.0, 30.0])), weights)


def exact_biases(labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray) -> list[Fraction]:
    """Computes the biases from the definition, in rational arithmetic, independently of the code under test."""
    values = [Fraction(output) for output in outputs.tolist()]
    means = [
        sum((weight * value for weight, value in zip(row, values, strict=True)), Fraction(0)) / TOTAL
        for row in weights.tolist()
    ]
    return [mean - Fraction(label) for mean, label in zip(means, labels.tolist(), strict=True)]


@settings(deadline=None, max_examples=80)
@given(prior=priors(), epsilon=st.floats(0.01, 20))
def test_the_bias_is_that_of_one_rounding_and_the_certificate_holds(prior, epsilon):
    randomizer = DebiasedResponse().solve(prior, epsilon)
    certificate = randomizer.certificate()
    assert certificate.epsilon <= epsilon
    assert [sum(row) for row in randomizer.weights.tolist()] == [TOTAL] * len(prior.labels)
    largest = float(np.abs(randomizer.outputs).max())
    biases = exact_biases(prior.labels, randomizer.outputs, randomizer.weights)
    assert list(certificate.biases) == biases
    # The bias is a mean of rounding errors, each at most half a unit in the last place of an output.
    assert max(map(abs, biases)) <= Fraction(largest) / (1 << 53)


@settings(deadline=None, max_examples=40)
@given(prior=priors(), epsilon=st.floats(0.01, 20))
def test_outputs_are_those_of_the_formula(prior, epsilon):
    k, ratio = len(prior.labels), math.exp(epsilon)
    expected = ((ratio + k - 1) * prior.labels - prior.labels.sum()) / math.expm1(epsilon)
    randomizer = DebiasedResponse().solve(prior, epsilon)
    np.testing.assert_allclose(randomizer.outputs, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())
    np.testing.assert_array_equal(randomizer.weights, RandomizedResponse().solve(prior, epsilon).weights)


def test_two_labels_by_hand():
    """E = 3: the outputs are -1/2 and 3/2, since 3/4 (-1/2) + 1/4 (3/2) = 0. Losses 3/4 each."""
    prior = Prior(np.array([0.0, 1.0]), np.array([0.2, 0.8]))
    randomizer = DebiasedResponse().solve(prior, math.log(3))
    np.testing.assert_allclose(randomizer.outputs, [-0.5, 1.5], rtol=1e-14)
    assert randomizer.expected_loss(prior, SQUARED) == pytest.approx(0.75, rel=1e-14)


def test_the_prior_plays_no_part():
    labels = np.array([0.0, 1.0, 5.0])
    first, second = (
        DebiasedResponse().solve(Prior(labels, np.array(weights)), 1.0) for weights in ([1, 0, 0], [1, 2, 3])
    )
    assert first == second


def test_a_tiny_epsilon_keeps_its_bias_at_rounding_level():
    prior = Prior(np.arange(3.0), np.ones(3))
    randomizer = DebiasedResponse().solve(prior, 1e-9)
    assert randomizer.certificate().epsilon <= 1e-9
    assert randomizer.certificate().max_bias <= np.abs(randomizer.outputs).max() * 2**-53


def test_outputs_beyond_the_floats_are_refused():
    with pytest.raises(ValueError, match="scale the labels down"):
        DebiasedResponse().solve(Prior(np.array([-1e308, 1e308]), np.ones(2)), 1e-3)


def test_too_many_labels_are_refused():
    with pytest.raises(ValueError, match="use a larger label step"):
        DebiasedResponse().solve(Prior(np.arange(8193.0), np.ones(8193)), 1.0)
