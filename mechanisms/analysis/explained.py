"""Share of the variance of the true labels that predictions explain, measured on the released labels.

A release is public, so what is measured on it costs no budget. Let h be an estimate of the true label y from the
released one with E[h | y] = y, f a prediction that does not depend on the noise of its own record's label, and m the
mean of h over the n records. Then

    2 Cov(h, f) - Var(f) - (mean f - m)^2 + Var(h) / n

estimates Var(y) - E (y - f)^2 without bias, because f, unlike y, is known: the noise enters once, and not squared as in
the error of f on the released labels. Divided by Var(y), it is the explained share, R2. Var(y) is estimated from the
release as well: the center and its covariance with the labels, and the mean square of the residuals from the released
labels and from their noised histogram, weighted by the standard errors.

Of classes, y is the vector of the indicators, and squares and products are those of vectors: the share is that of the
Brier score of the shares of the classes which predictions take off.

The model that is measured is a ridge on numbers and frequent categories, around the center if there is one. Each
fifth of the records is predicted by a ridge that is trained on the others, with the penalty that is best on them. A
center has seen the labels it is measured on, through noise: with p parameters its share is p / n too large at most.

The position of a record is measured as well: files and their order are public, and may follow from labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ..center.feature_rows import FEATURE_UNIT, Categories, Category, Columns, Number, encoders_of, indicators
from ..center.residuals import Moment, ResidualDomain
from ..core.reproducible import one_blas_thread
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from .channel import Channel

MOST_RECORDS = 1 << 17
"""Records of a release that are looked at."""

MOST_INVERTED = 1 << 10
"""Channels of more labels are not inverted: it would take seconds."""

FOLDS = 5
# Share of the variance of residuals that features are taken to explain where clipping is corrected.
_OF_RESIDUALS = 0.03
# Share of the error of a histogram of residuals that the correction of squares for clipping has as well.
_OF_TAILS = 0.5
# Encoded features. Values of a category have one of their own if they are as frequent as this, and this share.
_MOST_WIDTH, _FEWEST, _LEAST_SHARE = 1 << 9, 50, 0.002
# Penalties of a ridge, as parts of the number of records; the last leaves the center alone.
_PENALTIES = (0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
# Standard errors to each side of an interval.
_REACH = 2
# The histogram is of other labels if it is further from the released ones than this many standard errors.
_FAR = 4
MOST_BY_POSITION = 0.25
"""Largest share of the labels that positions may tell without a warning."""
# Numbers of blocks of positions, and standard errors above that share.
_BLOCKS, _CERTAIN = (8, 64, 512), 4.65


class Share(NamedTuple):
    """Measured share of the variance of the true labels.

    Attributes:
      value: The share, at most 1; noise may take it below 0.
      error: Its standard error.
      least: Lower end of the interval of two standard errors, which words follow from. It is above 0 exactly if what
        the predictions explain is, whatever the error of the variance (Fieller 1954).
    """

    value: float
    error: float
    least: float


def label_weights(channel: Channel, line: tuple[float, float] | None, records: int) -> np.ndarray:
    """Computes an estimate of the true label, or residual, for each output of a channel of numbers.

    It is without bias where the mechanism allows and no residual is clipped. Otherwise it has the least sum, under
    the prior, of the squared bias for labels before clipping and of the variance of a mean of all records; where
    none is clipped, it is scaled so that its mean rises with the true label by a slope of 1. Of labels that are too
    many for that, it is the line or the posterior mean, moved by the mean of what clipping took off. It is for
    measuring, and not for training: it has up to three times the noise of labels without the part for clipping, and
    models, which are means of fewer records, lose more by that than by clipping.

    Args:
      channel: The channel.
      line: Intercept and slope of the debiasing line; (0, 1) for labels that need none, None without a line.
      records: Number of records that bias is weighed against variance for.

    Returns:
      Shape (m,), in units of the label.
    """
    beyond, ends, shares = channel.beyond
    shift = float(channel.prior @ channel.labels)
    wanted = channel.labels - shift
    given = None if line is None else (channel.outputs - line[0]) / line[1]
    if len(channel.labels) > MOST_INVERTED:
        if given is None:
            given = channel.posterior @ channel.labels
        # The slope of a line has what clipping takes off.
        return given + (float(shares @ (beyond - ends)) if line in (None, (0.0, 1.0)) else 0.0)
    if len(beyond):
        return channel.weights(wanted + channel.excess(beyond, ends), records) + shift
    if given is not None and channel.exact(given - shift, wanted):
        return given
    weights = channel.weights(wanted)
    if channel.exact(weights, wanted):
        return weights + shift
    # The least bias draws all estimates to the middle, and with them what a model is found to explain.
    weights = channel.weights(wanted, records) + shift
    intercept, slope = channel.line_of(weights) or (0.0, 1.0)
    return (weights - intercept) / slope


def label_bias(channel: Channel, weights: np.ndarray) -> float:
    """Root mean square, under the prior, of the bias that `label_weights` have for true labels, clipped or not."""
    beyond, ends, _ = channel.beyond
    bias = channel.bias(weights, channel.labels + (channel.excess(beyond, ends) if len(beyond) else 0.0))
    return math.sqrt(float(channel.prior @ bias**2))


def steady_weights(channel: Channel, weights: np.ndarray, records: int) -> np.ndarray:
    """Computes estimates of residuals with less noise than `label_weights`, for features that move all of them alike.

    Such features move clipped residuals by the share of those that are within the range, so estimates of clipped ones
    are divided by it. As features need not do so, they are mixed with `weights`, which add the mean of what clipping
    took off to the ends, as if features explained 3 % of the variance of the residuals.
    """
    shares = channel.beyond[2]
    if not len(shares) or channel.whole is None or channel.line is None:
        return weights
    residuals, chances = channel.whole
    middle, mean = float(channel.prior @ channel.labels), float(chances @ residuals)
    within, (intercept, slope) = 1 - float(shares.sum()), channel.line
    steady = mean + ((channel.outputs - intercept) / slope - middle) / within
    outputs, change = channel.prior @ channel.probabilities, weights - steady
    if outputs @ (weights - mean) ** 2 <= outputs @ (steady - mean) ** 2:
        return weights
    bias = (1 / within - 1) ** 2 * _OF_RESIDUALS * float(chances @ (residuals - mean) ** 2)
    noise = float(outputs @ change**2) / records
    return steady + bias / (bias + noise) * change


def class_weights(channel: Channel, records: int) -> np.ndarray:
    """Computes estimates of the indicators of the K classes for each output, shape (m, K); arguments as above."""
    identity = np.eye(len(channel.labels))
    table = channel.table
    return table if channel.exact(table, identity) else channel.weights(identity, records)


def explained_share(labels: np.ndarray, predictions: np.ndarray, variance: Moment) -> Share:
    """Estimates the share of the variance of the true labels that held-out predictions explain.

    Args:
      labels: Estimates of the true labels, without bias, shape (n,); of classes (n, K). See `label_weights`.
      predictions: Predictions of them, which have not seen the noise of the same record, of the same shape.
      variance: Variance of the true labels with its standard error, of `label_variance` or `class_variance`.

    Returns:
      The share with its standard error, for records like these: that of noise, of sampling and of the variance.
    """
    h, f = (each.reshape(len(each), -1) for each in (labels, predictions))
    size, mean = len(h), h.mean(axis=0)
    terms = np.einsum("ij,ij->i", 2 * (h - mean) - (f - mean), f - mean)
    spread = float(np.einsum("ij,ij->", h - mean, h - mean)) / size
    total = float(terms.mean()) + spread / max(size - 1, 1)
    error = math.sqrt(float(terms.var()) / max(size - 1, 1))
    share, both = total / variance.value, total * variance.value
    inner = total**2 - (_REACH * error) ** 2
    root = math.sqrt(max(both**2 - inner * (variance.value**2 - (_REACH * variance.error) ** 2), 0.0))
    least = inner / (both + root) if inner > 0 < total else (total - _REACH * error) / variance.value
    return Share(min(share, 1.0), math.hypot(error, share * variance.error) / variance.value, min(least, 1.0))


def square_weights(channel: Channel, weights: np.ndarray, around: float, records: int) -> np.ndarray:
    """Computes an estimate of (label - around)^2 for each output, shape (m,), from those of `label_weights`."""
    if len(channel.labels) > MOST_INVERTED:
        return (weights - around) ** 2 - float(channel.prior @ channel.covariance(weights, weights))
    wanted = (channel.labels - around) ** 2
    found = channel.weights(wanted)
    found = found if channel.exact(found, wanted) else channel.weights(wanted, records)
    beyond, ends, _ = channel.beyond
    if not len(beyond):
        return found
    return found + channel.weights(channel.excess((beyond - around) ** 2, (ends - around) ** 2), records)


def label_variance(
    labels: np.ndarray, center: np.ndarray | float, squares: np.ndarray, histogram: Moment | None, clipped: bool = False
) -> Moment:
    """Estimates the variance of the true labels.

    Args:
      labels: Estimates of the true labels, shape (n,).
      center: Center of each record, shape (n,), or a constant.
      squares: Estimates of the squared difference of label and center, without bias, shape (n,).
      histogram: Mean square of that difference by the noised histogram, with its error; None without one.
      clipped: Whether labels are clipped around the center, which the squares are corrected for by the histogram.

    Returns:
      The variance and its standard error, in squared units of the label.
    """
    size = len(labels)
    own = Moment(float(squares.mean()), math.sqrt(float(squares.var()) / max(size - 1, 1)))
    parts = [own]
    if histogram is not None and abs(histogram.value - own.value) <= _FAR * math.hypot(histogram.error, own.error):
        parts = [own._replace(error=math.hypot(own.error, _OF_TAILS * histogram.error * clipped)), histogram]
    weights = [1 / max(part.error, 1e-9 * abs(part.value), 1e-300) ** 2 for part in parts]
    square = sum(weight * part.value for weight, part in zip(weights, parts, strict=True)) / sum(weights)
    residuals, spread = labels - center, center - np.mean(center)
    noise = float(residuals.var()) / max(size - 1, 1)
    found = square + float(np.mean(spread * (spread + 2 * residuals))) - float(residuals.mean()) ** 2 + noise
    errors = 1 / math.sqrt(sum(weights)), 2 * math.sqrt(float(np.mean(spread * spread)) * noise)
    return Moment(max(found, 0.0), math.hypot(*errors))


class NoisedHistogram(NamedTuple):
    """Released histogram of the labels, or of the residuals around a center.

    Attributes:
      domain: Label domain, shape (k,), ascending; evenly spaced around a center.
      counts: Noised records of each label, or of each cell of the residuals of the domain; integers.
      epsilon: Budget of the histogram.
    """

    domain: np.ndarray
    counts: np.ndarray
    epsilon: float

    def possible(self, center: np.ndarray | None) -> NoisedHistogram:
        """Without the noise in cells of residuals that no label has around these centers."""
        if center is None:
            return self
        bounds = ResidualDomain(self.domain).bounds
        step = float(self.domain[1] - self.domain[0])
        above, below = (self.domain[[-1, 0]] - [center.min(), center.max()]) / step
        possible = (bounds[1:] - 1 >= np.rint(below)) & (bounds[:-1] <= np.rint(above))
        return self._replace(counts=np.where(possible, self.counts, 0))

    def square(self, around: float | None) -> Moment:
        """Mean square of the labels around a constant; None for that of the residuals."""
        if around is None:
            residuals = ResidualDomain(self.domain)
            step = float(self.domain[-1] - self.domain[0]) / residuals.most
            return Moment(*(part * step**2 for part in residuals.mean_square(self.counts, self.epsilon)))
        squares, records = (self.domain - around) ** 2, max(float(self.counts.sum()), 1.0)
        spread = HISTOGRAM_SENSITIVITY / self.epsilon / records * math.sqrt(2 * float(squares @ squares))
        return Moment(max(float(self.counts @ squares) / records, 0.0), spread)


class EstimatedLabels(NamedTuple):
    """Estimates of the true labels of n released records.

    Attributes:
      labels: Shape (n,); of classes estimates of their indicators, shape (n, K).
      center: Center of each record, shape (n,), or the constant, or shares, that take its place.
      variance: Variance of the true labels, with its standard error.
      bias: Root mean square, under the prior, of what the mean of the estimate differs from the true label by.
      steady: Estimates with less noise around a center that clips residuals, see `steady_weights`; None elsewhere.
    """

    labels: np.ndarray
    center: np.ndarray | float
    variance: Moment
    bias: float = 0.0
    steady: np.ndarray | None = None


def estimated_labels(
    channel: Channel,
    line: tuple[float, float] | None,
    places: np.ndarray,
    center: np.ndarray | None = None,
    histogram: NoisedHistogram | None = None,
) -> EstimatedLabels:
    """Estimates the true labels of released records, numbers.

    Args:
      channel: The channel.
      line: As for `label_weights`.
      places: Place in the outputs of the channel of what was drawn for each record, shape (n,).
      center: Center of each record, shape (n,), on the grid; None without one.
      histogram: The released histogram; None for a public prior.

    Returns:
      The estimates.
    """
    weights, around = label_weights(channel, line, len(places)), None
    if center is None:
        around = float(channel.prior @ channel.labels)
    squares = square_weights(channel, weights, around or 0.0, len(places))[places]
    moment = None if histogram is None else histogram.possible(center).square(around)
    labels, given = weights[places], around if center is None else center
    assert given is not None
    labels = labels if center is None else labels + center
    bias, clipped = label_bias(channel, weights), len(channel.beyond[0]) > 0
    steady = steady_weights(channel, weights, len(places))[places] + given if clipped else None
    variance = label_variance(labels if steady is None else steady, given, squares, moment, clipped)
    return EstimatedLabels(labels, given, variance, bias, steady)


def estimated_classes(channel: Channel, places: np.ndarray) -> EstimatedLabels:
    """Estimates the indicators of the classes of released records, from the places of the outputs, shape (n,)."""
    labels = class_weights(channel, len(places))[places]
    return EstimatedLabels(labels, labels.mean(axis=0), class_variance(labels))


def class_variance(labels: np.ndarray) -> Moment:
    """Estimates the Brier score of the shares of the classes, the variance of all indicators, from their estimates.

    Those of n records have shape (n, K).
    """
    size, means = len(labels), labels.mean(axis=0)
    spread = labels - means
    biased = float(np.einsum("ij,ij->", spread, spread)) / size / max(size - 1, 1)
    error = 2 * math.sqrt(float((spread @ means).var()) / max(size - 1, 1))
    return Moment(max(1 - float(means @ means) + biased, 0.0), error)


@dataclass(frozen=True)
class Measured:
    """Share of the true labels that a model explains, measured on the release.

    Attributes:
      share: Share of the variance of the labels.
      parameters: Effective number of parameters of the ridge; 0 if the center alone is as good.
      noise: Share of the variance that noise costs such a model for each of its parameters.
      records: Number of records that it was measured on.
      seen: Number of features of the log that the ridge has.
      by_position: Share that positions of the records tell, of `share_by_position`.
    """

    share: Share
    parameters: float
    noise: float
    records: int
    seen: int
    by_position: float | None = None


def measure(estimates: EstimatedLabels, columns: Columns, positions: Sequence[np.ndarray] = ()) -> Measured | None:
    """Measures a cross-validated ridge around a center.

    Args:
      estimates: Estimates of the true labels of n records.
      columns: Features of these records.
      positions: As for `share_by_position`.

    Returns:
      What it explains; None for fewer than ten records, or labels without variance.
    """
    labels, center, variance, _, steady = estimates
    labels = labels if steady is None else steady
    size = len(labels)
    if size < 2 * FOLDS or not variance.value > 0:
        return None
    h = labels.reshape(size, -1)
    around = np.asarray(center, np.float64)
    around = np.broadcast_to(around[:, None] if around.shape == (size,) else around, h.shape)
    rows = _ridge_rows(columns, size)
    with one_blas_thread():
        predictions, parameters = _cross_validated(rows, h - around)
    predictions += around
    spread = h - h.mean(axis=0)
    noise = max(float(np.einsum("ij,ij->", spread, spread)) / size - variance.value, 0.0) / size / variance.value
    share, by_position = explained_share(h, predictions, variance), share_by_position(estimates, positions)
    return Measured(share, parameters, noise, size, rows.seen, by_position)


def share_by_position(estimates: EstimatedLabels, positions: Sequence[np.ndarray]) -> float | None:
    """Estimates the share of the true labels that their position tells: the mean label of a block of records.

    Every second record is predicted by the mean of the others in its block. Given their noise, the terms of
    `explained_share` are independent, and their mean is expected to be at most the share of the block means. Where it
    is about normal, it is 4.65 standard errors above with a probability below 1.7e-6. So with two kinds of positions
    and three numbers of blocks, an answer about records whose positions tell a quarter or less has one of at most 1e-5,
    if the estimates are without bias.

    Args:
      estimates: Estimates of the labels of n records, with a variance above 0.
      positions: Position of each record in the release, or in its shard, in [0, 1), shape (n,).

    Returns:
      The largest share; None if none is above a quarter for certain.
    """
    h, halves = estimates.labels.reshape(len(estimates.labels), -1), [np.s_[0::2], np.s_[1::2]]
    means, largest = np.empty_like(h), MOST_BY_POSITION
    for position, blocks in itertools.product(positions, _BLOCKS):
        block = (position * blocks).astype(np.intp)
        for own, other in (halves, halves[::-1]):
            counts = np.bincount(block[other], minlength=blocks)[:, None]
            sums = np.stack([np.bincount(block[other], column, blocks) for column in h[other].T], axis=1)
            means[own] = np.where(counts, sums / np.maximum(counts, 1), h[other].mean(axis=0))[block[own]]
        share = explained_share(h, means, estimates.variance)
        if share.value - _CERTAIN * share.error > MOST_BY_POSITION:
            largest = max(largest, share.value)
    return largest if largest > MOST_BY_POSITION else None


class _Rows(NamedTuple):
    """Encoded features of n records: a constant and numbers, shape (n, p), and indicators of categories, (n, w)."""

    numbers: np.ndarray
    indicators: csr_array
    seen: int

    def of_fold(self, fold: int) -> _Rows:
        """Every fifth record."""
        return self._replace(numbers=self.numbers[fold::FOLDS], indicators=csr_array(self.indicators[fold::FOLDS]))

    def transposed_product(self, targets: np.ndarray) -> np.ndarray:
        """Sums of rows times targets, shape (n, r), over the records."""
        return np.concatenate([self.numbers.T @ targets, self.indicators.T @ targets])

    def gram(self) -> np.ndarray:
        """Sums of the products of the encoded features, in exact multiples of 2^-20."""
        mixed = self.indicators.T @ self.numbers
        own = (self.indicators.T @ self.indicators).toarray()
        return np.block([[self.numbers.T @ self.numbers, mixed.T], [mixed, own]])


def _ridge_rows(columns: Columns, records: int) -> _Rows:
    """Encodes features: numbers standardized and clipped, and an indicator for each frequent value of a category.

    All other values of a category are one, with those that are missing. Of too many values the most frequent are taken.
    """
    found = encoders_of({name: part for name, part in columns.items() if not isinstance(part, Categories)}, 1)
    numbers = [encoder for encoder in found if isinstance(encoder, Number)][: _MOST_WIDTH // 2]
    levels = []
    for name, column in columns.items():
        if isinstance(column, Categories):
            counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.values))
            often = np.flatnonzero((counts >= max(_FEWEST, records * _LEAST_SHARE)) & (counts < records))
            levels += [(-int(counts[place]), name, column.values[place]) for place in often]
    kept = sorted(levels)[: _MOST_WIDTH - len(numbers)]
    values = {name: tuple(sorted(value for _, of, value in kept if of == name)) for _, name, _ in kept}
    categories = [Category(name, own, (0.0,) * len(own), 1.0) for name, own in sorted(values.items())]
    encoded = np.ones((records, len(numbers) + 1))
    for place, encoder in enumerate(numbers, 1):
        encoded[:, place] = encoder.encode(np.array(columns[encoder.name], np.float64)) / FEATURE_UNIT
    places = indicators(categories, columns) if categories else csr_array((records, 0))
    return _Rows(encoded, places, len(numbers) + len(categories))


def records_of(columns: Columns, rows: slice) -> Columns:
    """Features of some of the records."""
    return {
        name: Categories(column.codes[rows], column.values) if isinstance(column, Categories) else column[rows]
        for name, column in columns.items()
    }


def _cross_validated(rows: _Rows, targets: np.ndarray) -> tuple[np.ndarray, float]:
    """Held-out predictions of ridges of targets, shape (n, r), and the effective number of their parameters."""
    folds = [rows.of_fold(fold) for fold in range(FOLDS)]
    grams = [fold.gram() for fold in folds]
    moments = [fold.transposed_product(targets[place::FOLDS]) for place, fold in enumerate(folds)]
    gram, moment = np.sum(grams, axis=0), np.sum(moments, axis=0)
    gains = np.empty((FOLDS, len(_PENALTIES)))
    fits = []
    for place in range(FOLDS):
        left = _Ridge(gram - grams[place], moment - moments[place])
        fits.append([left.coefficients(penalty) for penalty in _PENALTIES])
        # What a fit takes off the squared error of the fold, up to noise.
        gains[place] = [np.sum(fit * (2 * moments[place] - grams[place] @ fit)) for fit in fits[-1]]
    found = np.empty_like(targets)
    for place, fold in enumerate(folds):
        # Chosen by the other folds: the largest of several estimates is too large.
        fit, size = fits[place][int(np.argmax(gains.sum(axis=0) - gains[place]))], fold.numbers.shape[1]
        found[place::FOLDS] = fold.numbers @ fit[:size] + fold.indicators @ fit[size:]
    best = _PENALTIES[int(np.argmax(gains.sum(axis=0)))]
    return found, _Ridge(gram, moment).freedom(best)


class _Ridge:
    """Ridges of all penalties from the sums of rows and targets."""

    def __init__(self, gram: np.ndarray, moment: np.ndarray):
        self._gram, self._moment = gram, moment

    def coefficients(self, penalty: float) -> np.ndarray:
        """Coefficients of the rows, shape (m + 1, r)."""
        if math.isinf(penalty):
            return np.zeros_like(self._moment)
        return np.linalg.solve(self._penalized(penalty), self._moment)

    def freedom(self, penalty: float) -> float:
        """Effective number of parameters."""
        return 0.0 if math.isinf(penalty) else float(np.trace(np.linalg.solve(self._penalized(penalty), self._gram)))

    def _penalized(self, penalty: float) -> np.ndarray:
        found = self._gram.copy()
        places = np.arange(1, len(found))
        found[places, places] += penalty * self._gram[0, 0]
        return found
