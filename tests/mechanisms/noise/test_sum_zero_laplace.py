"""Noise of sum 0 on vectors of integers: its exact distribution, its likelihood ratio and its variance."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.noise.discrete_laplace import ByteStream, discrete_laplace
from labeldp.mechanisms.noise.sum_zero_laplace import (
    sum_zero_laplace,
    sum_zero_laplace_integers,
    sum_zero_variance,
)

KEY = bytes(range(32))


def vectors(classes: int, reach: int) -> np.ndarray:
    """All vectors of sum 0 whose first entries are at most `reach`."""
    free = np.array(list(itertools.product(range(-reach, reach + 1), repeat=classes - 1)), np.int64)
    return np.concatenate([free.reshape(-1, classes - 1), -free.sum(axis=1, keepdims=True)], axis=1)


def law(classes: int, reach: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Brute force: vectors of sum 0 and their probabilities."""
    found = vectors(classes, reach)
    weights = np.exp(-np.abs(found).sum(axis=1) / (2 * scale))
    return found, weights / weights.sum()


@pytest.mark.parametrize(
    ("classes", "scale"),
    [
        (2, Fraction(1, 3)),
        (2, Fraction(5, 2)),
        (3, Fraction(1, 2)),
        (3, Fraction(7, 4)),
        (4, Fraction(1, 3)),
        (4, Fraction(1)),
    ],
)
def test_frequencies_are_those_of_brute_force(classes, scale, fits):
    drawn = sum_zero_laplace(ByteStream(KEY, b"fit"), scale, classes, 20_000)
    found, expected = law(classes, math.ceil(12 * scale) + 3, float(scale))
    place = {tuple(vector): index for index, vector in enumerate(found.tolist())}
    counts = np.bincount([place[tuple(vector)] for vector in drawn.tolist()], minlength=len(found))
    assert fits(counts, expected)


@pytest.mark.parametrize(("classes", "scale"), [(2, 3.0), (3, 0.5), (3, 2.0), (4, 0.8)])
def test_variance_is_that_of_brute_force(classes, scale):
    found, expected = law(classes, math.ceil(25 * scale) + 5, scale)
    variances = expected @ found.astype(float) ** 2
    assert variances == pytest.approx(sum_zero_variance(Fraction(scale), classes), rel=1e-6)


@pytest.mark.parametrize(("classes", "scale"), [(1, 2), (2, 7), (5, 3), (20, 1), (20, 100_000)])
def test_variance_is_that_of_draws(classes, scale):
    drawn = sum_zero_laplace(ByteStream(KEY, b"variance"), Fraction(scale), classes, 2000).astype(float)
    own = (drawn**2).mean(axis=1)
    error = own.std() / math.sqrt(len(own))
    assert abs(own.mean() - sum_zero_variance(Fraction(scale), classes)) <= 5 * error
    assert (drawn.sum(axis=1) == 0).all()


def test_two_classes_have_discrete_laplace_noise(fits):
    scale = Fraction(3, 2)
    drawn = sum_zero_laplace(ByteStream(KEY, b"two"), scale, 2, 20_000)[:, 0]
    plain = discrete_laplace(ByteStream(KEY, b"plain"), scale, 20_000)
    values = np.arange(-60, 61)
    expected = np.exp(-np.abs(values) / 1.5)
    for each in (drawn, plain):
        assert fits(np.bincount(each + 60, minlength=121), expected / expected.sum())


def test_variance_grows_from_plain_noise_to_four_times_that():
    scale = Fraction(50)
    found = [sum_zero_variance(scale, classes) for classes in (2, 3, 10, 100, 1000)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(2 * 50**2, rel=1e-3)
    assert 0.98 * 8 * 50**2 < found[-1] < 8 * 50**2


@settings(deadline=None)
@given(
    st.integers(2, 6),
    st.integers(1, 5),
    st.fractions(Fraction(1, 5), Fraction(4)),
    st.lists(st.integers(-6, 6), min_size=5, max_size=5),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_ratio_is_at_most_exp_epsilon(classes, sensitivity, epsilon, free, first, second):
    """Two datasets that differ in one label, whose change moves up to the sensitivity from one class to another."""
    noise = [*free[: classes - 1], -sum(free[: classes - 1])]
    moved = noise.copy()
    moved[first % classes] += sensitivity
    moved[second % classes] -= sensitivity
    scale = sensitivity / epsilon
    assert sum(moved) == 0
    exponent = (sum(map(abs, moved)) - sum(map(abs, noise))) / (2 * scale)
    assert -epsilon <= exponent <= epsilon


@settings(deadline=None, max_examples=50)
@given(
    st.fractions(Fraction(1, 50), Fraction(1 << 50)),
    st.integers(1, 12),
    st.integers(0, 4),
    st.binary(min_size=32, max_size=32),
)
def test_draws_have_the_sum_0_and_are_a_function_of_the_stream(scale, classes, count, key):
    drawn = sum_zero_laplace_integers(ByteStream(key, b"sum"), scale, classes, count)
    assert len(drawn) == count
    assert all(len(vector) == classes and sum(vector) == 0 for vector in drawn)
    assert drawn == sum_zero_laplace_integers(ByteStream(key, b"sum"), scale, classes, count)


@settings(deadline=None, max_examples=50)
@given(st.fractions(Fraction(1, 100), Fraction(1 << 60)), st.integers(1, 2000))
def test_variance_is_finite_and_within_its_bounds(scale, classes):
    found = sum_zero_variance(scale, classes)
    assert 0 <= found <= 8 * float(scale) ** 2
    assert (found == 0) == (classes == 1)


@pytest.mark.parametrize(("scale", "classes"), [(0, 2), (-1, 2), (1, 0)])
def test_a_scale_or_a_number_of_classes_that_is_not_positive_is_refused(scale, classes):
    for function in (
        lambda: sum_zero_laplace(ByteStream(KEY, b""), Fraction(scale), classes, 1),
        lambda: sum_zero_variance(Fraction(scale), classes),
    ):
        with pytest.raises(ValueError, match="must be"):
            function()
