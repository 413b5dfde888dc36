"""Renyi divergences of pairs within epsilon, and lower bounds on them from samples."""

import math

import numpy as np
import pytest

from tests.privacy.divergence_bounds import LogRatios, epsilon_of_renyi, largest_renyi_divergence


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_largest_divergence_is_that_of_randomized_response(order: float, epsilon: float) -> None:
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    direct = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
    assert largest_renyi_divergence(order, epsilon) == pytest.approx(direct, rel=1e-9)
    assert epsilon_of_renyi(order, direct) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("order", [1.2, 2.0, 6.0])
def test_no_pair_within_epsilon_has_more(order: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        q = rng.dirichlet(np.ones(5))
        p = q * np.exp(rng.uniform(-1, 1, 5))
        p /= p.sum()
        epsilon = float(np.abs(np.log(p / q)).max())
        divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
        assert divergence <= largest_renyi_divergence(order, epsilon) * (1 + 1e-12)


def test_epsilon_of_no_and_of_any_divergence() -> None:
    assert epsilon_of_renyi(2.0, -1.0) == 0.0
    assert epsilon_of_renyi(2.0, 0.0) == 0.0
    assert epsilon_of_renyi(2.0, 1e6) == 30.0


@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_bound_holds_and_comes_close(order: float) -> None:
    """Of 200 bounds with alpha 0.05 at most 10 are expected to be false; more than 22 have a probability of 1e-4.

    With many draws and the true log-ratios the bound approaches the divergence.
    """
    rng = np.random.default_rng(1)
    p, q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.1, 0.3, 0.2, 0.4])
    divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
    ratios, bins = LogRatios.of_counts(1e9 * p, 1e9 * q, 10.0)
    assert np.all(np.diff(ratios.values) >= 0)

    def bound(draws: int, alpha: float) -> float:
        first, second = rng.multinomial(draws, p), rng.multinomial(draws, q)
        return ratios.renyi_at_least(first[bins], second[bins], order, alpha)

    assert sum(bound(300, 0.05) > divergence for _ in range(200)) <= 22
    assert 0.97 * divergence < bound(10**6, 1e-6) < divergence


def test_bound_holds_for_log_ratios_that_are_wrong() -> None:
    rng = np.random.default_rng(2)
    p, q = np.array([0.6, 0.4]), np.array([0.3, 0.7])
    divergence = math.log((p**2 / q).sum())
    for values in ([-3.0, 3.0], [-0.1, 0.2], [0.0, 0.0]):
        found = LogRatios(np.array(values)).renyi_at_least(
            rng.multinomial(10**6, p)[::-1], rng.multinomial(10**6, q)[::-1], 2.0, 1e-6
        )
        assert found < divergence
