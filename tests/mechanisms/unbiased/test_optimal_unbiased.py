"""Optimal unbiased and bias-limited randomizers, compared with linear programs, grids, known limits and each other."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import SQUARED, Prior, solve
from labeldp.mechanisms.core.certificate import certify
from labeldp.mechanisms.core.integer_weights import BITS
from labeldp.mechanisms.unbiased.optimal_unbiased import BiasLimited, Unbiased, rebalance_outputs
from labeldp.mechanisms.unbiased.unbiased_grid import UnbiasedGrid
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
    # A relative gap of 1e-6 is below float precision if the loss is nearly 0; bound the absolute gap then.
    assert randomizer.gap <= 1e-6 or randomizer.gap * randomizer.expected_loss(prior, SQUARED) <= 1e-12 * spread**2


@pytest.mark.parametrize("forbidden", [0.5, 1 / 64, 1e-3])
@pytest.mark.parametrize("epsilon", [0.05, 1, 8])
def test_the_gap_is_small_where_nearly_any_bias_is_allowed(epsilon, forbidden):
    for k in (2, 20):
        prior = Prior(np.arange(1.0, k + 1), np.eye(k)[0])
        gap = BiasLimited(1 - forbidden).solve(prior, epsilon).gap
        assert gap is not None
        assert gap <= 1e-6


def all_staircases(prior: Prior, epsilon: float, outputs: np.ndarray, bias: float = 0.0) -> float:
    """Computes the least loss over all 2^k patterns of staircase columns with these outputs, by a linear program.

    bias: largest bias allowed, in units of the label.
    """
    labels, k = prior.labels, len(prior.labels)
    patterns = np.array(list(itertools.product([1.0, math.exp(epsilon)], repeat=k)))
    columns = np.repeat(patterns, len(outputs), axis=0)
    values = np.tile(outputs, len(patterns))
    costs = (columns * prior.weights * (values[:, None] - labels) ** 2).sum(axis=1)
    # Columns are scaled so that their weights are probabilities, because the tolerances of HiGHS are absolute.
    scale = columns.max(axis=1)
    means = columns.T * values / scale
    found = linprog(
        costs / scale,
        A_eq=columns.T / scale,
        b_eq=np.ones(k),
        A_ub=np.concatenate([means, -means]),
        b_ub=np.concatenate([labels + bias, bias - labels]),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(10))
def test_small_domains_agree_with_all_staircase_columns_on_a_refined_grid(seed):
    rng = np.random.default_rng(seed)
    k = 2 + seed % 5
    labels = np.cumsum(rng.uniform(0.3, 1, k))
    weights = rng.exponential(size=k) * (rng.random(k) > 0.25)
    weights[0] += 0.1
    prior, epsilon = Prior((labels - labels[0]) / (labels[-1] - labels[0]), weights), float(rng.uniform(0.3, 3))
    randomizer = Unbiased(gap=1e-10).solve(prior, epsilon)
    # The grid contains the solution's outputs, points at decreasing distances from them, and 40 evenly spaced points.
    near = [randomizer.outputs * (1 + step) for step in (0, 1e-2, -1e-2, 1e-4, -1e-4)]
    low, high = float(randomizer.outputs[0]) - 1, float(randomizer.outputs[-1]) + 1
    least = all_staircases(prior, epsilon, np.unique(np.concatenate([*near, np.linspace(low, high, 40)])))
    assert loss(randomizer, prior) == pytest.approx(least, rel=1e-7)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_a_bias_limit_agrees_with_all_staircase_columns(epsilon):
    labels = np.array([0.0, 0.3, 0.4, 1.0])
    prior, bias = Prior(labels, np.array([3.0, 1.0, 0.0, 2.0])), 0.07
    randomizer = BiasLimited(bias, gap=1e-10).solve(prior, epsilon)
    near = [randomizer.outputs + step for step in (0, 1e-2, -1e-2, 1e-4, -1e-4)]
    outputs = np.unique(np.concatenate([*near, np.linspace(-4, 5, 90)]))
    assert loss(randomizer, prior) == pytest.approx(all_staircases(prior, epsilon, outputs, bias), rel=1e-7)


def halved(k: int) -> Prior:
    """Unevenly spaced labels, half of them with mass 0, as in a noised histogram."""
    rng = np.random.default_rng(k)
    weights = np.exp(-np.arange(k) / 40) * rng.random(k) * (rng.random(k) < 0.5)
    weights[k // 3] += 0.1
    return Prior(np.cumsum(rng.uniform(0.1, 3, k)), weights)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("prior", [spiked(101), spiked(401), halved(150)], ids=["101", "401", "zeros"])
def test_many_labels_reach_the_gap(prior, epsilon):
    k = len(prior.labels)
    randomizer = Unbiased().solve(prior, epsilon)
    assert randomizer.gap is not None
    assert randomizer.gap <= 1e-6
    assert randomizer.certificate().max_bias <= 1e-9 * (prior.labels[-1] - prior.labels[0])
    assert len(randomizer.outputs) <= 2 * k


@pytest.mark.parametrize("bias", [0.0, 0.05])
@pytest.mark.parametrize("prior", [spiked(60), halved(60)], ids=["spiked", "zeros"])
def test_starting_from_half_the_labels_changes_nothing(monkeypatch, prior, bias):
    direct = BiasLimited(bias).solve(prior, 2.0)
    monkeypatch.setattr("labeldp.mechanisms.unbiased.optimal_unbiased.DIRECT_LABELS", 8)
    halving = BiasLimited(bias).solve(prior, 2.0)
    assert halving.gap is not None
    assert halving.gap <= 1e-6
    assert loss(halving, prior) == pytest.approx(loss(direct, prior), rel=1e-6)


def test_no_bias_allowed_is_unbiased_and_any_bias_is_rr_on_bins():
    prior = spiked(40)
    losses = [loss(BiasLimited(bias).solve(prior, 0.8), prior) for bias in (0, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0)]
    assert losses[0] == pytest.approx(loss(Unbiased().solve(prior, 0.8), prior), rel=1e-6)
    assert losses[-1] == pytest.approx(loss(solve("rr_on_bins", prior, 0.8), prior), rel=1e-6)
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(losses))
    assert losses[3] < losses[0] * 0.9


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


@pytest.mark.parametrize("epsilon", [14.0, 20.0, 25.0])
def test_a_very_large_epsilon_keeps_a_proven_gap(epsilon):
    prior = spiked(20)
    randomizer = Unbiased().solve(prior, epsilon)
    assert randomizer.certificate().epsilon <= epsilon
    assert randomizer.certificate().max_bias <= 1e-9
    assert randomizer.gap is not None
    assert randomizer.gap <= 1e-7
    assert loss(randomizer, prior) <= loss(solve("debiased_rr", prior, epsilon), prior) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4])
def test_a_very_small_epsilon_keeps_a_proven_gap(epsilon):
    prior = spiked(20)
    randomizer = Unbiased().solve(prior, epsilon)
    assert randomizer.certificate().epsilon <= epsilon
    assert randomizer.gap is not None
    assert randomizer.gap <= 1e-6
    # Outputs are about 2 / epsilon half-ranges from the center; rounding them to floats is the only source of bias.
    assert randomizer.certificate().max_bias <= 19 * 1e-14 / epsilon


def test_one_and_two_labels():
    one = Unbiased().solve(Prior(np.array([7.0]), np.array([1.0])), 1.0)
    assert one.outputs.tolist() == [7.0]
    even = Prior(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    two = Unbiased().solve(even, 1.0)
    response = solve("debiased_rr", even, 1.0)
    assert loss(two, even) == pytest.approx(loss(response, even), rel=1e-6)
    assert max(abs(bias) for bias in two.certificate().biases) <= Fraction(1, 10**12)


def test_one_likely_label_costs_nothing_once_the_others_may_be_biased_to_it():
    prior = Prior(np.array([0.1, 1.1, 4.1]), np.array([0.0, 1.0, 0.0]))
    randomizer = BiasLimited(0.75).solve(prior, 1.0)
    assert randomizer.outputs.tolist() == [1.1]
    assert randomizer.gap == 0
    assert loss(BiasLimited(0.7).solve(prior, 1.0), prior) > 0


@pytest.mark.parametrize("bias", [-0.1, math.nan])
def test_a_bias_that_is_none_is_refused(bias):
    with pytest.raises(ValueError, match="bias"):
        BiasLimited(bias).solve(spiked(5), 1.0)


@pytest.mark.parametrize("gap", [-1e-6, math.nan])
def test_a_gap_that_is_none_is_refused(gap):
    with pytest.raises(ValueError, match="gap"):
        Unbiased(gap).solve(spiked(5), 1.0)


# Grid.


@pytest.mark.parametrize("mesh", [1, 2.5])
def test_a_mesh_that_is_none_is_refused(mesh):
    with pytest.raises(ValueError, match="mesh"):
        UnbiasedGrid(mesh).solve(spiked(5), 1.0)


@settings(max_examples=30, deadline=None)
@given(priors(), st.floats(0.05, 8), st.sampled_from([30, 41]))
def test_the_grid_is_certified_and_unbiased(prior, epsilon, mesh):
    randomizer = UnbiasedGrid(mesh).solve(prior, epsilon)
    certificate = randomizer.certificate()
    spread = max(float(prior.labels[-1] - prior.labels[0]), 1.0)
    assert certificate.epsilon <= epsilon
    assert certificate.max_bias <= 1e-9 * spread
    assert loss(randomizer, prior) >= loss(Unbiased().solve(prior, epsilon), prior) * (1 - 1e-6)


def test_an_epsilon_beyond_the_grid_program_is_refused_not_answered_with_a_bias():
    with pytest.raises(ValueError, match="epsilon 28 and mesh 104: use unbiased"):
        UnbiasedGrid().solve(spiked(20), 28.0)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-6, 1e-3, 1.0, 8.0])
def test_biases_are_at_the_rounding_of_the_outputs(epsilon):
    randomizer = Unbiased().solve(spiked(20), epsilon)
    # Each output is rounded to a float, with an error of at most half its spacing; sums add a few such errors.
    assert randomizer.certificate().max_bias <= 4 * np.spacing(np.abs(randomizer.outputs).max())


def test_rebalanced_outputs_undo_a_disturbance_and_leave_biases_within_the_limit_alone():
    prior = spiked(30)
    randomizer = Unbiased().solve(prior, 1.0)
    disturbed = randomizer.outputs + np.linspace(-1e-3, 2e-3, len(randomizer.outputs))

    def largest_bias(outputs: np.ndarray) -> Fraction:
        return max(map(abs, certify(prior.labels, outputs, randomizer.weights, BITS).biases))

    assert largest_bias(disturbed) > 1e-5
    assert largest_bias(rebalance_outputs(prior, disturbed, randomizer.weights, 0.0)) < 1e-12
    assert np.array_equal(rebalance_outputs(prior, disturbed, randomizer.weights, 1.0), disturbed)
