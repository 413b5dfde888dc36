"""The optimal randomizer with no bias, or with a limited one, solved without an output grid.

Source: Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label Differential Privacy". Their
Theorem 6 (Claims 11 to 14) shows that some optimum consists of staircase columns on intervals of labels, so those are
all that is searched: columns are generated, not taken from a grid of outputs. A program over the columns of some
intervals, with any outputs, is solved by an interior-point method; its prices then show, for all k (k + 1) / 2
intervals at once, which to add and how far the optimum can be.

Up to 64 labels take all intervals from the start. More labels are solved for at half the resolution first: where its
columns start and stop, moved by a label or two, is nearly all that the full resolution needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import splu

from .certificate import exact_biases
from .debiased_response import DebiasedResponse
from .interior_point import Interior, interior_solution
from .label_rounding import RANDOMIZED
from .prior import Prior, check_epsilon
from .randomizer import BITS, TOTAL, Randomizer
from .rounding import HAIR, integer_weights
from .staircases import Columns, Program, Proof

MAX_LABELS = 1 << 12
"""Beyond, columns take gigabytes and minutes."""
_DIRECT = 64
"""Up to this many labels take all intervals from the start."""
_MAX_ROUNDS = 12
_COARSE_GAP = 1e-4
# Parts of the gap that are solved for: the rest is for what follows.
_DEPTHS = (0.05, 1e-3)
_LEAST_GAP = 1e-15
# Refinement ends when what rows lack has not fallen for some steps: near the rounding of floats it goes up and down.
_MOST_REFINEMENTS, _PATIENCE = 100, 4
_NEGLIGIBLE = 1e-8
_TIED = 0.2
_RIDGE = 1e-13
_KEPT = 0.1
_ROUNDING = 1e-12
# How much less than the epsilon and the bias that were asked for is solved for; of the bias that is allowed or of that
# which is not, whichever is less.
_SMALL_EPSILON_HAIR, _LEAST_HAIR = 1e-7, 1e-14
_BIAS_HAIR = 1e-8
_LEAST_BIAS = 1e-9
# Of a label that never occurs in the prior, in the weighing of its outputs.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True)
class Unbiased:
    """The randomizer of least squared loss among those with E[M(y)] = y for every label.

    gap: the relative optimality gap to reach; what was reached is in the randomizer's file.
    """

    name: ClassVar[str] = "unbiased"
    rounding: ClassVar[str] = RANDOMIZED
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Some hundreds of labels take a fraction of a second. Raises ValueError for an epsilon out of range, or too
        many labels."""
        return _solve(self.name, prior, epsilon, 0.0, self.gap, {})


@dataclass(frozen=True)
class BiasLimited:
    """The randomizer of least squared loss among those with |E[M(y)] - y| <= bias * (largest - smallest label).

    bias: 0 gives `unbiased`, 1 or more allows any bias, which gives the loss of `rr_on_bins`. gap: as for `unbiased`,
    or 1e-12 of the squared range where that is more: floats do not tell losses apart that are smaller, as those of
    nearly any bias under a prior of one label.
    """

    name: ClassVar[str] = "bias_limited"
    rounding: ClassVar[str] = RANDOMIZED
    bias: float = 0.1
    gap: float = 1e-6

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """As `Unbiased.solve`. Raises ValueError for a bias that is negative or not a number, too."""
        if not self.bias >= 0:
            raise ValueError(f"bias must be at least 0, a fraction of the label range, not {self.bias:g}")
        return _solve(self.name, prior, epsilon, min(self.bias, 1.0), self.gap, {"bias": self.bias})


