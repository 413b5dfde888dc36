"""Second implementation of the coefficients of a center of classes, from noised class sums and counts of cells.

The coefficients are those at which a prescribed minimizer ends: limited-memory BFGS with a public start and scale. It
stops where the decrease that it expects falls below 1e-7 of the objective, so a region around the minimum satisfies its
rule, of some 2^5 units for each coefficient, which could hold labels. So the auditor takes the same steps: published
coefficients must be those of its own end, rounded. Where rounding could decide whether the minimizer stops, either end
passes. Factors of products are rounded to a grid, as prescribed, so that sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .class_center_document import COARSE, ClassCenter, sum_zero_variance
from .row_map_document import ROW_UNIT

LOGIT_UNIT = 1 << 16
"""Coefficients and logits are integer multiples of 1 / LOGIT_UNIT."""

_LARGEST_COEFFICIENT = 1 << 24
# Results of the minimizer differ by far less between machines, in units of a coefficient.
_CLOSE = 1e-3
# A-priori variance of the constant of a logit, and multiples of those of the other coefficients.
_CONSTANT, _STRENGTHS = 1e4, (1e-3, 30.0, 40)
# Relative difference of two likelihoods, and of a decrease and its limit, that rounding may decide.
_EQUAL, _DECIDED = 1e-9, 1e-6
_MEMORY, _STOP, _LEAST_LOSS = 8, 1e-7, 1e-3
_LEAST_LENGTH, _DESCENT = 1e-6, 1e-4
_STEPS, _REFIT_STEPS, _REFIT_ROUNDS = 60, 30, 2

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Value and gradient at some coefficients."""


def floored_shares(counts: np.ndarray, records: int, noise: float) -> np.ndarray:
    """Shares of classes from noised counts, shape (K,), at least about one standard deviation of the noise."""
    floor = min((1 + math.sqrt(noise)) / max(records, 1), 1 / len(counts))
    shares = np.maximum(counts / max(records, 1), floor)
    return shares / shares.sum()


def released_shares(center: ClassCenter) -> np.ndarray:
    """Shares of the classes from their histogram."""
    noise = 2 * (2 / float(center.budget[0])) ** 2
    return floored_shares(np.array(center.counts, float), center.records, noise)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits, shape (n, K)."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


class WholeMatrix:
    """Matrix of whole numbers, shape (n, m), float64."""

    def __init__(self, entries: np.ndarray):
        """Takes the entries, whose products with numbers on a grid are to be exact."""
        self._entries = np.ascontiguousarray(entries)
        self._most = float(np.abs(entries).sum(axis=1).max(initial=1.0))

    def times(self, values: np.ndarray) -> np.ndarray:
        """Product with a matrix, shape (m, p), whose entries are rounded to a grid, so that it is exact."""
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        bits = 52 - math.frexp(self._most)[1] - math.frexp(largest)[1]
        return np.ldexp(self._entries @ np.rint(np.ldexp(values, bits)), -bits)


def decoded_rows(rows: list[bytes]) -> np.ndarray:
    """Coarse rows of a sample, shape (s, m + 1), whole float64."""
    return np.stack([np.frombuffer(each, np.int8) for each in rows], axis=1).astype(np.float64) * COARSE


