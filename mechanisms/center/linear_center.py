"""Linear center: predictions of labels from features, by coefficients that follow from exactly noised sums.

The labels enter through the sums S = sum of a(x) (y - c) over all records only, where a(x) is the row of the record's
public features (see `feature_rows`), y its label as an index into the domain, and c the middle of the domain. Changing
one label changes S by at most A (k - 1) in L1 norm, so adding discrete Laplace noise of scale A (k - 1) / epsilon to
each sum satisfies epsilon-label DP (Dwork, McSherry, Nissim, Smith 2006, Theorem 1; for integers Ghosh, Roughgarden,
Sundararajan 2012). Everything else is computed from the noised sums and from features. This is linear regression from
sufficient statistics (Vu and Slavkovic 2009; Wang 2018), where the matrix of moments is public and only the right-hand
side is private. Noise in S has the same size for any number of records n, so that in S / n falls as 1 / n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.budget import MIN_EPSILON, check_epsilon, round_up
from ..core.reproducible import dot, exp, geomspace, log, one_blas_thread, stacked_matmul
from ..noise.discrete_laplace import ByteStream, discrete_laplace_integers
from ..noise.noised_part import NoisedPart
from .feature_rows import (
    FEATURE_UNIT,
    MOST_ENCODED,
    MOST_NORM,
    ROW_UNIT,
    WEIGHT_UNIT,
    Columns,
    Encoder,
    MappedColumns,
    RowMap,
    encoders_of,
)
from .latest_fit import keep_latest
from .principal_components import EncodedFeatures, principal_components
from .residuals import MODEL_PARAMETERS, Moment

MOST_SAMPLE = 1 << 14
"""Largest number of records whose features are sampled to choose the map."""
MOST_COMPONENTS = 48
PLACES = 64
"""Largest number of places of a category. The names of requests in the ledger hold it."""
MOST_LABELS = 1 << 20
"""Largest number of labels of the domain, that of a label grid."""
COEFFICIENT_UNIT = 1 << 16
"""Coefficients are integer multiples of 1 / COEFFICIENT_UNIT."""
LARGEST_COEFFICIENT = 1 << 36

# Variance of a label a priori, in squared units of the range: labels are uniform. Features explain half of it linearly
# and another quarter otherwise.
_VARIANCE, _LINEAR, _OTHER = 1 / 12, 0.5, 0.25
# Shares of the budget that are tried for the center.
CENTER_SHARES = tuple(Fraction(percent, 100) for percent in (2, 4, 7, 10, 15, 20, 30, 40, 50, 60, 75))
CLOSE = 1.05
"""Errors up to this multiple of the least one are close to it."""
_GRAIN = Fraction(1, 1 << 24)
# Least variance of a component, in units of 1 / FEATURE_UNIT^2. The rounded indicators of a category of w places add up
# to a constant of up to w / 2 instead of 0, along a direction of its own with a variance of up to w / 4, mostly 1 / 12:
# it would duplicate the constant of the rows. Less variance would also make weights beyond MOST_WEIGHT.
LEAST_VARIANCE = 16.0
# Share of the rows that are shortened to the norm.
_SHORTENED = 0.02
# Fewer places would tell little.
_LEAST_PLACES = 4
# Multiples of the a-priori variance of the coefficients that are compared, by their likelihood.
_STRENGTHS = geomspace(1e-3, 30.0, 40)


@dataclass(frozen=True, eq=False)
class CenterDesign:
    """Public part of a linear center, chosen before any label is looked at.

    Attributes:
      map: Map from features to rows.
      epsilon: Budget of the noised sums; 0 if a center is not worth its price, and the map has no component then.
      gram: Sum of a(x) a(x)^T over the sample, shape (m + 1, m + 1), int64, in units of 1 / ROW_UNIT^2.
      sampled: Number of records in the sample.
      signal: A-priori variance of the coefficients of the m components, in squared units of the label range.
      records: Number of records n that the design is for.
    """

    map: RowMap
    epsilon: float
    gram: np.ndarray
    sampled: int
    signal: tuple[float, ...]
    records: int


def design_center(sample: Columns, records: int, epsilon: float, places: int = PLACES) -> CenterDesign:
    """Chooses the rows and the budget of a linear center from public facts.

    The number of components, the norm of the rows and the share of epsilon minimize the a-priori error of a model that
    is trained on the residuals. The center has an error of s v / (s + v) for each component of signal s and noise
    variance v, and misses the signal of all others and that which is not linear. Of all that, g together, the model has
    an error of g w / (g + w), where w is the variance of unbiased labels of the residuals with the rest of epsilon,
    times p / n for a model of p parameters. A priori, labels are uniform, features explain half of their variance
    linearly and a quarter otherwise, and the signal of a component is proportional to its variance.

    The sample has at most `MOST_SAMPLE` of the n >= 1 records; `epsilon` is the total budget of center, prior and
    labels. A category of more than `places` values is hashed to as many places, of wide records to fewer. Raises
    ValueError if `epsilon` is out of range, or there are too many records.
    """
    check_epsilon(epsilon)
    if len(next(iter(sample.values()), ())) > MOST_SAMPLE:
        raise ValueError(f"the sample of features has more than {MOST_SAMPLE} records")
    found = feature_components(sample, places)
    if found is None:
        return _design_without_center(records)
    weights, norms = found.weights, found.norms
    signal = _VARIANCE * _LINEAR * found.variances / found.square
    share, size = _best_share(signal, norms / ROW_UNIT, records, epsilon)
    if not size:
        return _design_without_center(records)
    chosen = RowMap(found.encoders, weights[:, :size], int(norms[size]))
    rows = chosen.rows(sample)
    gram = np.einsum("ij,ik->jk", rows, rows)
    # A multiple of a small fraction makes the scale of the noise a small fraction, from which sampling is fast.
    spent = share * Fraction(epsilon)
    spent = spent // _GRAIN * _GRAIN or spent
    return CenterDesign(chosen, float(spent), gram, len(rows), tuple(signal[:size].tolist()), records)


@dataclass(frozen=True, eq=False)
class FeatureComponents:
    """Principal components of the encoded features of a sample.

    Attributes:
      encoders: Encoders of the features.
      weights: Weights of the encoded features in each component, as in `RowMap`.
      variances: Variance of each component, shape (m,), in units of 1 / FEATURE_UNIT^2.
      square: Mean square of the length of an encoded record, in the same units.
      norms: For each number of components, the norm of the rows, as of `norms_of`.
    """

    encoders: tuple[Encoder, ...]
    weights: np.ndarray
    variances: np.ndarray
    square: float
    norms: np.ndarray


@keep_latest
def feature_components(sample: Columns, places: int) -> FeatureComponents | None:
    """Computes the components of a sample; None without a feature. They are the same for all labels of a log."""
    encoders = fitting_encoders(sample, places)
    if not encoders:
        return None
    matrix = EncodedFeatures(encoders, sample)
    with one_blas_thread():
        directions, variances = principal_components(matrix, MOST_COMPONENTS)
    kept = variances >= LEAST_VARIANCE
    directions, variances = directions[:, kept], variances[kept]
    weights = np.rint(directions * (FEATURE_UNIT * WEIGHT_UNIT / np.sqrt(variances))).astype(np.int64)
    norms = norms_of(RowMap(encoders, weights, MOST_NORM).rows(sample))
    return FeatureComponents(encoders, weights, variances, matrix.squares() / matrix.shape[0], norms)


def fitting_encoders(sample: Columns, places: int) -> tuple[Encoder, ...]:
    """Encoders of the features: of wide records with fewer places, and at last of the first features alone."""
    encoders = encoders_of(sample, places)
    while sum(each.width for each in encoders) > MOST_ENCODED and places > _LEAST_PLACES:
        places //= 2
        encoders = encoders_of(sample, places)
    widths = np.cumsum([each.width for each in encoders])
    return encoders[: int(np.searchsorted(widths, MOST_ENCODED, side="right"))]


def _design_without_center(records: int) -> CenterDesign:
    empty = RowMap((), np.zeros((0, 0), np.int64), ROW_UNIT)
    return CenterDesign(empty, 0.0, np.array([[ROW_UNIT**2]]), 1, (), records)


def norms_of(rows: np.ndarray) -> np.ndarray:
    """For each number of components, the norm that all but a few rows have at most. Shape (m + 1,), integers."""
    lengths = np.sort(np.cumsum(np.abs(rows), axis=1), axis=0)
    return lengths[math.ceil((1 - _SHORTENED) * len(rows)) - 1]


def _best_share(signal: np.ndarray, norms: np.ndarray, records: int, epsilon: float) -> tuple[Fraction, int]:
    """The share of epsilon and the number of components that minimize the a-priori error; 0 and 0 for no center.

    The error is flat around its minimum, and the signals are uncertain. So of all shares whose error is close to the
    least one, the largest is taken: too little noise in the center costs little, too much may leave it useless.
    """
    explained, other = _VARIANCE * _LINEAR, _VARIANCE * _OTHER
    found = []
    for share in CENTER_SHARES:
        spent = float(share * Fraction(epsilon))
        # At least 7/8 of the rest is for the labels.
        if spent < MIN_EPSILON or epsilon - spent < 2 * MIN_EPSILON or not len(signal):
            continue
        noise = 2 * (norms / (records * spent)) ** 2
        errors = []
        for size in range(1, len(signal) + 1):
            known, error = signal[:size], noise[size]
            center = _kept(_VARIANCE, error) + (known * error / (known + error)).sum() + explained - known.sum()
            errors.append(_learned(center + other, center + _VARIANCE - explained, records, epsilon - spent))
        size = int(np.argmin(errors))
        found.append((float(errors[size]), share, size + 1))
    least = min((error for error, _, _ in found), default=math.inf)
    if least >= _learned(explained + other, _VARIANCE, records, epsilon):
        return Fraction(0), 0
    return max((share, size) for error, share, size in found if error <= CLOSE * least)


def _learned(learnable: float, variance: float, records: int, epsilon: float) -> float:
    """Error of a model of the residuals: of what it could learn, observed with the noise of the labels."""
    least, divisor = label_noise(epsilon)
    noise = min(variance / _VARIANCE, 1.0) * least / divisor
    return _kept(learnable, min(MODEL_PARAMETERS / records, 1.0) * noise)


@functools.lru_cache(maxsize=64)
def label_noise(epsilon: float) -> tuple[float, float]:
    """Variance of the noise of unbiased labels whose range has the length 1, as a dividend and its divisor."""
    # Unbiased labels at the ends of a range of width w have the variance w^2 / 4 coth^2(epsilon / 2). At large epsilon
    # that of staircase noise is smaller (Geng and Viswanath 2014, Theorem 7). The range grows with the spread of the
    # residuals.
    decay = float(exp(-epsilon))
    ends = (1 + decay) ** 2 / 4
    stairs = decay + float(exp(2 / 3 * (log((1 + decay) / 2) - epsilon)))
    return min(ends, stairs), (1 - decay) ** 2


def _kept(signal: float, noise: float) -> float:
    """Error of the best linear estimate of a quantity of a-priori variance `signal`, observed with noise."""
    return signal * noise / (signal + noise) if signal > 0 else 0.0


def moment_sums(rows: np.ndarray, indices: np.ndarray, labels: int) -> list[int]:
    """Sums the rows of records, weighted by their labels. The result is raw: it must not leave the job without noise.

    It has m + 1 sums of rows times 2 i - (k - 1), as exact integers of any size. Rows have shape (n, m + 1), int64;
    labels are indices i into the domain, shape (n,), integers in [0, k), for `labels` = k.
    """
    if len(rows) > 1 and len(rows) * MOST_NORM * (labels - 1) >= 1 << 63:
        half = len(rows) // 2
        first, second = (moment_sums(rows[part], indices[part], labels) for part in (slice(half), slice(half, None)))
        return [a + b for a, b in zip(first, second, strict=True)]
    steps = 2 * indices.astype(np.int64) - (labels - 1)
    return [int(each) for each in np.einsum("ij,i->j", rows, steps)]


def noised_sums(sums: list[int], norm: int, labels: int, epsilon: float, noise_key: bytes) -> tuple[int, ...]:
    """Releases moment sums under label DP: adds discrete Laplace noise of scale 2 (k - 1) norm / epsilon.

    The raw sums of all records are those of `moment_sums`. `norm` bounds the L1 norm of a row, in units of 1 /
    ROW_UNIT, and `labels` is k. The noise key, 32 bytes, is bound to the raw sums and to everything that they depend
    on. Raises ValueError unless `epsilon` is in [1e-9, 30].
    """
    check_epsilon(epsilon)
    noise = discrete_laplace_integers(ByteStream(noise_key, b"center"), noise_scale(norm, labels, epsilon), len(sums))
    return tuple(each + more for each, more in zip(sums, noise, strict=True))


def _noised_row(norm: int, labels: int, raw: np.ndarray, epsilon: float, noise_key: bytes) -> np.ndarray:
    return np.array([noised_sums(raw[0].tolist(), norm, labels, epsilon, noise_key)])


def noise_scale(norm: int, labels: int, epsilon: float) -> Fraction:
    """Scale of the noise of moment sums, exactly: their sensitivity divided by epsilon, > 0.

    `norm` bounds the L1 norm of a row, in units of 1 / ROW_UNIT, and `labels` is their number k.
    """
    return 2 * (labels - 1) * norm / Fraction(epsilon)


class Explained(NamedTuple):
    """Share of the label variance that a center explains, estimated from released numbers.

    Attributes:
      variance: Variance of the labels, in squared steps of the domain.
      share: Share of it that the center explains, in [0, 1]; the rest is its mean squared error.
      error: Standard error of the share.
    """

    variance: float
    share: float
    error: float

    @classmethod
    def of(cls, variance: float, missed: float, errors: Iterable[float]) -> Explained:
        """The share besides one that is missed, with independent errors in squared steps."""
        return cls(variance, max(1 - missed, 0.0), math.sqrt(math.fsum(each * each for each in errors)) / variance)


@dataclass(frozen=True, eq=False)
class LinearCenter:
    """Released linear center: it predicts labels from features.

    Attributes:
      design: Its public part.
      labels: Number of labels k of the domain.
      sums: The noised sums, m + 1 integers; empty if the design has no center.
      coefficients: Coefficients of a row, m + 1 integers, in steps of the domain times 1 / COEFFICIENT_UNIT.
    """

    design: CenterDesign
    labels: int
    sums: tuple[int, ...]
    coefficients: tuple[int, ...]

    @classmethod
    def fit(cls, design: CenterDesign, labels: int, sums: tuple[int, ...]) -> LinearCenter:
        """Computes the coefficients from the noised sums, m + 1 integers, or none if the design has no center.

        They are the posterior mean for normal coefficients of the a-priori variances of the design, times a common
        factor that has the largest likelihood, and for the known variance of the noise. Raises ValueError if the
        moments of the design are not those of any rows, so that they determine no coefficients.
        """
        if not sums:
            return cls(design, labels, (), (0,))
        gram, moments, noise, normal = _system(design, labels, sums)
        found = _solved(normal, (gram * moments).sum(axis=1) / noise)
        if not np.isfinite(found).all():
            raise ValueError("the moments of the center's features are out of range")
        whole = np.clip(np.rint(found * COEFFICIENT_UNIT), -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)
        return cls(design, labels, sums, tuple(int(each) for each in whole))

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        """Everything that was released with noise, in its order."""
        if not self.design.epsilon:
            return ()
        norm, what = self.design.map.norm, "sums of features times labels"
        add = functools.partial(_noised_row, norm, self.labels)
        moved = Fraction((self.labels - 1) * norm)
        return (NoisedPart("center sums", what, self.design.epsilon, moved, 1, len(self.sums), add, unit=2 * ROW_UNIT),)

    @property
    def epsilon(self) -> float:
        """Budget that was spent, rounded up."""
        return round_up(sum((Fraction(part.epsilon) for part in self.parts), Fraction(0)))

    @property
    def map(self) -> RowMap:
        """Map of the features that it predicts from."""
        return self.design.map

    @property
    def is_model(self) -> bool:
        """Tells whether most of epsilon went to the center, and labels say little besides."""
        return False

    @property
    def summary(self) -> dict[str, object]:
        """Member `linear` of a manifest; mechanism.json and center.json have all of the center."""
        rows = self.design.map
        return {"features": rows.columns, "components": rows.size - 1, "epsilon": self.epsilon}

    def label_variance(self, residual_variance: float) -> float | None:
        """Estimates the variance of the labels, in squared steps of the domain, from the release; None without sums.

        Var y = Var r + 2 Cov(c, y) - Var c, for residuals r = y - c of a center c. The variance of c follows from the
        coefficients and the moments of the sample of features, its covariance with y from the noised sums. The noise of
        these is in the coefficients as well; what the two add to the covariance on average is subtracted, and so is a
        standard error, because errors are stated as shares of this variance. Clamping of labels and predictions to the
        domain is left out, and the standard deviation is kept within the bounds that those of c and r give. The
        variance of the residuals is in squared steps of the domain, too.
        """
        if not self.sums:
            return None
        own, covariance, error = self._moments
        return _within(residual_variance + 2 * (covariance - error) - own, own, residual_variance)

    def explained(self, around: Moment, left: Moment | None = None) -> Explained | None:
        """Estimates what the center explains of the labels, from the release; None without sums.

        Var y is that of `label_variance`, without the standard error. `around` is the mean square of the residuals of
        the linear center; `left` that of the residuals that the whole center leaves, if it has more than a linear part.
        """
        if not self.sums:
            return None
        own, covariance, error = self._moments
        variance = _within(around.value + 2 * covariance - own, own, around.value)
        if not variance > 0:
            return None
        missed = around.value / variance if left is None else left.value / variance
        # Errors of the histograms and of the sums, as shares. One histogram is in missed part and variance alike.
        parts = [(1 - missed) * around.error] if left is None else [left.error, missed * around.error]
        return Explained.of(variance, missed, [*parts, missed * 2 * error])

    @cached_property
    def _moments(self) -> tuple[float, float, float]:
        """Variance of the center, its covariance with the labels without bias, and the standard error of that."""
        gram, moments, noise, normal = _system(self.design, self.labels, self.sums)
        coefficients = np.array(self.coefficients) / COEFFICIENT_UNIT
        own = dot(coefficients, (gram * coefficients).sum(axis=1)) - dot(gram[0], coefficients) ** 2
        own = max(own, 0.0)
        # Coefficients are a linear function of the moments, and so is the covariance of each with its own moment.
        size = len(moments)
        traced = sum(_solved(normal, gram[place] / noise)[place] for place in range(size))
        covariance = dot(coefficients, moments) - noise * traced - dot(gram[0], coefficients) * moments[0]
        error = math.sqrt(noise * dot(coefficients[1:], coefficients[1:]))
        return own, covariance, error

    def indices(self, columns: MappedColumns) -> np.ndarray:
        """Predicts labels as indices into the domain, shape (n,), integers in [0, k).

        The columns are features of n records: all of the map's, and at least one column.
        """
        return self._rounded(self._sums(columns))

    def _rounded(self, sums: np.ndarray) -> np.ndarray:
        unit = 2 * COEFFICIENT_UNIT * ROW_UNIT
        return np.clip((2 * sums + self.labels * (unit // 2)) // unit, 0, self.labels - 1)

    def positions(self, columns: MappedColumns) -> np.ndarray:
        """Predicts labels without rounding them to the domain, as an offset for models.

        Positions are in steps from the first label of the domain, shape (n,), float64 in [0, k - 1]. The columns are as
        for `indices`.
        """
        middle = (self.labels - 1) / 2
        return np.clip(self._sums(columns) / (COEFFICIENT_UNIT * ROW_UNIT) + middle, 0, self.labels - 1)

    def _sums(self, columns: MappedColumns) -> np.ndarray:
        rows = self.design.map.rows(columns)
        return np.einsum("ij,j->i", rows, np.array(self.coefficients, np.int64))


def _within(variance: float, own: float, residual: float) -> float:
    """Keeps the variance of a sum, the labels, within the bounds that those of its two parts give."""
    deviations = math.sqrt(own), math.sqrt(residual)
    return min(max(variance, (deviations[0] - deviations[1]) ** 2), (deviations[0] + deviations[1]) ** 2)


def _system(
    design: CenterDesign, labels: int, sums: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Moments of the rows, of rows and labels, the variance of the latter's noise, and the normal matrix, in steps."""
    gram = design.gram / (ROW_UNIT**2 * design.sampled)
    scale = float(noise_scale(design.map.norm, labels, design.epsilon))
    # In steps of the domain: sums have twice the label, and rows the unit ROW_UNIT.
    unit = 2 * ROW_UNIT * design.records
    moments, error = np.array([each / unit for each in sums]), scale / unit
    # Not a power, which C libraries round in several ways.
    noise = 2 * (error * error)
    signal = np.array(design.signal) * (labels - 1) ** 2
    signal *= strength(moments[1:] - gram[1:, 0] * moments[0] / gram[0, 0], lambda factor: factor * signal + noise)
    constant = _VARIANCE * (labels - 1) ** 2
    normal = stacked_matmul(gram[None], gram[None])[0] / noise
    normal += np.diag(1 / np.concatenate([[constant], signal]))
    return gram, moments, noise, normal


def strength(values: np.ndarray, variance_of: Callable[[float], np.ndarray]) -> float:
    """The factor of the a-priori variances that is most likely to give these values, which have variances by it."""
    best, most = 1.0, -math.inf
    for factor in _STRENGTHS:
        variance = variance_of(factor)
        likelihood = -float((log(variance) + values**2 / variance).sum())
        if likelihood > most:
            best, most = float(factor), likelihood
    return best


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solves a symmetric positive definite system by elimination, in a fixed order of operations."""
    work = np.concatenate([matrix, right[:, None]], axis=1)
    size = len(right)
    for place in range(size):
        below = work[place + 1 :]
        below -= (below[:, place] / work[place, place])[:, None] * work[place]
    found = np.zeros(size)
    for place in reversed(range(size)):
        found[place] = (work[place, size] - dot(work[place, place + 1 : size], found[place + 1 :])) / work[place, place]
    return found
