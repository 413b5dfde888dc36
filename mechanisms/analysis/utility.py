"""What a randomized label is still good for: its error for every label, and its worth to whoever trains on it.

Everything follows from the randomizer and a prior that was released, so it may be published. The worth is the
efficiency of a noisy response in least squares: the ratio of the variances that an estimate of a mean has with true
labels and with randomized ones, as many of each. That unbiased labels keep the best predictor of squared and Poisson
loss is Theorem 5 of Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label DP".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .quality import variances

_NO_BIAS = 1e-9  # of the label range: what rounding to integer weights leaves


@dataclass(frozen=True, eq=False)
class Utility:
    """Moments of the output M(y), for every label y and for a label drawn from the prior. In units of the label.

    labels, weights: (k,) the prior's. bias: (k,) E[M(y)] - y. deviation: (k,) standard deviation of M(y).
    """

    labels: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    deviation: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """(k,) the root mean squared error of M(y): error^2 = bias^2 + deviation^2."""
        return np.hypot(self.bias, self.deviation)

    @property
    def unbiased(self) -> bool:
        """Whether no label has a bias above what rounding leaves, 1e-9 of the label range."""
        return float(np.abs(self.bias).max()) <= _NO_BIAS * float(self.labels[-1] - self.labels[0])

    @property
    def noise(self) -> float:
        """The mean over the prior of the variance of M(y)."""
        return float(self.weights @ self.deviation**2)

    @property
    def squared_error(self) -> float:
        """The mean over the prior of (M(y) - y)^2."""
        return float(self.weights @ self.error**2)

    @property
    def variance(self) -> float:
        """The variance of a label under the prior."""
        return _covariance(self.weights, self.labels, self.labels)

    @cached_property
    def slope(self) -> float:
        """b of the line a + b y nearest to E[M(y)] under the prior: 1 without bias, 0 when outputs tell nothing.

        0 also when the prior holds a single label.
        """
        variance = self.variance
        return _covariance(self.weights, self.labels, self.labels + self.bias) / variance if variance > 0 else 0.0

    @cached_property
    def intercept(self) -> float:
        """a of the line a + b y nearest to E[M(y)] under the prior."""
        return float(self.weights @ (self.labels + self.bias) - self.slope * (self.weights @ self.labels))

    @property
    def remaining_bias(self) -> np.ndarray:
        """(k,) the bias of (M(y) - a) / b: what the line cannot correct. Raises ValueError when the slope is 0."""
        if self.slope == 0:
            raise ValueError("outputs that do not follow the label cannot be debiased")
        return (self.labels + self.bias - self.intercept) / self.slope - self.labels

    def worth(self, explained: float = 0.0) -> float:
        """How many true labels one randomized label is worth, in [0, 1], once debiased by the line.

        The ratio of the variances of least squares coefficients with true and with randomized labels, where the
        features explain that share, in [0, 1), of the labels' variance; for 0, the squared correlation of M(y) and y.
        0 when the prior holds a single label. Raises ValueError for a share outside [0, 1).
        """
        if not 0 <= explained < 1:
            raise ValueError(f"the share explained must be at least 0 and below 1, not {explained:g}")
        if self.slope == 0:
            return 0.0
        means = self.labels + self.bias
        added = (self.noise + _covariance(self.weights, means, means)) / self.slope**2 - self.variance
        left = (1 - explained) * self.variance
        return left / (left + max(added, 0.0))


def utility(randomizer: Randomizer, prior: Prior) -> Utility:
    """The moments of a randomizer under a prior over its labels.

    Raises ValueError when the prior is over another domain.
    """
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the prior and the randomizer have different label domains")
    return Utility(randomizer.labels, prior.weights, randomizer.bias(), np.sqrt(variances(randomizer)))


def _covariance(weights: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    return float(weights @ ((first - weights @ first) * (second - weights @ second)))
