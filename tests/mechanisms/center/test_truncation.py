"""Range of the residuals: errors of clipping against brute force, and ranges close to the best of all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, mechanism_named
from labeldp.mechanisms.center.truncation import choose_range, clipped_prior, clipping_error
from labeldp.mechanisms.core.quality import variances

WEIGHTS = st.lists(st.integers(0, 9), min_size=3, max_size=21).filter(any)
UNBIASED = mechanism_named("unbiased")


def prior_of(weights: list[int]) -> Prior:
    return Prior(np.arange(len(weights), dtype=float) - len(weights) // 2, np.array(weights, float))


@given(WEIGHTS, st.data())
def test_clipping_moves_the_tails_to_the_ends(weights, data):
    prior = prior_of(weights)
    first = data.draw(st.integers(0, len(weights) - 1))
    last = data.draw(st.integers(first, len(weights) - 1))
    clipped = clipped_prior(prior, first, last)
    expected = np.zeros(last - first + 1)
    moves = []
    for place, weight in enumerate(prior.weights.tolist()):
        target = min(max(place, first), last)
        expected[target - first] += weight
        moves.append((weight, target - place))
    assert np.array_equal(clipped.labels, prior.labels[first : last + 1])
    assert np.allclose(clipped.weights, expected)
    error = clipping_error(prior, float(prior.labels[first]), float(prior.labels[last]))
    assert error.share == pytest.approx(sum(weight for weight, move in moves if move))
    assert error.bias == pytest.approx(sum(weight * move for weight, move in moves))
    assert error.squared == pytest.approx(sum(weight * move**2 for weight, move in moves))


def ends(prior: Prior, mechanism: Any, epsilon: float, records: int) -> tuple[int, int]:
    found = choose_range(prior, mechanism, epsilon, records)
    return found.first, found.last


def objective(prior: Prior, first: int, last: int, epsilon: float, share: float) -> float:
    clipped = clipped_prior(prior, first, last)
    randomizer = UNBIASED.solve(clipped, epsilon)
    noise = float(clipped.weights @ variances(randomizer))
    return clipping_error(prior, prior.labels[first], prior.labels[last]).squared + share * noise


@pytest.mark.parametrize(
    ("shape", "epsilon", "records"),
    [
        ("normal", 0.3, 300), ("normal", 1.0, 5000), ("skewed", 1.0, 5000), ("skewed", 4.0, 10**6),
        ("two modes", 0.3, 10**6), ("two modes", 1.0, 300),
    ],
)  # fmt: skip
def test_the_range_is_close_to_the_best_of_all(shape, epsilon, records):
    places = np.arange(-12, 13)
    weights = {
        "normal": np.exp(-((places / 3) ** 2) / 2),
        "skewed": np.where(places < -2, 0.0, np.exp(-(places + 2) / 3)),
        "two modes": np.exp(-((places / 2) ** 2) / 2) + 0.1 * np.exp(-((places - 8) ** 2) / 2),
    }[shape]
    prior = Prior(places.astype(float), weights)
    share = min(100 / records, 1)
    found = objective(prior, *ends(prior, UNBIASED, epsilon, records), epsilon, share)
    best = min(
        objective(prior, first, last, epsilon, share)
        for first in range(0, 13, 2)
        for last in range(max(first + 1, 11), 25, 2)
    )
    assert found <= 1.25 * best


def test_many_records_and_a_large_epsilon_leave_the_domain_whole():
    prior = prior_of([1, 2, 5, 9, 5, 2, 1])
    assert ends(prior, UNBIASED, 8.0, 10**9) == (0, 6)


def test_a_range_falls_with_fewer_records_and_with_less_epsilon():
    prior = Prior(np.arange(-100.0, 101.0), np.exp(-np.abs(np.arange(-100, 101)) / 10))
    lengths = [
        [last - first for first, last in (ends(prior, UNBIASED, epsilon, records) for records in (10**3, 10**6))]
        for epsilon in (0.3, 3.0)
    ]
    assert lengths[0][0] < lengths[0][1] <= 200
    assert lengths[0][0] < lengths[1][0]


def test_a_prior_of_one_residual_gets_a_range_of_two_residuals_or_more():
    first, last = ends(prior_of([0, 0, 1, 0, 0]), UNBIASED, 1.0, 1000)
    assert first < last


def test_a_fine_grid_does_not_shorten_the_range():
    prior = Prior(np.arange(-5000.0, 5001.0), np.ones(10001))
    assert ends(prior, UNBIASED, 8.0, 10**9) == (0, 10000)


def test_the_whole_domain_for_a_mechanism_that_supports_no_range():
    class Refusing:
        def solve(self, prior, epsilon):
            raise ValueError("no")

    assert ends(prior_of([1, 2, 1]), Refusing(), 1.0, 10) == (0, 2)
