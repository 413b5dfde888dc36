"""Least squares line of time against size: the fixed cost of a job and its cost per record."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """Line: seconds = fixed_seconds + seconds_per_record * records.

    Attributes:
      fixed_seconds: Intercept, in seconds.
      seconds_per_record: Slope.
      r_squared: Share of the variance of the seconds that the line explains, at most 1.
    """

    fixed_seconds: float
    seconds_per_record: float
    r_squared: float


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Line:
    """Fits a line by least squares.

    Args:
      sizes: Numbers of records.
      seconds: Time at each size.

    Returns:
      The line.

    Raises:
      ValueError: If there are fewer than two different sizes.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"a line needs at least two sizes, not {sorted(set(sizes))}")
    slope, fixed = statistics.linear_regression(sizes, seconds)
    mean = statistics.fmean(seconds)
    rest = sum((y - fixed - slope * x) ** 2 for x, y in zip(sizes, seconds, strict=True))
    total = sum((y - mean) ** 2 for y in seconds)
    return Line(fixed, slope, 1.0 - rest / total if total else 1.0)
