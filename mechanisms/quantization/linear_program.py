"""Linear programs: a fast call of HiGHS, and the program over the probability tables of given outputs.

A search solves hundreds of programs of some ten to two hundred variables. `scipy.optimize.linprog` takes three times as
long to check and to convert one as HiGHS, which scipy includes, takes to solve it. `optimum` passes programs to the
copy of HiGHS in scipy, with the options that `linprog` sets. That interface is private to scipy: it is used only if it
gives the bits of `linprog` for a small program, and `linprog` solves the programs otherwise.

Measured on `labeldp solve` for 53 labels, in CPU time of the whole command: without it mvu takes 1.8 times as long,
quantizer 1.6, optm 1.3, erm and rqm as long as with it. It can go once scipy has a public interface without these
checks.

The program over tables is Badanidiyuru et al. 2023, Algorithm 1, for any outputs. Privacy needs no pairs of rows:
q_c <= M[y, c] <= E q_c, with one least probability q_c for each output, states the same in 2 k m rows.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array

from ..core import reproducible
from ..core.integer_weights import EPSILON_MARGIN
from ..core.losses import Loss
from .input_scale import Inputs

LARGEST_EPSILON = 12.0
"""Largest epsilon of `best_table`: above it, exp(epsilon) exceeds the precision of floats, and privacy costs little."""

# Largest violation of a bound or row in a solution, as in linprog.
_LARGEST_VIOLATION = 10 * 1e-9**0.5
# Relative amounts by which epsilon is lowered in turn until the repaired table satisfies it.
_MARGINS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
# Feasibility tolerance of HiGHS for tables.
_TOLERANCE = 1e-10


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


@dataclass(frozen=True, eq=False)
class Table:
    """Probability table of least loss for given outputs.

    Attributes:
      probabilities: Shape (k, m).
      loss: Expected loss.
      slopes: Derivatives of the loss by the outputs, shape (m,).
    """

    probabilities: np.ndarray
    loss: float
    slopes: np.ndarray


def best_table(inputs: Inputs, outputs: np.ndarray, epsilon: float, loss: Loss) -> Table | None:
    """Solves for the unbiased epsilon-DP probabilities of least expected loss; None where the outputs allow none.

    The rows hold to about 1e-9; `repair_rows` makes them exact. Outputs, shape (m,), ascend; epsilon is at most 12.
    """
    k, m = len(inputs.values), len(outputs)
    ratio = float(reproducible.exp(epsilon))
    values = loss.value(outputs[None, :], inputs.values[:, None])
    # Variables: M[y, c] by label, then E q_c, which is about as large as the probabilities.
    n = k * m
    costs = np.append((inputs.weights[:, None] * values).ravel(), np.zeros(m))
    targets = np.append(np.ones(k), inputs.values)
    columns = _table_columns(k, outputs, ratio)
    found = optimum(Program(costs, columns, 2 * n, targets, np.zeros(n + m), np.full(n + m, np.inf), _TOLERANCE))
    if found is None:
        return None
    probabilities = np.maximum(found.variables[:n].reshape(k, m), 0.0)
    prices = found.prices[-k:]
    if loss.name == "absolute":
        slopes = np.sign(outputs[None, :] - inputs.values[:, None])
    else:
        slopes = 2 * (outputs[None, :] - inputs.values[:, None])
    by_output = ((inputs.weights[:, None] * slopes - prices[:, None]) * probabilities).sum(axis=0)
    return Table(probabilities, reproducible.dot(costs[:n], probabilities.ravel()), by_output)


def _table_columns(k: int, outputs: np.ndarray, ratio: float) -> Columns:
    """Returns the columns of the rows M - E q <= 0, E q - E M <= 0, the sums of M, and its means."""
    m = len(outputs)
    n = k * m
    place = np.arange(n, dtype=np.int32)
    label = place // m
    rows = np.stack([place, n + place, 2 * n + label, 2 * n + k + label], axis=1)
    values = np.empty((k, m, 4))
    values[..., :3], values[..., 3] = (1.0, -ratio, 1.0), outputs
    of_output = np.arange(2 * n, dtype=np.int32).reshape(2 * k, m).T
    starts = np.append(4 * np.arange(n, dtype=np.int32), 4 * n + 2 * k * np.arange(m + 1, dtype=np.int32))
    signs = np.tile(np.repeat([-1.0, 1.0], k), m)
    return Columns(starts, np.append(rows, of_output), np.append(values, signs))


def repair_rows(probabilities: np.ndarray, outputs: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Corrects rows until they sum to 1 and have the given means within rounding, by the smallest relative change.

    Probabilities that are nearly right and the result have shape (k, m), the means (k,).
    """
    scale = np.max(np.abs(outputs))
    points = outputs / scale
    targets = means[:, None] / scale
    for _ in range(4):
        mass = probabilities.sum(axis=1, keepdims=True)
        mean = (probabilities * points).sum(axis=1, keepdims=True) / mass
        # Weighted by the row, 1 and the distance from its mean are orthogonal: two equations of one unknown each.
        away = points - mean
        spread = (probabilities * away**2).sum(axis=1, keepdims=True)
        slope = np.where(spread > 0, (targets - mean) / np.where(spread > 0, spread, 1.0), 0.0)
        probabilities = probabilities * (1 / mass + slope * away)
    return probabilities


def log_ratio(probabilities: np.ndarray) -> float:
    """Computes the privacy loss of a table (k, m): the largest ln(M[y, c] / M[z, c]) of one output.

    Infinite where an output is possible for some rows only.
    """
    most, least = probabilities.max(axis=0), probabilities.min(axis=0)
    used = most > 0
    if np.any(least[used] <= 0):
        return np.inf
    return float(reproducible.log((most[used] / least[used]).max()))


def feasible_table(inputs: Inputs, outputs: np.ndarray, epsilon: float, loss: Loss) -> np.ndarray | None:
    """Solves for the best table, repairs its rows, and lowers epsilon slightly until the result satisfies it.

    The result has shape (k, m); None where none was found. The outputs ascend.
    """
    target = min(epsilon, LARGEST_EPSILON)
    for margin in _MARGINS:
        table = best_table(inputs, outputs, target * (1 - margin), loss)
        if table is None:
            return None
        # Outputs of negligible probability are artifacts of the program's tolerance.
        kept = np.where(table.probabilities.max(axis=0) > 1e-9, table.probabilities, 0.0)
        found = repair_rows(kept, outputs, inputs.values)
        if found.min() >= 0 and log_ratio(found) <= epsilon - EPSILON_MARGIN:
            return found
    return None
