"""Channel of released labels: the probabilities of outputs for each label, and weights that undo them.

For a function g of the label, weights h of the outputs with sum_m P[y, m] h[m] = g(y) for every label y make h(output)
an unbiased estimate of g(y). Of all such weights, those computed here have the least variance under the prior. With A =
diag(p)^1/2 P diag(q)^-1/2, for the prior p and the distribution q = p P of the outputs, they are

    h = diag(q)^-1/2 A' (A A')^-1 diag(p)^1/2 g.

They exist for every g if the rows of P are linearly independent; then they are exact for every label, whatever the
prior is. Otherwise A A' + 1/n takes the place of A A'. That minimizes the squared bias under the prior plus the
variance of the mean of n records.

Residuals around a center are clipped to the range of the randomizer, and then they cannot be told from its ends. What
clipping changes is known on average, from the noised histogram of the residuals: in all, and for those at each end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Weights count as exact if their bias, as a share of the range of what they estimate, is at most the first in the mean
# square under the prior and the second for every label. Some mechanisms of many labels have fewer outputs, and draw
# labels that lie between two of their points: the square of such a label is off by about 1e-6 and 1e-4.
_MEAN_TOLERANCE, _TOLERANCE = 2e-5, 3e-3
# Squared singular values of A below this are taken as 0: their weights would consist of rounding errors.
_SMALLEST = 1e-10
# Share of the prior that is spread over all labels, so that none has a weight of 0.
_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class Channel:
    """Probabilities of the outputs of a randomizer for each of its labels.

    Attributes:
      labels: Labels of the randomizer, residuals if there is a center; shape (k,), float64, ascending.
      outputs: Outputs, shape (m,), float64, ascending.
      probabilities: Shape (k, m), float64; rows add up to 1.
      prior: Weights of the labels, shape (k,), float64, >= 0, with sum 1.
      whole: Labels before they are clipped to the range of the randomizer, shape (R,), float64, ascending, those of the
        randomizer among them, and their weights, shape (R,); None if there is no clipping.
    """

    labels: np.ndarray
    outputs: np.ndarray
    probabilities: np.ndarray
    prior: np.ndarray
    whole: tuple[np.ndarray, np.ndarray] | None = None

    @cached_property
    def beyond(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Labels that are clipped, the ends that they are clipped to, and their weights; shape (t,) each."""
        if self.whole is None:
            return np.empty(0), np.empty(0), np.empty(0)
        values, weights = self.whole
        ends = np.clip(values, self.labels[0], self.labels[-1])
        moved = (ends != values) & (weights > 0)
        return values[moved], ends[moved], weights[moved]

    def excess(self, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Mean of g(label) - g(clipped label) for the labels that are clipped to each label, shape (k,).

        `values` and `ends` are g of `beyond`, shape (t,); only the two ends have an excess other than 0.
        """
        _, at, shares = self.beyond
        places = np.searchsorted(self.labels, at)
        sums = np.bincount(places, shares * (values - ends), len(self.labels))
        # The prior has the weight of all labels that are clipped to an end, and of the end itself.
        return np.where(self.prior > 0, sums / np.where(self.prior > 0, self.prior, 1.0), 0.0)

    @cached_property
    def posterior(self) -> np.ndarray:
        """Probability of each label given an output, under the prior; shape (m, k)."""
        joint = self.probabilities.T * self._weights
        return joint / joint.sum(axis=1, keepdims=True)

    def weights(self, values: np.ndarray, records: int | None = None) -> np.ndarray:
        """Computes weights of the outputs that estimate functions of the label.

        `values` has one value for each label, shape (k,) or, for r functions, (k, r); the result has shape (m,) or
        (m, r). `records` is the number n that bias is weighed against variance for; None for no bias where possible.
        """
        scale = np.sqrt(self._weights)
        values = (values.T * scale).T
        system, (roots, vectors) = self._whitened, self._roots
        known = roots > _SMALLEST
        if records is None:
            inverse = np.where(known, 1 / np.where(known, roots, 1.0), 0.0)
        else:
            inverse = 1 / (np.maximum(roots, 0.0) + 1 / records)

        def solved(right: np.ndarray) -> np.ndarray:
            return vectors @ ((vectors.T @ right).T * inverse).T

        found = solved(values)
        if records is None:
            # A step of refinement, because A A' squares the condition of A.
            found = found + solved(values - system @ (system.T @ found))
        return ((system.T @ found).T / np.sqrt(self._weights @ self.probabilities)).T

    def bias(self, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Expected weight minus value for each label, with the shape of `values`."""
        return self.probabilities @ weights - values

    def exact(self, weights: np.ndarray, values: np.ndarray) -> bool:
        """True if weights, shape (m,) or (m, r), have no bias but a negligible one; `values` as for `weights`."""
        span = np.maximum(np.ptp(values, axis=0), np.abs(values).max(axis=0) * 1e-3)
        bias = self.bias(weights, values)
        mean = np.sqrt(self._weights @ bias**2) <= _MEAN_TOLERANCE * span
        return bool(np.all(mean & (np.abs(bias).max(axis=0) <= _TOLERANCE * span)))

    @cached_property
    def table(self) -> np.ndarray:
        """Weights of the outputs for the indicator of each label, shape (m, k)."""
        return self.weights(np.eye(len(self.labels)))

    @cached_property
    def exact_distances(self) -> bool:
        """True if `table` gives exact weights for distances to a label, at nine labels."""
        points = self.labels[np.linspace(0, len(self.labels) - 1, 9).astype(int)]
        distances = np.abs(self.labels[:, None] - points)
        return self.exact(self.table @ distances, distances)

    @cached_property
    def line(self) -> tuple[float, float] | None:
        """Intercept and slope of the mean output on the label under the prior; None if it does not rise."""
        return self.line_of(self.outputs)

    def line_of(self, weights: np.ndarray) -> tuple[float, float] | None:
        """The same line for weights of the outputs, shape (m,), in place of the outputs."""
        means, mean = self.probabilities @ weights, float(self.prior @ self.labels)
        spread = self.prior * (self.labels - mean)
        slope = float(spread @ means) / max(float(spread @ self.labels), 1e-300)
        return (float(self.prior @ means) - slope * mean, slope) if slope > 0 else None

    def covariance(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Covariance of two weights of the output, shape (m,) each, given each label; shape (k,)."""
        chances = self.probabilities
        means = chances @ first, chances @ second
        return chances @ (first * second) - means[0] * means[1]

    @cached_property
    def _weights(self) -> np.ndarray:
        return (1 - _SPREAD) * self.prior + _SPREAD / len(self.prior)

    @cached_property
    def _whitened(self) -> np.ndarray:
        q = self._weights @ self.probabilities
        return np.sqrt(self._weights)[:, None] * self.probabilities / np.sqrt(q)

    @cached_property
    def _roots(self) -> tuple[np.ndarray, np.ndarray]:
        return np.linalg.eigh(self._whitened @ self._whitened.T)

    @property
    def full_rank(self) -> bool:
        """True if the rows of the probabilities are linearly independent."""
        return bool(self._roots[0][0] > _SMALLEST)
