"""Numbers that were released with noise, as everything that lists or attacks them asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .noisy_histogram import noisy_counts
from .sum_zero_laplace import sum_zero_variance


@dataclass(frozen=True)
class NoisedPart:
    """Vectors of integers that were released with discrete Laplace noise.

    Attributes:
      name: Short name, for lists.
      what: What the numbers are, to follow "noise on".
      epsilon: Budget that was spent on it, for a record.
      moved: The most that a changed label moves from one number to another: half of the sensitivity in L1 norm.
      rows, width: Number of vectors, and of the numbers of each one.
      add: Function (raw vectors, shape (any number of rows, width); epsilon; noise key) -> noised vectors.
      sum_zero: Whether the noise of each vector has the sum 0 (`sum_zero_laplace`), which needs half of the scale.
      unit: Number that stands for 1.
    """

    name: str
    what: str
    epsilon: float
    moved: Fraction
    rows: int
    width: int
    add: Callable[[np.ndarray, float, bytes], Any]
    sum_zero: bool = False
    unit: int = 1

    @classmethod
    def histogram(cls, of: str, epsilon: float, width: int, name: str = "histogram") -> NoisedPart:
        """The histogram of labels, or of what stands for them."""
        return cls(name, f"the histogram of {of}", epsilon, Fraction(1), 1, width, _noisy_histogram)

    @property
    def noise(self) -> str:
        """Name of the noise."""
        return f"discrete Laplace noise{' of sum 0' if self.sum_zero else ''}"

    @property
    def numbers(self) -> int:
        """Number of released numbers."""
        return self.rows * self.width

    @property
    def scale(self) -> Fraction:
        """Scale of the noise, in units."""
        return self.moved * (1 if self.sum_zero else 2) / Fraction(self.epsilon) / self.unit

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of one number, in units."""
        if self.sum_zero:
            return math.sqrt(sum_zero_variance(self.scale, self.width))
        # That of continuous noise, which is a bound.
        return math.sqrt(2) * float(self.scale)


def _noisy_histogram(raw: np.ndarray, epsilon: float, noise_key: bytes) -> np.ndarray:
    return noisy_counts(raw[0], epsilon, noise_key)[None]
