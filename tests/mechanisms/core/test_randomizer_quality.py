"""Quality measures of mechanisms, compared with sums of exact fractions over the integer weights."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE, POISSON, SQUARED, Prior, Randomizer, solve
from labeldp.mechanisms.core.randomizer import label_variance, quality, variances

NAMES = ("rr_on_bins", "unbiased", "rr", "debiased_rr", "laplace")


@st.composite
def solved(draw: st.DrawFn) -> tuple[Prior, Randomizer]:
    labels = np.cumsum(draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))).astype(float)
    weights = draw(st.lists(st.integers(0, 9), min_size=len(labels), max_size=len(labels)))
    prior = Prior(labels, np.array(weights if any(weights) else [1] * len(labels)))
    return prior, solve(draw(st.sampled_from(NAMES)), prior, draw(st.floats(0.1, 6)))


@settings(max_examples=60, deadline=None)
@given(solved())
def test_every_number_against_exact_sums(case: tuple[Prior, Randomizer]) -> None:
    prior, randomizer = case
    outputs = [Fraction(c) for c in randomizer.outputs.tolist()]
    squared = absolute = Fraction(0)
    spreads, biases = [], []
    for y, p, row in zip(prior.labels.tolist(), prior.weights.tolist(), randomizer.weights.tolist(), strict=True):
        chances = [Fraction(w, 1 << 62) for w in row]
        mean = sum(q * c for q, c in zip(chances, outputs, strict=True))
        spreads.append(sum(q * (c - mean) ** 2 for q, c in zip(chances, outputs, strict=True)))
        biases.append(abs(mean - Fraction(y)))
        squared += Fraction(p) * sum(q * (c - Fraction(y)) ** 2 for q, c in zip(chances, outputs, strict=True))
        absolute += Fraction(p) * sum(q * abs(c - Fraction(y)) for q, c in zip(chances, outputs, strict=True))

    found = quality(randomizer, prior, ABSOLUTE)

    # These are sums of at most a few hundred nonnegative terms, so their relative error is far below 1e-9.
    assert found.squared_error == pytest.approx(float(squared), rel=1e-9)
    assert found.absolute_error == found.loss == pytest.approx(float(absolute), rel=1e-9)
    np.testing.assert_allclose(variances(randomizer), [float(spread) for spread in spreads], rtol=1e-9)
    assert found.max_variance == pytest.approx(float(max(spreads)), rel=1e-9)
    assert Fraction(found.max_bias) >= max(biases)
    assert found.max_bias == pytest.approx(float(max(biases)), rel=1e-12)
    assert found.outputs == len(outputs)
    assert found.epsilon <= randomizer.epsilon
    assert found.delta == 0
    assert found.gap == randomizer.gap


def test_the_loss_asked_for_is_one_of_three() -> None:
    prior = Prior(np.array([1.0, 2.0, 4.0]), np.array([0.6, 0.25, 0.15]))
    randomizer = solve("rr", prior, 1.0)

    assert quality(randomizer, prior).loss == quality(randomizer, prior).squared_error
    assert quality(randomizer, prior, POISSON).loss == randomizer.expected_loss(prior, POISSON)


def test_a_prior_of_another_domain() -> None:
    prior = Prior(np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    with pytest.raises(ValueError, match="domain"):
        quality(solve("rr", prior, 1.0), Prior(np.array([0.0, 2.0]), np.array([1.0, 1.0])))


def test_one_output_for_all_labels_is_what_epsilon_near_zero_gives() -> None:
    prior = Prior(np.array([0.0, 1.0, 2.0]), np.array([0.6, 0.25, 0.15]))
    almost = solve("rr_on_bins", prior, 1e-6).expected_loss(prior, SQUARED)
    assert label_variance(prior) == pytest.approx(0.25 + 0.6 - 0.55**2)
    assert label_variance(prior) - 1e-5 < almost <= label_variance(prior)
