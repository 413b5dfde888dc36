"""Column generation over intervals of labels, from a coarse resolution to the full one.

A program over the columns of some intervals is solved by the interior-point method. Its prices then show which other
intervals would lower the loss; these and their neighbors are added until the gap is proven. The first set of intervals
comes from the solution at half the resolution.
"""

from __future__ import annotations

import numpy as np

from .interior_point import InteriorSolution, solve_interior_point
from .staircase_columns import Pricing, Program

DIRECT_LABELS = 64
"""Up to this many labels, all intervals are columns from the start."""
_MAX_ROUNDS = 12
# Relative gap at which coarser resolutions are solved.
_COARSE_GAP = 1e-4


def solve_multiscale(program: Program, gap: float) -> tuple[InteriorSolution, Pricing]:
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
    interior, pricing = solve_multiscale(coarse, max(gap, _COARSE_GAP))
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
