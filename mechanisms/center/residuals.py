"""Residuals of labels around public centers: their grid, and the cells of their histogram.

Labels and centers lie on one evenly spaced grid of k labels, so a residual is an integer number of steps in
[-(k - 1), k - 1]. The histogram counts residuals in cells, which are single steps near 0 and grow with the distance
from 0: neighboring datasets differ by one in two cells, whatever the cells are, and a few dozen cells sum up less noise
in the tails than 2 k - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..core.label_grid import check_domain, is_even
from ..core.prior import Prior
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY

# A cell at a distance of s steps from 0 spans s / _GROWTH of them.
_GROWTH = 4
# Differences of this many standard deviations of the noise are taken as real: of the two sides, and of single cells
# from the opposite one or from neighbors. Cells are many, and the probability of Laplace noise above eight standard
# deviations is 1e-5.
_UNEVEN, _SIGNIFICANT = 3, 8


def check_even(labels: np.ndarray) -> None:
    """Raises ValueError unless ascending labels, shape (k,), are evenly spaced and at least two.

    Residuals of such labels form a grid.
    """
    check_domain(labels)
    if len(labels) < 2:
        raise ValueError("a center needs a domain of at least two labels")
    if not is_even(labels):
        raise ValueError("a center needs evenly spaced labels, so that differences of labels form a grid")


class ResidualDomain:
    """Residuals of k evenly spaced labels around centers among these labels, and the cells of their histogram.

    Attributes:
      labels: Shape (k,), float64; the label domain.
      most: Largest residual in steps, k - 1.
    """

    def __init__(self, labels: np.ndarray):
        """Raises ValueError unless labels have shape (k,), k >= 2, and are ascending and evenly spaced."""
        check_even(labels)
        self.labels = labels
        self.most = len(labels) - 1

    @cached_property
    def grid(self) -> np.ndarray:
        """The residuals in units of the label, shape (2 k - 1,), float64, ascending; the one of s steps at s + most."""
        above = self.labels - self.labels[0]
        return np.concatenate([-above[:0:-1], above])

    @cached_property
    def bounds(self) -> np.ndarray:
        """First residual of each cell in steps, then the largest one plus 1. Shape (cells + 1,), ascending integers."""
        starts = [1]
        while starts[-1] <= self.most:
            starts.append(min(starts[-1] + max(starts[-1] // _GROWTH, 1), self.most + 1))
        above = np.array(starts)
        return np.concatenate([1 - above[::-1], above])

    @property
    def cells(self) -> int:
        """Number of cells of the histogram; odd, because the residual 0 has one of its own."""
        return len(self.bounds) - 1

    @cached_property
    def _cell_of_residual(self) -> np.ndarray:
        return np.repeat(np.arange(self.cells), np.diff(self.bounds))

    def count(self, steps: np.ndarray) -> np.ndarray:
        """Counts residuals in steps, shape (n,), integers in [-most, most], by cell; shape (cells,), int64."""
        return np.bincount(self.cells_of(steps), minlength=self.cells)

    def cells_of(self, steps: np.ndarray) -> np.ndarray:
        """Finds the cells, integers in [0, cells), of residuals in steps, shape (n,), integers in [-most, most]."""
        return self._cell_of_residual[steps + self.most]

    def prior(self, noised: np.ndarray, prior_epsilon: float) -> Prior:
        """Estimates the distribution of residuals over `grid` from a noised histogram.

        Noise on empty cells far from 0, clipped at 0, would look like heavy tails; see `symmetrized` and
        `estimated_counts`. Within a cell, residuals are taken as equally likely. Noised records per cell have shape
        (cells,), integers; `prior_epsilon` is the budget of the histogram.
        """
        widths = np.diff(self.bounds)
        scale = HISTOGRAM_SENSITIVITY / prior_epsilon
        # A cell of pure noise far from 0 must not become the mode of residuals that are as often above 0 as below.
        mode = None if _is_biased(noised, scale) else self.cells // 2
        mass = np.array(estimated_counts(symmetrized(noised, scale), widths, 2 * scale, mode))
        return Prior(self.grid, np.repeat(mass / widths, widths))

    def place(self, residuals: np.ndarray) -> int:
        """Index in `grid` of the first one of some residuals, in units of the label.

        Raises ValueError if they are not consecutive residuals of `grid`.
        """
        first = int(np.searchsorted(self.grid, residuals[0]))
        if not np.array_equal(self.grid[first : first + len(residuals)], residuals):
            raise ValueError("the mechanism is not for consecutive residuals of the label domain")
        return first


def symmetrized(noised: np.ndarray, scale: float) -> list[int]:
    """Replaces the noised counts of two opposite residuals by their mean, where noise explains their difference.

    They stay as they are where they differ by more than eight standard deviations of the noise, and all of them do if
    the two sides differ by three in sum: then the center is biased. Noised counts have shape (m,), integers, m odd; the
    cell in the middle is that of the residual 0. `scale` is that of the discrete Laplace noise. The result has m
    counts, times two.
    """
    counts = [int(count) for count in noised]
    if _is_biased(noised, scale):
        return [2 * count for count in counts]
    limit = _SIGNIFICANT**2 * 2 * scale**2
    pairs = [(first, last) for first, last in zip(counts, reversed(counts), strict=True)]
    return [first + last if (first - last) ** 2 <= 2 * limit else 2 * first for first, last in pairs]


def _is_biased(noised: np.ndarray, scale: float) -> bool:
    """True if noise does not explain the difference between the counts above 0 and those below."""
    counts = [int(count) for count in noised]
    size = len(counts) // 2
    # Differences of two sums of s counts have a variance below 2 s times twice the square of the scale.
    return (sum(counts[size + 1 :]) - sum(counts[:size])) ** 2 > 2 * size * _UNEVEN**2 * 2 * scale**2


def estimated_counts(noised: Sequence[int], widths: np.ndarray, scale: float, mode: int | None = None) -> list[float]:
    """Estimates counts from noised ones by a density that falls on both sides of its mode.

    The mode, unless it is known, is the cell of the largest noised density. On each side of it, the density is the
    monotone one that is closest to the noised one in squared distance, weighted by the widths of the cells (isotonic
    regression by pooling of adjacent violators). So noise in the tails, which is negative as often as positive,
    averages out. A cell whose noised count is eight standard deviations of the noise or more away from that density
    keeps it: it is a mode of its own, or a gap. Negative counts become 0.

    Pools are compared in exact integers, and each result is rounded once, so it has the same bits on every machine.

    Noised counts and widths, the numbers of residuals in each cell, have shape (m,), integers, widths >= 1. `scale` is
    that of the discrete Laplace noise, and `mode` an index. The m counts are >= 0; they are the widths if no count is
    positive.
    """
    counts, sizes = [int(count) for count in noised], [int(width) for width in widths]
    if mode is None:
        mode = 0
        for cell in range(len(counts)):
            if counts[cell] * sizes[mode] > counts[mode] * sizes[cell]:
                mode = cell
    rising = _falling_densities(counts[mode::-1], sizes[mode::-1])[::-1]
    falling = _falling_densities(counts[mode:], sizes[mode:])
    found = []
    for count, size, (total, span) in zip(counts, sizes, [*rising, *falling[1:]], strict=True):
        fitted = total * size / span
        # The standard deviation is below sqrt(2) times the scale.
        far = (count - fitted) ** 2 > _SIGNIFICANT**2 * 2 * scale**2
        found.append(max(float(count) if far else fitted, 0.0))
    return found if any(found) else [float(size) for size in sizes]


def _falling_densities(counts: list[int], sizes: list[int]) -> list[tuple[int, int]]:
    """Antitonic regression: for each cell the counts and the widths of its pool, added up."""
    pools: list[tuple[int, int, int]] = []
    for count, size in zip(counts, sizes, strict=True):
        total, span, cells = count, size, 1
        while pools and pools[-1][0] * span < total * pools[-1][1]:
            before = pools.pop()
            total, span, cells = total + before[0], span + before[1], cells + before[2]
        pools.append((total, span, cells))
    return [(total, span) for total, span, cells in pools for _ in range(cells)]
