"""Linear center of classes: logits of K classes from features, by coefficients that follow from exactly noised sums.

The labels enter through the class sums S_c = sum of a(x) over the records of class c alone, where a(x) is the integer
row of the record's public features (see `feature_rows`), of an L1 norm of at most A. A changed label moves a(x) from
one class to another, and for each coordinate the sums of all classes add up to a public number. So noise of sum 0 over
the classes and of scale A / epsilon on each coordinate satisfies epsilon-label DP (see `sum_zero_laplace`).

The coefficients W are those of a multinomial logit. Its likelihood depends on the labels through S alone:

    minimize  sum over records of log(sum over c of exp(W_c a(x)))  -  sum over c of W_c S_c  +  a ridge.

The first sum is public; it is taken over a sample, whose mean the sums are shifted to. The ridge of a class with the
share p is (1 + V / h) / variance, where h = n p (1 - p) is about the curvature of the first term and V the variance of
the noise: it is the best linear estimate for coefficients of this variance a priori. The variance itself is the one
that is most likely to give the sums.

Where a class is rare, noise may put the mean of its rows beyond those of all records; then coefficients that agree with
it say nearly 0 or 1 of each record. So the likelihood that a fit gains over the shares of the classes must exceed what
noise alone adds to it, by its norm in as many directions as the ridge leaves free; otherwise the ridge is raised. Where
logits are small, so that the likelihood is about quadratic, every fit of this ridge passes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..core.budget import check_epsilon
from ..core.reproducible import exp, log, one_blas_thread
from ..noise.discrete_laplace import ByteStream
from ..noise.sum_zero_laplace import sum_zero_laplace_integers, sum_zero_variance
from .feature_rows import ROW_UNIT, Columns, MappedColumns, RowMap
from .latest_fit import keep_latest
from .linear_center import PLACES, feature_components, strength
from .logit_fit import exact_product, minimized, row_maxima, row_sums

MOST_CLASSES = 128
"""Largest number of classes."""
LOGIT_UNIT = 1 << 16
"""Coefficients and logits are integer multiples of 1 / LOGIT_UNIT."""
COARSE = 1 << 4
"""Rows of the sample are rounded to multiples of this."""
MOST_LOGIT_ROWS = 1 << 12
"""Largest number of records of the sample that coefficients are fitted to."""
LARGEST_LOGIT_COEFFICIENT = 1 << 24
"""Largest coefficient: rows times coefficients stay below 2^53."""

# A-priori variance of the linear part of a logit.
_SIGNAL = 3.0
# The same of the constant of a logit.
_CONSTANT = 1e4
# Largest share of the signal that noise may leave unknown.
_USELESS = 0.8
_STEPS = 60
# Squared multiple of the noise up to which every fit of a quadratic likelihood passes. Sums of the squared norm T^2, of
# which noise is the share x, are shrunk by 1 - x: they gain (1 - x^2) T^2 / 2, of which noise adds at most
# (1 - x) sqrt(x (1 - x)) T^2. The quotient is least for x = 1/3, where its square is 2.
_LINEAR = 2.0
# A fit that noise explains is done again with ridges this many times as large, at most so often.
_RAISED, _MOST_FITS = 4.0, 8


@dataclass(frozen=True, eq=False)
class LogitDesign:
    """Public part of a linear center of classes.

    Attributes:
      map: Map from features to rows.
      classes: Number of classes K.
      records: Number of records n.
      epsilon: Budget of the class sums; 0 if none are released.
      rows: Coarse rows of a sample in ascending order, shape (s, m + 1), int64.
      signal: A-priori variance of the coefficients of the m components.
    """

    map: RowMap
    classes: int
    records: int
    epsilon: float
    rows: np.ndarray
    signal: tuple[float, ...]


def design_logit(sample: Columns, records: int, shares: np.ndarray, epsilon: float) -> LogitDesign | None:
    """Chooses rows from a public sample of features and released shares of the classes; None without any feature.

    A priori, logits have a linear part of variance 3, and the share of a component in it is that in the variance of the
    features. The number of components is the one that leaves the least of it unknown; if that is nearly all, no sums
    are released, and all components are kept for the cells. `epsilon` is the budget of the sums, >= 0.
    """
    found = feature_components(sample, PLACES)
    if found is None or not len(found.variances):
        return None
    weights, norms = found.weights, found.norms
    signal = _SIGNAL * found.variances / found.square
    size = best_size(signal, norms / ROW_UNIT, records, shares, epsilon)
    spent = epsilon if size else 0.0
    size = size or len(signal)
    row_map = RowMap(found.encoders, weights[:, :size], int(norms[size]))
    rows = coarse(row_map.rows(sample)[:MOST_LOGIT_ROWS])
    rows = rows[np.lexsort(rows.T[::-1])]
    return LogitDesign(row_map, len(shares), records, spent, rows, tuple(signal[:size].tolist()))


def coarse(rows: np.ndarray) -> np.ndarray:
    """Rows in multiples of COARSE, of at most 127 of them, for a document of moderate size."""
    return np.clip((rows + COARSE // 2) // COARSE, -127, 127) * COARSE


def best_size(signal: np.ndarray, norms: np.ndarray, records: int, shares: np.ndarray, epsilon: float) -> int:
    """Number of components that leaves the least of the signal unknown; 0 if sums would hardly say anything.

    `norms` are those of rows for each number of components, shape (m + 1,).
    """
    if not epsilon:
        return 0
    curvature = records * shares * (1 - shares)
    weights = curvature / np.add.reduce(curvature)
    unit = sum_zero_variance(Fraction(1 << 20), len(shares)) / (1 << 40)
    best, least = 0, _USELESS * _SIGNAL
    for size in range(1, len(signal) + 1):
        noise = unit * float(norms[size] / epsilon) ** 2
        error = (noise / curvature + 1) / curvature
        known = signal[:size, None]
        lost = np.add.reduce(known * error / (known + error), axis=0)
        left = float(np.add.reduce(weights * lost) + _SIGNAL - np.add.reduce(signal[:size]))
        if left < least:
            best, least = size, left
    return best


def class_sums(rows: np.ndarray, indices: np.ndarray, classes: int) -> np.ndarray:
    """Sums the rows of the records of each class, shape (m + 1, K), int64. Raw: must not leave the job without noise.

    Rows have shape (n, m + 1), int64, n < 2^39; classes are indices, shape (n,), integers in [0, K).
    """
    order = np.argsort(indices, kind="stable")
    ends = np.searchsorted(indices[order], np.arange(classes + 1))
    sums = [rows[order[a:b]].sum(axis=0) for a, b in itertools.pairwise(ends)]
    return np.stack(sums, axis=1)


def noised_class_sums(sums: np.ndarray, norm: int, epsilon: float, noise_key: bytes) -> tuple[tuple[int, ...], ...]:
    """Releases class sums under label DP: adds noise of sum 0 and of scale norm / epsilon to each coordinate.

    The raw sums of all records are those of `class_sums`. `norm` bounds the L1 norm of a row. The noise key, 32 bytes,
    is bound to the raw sums and to everything that they depend on. Raises ValueError unless `epsilon` is in [1e-9, 30].
    """
    check_epsilon(epsilon)
    stream = ByteStream(noise_key, b"class sums")
    noise = sum_zero_laplace_integers(stream, norm / Fraction(epsilon), sums.shape[1], len(sums))
    return tuple(
        tuple(each + more for each, more in zip(own, added, strict=True))
        for own, added in zip(sums.tolist(), noise, strict=True)
    )


def whole_coefficients(found: np.ndarray) -> np.ndarray:
    """Coefficients in multiples of 1 / LOGIT_UNIT, int64."""
    whole = np.clip(np.rint(found * LOGIT_UNIT), -LARGEST_LOGIT_COEFFICIENT, LARGEST_LOGIT_COEFFICIENT)
    return whole.astype(np.int64)


@dataclass(frozen=True, eq=False)
class LinearClasses:
    """Released linear center of classes.

    Attributes:
      design: Its public part.
      sums: Noised class sums, m + 1 rows of K integers; empty without sums.
      coefficients: Coefficients of a row, shape (m + 1, K), int64, in multiples of 1 / LOGIT_UNIT.
    """

    design: LogitDesign
    sums: tuple[tuple[int, ...], ...]
    coefficients: np.ndarray

    @classmethod
    def fit(cls, design: LogitDesign, sums: tuple[tuple[int, ...], ...]) -> LinearClasses:
        """Computes the coefficients from the noised class sums, or none without sums."""
        if not sums:
            return cls(design, (), np.zeros((design.map.size, design.classes), np.int64))
        with one_blas_thread():
            found = _fitted(design, np.array(sums, np.float64) / ROW_UNIT)
        return cls(design, sums, whole_coefficients(found))

    @cached_property
    def shares(self) -> np.ndarray:
        """Estimated shares of the classes, shape (K,), float64; equal ones without sums."""
        design = self.design
        if not self.sums:
            return np.full(design.classes, 1 / design.classes)
        counts = np.array(self.sums[0], np.float64) / ROW_UNIT
        return floored_shares(counts, design.records, _noise_variance(design))

    def logits(self, rows: np.ndarray) -> np.ndarray:
        """Logits of n records in multiples of 1 / LOGIT_UNIT, shape (n, K), from rows of shape (n, m + 1); int64."""
        # Terms and sums are integers below 2^53, so BLAS adds them exactly.
        with one_blas_thread():
            found = rows.astype(np.float64) @ self.coefficients.astype(np.float64)
        return np.floor_divide(found, ROW_UNIT).astype(np.int64)

    def rows(self, columns: MappedColumns) -> np.ndarray:
        """Rows of n records, shape (n, m + 1), int64."""
        return self.design.map.rows(columns)


def _noise_variance(design: LogitDesign) -> float:
    return sum_zero_variance(design.map.norm / Fraction(design.epsilon), design.classes) / ROW_UNIT**2


def floored_shares(counts: np.ndarray, records: int, noise: float) -> np.ndarray:
    """Shares of the classes from noised counts, at least about one standard deviation of the noise; shape (K,)."""
    floor = min((1 + math.sqrt(noise)) / max(records, 1), 1 / len(counts))
    shares = np.maximum(counts / max(records, 1), floor)
    return shares / np.add.reduce(shares)


@dataclass(frozen=True, eq=False)
class Moments:
    """Class sums as they would be over the sample, as means of records.

    Attributes:
      target: Mean of the rows of each class, shape (m + 1, K).
      variances: Variance of the sums of each class, sampling and noise, shape (K,).
      precision: A-priori precision of the coefficients, shape (m + 1, K).
      noise: Variance of the noise of a sum.
    """

    target: np.ndarray
    variances: np.ndarray
    precision: np.ndarray
    noise: float


def moments_of(design: LogitDesign, sums: np.ndarray) -> Moments:
    """Moments from class sums in units of 1."""
    records, noise = design.records, _noise_variance(design)
    shares = floored_shares(sums[0], records, noise)
    means = np.add.reduce(design.rows, axis=0) / (ROW_UNIT * len(design.rows))
    # The sample has other means than all records: sums are shifted as if classes had both in common.
    target = sums / records + shares * (means - np.add.reduce(sums, axis=1) / records)[:, None]
    target[0] = shares * means[0]
    curvature = records * shares * (1 - shares)
    signal = np.array(design.signal)
    slopes = records * (target[1:] - shares * means[1:, None])
    signal *= strength(slopes, lambda factor: factor * signal[:, None] * curvature**2 + curvature + noise)
    return Moments(target, curvature + noise, precisions(signal, design.classes), noise)


def precisions(signal: np.ndarray, classes: int) -> np.ndarray:
    """A-priori precision of the coefficients, shape (m + 1, K), from the variances of those of the m components."""
    return np.ones((len(signal) + 1, classes)) / np.concatenate([[_CONSTANT], signal])[:, None]


@keep_latest
def _fitted(design: LogitDesign, sums: np.ndarray) -> np.ndarray:
    """Coefficients, shape (m + 1, K), float64, from class sums in units of 1."""
    moments, records = moments_of(design, sums), design.records
    shares = moments.target[0] / np.add.reduce(moments.target[0])
    spread = shares * (1 - shares)
    ridge = moments.precision * (1 + moments.noise / (records * spread)) / records
    start = np.zeros(moments.target.shape)
    start[0] = log(shares)
    rows, none = design.rows.astype(np.float64), np.zeros(start.shape)
    least = _loss(rows, start, moments.target, none)[0]
    for _ in range(_MOST_FITS):
        found = _likeliest(rows, moments.target, ridge, start, spread + ridge)
        change = found - start
        change = change - row_sums(change)[:, None] / design.classes
        free = float((spread / (spread + ridge)).sum())
        noise = math.sqrt(_LINEAR * free * moments.noise * float((change * change).sum())) / records
        if least - _loss(rows, found, moments.target, none)[0] >= noise:
            return found
        ridge[1:] *= _RAISED
    return start


def _likeliest(
    rows: np.ndarray, target: np.ndarray, ridge: np.ndarray, start: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Minimizes the mean of logsumexp(rows W) - <W, target> + ridge W^2 / 2; rows are in multiples of 1 / ROW_UNIT.

    `scale` is about the diagonal of the second derivatives.
    """
    across = np.ascontiguousarray(rows.T)

    def value(weights: np.ndarray) -> tuple[float, np.ndarray]:
        loss, chances = _loss(rows, weights, target, ridge)
        return loss, exact_product(across, chances) / (ROW_UNIT * len(rows)) - target + ridge * weights

    return minimized(value, start, scale, _STEPS)


def _loss(rows: np.ndarray, weights: np.ndarray, target: np.ndarray, ridge: np.ndarray) -> tuple[float, np.ndarray]:
    """What `_likeliest` minimizes, and the probabilities of the classes of each row, shape (s, K)."""
    logits = exact_product(rows, weights) / ROW_UNIT
    top = row_maxima(logits)[:, None]
    parts = exp(logits - top)
    sums = row_sums(parts)[:, None]
    loss = float(np.add.reduce(log(sums[:, 0]) + top[:, 0])) / len(rows)
    return loss + float((weights * (ridge * weights / 2 - target)).sum()), parts / sums
