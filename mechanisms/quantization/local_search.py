"""Local searches for a minimum, with the same steps on every CPU.

A quasi-Newton method and Nelder and Mead's start from a point, and a search over a box from the best points of a grid.

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
# Points of a grid that are starts of Nelder and Mead's search, and evaluations of each.
_STARTS, _EVALUATIONS = 4, 200


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
    values: Callable[[np.ndarray], np.ndarray],
    low: Sequence[float],
    high: Sequence[float],
    counts: Sequence[int],
    size: int,
) -> np.ndarray | None:
    """Minimizes a function over a box: on a grid, then by Nelder and Mead's method from its best points.

    `values` takes points (n, d) and returns values (n,), infinite where infeasible. `counts` are the points of the grid
    along each axis, one of an axis that is not searched; `size` is the number of floats that the evaluation of one
    point holds. The result is the best point found, shape (d,); None where no point of the grid is feasible.
    """
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, counts, strict=True)]
    points = np.array(list(product(*axes)))
    parts = np.array_split(points, max(1, -(-len(points) * size // _CHUNK)))
    rest = np.concatenate([values(part) for part in parts])
    spacing = np.array([axis[1] - axis[0] if len(axis) > 1 else 0.0 for axis in axes])
    free = spacing > 0
    bounds = np.array([low, high], float).T[free]
    least, best = np.inf, None
    for _ in range(_STARTS):
        start = points[int(rest.argmin())]
        if not np.isfinite(rest.min()):
            break
        near = (np.abs(points - start) <= 2.5 * spacing).all(axis=1)

        def whole(part: np.ndarray, start: np.ndarray = start) -> np.ndarray:
            point = start.copy()
            point[free] = part
            return point

        def value(part: np.ndarray) -> float:
            # The search subtracts values: infinite ones would make it compare with NaN.
            return min(float(values(whole(part)[None])[0]), 1e30)

        point = start
        if free.any():
            simplex = start[free] + np.vstack([np.zeros(free.sum()), np.diag(spacing[free])])
            point = whole(nelder_mead(value, simplex, _EVALUATIONS, bounds))
        if (loss := float(values(point[None])[0])) < least:
            least, best = loss, point
        rest = np.where(near, np.inf, rest)
    return best
