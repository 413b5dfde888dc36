"""Marginal center: an additive model of the features' parts, from exactly noised sums of labels in each part.

Every feature parts the records: a category has a part for each of its frequent values and a last one for all others; a
number has parts between quantiles of a public sample. The labels enter twice. Their histogram is released with
discrete Laplace noise, then for each part the sum of its labels, clipped to a range [a, b] and taken from the middle of
the domain. A record lies in one part of a feature, so a changed label changes one of its sums by at most
b - a: noise of scale (b - a) / epsilon_f on every sum of a feature satisfies epsilon_f-label DP (Dwork, McSherry,
Nissim, Smith 2006, Theorem 1), and the epsilon_f of all features add up to epsilon, whatever the number of parts. All
sums are released, those of empty parts too.

Everything else follows from the noised numbers and from features. How many records two parts have in common is public,
and counted over all of them: their matrix G says what the sums of an additive model are. Effects of the parts of a
feature are normal a priori, of variance tau_f; those of a number are a random walk. log tau_f is normal around a common
level, which is normal as well; all are the mode of the posterior. The noise of the sums is known, and labels are taken
as independent given the features, with a share of their variance.

Range. It minimizes the error that is left a priori: what clipping takes from the share of the variance that features
explain, and for each part what its noise leaves unknown.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..core.budget import MIN_EPSILON, round_up
from ..core.reproducible import dot, exp, log, matmul, matvec, one_blas_thread
from ..noise.discrete_laplace import ByteStream, discrete_laplace_integers
from ..noise.noised_part import NoisedPart
from ..noise.noisy_histogram import noisy_counts
from .cell_center import CellTables, ranges_to_try, residual_prior
from .document_values import check_same, read_sized
from .feature_rows import (
    ROW_UNIT,
    Categories,
    Category,
    Columns,
    Encoder,
    MappedColumns,
    Number,
    RowMap,
    category_spread,
    number_of,
)
from .latest_fit import keep_latest
from .linear_center import COEFFICIENT_UNIT, LARGEST_COEFFICIENT, CenterDesign, Explained, LinearCenter
from .residuals import Moment, ResidualDomain

MOST_PARTS = 1000
"""Largest number of parts of all features together."""
LEAST_IN_PART = 5
"""Records of the sample that a value with a part of its own has."""
NUMBER_PARTS = 16
"""Largest number of parts of a number."""
LEAST_SIGNAL = 60
"""Records times epsilon, at most 1, by squared number of features, from which on a log of categories gets this center
by rule."""
# Share of the sums in epsilon, for up to so many records and such an epsilon; share of the histogram in that.
_SHARE, _RECORDS, _EPSILON, _HISTOGRAM = Fraction(9, 10), 200_000, 1, Fraction(1, 25)
_GRAIN = Fraction(1, 1 << 24)
# Share of the variance that features explain a priori, and that which labels have given the features.
_EXPLAINED, _REST = 0.3, 0.7
# Share of that which features explain of what clipping takes: long tails are mostly noise.
_TAIL = 0.5
# Variances of log tau_f around the level, and of the level; steps of Newton's method.
_SPREAD, _LEVEL, _ITERATIONS = 2.25, 1.0, 4
_LEAST_SLOPE, _LEAST_VARIANCE = 0.1, 1e-6
# Size of a matrix that is inverted entry by entry.
_SMALL = 16


@dataclass(frozen=True, eq=False)
class MarginalDesign:
    """Public part of a marginal center.

    Attributes:
      map: Map of the features, without components.
      cuts: For each number the encoded values from which on a part begins, ascending integers; none for a category.
      histogram: Budget of the histogram of the labels.
      epsilon: Budget of the sums.
      records: Number of records that the design is for.
    """

    map: RowMap
    cuts: tuple[tuple[int, ...], ...]
    histogram: float
    epsilon: float
    records: int

    @property
    def sizes(self) -> list[int]:
        """Number of parts of each feature."""
        return [_parts(encoder, cuts) for encoder, cuts in zip(self.map.encoders, self.cuts, strict=True)]

    def parts_of(self, features: MappedColumns) -> np.ndarray:
        """Parts of n records among those of each feature, shape (n, F), int64."""
        parts = np.empty((len(next(iter(features.values()))), len(self.cuts)), np.int64)
        for number, (encoder, cuts) in enumerate(zip(self.map.encoders, self.cuts, strict=True)):
            column = features[encoder.name]
            if isinstance(encoder, Category):
                parts[:, number] = encoder.places(column)
            else:
                encoded = encoder.encode(np.asarray(column, np.float64))
                parts[:, number] = np.searchsorted(np.array(cuts, np.float64), encoded, side="right")
        return parts

    @property
    def base(self) -> CenterDesign:
        """The design of the linear center that it stands on, which has no component: the middle of the domain."""
        return CenterDesign(self.map, 0.0, np.array([[ROW_UNIT**2]]), 1, (), self.records)

    def linear(self, labels: int) -> LinearCenter:
        """The linear center that it stands on."""
        return LinearCenter.fit(self.base, labels, ())


def _parts(encoder: Encoder, cuts: tuple[int, ...]) -> int:
    """Number of parts of a feature: the last one of a category is that of all values without a part, and none."""
    return encoder.width + 1 if isinstance(encoder, Category) else len(cuts) + 1


def marginal_share(records: int, epsilon: float) -> Fraction:
    """Share of epsilon that a marginal center spends, up to rounding, from public facts: n >= 1 records."""
    return _SHARE * min(Fraction(_RECORDS, records), 1) * min(_EPSILON / Fraction(epsilon), 1)


def design_marginals(sample: Columns, records: int, epsilon: float) -> MarginalDesign | None:
    """Chooses the parts and the budget from public facts; None if no feature tells records apart, or for too little.

    `sample` are features of some of the n >= 1 records, and `epsilon` is the budget of center, prior and labels.
    """
    spent = marginal_share(records, epsilon) * Fraction(epsilon)
    histogram, sums = (float(part // _GRAIN * _GRAIN) for part in (_HISTOGRAM * spent, spent - _HISTOGRAM * spent))
    columns = dict(list(sample.items())[: MOST_PARTS // 2])
    if min(histogram, sums) < MIN_EPSILON or not columns:
        return None
    least, parts = max(math.ceil(len(columns) / epsilon), LEAST_IN_PART), MOST_PARTS // (2 * len(columns))
    features = list(_numbers(columns, min(max(parts, 2), NUMBER_PARTS)))
    counts = {name: _counts(column) for name, column in columns.items() if isinstance(column, Categories)}
    free = MOST_PARTS - sum(_parts(*feature) for feature in features)
    while sum(int((own >= least).sum()) + bool((own >= least).any()) for own in counts.values()) > free:
        least += least // 64 + 1
    features += _categories(columns, counts, least)
    if not features:
        return None
    order = list(columns)
    features.sort(key=lambda feature: order.index(feature[0].name))
    encoders, cuts = zip(*features, strict=True)
    weights = np.zeros((sum(encoder.width for encoder in encoders), 0), np.int64)
    return MarginalDesign(RowMap(encoders, weights, ROW_UNIT), cuts, histogram, sums, records)


def marginals_pay(design: MarginalDesign, epsilon: float) -> bool:
    """Tells whether marginal sums are the better model of a log, by public facts: its features are mostly categories.

    Trees over cells cut numbers better, and each of F features takes an F-th of epsilon, while the noise of a mean
    falls with the number of records (docs/mechanisms/center.md). Budgets above 1 do not add to the sums.
    """
    features = len(design.cuts)
    categories = sum(isinstance(encoder, Category) for encoder in design.map.encoders)
    return 2 * categories > features and design.records * min(epsilon, _EPSILON) >= LEAST_SIGNAL * features**2


def _counts(column: Categories) -> np.ndarray:
    """Number of records of each value of a category."""
    return np.bincount(column.codes[column.codes >= 0], minlength=len(column.values))


def _categories(
    columns: Columns, counts: Mapping[str, np.ndarray], least: int
) -> Iterator[tuple[Encoder, tuple[int, ...]]]:
    """Encoder of each category with a value that so many records have, but not all; and no cuts."""
    for name, own in counts.items():
        column = columns[name]
        assert isinstance(column, Categories)
        kept = sorted((column.values[code], int(own[code])) for code in np.flatnonzero(own >= least))
        spread = category_spread(shares := tuple(count / len(column) for _, count in kept))
        if spread > 0:
            yield Category(name, tuple(value for value, _ in kept), shares, spread), ()


def _numbers(columns: Columns, parts: int) -> Iterator[tuple[Encoder, tuple[int, ...]]]:
    """Encoder and cuts of each number that differs in the sample, into so many parts at most."""
    for name, column in columns.items():
        encoder = None if isinstance(column, Categories) else number_of(name, column)
        if encoder is not None and not isinstance(column, Categories):
            ascending = np.sort(encoder.encode(column))
            picked = np.unique(ascending[np.arange(1, parts) * len(ascending) // parts].astype(np.int64))
            if cuts := tuple(picked[picked > ascending[0]].tolist()):
                yield encoder, cuts


def common_records(parts: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Counts the records that any two parts have in common, shape (L, L), int64: public."""
    ends = np.arange(len(parts) + 1) * len(sizes)
    columns = (parts + _firsts(sizes)).ravel()
    inside = csr_array((np.ones(len(columns), np.int64), columns, ends), shape=(len(parts), sum(sizes)))
    return (inside.T @ inside).toarray()


