"""Local searches: minima within bounds, and steps that do not depend on how equal values are sorted."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.quantization.local_search import nelder_mead, quasi_newton
from scipy.optimize import minimize


def quadratic(seed: int, d: int):
    """A convex function of its derivatives, whose minimum often lies beyond the bounds [-1, 1]."""
    generator = np.random.default_rng(seed)
    root, center = generator.standard_normal((d, d)), 1.5 * generator.standard_normal(d)
    matrix = root @ root.T + 0.1 * np.eye(d)

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        away = point - center
        return float(away @ matrix @ away) / 2, matrix @ away

    return value, np.array([(-1.0, 1.0)] * d)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_quasi_newton_finds_the_minimum_within_bounds(seed, d):
    value, bounds = quadratic(seed, d)
    seen = []

    def remembered(point: np.ndarray) -> tuple[float, np.ndarray]:
        seen.append(point)
        return value(point)

    found = quasi_newton(remembered, np.zeros(d), bounds, 400)
    best = minimize(value, np.zeros(d), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14}).fun
    assert value(found)[0] <= best + 1e-5 * (1 + abs(best))
    assert np.abs(seen).max() <= 1


def test_quasi_newton_ends_after_its_evaluations():
    value, bounds = quadratic(1, 5)
    count = 0

    def counted(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += 1
        return value(point)

    quasi_newton(counted, np.zeros(5), bounds, 4)
    assert count == 4


def test_quasi_newton_turns_back_where_there_is_no_table():
    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        return (1e30, np.zeros(1)) if point[0] < 0.3 else (float(point[0]), np.ones(1))

    found = quasi_newton(value, np.array([0.9]), np.array([(0.0, 1.0)]), 50)
    assert 0.3 <= found[0] < 0.4


# In the named ones all corners come to lie on a bound.
@example(2, 1)
@example(231, 2)
@example(38, 3)
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_nelder_mead_finds_the_minimum_within_bounds(seed, d):
    value, bounds = quadratic(seed, d)
    seen = []

    def remembered(point: np.ndarray) -> float:
        seen.append(point)
        return value(point)[0]

    simplex = np.vstack([np.zeros(d), 0.5 * np.eye(d)])
    found = nelder_mead(remembered, simplex, 600, bounds)
    best = minimize(value, np.zeros(d), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14}).fun
    start = value(np.zeros(d))[0]
    # The method may stop short of the minimum on a bound, but not far from it.
    assert value(found)[0] - best <= 0.05 * (start - best) + 1e-5
    assert np.abs(seen).max() <= 1


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_equal_values_keep_their_order(d):
    """With a constant function, the first corner stays the best: numpy's argsort does not promise that."""
    simplex = np.vstack([np.zeros(d), np.eye(d)])
    np.testing.assert_array_equal(nelder_mead(lambda _: 1e30, simplex, 200), np.zeros(d))
