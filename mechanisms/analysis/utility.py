"""Utility of randomized labels: their error for every label, and their effective sample size for training.

Everything is computed from the randomizer and a released prior, so it may be published. The effective sample size per
label is the efficiency of a noisy response in least squares: the ratio of the variances of an estimated mean with true
labels and with equally many randomized labels. Unbiased labels keep the best predictor of squared and Poisson loss
(Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label DP", Theorem 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .quality import variances

# A bias below this fraction of the label range comes from the rounding to integer weights.
_BIAS_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Utility:
    """Moments of the output M(y), for every label y and for a label drawn from the prior, in units of the label.

    Attributes:
      labels: Shape (k,); the label domain.
      weights: Shape (k,); the prior's weights.
      bias: Shape (k,); E[M(y)] - y.
      deviation: Shape (k,); standard deviation of M(y).
    """

    labels: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    deviation: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Root mean squared error of M(y) for every label, shape (k,): error^2 = bias^2 + deviation^2."""
        return np.hypot(self.bias, self.deviation)

    @property
    def unbiased(self) -> bool:
        """True if no label has a bias above 1e-9 of the label range, which integer rounding may leave."""
        return float(np.abs(self.bias).max()) <= _BIAS_TOLERANCE * float(self.labels[-1] - self.labels[0])

    @property
    def noise(self) -> float:
        """Mean of the variance of M(y) over the prior."""
        return float(self.weights @ self.deviation**2)

    @property
    def squared_error(self) -> float:
        """Mean of (M(y) - y)^2 over the prior."""
        return float(self.weights @ self.error**2)

    @property
    def variance(self) -> float:
        """Variance of the label under the prior."""
        return _covariance(self.weights, self.labels, self.labels)

    @cached_property
    def slope(self) -> float:
        """Slope b of the line a + b y closest to E[M(y)] under the prior.

        1 without bias, 0 if the mean output does not depend on the label or the prior has a single label.
        """
        variance = self.variance
        return _covariance(self.weights, self.labels, self.labels + self.bias) / variance if variance > 0 else 0.0

    @cached_property
    def intercept(self) -> float:
        """Intercept a of the line a + b y closest to E[M(y)] under the prior."""
        return float(self.weights @ (self.labels + self.bias) - self.slope * (self.weights @ self.labels))

    @property
    def remaining_bias(self) -> np.ndarray:
        """Bias of (M(y) - a) / b, shape (k,), which remains after correction by the line.

        Raises:
          ValueError: If the slope is 0.
        """
        if self.slope == 0:
            raise ValueError("the outputs cannot be debiased, because their mean does not depend on the label")
        return (self.labels + self.bias - self.intercept) / self.slope - self.labels

    def efficiency(self, explained: float = 0.0) -> float:
        """Computes the effective sample size per randomized label, after correction of the bias by the line.

        It is the ratio of the variances of least squares coefficients with true and with randomized labels. Without
        features it is the squared correlation of M(y) and y.

        Args:
          explained: Share of the label variance that the features explain, in [0, 1).

        Returns:
          Number of true labels that one randomized label is equivalent to, in [0, 1]; 0 if the prior has a single
          label.

        Raises:
          ValueError: If `explained` is out of range.
        """
        if not 0 <= explained < 1:
            raise ValueError(f"the explained share must be at least 0 and below 1, not {explained:g}")
        if self.slope == 0:
            return 0.0
        means = self.labels + self.bias
        added = (self.noise + _covariance(self.weights, means, means)) / self.slope**2 - self.variance
        left = (1 - explained) * self.variance
        return left / (left + max(added, 0.0))


def utility(randomizer: Randomizer, prior: Prior) -> Utility:
    """Computes the moments of a randomizer under a prior.

    Args:
      randomizer: The randomizer.
      prior: Prior over the same label domain.

    Returns:
      The utility of its outputs.

    Raises:
      ValueError: If the prior is over another domain.
    """
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the prior and the randomizer have different label domains")
    return Utility(randomizer.labels, prior.weights, randomizer.bias(), np.sqrt(variances(randomizer)))


def _covariance(weights: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    return float(weights @ ((first - weights @ first) * (second - weights @ second)))
