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


def top_weights(predictions: np.ndarray, fraction: float) -> np.ndarray:
    """Weights of the mean over the records of the largest predictions, for lift.

    Args:
      predictions: Shape (n,).
      fraction: Share of the records, in (0, 1). Of equal predictions, those of earlier records are taken.

    Returns:
      Weights that add up to 1, shape (n,).

    Raises:
      ValueError: If the fraction is out of range.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be above 0 and below 1, not {fraction!r}")
    count = max(round(fraction * len(predictions)), 1)
    weights = np.zeros(len(predictions))
    weights[np.argsort(-predictions, kind="stable")[:count]] = 1 / count
    return weights
