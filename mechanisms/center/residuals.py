"""Residuals of labels around public centers: their grid, their histogram's cells, and the range they are clipped to.

Cells. Labels and centers lie on one evenly spaced grid of k labels, so a residual is an integer number of steps in
[-(k - 1), k - 1]. The histogram counts residuals in cells, which are single steps near 0 and grow with the distance
from 0: neighboring datasets differ by one in two cells, whatever the cells are, and a few dozen cells sum up less noise
in the tails than 2 k - 1.

Range. The noise of a mechanism grows with the square of its range, and few residuals are far from 0, so a shorter range
gives less noise. But noise averages out over the records that a model is trained on, and the bias of clipped residuals
does not. For a residual r, its clipped value t(r) and features x, the best model of the released labels is off by
E[t(r) - r | x], whose mean square is at most E (t(r) - r)^2, whatever the features are. A model with p parameters that
is trained on n records with noise of variance v has an error of p / n v (see `model_error`). The range is chosen to
minimize

    E (t(r) - r)^2 + E b(t(r))^2 + p / n E v(t(r))

for the bias b and the variance v of the mechanism. All of it is computed from the noised histogram of the residuals and
from public numbers, so it costs no budget.

If the error of the mechanism depends on the length of the range alone, its best ends [a, b] have equal expected
excesses: E max(r - b, 0) = E max(a - r, 0). So only such ranges are tried, and the whole domain.

Solving takes most of the time, and the error of a mechanism divided by the square of the length changes little from
one range to the next. So only ranges are solved that would be the best if this quotient were the smaller one of those
of the nearest solved ranges on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.label_grid import check_domain, is_even
from ..core.prior import Prior
from ..core.randomizer import Randomizer, variances
from ..core.reproducible import dot
from ..noise.discrete_laplace import ByteStream, discrete_laplace
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from ..registry import Mechanism

# A cell at a distance of s steps from 0 spans s / _GROWTH of them.
_GROWTH = 4
# Differences of this many standard deviations of the noise are taken as real: of the two sides, and of single cells
# from the opposite one or from neighbors. Cells are many, and the probability of Laplace noise above eight standard
# deviations is 1e-5.
_UNEVEN, _SIGNIFICANT = 3, 8

MODEL_PARAMETERS = 100
"""Parameters p of the model for which a range is chosen: between a linear model of few features and boosted trees."""

MOST_RESIDUALS = 1 << 12
"""Largest number of residuals of a domain, the most that `unbiased` supports: whether a mechanism supports a range must
not depend on the noised histogram, because a job that fails is not charged."""

COARSE = 33
"""Errors are computed on at most this many residuals."""

# Draws of noise from which the error of an estimate follows, and standard errors by which two may differ.
_DRAWS, _FAR = 32, 3
# Ranges are compared on fewer: the shape of the error does not need more.
_COARSEST = 17
# Ranges are not solved for less than this share of the least error.
_WORTH = 1 / 256
# Expected excesses that are tried: the largest one divided by powers of this.
_RATIO = 2**0.5
_LEVELS = 28


def check_even(labels: np.ndarray) -> None:
    """Raises ValueError unless ascending labels, shape (k,), are evenly spaced and at least two.

    Residuals of such labels form a grid.
    """
    check_domain(labels)
    if len(labels) < 2:
        raise ValueError("a center needs a domain of at least two labels")
    if not is_even(labels):
        raise ValueError("a center needs evenly spaced labels, so that differences of labels form a grid")


class Moment(NamedTuple):
    """Estimate of a mean square, in squared steps of the domain, with its standard error."""

    value: float
    error: float


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

    def mean_square(self, noised: np.ndarray, prior_epsilon: float) -> Moment:
        """Estimates the mean square of the residuals, and its standard error, both in squared steps.

        The noised counts times the squared residuals are without bias whatever the distribution is, but the noise of
        tails makes their error large. That of `prior` is smaller, and biased, because no count is negative. Its bias
        and its standard error are estimated with noise drawn anew on the counts that it states (parametric bootstrap),
        from a stream that is public and always the same. The result is kept within three standard errors of the former.
        Arguments are those of `prior`.
        """
        scale, squares = HISTOGRAM_SENSITIVITY / prior_epsilon, (self.grid / self.grid[-1] * self.most) ** 2

        def fitted(counts: np.ndarray) -> float:
            return dot(self.prior(counts, prior_epsilon).weights, squares)

        records = max(int(noised.sum()), 1)
        of_cells = np.add.reduceat(squares, self.bounds[:-1] + self.most) / np.diff(self.bounds)
        raw = dot(noised.astype(np.float64), of_cells) / records
        raw_error = math.sqrt(2 * dot(of_cells, of_cells)) * scale / records
        weights = self.prior(noised, prior_epsilon).weights
        stated = np.rint(np.add.reduceat(weights, self.bounds[:-1] + self.most) * records).astype(np.int64)
        scale_of_draws, size = HISTOGRAM_SENSITIVITY / Fraction(prior_epsilon), _DRAWS * self.cells
        noise = discrete_laplace(ByteStream(bytes(32), b"draws"), scale_of_draws, size)
        drawn = [fitted(stated + each) for each in noise.reshape(_DRAWS, self.cells)]
        mean = math.fsum(drawn) / _DRAWS
        error = math.sqrt(math.fsum((each - mean) * (each - mean) for each in drawn) / _DRAWS)
        # Divided by its relative bias, the estimate stays above 0.
        known = dot(weights, squares)
        found = known * known / mean if mean > 0 else known
        near = _FAR * raw_error
        return Moment(max(min(max(found, raw - near), raw + near), 0.0), min(error, raw_error))

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


@dataclass(frozen=True)
class ClippingError:
    """Error of residuals that are clipped to a range, under a distribution of the residuals.

    Attributes:
      share: Share of the residuals outside the range.
      bias: Mean of the clipped residual minus the residual, in units of the label.
      squared: Mean of the square of that difference.
    """

    share: float
    bias: float
    squared: float


def clipping_error(prior: Prior, low: float, high: float) -> ClippingError:
    """Computes the error of residuals that are clipped to the range [low, high], in units of the label."""
    moved = np.clip(prior.labels, low, high) - prior.labels
    return ClippingError(
        dot(prior.weights, (moved != 0).astype(np.float64)), dot(prior.weights, moved), dot(prior.weights, moved**2)
    )


def clipped_prior(prior: Prior, first: int, last: int) -> Prior:
    """Moves the tails of a distribution to the ends of a range: it is then over the labels first, ..., last.

    Both are indices, `last` at least `first`.
    """
    weights = prior.weights[first : last + 1].copy()
    weights[0] += prior.weights[:first].sum()
    weights[-1] += prior.weights[last + 1 :].sum()
    return Prior(prior.labels[first : last + 1], weights)


@dataclass(frozen=True)
class ResidualRange:
    """Range to which residuals are clipped: the indices of its two ends, and the errors of a mechanism for it.

    Both ends are inclusive. `noise` is the variance of the labels, and `bias` the mean of their squared bias and of the
    squared error of clipping; both are infinite if the mechanism supports no range that was tried.
    """

    first: int
    last: int
    noise: float
    bias: float

    def error(self, share: float) -> float:
        """Squared error of a model that has this share of the noise."""
        return self.bias + share * self.noise


def choose_range(prior: Prior, mechanism: Mechanism, epsilon: float, records: int) -> ResidualRange:
    """Chooses the range of the residuals for a mechanism of the clipped residuals and its budget.

    The prior is the distribution of the residuals, evenly spaced; noised or public. `records` is n, >= 1. If the
    mechanism supports no range, the result is the widest one that is tried.
    """
    ranges = list(candidate_ranges(prior))
    squares = np.array([(prior.labels[last] - prior.labels[first]) ** 2 for first, last in ranges])
    clipping = np.array([clipping_error(prior, *prior.labels[list(ends)].tolist()).squared for ends in ranges])
    share = noise_share(records, MODEL_PARAMETERS)

    def error(place: int, most: int) -> float:
        noise, bias = mechanism_error(clipped_prior(prior, *ranges[place]), mechanism, epsilon, most)
        return bias + share * noise

    solved: dict[int, float] = {}
    place = 0
    while place not in solved:
        solved[place] = error(place, _COARSEST)
        if len(solved) == 1:
            # The other end.
            place = len(ranges) - 1
            continue
        known = np.array(sorted(solved))
        found = np.array([solved[each] for each in known.tolist()])
        # Nothing is known around a range that the mechanism does not support.
        quotients = np.where(np.isfinite(found), found, 0.0) / squares[known]
        after = np.searchsorted(known, np.arange(len(ranges)))
        expected = clipping + squares * np.minimum(quotients[np.maximum(after - 1, 0)], quotients[after])
        expected[known] = found + clipping[known]
        best = int(known[np.argmin(expected[known])])
        place = int(np.argmin(expected))
        if expected[place] >= (1 - _WORTH) * expected[best]:
            place = best
    noise, bias = mechanism_error(clipped_prior(prior, *ranges[place]), mechanism, epsilon, COARSE)
    return ResidualRange(*ranges[place], noise, bias + float(clipping[place]))


def noise_share(records: int, parameters: int) -> float:
    """Share of the noise of the labels that is left in a model: p / n, at most 1, for p >= 1 and n >= 1."""
    return min(parameters / records, 1.0)


def candidate_ranges(prior: Prior) -> Iterator[tuple[int, int]]:
    """Yields the ranges that are tried: distinct ones of equal excess at both ends, from the widest to the narrowest.

    A range is the indices of its lower and of its upper end.
    """
    above, below = _excess(prior), _excess(Prior(-prior.labels[::-1], prior.weights[::-1]))
    last = len(prior.labels) - 1
    middle = min(int(np.searchsorted(np.cumsum(prior.weights), 0.5)), last)
    most = max(above[middle], below[last - middle])
    seen = {(0, last)}
    yield 0, last
    for level in reversed(range(_LEVELS)):
        limit = most * _RATIO**-level
        # Excesses fall with the residual; the first residual with at most the limit is the end.
        high = max(int(np.argmax(above <= limit)), middle)
        low = min(last - int(np.argmax(below <= limit)), middle)
        # A single residual would be a range without noise, and without anything about the label.
        found = [(low, high)] if low < high else [(low - 1, high + 1), (low - 1, high), (low, high + 1)]
        for ends in found:
            if ends not in seen and ends[0] >= 0 and ends[1] <= last:
                seen.add(ends)
                yield ends


def _excess(prior: Prior) -> np.ndarray:
    """E max(r - b, 0) for each residual b, shape (m,), falling to 0."""
    beyond = 1 - np.cumsum(prior.weights)
    steps = np.diff(prior.labels) * np.maximum(beyond[:-1], 0.0)
    return np.append(np.cumsum(steps[::-1])[::-1], 0.0)


def mechanism_error(prior: Prior, mechanism: Mechanism, epsilon: float, most: int) -> tuple[float, float]:
    """Computes variance and squared bias of a mechanism, approximately: for the prior on at most `most` labels.

    Both are means under the prior, whose labels are evenly spaced, and infinite if the mechanism does not support the
    prior or the epsilon.
    """
    try:
        prior, randomizer = coarse_randomizer(prior, mechanism, epsilon, most)
    except ValueError:
        return np.inf, np.inf
    return dot(prior.weights, variances(randomizer)), dot(prior.weights, randomizer.bias() ** 2)


def coarse_randomizer(prior: Prior, mechanism: Mechanism, epsilon: float, most: int) -> tuple[Prior, Randomizer]:
    """Solves a mechanism for a prior that is summed up to at most `most` labels; returns that prior, too.

    The labels of the prior are evenly spaced. Raises ValueError if the mechanism does not support the prior or the
    epsilon.
    """
    size = len(prior.labels)
    if size > most:
        position = np.arange(most) * ((size - 1) / (most - 1))
        below = np.minimum(position.astype(np.int64), size - 2)
        labels = prior.labels[below] + (position - below) * (prior.labels[below + 1] - prior.labels[below])
        place = (2 * np.arange(size) * (most - 1) + (size - 1)) // (2 * (size - 1))
        prior = Prior(labels, np.bincount(place, prior.weights, most))
    return prior, mechanism.solve(prior, epsilon)
