"""Tests of mechanisms/unbiased/sparse_cholesky.py against numpy's dense solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms.unbiased.sparse_cholesky import SymbolicFactor


def entries(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the entries that are not 0."""
    rows, columns = np.nonzero(matrix)
    return rows, columns, matrix[rows, columns]


def solved(matrix: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    rows, columns, values = entries(matrix)
    factor = SymbolicFactor(len(matrix), rows, columns).factorize(values)
    assert factor is not None
    return factor.solve(rhs)


def random_definite(size: int, density: float, seed: int) -> np.ndarray:
    """A positive definite matrix of condition below about 100 with a random pattern."""
    random = np.random.default_rng(seed)
    half = np.where(random.random((size, size)) < density, random.normal(size=(size, size)), 0.0)
    matrix = half + half.T
    return matrix + np.diag(np.abs(matrix).sum(axis=1) + 0.1)


@given(st.integers(1, 120), st.sampled_from([0.0, 0.005, 0.02, 0.1, 1.0]), st.integers(0, 2**32 - 1))
def test_random_patterns_are_solved(size: int, density: float, seed: int):
    matrix = random_definite(size, density, seed)
    rhs = np.random.default_rng(seed).normal(size=size)
    expected = np.linalg.solve(matrix, rhs)
    assert np.abs(solved(matrix, rhs) - expected).max() <= 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["chain", "arrow", "comb", "blocks", "dense"])
def test_regular_patterns_are_solved(kind: str):
    size, matrix = 300, np.zeros((300, 300))
    places = np.arange(size)
    if kind in ("chain", "comb"):
        step = 1 if kind == "chain" else 2
        matrix[places[:-step:step], places[step::step]] = -1.0
    if kind == "comb":
        matrix[places[:-1:2], places[1::2]] = -0.5
    if kind == "arrow":
        matrix[:-1, -1] = -0.5
    if kind == "blocks":
        matrix = np.kron(np.eye(10), -np.ones((30, 30)))
    if kind == "dense":
        matrix = -np.ones((size, size))
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    matrix += np.diag(1.5 - matrix.sum(axis=1))
    rhs = np.sin(places)
    expected = np.linalg.solve(matrix, rhs)
    assert np.abs(solved(matrix, rhs) - expected).max() <= 1e-10 * np.abs(expected).max()


def test_one_pattern_serves_many_matrices():
    first, second = (random_definite(60, 0.05, seed) for seed in (1, 2))
    rows, columns = np.nonzero((first != 0) | (second != 0))
    symbolic = SymbolicFactor(60, rows, columns)
    for matrix in (first, second):
        factor = symbolic.factorize(matrix[rows, columns])
        assert factor is not None
        assert np.allclose(matrix @ factor.solve(np.ones(60)), 1.0, rtol=0, atol=1e-12)


def test_repeated_entries_are_added():
    rows, columns = np.array([0, 0, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 0, 1])
    factor = SymbolicFactor(2, rows, columns).factorize(np.array([1.0, 1.0, 1.0, 2.0, 1.0, 1.0]))
    assert factor is not None
    assert factor.solve(np.array([3.0, 4.0])) == pytest.approx([1.0, 1.0], rel=1e-15)


@pytest.mark.parametrize("size", [2, 90])
def test_a_matrix_that_is_not_definite_has_no_factor(size: int):
    matrix = random_definite(size, 0.1, 3)
    rows, columns, _ = entries(matrix)
    values = matrix - 2 * np.diag(np.where(np.arange(size) == size // 2, np.diagonal(matrix), 0.0))
    assert SymbolicFactor(size, rows, columns).factorize(values[rows, columns]) is None
