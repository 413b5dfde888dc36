"""Center of cells: what a linear center misses, learned from exactly noised sums of residuals in cells of the features.

The labels enter twice. A histogram of the residuals r = y - c around the linear center c is released with discrete
Laplace noise, and then the sum of the residuals, clipped to a range [a, b], of each cell of a partition of the public
features (`cell_partition`). A record lies in one cell, so a changed label changes one sum by at most b - a, and noise
of scale (b - a) / epsilon on every sum satisfies epsilon-label DP (Dwork, McSherry, Nissim, Smith 2006, Theorem 1),
whatever the number of cells. All cells are released, empty ones too. What records of a cell have in common stands out
of the noise of one draw, where labels have the noise of one draw each.

Everything else follows from the noised numbers and from features: the range, whether sums are released at all, and the
trees that turn them into predictions.

Range. Clipping to a range of central mass q shrinks small differences of means by about q, so means are divided by q.
The range minimizes the error that is left: of V = Var r, half is taken as the features' part, of which clipping keeps
beta / q = Cov(t, r) / (V q), and a quarter of what clipping adds otherwise; to that comes the noise of the sums.

Use. The partition is cut along what the linear center says. If that explains hardly any of the labels, cells are cut
at random, and labels are learned from better one by one: then no sum is released. At large epsilons the noise of labels
is small, and cells blur what they say: they are left out.

Trees. The target is not known for records, but for the means of cells, with noise of known variance. The means of the
trees' predictions over the cells come close to the noised means, in squared distance weighted by the inverse variances.
They see which records of a cell differ, and cells of similar features share what they learn, which neither the means
themselves nor trees on the cells' centroids would do. The number of trees is the one that is best on all cells that
were held out, and none if that is not significantly better than 0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.budget import MIN_EPSILON, remaining_epsilon, round_up
from ..core.prior import Prior
from ..core.reproducible import dot
from ..noise.discrete_laplace import ByteStream, discrete_laplace_integers
from ..noise.noised_part import NoisedPart
from ..noise.noisy_histogram import noisy_counts
from .boosting import DEPTH, FOLDS, Boosting, ObliviousTrees
from .cell_partition import LEAST_CELLS, MOST_CELLS, CellPartition, choose_partition
from .feature_rows import ROW_UNIT, Columns, MappedColumns
from .latest_fit import keep_latest
from .linear_center import COEFFICIENT_UNIT, LinearCenter
from .residuals import ResidualDomain, candidate_ranges, noise_share

LEAF_UNIT = 1 << 16
"""Leaves are integer multiples of 1 / LEAF_UNIT steps of the label domain."""
_SIZES = (20, 40, 80, 140, 220, 320)
_RATE = 0.2
# Records that a leaf has before its mean counts half, as a share of the sample; curvature that leaves are shrunk by.
_SHRINKAGE, _DAMPING = 1 / 1000, 0.1
# Standard errors from 0 that the agreement with the cells held out must have.
_SIGNIFICANT = 2.5


@dataclass(frozen=True, eq=False)
class CellMeans:
    """Noised means of cells.

    Attributes:
      cells: Cell of each record of the sample, shape (s,), integers; each cell has one.
      means: Noised mean of each cell in steps, shape (c,), float64.
      variances: Variance of each, > 0, shape (c,), float64.
    """

    cells: np.ndarray
    means: np.ndarray
    variances: np.ndarray


@keep_latest
def boost(codes: np.ndarray, targets: CellMeans) -> ObliviousTrees:
    """Fits trees to the noised means of cells; there are none without a significant agreement.

    The sample has codes of shape (s, d), uint8.
    """
    by_column = np.ascontiguousarray(codes.T)
    models = [_MeanBoosting(by_column, targets, fold) for fold in range(FOLDS)]
    agreements = [model.agreements() for model in models]
    products, squares = (np.concatenate(parts, axis=1) for parts in zip(*agreements, strict=True))
    count = products.shape[1]
    total = np.add.reduce(products, axis=1)
    gains = 2 * total - np.add.reduce(squares, axis=1)
    means = total / max(count, 1)
    spread = np.sqrt(np.add.reduce((products - means[:, None]) ** 2, axis=1) / max(count, 1) / max(count, 1))
    significant = (means > _SIGNIFICANT * spread) & (gains > 0)
    if not significant.any():
        return ObliviousTrees.none(1)
    best = int(np.argmax(np.where(significant, gains, -np.inf)))
    return ObliviousTrees.mean(models, _SIZES[best], LEAF_UNIT)


class _MeanBoosting(Boosting):
    """Trees of one fold, of a weighted squared distance to the means.

    Attributes:
      weight: Weight of each cell, of mean 1 over the records.
    """

    def __init__(self, by_column: np.ndarray, targets: CellMeans, fold: int):
        cells, self._targets = targets.cells, targets
        super().__init__(by_column, cells, len(targets.means), fold, _SIZES[-1], np.zeros((len(cells), 1)))
        # Each cell has a record of the sample.
        self._counts = np.bincount(cells, minlength=len(targets.means))
        weight = 1 / targets.variances
        scale = np.add.reduce((weight / self._counts)[cells]) / max(len(cells), 1)
        self.weight = weight / scale
        self._weight = np.where(self.held, 0.0, self.weight)
        self._curvature = (self._weight / self._counts)[cells]
        self.splits.weigh(self._curvature)
        self._cells_seen = cells[self.splits.seen]
        self._shrinkage = _SHRINKAGE * float(np.add.reduce(self._curvature))

    def agreements(self) -> tuple[np.ndarray, np.ndarray]:
        """Grows all trees; for each size, products and squares over the cells held out, shape (sizes, cells)."""
        weight, means = self.weight[self.held], self._targets.means[self.held]
        products, squares = [], []
        for size in _SIZES:
            self.grow(size)
            predicted = self._predicted()[self.held]
            products.append(weight * predicted * means)
            squares.append(weight * predicted**2)
        return np.array(products), np.array(squares)

    def _predicted(self) -> np.ndarray:
        return np.bincount(self._targets.cells, self.current[:, 0], len(self._counts)) / self._counts

    def choose(self, tree: int) -> tuple[np.ndarray, np.ndarray]:
        self._residuals = self._targets.means - self._predicted()
        gradient = (self._weight / self._counts * self._residuals)[self._cells_seen]
        return self.splits.choose(tree, [gradient], self._shrinkage)

    def values(self, leaf: np.ndarray) -> np.ndarray:
        """Newton's step of each leaf, where its curvature is that of the cells' means."""
        size = 1 << DEPTH
        shares = np.bincount(self._targets.cells * size + leaf, minlength=len(self._counts) * size).reshape(-1, size)
        shares = shares / self._counts[:, None]
        slope = np.add.reduce((self._weight * self._residuals)[:, None] * shares, axis=0)
        curvature = np.add.reduce(self._weight[:, None] * shares**2, axis=0)
        damping = _DAMPING * np.bincount(leaf, self._curvature, size)
        return (_RATE * (slope / (curvature + damping + self._shrinkage)))[:, None]


MOST_EPSILON = 2.0
"""Largest budget of linear center, cells, prior and labels with cells."""
# Share of the sums in what the linear center leaves, for up to so many records; for more, the noise of the sums is as
# small with a share that falls as 1 / n. Share of the histogram in that share.
_SHARE, _RECORDS, _HISTOGRAM = Fraction(9, 10), 50_000, Fraction(1, 25)
CELL_SHARE = _SHARE * (1 + _HISTOGRAM)
"""Largest share of cells in what the linear center leaves."""
# Fewer records times epsilon give too few cells, and too little is left for their labels.
_LEAST_SIGNAL = 2000
# Records of a cell times epsilon, and bounds on their number.
_CELL, _LEAST_CELL, _LARGEST_CELL = 10, 4, 40
# Records of the sample for a cell.
_SAMPLED_IN_CELL = 3
LEAST_EXPLAINED = 0.05
"""Share of the variance of the labels that a linear center must explain: of less, it does not say where to cut."""
# Records are as many parameters as these, of which the noise of the sums is left in the trees.
_PARAMETERS = 300
_FEATURES, _REST, LEAST_MASS = 0.5, 0.25, 0.5
_GRAIN = Fraction(1, 1 << 24)
_TO_SUMS = COEFFICIENT_UNIT * ROW_UNIT // LEAF_UNIT


@dataclass(frozen=True, eq=False)
class CellDesign:
    """Public part of a center of cells.

    Attributes:
      partition: Partition of the records.
      codes: Codes of a sample of records, shape (s, d), uint8.
      histogram: Budget of the histogram of the residuals.
      epsilon: Budget of the sums.
    """

    partition: CellPartition
    codes: np.ndarray
    histogram: float
    epsilon: float

    def histogram_cells(self, labels: int) -> int:
        """Number of cells of the histogram of residuals among so many labels."""
        return _residuals(labels).cells


def design_cells(sample: Columns, center: LinearCenter, records: int, epsilon: float) -> CellDesign | None:
    """Chooses partition and budgets from public facts and the linear center; None if cells are not worth their price.

    `sample` are features of some of the n >= 1 records, and `epsilon` is the budget of linear center, cells, prior and
    labels.
    """
    if epsilon > MOST_EPSILON or not center.sums or records * epsilon < _LEAST_SIGNAL:
        return None
    spent = _SHARE * min(Fraction(_RECORDS, records), 1) * Fraction(remaining_epsilon(epsilon, center.design.epsilon))
    budgets = [float(part // _GRAIN * _GRAIN) for part in (_HISTOGRAM * spent, spent)]
    if min(budgets) < MIN_EPSILON:
        return None
    size = min(max(round(_CELL / epsilon), _LEAST_CELL), _LARGEST_CELL)
    sampled = len(next(iter(sample.values())))
    most = min(records // size, MOST_CELLS, sampled // _SAMPLED_IN_CELL)
    partition, codes = choose_partition(sample, center, max(most, 1))
    return None if len(partition.tree.leaves) < LEAST_CELLS else CellDesign(partition, codes, *budgets)


@dataclass(frozen=True, eq=False)
class CellTables:
    """Residuals of some records by cell of the partition and cell of the histogram. Raw: must not leave the job.

    Attributes:
      counts: Number of records, shape (cells, histogram cells), int64.
      sums: Sum of their residuals in steps, same shape, int64.
    """

    counts: np.ndarray = field(repr=False)
    sums: np.ndarray = field(repr=False)

    @classmethod
    def of_records(cls, cells: np.ndarray, size: int, steps: np.ndarray, residuals: ResidualDomain) -> CellTables:
        """Tables of records, whose cells are of `size` and whose residuals are in steps; both shape (n,), integers."""
        width = residuals.cells
        places = cells * width + residuals.cells_of(steps)
        counts = np.bincount(places, minlength=size * width)
        # Sums of integers below 2^53 are exact.
        sums = np.bincount(places, steps, minlength=size * width).astype(np.int64)
        return cls(counts.reshape(size, width), sums.reshape(size, width))

    def clipped(self, first: int, last: int, residuals: ResidualDomain) -> np.ndarray:
        """Sum of the residuals of each cell, clipped to the cells `first`, ..., `last` of the histogram; int64."""
        low, high = ends_in_steps(first, last, residuals)
        inside = self.sums[:, first : last + 1].sum(axis=1)
        return inside + low * self.counts[:, :first].sum(axis=1) + high * self.counts[:, last + 1 :].sum(axis=1)


def ends_in_steps(first: int, last: int, residuals: ResidualDomain) -> tuple[int, int]:
    """Least and largest residual in steps of consecutive cells of the histogram."""
    return int(residuals.bounds[first]), int(residuals.bounds[last + 1]) - 1


@dataclass(frozen=True, eq=False)
class ReleasedCells:
    """Released histogram and sums of the residuals around a linear center, and the trees that follow from them.

    Attributes:
      design: Public part.
      records: Number of records of each cell, which is public; shape (c,), int64.
      counts: Noised counts of the histogram.
      ends: Least and largest residual in the sums, in steps; empty if none were released.
      sums: Noised sum of the clipped residuals of each cell, in steps; empty if none were released.
      trees: Trees that follow from them.
    """

    design: CellDesign
    records: np.ndarray
    counts: tuple[int, ...]
    ends: tuple[int, ...]
    sums: tuple[int, ...]
    trees: ObliviousTrees

    @property
    def epsilon(self) -> float:
        """Budget that was spent, rounded up."""
        return round_up(Fraction(self.design.histogram) + Fraction(self.design.epsilon if self.sums else 0))

    @classmethod
    def fit(
        cls,
        design: CellDesign,
        center: LinearCenter,
        records: np.ndarray,
        counts: tuple[int, ...],
        sums: tuple[int, ...],
    ) -> ReleasedCells:
        """Computes the trees from the noised numbers; there are none without sums.

        Raises ValueError if there are sums, but the counts choose no range for them, or none, but they choose one.
        """
        found = chosen_range(design, center, int(records.sum()), counts)
        if (found is None) == bool(sums):
            stated, says = ("were released", "against") if sums else ("are missing", "for")
            raise ValueError(f"sums of cells {stated} that the histogram of the residuals speaks {says}")
        if found is None:
            return cls(design, records, counts, (), (), ObliviousTrees.none(1))
        ends = ends_in_steps(found.first, found.last, _residuals(center.labels))
        scale = float(noise_scale(ends, design.epsilon))
        filled = np.maximum(records, 1)
        means = np.array(sums, np.float64) / filled / found.mass
        variances = (2 * (scale / filled) ** 2 + found.squares / filled) / found.mass**2
        cells = design.partition.tree.cells(design.codes)
        trees = boost(design.codes, CellMeans(cells, means, variances))
        return cls(design, records, counts, ends, sums, trees)


@dataclass(frozen=True)
class CellRange:
    """Range of the residuals in the sums of cells.

    Attributes:
      first, last: First and last cell of the histogram inside.
      mass: Share of the residuals strictly between the ends, at least LEAST_MASS.
      squares: Mean square of the clipped residuals, in squared steps.
    """

    first: int
    last: int
    mass: float
    squares: float


def residual_prior(center: LinearCenter, counts: tuple[int, ...], epsilon: float) -> Prior:
    """Distribution of the residuals in steps, from the noised counts of their histogram."""
    residuals = _residuals(center.labels)
    return residuals.prior(np.array(counts), epsilon)


class TriedRange(NamedTuple):
    """Range that labels or residuals may be clipped to.

    Attributes:
      first, last: First and last cell of the histogram inside.
      low, high: Ends in steps.
      mass: Share strictly between the ends.
      clipped: Clipped values of all steps of the distribution.
    """

    first: int
    last: int
    low: int
    high: int
    mass: float
    clipped: np.ndarray


def ranges_to_try(prior: Prior, residuals: ResidualDomain, below: int, above: int) -> Iterator[TriedRange]:
    """Yields the whole range, then narrower ones with at least LEAST_MASS inside; ends are in -below..above."""
    for number, ends in enumerate(candidate_ranges(prior)):
        first, last = residuals.cells_of(np.array(ends) - residuals.most).tolist()
        low, high = ends_in_steps(first, last, residuals)
        low, high = max(low, -below), min(high, above)
        inside = dot(prior.weights, ((prior.labels > low) & (prior.labels < high)).astype(np.float64))
        if inside >= LEAST_MASS or not number:
            yield TriedRange(first, last, low, high, inside, np.clip(prior.labels, low, high))


def chosen_range(design: CellDesign, center: LinearCenter, records: int, counts: tuple[int, ...]) -> CellRange | None:
    """Chooses the range from the noised counts of the histogram; None if the linear center explains too little."""
    prior = residual_prior(center, counts, design.histogram)
    residuals, weights, steps = _residuals(center.labels), prior.weights, prior.labels
    mean = dot(weights, steps)
    variance = dot(weights, (steps - mean) ** 2)
    whole = center.label_variance(variance)
    if whole is None or not 0 < variance <= (1 - LEAST_EXPLAINED) * whole:
        return None
    left = noise_share(records, _PARAMETERS) * len(design.partition.tree.leaves) / records
    best: tuple[float, CellRange] | None = None
    for tried in ranges_to_try(prior, residuals, residuals.most, residuals.most):
        mass = max(tried.mass, LEAST_MASS)
        centered = tried.clipped - dot(weights, tried.clipped)
        slope = dot(weights, (steps - mean) * centered) / variance
        rest = max(dot(weights, centered**2) - slope**2 * variance, 0.0)
        noise = 2 * ((tried.high - tried.low) / design.epsilon) ** 2
        error = _FEATURES * (1 - slope / mass) ** 2 * variance + (_REST * rest + left * noise) / mass**2
        if best is None or error < best[0]:
            best = error, CellRange(tried.first, tried.last, mass, dot(weights, tried.clipped**2))
    assert best is not None
    return best[1]


def noise_scale(ends: tuple[int, ...], epsilon: float) -> Fraction:
    """Scale of the noise of sums of residuals between two ends, in steps: their distance divided by epsilon."""
    return (ends[1] - ends[0]) / Fraction(epsilon)


def noised_cells(
    design: CellDesign, center: LinearCenter, tables: CellTables, histogram_key: bytes, sums_key: bytes
) -> ReleasedCells:
    """Releases histogram and sums of the raw tables of all records under label DP.

    The keys of the noise, 32 bytes each, are bound to the raw tables and to everything that they depend on.
    """
    records = tables.counts.sum(axis=1)
    counts = tuple(noisy_counts(tables.counts.sum(axis=0), design.histogram, histogram_key).tolist())
    found = chosen_range(design, center, int(records.sum()), counts)
    sums: tuple[int, ...] = ()
    if found is not None:
        raw = tables.clipped(found.first, found.last, _residuals(center.labels)).tolist()
        ends = ends_in_steps(found.first, found.last, _residuals(center.labels))
        sums = tuple(noised_cell_sums(ends, np.array([raw]), design.epsilon, sums_key)[0].tolist())
    return ReleasedCells.fit(design, center, records, counts, sums)


def noised_cell_sums(ends: tuple[int, ...], raw: np.ndarray, epsilon: float, noise_key: bytes) -> np.ndarray:
    """Adds noise to sums of residuals between two ends, shape (1, cells), of which a changed label moves one."""
    noise = discrete_laplace_integers(ByteStream(noise_key, b"cells"), noise_scale(ends, epsilon), raw.shape[1])
    # As integers of any size: noise of a small epsilon has no largest one.
    return np.array([[each + more for each, more in zip(raw[0].tolist(), noise, strict=True)]], object)


@dataclass(frozen=True, eq=False)
class CellCenter(LinearCenter):
    """Released linear center with cells, whose trees add to its predictions what it misses."""

    cells: ReleasedCells

    @classmethod
    def of(cls, linear: LinearCenter, cells: ReleasedCells) -> CellCenter:
        """Adds cells to a linear center."""
        return cls(linear.design, linear.labels, linear.sums, linear.coefficients, cells)

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        """As of the linear center, and what was released of cells."""
        cells, design = self.cells, self.cells.design
        of = "what the linear model misses"
        parts = [*super().parts, NoisedPart.histogram(of, design.histogram, len(cells.counts), "cell histogram")]
        if cells.sums:
            low, high = cells.ends
            moved, what = Fraction(high - low, 2), f"sums of {of} by cells of the features"
            add = functools.partial(noised_cell_sums, cells.ends)
            parts.append(NoisedPart("cell sums", what, design.epsilon, moved, 1, len(cells.sums), add))
        return tuple(parts)

    @property
    def is_model(self) -> bool:
        return bool(self.cells.sums)

    @property
    def summary(self) -> dict[str, object]:
        """As of the linear center, with a summary of the cells."""
        cells = self.cells
        own = {"cells": len(cells.sums), "trees": len(cells.trees.leaves), "epsilon": cells.epsilon}
        return {**super().summary, "cells": own}

    def label_variance(self, residual_variance: float) -> float | None:
        """As of the linear center, whose residuals the histogram has; `residual_variance` is that of other ones."""
        return super().label_variance(self._linear_variance)

    @cached_property
    def _linear_variance(self) -> float:
        prior = residual_prior(self, self.cells.counts, self.cells.design.histogram)
        return dot(prior.weights, (prior.labels - dot(prior.weights, prior.labels)) ** 2)

    def _sums(self, columns: MappedColumns) -> np.ndarray:
        sums = super()._sums(columns)
        trees = self.cells.trees
        if not len(trees.leaves):
            return sums
        most = (self.labels - 1) * (COEFFICIENT_UNIT * ROW_UNIT // 2)
        codes = self.cells.design.partition.codes(columns, self, self._rounded(sums))
        return np.clip(sums, -most, most) + trees.predict(codes)[:, 0] * _TO_SUMS


def _residuals(labels: int) -> ResidualDomain:
    return ResidualDomain(np.arange(labels, dtype=np.float64))
