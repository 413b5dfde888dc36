"""Local searches for a minimum, with the same steps on every CPU.

A quasi-Newton method and Nelder and Mead's start from a point, and a search over a box from a grid: it then takes ever
smaller steps around the best points.

Sources: Bertsekas 1982, "Projected Newton methods for optimization problems with simple constraints"; Nelder and Mead
1965, "A simplex method for function minimization". scipy's L-BFGS-B takes inner products from BLAS, and its Nelder-Mead
orders equal values as the CPU's sorting kernel does; these take `reproducible` and a stable order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from ..core import reproducible

# The quasi-Newton search ends when a step gains less than this, relative to the value.
_LEAST_GAIN = 2e-9
# A step is accepted when it gains this share of what the slope promises.
_SUFFICIENT = 1e-4
# Nelder and Mead's search ends when the simplex is this small, and its values differ by this little.
_SMALLEST_SIMPLEX, _SMALLEST_DIFFERENCE = 1e-4, 1e-7
# Largest number of floats that the evaluation of one chunk of points holds at once.
_CHUNK = 1 << 20
# Points of the first grid that are refined, rounds of refinement, and random steps of a round.
_STARTS, _ROUNDS, _RANDOM_STEPS = 8, 40, 300


def quasi_newton(
    value: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, bounds: np.ndarray, most: int
) -> np.ndarray:
    """Minimizes a function within bounds along its derivatives, by the projected BFGS method.

    `value` returns a point's value and its derivatives, shape (d,); `bounds` has shape (d, 2). `most` is the largest
    number of evaluations. The result is the best point found.
    """
    low, high = bounds.T
    point = np.clip(start, low, high)
    (least, slopes), count = value(point), 1
    identity = np.eye(len(point))
    inverse = None
    while count < most:
        free = ~((point <= low) & (slopes > 0) | (point >= high) & (slopes < 0))
        reduced = np.where(free, slopes, 0.0)
        if inverse is None:
            length = np.sqrt(reproducible.dot(reduced, reduced))
            direction = -reduced / max(length, 1.0)
        else:
            direction = np.where(free, -reproducible.matvec(inverse, reduced), 0.0)
        if not reproducible.dot(direction, reduced) < 0:
            if inverse is None:
                break
            inverse = None
            continue
        found, step = None, 1.0
        while count < most and found is None and step > 1e-6:
            moved = np.clip(point + step * direction, low, high)
            there, slopes_there = value(moved)
            count += 1
            if there <= least + _SUFFICIENT * reproducible.dot(slopes, moved - point):
                found = moved, there, slopes_there
            step *= 0.5
        if found is None:
            if inverse is None:
                break
            inverse = None
            continue
        change, bend = found[0] - point, found[2] - slopes
        gain = least - found[1]
        point, least, slopes = found
        curvature = reproducible.dot(change, bend)
        if curvature > 1e-10 * reproducible.dot(bend, bend):
            if inverse is None:
                inverse = identity * (curvature / reproducible.dot(bend, bend))
            left = identity - change[:, None] * bend / curvature
            inverse = reproducible.stacked_matmul(reproducible.stacked_matmul(left, inverse), left.T)
            inverse += change[:, None] * change / curvature
        if gain <= _LEAST_GAIN * max(abs(least), 1.0):
            break
    return point


def nelder_mead(
    value: Callable[[np.ndarray], float], simplex: np.ndarray, most: int, bounds: np.ndarray | None = None
) -> np.ndarray:
    """Minimizes a function without derivatives, by Nelder and Mead's method.

    Points beyond a bound are moved onto it. If all corners have come to lie on one, no step leaves it, so the search
    starts again from the best corner, as long as that gains.

    The corners to start from have shape (d + 1, d), the bounds (d, 2); values are finite. No step is begun after `most`
    evaluations. The result is the best corner of the last simplex.
    """
    count = 0

    def evaluated(point: np.ndarray) -> tuple[np.ndarray, float]:
        nonlocal count
        count += 1
        inside = point if bounds is None else np.clip(point, *bounds.T)
        return inside, value(inside)

    def beside(point: np.ndarray, edge: np.ndarray) -> tuple[np.ndarray, float]:
        ahead = evaluated(point + edge)
        return ahead if np.any(ahead[0] != point) else evaluated(point - edge)

    before, scale = np.inf, 1.0
    # A stable order: corners of equal value stay in the order in which they were found.
    corners = sorted([evaluated(corner) for corner in simplex], key=lambda corner: corner[1])
    while count < most:
        (best, least), (worst, largest) = corners[0], corners[-1]
        size = max(float(np.abs(corner - best).max()) for corner, _ in corners)
        if size <= _SMALLEST_SIMPLEX and largest - least <= _SMALLEST_DIFFERENCE:
            flat = bounds is not None and np.any(np.ptp([corner for corner, _ in corners], axis=0) == 0)
            if least >= before - _SMALLEST_DIFFERENCE:
                scale *= 0.1
            if not flat or scale < 0.05:
                break
            before = least
            corners[1:] = [beside(best, scale * (corner - simplex[0])) for corner in simplex[1:]]
            corners.sort(key=lambda corner: corner[1])
            continue
        center = np.sum([corner for corner, _ in corners[:-1]], axis=0) / len(best)
        new = evaluated(2 * center - worst)
        if new[1] < least:
            further = evaluated(3 * center - 2 * worst)
            corners[-1] = further if further[1] < new[1] else new
        elif new[1] < corners[-2][1]:
            corners[-1] = new
        else:
            outside = new[1] < largest and np.any(new[0] != center)
            nearer = evaluated(1.5 * center - 0.5 * worst if outside else 0.5 * center + 0.5 * worst)
            if nearer[1] <= new[1] if outside else nearer[1] < largest:
                corners[-1] = nearer
            else:
                corners[1:] = [evaluated(best + 0.5 * (corner - best)) for corner, _ in corners[1:]]
        corners.sort(key=lambda corner: corner[1])
    return corners[0][0]


def minimize_over_box(
    values: Callable[[np.ndarray, np.ndarray], np.ndarray],
    low: Sequence[float],
    high: Sequence[float],
    counts: Sequence[int],
    size: int,
) -> np.ndarray | None:
    """Minimizes a function over a box by a grid search and refinement.

    `values` takes points (n, d) and limits (n,), and returns values (n,), infinite where infeasible; values that are
    not below their limit may be infinite, too. `counts` are the points of the first grid along each axis, `size` the
    number of floats that the evaluation of one point holds. The best points, apart from each other, are refined. The
    result is the best point found, shape (d,); None where no point of the grid is feasible.
    """
    box = np.array([low, high], float)
    axes = [np.linspace(a, b, n) for a, b, n in zip(*box, counts, strict=True)]
    points = np.array(list(product(*axes)))
    found = _evaluated(values, points, np.full(len(points), np.inf), size)
    spacing = np.array([axis[1] - axis[0] if len(axis) > 1 else 0.0 for axis in axes])
    chosen: list[int] = []
    rest = found
    for _ in range(_STARTS):
        place = int(rest.argmin())
        if not np.isfinite(rest[place]):
            break
        chosen.append(place)
        rest = np.where((np.abs(points - points[place]) <= 2.5 * spacing).all(axis=1), np.inf, rest)
    return _refined(values, points[chosen], found[chosen], spacing, box, size) if chosen else None


def _refined(
    values: Callable[[np.ndarray, np.ndarray], np.ndarray],
    points: np.ndarray,
    least: np.ndarray,
    spacing: np.ndarray,
    box: np.ndarray,
    size: int,
) -> np.ndarray:
    """Tries steps of many directions and lengths: the best point is often on a curved edge of the feasible set.

    Every start is refined by itself. They are evaluated together, because few long operations take less time.
    """
    generator = np.random.default_rng(0)
    # Sums of uniform numbers are nearly normal and, unlike the generator's normal ones, need no C library's logarithm.
    directions = generator.random((12, _RANDOM_STEPS, points.shape[1])).sum(axis=0) - 6
    steps = directions * reproducible.exp(-7 * generator.random((_RANDOM_STEPS, 1)))
    spacing = np.tile(spacing, (len(points), 1))
    start = np.arange(len(points))
    for _ in range(_ROUNDS):
        moved = np.clip(points[:, None] + steps * spacing[:, None], *box)
        found = _evaluated(values, moved.reshape(-1, points.shape[1]), np.repeat(least, _RANDOM_STEPS), size)
        found = found.reshape(-1, _RANDOM_STEPS)
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
