"""Metrics on true labels, estimated from released ones, with standard errors; for classes see `class_estimates`.

A metric is a mean over the records of functions of the true label. Each function is replaced by one of the released
label that has the same mean over the noise (`channel`), so estimates are unbiased where that function exists. True
labels are those of the domain, rounded and clamped.

With r = y - c for the center c (0 without one), mu = the mean of r under the prior, and u = f - c - mu for a prediction
f, the polynomials are

    mean squared error    (1/n) sum u^2 - 2 u h1 + h2         E[h1 | r] = r - mu,  E[h2 | r] = (r - mu)^2
    mean, group means     (1/n) sum c + mu + h1
    calibration slope     sum (f - mean f) (c + mu + h1) / sum (f - mean f)^2
    lift                  mean of c + mu + h1 among the largest predictions, divided by that of all records

h1 is the released label itself if it is unbiased, or the debiased one if its line is exact for every label. The mean
absolute error takes weights of the outputs for |f - c - r| of each record. Lift is a ratio, unbiased only for many
records.

Around a center, residuals beyond the range of the randomizer are clipped; `Release.clipped` is their share. That takes
an excess g(r) - g(clipped r) off each function g, whose mean is known from the noised histogram of the residuals.

- `clipping="ends"` estimates g(r) plus the mean excess of the residuals at the same end, by the weights that minimize
  the squared bias under the prior plus the variance over the n records. The bias falls with n, if predictions do not
  tell residuals beyond an end from each other.
- `clipping="average"` adds the mean excess of all records to each record. It adds no variance, but is biased for any n
  if predictions tell which residuals are clipped, as those of a good model do.

What is left of the bias is in no standard error.

The standard error for `target="records"` is that of the noise alone, for the metric on these very records: sum a1^2 V11
+ 2 a1 a2 V12 + a2^2 V22 with the coefficients of h1 and h2, where the covariances given the true label are estimated by
weights of the outputs, like every function of it. For `target="population"` it is that of the sample and the noise
together, from the variance of the terms, for records that are drawn independently.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .class_arrays import numbers
from .class_estimates import CLASS_COMPARED, class_compare, class_estimate
from .intervals import Estimate, GroupEstimates, calibration_slope, check_choices, lift
from .release import ClassRelease, Release

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METRICS = ("mean_squared_error", "mean_absolute_error", "calibration_slope", "lift", "mean")
"""Names of the metrics that `estimate` knows for numbers."""
COMPARED = ("mean_squared_error", "mean_absolute_error")
"""Names of the metrics that `compare` knows for numbers."""

# Numbers of a table of weights that are looked up at a time.
_BLOCK = 1 << 21


def estimate(
    metric: str,
    predictions: ArrayLike | None,
    z: ArrayLike,
    release: Release,
    *,
    center: ArrayLike | None = None,
    fraction: float = 0.1,
    target: str = "records",
    clipping: str = "ends",
    exact: bool = True,
    of_class: object = None,
) -> Estimate:
    """Estimates a metric of predictions on true labels from the released ones.

    Corrected statistics of numbers, with h1 and h2 of the module's page:

    - `mean_squared_error`: the mean of (f - z)^2, of which the variance of the noise is taken off.
    - `mean_absolute_error`: the mean of |f - y|, by weights of the outputs for each record. They differ much between
      neighboring labels, so its standard error is several times as large on a fine grid.
    - `calibration_slope`: slope of the least squares line of y on f; 1 for a calibrated model. It is linear in y.
    - `lift`: mean of y among the `fraction` of records with the largest predictions, divided by the mean of all.
      It is for labels whose mean is well above 0.
    - `mean`: mean of y; predictions are None.

    Of classes, each function of the record and the true class becomes its sum over the classes c, weighted by the
    targets h[z, c] of `Release.debiased`, rows of the inverse of the channel (`class_estimates`):

    - `log_loss`: the mean of -log of the probability of the true class, in nats.
    - `accuracy`: the share of records whose most probable class is the true one.
    - `brier_score`: the mean of the squared distance of the probabilities to the indicators of the true class, summed
      over the classes; for two classes half of it, the squared error of one probability.
    - `calibration_slope`: slope of the least squares line of the indicator of a class on its probability.
    - `lift`: share of a class among the `fraction` of records with its largest probabilities, divided by that in all.
    - `share`: share of a class; predictions are None.
    - `forward_loss`: the mean of -log (sum over c of p_c P[c, z]), of the released classes themselves, in nats. It is
      least for the true class probabilities, needs no inverse, and has a much smaller error than `log_loss`.

    Args:
      metric: One of `METRICS`; for classes, of `CLASS_METRICS`.
      predictions: Predictions f of the true labels, shape (n,), in units of the label. They must not have been trained
        on these released labels; None for `mean`. For classes their probabilities, shape (n, K), with columns as in
        `Release.classes`; of two classes, those of the second may be given alone, shape (n,). None for `share`.
      z: Released labels, shape (n,), as released.
      release: The release.
      center: Center of each record, shape (n,), as released, if there is one.
      fraction: Share of the records for `lift`, in (0, 1).
      target: `records`: the metric on these records if their true labels were known, whose error is that of the noise.
        `population`: the metric on all records like these, drawn independently; the error has the sampling as well.
      clipping: Correction of clipped residuals, `ends` or `average`; without a center both are the same.
      exact: Refuse what no function of the released label estimates without bias. If False, the debiasing line and
        weights that are best under the prior take its place: the bias that is left is not in the standard error.
      of_class: Class of `calibration_slope`, `lift` and `share`, by its name or value; None for numbers, and for the
        second of two classes.

    Returns:
      The estimate and its standard error.

    Raises:
      ValueError: If an argument is wrong, or the mechanism has no exact correction.
    """
    check_choices(target, clipping)
    if isinstance(release, ClassRelease):
        more: dict[str, Any] = {"fraction": fraction, "target": target, "exact": exact, "of_class": of_class}
        return class_estimate(metric, predictions, z, release, center=center, **more)
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, not {metric!r}")
    if of_class is not None:
        raise ValueError("the labels of this release are numbers: leave out of_class")
    if metric == "mean" and predictions is not None:
        raise ValueError("the mean takes no predictions: pass None")
    places, around = release.places(z, center)
    given = None if metric == "mean" else numbers(predictions, "predictions", places.shape)
    size = len(places)
    if given is not None and metric == "mean_absolute_error":
        return _tabulated(
            release, places, lambda rows, labels: np.abs((given - around)[rows, None] - labels), exact, clipping
        )(target)
    moments = _moments(release, exact, size, metric == "mean_squared_error", clipping)
    labels = around + moments.shift + moments.first[places]
    if given is None:
        terms, first, second = labels / size, np.full(size, 1 / size), None
        return _finished(moments, places, float(terms.sum()), terms - terms.mean(), first, second, target)
    if metric == "mean_squared_error":
        return _squared(moments, places, given - around - moments.shift, None, target)
    if metric == "calibration_slope":
        value, coefficients, scores = calibration_slope(given, labels)
    else:
        value, coefficients, scores = lift(given, labels, fraction, "mean of the labels")
    return _finished(moments, places, value, scores, coefficients, None, target)


def compare(
    f: ArrayLike,
    g: ArrayLike,
    z: ArrayLike,
    release: Release,
    *,
    metric: str | None = None,
    center: ArrayLike | None = None,
    target: str = "records",
    clipping: str = "ends",
    exact: bool = True,
) -> Estimate:
    """Estimates metric(f) - metric(g) on true labels, of two models on the same records; below 0 if f is better.

    The noise that both share cancels. For the mean squared error what is left is linear in the label,

        (1/n) sum u_f^2 - u_g^2 - 2 (u_f - u_g) h1,

    so only h1 has to be exact. With unbiased labels without a center that is the difference of the errors on the
    released labels, and choices by it are the same. With biased labels, such as those of `rr`, the naive difference is
    wrong.

    Of classes it is the mean of the differences of the two functions of `estimate`, weighted by the targets: for the
    log loss, the mean of the sum over c of h[z, c] log(g_c / f_c).

    Args:
      f: Predictions of the first model, shape (n,), in units of the label; for classes as for `estimate`.
      g: Predictions of the second model, likewise.
      z: Released labels, shape (n,), as released.
      release: The release.
      metric: `mean_squared_error`, the default for numbers, or `mean_absolute_error`; for classes `log_loss`, the
        default, `accuracy`, `brier_score` or `forward_loss`.
      center: Center of each record, shape (n,), as released, if there is one.
      target: As for `estimate`.
      clipping: As for `estimate`.
      exact: As for `estimate`.

    Returns:
      The difference and its standard error.

    Raises:
      ValueError: If an argument is wrong, or the mechanism has no exact correction.
    """
    metric = compared_metric(metric, release)
    check_choices(target, clipping)
    if isinstance(release, ClassRelease):
        return class_compare(metric, f, g, z, release, center=center, target=target, exact=exact)
    places, around = release.places(z, center)
    one, other = (numbers(values, name, places.shape) - around for values, name in ((f, "f"), (g, "g")))
    if metric == "mean_absolute_error":
        return _tabulated(
            release,
            places,
            lambda rows, labels: np.abs(one[rows, None] - labels) - np.abs(other[rows, None] - labels),
            exact,
            clipping,
        )(target)
    moments = _moments(release, exact, len(places), False, clipping)
    return _squared(moments, places, one - moments.shift, other - moments.shift, target)


def group_means(
    z: ArrayLike,
    groups: ArrayLike,
    release: Release,
    *,
    center: ArrayLike | None = None,
    target: str = "records",
    clipping: str = "ends",
    exact: bool = True,
) -> GroupEstimates:
    """Estimates the mean of the true labels of each group: the mean of the debiased labels.

    The standard errors are those of each group by itself; intervals of many groups miss some of them.

    Args:
      z: Released labels, shape (n,), as released.
      groups: Public group of each record, shape (n,): integers, text or booleans.
      release: The release.
      center: Center of each record, shape (n,), as released, if there is one.
      target: As for `estimate`; a group of one record has no error for `population`, and gets NaN.
      clipping: As for `estimate`.
      exact: As for `estimate`.

    Returns:
      Groups, means, standard errors and numbers of records.

    Raises:
      ValueError: If an argument is wrong, labels are classes, or the mechanism has no exact correction.
    """
    check_choices(target, clipping)
    if isinstance(release, ClassRelease):
        raise ValueError("classes have no mean: see shares, with groups")
    places, around = release.places(z, center)
    keys = np.asarray(groups)
    if keys.shape != places.shape:
        raise ValueError(f"groups have shape {keys.shape}, not {places.shape}")
    moments = _moments(release, exact, len(places), False, clipping)
    found, of_record, records = np.unique(keys, return_inverse=True, return_counts=True)
    labels = around + moments.shift + moments.first[places]
    values = np.bincount(of_record, labels) / records
    if target == "records":
        variances = np.bincount(of_record, moments.covariances[0][places]) / records
        # A sum of few estimated variances may be negative; the mean under the prior takes its place then.
        variances = np.where(variances > 0, variances, moments.means[0])
    else:
        squares = np.bincount(of_record, (labels - values[of_record]) ** 2)
        variances = np.where(records > 1, squares / np.maximum(records - 1, 1), np.nan)
    return GroupEstimates(found, values, np.sqrt(variances / records), records)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Weights of the outputs for r - mu and (r - mu)^2, and for V11, V12, V22; second ones only where needed.

    The mean of what clipping takes off is in the first two. `means` has the covariances under the prior.
    """

    shift: float
    first: np.ndarray
    second: np.ndarray | None
    covariances: tuple[np.ndarray, ...]
    means: tuple[float, ...]


