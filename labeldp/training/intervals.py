"""Estimated metric with its standard error, and what that error is of: the noise alone, or the sample as well."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

TARGETS = ("records", "population")
CLIPPINGS = ("ends", "average")


class Estimate(NamedTuple):
    """Estimated metric and its standard error.

    Attributes:
      value: The estimate, in the unit of the metric; a squared error may come out negative by noise.
      standard_error: Its standard error, in the same unit.
    """

    value: float
    standard_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Normal confidence interval.

        Args:
          level: Nominal coverage, in (0, 1).

        Returns:
          Lower and upper end.

        Raises:
          ValueError: If the level is out of range.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be above 0 and below 1, not {level!r}")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        return self.value - reach, self.value + reach


@dataclass(frozen=True, eq=False)
class GroupEstimates:
    """Estimates of a metric, or of the mean of the true labels, for groups of records.

    Attributes:
      groups: Values of the groups, shape (g,), ascending.
      values: Shape (g,), float64; NaN for a group without an estimate, such as an area of one kind of records.
      standard_errors: Shape (g,), float64.
      records: Number of records of each group, shape (g,), integers.
    """

    groups: np.ndarray
    values: np.ndarray
    standard_errors: np.ndarray
    records: np.ndarray


def check_choices(target: str, clipping: str = CLIPPINGS[0]) -> None:
    """Raises ValueError for an unknown target or correction of clipped residuals."""
    for name, value, known in (("target", target, TARGETS), ("clipping", clipping, CLIPPINGS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")


class Ratio(NamedTuple):
    """Metric that is about linear in estimated labels: value, coefficients of the labels, and centered scores."""

    value: float
    coefficients: np.ndarray
    scores: np.ndarray


def calibration_slope(predictions: np.ndarray, labels: np.ndarray) -> Ratio:
    """Slope of the least squares line of labels on predictions, shape (n,). Raises ValueError if these are equal."""
    spread = predictions - predictions.mean()
    if not np.any(spread):
        raise ValueError("all predictions are equal: a calibration slope needs different ones")
    coefficients = spread / (spread @ spread)
    slope = float(coefficients @ labels)
    return Ratio(slope, coefficients, coefficients * (labels - labels.mean() - slope * spread))


def lift(predictions: np.ndarray, labels: np.ndarray, fraction: float, what: str) -> Ratio:
    """Mean of the labels of the largest predictions, divided by the mean of all, which messages name by `what`.

    `fraction` is the share of the records; of equal predictions, those of earlier records are taken. Raises ValueError
    if it is not in (0, 1), or the mean is not above 0.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be above 0 and below 1, not {fraction!r}")
    size = len(predictions)
    count = max(round(fraction * size), 1)
    top = np.zeros(size)
    top[np.argsort(-predictions, kind="stable")[:count]] = 1 / count
    mean, best = float(labels.mean()), float(top @ labels)
    if not mean > 0:
        raise ValueError(f"the estimated {what} is not above 0: lift is not defined")
    value = best / mean
    scores = (top * (labels - best) - value * (labels - mean) / size) / mean
    return Ratio(value, (top - value / size) / mean, scores)
