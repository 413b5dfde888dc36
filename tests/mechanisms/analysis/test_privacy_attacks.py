"""Privacy attacks: label-inference advantage and empirical bounds on epsilon.

The advantage is compared with brute force over all guesses, simulation, and the bound for any randomizer. The coverage
of empirical bounds is computed exactly; they are sound for true channels, and so is the selection of events.
"""

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
    clopper_pearson,
    epsilon_at_least,
    label_inference,
    label_inferences,
    misfits,
    select_event,
)
from labeldp.mechanisms.core.integer_weights import TOTAL
from scipy.stats import binom


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


def test_an_output_that_depends_on_nothing_gives_no_advantage() -> None:
    prior = Prior(np.arange(3.0), np.array([1.0, 2, 4]))
    constant = Randomizer(prior.labels, np.array([7.0]), np.full((3, 1), TOTAL, np.uint64), 1.0, "constant")
    assert label_inference(constant, prior).advantage == 0


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


def tail_at_least(count: int, draws: int, probability: Fraction) -> Fraction:
    """P(Binomial >= count), in exact arithmetic."""
    return sum(
        (
            Fraction(math.comb(draws, hits)) * probability**hits * (1 - probability) ** (draws - hits)
            for hits in range(count, draws + 1)
        ),
        Fraction(0),
    )


@settings(deadline=None)
@given(st.integers(1, 60), st.data(), st.sampled_from([0.3, 0.01, 1e-6, 1e-9]))
def test_clopper_pearson_bounds_are_valid_and_tight(draws: int, data: st.DataObject, alpha: float) -> None:
    """At the bound, the exact tail probability is at most alpha; slightly inside, it is above."""
    count = data.draw(st.integers(0, draws))
    lower, upper = clopper_pearson(count, draws, alpha)
    assert 0 <= lower <= count / draws <= upper <= 1
    if count:
        assert tail_at_least(count, draws, Fraction(lower)) <= alpha
        assert tail_at_least(count, draws, Fraction(min(lower * (1 + 1e-6), 1.0))) > alpha
    else:
        assert lower == 0
    if count < draws:
        assert 1 - tail_at_least(count + 1, draws, Fraction(upper)) <= alpha
        assert 1 - tail_at_least(count + 1, draws, Fraction(upper * (1 - 1e-6))) > alpha
    else:
        assert upper == 1


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.25), (0.9, 0.3), (0.02, 0.01), (0.4, 0.4)])
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_the_bound_exceeds_the_true_epsilon_with_probability_alpha_at_most(p: float, q: float, alpha: float) -> None:
    """The probability of a false bound, summed over all pairs of counts; epsilon of the event is ln(p / q)."""
    draws, failing = 60, 0.0
    for inside in range(draws + 1):
        for outside in range(draws + 1):
            if epsilon_at_least((inside, draws), (outside, draws), alpha) > max(math.log(p / q), 0.0):
                failing += binom.pmf(inside, draws, p) * binom.pmf(outside, draws, q)
    assert failing <= alpha


def test_delta_is_taken_from_the_likely_event() -> None:
    with_delta = epsilon_at_least((500, 1000), (100, 1000), 1e-3, delta=0.1)
    lower, upper = clopper_pearson(500, 1000, 5e-4)[0], clopper_pearson(100, 1000, 5e-4)[1]
    assert with_delta == math.log((lower - 0.1) / upper)
    assert epsilon_at_least((500, 1000), (100, 1000), 1e-3, delta=0.9) == 0
    assert epsilon_at_least((0, 1000), (1000, 1000), 1e-3) == 0


def test_the_planted_row_and_outcome_are_selected() -> None:
    rng = np.random.default_rng(1)
    table = np.full((20, 10), 0.1)
    table[13] = [0.2, *[0.8 / 9] * 9]
    table[4] = [0.05, *[0.95 / 9] * 9]
    counts = np.stack([rng.multinomial(10_000, row) for row in table])
    event = select_event(counts, 10_000, 1e-6)
    assert (event.first, event.second) == (13, 4)
    assert event.outcomes[0]


def test_outcomes_are_joined_where_single_ones_are_too_rare() -> None:
    """Two halves of the outcomes: each single outcome has a few counts, together they prove epsilon of almost ln 3."""
    rng = np.random.default_rng(2)
    table = np.repeat([[3.0, 1.0], [1.0, 3.0]], 500, axis=1) / 2000
    select, bound = (np.stack([rng.multinomial(20_000, row) for row in table]) for _ in range(2))
    event = select_event(select, 20_000, 1e-6)
    inside = bound[:, event.outcomes].sum(axis=1)
    found = epsilon_at_least((inside[event.first], 20_000), (inside[event.second], 20_000), 1e-6)
    assert event.outcomes.sum() > 100
    assert 0.9 < found <= math.log(3)


def test_only_the_given_neighbors_are_compared() -> None:
    counts = np.array([[90, 10], [50, 50], [10, 90]])
    event = select_event(counts, 100, 0.1, pairs=[(0, 1), (1, 0)])
    assert {event.first, event.second} == {0, 1}
    with pytest.raises(ValueError, match="two inputs"):
        select_event(counts[:1], 100, 0.1)


def test_equal_inputs_still_give_an_event() -> None:
    event = select_event(np.zeros((2, 3), np.int64) + 5, 15, 1e-6)
    assert event.first != event.second


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_true_frequencies_do_not_misfit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(7, 0.3), 5)
    counts = np.stack([rng.multinomial(5000, row) for row in table])
    assert len(misfits(counts, table, 1e-6)) == 0


def test_rare_and_impossible_outcomes_misfit() -> None:
    table = np.array([[0.999, 0.001, 0.0], [0.5, 0.5, 0.0]])
    assert misfits(np.array([[999, 0, 1], [500, 500, 0]]), table, 1e-6).tolist() == [[0, 2]]
    assert misfits(np.array([[970, 30, 0], [500, 500, 0]]), table, 1e-6).tolist() == [[0, 0], [0, 1]]
    assert misfits(np.array([[999, 1, 0], [400, 600, 0]]), table, 1e-6).tolist() == [[1, 0], [1, 1]]


def test_misfits_are_found_at_the_bonferroni_level() -> None:
    """One row of a fair coin: 1000 draws, two tests of two sides each."""
    table, alpha, draws = np.array([[0.5, 0.5]]), 1e-3, 1000
    threshold = next(count for count in range(500, draws) if binom.sf(count - 1, draws, 0.5) < alpha / 4)
    for count, found in ((threshold, 2), (threshold - 1, 0)):
        assert len(misfits(np.array([[count, draws - count]]), table, alpha)) == found


def test_no_guess_is_close_to_a_class() -> None:
    prior = Prior(np.arange(60.0), np.arange(1.0, 61.0))
    randomizer = solve("rr", prior, 2.0)
    assert len(label_inferences(randomizer, prior)) == 2
    assert label_inferences(randomizer, prior, classes=True) == [label_inference(randomizer, prior)]
