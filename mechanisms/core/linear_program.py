"""Linear programs for HiGHS, which scipy includes, with few checks of their arguments.

A search solves hundreds of programs of some ten to two hundred variables. `scipy.optimize.linprog` takes three times as
long to check and to convert one as HiGHS takes to solve it. This module passes programs to the copy of HiGHS in scipy,
with the options that `linprog` sets. That interface is private to scipy: it is used only if it gives the bits of
`linprog` for a small program, and `linprog` solves the programs otherwise.

Measured on `labeldp solve` for 53 labels, in CPU time of the whole command: without it mvu takes 1.8 times as long,
quantizer 1.6, optm 1.3, erm and rqm as long as with it. It can go once scipy has a public interface without these
checks.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array

# Largest violation of a bound or row in a solution, as in linprog.
_LARGEST_VIOLATION = 10 * 1e-9**0.5


@dataclass(frozen=True, eq=False)
class Columns:
    """Coefficients of a program by column, as in `scipy.sparse.csc_array`: rows ascend within each column.

    Attributes:
      starts: Place of the first entry of every column, and the number of entries, shape (variables + 1,), int32.
      rows: Row of each entry, shape (entries,), int32.
      values: Shape (entries,), float64.
    """

    starts: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def of_dense(cls, matrix: np.ndarray) -> Columns:
        """Collects the entries of a matrix, shape (rows, variables), that are not zero."""
        by_column = matrix.T
        used = by_column != 0
        starts = np.zeros(len(by_column) + 1, np.int32)
        np.cumsum(used.sum(axis=1), out=starts[1:])
        return cls(starts, used.nonzero()[1].astype(np.int32), by_column[used])


@dataclass(frozen=True, eq=False)
class Program:
    """Minimizes costs @ v where the first rows are at most 0, the others equal `targets`, and least <= v <= most.

    Attributes:
      costs: Shape (variables,).
      columns: Coefficients of all rows.
      at_most: Number of the rows that are at most 0.
      targets: Values of the other rows.
      least: Lower bounds of the variables, shape (variables,).
      most: Upper bounds of the variables, shape (variables,); infinite where there are none.
      tolerance: Feasibility tolerance of the solver; None for its default.
    """

    costs: np.ndarray
    columns: Columns
    at_most: int
    targets: np.ndarray
    least: np.ndarray
    most: np.ndarray
    tolerance: float | None = None


@dataclass(frozen=True, eq=False)
class Optimum:
    """Solution of a program.

    Attributes:
      variables: Shape (variables,).
      prices: Derivatives of the optimum by `targets`, of their shape.
    """

    variables: np.ndarray
    prices: np.ndarray


def optimum(program: Program) -> Optimum | None:
    """Solves a linear program; None where it is infeasible, or HiGHS finds no solution."""
    core = _core()
    return by_linprog(program) if core is None else _by_core(core, program)


def by_linprog(program: Program) -> Optimum | None:
    """Solves a linear program through scipy's public interface, with the same result as `optimum`, in more time."""
    columns, at_most = program.columns, program.at_most
    shape = at_most + len(program.targets), len(program.costs)
    rows = csc_array((columns.values, columns.rows, columns.starts), shape).tocsr()
    tolerance = program.tolerance
    options = {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
    found = linprog(
        program.costs,
        A_ub=rows[:at_most],
        b_ub=np.zeros(at_most),
        A_eq=rows[at_most:],
        b_eq=program.targets,
        bounds=np.stack([program.least, program.most], axis=1),
        method="highs",
        options=options if tolerance else None,
    )
    return Optimum(found.x, found.eqlin.marginals) if found.status == 0 else None


@functools.cache
def _core() -> Any | None:
    """Returns scipy's module of HiGHS; None where a small program shows that it is not the one known here."""
    matrix = np.array([[1.0, 0.0, -1.0], [-3.0, 1.0, 0.0], [1.0, 1.0, 1.0], [-2.0, 0.5, 3.0]])
    least, most = np.array([0.0, 0.0, 0.1]), np.array([np.inf, 1.0, 1.0])
    small = Program(np.array([1.0, 0.7, 2.0]), Columns.of_dense(matrix), 2, np.array([1.0, 0.7]), least, most, 1e-10)
    known = by_linprog(small)
    try:
        core: Any = importlib.import_module("scipy.optimize._highspy._core")
        found = _by_core(core, small)
    except Exception:  # Whatever another version of scipy raises, linprog works.
        return None
    if known is None or found is None:
        return None
    same = np.array_equal(found.variables, known.variables) and np.array_equal(found.prices, known.prices)
    return core if same else None


def _by_core(core: Any, program: Program) -> Optimum | None:
    columns, inequalities = program.columns, program.at_most
    variables, rows = len(program.costs), inequalities + len(program.targets)
    lower, upper = np.full(rows, -np.inf), np.zeros(rows)
    lower[inequalities:] = upper[inequalities:] = program.targets
    shape = variables, rows, len(columns.values), int(core.MatrixFormat.kColwise), int(core.ObjSense.kMinimize)
    bounds = program.costs, program.least, program.most, lower, upper
    entries = columns.starts, columns.rows, columns.values
    highs = core._Highs()
    failed = core.HighsStatus.kError
    if highs.passOptions(_options(core, program.tolerance)) == failed:
        return None
    # The binding takes arrays without the conversion of each number that fields of a HighsLp need.
    if highs.passModel(*shape, 0.0, *bounds, *entries, np.zeros(variables, np.int32)) == failed:
        return None
    if highs.run() == failed or highs.getModelStatus() != core.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    found, slack = np.array(solution.col_value), upper - np.array(solution.row_value)
    # As linprog does; also false for NaN.
    feasible = (
        np.all(found >= program.least - _LARGEST_VIOLATION)
        and np.all(found <= program.most + _LARGEST_VIOLATION)
        and np.all(slack >= -_LARGEST_VIOLATION)
        and np.all(slack[inequalities:] <= _LARGEST_VIOLATION)
    )
    return Optimum(found, np.array(solution.row_dual)[inequalities:]) if feasible else None


@functools.cache
def _options(core: Any, tolerance: float | None) -> Any:
    """Returns the options that linprog sets."""
    options = core.HighsOptions()
    options.presolve = "on"
    options.output_flag = options.log_to_console = False
    options.simplex_strategy = int(core.simplex_constants.SimplexStrategy.kSimplexStrategyDual)
    if tolerance is not None:
        options.primal_feasibility_tolerance = options.dual_feasibility_tolerance = tolerance
    return options
