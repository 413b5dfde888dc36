"""Optimal randomizers with no bias, or with a limited one, solved without an output grid.

Source: Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label Differential Privacy". Their
Theorem 6 (Claims 11 to 14) shows that some optimum consists of staircase columns on intervals of labels, so the search
is over those alone, and columns are generated instead of being taken from a grid of outputs. A program over the columns
of some intervals, with any outputs, is solved by an interior-point method. Its prices then show, for all k (k + 1) / 2
intervals at once, which would lower the loss, and how far below the loss the optimum can be; these intervals and their
neighbors are added until the gap is proven.

Up to 64 labels, all intervals are columns from the start. More labels are solved at half the resolution first: the
full resolution needs little more than the intervals of that solution with their ends moved by a label or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import EPSILON_MARGIN, integer_weights
from ..core.label_grid import RANDOMIZED
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, expm1, one_blas_thread
from ..response.debiased_rr import DebiasedResponse
from .feasibility import FeasibleSolution, feasible_solutions, rebalance_outputs
from .interior_point import InteriorSolution, solve_interior_point
from .staircase_columns import Pricing, Program

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
# Up to this many labels, all intervals are columns from the start.
_DIRECT_LABELS = 64
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
    if k <= _DIRECT_LABELS:
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
