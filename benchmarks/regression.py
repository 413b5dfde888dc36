"""Time against size as a straight line: what a job costs at all, and what each record adds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """seconds = fixed_seconds + seconds_per_record * records. r_squared: the share of the variance it explains."""

    fixed_seconds: float
    seconds_per_record: float
    r_squared: float


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Line:
    """The line of least squares. Raises ValueError for fewer than two different sizes."""
    if len(set(sizes)) < 2:
        raise ValueError(f"a line needs two sizes at least, not {sorted(set(sizes))}")
    slope, fixed = statistics.linear_regression(sizes, seconds)
    mean = statistics.fmean(seconds)
    rest = sum((y - fixed - slope * x) ** 2 for x, y in zip(sizes, seconds, strict=True))
    total = sum((y - mean) ** 2 for y in seconds)
    return Line(fixed, slope, 1.0 - rest / total if total else 1.0)
