"""Optimal randomizers with no bias, or with a limited one, solved without an output grid.

Source: Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label Differential Privacy". Their
Theorem 6 (Claims 11 to 14) shows that some optimum consists of staircase columns on intervals of labels, so the search
is over those alone, and columns are generated instead of being taken from a grid of outputs. A program over the columns
of some intervals, with any outputs, is solved by an interior-point method. Its prices then show, for all k (k + 1) / 2
intervals at once, which would lower the loss, and how far below the loss the optimum can be; these intervals and their
neighbors are added until the gap is proven.

Up to 64 labels, all intervals are columns from the start. More labels are solved at half the resolution first: the
full resolution needs little more than the intervals of that solution with their ends moved by a label or two.

The interior-point method satisfies the rows to about 1e-9. `feasible_solutions` repairs its columns so that rows sum to
1 and means are right to the precision of floats. `rebalance_outputs` is the last step: it solves for the outputs once
more after the probabilities were rounded to integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array, diags_array

from ..core.budget import check_epsilon
from ..core.certificate import exact_biases
from ..core.integer_weights import BITS, EPSILON_MARGIN, TOTAL, integer_weights
from ..core.label_grid import RANDOMIZED
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, expm1, matmul, matvec, one_blas_thread, vecmat
from ..response.debiased_rr import DebiasedResponse
from .interior_point import InteriorSolution, solve_interior_point
from .sparse_cholesky import SymbolicFactor
from .staircase_columns import Columns, Pricing, Program

MAX_LABELS = 1 << 12
"""Largest number of labels: more would take gigabytes and minutes."""

# Shares of the requested gap at which the program is solved, in turn: the repair and the rounding use up the rest.
_GAP_SHARES = (0.05, 1e-3)
_SMALLEST_GAP = 1e-15
# The program is solved for slightly less than the requested epsilon, so that rounding stays within it: EPSILON_MARGIN,
# at small epsilons a share of epsilon, and at least the last number.
_RELATIVE_EPSILON_MARGIN, _LEAST_EPSILON_MARGIN = 1e-7, 1e-14
# Likewise for the bias limit: a share of the limit or of its distance from 1, whichever is less. Limits at or below
# the last number are solved as 0.
_RELATIVE_BIAS_MARGIN, _SMALLEST_BIAS_LIMIT = 1e-8, 1e-9
DIRECT_LABELS = 64
"""Up to this many labels, all intervals are columns from the start."""
_MAX_ROUNDS = 12
# Relative gap at which coarser resolutions are solved.
_COARSE_GAP = 1e-4


@dataclass(frozen=True)
class Unbiased:
    """Randomizer of least squared loss among those with E[M(y)] = y for every label y.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      gap: Relative optimality gap to reach; the mechanism file states the gap that was proven.
    """

    name: ClassVar[str] = "unbiased"
    rounding: ClassVar[str] = RANDOMIZED
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves for the optimal unbiased randomizer. A few hundred labels take a fraction of a second.

        The randomizer states its proven gap. Raises ValueError if epsilon is not from 1e-9 to 30, the gap is out of
        range, or the prior has more than 4,096 labels.
        """
        return _solve(self.name, prior, epsilon, 0.0, self.gap, {})