def rounds_to(found: np.ndarray, stated: np.ndarray) -> bool:
    """True if coefficients round to the stated integers, up to rounding."""
    scaled = np.clip(found * LOGIT_UNIT, -_LARGEST_COEFFICIENT, _LARGEST_COEFFICIENT)
    return bool((np.abs(stated - scaled) <= 0.5 + _CLOSE).all())


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Class sums as they would be over the sample of the linear part, as means of records.

    Attributes:
      rows: Coarse rows of the sample, shape (s, m + 1).
      shares: Shares of the classes, shape (K,).
      means: Means of the rows in units of 1, shape (m + 1,).
      target: Means of the rows of each class, shape (m + 1, K).
      variances: Variance of the sums of each class, shape (K,).
      precision: A-priori precision of the coefficients, shape (m + 1, K).
      noise: Variance of the noise of a sum.
    """

    rows: np.ndarray
    shares: np.ndarray
    means: np.ndarray
    target: np.ndarray
    variances: np.ndarray
    precision: np.ndarray
    noise: float


def sum_noise(center: ClassCenter) -> float:
    """Variance of the noise of a class sum, in units of 1."""
    return sum_zero_variance(center.norm / center.sums_epsilon, len(center.counts)) / ROW_UNIT**2


def class_moments(center: ClassCenter) -> Iterator[ClassMoments]:
    """Moments for the likeliest strength of the a-priori variances, and for any that is as likely."""
    records, noise = center.records, sum_noise(center)
    rows, sums = decoded_rows(center.rows), np.array(center.sums, np.float64) / ROW_UNIT
    shares = floored_shares(sums[0], records, noise)
    means = rows.sum(axis=0) / (ROW_UNIT * len(rows))
    target = sums / records + shares * (means - sums.sum(axis=1) / records)[:, None]
    target[0] = shares * means[0]
    curvature, signal = records * shares * (1 - shares), np.array(center.signal)
    slopes = records * (target[1:] - shares * means[1:, None])
    for strength in _likely_strengths(slopes, signal, curvature, noise):
        precision = a_priori_precision(signal * strength, len(shares))
        yield ClassMoments(rows, shares, means, target, curvature + noise, precision, noise)


def _likely_strengths(slopes: np.ndarray, signal: np.ndarray, curvature: np.ndarray, noise: float) -> list[float]:
    least, most, count = _STRENGTHS
    factors = np.exp(np.linspace(math.log(least), math.log(most), count))
    factors[0], factors[-1] = least, most
    variances = factors[:, None, None] * signal[:, None] * curvature**2 + curvature + noise
    likelihoods = -(np.log(variances) + slopes**2 / variances).sum(axis=(1, 2))
    best = likelihoods.max()
    return factors[likelihoods >= best - _EQUAL * (1 + abs(best))].tolist()


def a_priori_precision(signal: np.ndarray, classes: int) -> np.ndarray:
    """Precision of the coefficients, shape (m + 1, K), from the variances of those of the m components."""
    return np.repeat(1 / np.concatenate([[_CONSTANT], signal])[:, None], classes, axis=1)


def linear_coefficients(center: ClassCenter, moments: ClassMoments) -> Iterator[np.ndarray]:
    """Coefficients of the linear part, shape (m + 1, K): those of least negative likelihood and ridge."""
    shares = moments.target[0] / moments.target[0].sum()
    spread = shares * (1 - shares)
    ridge = moments.precision * (1 + moments.noise / (center.records * spread)) / center.records
    start = np.zeros(moments.target.shape)
    start[0] = np.log(shares)
    rows, across = WholeMatrix(moments.rows), WholeMatrix(moments.rows.T)

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = rows.times(weights) / ROW_UNIT
        top = logits.max(axis=1, keepdims=True)
        parts = np.exp(logits - top)
        totals = parts.sum(axis=1, keepdims=True)
        loss = (np.log(totals[:, 0]) + top[:, 0]).sum() / len(logits)
        loss += (weights * (ridge * weights / 2 - moments.target)).sum()
        means = across.times(parts / totals) / (ROW_UNIT * len(logits))
        return float(loss), means - moments.target + ridge * weights

    yield from ends_of_minimizer(objective, start, spread + ridge, _STEPS)


@dataclass(frozen=True, eq=False)
class CellTargets:
    """Noised counts of cells, and what is known of the records.

    Attributes:
      rows: Coarse rows of the sample, shape (s, m + 1).
      cells: Cell of each of its records, shape (s,); each cell has one.
      counts: Noised counts, shape (c, K), float64.
      noise: Variance of the noise of a count.
    """

    rows: np.ndarray
    cells: np.ndarray
    counts: np.ndarray
    noise: float

    @cached_property
    def records(self) -> np.ndarray:
        """Number of records of each cell, shape (c,)."""
        return self.counts.sum(axis=1)

    @cached_property
    def sampled(self) -> np.ndarray:
        """Number of records of the sample in each cell, shape (c,)."""
        return np.bincount(self.cells, minlength=len(self.counts))

    @cached_property
    def weights(self) -> np.ndarray:
        """Records that each one of the sample stands for, shape (s, 1)."""
        return (self.records / self.sampled)[self.cells][:, None]

    @property
    def spread(self) -> float:
        """The tau of the noise: its covariance is tau (I - 1 1^T / K)."""
        classes = self.counts.shape[1]
        return self.noise * classes / (classes - 1)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Means of the sample in each cell, shape (c, K), of values of shape (s, K)."""
        size = len(self.counts)
        sums = [np.bincount(self.cells, each, size) for each in values.T]
        return np.stack(sums, axis=1) / self.sampled[:, None]

    def whitened(self, means: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals r of the counts, and solutions x of covariance x = r; the covariance is that of `shares`."""
        residuals = self.counts - self.records[:, None] * means
        diagonal = self.records[:, None] * shares + self.spread
        shift = (residuals / diagonal).sum(axis=1) / (shares / diagonal).sum(axis=1)
        return residuals, (residuals - shift[:, None] * shares) / diagonal


def refits(
    center: ClassCenter, targets: CellTargets, held: np.ndarray, base: np.ndarray, moments: ClassMoments | None
) -> Iterator[np.ndarray]:
    """Coefficients, shape (m + 1, K), that class sums and the cells that are not held out agree with.

    `held` has shape (c,), bool; `base` are logits that constants start from, shape (K,). Moments are there with sums.
    """
    start = np.array(center.coefficients) / LOGIT_UNIT
    start[0] += base
    shares = softmax(base[None])[0] if moments is None else moments.shares
    precision = a_priori_precision(np.array(center.signal), len(base)) if moments is None else moments.precision
    curvature = shares * (1 - shares)
    scale = precision + center.records * curvature**2 / (
        curvature + targets.noise * len(targets.counts) / center.records
    )
    if moments is not None:
        inverse = (len(base) - 1) / len(base) / moments.variances
        scale = scale + (center.records * curvature) ** 2 * inverse
    starts = [start]
    for _ in range(_REFIT_ROUNDS):
        starts = [
            end
            for each in starts
            for end in ends_of_minimizer(
                _refit_objective(center, targets, held, each, precision, moments), each, scale, _REFIT_STEPS
            )
        ]
    yield from starts


def _refit_objective(
    center: ClassCenter,
    targets: CellTargets,
    held: np.ndarray,
    typical: np.ndarray,
    precision: np.ndarray,
    moments: ClassMoments | None,
) -> Objective:
    """Squared distances of sums and counts from those expected; covariances of cells are those of `typical`."""
    rows, across = WholeMatrix(targets.rows), WholeMatrix(targets.rows.T)
    size = ROW_UNIT * len(targets.rows)
    shares, seen = targets.means(softmax(rows.times(typical) / ROW_UNIT)), np.where(held, 0.0, 1.0)[:, None]
    target = inverse = None
    if moments is not None:
        means = targets.rows.sum(axis=0) / size
        target = moments.target + moments.shares * (means - moments.means)[:, None]
        inverse = (len(moments.shares) - 1) / len(moments.shares) / moments.variances

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        chances = softmax(rows.times(weights) / ROW_UNIT)
        residuals, white = targets.whitened(targets.means(chances), shares)
        white = white * seen
        loss = (residuals * white).sum() / 2 + (precision * weights**2).sum() / 2
        pull = white[targets.cells] * targets.weights
        if target is not None and inverse is not None:
            missed = center.records * (target - across.times(chances) / size)
            loss += (missed**2 * inverse).sum() / 2
            pull = pull + rows.times(missed * inverse) * (center.records / size)
        gradient = chances * (pull - (chances * pull).sum(axis=1, keepdims=True))
        return float(loss), precision * weights - across.times(gradient) / ROW_UNIT

    return objective


def ends_of_minimizer(objective: Objective, start: np.ndarray, scale: np.ndarray, steps: int) -> Iterator[np.ndarray]:
    """Coefficients at which limited-memory BFGS with Armijo's rule ends; several where rounding may decide."""
    weights, (loss, gradient) = start, objective(start)
    memory: list[tuple[np.ndarray, np.ndarray, float]] = []
    for _ in range(steps):
        direction = -_preconditioned(gradient, memory, scale)
        slope, limit = float((direction * gradient).sum()), -_STOP * max(abs(loss), _LEAST_LOSS)
        if slope > limit * (1 - _DECIDED):
            break
        if slope > limit * (1 + _DECIDED):
            yield weights
        length = 1.0
        while True:
            tried = weights + length * direction
            new_loss, new_gradient = objective(tried)
            if not new_loss > loss + _DESCENT * length * slope or length <= _LEAST_LENGTH:
                break
            length /= 2
        if length <= _LEAST_LENGTH:
            break
        step, change = tried - weights, new_gradient - gradient
        product = float((step * change).sum())
        if product > 0:
            memory = [*memory[1 - _MEMORY :], (step, change, product)]
        weights, loss, gradient = tried, new_loss, new_gradient
    yield weights


def _preconditioned(
    gradient: np.ndarray, memory: list[tuple[np.ndarray, np.ndarray, float]], scale: np.ndarray
) -> np.ndarray:
    """The gradient times the inverse of the second derivatives, as the last steps tell."""
    found, factors = gradient, []
    for step, change, product in reversed(memory):
        factors.append(float((step * found).sum()) / product)
        found = found - factors[-1] * change
    found = found / scale
    for (step, change, product), factor in zip(memory, reversed(factors), strict=True):
        found = found + (factor - float((change * found).sum()) / product) * step
    return found
