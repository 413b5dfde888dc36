"""Exact selections: local optima under the exact privacy loss."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE, LOSSES
from labeldp.mechanisms.quantization.bin_selection import Layout, coupled_selection, expected_loss, privacy_loss
from labeldp.mechanisms.quantization.exact_selection import _eliminate, _substitute, exact_selection
from labeldp.mechanisms.quantization.input_scale import Inputs
from labeldp.mechanisms.quantization.rqm import geometric_selection

VALUES = np.linspace(-1, 1, 41)
SKEWED = Inputs(VALUES, np.arange(1.0, 42) / np.arange(1, 42).sum())


@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.parametrize(("epsilon", "outer"), [(0.5, 5.0), (1.0, 3.0), (4.0, 1.4)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_no_selection_nearby_is_better(loss, epsilon, outer, symmetric):
    """A selection nearby that exceeds epsilon gains at most the price of the excess, to first order."""
    bins = np.array([-outer, -0.5, 0.5, outer])
    layout, generator = Layout(bins, symmetric), np.random.default_rng(1)
    coupled = coupled_selection(bins, SKEWED, epsilon, LOSSES[loss])
    assert coupled is not None
    found = exact_selection(layout, SKEWED, epsilon, LOSSES[loss], coupled[1])
    assert found is not None
    assert privacy_loss(found) <= epsilon
    best = float(expected_loss(found, SKEWED, LOSSES[loss]))
    assert coupled[0] <= best * (1 + 1e-9)
    stricter = exact_selection(layout, SKEWED, epsilon - 1e-3, LOSSES[loss], found)
    assert stricter is not None
    price = 1e3 * (float(expected_loss(stricter, SKEWED, LOSSES[loss])) - best)
    variables = layout.variables(found)
    for _ in range(500):
        change = variables * generator.standard_normal(layout.count)
        change += generator.random(layout.count) * (generator.random(layout.count) < 0.3)
        near = layout.selection(np.maximum(variables + 1e-4 * change, 0))
        excess = float(privacy_loss(near)) - epsilon
        assert float(expected_loss(near, SKEWED, LOSSES[loss])) + price * excess >= best * (1 - 2e-6)


def test_a_start_that_violates_epsilon_is_left():
    bins = np.array([-3.0, -0.5, 0.5, 3.0])
    start = geometric_selection(bins, np.array(0.9))
    assert privacy_loss(start) > 1.0
    found = exact_selection(Layout(bins, True), SKEWED, 1.0, ABSOLUTE, start)
    assert found is not None
    assert privacy_loss(found) <= 1.0


@settings(max_examples=25, deadline=None)
@given(
    st.integers(3, 7),
    st.floats(0.2, 6.0),
    st.floats(1.01, 2.0),
    st.floats(0.1, 1.0),
    st.booleans(),
    st.sampled_from(["absolute", "squared"]),
)
def test_geometric_selections_are_not_better(m, epsilon, outer, inner, symmetric, loss):
    ends = outer / np.tanh(epsilon / 2)
    middle = np.linspace(-inner, inner, m - 2) if m > 3 else np.zeros(1)
    bins = np.concatenate([[-ends], middle, [ends]])
    coupled = coupled_selection(bins, SKEWED, epsilon, LOSSES[loss])
    assert coupled is not None
    found = exact_selection(Layout(bins, symmetric), SKEWED, epsilon, LOSSES[loss], coupled[1])
    assert found is not None
    assert privacy_loss(found) <= epsilon
    best = float(expected_loss(found, SKEWED, LOSSES[loss]))
    assert coupled[0] <= best * (1 + 1e-8)
    for ratio in np.linspace(0.02, 1.0, 50):
        other = geometric_selection(bins, np.array(ratio))
        if privacy_loss(other) <= epsilon:
            assert best <= float(expected_loss(other, SKEWED, LOSSES[loss])) * (1 + 1e-7)


_SOLVE = """
import numpy as np
from labeldp.mechanisms import SQUARED
from labeldp.mechanisms.quantization.exact_selection import exact_selection
from labeldp.mechanisms.quantization.input_scale import Inputs
from labeldp.mechanisms.quantization.bin_selection import Layout, coupled_selection
inputs = Inputs(np.linspace(-1, 1, 41), np.arange(1.0, 42) / 861)
for bins in ([-3.0, -0.5, 0.5, 3.0], [-3.0, -0.7, -0.2, 0.2, 0.7, 3.0]):
    start = coupled_selection(np.array(bins), inputs, 1.0, SQUARED)[1]
    found = exact_selection(Layout(np.array(bins), False), inputs, 1.0, SQUARED, start)
    print(found.left.tobytes().hex(), found.right.tobytes().hex())
"""


def test_other_kernels_give_the_same_bits():
    """Optima that are no vertices, with the oldest kernels of BLAS and of numpy, and with the CPU's own."""
    oldest = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2,FMA3,AVX512F,AVX512CD,AVX512_SKX"}
    found = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _SOLVE], env=os.environ | extra, capture_output=True, check=True
        ).stdout
        for extra in ({}, oldest)
    ]
    assert len(found[0]) > 1000
    assert found[0] == found[1]


def test_elimination_solves_quasidefinite_equations():
    generator = np.random.default_rng(1)
    half, rows = generator.standard_normal((9, 9)), generator.standard_normal((3, 9))
    matrix = np.block([[half @ half.T + np.eye(9), rows.T], [rows, np.zeros((3, 3))]])
    right, factors = generator.standard_normal(12), matrix.copy()
    assert _eliminate(factors, 9)
    np.testing.assert_allclose(_substitute(factors, right), np.linalg.solve(matrix, right), rtol=1e-9)
    matrix[4, 4] = -1.0
    assert not _eliminate(matrix, 9)