@dataclass(frozen=True, eq=False)
class _Table:
    """probabilities: (k, m). outputs: (m,). loss: the expected one, labels from -1 to 1."""

    probabilities: np.ndarray
    outputs: np.ndarray
    loss: float


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
    # What is proven is proven for what was asked; a little less is solved for, so that rounding stays within.
    asked = Program(scaled, prior.weights, 1 / float(np.expm1(epsilon)), 2 * bias)
    hair = max(min(HAIR, _SMALL_EPSILON_HAIR * epsilon), _LEAST_HAIR)
    slack = 2 * (bias - _BIAS_HAIR * min(bias, 1 - bias)) if bias > _LEAST_BIAS else 0.0
    program = Program(scaled, prior.weights, 1 / float(np.expm1(epsilon - hair)), slack)
    table, bound = _optimum(program, asked, gap)
    if table is None:
        response = DebiasedResponse().solve(prior, epsilon)
        outputs, weights = response.outputs, response.weights
    else:
        outputs, weights = table.outputs * half + middle, integer_weights(table.probabilities, epsilon)
        outputs = rebalanced(prior, outputs, weights, bias * (labels[-1] - labels[0]))
    randomizer = Randomizer(labels, outputs, weights, epsilon, name, parameters)
    distances = (randomizer.outputs - middle) / half - scaled[:, None]
    loss = float(prior.weights @ (randomizer.probabilities() * distances**2).sum(axis=1))
    randomizer.gap = max(1 - bound / loss, 0.0) if loss > 0 else 0.0
    return randomizer


def rebalanced(prior: Prior, outputs: np.ndarray, weights: np.ndarray, limit: float) -> np.ndarray:
    """Moves outputs until the biases of integer weights are within a limit, up to the rounding of the outputs.

    Biases are computed exactly. Each step is the least change of the outputs, weighted by how often they occur, in
    equations between neighboring labels: their rows are nearly equal at a small epsilon, and their exact differences
    keep what that leaves. Steps end when the largest bias beyond the limit does not fall.

    Args:
      prior: Labels and weights, k of them.
      outputs: Shape (m,), float64.
      weights: Shape (k, m), uint64; every row sums to 2^62.
      limit: The largest bias allowed, in units of the labels, at least 0.

    Returns:
      The outputs, shape (m,), float64.
    """
    share = np.maximum(prior.weights, _LEAST_SHARE) @ (weights / TOTAL)
    signed = weights.astype(np.int64)
    equations = np.concatenate([signed[:1], np.diff(signed, axis=0)]) / TOTAL
    sizes = np.where(share > 0, 1 / np.where(share > 0, share, 1.0), 0.0)
    norms = np.sqrt((equations**2) @ sizes)
    if not np.all(norms > 0):
        return outputs
    scaled = equations / norms[:, None] * np.sqrt(sizes)
    try:
        factors = cho_factor(scaled @ scaled.T)
    except np.linalg.LinAlgError:
        return outputs
    best, least = outputs, np.inf
    for _ in range(_MOST_REFINEMENTS):
        biases = np.array(exact_biases(prior.labels, outputs, weights, BITS), np.float64)
        excess = biases - np.clip(biases, -limit, limit)
        largest = float(np.abs(excess).max())
        if not largest < least:
            break
        best, least = outputs, largest
        if largest == 0:
            break
        lack = -np.diff(excess, prepend=0.0) / norms
        outputs = outputs + np.sqrt(sizes) * (scaled.T @ cho_solve(factors, lack))
    return best


def _optimum(program: Program, asked: Program, gap: float) -> tuple[_Table | None, float]:
    """A solution of the program whose rows hold to the rounding of floats, and a bound on the loss of any that `asked`
    allows. None for debiased randomized response, where it is within the gap or nothing better is found."""
    response, potentials = asked.debiased_response()
    bound = asked.proof(potentials).bound if asked.slack == 0 else 0.0
    best, least = None, asked.loss(response)

    def improved(table: _Table | None) -> bool:
        nonlocal best, least
        if table is not None and table.loss < least:
            best, least = table, table.loss
        return least * (1 - gap) <= bound

    if improved(_constant(asked) if asked.slack >= 1 else None):
        return best, bound
    for depth in _DEPTHS:
        interior, _ = _multiscale(program, max(gap * depth, _LEAST_GAP))
        bound = max(bound, asked.proof(interior.potentials).bound)
        if any(improved(table) for table in _finished(program, asked.slack, interior, gap)):
            break
    return best, bound


