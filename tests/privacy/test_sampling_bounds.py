"""Empirical bounds on epsilon: their coverage is computed exactly; bounds and selection are sound for true channels."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tests.privacy.sampling_bounds import clopper_pearson, epsilon_at_least, misfits, select_event


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
