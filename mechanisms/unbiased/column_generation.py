"""Column generation over intervals of labels, from half the resolution to the full one."""

from __future__ import annotations

import numpy as np

from .interior_point import Interior, interior_solution
from .staircase_columns import Program, Proof

DIRECT_LABELS = 64
"""Up to this many labels take all intervals from the start."""


_MAX_ROUNDS = 12


_COARSE_GAP = 1e-4


def multiscale_solution(program: Program, gap: float) -> tuple[Interior, Proof]:
    k = len(program.labels)
    if k <= DIRECT_LABELS:
        interior = interior_solution(program, *np.triu_indices(k), gap)
        return interior, program.proof(interior.potentials)
    # Every second label and the last one, each with the prior of the labels nearest to it.
    chosen = np.unique(np.append(np.arange(0, k, 2), k - 1))
    middles = (program.labels[chosen][1:] + program.labels[chosen][:-1]) / 2
    weights = np.bincount(np.searchsorted(middles, program.labels), program.weights, len(chosen))
    coarse = Program(program.labels[chosen], weights, program.base, program.slack)
    interior, proof = multiscale_solution(coarse, max(gap, _COARSE_GAP))
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