@lru_cache(maxsize=16)
def _moments(release: Release, exact: bool, records: int, squared: bool, clipping: str) -> _Moments:
    channel = release.channel
    shift = float(channel.prior @ channel.labels)
    labels = channel.labels - shift
    beyond, ends, shares = channel.beyond
    powers = [1, 2] if squared else [1]
    weights, constants = [], []
    for power in powers:
        parts = (beyond - shift) ** power, (ends - shift) ** power
        found = _weights(release, power, labels**power, shift, None if exact else records)
        if clipping == "ends" and len(beyond):
            # Exact weights for a jump at the ends would have many times the variance on a fine grid.
            found = found + channel.weights(channel.excess(*parts), records)
        weights.append(found)
        constants.append(float(shares @ (parts[0] - parts[1])) if clipping == "average" else 0.0)
    pairs = [(weights[0], weights[0]), (weights[0], weights[-1]), (weights[-1], weights[-1])]
    covariances = [channel.covariance(*pair) for pair in (pairs if squared else pairs[:1])]
    # A bias of estimated variances is small, and no reason to refuse.
    number = None if channel.full_rank else records
    estimates = tuple(channel.weights(each, number) for each in covariances)
    first, *second = (each + constant for each, constant in zip(weights, constants, strict=True))
    means = tuple(float(channel.prior @ each) for each in covariances)
    return _Moments(shift, first, second[0] if second else None, estimates, means)


