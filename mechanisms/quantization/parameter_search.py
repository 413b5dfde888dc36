"""Search of a few parameters over a box: a grid, then ever smaller steps around the best points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from ..core import reproducible

# Largest number of floats that the evaluation of one chunk of points holds at once.
_CHUNK = 1 << 20
# Random steps of one refinement round.
_STEPS = 300


def minimize_over_box(
    values: Callable[[np.ndarray, np.ndarray], np.ndarray],
    low: Sequence[float],
    high: Sequence[float],
    counts: Sequence[int],
    size: int,
    rounds: int = 40,
    starts: int = 8,
) -> np.ndarray | None:
    """Minimizes a function over a box by a grid search and refinement.

    `values` takes points (n, d) and limits (n,), and returns values (n,), infinite where infeasible; values that are
    not below their limit may be infinite, too. `counts` are the points of the first grid along each axis, `size` the
    number of floats that the evaluation of one point holds. The `starts` best points, apart from each other, are
    refined. The result is the best point found, shape (d,); None where no point of the grid is feasible.
    """
    box = np.array([low, high], float)
    axes = [np.linspace(a, b, n) for a, b, n in zip(*box, counts, strict=True)]
    points = np.array(list(product(*axes)))
    found = _evaluated(values, points, np.full(len(points), np.inf), size)
    spacing = np.array([axis[1] - axis[0] if len(axis) > 1 else 0.0 for axis in axes])
    chosen: list[int] = []
    rest = found
    for _ in range(starts):
        place = int(rest.argmin())
        if not np.isfinite(rest[place]):
            break
        chosen.append(place)
        rest = np.where((np.abs(points - points[place]) <= 2.5 * spacing).all(axis=1), np.inf, rest)
    return _refined(values, points[chosen], found[chosen], spacing, box, size, rounds) if chosen else None


def _refined(
    values: Callable[[np.ndarray, np.ndarray], np.ndarray],
    points: np.ndarray,
    least: np.ndarray,
    spacing: np.ndarray,
    box: np.ndarray,
    size: int,
    rounds: int,
) -> np.ndarray:
    """Tries steps of many directions and lengths: the best point is often on a curved edge of the feasible set.

    Every start is refined by itself. They are evaluated together, because few long operations take less time.
    """
    generator = np.random.default_rng(0)
    # Sums of uniform numbers are nearly normal and, unlike the generator's normal ones, need no C library's logarithm.
    directions = generator.random((12, _STEPS, points.shape[1])).sum(axis=0) - 6
    steps = directions * reproducible.exp(-7 * generator.random((_STEPS, 1)))
    spacing = np.tile(spacing, (len(points), 1))
    start = np.arange(len(points))
    for _ in range(rounds):
        moved = np.clip(points[:, None] + steps * spacing[:, None], *box)
        found = _evaluated(values, moved.reshape(-1, points.shape[1]), np.repeat(least, _STEPS), size)
        found = found.reshape(-1, _STEPS)
        place = found.argmin(axis=1)
        better = found[start, place] < least
        least = np.where(better, found[start, place], least)
        points = np.where(better[:, None], moved[start, place], points)
        spacing = np.where(better[:, None], spacing, spacing / 2)
    return points[least.argmin()]


def _evaluated(
    values: Callable[[np.ndarray, np.ndarray], np.ndarray], points: np.ndarray, limits: np.ndarray, size: int
) -> np.ndarray:
    """Evaluates points in chunks of bounded memory."""
    parts = max(1, -(-len(points) * size // _CHUNK))
    pairs = zip(np.array_split(points, parts), np.array_split(limits, parts), strict=True)
    return np.concatenate([values(part, limit) for part, limit in pairs])
