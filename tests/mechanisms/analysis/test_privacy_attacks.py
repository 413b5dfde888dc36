"""Label-inference advantage: compared with brute force over all guesses, simulation and the bound of any randomizer."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, Randomizer, solve
from labeldp.mechanisms.analysis.privacy_attacks import (
    LabelInference,
    label_inference,
    label_inferences,
)
from labeldp.mechanisms.core.integer_weights import TOTAL


def random_channel(seed: int, labels: int, outputs: int, epsilon: float) -> Randomizer:
    """Random weights, within a factor of exp(epsilon) / 1.01 of each other before each row is filled up."""
    rng = np.random.default_rng(seed)
    table = np.exp(rng.uniform(0, epsilon / 2 - 0.01, (labels, outputs)))
    weights = (table / table.sum(axis=1, keepdims=True) * 2.0**40).astype(np.uint64) << np.uint64(22)
    weights[:, -1] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    return Randomizer(np.arange(float(labels)), np.arange(float(outputs)), weights, epsilon, "random")


def random_prior(seed: int, labels: int) -> Prior:
    return Prior(np.arange(float(labels)), np.random.default_rng(seed).uniform(0.1, 1, labels))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0, 9.0]))
def test_it_is_the_best_of_all_adversaries(seed: int, labels: int, outputs: int, tolerance: float) -> None:
    """Every map from outputs to guesses, in exact arithmetic; guesses between two labels count as well."""
    randomizer, prior = random_channel(seed, labels, outputs, 1.5), random_prior(seed, labels)
    guesses = [half / 2 for half in range(2 * labels - 1)]
    weights = [Fraction(weight) for weight in prior.weights.tolist()]

    def correct(guess: float, label: int) -> bool:
        return abs(guess - label) <= tolerance

    # guesses are halves, so windows of any width from label to label are centred at one of them
    best = max(
        sum(
            weights[label] * Fraction(int(randomizer.weights[label, output]), TOTAL)
            for output, guess in enumerate(plan)
            for label in range(labels)
            if correct(guess, label)
        )
        for plan in product(guesses, repeat=len(randomizer.outputs))
    )
    blind = max(sum(weights[label] for label in range(labels) if correct(guess, label)) for guess in guesses)
    found = label_inference(randomizer, prior, tolerance)
    assert found.informed == pytest.approx(float(best), rel=1e-12)
    assert found.uninformed == pytest.approx(float(blind), rel=1e-12)
    assert found.advantage == pytest.approx(float(best - blind), abs=1e-12)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 8), st.floats(0, 4))
def test_the_advantage_is_within_the_bound(
    seed: int, labels: int, outputs: int, epsilon: float, tolerance: float
) -> None:
    found = label_inference(random_channel(seed, labels, outputs, epsilon), random_prior(seed, labels), tolerance)
    assert found.bound is not None
    assert 0 <= found.advantage <= found.bound + 1e-12
    # The bound for any prior: p E / (p E + 1 - p) - p is largest at p = 1 / (1 + exp(epsilon / 2)).
    assert found.bound <= math.tanh(epsilon / 4) + 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 30.0])
def test_randomized_response_of_two_equally_likely_labels_attains_the_bound(epsilon: float) -> None:
    prior = Prior(np.array([0.0, 1.0]), np.ones(2))
    found = label_inference(solve("rr", prior, epsilon), prior)
    assert found.informed == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-9)
    assert found.uninformed == 0.5
    assert found.bound == pytest.approx(found.advantage, rel=1e-9)


def test_a_simulated_adversary_has_this_advantage() -> None:
    """A maximum a posteriori adversary on drawn labels; the tolerance is five standard deviations."""
    prior = Prior(np.arange(5.0), np.array([5.0, 1, 3, 2, 4]))
    randomizer = solve("laplace", prior, 2.0)
    rng, draws = np.random.default_rng(0), 200_000
    labels = rng.choice(5, draws, p=prior.weights)
    released = randomizer.sample(labels, rng.integers(0, 1 << 64, draws, np.uint64, endpoint=False))
    posterior = prior.weights[:, None] * randomizer.probabilities()
    guesses = posterior.argmax(axis=0)[np.searchsorted(randomizer.outputs, released)]
    found = label_inference(randomizer, prior)
    assert (guesses == labels).mean() == pytest.approx(found.informed, abs=5 * 0.5 / math.sqrt(draws))
    assert found.advantage > 0.1


def test_there_is_no_bound_with_a_delta() -> None:
    prior = Prior(np.arange(3.0), np.ones(3))
    assert label_inference(solve("gaussian", prior, 1.0, delta=1e-3), prior).bound is None


def test_bad_arguments_are_refused() -> None:
    prior = Prior(np.arange(3.0), np.ones(3))
    randomizer = solve("rr", prior, 1.0)
    with pytest.raises(ValueError, match="different label domains"):
        label_inference(randomizer, Prior(np.arange(4.0), np.ones(4)))
    for tolerance in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="tolerance"):
            label_inference(randomizer, prior, tolerance)


def test_a_tolerance_that_changes_nothing_is_left_out() -> None:
    """A twentieth of the range is half the spacing from 11 labels on; windows of one label hold the same guesses."""
    for labels, attacks in ((2, 1), (10, 1), (12, 2), (53, 2)):
        prior = Prior(np.arange(float(labels)), np.ones(labels))
        found = label_inferences(solve("rr", prior, 1.0), prior)
        assert [each.tolerance for each in found] == [0.0, (labels - 1) / 20][:attacks]


def test_rounding_errors_are_no_advantage() -> None:
    """The best guess is the same for every output, and the sums of its probabilities differ in their last digits."""
    prior = Prior(np.arange(40.0), np.r_[np.full(39, 0.1 / 39), 0.9])
    found = [label_inference(solve("laplace", prior, epsilon), prior) for epsilon in (0.1, 0.3, 0.5, 0.7)]
    assert {each.advantage for each in found} == {0.0}
    assert LabelInference(0.0, 0.5 + 1.11e-16, 0.5, None).advantage == 0
    assert LabelInference(0.0, 0.5 + 1e-9, 0.5, None).advantage > 0


def test_no_guess_is_close_to_a_class() -> None:
    prior = Prior(np.arange(60.0), np.arange(1.0, 61.0))
    randomizer = solve("rr", prior, 2.0)
    assert len(label_inferences(randomizer, prior)) == 2
    assert label_inferences(randomizer, prior, classes=True) == [label_inference(randomizer, prior)]