def _constant(program: Program) -> _Table:
    """The best output for all labels alike, where the bias allows one."""
    output = float(np.clip(program.mean, 1 - program.slack, program.slack - 1))
    loss = float(program.weights @ (program.labels - output) ** 2)
    return _Table(np.ones((len(program.labels), 1)), np.array([output]), loss)


def _multiscale(program: Program, gap: float) -> tuple[Interior, Proof]:
    k = len(program.labels)
    if k <= _DIRECT:
        interior = interior_solution(program, *np.triu_indices(k), gap)
        return interior, program.proof(interior.potentials)
    # Every second label and the last one, each with the prior of the labels nearest to it.
    chosen = np.unique(np.append(np.arange(0, k, 2), k - 1))
    middles = (program.labels[chosen][1:] + program.labels[chosen][:-1]) / 2
    weights = np.bincount(np.searchsorted(middles, program.labels), program.weights, len(chosen))
    coarse = Program(program.labels[chosen], weights, program.base, program.slack)
    interior, proof = _multiscale(coarse, max(gap, _COARSE_GAP))
    used = interior.columns.chosen(interior.used)
    start, stop = np.append(used.start, proof.start), np.append(used.stop, proof.stop)
    return _generate(program, *_neighbours(chosen[start], chosen[stop], k), gap)


