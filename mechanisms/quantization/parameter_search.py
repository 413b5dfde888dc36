"""Search of a few parameters over a box: a grid, then ever smaller steps around the best points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from ..core import reproducible

# Largest number of floats that the evaluation of one chunk of points holds at once.
_CHUNK = 1 << 22
# Random steps of one refinement round.
_STEPS = 300


def minimize_over_box(
    values: Callable[[np.ndarray], np.ndarray],
    low: Sequence[float],
    high: Sequence[float],
    counts: Sequence[int],
    size: int,
    rounds: int = 40,
    starts: int = 8,
) -> np.ndarray | None:
    """Minimizes a function over a box by a grid search and refinement.

    Args:
      values: Takes points (n, d), returns values (n,) to minimize, infinite where infeasible.
      low: Lower corner of the box, shape (d,).
      high: Upper corner, shape (d,).
      counts: Points of the first grid along each axis, shape (d,).
      size: Number of floats that the evaluation of one point holds.
      rounds: Rounds of refinement.
      starts: Number of best points, apart from each other, that are refined.

    Returns:
      The best point found, shape (d,); None where no point of the grid is feasible.
    """
    box = np.array([low, high], float)
    axes = [np.linspace(a, b, n) for a, b, n in zip(*box, counts, strict=True)]
    points = np.array(list(product(*axes)))
    found = _evaluated(values, points, size)
    spacing = np.array([axis[1] - axis[0] if len(axis) > 1 else 0.0 for axis in axes])
    best: tuple[float, np.ndarray | None] = (np.inf, None)
    for _ in range(starts):
        place = int(found.argmin())
        if not np.isfinite(found[place]):
            break
        start = points[place]
        value, point = _refined(values, start, float(found[place]), spacing, box, size, rounds)
        if value < best[0]:
            best = (value, point)
        found = np.where((np.abs(points - start) <= 2.5 * spacing).all(axis=1), np.inf, found)
    return best[1]


def _refined(
    values: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    value: float,
    spacing: np.ndarray,
    box: np.ndarray,
    size: int,
    rounds: int,
) -> tuple[float, np.ndarray]:
    """Tries steps of many directions and lengths: the best point is often on a curved edge of the feasible set."""
    generator = np.random.default_rng(0)
    # Sums of uniform numbers are nearly normal and, unlike the generator's normal ones, need no C library's logarithm.
    directions = generator.random((12, _STEPS, len(point))).sum(axis=0) - 6
    steps = directions * reproducible.exp(-7 * generator.random((_STEPS, 1)))
    for _ in range(rounds):
        points = np.clip(point + steps * spacing, *box)
        found = _evaluated(values, points, size)
        place = int(found.argmin())
        if found[place] < value:
            value, point = float(found[place]), points[place]
        else:
            spacing = spacing / 2
    return value, point


def _evaluated(values: Callable[[np.ndarray], np.ndarray], points: np.ndarray, size: int) -> np.ndarray:
    """Evaluates points in chunks of bounded memory."""
    parts = max(1, -(-len(points) * size // _CHUNK))
    return np.concatenate([values(part) for part in np.array_split(points, parts)])
