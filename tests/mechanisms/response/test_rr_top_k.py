"""RR-Top-k: the least 0-1 loss of all epsilon-DP mechanisms by linear programming, ties, and the certificate."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import Prior
from labeldp.mechanisms.response.randomized_response import RandomizedResponse
from labeldp.mechanisms.response.rr_top_k import RRTopK, top_labels
from scipy.optimize import linprog

TOTAL = 1 << 62


def chance_of_keeping(prior: Prior, epsilon: float) -> float:
    """The probability that RR-Top-k reports the label itself."""
    randomizer = RRTopK().solve(prior, epsilon)
    same = randomizer.outputs[None, :] == prior.labels[:, None]
    return float(prior.weights @ (randomizer.probabilities() * same).sum(axis=1))


def best_chance_of_any_mechanism(prior: Prior, epsilon: float) -> float:
    """Solves the linear program over M[y, c] for labels y and outputs c, with constraints for all pairs of labels."""
    k, ratio = len(prior.labels), math.exp(epsilon)
    constraints = []
    for output in range(k):
        for y in range(k):
            for other in range(k):
                if y != other:
                    row = np.zeros((k, k))
                    row[y, output], row[other, output] = 1.0, -ratio
                    constraints.append(row.ravel())
    found = linprog(
        -np.diag(prior.weights).ravel(),
        A_ub=np.array(constraints),
        b_ub=np.zeros(len(constraints)),
        A_eq=np.kron(np.eye(k), np.ones(k)),
        b_eq=np.ones(k),
    )
    assert found.status == 0, found.message
    return -found.fun


@pytest.mark.parametrize("seed", range(60))
def test_no_mechanism_keeps_the_label_more_often(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7))
    weights = [rng.random(k), rng.integers(0, 3, k).astype(float), 10 ** rng.uniform(-4, 0, k)][seed % 3]
    weights[rng.integers(k)] += 0.1
    prior, epsilon = Prior(np.arange(float(k)), weights), float(np.exp(rng.uniform(-3, 1.5)))
    assert chance_of_keeping(prior, epsilon) == pytest.approx(best_chance_of_any_mechanism(prior, epsilon), abs=1e-8)


@settings(deadline=None, max_examples=80)
@given(k=st.integers(1, 60), seed=st.integers(0, 1 << 32), epsilon=st.floats(0.01, 20))
def test_the_certificate_holds_and_rows_are_those_of_the_formula(k, seed, epsilon):
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.0, 1.0, 2.0, 9.0, rng.random()], k)
    weights[rng.integers(k)] += 0.1
    prior = Prior(np.cumsum(rng.choice([0.25, 1.0, 7.5], k)), weights)
    randomizer = RRTopK().solve(prior, epsilon)
    assert randomizer.certificate().epsilon <= epsilon
    assert [sum(row) for row in randomizer.weights.tolist()] == [TOTAL] * k
    chosen, count = top_labels(prior, epsilon), len(randomizer.outputs)
    np.testing.assert_array_equal(randomizer.outputs, prior.labels[chosen])
    expected = np.full((k, count), 1 / count)
    expected[chosen] = 1 / (math.exp(epsilon) + count - 1)
    expected[chosen, np.arange(count)] = math.exp(epsilon) / (math.exp(epsilon) + count - 1)
    np.testing.assert_allclose(randomizer.probabilities(), expected, rtol=1e-13, atol=2e-18)
    # No other number of outputs keeps the label more often; labels left out have at most the mass of those kept.
    masses = np.cumsum(np.sort(prior.weights)[::-1])
    chances = math.exp(epsilon) * masses / (math.exp(epsilon) + np.arange(k))
    assert chances[count - 1] == pytest.approx(chances.max(), rel=1e-14)
    left_out = np.setdiff1d(np.arange(k), chosen)
    assert len(left_out) == 0 or prior.weights[left_out].max() <= prior.weights[chosen].min()


def test_equally_likely_labels_are_all_in_or_all_out():
    prior = Prior(np.arange(6.0), np.array([0.0, 1.0, 2.0, 2.0, 2.0, 1.0]))
    for epsilon in (0.01, 0.1, 1.0):
        assert top_labels(prior, epsilon).tolist() == [2, 3, 4]
    assert top_labels(prior, 30.0).tolist() == [1, 2, 3, 4, 5]


def test_of_equally_good_numbers_of_outputs_the_smallest_is_taken():
    # At epsilon ln 2, all three numbers of outputs keep the label with probability 1/2: 0.5, 2/3 * 0.75, 2/4 * 1.
    assert top_labels(Prior(np.arange(3.0), np.array([0.25, 0.5, 0.25])), math.log(2)).tolist() == [1]


def test_a_small_epsilon_reports_the_most_likely_label_alone():
    randomizer = RRTopK().solve(Prior(np.arange(4.0), np.array([0.1, 0.2, 0.4, 0.3])), 0.01)
    assert randomizer.outputs.tolist() == [2.0]
    assert randomizer.weights.tolist() == [[TOTAL]] * 4
    assert randomizer.certificate().epsilon == 0


def test_a_uniform_prior_with_a_large_epsilon_is_randomized_response():
    prior = Prior(np.arange(5.0), np.ones(5))
    np.testing.assert_array_equal(RRTopK().solve(prior, 3.0).weights, RandomizedResponse().solve(prior, 3.0).weights)


def test_a_tiny_epsilon_with_many_labels_is_certified():
    weights = np.append(np.ones(2000), 0.0)
    assert RRTopK().solve(Prior(np.arange(2001.0), weights), 1e-9).certificate().epsilon <= 1e-9


def test_too_many_cells_are_refused_before_they_are_made():
    with pytest.raises(ValueError, match="use a larger label step"):
        RRTopK().solve(Prior(np.arange(9000.0), np.ones(9000)), 20.0)
