"""Second implementation of the cells of a center: what must follow from noised numbers and from features.

The labels enter cells through a noised histogram of the residuals around the linear center, and through noised sums of
the residuals, clipped to a range, of each cell. A dishonest party could encode labels in whatever else is published.
So these must follow from the noised numbers: the range, whether sums are released at all, and the trees (`tree_audit`).
docs/mechanisms/cells.md has the rules.

The distribution of the residuals is uniform within a cell of the histogram, and ranges end where such cells do, so
moments are sums over the cells. Decisions that rounding could change pass either way.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .cell_document import Cells
from .center_audit import COEFFICIENT_UNIT, LikelySystem, likely_systems
from .documents import residual_cells
from .tree_audit import CellMeans, cells_of, tree_problems

_NAME = "center.linear.cells"
# Noise beyond this multiple of its scale has a probability of e^-40 for each number.
_MOST_NOISE = 40
# Results of floating-point arithmetic that are this close, relatively, are equal.
_CLOSE = 1e-9
# Standard deviations of the noise from which the sides of a histogram, or a count and its estimate, differ.
_UNEVEN, _SIGNIFICANT = 3, 8
# Share of the variance of the labels that a linear center with sums of cells explains.
_EXPLAINED = 0.25
# Parameters of the model, the least mass of a range, and shares of the residuals' variance that features explain.
_PARAMETERS, _LEAST_MASS, _FEATURES, _REST = 300, 0.5, 0.5, 0.25
_LEVELS, _RATIO = 28, 2**0.5


def cell_problems(linear: dict[str, Any]) -> Iterator[str]:
    """Checks the cells of a linear center that `read_linear_center` has read, and that has cells.

    Yields one line for each failed check.
    """
    cells: Cells = linear["center.linear.cells"]
    yield from _size_problems(cells, linear)
    residuals = Residuals.estimated(cells.counts, linear["center.linear.labels"], float(cells.histogram_epsilon))
    systems = [each for each in likely_systems(linear) if each.coefficients == linear["center.linear.coefficients"]]
    enough = {_explains_enough(system, residuals) for system in systems}
    if not cells.sums:
        if enough == {True}:
            yield f"{_NAME}.sums are missing, though the linear center explains enough of the labels"
        if cells.leaves:
            yield f"{_NAME}.trees are there without sums that they follow from"
        return
    if enough == {False}:
        yield f"{_NAME}.sums were released, though the linear center explains too little of the labels"
        return
    yield from _sum_problems(cells)
    found = residuals.accepted_range(cells)
    if found is None:
        yield f"{_NAME}.range does not follow from its counts"
        return
    yield from tree_problems(cells, _means(cells, found))


def _size_problems(cells: Cells, linear: dict[str, Any]) -> Iterator[str]:
    if len(cells.codes[0]) != linear["center.linear.sampled"]:
        yield f"{_NAME}.codes are not those of as many records as center.linear.sampled"
    rows = list(zip(*cells.codes, strict=True))
    if rows != sorted(rows):
        yield f"{_NAME}.codes are not in ascending order: their order could hold labels"
    sampled = cells_of(cells.nodes, np.array([np.frombuffer(codes, np.uint8) for codes in cells.codes]))
    if len(np.unique(sampled)) < len(cells.records):
        yield f"{_NAME}.tree has a cell without a record of the sample"
    records = sum(cells.records)
    if records > linear["center.linear.records"]:
        yield f"{_NAME}.records are more than center.linear.records"
    noise = (len(cells.counts).bit_length() + _MOST_NOISE) * 2 / cells.histogram_epsilon
    if min(cells.counts) < -noise or max(cells.counts) > records + noise:
        yield f"{_NAME}.counts are not those of any labels with their noise"


def _sum_problems(cells: Cells) -> Iterator[str]:
    low, high = cells.ends
    noise = (len(cells.sums).bit_length() + _MOST_NOISE) * (high - low) / cells.sums_epsilon
    if any(
        not low * count - noise <= total <= high * count + noise
        for total, count in zip(cells.sums, cells.records, strict=True)
    ):
        yield f"{_NAME}.sums are larger than those of any labels with their noise"


def _means(cells: Cells, found: CellRange) -> CellMeans:
    """Estimates of the means of the residuals in each cell, from the noised sums, and their variances."""
    low, high = cells.ends
    scale, records = float((high - low) / cells.sums_epsilon), np.maximum(cells.records, 1).astype(np.float64)
    means = np.array([float(total) for total in cells.sums]) / (records * found.mass)
    return CellMeans(means, (2 * (scale / records) ** 2 + found.squares / records) / found.mass**2)


def _explains_enough(system: LikelySystem, residuals: Residuals) -> bool | None:
    """True if the linear center explains a quarter of the variance of the labels; None where rounding decides."""
    if not residuals.variance:
        return False
    whole, slack = _label_variance(system, residuals.variance)
    difference = (1 - _EXPLAINED) * whole - residuals.variance
    return None if not abs(difference) > slack else difference > 0


def _label_variance(system: LikelySystem, residual_variance: float) -> tuple[float, float]:
    """Estimates the variance of the labels y = c + r, in squared steps, and bounds the error of rounding.

    It is Var r + 2 Cov(c, y) - Var c, less what noise adds to the covariance on average, and a standard error.
    """
    gram, moments = np.array(system.gram), np.array(system.moments)
    slopes = np.array(system.coefficients) / COEFFICIENT_UNIT
    mean = float(gram[0] @ slopes)
    own = max(float(slopes @ gram @ slopes) - mean**2, 0.0)
    try:
        inverse = np.linalg.solve(gram @ gram / system.noise + np.diag(1 / np.array(system.prior)), gram)
    except np.linalg.LinAlgError:
        return math.nan, math.nan
    # The noise of a moment is in its own coefficient: variance `noise` times what the coefficient takes of it.
    parts = float(slopes @ moments), -float(np.trace(inverse)), -mean * moments[0]
    error = math.sqrt(system.noise * float(slopes[1:] @ slopes[1:]))
    found = residual_variance + 2 * (sum(parts) - error) - own
    deviations = math.sqrt(own), math.sqrt(residual_variance)
    found = min(max(found, (deviations[0] - deviations[1]) ** 2), (deviations[0] + deviations[1]) ** 2)
    return found, _CLOSE * (residual_variance + sum(map(abs, parts)) + error + own + mean**2)


class CellRange(NamedTuple):
    """Range of consecutive cells of the histogram, from `first` to `last`, and what clipping to it does.

    Attributes:
      first, last: Numbers of the cells.
      inside: Share of the residuals strictly between the ends.
      mass: The same, but at least a half.
      squares: Mean square of the clipped residuals.
      error: What the range is chosen to minimize.
    """

    first: int
    last: int
    inside: float
    mass: float
    squares: float
    error: float


@dataclass(frozen=True)
class Residuals:
    """Distribution of the residuals in steps, estimated from a noised histogram.

    Attributes:
      firsts, lasts: First and last residual of each cell of the histogram.
      masses: Share of the residuals in each cell, within which they are equally likely.
    """

    firsts: list[int]
    lasts: list[int]
    masses: list[float]

    @classmethod
    def estimated(cls, counts: Sequence[int], labels: int, epsilon: float) -> Residuals:
        """Estimates the distribution for a domain of so many labels, from counts with the noise of epsilon."""
        widths = residual_cells(labels)
        masses = _estimated_counts(counts, widths, 2 / epsilon)
        firsts = list(itertools.accumulate(widths[:-1], initial=1 - labels))
        lasts = [first + width - 1 for first, width in zip(firsts, widths, strict=True)]
        total = math.fsum(masses)
        return cls(firsts, lasts, [mass / total for mass in masses])

    @cached_property
    def _middles(self) -> list[float]:
        return [(first + last) / 2 for first, last in zip(self.firsts, self.lasts, strict=True)]

    @cached_property
    def _within(self) -> list[float]:
        """Variance of the residuals of each cell."""
        return [((last - first + 1) ** 2 - 1) / 12 for first, last in zip(self.firsts, self.lasts, strict=True)]

    def _expected(self, values: Sequence[float]) -> float:
        return math.fsum(mass * value for mass, value in zip(self.masses, values, strict=True))

    @cached_property
    def mean(self) -> float:
        """Mean of the residuals."""
        return self._expected(self._middles)

    @cached_property
    def variance(self) -> float:
        """Variance of the residuals."""
        squares = [(middle - self.mean) ** 2 for middle in self._middles]
        return self._expected([a + b for a, b in zip(squares, self._within, strict=True)])

    def accepted_range(self, cells: Cells) -> CellRange | None:
        """The range that is stated, if it is one of the ranges of least error up to rounding."""
        candidates = [set(self.candidates(middle, slack)) for middle, slack in itertools.product((-1, 0, 1), repeat=2)]
        found = {ends: self._range(*ends, cells) for ends in set.union(*candidates)}
        whole = (0, len(self.masses) - 1)
        certain = [
            found[ends]
            for ends in set.intersection(*candidates)
            if ends == whole or found[ends].inside >= _LEAST_MASS * (1 + _CLOSE)
        ]
        # An error is the difference of numbers as large as the variance.
        most = min(each.error for each in certain) * (1 + _CLOSE) + 1e-12 * self.variance
        for ends, each in found.items():
            stated = [self.firsts[each.first], self.lasts[each.last]] == cells.ends
            heavy = ends == whole or each.inside >= _LEAST_MASS * (1 - _CLOSE)
            if stated and heavy and each.error <= most:
                return each
        return None

    def _range(self, first: int, last: int, cells: Cells) -> CellRange:
        low, high, records = self.firsts[first], self.lasts[last], sum(cells.records)
        edges = [self.masses[cell] / (self.lasts[cell] - self.firsts[cell] + 1) for cell in (first, last)]
        inside = math.fsum(self.masses[first : last + 1]) - sum(edges)
        mass = max(inside, _LEAST_MASS)
        clipped = [min(max(middle, low), high) for middle in self._middles]
        spread = [each if first <= cell <= last else 0.0 for cell, each in enumerate(self._within)]
        center = self._expected(clipped)
        squares = self._expected([a**2 + b for a, b in zip(clipped, spread, strict=True)])
        around = self._expected([(a - center) ** 2 + b for a, b in zip(clipped, spread, strict=True)])
        products = [
            (middle - self.mean) * (a - center) + b for middle, a, b in zip(self._middles, clipped, spread, strict=True)
        ]
        slope = self._expected(products) / self.variance
        rest = max(around - slope**2 * self.variance, 0.0)
        noise = min(_PARAMETERS / records, 1.0) * len(cells.records) / records
        noise *= 2 * ((high - low) / float(cells.sums_epsilon)) ** 2
        error = _FEATURES * (1 - slope / mass) ** 2 * self.variance + (_REST * rest + noise) / mass**2
        return CellRange(first, last, inside, mass, squares, error)

    def candidates(self, middle_slack: int, limit_slack: int) -> Iterator[tuple[int, int]]:
        """Ranges of equal expected excess E max(r - b, 0) = E max(a - r, 0) at both ends, and the whole domain.

        Median and limits of the excess are moved by as much as rounding may, down for -1 and up for 1.
        """
        cells = len(self.masses)
        yield 0, cells - 1
        middle = self._quantile(0.5 + middle_slack * 1e-10)
        place = bisect_left(self.lasts, middle)
        above, below = self._above(middle), self._below(middle)
        # The product adds up to 2 k - 1 small weights.
        rounding = 1e-15 * (self.lasts[-1] - self.firsts[0] + 1) ** 1.5
        for level in range(_LEVELS):
            limit = max(above, below) * _RATIO**-level
            limit = max(limit + limit_slack * (_CLOSE * limit + rounding), 0.0)
            if not level or (above <= limit and below <= limit):
                yield from self._around(middle)
                continue
            excess_above, excess_below = self._excesses
            high = next(cell for cell in range(cells) if excess_above[cell] <= limit)
            low = next(cell for cell in reversed(range(cells)) if excess_below[cell] <= limit)
            yield min(low, place), max(high, place)

    def _around(self, middle: int) -> Iterator[tuple[int, int]]:
        """Ranges of two or three residuals around one."""
        for low, high in ((middle - 1, middle + 1), (middle - 1, middle), (middle, middle + 1)):
            if self.firsts[0] <= low and high <= self.lasts[-1]:
                yield bisect_left(self.lasts, low), bisect_left(self.lasts, high)

    def _quantile(self, share: float) -> int:
        """The least residual with at least this share of the residuals up to it."""
        total = 0.0
        for first, last, mass in zip(self.firsts, self.lasts, self.masses, strict=True):
            if mass and total + mass >= share:
                place = math.ceil((share - total) / mass * (last - first + 1)) - 1
                return min(first + max(place, 0), last)
            total += mass
        return self.lasts[-1]

    @cached_property
    def _excesses(self) -> tuple[list[float], list[float]]:
        """Expected excess above the last residual of each cell, and below the first one."""
        return [self._above(last) for last in self.lasts], [self._below(first) for first in self.firsts]

    def _above(self, end: int) -> float:
        """E max(r - end, 0)."""
        return math.fsum(
            mass * _excess(first - end, last - end)
            for first, last, mass in zip(self.firsts, self.lasts, self.masses, strict=True)
        )

    def _below(self, end: int) -> float:
        """E max(end - r, 0)."""
        return math.fsum(
            mass * _excess(end - last, end - first)
            for first, last, mass in zip(self.firsts, self.lasts, self.masses, strict=True)
        )


def _excess(low: int, high: int) -> float:
    """Mean of max(x, 0) over the integers from low to high."""
    if high <= 0:
        return 0.0
    least = max(low, 1)
    return (least + high) * (high - least + 1) / 2 / (high - low + 1)


def _estimated_counts(counts: Sequence[int], widths: Sequence[int], scale: float) -> list[float]:
    """Estimates the counts of a histogram of residuals from noised ones, whose noise has this scale.

    Opposite cells get their mean where noise explains their difference. The density falls on both sides of the mode,
    but for cells that noise does not explain.
    """
    half = len(counts) // 2
    biased = (sum(counts[half + 1 :]) - sum(counts[:half])) ** 2 > 2 * half * _UNEVEN**2 * 2 * scale**2
    limit = 2 * (_SIGNIFICANT**2 * 2 * scale**2)
    doubled = [
        first + last if not biased and (first - last) ** 2 <= limit else 2 * first
        for first, last in zip(counts, reversed(counts), strict=True)
    ]
    mode = half
    if biased:
        mode = max(range(len(counts)), key=lambda cell: (doubled[cell] / widths[cell], -cell))
    left = _falling(doubled[mode::-1], widths[mode::-1])[::-1]
    fitted = left + _falling(doubled[mode:], widths[mode:])[1:]
    far = _SIGNIFICANT**2 * 2 * (2 * scale) ** 2
    found = [
        max(float(count) if (count - estimate) ** 2 > far else estimate, 0.0)
        for count, estimate in zip(doubled, fitted, strict=True)
    ]
    return found if any(found) else [float(width) for width in widths]


def _falling(counts: Sequence[int], widths: Sequence[int]) -> list[float]:
    """Counts of the falling density that is closest: slopes of the least concave majorant of the cumulated counts."""
    fitted: list[float] = []
    while len(fitted) < len(counts):
        start = len(fitted)
        total, span, stop = counts[start], widths[start], start + 1
        sums = zip(itertools.accumulate(counts[start:]), itertools.accumulate(widths[start:]), strict=True)
        for place, (count, width) in enumerate(sums, start=start + 1):
            if count * span >= total * width:
                total, span, stop = count, width, place
        fitted += [total * width / span for width in widths[start:stop]]
    return fitted