def part_tables(parts: np.ndarray, sizes: list[int], steps: np.ndarray, labels: int) -> CellTables:
    """Tables of records by part and cell of the histogram; raw. `steps` are from the middle, shape (n,)."""
    tables = [
        CellTables.of_records(column, size, steps, _residuals(labels))
        for column, size in zip(parts.T, sizes, strict=True)
    ]
    return CellTables(*(np.concatenate(arrays) for arrays in zip(*((t.counts, t.sums) for t in tables), strict=True)))


def _firsts(sizes: list[int]) -> np.ndarray:
    """Number of the first part of each feature among those of all."""
    return np.cumsum([0, *sizes[:-1]])


@dataclass(frozen=True, eq=False)
class MarginalRange:
    """Range of the labels in the sums, with facts of the released histogram, in steps from the middle of the domain.

    Attributes:
      first, last: First and last cell of the histogram inside.
      ends: Least and largest label inside.
      slope: Covariance of clipped labels and labels, divided by the variance of the latter: differences of means are
        smaller by about this factor.
      mean, variance: Of the labels.
      clipped_mean, clipped_variance: Of the clipped labels.
    """

    first: int
    last: int
    ends: tuple[int, int]
    slope: float
    mean: float
    variance: float
    clipped_mean: float
    clipped_variance: float


