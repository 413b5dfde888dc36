"""Linear programs: scipy's HiGHS and its public interface give the same bits, and either one is used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE
from labeldp.mechanisms.core import linear_program
from labeldp.mechanisms.core.linear_program import Columns, Optimum, Program, by_linprog, optimum
from labeldp.mechanisms.quantization.input_scale import Inputs
from labeldp.mechanisms.quantization.table_program import best_table
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
