"""The optimal unbiased and bias-limited randomizers: against linear programs, grids, limits and each other."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import SQUARED, Prior, solve
from labeldp.mechanisms.unbiased import BiasLimited, Unbiased
from labeldp.mechanisms.unbiased_grid import UnbiasedGrid
from scipy.optimize import linprog


def spiked(k: int) -> Prior:
    labels = np.arange(1, k + 1, dtype=float)
    weights = 0.3 * np.exp(-5 * labels / k)
    weights /= weights.sum()
    weights[-1] += 1.0
    weights[k // 2] += 0.3
    return Prior(labels, weights)


def loss(randomizer, prior: Prior) -> float:
    return randomizer.expected_loss(prior, SQUARED)


@st.composite
def priors(draw) -> Prior:
    k = draw(st.integers(1, 40))
    steps = draw(st.lists(st.floats(0.1, 10), min_size=k, max_size=k))
    weights = draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1)), min_size=k, max_size=k))
    if not any(weights):
        weights[0] = 1.0
    return Prior(np.cumsum(steps), np.array(weights))


@settings(max_examples=60, deadline=None)
@given(priors(), st.floats(0.05, 8))
def test_any_prior_gives_a_certified_unbiased_randomizer_with_a_proven_gap(prior, epsilon):
    randomizer = Unbiased().solve(prior, epsilon)
    certificate = randomizer.certificate()
    spread = max(float(prior.labels[-1] - prior.labels[0]), 1.0)
    assert certificate.epsilon <= epsilon
    assert certificate.max_bias <= 1e-9 * spread
    assert randomizer.gap is not None
    assert 0 <= randomizer.gap <= 1e-6
    assert len(randomizer.outputs) <= 2 * len(prior.labels)


@settings(max_examples=30, deadline=None)
@given(priors(), st.floats(0.05, 8), st.floats(0, 1))
def test_the_bias_limit_is_kept(prior, epsilon, bias):
    randomizer = BiasLimited(bias).solve(prior, epsilon)
    spread = float(prior.labels[-1] - prior.labels[0])
    assert randomizer.certificate().epsilon <= epsilon
    assert randomizer.certificate().max_bias <= bias * spread + 1e-9 * max(spread, 1.0)
    assert randomizer.gap is not None
    assert randomizer.gap <= 1e-6


def all_staircases(prior: Prior, epsilon: float, outputs: np.ndarray) -> float:
    """The least loss over staircase columns of every pattern (2^k) with these outputs, by a linear program."""
    labels, k = prior.labels, len(prior.labels)
    patterns = np.array(list(itertools.product([1.0, math.exp(epsilon)], repeat=k)))
    columns = np.repeat(patterns, len(outputs), axis=0)
    values = np.tile(outputs, len(patterns))
    costs = (columns * prior.weights * (values[:, None] - labels) ** 2).sum(axis=1)
    # Scaled so that a column's weights are probabilities: HiGHS' tolerances are absolute.
    scale = columns.max(axis=1)
    rows = np.concatenate([columns.T, columns.T * values]) / scale
    found = linprog(costs / scale, A_eq=rows, b_eq=np.append(np.ones(k), labels), method="highs")
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(8))
def test_small_domains_agree_with_all_staircase_columns_on_a_refined_grid(seed):
    rng = np.random.default_rng(seed)
    k = 2 + seed % 4
    labels = np.cumsum(rng.uniform(0.3, 1, k))
    weights = rng.exponential(size=k) * (rng.random(k) > 0.25)
    weights[0] += 0.1
    prior, epsilon = Prior((labels - labels[0]) / (labels[-1] - labels[0]), weights), float(rng.uniform(0.3, 3))
    randomizer = Unbiased(gap=1e-10).solve(prior, epsilon)
    # The grid holds the solution's outputs, many others, and ever closer neighbours of the solution's.
    near = [randomizer.outputs * (1 + step) for step in (0, 1e-2, -1e-2, 1e-4, -1e-4)]
    low, high = float(randomizer.outputs[0]) - 1, float(randomizer.outputs[-1]) + 1
    least = all_staircases(prior, epsilon, np.unique(np.concatenate([*near, np.linspace(low, high, 60)])))
    assert loss(randomizer, prior) == pytest.approx(least, rel=1e-7)


def test_no_grid_is_as_good_and_finer_grids_come_closer():
    prior = spiked(52)
    best = loss(Unbiased().solve(prior, 1.0), prior)
    grids = [loss(UnbiasedGrid(mesh).solve(prior, 1.0), prior) for mesh in (52, 104, 208)]
    assert best < grids[2] < grids[1] < grids[0]
    assert grids[2] < best * 1.01


@pytest.mark.parametrize("k", [101, 401])
def test_many_labels_reach_the_gap(k):
    randomizer = Unbiased().solve(spiked(k), 1.0)
    assert randomizer.gap is not None
    assert randomizer.gap <= 1e-6
    assert randomizer.certificate().max_bias <= 1e-9 * k


def test_no_bias_allowed_is_unbiased_and_any_bias_is_rr_on_bins():
    prior = spiked(40)
    losses = [loss(BiasLimited(bias).solve(prior, 0.8), prior) for bias in (0, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0)]
    assert losses[0] == pytest.approx(loss(Unbiased().solve(prior, 0.8), prior), rel=1e-6)
    assert losses[-1] == pytest.approx(loss(solve("rr_on_bins", prior, 0.8), prior), rel=1e-6)
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(losses))
    assert losses[3] < losses[0] * 0.9


def test_a_large_epsilon_gives_debiased_randomized_response():
    """Badanidiyuru et al. 2023, section 3.1."""
    prior = Prior(np.arange(6.0), np.array([1, 2, 3, 1, 2, 1.0]))
    for epsilon, tolerance in ((6.0, 0.3), (9.0, 0.02), (12.0, 0.001)):
        best, response = (loss(solve(name, prior, epsilon), prior) for name in ("unbiased", "debiased_rr"))
        assert best <= response * (1 + 1e-6)
        assert response == pytest.approx(best, rel=tolerance)


def test_a_small_epsilon_gives_the_two_point_mechanism_on_the_ends():
    """Badanidiyuru et al. 2023, section 3.1: two outputs, debiased from {min, max}."""
    prior = Prior(np.arange(5.0), np.array([1, 2, 3, 1, 2.0]))
    for epsilon, tolerance in ((0.1, 5e-3), (0.01, 1e-4)):
        ratio = math.exp(epsilon)
        low, high = (((ratio + 1) * end - 4) / (ratio - 1) for end in (0.0, 4.0))
        up = (prior.labels - low) / (high - low)
        two_points = prior.weights @ (up * (high - prior.labels) ** 2 + (1 - up) * (low - prior.labels) ** 2)
        best = loss(Unbiased().solve(prior, epsilon), prior)
        assert best <= two_points * (1 + 1e-9)
        assert two_points == pytest.approx(best, rel=tolerance)


def test_beyond_floating_point_it_is_still_unbiased_and_private():
    prior = spiked(20)
    randomizer = Unbiased().solve(prior, 25.0)
    assert randomizer.certificate().epsilon <= 25.0
    assert randomizer.certificate().max_bias <= 1e-9
    assert loss(randomizer, prior) <= loss(solve("debiased_rr", prior, 25.0), prior) * (1 + 1e-6)


def test_one_and_two_labels():
    one = Unbiased().solve(Prior(np.array([7.0]), np.array([1.0])), 1.0)
    assert one.outputs.tolist() == [7.0]
    even = Prior(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    two = Unbiased().solve(even, 1.0)
    response = solve("debiased_rr", even, 1.0)
    assert loss(two, even) == pytest.approx(loss(response, even), rel=1e-6)
    assert max(abs(bias) for bias in two.certificate().biases) <= Fraction(1, 10**12)


@pytest.mark.parametrize("bias", [-0.1, math.nan])
def test_a_bias_that_is_none_is_refused(bias):
    with pytest.raises(ValueError, match="bias"):
        BiasLimited(bias).solve(spiked(5), 1.0)


def test_a_mesh_of_one_is_refused():
    with pytest.raises(ValueError, match="mesh"):
        UnbiasedGrid(1).solve(spiked(5), 1.0)
