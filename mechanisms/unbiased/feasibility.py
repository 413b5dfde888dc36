"""Feasible solutions from interior-point solutions, with biases at the precision of floats.

The interior-point method satisfies the rows to about 1e-9. `feasible_solutions` repairs its columns so that rows sum to
1 and means are right to the precision of floats. `rebalance_outputs` is the last step: it solves for the outputs once
more after the probabilities were rounded to integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array

from ..core.certificate import exact_biases
from ..core.integer_weights import BITS, TOTAL
from ..core.prior import Prior
from ..core.reproducible import matmul, matvec, vecmat
from .interior_point import InteriorSolution
from .sparse_cholesky import SymbolicFactor
from .staircase_columns import Columns, Program

# Refinement ends when the largest residual has not fallen for _PATIENCE steps: near the precision of floats it
# fluctuates.
_MAX_REFINEMENTS, _PATIENCE = 100, 4
# Columns whose height is below this share of the largest height are left out in the second attempt.
_NEGLIGIBLE_HEIGHT = 1e-8
# Share of the gap that merging columns into groups with one output may use up.
_MERGE_SHARE = 0.2
# Regularization of the normal matrix, relative to its diagonal.
_RIDGE = 1e-13
# The repair fails where a height falls below this share of its value in the interior-point solution.
_LEAST_HEIGHT_SHARE = 0.1
# Largest residual of a repaired row, relative to the outputs.
_ROW_TOLERANCE = 1e-12
# Least prior weight of a label in the norm that `rebalance_outputs` minimizes.
_LEAST_WEIGHT = 1e-9


@dataclass(frozen=True, eq=False)
class FeasibleSolution:
    """Probability table and outputs that satisfy the rows to the precision of floats.

    Attributes:
      probabilities: Shape (k, m), float64.
      outputs: Shape (m,), float64; labels are scaled to [-1, 1].
      loss: Expected squared loss on that scale.
    """

    probabilities: np.ndarray
    outputs: np.ndarray
    loss: float


def rebalance_outputs(prior: Prior, outputs: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """Moves outputs until the biases of integer weights are within a limit, up to the rounding of the outputs.

    Biases are computed exactly. Each step is the smallest change of the outputs, weighted by how often they occur, that
    removes the excess biases. Its equations are differences of neighboring labels' rows: at a small epsilon the rows
    are nearly equal, and their exact differences keep the significant digits. The iteration ends when the largest
    excess bias does not fall.

    Weights are uint64, shape (k, m), and every row sums to 2^62; outputs are float64, shape (m,). The limit is in units
    of the labels, >= 0. The given outputs are returned where no step lowers the largest excess bias.
    """
    share = vecmat(np.maximum(prior.weights, _LEAST_WEIGHT), weights / TOTAL)
    signed = weights.astype(np.int64)
    equations = np.concatenate([signed[:1], np.diff(signed, axis=0)]) / TOTAL
    sizes = np.where(share > 0, 1 / np.where(share > 0, share, 1.0), 0.0)
    norms = np.sqrt(matvec(equations**2, sizes))
    if not np.all(norms > 0):
        return outputs
    scaled = equations / norms[:, None] * np.sqrt(sizes)
    k = len(scaled)
    factor = SymbolicFactor(k, *np.indices((k, k)).reshape(2, -1)).factorize(matmul(scaled, scaled.T).ravel())
    if factor is None:
        return outputs
    best, least = outputs, np.inf
    for _ in range(_MAX_REFINEMENTS):
        biases = np.array(exact_biases(prior.labels, outputs, weights, BITS), np.float64)
        excess = biases - np.clip(biases, -limit, limit)
        largest = float(np.abs(excess).max())
        if not largest < least:
            break
        best, least = outputs, largest
        if largest == 0:
            break
        residual = -np.diff(excess, prepend=0.0) / norms
        outputs = outputs + np.sqrt(sizes) * vecmat(factor.solve(residual), scaled)
    return best


def feasible_solutions(
    program: Program, limit: float, interior: InteriorSolution, gap: float
) -> Iterator[FeasibleSolution]:
    """Repairs an interior-point solution in up to three ways, and yields each attempt that succeeds.

    The attempts keep the columns that are used, then those whose height is not negligible, then all. Where the prior
    has zeros there are many optima, and the interior-point method finds a mixture of them with far more than 2 k
    columns, but few distinct outputs up to rounding. Columns with nearly equal outputs therefore share one output, as
    far as the gap allows.

    `limit` is the largest bias allowed, labels scaled to [-1, 1]; `gap` is the relative gap to reach.
    """
    columns, most = interior.columns, 2 * len(program.labels)
    allowed = _MERGE_SHARE * gap * program.loss(columns) / most
    for chosen in (interior.used, columns.height > _NEGLIGIBLE_HEIGHT * columns.height.max(), columns.height > 0):
        some = columns.select(chosen)
        group = np.arange(len(some.start)) if len(some.start) <= most else _groups(program, some, allowed)
        repaired = _restore_feasibility(program, limit, interior, some, group)
        if repaired is not None:
            yield repaired


def _groups(program: Program, columns: Columns, allowed: float) -> np.ndarray:
    """Groups columns by output, shape (n,): one output for each group adds at most `allowed` to the loss."""
    mass = columns.height * program.loss_curves(columns.start, columns.stop).mass
    numbers, number = np.empty(len(columns.start), int), -1
    held = mean = added = np.inf
    for index in np.argsort(columns.output, kind="stable").tolist():
        own, output = float(mass[index]), float(columns.output[index])
        share = own / (held + own)
        added += held * share * (output - mean) ** 2
        held, mean = held + own, mean + share * (output - mean)
        if not added <= allowed:
            number, held, mean, added = number + 1, own, output, 0.0
        numbers[index] = number
    return numbers


def _restore_feasibility(
    program: Program, limit: float, interior: InteriorSolution, columns: Columns, group: np.ndarray
) -> FeasibleSolution | None:
    """Changes heights, outputs of groups and biases until the rows hold to the precision of floats.

    Biases change only where one is allowed. The changes are the smallest ones relative to the heights and to the
    distance of the biases from their limit. Returns None where the rows do not hold then, or a height nearly vanishes.
    """
    k, n, m = len(program.labels), len(columns.start), int(group.max(initial=-1)) + 1
    if n == 0:
        return None
    height, index = columns.height, np.arange(k)
    held = np.bincount(group, height)
    output = np.bincount(group, height * columns.output) / held
    # Incidence of columns and boundaries, without the first boundary, which is left out.
    row = np.concatenate([columns.stop, columns.start - 1, np.full(n, k - 1)])
    column = np.tile(np.arange(n), 3)
    value = np.repeat([1.0, -1.0, program.base], n)
    row, column, value = (part[row >= 0] for part in (row, column, value))
    incidence = csr_array((value, (row, column)), shape=(k, n))
    # The linearized equations: the sums depend on heights; the means on heights, outputs and biases.
    parts = [
        (value, row, column),
        (value * output[group][column], k + row, column),
        (value * height[column], k + row, n + group[column]),
        (np.full(k, -1.0), k + index, n + m + index),
        (np.ones(k - 1), k + index[:-1], n + m + index[1:]),
    ]
    value, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
    equations = csr_array((value, (row, column)), shape=(2 * k, n + m + k))
    transposed = equations.T
    sizes = np.concatenate([height, 1 / held, interior.slack])
    normal = (
        csr_array(
            (equations.data * sizes[equations.indices], equations.indices, equations.indptr), shape=equations.shape
        )
        @ transposed
    )
    diagonal = normal.diagonal()
    regular = (normal + diags_array(_RIDGE * diagonal + (diagonal == 0))).tocoo()
    factor = SymbolicFactor(2 * k, regular.row, regular.col).factorize(regular.data)
    if factor is None:
        return None
    bias = interior.bias
    best, least, idle = (height, output, bias), np.inf, 0
    for _ in range(_MAX_REFINEMENTS):
        means = incidence @ (height * output[group]) - bias + np.append(bias[1:], 0.0)
        residual = program.rhs[:, 1:].ravel() - np.concatenate([incidence @ height, means])
        # A residual of a sum changes the mean by itself times an output.
        largest = float(max(np.abs(residual[:k]).max() * np.abs(output).max(), np.abs(residual[k:]).max()))
        if largest < least:
            best, least, idle = (height, output, bias), largest, 0
        else:
            idle += 1
            if idle == _PATIENCE:
                break
        by_height, by_output, by_bias = np.split(sizes * (transposed @ factor.solve(residual)), [n, n + m])
        height, output, bias = height + by_height, output + by_output, bias + by_bias
    height, output, bias = best
    if not np.all(height > _LEAST_HEIGHT_SHARE * columns.height):
        return None
    repaired = Columns(columns.start, columns.stop, height, output[group])
    probabilities = program.probabilities(repaired, group)
    missed = np.abs(probabilities.sum(axis=1) - 1).max()
    beyond = np.abs(matvec(probabilities, output) - program.labels).max() - limit
    if max(missed, beyond) > _ROW_TOLERANCE * max(1.0, np.abs(output).max()):
        return None
    return FeasibleSolution(probabilities, output, program.loss(repaired))