def chosen_range(design: MarginalDesign, labels: int, common: np.ndarray, counts: tuple[int, ...]) -> MarginalRange:
    """Chooses the range from the noised counts of the histogram, and the number of records of any two parts."""
    records = _records(common, design)
    # At least half a record.
    shares = np.maximum(np.diag(common), 0.5) / records
    prior = residual_prior(design.linear(labels), counts, design.histogram)
    residuals, weights, steps, features = _residuals(labels), prior.weights, prior.labels, len(design.cuts)
    mean = dot(weights, steps)
    variance = max(dot(weights, (steps - mean) ** 2), _LEAST_VARIANCE)
    signal = _EXPLAINED * variance / features
    best: tuple[float, MarginalRange] | None = None
    for first, last, low, high, _, clipped in ranges_to_try(prior, residuals, labels // 2, labels - 1 - labels // 2):
        middle = dot(weights, clipped)
        of_clipped = dot(weights, (clipped - middle) ** 2)
        slope = max(dot(weights, (steps - mean) * (clipped - middle)) / variance, _LEAST_SLOPE)
        lost = 1 - min(slope * slope * variance / of_clipped, 1.0) if of_clipped > 0 else 1.0
        scales = noise_scales((low, high), design.sizes, design.epsilon)
        unit = np.repeat([float(scale) for scale in scales], design.sizes) / (slope * records)
        noise = 2 * (unit / shares) ** 2
        error = _TAIL * _EXPLAINED * variance * lost + dot(shares, signal * noise / (signal + noise))
        if best is None or error < best[0]:
            best = error, MarginalRange(first, last, (low, high), slope, mean, variance, middle, of_clipped)
    assert best is not None
    return best[1]


def noise_scales(ends: tuple[int, ...], sizes: Sequence[int], epsilon: float) -> list[Fraction]:
    """Scales of the noise of the sums of each feature, whose numbers of parts are `sizes`, of labels between two ends.

    Epsilon is divided in proportion to the square roots of these numbers.
    """
    weights = [math.isqrt(64 * size) for size in sizes]
    return [(ends[1] - ends[0]) * Fraction(sum(weights), weight) / Fraction(epsilon) for weight in weights]


def noised_part_sums(
    ends: tuple[int, ...], sizes: Sequence[int], raw: np.ndarray, epsilon: float, noise_key: bytes
) -> np.ndarray:
    """Adds noise to sums of labels between two ends, shape (1, L): a changed label moves one sum of each feature."""
    stream = ByteStream(noise_key, b"marginals")
    scales = noise_scales(ends, sizes, epsilon)
    draws = (discrete_laplace_integers(stream, scale, size) for scale, size in zip(scales, sizes, strict=True))
    noise = itertools.chain.from_iterable(draws)
    # As integers of any size: noise of a small epsilon has no largest one.
    return np.array([[total + more for total, more in zip(raw[0].tolist(), noise, strict=True)]], object)


@dataclass(frozen=True, eq=False)
class ReleasedMarginals:
    """Released histogram and sums of the labels, and the effects of the parts that follow from them.

    Attributes:
      design: Public part.
      common: Number of records that any two parts have in common, shape (L, L), int64; public.
      counts: Noised counts of the histogram of the labels.
      ends: Least and largest label in the sums, in steps from the middle of the domain.
      sums: Noised sum of the clipped labels of each part, in steps from the middle.
      constant: What is predicted besides the effects, in steps from the middle times 1 / COEFFICIENT_UNIT.
      effects: Effect of each part in the same units, shape (L,), int64.
    """

    design: MarginalDesign
    common: np.ndarray
    counts: tuple[int, ...]
    ends: tuple[int, ...]
    sums: tuple[int, ...]
    constant: int
    effects: np.ndarray

    @property
    def epsilon(self) -> float:
        """Budget that was spent, rounded up."""
        return round_up(Fraction(self.design.histogram) + Fraction(self.design.epsilon))

    @classmethod
    def fit(
        cls,
        design: MarginalDesign,
        labels: int,
        common: np.ndarray,
        counts: tuple[int, ...],
        taken: MarginalRange,
        sums: tuple[int, ...],
    ) -> ReleasedMarginals:
        """Computes the effects from the noised numbers; the range was chosen by the counts."""
        records = _records(common, design)
        means = np.array([total / records for total in sums]) - taken.clipped_mean * (np.diag(common) / records)
        scales = noise_scales(taken.ends, design.sizes, design.epsilon)
        errors = np.repeat([float(scale) / records for scale in scales], design.sizes)
        variances = 2 * (errors * errors), taken.clipped_variance, _REST * taken.clipped_variance / records
        shape = tuple(design.sizes), tuple(map(bool, design.cuts))
        fitted = fitted_effects(common / records, means, *variances, *shape)
        steps = fitted / taken.slope
        whole = np.rint(np.clip(steps * COEFFICIENT_UNIT, -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)).astype(np.int64)
        # The middle of an even number of labels is between two of them, of which residuals are from the upper one.
        constant = whole[0] + np.rint(taken.mean * COEFFICIENT_UNIT) + (labels % 2 == 0) * COEFFICIENT_UNIT // 2
        return cls(design, common, counts, taken.ends, sums, int(constant), whole[1:])


def _records(common: np.ndarray, design: MarginalDesign) -> int:
    """Number of records that were summed."""
    return max(int(np.diag(common)[: design.sizes[0]].sum()), 1)


@keep_latest
def fitted_effects(
    common: np.ndarray,
    means: np.ndarray,
    noise: np.ndarray,
    variance: float,
    sampling: float,
    sizes: tuple[int, ...],
    ordered: tuple[bool, ...],
) -> np.ndarray:
    """Computes the constant and the effects of the parts from their noised sums, divided by the number of records.

    `common` has the shares of the records that two parts have in common, `means` the sums of labels from their mean,
    `noise` the variance of their noise, shape (L,), `variance` is that of the labels, and `sampling` that of labels
    given the features divided by the number of records. Features have these `sizes`; parts of those that are `ordered`
    are a random walk.
    """
    with np.errstate(all="ignore"), one_blas_thread():
        model = np.concatenate([np.diag(common)[:, None], common], axis=1)
        weighted = matmul(_inverse(sampling * common + np.diag(noise)), model)
        normal = matmul(np.ascontiguousarray(model.T), weighted)
        right = matvec(np.ascontiguousarray(weighted.T), means)
        bounds = np.cumsum([1, *sizes])
        blocks = [(slice(a, b), _precision(b - a, walk)) for a, b, walk in zip(bounds, bounds[1:], ordered)]  # noqa: B905
        start = float(log(_EXPLAINED * variance / len(sizes)))
        levels, level, effects = np.full(len(sizes), start), start, right
        for _ in range(_ITERATIONS):
            spreads = exp(levels)
            precision = normal + 0.0
            precision[0, 0] += 1 / variance
            for spread, (own, prior) in zip(spreads, blocks, strict=True):
                precision[own, own] += prior / spread
            covariance = _inverse(precision)
            effects = matvec(covariance, right)
            for number, (own, prior) in enumerate(blocks):
                square = dot(effects[own], matvec(prior, effects[own])) / spreads[number]
                known = sizes[number] - float(np.add.reduce((prior * covariance[own, own]).ravel())) / spreads[number]
                slope = (square - known) / 2 - (levels[number] - level) / _SPREAD
                step = slope / (max(square, known, 0.0) / 2 + 1 / _SPREAD)
                levels[number] += min(max(step, -1.0), 1.0)
            level = (start / _LEVEL + float(np.add.reduce(levels)) / _SPREAD) / (1 / _LEVEL + len(sizes) / _SPREAD)
    if not np.isfinite(effects).all():
        raise ValueError("the parts of the center's features are not those of any records")
    return effects


def _precision(size: int, walk: bool) -> np.ndarray:
    """Precision of the effects of a feature of unit variance a priori: independent ones, or a random walk."""
    if not walk:
        return np.eye(size)
    steps = np.diff(np.eye(size), axis=0)
    return (size / 6) * matmul(np.ascontiguousarray(steps.T), steps) + 0.25 * np.eye(size)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverts a symmetric positive definite matrix, by blocks, with the same bits on every CPU."""
    scale = np.sqrt(np.diag(matrix))
    return _block_inverse(matrix / scale / scale[:, None]) / scale / scale[:, None]


def _block_inverse(matrix: np.ndarray) -> np.ndarray:
    size = len(matrix)
    if size <= _SMALL:
        work = np.concatenate([matrix, np.eye(size)], axis=1)
        for row in range(size):
            pivot = work[row] / work[row, row]
            work -= work[:, row].copy()[:, None] * pivot
            work[row] = pivot
        return work[:, size:]
    half = size // 2
    across = np.ascontiguousarray(matrix[:half, half:])
    first = _block_inverse(matrix[:half, :half])
    moved = matmul(first, across)
    rest = matrix[half:, half:] - matmul(np.ascontiguousarray(across.T), moved)
    second = _block_inverse((rest + rest.T) / 2)
    corner = matmul(moved, second)
    top = first + matmul(corner, np.ascontiguousarray(moved.T))
    return np.block([[(top + top.T) / 2, -corner], [-corner.T, second]])


def marginals_document(marginals: ReleasedMarginals) -> dict[str, Any]:
    """Writes marginals as a document: objects, lists, text and numbers. All of it is public or released."""
    design = marginals.design
    return {
        "cuts": [list(cuts) for cuts in design.cuts],
        "histogram_epsilon": design.histogram,
        "sums_epsilon": design.epsilon,
        "common": [row[: place + 1].tolist() for place, row in enumerate(marginals.common)],
        "counts": list(marginals.counts),
        "range": list(marginals.ends),
        "sums": list(marginals.sums),
        "constant": marginals.constant,
        "effects": marginals.effects.tolist(),
    }


def read_marginals(document: dict[str, Any], center: LinearCenter) -> ReleasedMarginals:
    """Reads the marginals on a linear center from a document that has their form.

    Raises ValueError, which says what is wrong, if its members do not fit together, or do not follow from its sums.
    """
    encoders, labels = center.design.map.encoders, center.labels
    cuts = tuple(map(tuple, read_sized(document["cuts"], "cuts", len(encoders))))
    if not encoders or any(isinstance(e, Number) != bool(own) for e, own in zip(encoders, cuts, strict=True)):
        raise ValueError("the marginals of the center have cuts of a category, or none of a number")
    if any(below >= above for own in cuts for below, above in itertools.pairwise(own)):
        raise ValueError("cuts of the marginals of the center are not ascending")
    budgets = document["histogram_epsilon"], document["sums_epsilon"]
    design = MarginalDesign(center.design.map, cuts, *budgets, center.design.records)
    size = sum(design.sizes)
    if size > MOST_PARTS:
        raise ValueError(f"the center has {size} parts of features; at most {MOST_PARTS} are allowed")
    common = np.zeros((size, size), np.int64)
    for place, row in enumerate(read_sized(document["common"], "common", size)):
        common[place, : place + 1] = read_sized(row, "common", place + 1)
    common += np.tril(common, -1).T
    counts = tuple(read_sized(document["counts"], "counts", _residuals(labels).cells))
    sums = tuple(read_sized(document["sums"], "sums", size))
    taken = chosen_range(design, labels, common, counts)
    marginals = ReleasedMarginals.fit(design, labels, common, counts, taken, sums)
    check_same(document, marginals_document(marginals), "marginals", "their sums")
    return marginals


def noised_marginals(
    design: MarginalDesign, labels: int, tables: CellTables, common: np.ndarray, keys: tuple[bytes, bytes]
) -> ReleasedMarginals:
    """Releases histogram and sums of the raw tables of all records under label DP.

    The keys of the noise of both, 32 bytes each, are bound to the raw tables and to everything that they depend on.
    """
    counts = tables.counts[: design.sizes[0]].sum(axis=0)
    noised = tuple(noisy_counts(counts, design.histogram, keys[0]).tolist())
    taken = chosen_range(design, labels, common, noised)
    raw = tables.clipped(taken.first, taken.last, _residuals(labels))
    sums = noised_part_sums(taken.ends, design.sizes, raw[None], design.epsilon, keys[1])[0]
    return ReleasedMarginals.fit(design, labels, common, noised, taken, tuple(sums.tolist()))


@dataclass(frozen=True, eq=False)
class MarginalCenter(LinearCenter):
    """Released marginal center, on a linear center without components."""

    marginals: ReleasedMarginals

    @classmethod
    def of(cls, labels: int, marginals: ReleasedMarginals) -> MarginalCenter:
        """Makes the center of what was released."""
        linear = marginals.design.linear(labels)
        return cls(linear.design, labels, linear.sums, linear.coefficients, marginals)

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        """Everything that was released with noise, in its order."""
        marginals, design = self.marginals, self.marginals.design
        add = functools.partial(noised_part_sums, marginals.ends, design.sizes)
        scales = noise_scales(marginals.ends, design.sizes, design.epsilon)
        # Of the mean scale: those of features differ.
        moved = sum(scales, Fraction(0)) / len(scales) * Fraction(design.epsilon) / 2
        what = "sums of labels by parts of each feature"
        return (
            NoisedPart.histogram("the labels", design.histogram, len(marginals.counts), "label histogram"),
            NoisedPart("marginal sums", what, design.epsilon, moved, 1, len(marginals.sums), add),
        )

    @property
    def epsilon(self) -> float:
        """Budget that was spent, rounded up."""
        return self.marginals.epsilon

    @property
    def is_model(self) -> bool:
        return True

    @property
    def summary(self) -> dict[str, object]:
        """As of the linear center, with a summary of the marginal sums."""
        own = {"sums": len(self.marginals.sums), "epsilon": self.marginals.epsilon}
        return {**super().summary, "marginals": own}

    def explained(self, around: Moment, left: Moment | None = None) -> Explained:
        """As of the linear center; `around` is the mean square of the residuals that the center leaves."""
        variance, error = self._labels
        missed = around.value / variance
        return Explained.of(variance, missed, (around.error, missed * error))

    @cached_property
    def _labels(self) -> tuple[float, float]:
        """Variance of the labels by their released histogram, with a standard error."""
        marginals = self.marginals
        prior = residual_prior(marginals.design.linear(self.labels), marginals.counts, marginals.design.histogram)
        mean = dot(prior.weights, prior.labels)
        variance = max(dot(prior.weights, (prior.labels - mean) ** 2), _LEAST_VARIANCE)
        counts = np.array(marginals.counts)
        return variance, _residuals(self.labels).mean_square(counts, marginals.design.histogram).error

    def _sums(self, columns: MappedColumns) -> np.ndarray:
        marginals, design = self.marginals, self.marginals.design
        parts = design.parts_of(columns) + _firsts(design.sizes)
        return (marginals.effects[parts].sum(axis=1) + marginals.constant) * ROW_UNIT


def _residuals(labels: int) -> ResidualDomain:
    return ResidualDomain(np.arange(labels, dtype=np.float64))
