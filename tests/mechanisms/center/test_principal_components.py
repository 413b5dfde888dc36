"""Principal components against LAPACK, and that their bits depend on the matrix alone."""

from __future__ import annotations

import numpy as np
import pytest
from labeldp.mechanisms.center.principal_components import principal_components


def matrix_of(name: str) -> np.ndarray:
    random = np.random.Generator(np.random.PCG64(7))
    spectrum = random.normal(size=(500, 12)) * np.linspace(1, 0.2, 12) * 400
    turned = spectrum @ np.linalg.qr(random.normal(size=(12, 12)))[0]
    found = {
        "full": turned,
        "duplicated": np.concatenate([turned, turned], axis=1),
        "rank 2": np.rint(random.normal(size=(500, 2)) * 20) @ np.rint(random.normal(size=(2, 9)) * 3),
        "single column": turned[:, :1],
        "constant columns": np.full((50, 6), 1000.0),
        "wide": random.normal(size=(9, 40)) * 300,
        "one record": random.normal(size=(1, 5)) * 300,
        "with zero columns": np.concatenate([np.zeros((500, 3)), turned], axis=1),
        "largest": np.where(random.random((2000, 3)) < 0.5, -4096.0, 4096.0),
        "tiny": np.eye(4)[random.integers(0, 4, 100)],
    }
    return np.clip(np.rint(found[name]), -4096, 4096)


NAMES = [
    "full",
    "duplicated",
    "rank 2",
    "single column",
    "constant columns",
    "wide",
    "one record",
    "with zero columns",
    "largest",
    "tiny",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [1, 4, 48])
def test_components_are_those_of_lapack(name: str, most: int):
    matrix = matrix_of(name)
    moments = matrix.T @ matrix / len(matrix)
    expected = np.linalg.eigvalsh(moments)[::-1]
    rank = np.linalg.matrix_rank(matrix)
    directions, variances = principal_components(matrix, most)
    size = min(most, rank)
    assert directions.shape == (matrix.shape[1], size)
    np.testing.assert_allclose(variances, expected[:size], rtol=1e-4)
    np.testing.assert_allclose(directions.T @ directions, np.eye(size), atol=1e-12)
    # Eigenvectors, also where eigenvalues are equal and directions are not unique.
    error = moments @ directions - directions * variances
    assert np.abs(error).max() <= 0.01 * expected[0]
    if most >= rank:
        np.testing.assert_allclose(variances, expected[:size], rtol=1e-6)
        assert np.abs(error).max() <= 1e-6 * expected[0]


@pytest.mark.parametrize("shape", [(10, 3), (3, 10), (1, 1)])
def test_a_matrix_of_zeros_has_no_component(shape: tuple[int, int]):
    directions, variances = principal_components(np.zeros(shape), 4)
    assert directions.shape == (shape[1], 0)
    assert variances.shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_components_do_not_depend_on_the_order_of_the_records(name: str):
    matrix = matrix_of(name)
    expected = principal_components(matrix, 6)
    order = np.random.Generator(np.random.PCG64(8)).permutation(len(matrix))
    for other in (matrix[order], matrix[::-1], np.asfortranarray(matrix)):
        found = principal_components(other, 6)
        assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
