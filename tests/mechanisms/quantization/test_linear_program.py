"""Linear programs: scipy's HiGHS and its public interface give the same bits, and either one is used.

Linear programs over tables: their constraints and optimality.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE, SQUARED
from labeldp.mechanisms.quantization import linear_program
from labeldp.mechanisms.quantization.input_scale import Inputs
from labeldp.mechanisms.quantization.linear_program import (
    Columns,
    Optimum,
    Program,
    best_table,
    by_linprog,
    feasible_table,
    log_ratio,
    optimum,
    repair_rows,
)
from labeldp.mechanisms.quantization.mvu import rounding_matrix
from labeldp.mechanisms.quantization.quantizer import coarsen
from scipy.optimize import linprog
from scipy.sparse import csc_array


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of one distribution and other rows, many of them infeasible, with ties, zeros and bounds."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    variables, at_most, equal = draw(st.integers(1, 12)), draw(st.integers(0, 8)), draw(st.integers(1, 3))
    rows = random.integers(-3, 4, (at_most + equal, variables)) * random.choice([1.0, 0.37], (at_most + equal, 1))
    rows[at_most] = 1.0
    rows[at_most:] *= draw(st.sampled_from([1.0, 2.5]))
    targets = rows[at_most:] @ random.dirichlet(np.ones(variables))
    least = np.where(random.random(variables) < 0.2, 0.05, 0.0)
    most = np.where(random.random(variables) < 0.5, np.inf, 0.9)
    costs = random.integers(-2, 5, variables) * 0.25
    tolerance = draw(st.sampled_from([None, 1e-10]))
    return Program(costs, Columns.of_dense(rows), at_most, targets, least, most, tolerance)


def assert_same(found: Optimum | None, expected: Optimum | None) -> None:
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        np.testing.assert_array_equal(found.variables, expected.variables)
        np.testing.assert_array_equal(found.prices, expected.prices)


@settings(max_examples=150)
@given(programs())
def test_both_interfaces_give_the_same_bits(program: Program) -> None:
    assert_same(optimum(program), by_linprog(program))


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_columns_are_those_of_scipy(seed: int, count: int, variables: int) -> None:
    matrix = np.random.default_rng(seed).integers(-1, 2, (count, variables)).astype(float)
    columns, expected = Columns.of_dense(matrix), csc_array(matrix)
    for own, other in zip(
        (columns.starts, columns.rows, columns.values), (expected.indptr, expected.indices, expected.data), strict=True
    ):
        np.testing.assert_array_equal(own, other)
        assert own.dtype == other.dtype


def test_scipy_has_the_interface_that_is_known() -> None:
    """A scipy without it is supported, but the solvers then take three times as long."""
    assert linear_program._core() is not None


@pytest.mark.parametrize("change", ["no module", "another interface", "other results"])
def test_linprog_solves_where_scipy_has_another_interface(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = Inputs(np.linspace(-1, 1, 9), np.full(9, 1 / 9)), np.array([-3.1, -0.5, 0.6, 3.3])
    expected = best_table(inputs, outputs, 1.0, ABSOLUTE)
    solved = []

    def counted(*arguments: object, **named: object) -> object:
        solved.append(arguments)
        return linprog(*arguments, **named)

    def missing(_: str) -> object:
        raise ImportError

    by_core = linear_program._by_core

    def moved(core: object, program: Program) -> Optimum | None:
        found = by_core(core, program)
        return None if found is None else Optimum(found.variables + 1e-12, found.prices)

    linear_program._core.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(linear_program, "linprog", counted)
            if change == "no module":
                patch.setattr(linear_program.importlib, "import_module", missing)
            elif change == "another interface":
                patch.setattr(linear_program.importlib, "import_module", lambda _: np)
            else:
                patch.setattr(linear_program, "_by_core", moved)
            table = best_table(inputs, outputs, 1.0, ABSOLUTE)
    finally:
        linear_program._core.cache_clear()
    assert len(solved) == 2, "one program shows the interface, the other one is the table's"
    assert table is not None
    assert expected is not None
    np.testing.assert_array_equal(table.probabilities, expected.probabilities)
    np.testing.assert_array_equal(table.slopes, expected.slopes)
    assert table.loss == expected.loss


def test_a_program_without_a_solution() -> None:
    columns, zeros, ones = Columns.of_dense(np.array([[1.0, 1.0], [1.0, 1.0]])), np.zeros(2), np.ones(2)
    assert optimum(Program(ones, columns, 1, np.array([1.0]), zeros, ones)) is None


def uniform(k: int) -> Inputs:
    return Inputs(np.linspace(-1, 1, k), np.full(k, 1 / k))


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 30), st.floats(0.05, 10), st.integers(0, 99), st.sampled_from([ABSOLUTE, SQUARED]))
def test_a_feasible_table_holds_exactly(k, epsilon, seed, loss):
    generator = np.random.default_rng(seed)
    inputs = Inputs(uniform(k).values, generator.dirichlet(np.ones(k)))
    outer = 1.3 / np.tanh(epsilon / 2)
    outputs = np.array([-outer, -0.4, 0.6, outer])
    table = feasible_table(inputs, outputs, epsilon, loss)
    assert table is not None
    assert table.min() >= 0
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(table @ outputs, inputs.values, atol=1e-14 * outer)
    assert log_ratio(table) <= epsilon


def test_no_pairwise_program_does_better():
    """Compares with an independent program that has all k (k - 1) m pairwise constraints."""
    k, epsilon, outputs = 5, 1.0, np.array([-3.0, -0.5, 0.5, 3.0])
    inputs, m = uniform(k), 4
    costs = (inputs.weights[:, None] * np.abs(outputs - inputs.values[:, None])).ravel()
    rows = []
    for a in range(k):
        for b in range(k):
            for c in range(m):
                row = np.zeros((k, m))
                row[a, c] += 1
                row[b, c] -= np.exp(epsilon)
                rows.append(row.ravel())
    equal = np.vstack([np.kron(np.eye(k), np.ones(m)), np.kron(np.eye(k), outputs)])
    answer = linprog(costs, np.array(rows), np.zeros(len(rows)), equal, np.append(np.ones(k), inputs.values))
    table = best_table(inputs, outputs, epsilon, ABSOLUTE)
    assert table is not None
    assert table.loss == pytest.approx(answer.fun, abs=1e-8)


def test_slopes_are_derivatives_of_the_optimum():
    inputs, outputs = uniform(20), np.array([-3.1, -0.52, 0.57, 3.3])
    table = best_table(inputs, outputs, 1.0, SQUARED)
    assert table is not None
    for place in range(4):
        values = []
        for step in (-1e-4, 1e-4):
            moved = best_table(inputs, outputs + step * (np.arange(4) == place), 1.0, SQUARED)
            assert moved is not None
            values.append(moved.loss)
        assert table.slopes[place] == pytest.approx((values[1] - values[0]) / 2e-4, abs=1e-3)


def test_outputs_too_near_allow_no_table():
    assert best_table(uniform(9), np.array([-1.5, 0.0, 1.5]), 1.0, ABSOLUTE) is None


def test_mending_changes_little():
    inputs, outputs = uniform(9), np.array([-3.0, -0.5, 0.5, 3.0])
    table = best_table(inputs, outputs, 1.0, ABSOLUTE)
    assert table is not None
    noisy = table.probabilities * (1 + 1e-8 * np.random.default_rng(1).standard_normal((9, 4)))
    found = repair_rows(noisy, outputs, inputs.values)
    np.testing.assert_allclose(found, table.probabilities, atol=1e-7)
    np.testing.assert_allclose(found @ outputs, inputs.values, atol=1e-15)


def test_rows_at_one_output_are_mended():
    """The two equations of such a row are nearly dependent."""
    outputs, means = np.array([-3.0, -0.5, 0.5, 3.0]), np.array([0.5, 0.5 + 3e-12, -3.0])
    rows = np.array([[0.0, 0, 1, 0], [1e-12, 1e-12, 1 - 3e-12, 1e-12], [1, 0, 0, 0]])
    found = repair_rows(rows, outputs, means)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(found @ outputs, means, atol=1e-15)


def test_coarse_inputs_keep_the_ends_and_the_mass():
    inputs = coarsen(uniform(1000), 41)
    assert len(inputs.values) == 41
    assert inputs.values[[0, -1]].tolist() == [-1, 1]
    assert inputs.weights.sum() == pytest.approx(1)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.integers(2, 9))
def test_rounding_is_unbiased_and_between_neighbours(values, n):
    grid, inputs = np.linspace(-1, 1, n), np.array(values)
    chances = rounding_matrix(grid, inputs)
    assert chances.min() >= 0
    np.testing.assert_allclose(chances @ grid, inputs, atol=1e-15)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-15)
    assert np.all((chances > 0).sum(axis=1) <= 2)