def _neighbours(start: np.ndarray, stop: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All single labels, and intervals whose ends are up to two labels further out or one further in than these."""
    outwards = np.arange(-1, 3)
    starts = np.clip(start[:, None, None] - outwards[:, None], 0, k - 1)
    stops = np.clip(stop[:, None, None] + outwards, 0, k - 1)
    starts, stops = (part.ravel() for part in np.broadcast_arrays(starts, stops))
    return _distinct(np.append(starts, np.arange(k)), np.append(stops, np.arange(k)), k)


def _distinct(start: np.ndarray, stop: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.unique((start * k + stop)[start <= stop])
    return pairs // k, pairs % k


def _generate(program: Program, start: np.ndarray, stop: np.ndarray, gap: float) -> tuple[Interior, Proof]:
    """Column generation: intervals that the prices ask for are added until the gap is proven or none is asked for."""
    k = len(program.labels)
    for _ in range(_MAX_ROUNDS):
        interior = interior_solution(program, start, stop, gap)
        proof = program.proof(interior.potentials)
        asked = _neighbours(proof.start[proof.helps], proof.stop[proof.helps], k)
        more = _distinct(np.append(start, asked[0]), np.append(stop, asked[1]), k)
        if program.loss(interior.columns) * (1 - 2 * gap) <= proof.bound or len(more[0]) == len(start):
            break
        start, stop = more
    return interior, proof


def _finished(program: Program, limit: float, interior: Interior, gap: float) -> Iterator[_Table]:
    """The solution with its rows mended, in several ways: the columns that are used, those of a height to speak of, and
    all. limit: the largest bias allowed.

    Where the prior has zeros there are many optima, and what is found is a mixture of them, of far more than 2 k
    columns; but those have few outputs, up to rounding. So columns are given one output where the gap allows it.
    """
    columns, most = interior.columns, 2 * len(program.labels)
    allowed = _TIED * gap * program.loss(columns) / most
    for chosen in (interior.used, columns.height > _NEGLIGIBLE * columns.height.max(), columns.height > 0):
        some = columns.chosen(chosen)
        group = np.arange(len(some.start)) if len(some.start) <= most else _groups(program, some, allowed)
        mended = _mended(program, limit, interior, some, group)
        if mended is not None:
            yield mended


def _groups(program: Program, columns: Columns, allowed: float) -> np.ndarray:
    """(n,): the number of each column's group. One output for a group adds no more than allowed to the loss."""
    mass = columns.height * program.curves(columns.start, columns.stop).mass
    numbers, number = np.empty(len(columns.start), int), -1
    held = mean = added = np.inf
    for place in np.argsort(columns.output).tolist():
        own, output = float(mass[place]), float(columns.output[place])
        share = own / (held + own)
        added += held * share * (output - mean) ** 2
        held, mean = held + own, mean + share * (output - mean)
        if not added <= allowed:
            number, held, mean, added = number + 1, own, output, 0.0
        numbers[place] = number
    return numbers


def _mended(program: Program, limit: float, interior: Interior, columns: Columns, group: np.ndarray) -> _Table | None:
    """Heights, the outputs of groups and, where they can, biases changed until the rows hold to the rounding of floats:
    by the smallest changes, relative to heights and to how far biases are from their limit.

    None where rows do not hold then, or a height would vanish.
    """
    k, n, m = len(program.labels), len(columns.start), int(group.max(initial=-1)) + 1
    if n == 0:
        return None
    height, place = columns.height, np.arange(k)
    held = np.bincount(group, height)
    output = np.bincount(group, height * columns.output) / held
    # Where columns meet the places but the first one, as often as they do.
    row = np.concatenate([columns.stop, columns.start - 1, np.full(n, k - 1)])
    column = np.tile(np.arange(n), 3)
    value = np.repeat([1.0, -1.0, program.base], n)
    row, column, value = (part[row >= 0] for part in (row, column, value))
    places = csr_array((value, (row, column)), shape=(k, n))
    # The equations: heights in the sums; heights, outputs and biases in the means.
    parts = [
        (value, row, column),
        (value * output[group][column], k + row, column),
        (value * height[column], k + row, n + group[column]),
        (np.full(k, -1.0), k + place, n + m + place),
        (np.ones(k - 1), k + place[:-1], n + m + place[1:]),
    ]
    value, row, column = (np.concatenate(part) for part in zip(*parts, strict=True))
    met = csr_array((value, (row, column)), shape=(2 * k, n + m + k))
    sizes = np.concatenate([height, 1 / held, interior.room])
    normal = csr_array((met.data * sizes[met.indices], met.indices, met.indptr), shape=met.shape) @ met.T
    diagonal = normal.diagonal()
    try:
        factors = splu((normal + diags_array(_RIDGE * diagonal + (diagonal == 0))).tocsc())
    except RuntimeError:
        return None
    bias = interior.bias
    best, least, idle = (height, output, bias), np.inf, 0
    for _ in range(_MOST_REFINEMENTS):
        means = places @ (height * output[group]) - bias + np.append(bias[1:], 0.0)
        lack = program.sides[:, 1:].ravel() - np.concatenate([places @ height, means])
        # What a row of sums lacks goes into the mean times an output.
        largest = float(max(np.abs(lack[:k]).max() * np.abs(output).max(), np.abs(lack[k:]).max()))
        if largest < least:
            best, least, idle = (height, output, bias), largest, 0
        else:
            idle += 1
            if idle == _PATIENCE:
                break
        by_height, by_output, by_bias = np.split(sizes * (met.T @ factors.solve(lack)), [n, n + m])
        height, output, bias = height + by_height, output + by_output, bias + by_bias
    height, output, bias = best
    if not np.all(height > _KEPT * columns.height):
        return None
    mended = Columns(columns.start, columns.stop, height, output[group])
    probabilities = program.probabilities(mended, group)
    missed = np.abs(probabilities.sum(axis=1) - 1).max()
    beyond = np.abs(probabilities @ output - program.labels).max() - limit
    if max(missed, beyond) > _ROUNDING * max(1.0, np.abs(output).max()):
        return None
    return _Table(probabilities, output, program.loss(mended))