@dataclass(frozen=True)
class BiasLimited:
    """Randomizer of least squared loss among those with |E[M(y)] - y| <= bias * (largest - smallest label).

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      bias: Bias limit as a share of the label range. 0 gives `unbiased`; 1 or more allows any bias, which gives the
        loss of `rr_on_bins`.
      gap: As for `Unbiased`, or 1e-12 of the squared label range where that is more: floats cannot distinguish smaller
        losses, such as those of nearly any bias under a prior of one label.
    """

    name: ClassVar[str] = "bias_limited"
    rounding: ClassVar[str] = RANDOMIZED
    bias: float = 0.1
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves for the optimal randomizer of limited bias, at the cost of `Unbiased.solve`.

        The randomizer states its proven gap. Raises ValueError if epsilon is not from 1e-9 to 30, the gap or the bias
        is out of range, or the prior has more than 4,096 labels.
        """
        if not self.bias >= 0:
            raise ValueError(f"bias must be at least 0, a fraction of the label range, not {self.bias:g}")
        return _solve(self.name, prior, epsilon, min(self.bias, 1.0), self.gap, {"bias": self.bias})


def _solve(
    name: str, prior: Prior, epsilon: float, bias: float, gap: float, parameters: dict[str, float]
) -> Randomizer:
    check_epsilon(epsilon)
    if not gap >= 0:
        raise ValueError(f"gap must be at least 0, a fraction of the loss, not {gap:g}")
    labels = prior.labels
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels; at most {MAX_LABELS}: use a larger label step")
    if len(labels) == 1:
        return Randomizer(labels, labels, integer_weights(np.ones((1, 1)), epsilon), epsilon, name, parameters, 0.0)
    middle, half = (labels[0] + labels[-1]) / 2, (labels[-1] - labels[0]) / 2
    scaled = (labels - middle) / half
    # The bound is proven for the requested epsilon and bias; the solution is for slightly less, so that rounding stays
    # within them.
    requested = Program(scaled, prior.weights, 1 / float(expm1(epsilon)), 2 * bias)
    margin = max(min(EPSILON_MARGIN, _RELATIVE_EPSILON_MARGIN * epsilon), _LEAST_EPSILON_MARGIN)
    bias_limit = 2 * (bias - _RELATIVE_BIAS_MARGIN * min(bias, 1 - bias)) if bias > _SMALLEST_BIAS_LIMIT else 0.0
    program = Program(scaled, prior.weights, 1 / float(expm1(epsilon - margin)), bias_limit)
    with one_blas_thread():
        table, bound = _optimum(program, requested, gap)
        if table is None:
            response = DebiasedResponse().solve(prior, epsilon)
            outputs, weights = response.outputs, response.weights
        else:
            outputs, weights = table.outputs * half + middle, integer_weights(table.probabilities, epsilon)
            outputs = rebalance_outputs(prior, outputs, weights, bias * (labels[-1] - labels[0]))
    randomizer = Randomizer(labels, outputs, weights, epsilon, name, parameters)
    distances = (randomizer.outputs - middle) / half - scaled[:, None]
    loss = dot(prior.weights, (randomizer.probabilities() * distances**2).sum(axis=1))
    randomizer.gap = max(1 - bound / loss, 0.0) if loss > 0 else 0.0
    return randomizer


def _optimum(program: Program, requested: Program, gap: float) -> tuple[FeasibleSolution | None, float]:
    """Returns a feasible solution of the program, and a bound on the loss of any solution that `requested` allows.

    The solution is None for debiased randomized response, where it is within the gap or nothing better is found.
    """
    response, potentials = requested.debiased_response()
    bound = requested.price_intervals(potentials).bound if requested.bias_limit == 0 else 0.0
    best, least_loss = None, requested.loss(response)

    def improved(table: FeasibleSolution | None) -> bool:
        nonlocal best, least_loss
        if table is not None and table.loss < least_loss:
            best, least_loss = table, table.loss
        return least_loss * (1 - gap) <= bound

    if improved(_constant(requested) if requested.bias_limit >= 1 else None):
        return best, bound
    for share in _GAP_SHARES:
        interior, _ = _solve_multiscale(program, max(gap * share, _SMALLEST_GAP))
        bound = max(bound, requested.price_intervals(interior.potentials).bound)
        if any(improved(table) for table in feasible_solutions(program, requested.bias_limit, interior, gap)):
            break
    return best, bound


def _constant(program: Program) -> FeasibleSolution:
    """Returns the best single output for all labels, where the bias limit allows one."""
    output = float(np.clip(program.mean, 1 - program.bias_limit, program.bias_limit - 1))
    loss = dot(program.weights, (program.labels - output) ** 2)
    return FeasibleSolution(np.ones((len(program.labels), 1)), np.array([output]), loss)


def _solve_multiscale(program: Program, gap: float) -> tuple[InteriorSolution, Pricing]:
    """Solves a program at full resolution to a relative gap > 0.

    The result is the interior-point solution over the generated columns, and the pricing of all intervals at its
    prices.
    """
    k = len(program.labels)
    if k <= DIRECT_LABELS:
        interior = solve_interior_point(program, *np.triu_indices(k), gap)
        return interior, program.price_intervals(interior.potentials)
    # Every second label and the last one, each with the prior weight of the labels nearest to it.
    chosen = np.unique(np.append(np.arange(0, k, 2), k - 1))
    middles = (program.labels[chosen][1:] + program.labels[chosen][:-1]) / 2
    weights = np.bincount(np.searchsorted(middles, program.labels), program.weights, len(chosen))
    coarse = Program(program.labels[chosen], weights, program.base, program.bias_limit)
    interior, pricing = _solve_multiscale(coarse, max(gap, _COARSE_GAP))
    used = interior.columns.select(interior.used)
    start, stop = np.append(used.start, pricing.start), np.append(used.stop, pricing.stop)
    return _generate_columns(program, *_neighboring_intervals(chosen[start], chosen[stop], k), gap)


def _neighboring_intervals(start: np.ndarray, stop: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns all single labels, and the intervals whose ends are up to two labels further out or one further in."""
    offsets = np.arange(-1, 3)
    starts = np.clip(start[:, None, None] - offsets[:, None], 0, k - 1)
    stops = np.clip(stop[:, None, None] + offsets, 0, k - 1)
    starts, stops = (part.ravel() for part in np.broadcast_arrays(starts, stops))
    return _distinct_intervals(np.append(starts, np.arange(k)), np.append(stops, np.arange(k)), k)


def _distinct_intervals(start: np.ndarray, stop: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Drops repeated and empty intervals."""
    pairs = np.unique((start * k + stop)[start <= stop])
    return pairs // k, pairs % k


def _generate_columns(
    program: Program, start: np.ndarray, stop: np.ndarray, gap: float
) -> tuple[InteriorSolution, Pricing]:
    """Adds the intervals that would raise the bound, until the gap is proven or there are none left."""
    k = len(program.labels)
    for _ in range(_MAX_ROUNDS):
        interior = solve_interior_point(program, start, stop, gap)
        pricing = program.price_intervals(interior.potentials)
        requested = _neighboring_intervals(pricing.start[pricing.improves], pricing.stop[pricing.improves], k)
        more = _distinct_intervals(np.append(start, requested[0]), np.append(stop, requested[1]), k)
        if program.loss(interior.columns) * (1 - 2 * gap) <= pricing.bound or len(more[0]) == len(start):
            break
        start, stop = more
    return interior, pricing


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
