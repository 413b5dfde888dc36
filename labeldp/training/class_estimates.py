"""Metrics of class probabilities on true classes, estimated from released ones, with standard errors.

Each metric is a mean over the records, or a ratio of means, of functions g(i, y) of the record i and its true class y.
With the targets h = P^-1 of the channel P (`Release.debiased`), of which sum over z of P[y, z] h[z, c] is 1 if c = y
and else 0,

    t_i = sum over c of h[z_i, c] g(i, c)   has   E[t_i | y_i] = g(i, y_i),

so estimates are unbiased over the noise, for any prior. A channel of K classes and K outputs has no other weights with
that property, so these have the least variance. For class probabilities p of a record, and a class k,

    log loss              g = -log p_c
    accuracy              g = 1 if c is the class with the largest p, else 0
    Brier score           g = sum over j of (p_j - [j = c])^2; of two classes half of it, which is (p_k - [c = k])^2
    share of k            g = [c = k]
    calibration slope     sum of (p_k - mean p_k) t / sum of (p_k - mean p_k)^2, for t of g = [c = k]
    lift                  mean of that t among the largest p_k, divided by its mean over all records
    forward loss          -log (sum over c of p_c P[c, z]): the likelihood of what was released, which needs no t

The standard error for `target="records"` is that of the noise alone: t_i^2 - sum over c of h[z_i, c] g(i, c)^2 has the
mean E[t_i^2] - g(i, y_i)^2, the variance of t_i. For `target="population"` it is that of the sample and the noise
together, from the variance of the terms. Ratios are linearized.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .class_arrays import class_place, class_probabilities
from .intervals import Estimate, calibration_slope, check_choices, lift
from .release import Release

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CLASS_METRICS = ("log_loss", "accuracy", "brier_score", "calibration_slope", "lift", "share", "forward_loss")
"""Names of the metrics that `estimate` knows for classes."""
CLASS_COMPARED = ("log_loss", "accuracy", "brier_score", "forward_loss")
"""Names of the metrics that `compare` knows for classes."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of the true classes, in all records or in each group of records.

    Attributes:
      classes: Names of the K classes.
      groups: Values of the groups, shape (g,), ascending; None for all records.
      values: Estimated shares, shape (K,), or (g, K) of groups, float64. They add up to 1; one may be below 0 by noise.
      standard_errors: Their standard errors, of the same shape.
      records: Number of records, an integer, or integers of shape (g,) of groups.
    """

    classes: tuple[str, ...]
    groups: np.ndarray | None
    values: np.ndarray
    standard_errors: np.ndarray
    records: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassRecords:
    """Released classes of n records: their channel, and targets of the true ones for each output.

    `inverse` has shape (m, K). It is exact, or the best one under the prior if that was asked for; None where the
    channel has no inverse.
    """

    places: np.ndarray
    chances: np.ndarray
    inverse: np.ndarray | None
    release: Release

    @classmethod
    def read(
        cls, z: ArrayLike, release: Release, center: ArrayLike | None, exact: bool, needed: bool = True
    ) -> ClassRecords:
        """Reads released classes; `needed` tells that the inverse is."""
        places, _ = release.places(z, center)
        channel, inverse = release.channel, None
        try:
            inverse = release.inverse
        except ValueError:
            if needed and exact:
                raise
            if not exact:
                inverse = channel.weights(np.eye(len(channel.labels)), len(places))
        return cls(places, channel.probabilities, inverse, release)

    def targets(self) -> np.ndarray:
        """Targets of the records, shape (n, K)."""
        assert self.inverse is not None
        return self.inverse[self.places]

    def mean(self, functions: np.ndarray, target: str) -> Estimate:
        """Mean of g(i, c), shape (n, K), at the true classes, with its error."""
        weights = self.targets()
        terms = np.einsum("ij,ij->i", weights, functions)
        return self.finished(float(terms.mean()), terms, weights, functions, target)

    def finished(
        self, value: float, terms: np.ndarray, weights: np.ndarray | None, functions: np.ndarray, target: str
    ) -> Estimate:
        """An estimate with the error of the mean of terms, whose means given the true class are `functions`."""
        size = len(terms)
        variance = float(((terms - terms.mean()) ** 2).sum()) / max(size - 1, 1)
        if target == "records" and weights is not None:
            noise = float((terms**2 - np.einsum("ij,ij->i", weights, functions**2)).mean())
            # By chance that of few records may be negative; that of the sample as well is larger.
            variance = noise if noise > 0 else variance
        return Estimate(value, math.sqrt(variance / size))


def class_estimate(
    metric: str,
    predictions: ArrayLike | None,
    z: ArrayLike,
    release: Release,
    *,
    center: ArrayLike | None,
    fraction: float,
    target: str,
    exact: bool,
    of_class: object,
) -> Estimate:
    """Estimates a metric of class probabilities on true classes; arguments as those of `estimate`."""
    if metric not in CLASS_METRICS:
        raise ValueError(f"metric must be one of {', '.join(CLASS_METRICS)} for classes, not {metric!r}")
    if metric == "share" and predictions is not None:
        raise ValueError("the share takes no predictions: pass None")
    records = ClassRecords.read(z, release, center, exact, metric != "forward_loss")
    place = None
    if metric in ("share", "calibration_slope", "lift"):
        place = place_of_class(release, of_class)
    elif of_class is not None:
        raise ValueError(f"{metric} is of all classes: leave out of_class")
    if metric == "share":
        indicators = np.zeros((len(records.places), len(release.domain)))
        indicators[:, place] = 1
        return records.mean(indicators, target)
    p = class_probabilities(predictions, len(records.places), len(release.domain), "predictions")
    if place is None:
        return _mean_of(records, metric, [(1.0, p, "predictions")], target)
    indicators = records.targets()[:, place]
    if metric == "calibration_slope":
        value, coefficients, scores = calibration_slope(p[:, place], indicators)
    else:
        value, coefficients, scores = lift(p[:, place], indicators, fraction, "share of the class")
    return linearized(value, noise_of(indicators), coefficients, scores, target)


def class_compare(
    metric: str,
    f: ArrayLike,
    g: ArrayLike,
    z: ArrayLike,
    release: Release,
    *,
    center: ArrayLike | None,
    target: str,
    exact: bool,
) -> Estimate:
    """Estimates metric(f) - metric(g) on true classes; arguments as those of `compare`."""
    if metric not in CLASS_COMPARED:
        raise ValueError(f"metric must be one of {', '.join(CLASS_COMPARED)} for classes, not {metric!r}")
    records = ClassRecords.read(z, release, center, exact, metric != "forward_loss")
    size, classes = len(records.places), len(release.domain)
    pairs = [
        (sign, class_probabilities(each, size, classes, name), name)
        for sign, each, name in ((1.0, f, "f"), (-1.0, g, "g"))
    ]
    return _mean_of(records, metric, pairs, target)


def shares(
    z: ArrayLike, release: Release, *, groups: ArrayLike | None = None, target: str = "records", exact: bool = True
) -> Shares:
    """Estimates the shares of the true classes, in all records or in each group: the means of the targets.

    With n_z records of each released class and the inverse P^-1 of the channel, the shares are (1/n) sum over z of n_z
    P^-1[z, c]; for `rr`, (released share - b) / (a - b), where a is the probability of the true class and b that of
    each other one. Errors are those of each share by itself.

    Args:
      z: Released classes, shape (n,), as released.
      release: The release, of classes.
      groups: Public group of each record, shape (n,): integers, text or booleans; None for all records.
      target: `records` or `population`, as for `estimate`; a group of one record has no error for `population`, and
        gets NaN.
      exact: As for `estimate`.

    Returns:
      Shares, standard errors and numbers of records.

    Raises:
      ValueError: If labels are numbers, an argument is wrong, or the channel has no inverse.
    """
    check_choices(target)
    release = release.of_classes(", without classes: see group_means")
    records = ClassRecords.read(z, release, None, exact)
    size = len(records.places)
    keys = np.zeros(size, int) if groups is None else np.asarray(groups)
    if keys.shape != records.places.shape:
        raise ValueError(f"groups have shape {keys.shape}, not {records.places.shape}")
    found, of_record = np.unique(keys, return_inverse=True)
    assert records.inverse is not None
    outputs = len(records.inverse)
    cells = np.bincount(of_record * outputs + records.places, minlength=len(found) * outputs)
    counts = cells.reshape(len(found), outputs)
    number = counts.sum(axis=1)
    means = counts / number[:, None]
    values = means @ records.inverse
    squares = means @ records.inverse**2
    if target == "records":
        # The square of an indicator is itself: its estimated mean is the share.
        variances = squares - values
        fallback = release.channel.prior @ records.chances @ (records.inverse**2 - records.inverse)
        variances = np.where(variances > 0, variances, np.maximum(fallback, 0))
    else:
        spread = np.maximum(squares - values**2, 0) * (number / np.maximum(number - 1, 1))[:, None]
        variances = np.where(number[:, None] > 1, spread, np.nan)
    errors = np.sqrt(variances / number[:, None])
    if groups is None:
        return Shares(release.classes or (), None, values[0], errors[0], number[0])
    return Shares(release.classes or (), found, values, errors, number)


def place_of_class(release: Release, of_class: object) -> int:
    """Place of a class that is named, or of the second of two. Raises ValueError for another one."""
    if of_class is not None:
        return class_place(of_class, release.of_classes(", without classes").place_of, "of_class")
    if len(release.domain) > 2:
        raise ValueError("of_class is missing: name one of the classes")
    return 1


def log_loss_of(p: np.ndarray, name: str) -> np.ndarray:
    """Log loss of each record and class, shape (n, K). Raises ValueError for a probability of 0."""
    if not p.min() > 0:
        row = int((p == 0).any(axis=1).argmax())
        raise ValueError(
            f"row {row} of {name} has a probability of 0, and the log loss would be infinite: clip probabilities, "
            "for example to at least 1e-6"
        )
    return -np.log(p)


def _accuracy(p: np.ndarray, _: str) -> np.ndarray:
    found = np.zeros_like(p)
    found[np.arange(len(p)), p.argmax(axis=1)] = 1
    return found


def _brier_score(p: np.ndarray, _: str) -> np.ndarray:
    score = (p**2).sum(axis=1, keepdims=True) - 2 * p + 1
    return score / 2 if p.shape[1] == 2 else score


_FUNCTIONS: dict[str, Callable[[np.ndarray, str], np.ndarray]] = {
    "log_loss": log_loss_of,
    "accuracy": _accuracy,
    "brier_score": _brier_score,
}


def _mean_of(records: ClassRecords, metric: str, models: list[tuple[float, np.ndarray, str]], target: str) -> Estimate:
    """Sum over models of a sign times their metric."""
    if metric != "forward_loss":
        return records.mean(np.sum([sign * _FUNCTIONS[metric](p, name) for sign, p, name in models], axis=0), target)
    losses: np.ndarray = np.sum([sign * _forward_losses(p, name, records) for sign, p, name in models], axis=0)
    terms = losses[np.arange(len(losses)), records.places]
    weights = None if records.inverse is None else records.targets()
    return records.finished(float(terms.mean()), terms, weights, losses @ records.chances.T, target)


def _forward_losses(p: np.ndarray, name: str, records: ClassRecords) -> np.ndarray:
    """Forward loss of each record for each output, shape (n, m)."""
    outputs = p @ records.chances
    # Mechanisms without a probability of 0 give each output some.
    return log_loss_of(outputs, name)


def noise_of(indicators: np.ndarray) -> np.ndarray:
    """Estimated variances of estimated indicators: the square of an indicator is itself, and what is over is noise."""
    return indicators**2 - indicators


def linearized(
    value: float, variances: np.ndarray, coefficients: np.ndarray, scores: np.ndarray, target: str
) -> Estimate:
    """An estimate that is about linear in estimated indicators of a class, of these variances, with its error."""
    size = len(scores)
    sampled = float(scores @ scores) * size / max(size - 1, 1)
    noise = float(coefficients**2 @ variances)
    return Estimate(value, math.sqrt(noise if target == "records" and noise > 0 else sampled))
