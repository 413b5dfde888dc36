"""Tests of mechanisms/core/reproducible.py: accuracy against decimal and exact arithmetic, and exactness of slices."""

from __future__ import annotations

import decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.core import reproducible
from threadpoolctl import threadpool_info, threadpool_limits

decimal.getcontext().prec = 60
Exact = decimal.Decimal
FINITE = st.floats(-700, 700)


def _ulps(found: float, exact: decimal.Decimal) -> float:
    return float(abs(Exact(found) - exact) / Exact(float(np.spacing(abs(found)))))


@given(FINITE)
def test_exp_is_accurate(x: float):
    assert _ulps(float(reproducible.exp(x)), Exact(x).exp()) < 2


@given(st.one_of(FINITE, st.floats(-1e-3, 1e-3)))
def test_expm1_is_accurate(x: float):
    found = float(reproducible.expm1(x))
    assert found == x or _ulps(found, Exact(x).exp() - 1) < 4


@given(st.one_of(st.floats(1e-300, 1e300), st.floats(0.5, 2)))
def test_log_is_accurate(x: float):
    found = float(reproducible.log(x))
    assert (found == 0 and x == 1) or _ulps(found, Exact(x).ln()) < 4


@given(st.floats(1e-100, 1e100), st.one_of(st.floats(1e-100, 1e100), st.floats(0.99, 1.01)))
def test_log_quotient_is_accurate(b: float, ratio: float):
    a = b * ratio
    found = float(reproducible.log_quotient(np.array(a), np.array(b)))
    assert (found == 0 and a == b) or _ulps(found, (Exact(a) / Exact(b)).ln()) < 6


def test_values_at_the_ends():
    assert reproducible.exp(np.array([-np.inf, -800.0, 0.0, 800.0, np.inf])).tolist() == [0, 0, 1, np.inf, np.inf]
    assert reproducible.expm1(np.array([-np.inf, -800.0, 0.0, 800.0, np.inf])).tolist() == [-1, -1, 0, np.inf, np.inf]
    assert reproducible.log(np.array([0.0, 1.0, np.inf])).tolist() == [-np.inf, 0, np.inf]
    assert reproducible.log_quotient(np.array([0.0, 1.0, np.inf]), np.ones(3)).tolist() == [-np.inf, 0, np.inf]
    for function in (reproducible.exp, reproducible.expm1, reproducible.log):
        assert np.isnan(function(np.nan))
    assert np.isnan(reproducible.log(-1.0))
    assert np.isnan(reproducible.log_quotient(np.array(-1.0), np.array(1.0)))


def test_power_multiplies():
    found = reproducible.power(np.array([[0.5], [3.0], [0.0]]), np.arange(5))
    assert found.tolist() == [[1, 0.5, 0.25, 0.125, 0.0625], [1, 3, 9, 27, 81], [1, 0, 0, 0, 0]]


def test_geomspace_keeps_its_ends():
    found = reproducible.geomspace(0.001, 10.0, 5)
    assert found[[0, -1]].tolist() == [0.001, 10.0]
    assert np.allclose(found, [0.001, 0.01, 0.1, 1, 10], rtol=1e-14)


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_matmul_is_accurate(n: int, seed: int):
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(3, n)), random.normal(size=(n, 4)) * 10.0 ** random.integers(-8, 8, n)[:, None]
    found = reproducible.matmul(a, b)
    exact = [[sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) for column in b.T] for row in a]
    largest = np.abs(a).max(axis=1, keepdims=True) * np.abs(b).max(axis=0)
    error = np.abs(
        np.array(
            [[float(f - Fraction(e)) for f, e in zip(*rows, strict=True)] for rows in zip(exact, found, strict=True)]
        )
    )
    assert np.all(error <= 2.0**-50 * n * largest)


@pytest.mark.parametrize("n", [1, 2, 31, 1000, 65536])
def test_products_of_slices_are_exact(n: int):
    bits = reproducible._slice_bits(n)
    # Slices are at most 2^bits; up to three products are added before the scale changes.
    assert 3 * n * 4**bits < 2**53


def test_matmul_of_a_permuted_sum_has_the_same_bits():
    random = np.random.default_rng(1)
    a, b = random.normal(size=(20, 300)), random.normal(size=(300, 30))
    order = random.permutation(300)
    # Addition without rounding does not depend on its order.
    assert np.array_equal(reproducible.matmul(a, b), reproducible.matmul(a[:, order], b[order]))


def test_stacked_products_add_in_ascending_order():
    random = np.random.default_rng(3)
    a, b = random.normal(size=(6, 1, 2, 5)), random.normal(size=(4, 5, 3))
    found = reproducible.stacked_matmul(a, b)
    assert found.shape == (6, 4, 2, 3)
    assert np.allclose(found, a @ b, rtol=1e-12)
    total = 0.0
    for i in range(5):
        total += a[2, 0, 1, i] * b[3, i, 2]
    assert found[2, 3, 1, 2] == total


def test_inner_products():
    random = np.random.default_rng(2)
    a, x, y = random.normal(size=(5, 7)), random.normal(size=7), random.normal(size=5)
    assert np.allclose(reproducible.matvec(a, x), a @ x, rtol=1e-13)
    assert np.allclose(reproducible.vecmat(y, a), y @ a, rtol=1e-13)
    assert reproducible.dot(x, x) == pytest.approx(x @ x, rel=1e-14)


@threadpool_limits.wrap(limits=2, user_api="blas")
def test_blas_has_one_thread_within_the_limit_and_as_many_as_before_after_it():
    def threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    # Two, but in a process where OpenBLAS keeps one: after forks of threads it does when OPENBLAS_NUM_THREADS is 1.
    before = threads()
    with reproducible.one_blas_thread():
        assert set(threads()) == {1}
    assert threads() == before
    # The contexts of two workers overlap: the first to begin is the first to end.
    first, second = reproducible.one_blas_thread(), reproducible.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before
