"""Areas under curves, normalized entropy and calibration of one class, estimated from released classes.

With estimated indicators h of the class (`class_estimates`), whose noise is independent between records, products of
two records estimate those of the true indicators. For predictions f and weights w, with k(a, b) = 1, 1/2 or 0 for a
above, equal to or below b,

    area under the ROC curve       sum over i, j != i of w_i w_j h_i (1 - h_j) k(f_i, f_j), over that without k
    average precision              sum over thresholds t of H_t (sum of H_s, s >= t) / (sum of W_s, s >= t), over sum H,

where H_t and W_t are the sums of w h and of w over the records with f = t. A record's product with itself has another
mean: it is left out of the first (an indicator times its complement is 0) and replaced by h in the second. Numerators
and denominators are unbiased over the noise; the ratio is for many records. Errors are those of its linearization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .class_arrays import class_probabilities, numbers
from .class_estimates import ClassRecords, linearized, log_loss_of, noise_of, place_of_class, shares
from .intervals import Estimate, GroupEstimates, check_choices
from .release import Release

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class CalibrationBins:
    """Mean predictions of a class, and its estimated shares, by bins of the predictions.

    Attributes:
      predicted: Mean prediction of each bin, shape (b,), ascending.
      values: Estimated shares of the class, shape (b,); one may be below 0 by noise.
      standard_errors: Their standard errors, shape (b,).
      records: Number of records of each bin, shape (b,), integers.
    """

    predicted: np.ndarray
    values: np.ndarray
    standard_errors: np.ndarray
    records: np.ndarray


class _Area(NamedTuple):
    """An area, with its derivative by each indicator, and the influence of each record on it."""

    value: float
    slopes: np.ndarray
    scores: np.ndarray


def auc(
    predictions: ArrayLike,
    z: ArrayLike | None,
    release: Release | None,
    *,
    curve: str = "roc",
    minus: ArrayLike | None = None,
    of_class: object = None,
    probabilities: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    target: str = "records",
    exact: bool = True,
) -> Estimate:
    """Estimates the area under the ROC or the precision-recall curve on true classes, one class against the others.

    Source: the ROC area is the Mann-Whitney statistic (Hanley, McNeil 1982); average precision is that of
    `sklearn.metrics.average_precision_score`.

    Args:
      predictions: Scores of the class, shape (n,), larger where it is likelier; only their order counts. They must not
        have been trained on these released labels.
      z: Released classes, shape (n,), as released; None with `probabilities`.
      release: The release, of classes; None with `probabilities`.
      curve: `roc`, or `precision_recall`, whose area is the average precision.
      minus: Scores of another model, shape (n,), whose area is taken off; noise that both share cancels.
      of_class: The class, by its name or value; None for the second of two.
      probabilities: Probabilities of the class by a center of classes, shape (n,), in place of released classes. The
        area is the expected one if true classes are drawn from them, and so is its error: what the center does not
        know is in neither.
      weights: Weights of the records, shape (n,), at least 0; None for 1.
      target: `records` or `population`, as for `estimate`.
      exact: As for `estimate`.

    Returns:
      The estimate with its standard error.

    Raises:
      ValueError: If an argument is wrong, the channel has no inverse, or the estimated weight of the class or of the
        others is not above 0.
    """
    check_choices(target)
    if curve not in _CURVES:
        raise ValueError(f"curve must be one of {', '.join(_CURVES)}, not {curve!r}")
    if (probabilities is None) != (z is not None and release is not None) or (z is None) != (release is None):
        raise ValueError("give either z and release, or probabilities")
    if release is None or z is None:
        indicators = numbers(probabilities, "probabilities")
        if not ((indicators >= 0) & (indicators <= 1)).all():
            raise ValueError("probabilities must be from 0 to 1")
        variances = indicators * (1 - indicators)
    else:
        release = release.of_classes(", without classes: areas are of a class")
        indicators = ClassRecords.read(z, release, None, exact).targets()[:, place_of_class(release, of_class)]
        variances = noise_of(indicators)
    shape = indicators.shape
    models = [(1.0, numbers(predictions, "predictions", shape))]
    if minus is not None:
        models.append((-1.0, numbers(minus, "minus", shape)))
    heavy = np.ones(shape) if weights is None else numbers(weights, "weights", shape)
    if not (heavy >= 0).all():
        raise ValueError(f"row {int((heavy < 0).argmax())} of weights is below 0")

    areas = [(sign, _CURVES[curve](indicators, f, heavy)) for sign, f in models]
    slopes = sum((sign * area.slopes for sign, area in areas), np.zeros(shape))
    scores = sum((sign * area.scores for sign, area in areas), np.zeros(shape))
    return linearized(sum(sign * area.value for sign, area in areas), variances, slopes, scores, target)


def group_auc(
    predictions: ArrayLike, z: ArrayLike | None, release: Release | None, groups: ArrayLike, **options: Any
) -> GroupEstimates:
    """Estimates the area under a curve within each group of records.

    Args:
      predictions: As for `auc`.
      z: As for `auc`.
      release: As for `auc`.
      groups: Public group of each record, shape (n,): integers, text or booleans.
      **options: Keywords of `auc`; `minus`, `probabilities` and `weights` are of all records.

    Returns:
      Groups, areas with standard errors, and numbers of records. A group whose estimated weight of the class or of the
      others is not above 0 has NaN.

    Raises:
      ValueError: If an argument is wrong, or the channel has no inverse.
    """
    keys, f = np.asarray(groups), numbers(predictions, "predictions")
    if keys.shape != f.shape:
        raise ValueError(f"groups have shape {keys.shape}, not {f.shape}")
    names, records = np.unique(keys, return_counts=True)
    whole = {name: None if value is None else np.asarray(value) for name, value in _of_records(z, options).items()}
    estimates = []
    for name in names:
        rows = keys == name
        given: dict[str, Any] = {key: None if values is None else values[rows] for key, values in whole.items()}
        try:
            estimates.append(auc(f[rows], given.pop("z"), release, **(options | given)))
        except _NoArea:
            estimates.append(Estimate(math.nan, math.nan))
    values, errors = (np.array(part) for part in zip(*estimates, strict=True))
    return GroupEstimates(names, values, errors, records)


def _of_records(z: ArrayLike | None, options: dict[str, Any]) -> dict[str, ArrayLike | None]:
    return {"z": z, **{name: options[name] for name in ("minus", "probabilities", "weights") if name in options}}


class _NoArea(ValueError):
    """Records of one kind are missing."""


def _roc(h: np.ndarray, f: np.ndarray, w: np.ndarray) -> _Area:
    _, place = np.unique(f, return_inverse=True)
    yes, no = w * h, w * (1 - h)
    of_yes, of_no = np.bincount(place, yes), np.bincount(place, no)
    all_yes, all_no = of_yes.sum(), of_no.sum()
    # Weights of the others below each record, and of the class above it, ties by half, without itself.
    below = (np.cumsum(of_no) - of_no / 2)[place] - no / 2
    above = (all_yes - np.cumsum(of_yes) + of_yes / 2)[place] - yes / 2
    pairs = float(yes @ (all_no - no))
    _check_both(all_yes, all_no, pairs)
    value = float(yes @ below) / pairs
    with_yes, with_no = below - value * (all_no - no), above - value * (all_yes - yes)
    return _Area(value, w * (with_yes - with_no) / pairs, (yes * with_yes + no * with_no) / pairs)


def _average_precision(h: np.ndarray, f: np.ndarray, w: np.ndarray) -> _Area:
    _, place = np.unique(-f, return_inverse=True)
    own = w * h
    found, heavy = np.bincount(place, own), np.bincount(place, w)
    whole = float(found.sum())
    _check_both(whole, float(heavy.sum()) - whole, whole)
    taken, reached = np.cumsum(heavy), np.cumsum(found)
    # Records of weight 0 at the top reach nothing.
    parts = 1 / np.where(taken > 0, taken, np.inf)
    precision = reached * parts
    itself = np.bincount(place, own**2 - w * own) * parts
    value = float(found @ precision - itself.sum()) / whole
    lower = np.cumsum((found * parts)[::-1])[::-1]
    lost = np.cumsum((found * precision * parts)[::-1])[::-1]
    both = (precision + lower)[place] + parts[place] * (w - 2 * own)
    return _Area(value, w * (both - value) / whole, w * (h * (both - value) - lost[place]) / whole)


_CURVES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], _Area]] = {
    "roc": _roc,
    "precision_recall": _average_precision,
}


def _check_both(of_class: float, of_others: float, pairs: float) -> None:
    if not min(of_class, of_others, pairs) > 0:
        raise _NoArea("the estimated weight of the class or of the others is not above 0: there is no area")


def normalized_entropy(
    predictions: ArrayLike,
    z: ArrayLike,
    release: Release,
    *,
    baseline: ArrayLike | None = None,
    target: str = "records",
    exact: bool = True,
) -> Estimate:
    """Estimates the log loss of predictions on true classes, divided by that of a baseline.

    1 minus it is the lift in log loss over the baseline. Source: He et al. 2014, "Practical lessons from predicting
    clicks on ads at Facebook", where the baseline predicts the shares of the classes.

    Args:
      predictions: Probabilities, shape (n, K), or of the second of two classes, shape (n,), as for `estimate`.
      z: Released classes, shape (n,), as released.
      release: The release, of classes.
      baseline: Probabilities of the baseline, likewise; None for the estimated shares, the same for all records.
      target: As for `estimate`.
      exact: As for `estimate`.

    Returns:
      The ratio and its standard error; below 1 if predictions are better.

    Raises:
      ValueError: If an argument is wrong, a probability is 0, the channel has no inverse, an estimated share is not
        above 0, or the estimated log loss of the baseline is not.
    """
    check_choices(target)
    release = release.of_classes(", without classes: entropy is of classes")
    records = ClassRecords.read(z, release, None, exact)
    size, classes = len(records.places), len(release.domain)
    losses = log_loss_of(class_probabilities(predictions, size, classes, "predictions"), "predictions")
    if baseline is None:
        estimated = shares(z, release, exact=exact).values
        if not estimated.min() > 0:
            raise ValueError("an estimated share of a class is not above 0: give a baseline")
        # To first order, the error of the shares does not change their log loss, which is least at the true ones.
        others = np.broadcast_to(-np.log(estimated), losses.shape)
    else:
        others = log_loss_of(class_probabilities(baseline, size, classes, "baseline"), "baseline")
    whole = records.mean(others, target).value
    if not whole > 0:
        raise ValueError("the estimated log loss of the baseline is not above 0")
    value = records.mean(losses, target).value / whole
    return Estimate(value, records.mean((losses - value * others) / whole, target).standard_error)


def calibration_bins(
    predictions: ArrayLike,
    z: ArrayLike,
    release: Release,
    *,
    bins: int = 10,
    of_class: object = None,
    target: str = "records",
    exact: bool = True,
) -> CalibrationBins:
    """Estimates the share of a class in each of some bins of its predicted probability, of about equal numbers.

    Equal predictions share a bin, so there may be fewer.

    Args:
      predictions: Probabilities, as for `estimate`.
      z: Released classes, shape (n,), as released.
      release: The release, of classes.
      bins: Largest number of bins.
      of_class: The class, by its name or value; None for the second of two.
      target: As for `estimate`.
      exact: As for `estimate`.

    Returns:
      Mean predictions, shares with standard errors, and numbers of records.

    Raises:
      ValueError: If an argument is wrong, or the channel has no inverse.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    release = release.of_classes(", without classes: calibration is of a class")
    place = place_of_class(release, of_class)
    f = class_probabilities(predictions, None, len(release.domain), "predictions")[:, place]
    cuts = np.unique(np.quantile(f, np.arange(1, bins) / bins)) if len(f) else np.zeros(0)
    _, of_record = np.unique(np.searchsorted(cuts, f, side="right"), return_inverse=True)
    found = shares(z, release, groups=of_record, target=target, exact=exact)
    means = np.bincount(of_record, f) / found.records
    return CalibrationBins(means, found.values[:, place], found.standard_errors[:, place], found.records)