def _weights(release: Release, power: int, wanted: np.ndarray, shift: float, records: int | None) -> np.ndarray:
    """Weights of the outputs for a power of the label: the debiased output itself where it will do."""
    channel, line = release.channel, None
    # What clipping takes off is corrected apart, and would count twice in the slope of the release's line.
    given = release.line if release.unbiased or not len(channel.beyond[0]) else channel.line
    if power == 1 and given is not None:
        line = (channel.outputs - given[0]) / given[1] - shift
        if channel.exact(line, wanted):
            return line
    weights = channel.weights(wanted)
    if channel.exact(weights, wanted):
        return weights
    if records is None:
        raise ValueError(_refusal(release, "the label" if power == 1 else "the squared label"))
    return channel.weights(wanted, records) if line is None else line


def _refusal(release: Release, what: str) -> str:
    return (
        f"no function of the labels of mechanism {release.mechanism}, of epsilon {release.epsilon:.3g}, estimates "
        f"{what} without bias: release with --mechanism unbiased and --center linear or none, or pass exact=False, "
        "which corrects on average under the prior only"
    )


def compared_metric(metric: str | None, release: Release, of_classes: str = "log_loss") -> str:
    """Metric that models are compared by, with the default for numbers or classes. Raises ValueError for others."""
    known, default = (CLASS_COMPARED, of_classes) if isinstance(release, ClassRelease) else (COMPARED, COMPARED[0])
    if metric is not None and metric not in known:
        raise ValueError(f"metric must be one of {', '.join(known)}, not {metric!r}")
    return metric or default


def _squared(moments: _Moments, places: np.ndarray, f: np.ndarray, g: np.ndarray | None, target: str) -> Estimate:
    """Mean squared error of f, or the difference to that of g; both relative to center and shift."""
    size, first, second = len(places), moments.first[places], moments.second
    if g is None:
        assert second is not None
        terms = (f**2 - 2 * f * first + second[places]) / size
        return _finished(moments, places, float(terms.sum()), terms - terms.mean(), -2 * f / size, 1 / size, target)
    terms = (f**2 - g**2 - 2 * (f - g) * first) / size
    return _finished(moments, places, float(terms.sum()), terms - terms.mean(), -2 * (f - g) / size, None, target)


def _finished(
    moments: _Moments,
    places: np.ndarray,
    value: float,
    scores: np.ndarray,
    first: np.ndarray,
    second: float | None,
    target: str,
) -> Estimate:
    """The estimate with its error: from coefficients of h1 and h2, or from centered scores of the records."""
    if target == "population":
        size = len(places)
        return Estimate(value, math.sqrt(float(scores @ scores) * size / max(size - 1, 1)))
    squares = [first**2] if second is None else [first**2, 2 * first * second, np.full(len(first), second**2)]
    parts = zip(squares, moments.covariances, strict=False)
    variance = float(sum(each @ weights[places] for each, weights in parts))
    if not variance > 0:
        variance = float(sum(each.sum() * mean for each, mean in zip(squares, moments.means, strict=False)))
    return Estimate(value, math.sqrt(max(variance, 0.0)))


def _tabulated(
    release: Release,
    places: np.ndarray,
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    exact: bool,
    clipping: str,
) -> Callable[[str], Estimate]:
    """Mean of a function of record and label: t_i = sum over labels of weights[output, label] function(i, label).

    The variance of the noise is the sum of t_i^2 - w_i, where w_i estimates function(i, y_i)^2 in the same way.
    """
    channel, size = release.channel, len(places)
    if channel.exact_distances:
        table = channel.table
    elif exact:
        raise ValueError(_refusal(release, "the absolute error"))
    else:
        table = channel.weights(np.eye(len(channel.labels)), size)
    beyond, ends, shares = channel.beyond
    # Weights for the excess at each end, and their mean for each label.
    corners = np.zeros((len(channel.labels), 2))
    corners[0, 0], corners[-1, 1] = 1 / (channel.prior[0] or 1.0), 1 / (channel.prior[-1] or 1.0)
    jumps = channel.weights(corners, size)
    jump_means = channel.probabilities @ jumps
    below = ends == channel.labels[0]
    terms, squares, constants = np.empty(size), np.empty(size), np.zeros(size)
    rows = max(_BLOCK // (len(channel.labels) + 2 * len(beyond)), 1)
    for start in range(0, size, rows):
        block = np.arange(start, min(start + rows, size))
        values, weights = function(block, channel.labels[None, :]), table[places[block]]
        terms[block] = np.einsum("ij,ij->i", weights, values)
        if len(beyond):
            excess = (function(block, beyond[None, :]) - function(block, ends[None, :])) * shares
            if clipping == "ends":
                sides = np.stack([excess[:, below].sum(axis=1), excess[:, ~below].sum(axis=1)], axis=1)
                terms[block] += np.einsum("ij,ij->i", jumps[places[block]], sides)
                values = values + sides @ jump_means.T
            else:
                constants[block] = excess.sum(axis=1)
        squares[block] = np.einsum("ij,ij->i", weights, values**2)
    whole = terms + constants
    value = float(whole.mean())
    sampled = float(((whole - value) ** 2).sum()) / max(size - 1, 1)

    def finished(target: str) -> Estimate:
        noise = float((terms**2 - squares).mean())
        return Estimate(value, math.sqrt((sampled if target == "population" or not noise > 0 else noise) / size))

    return finished
