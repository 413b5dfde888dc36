"""Share of a function of the label that features explain, given the share of the label's own variance that they do.

A model of the features learns E[g(y) | x] of a function g of the label, such as the bias of a mechanism. How much of
the variance of g(y) that is depends on g: features that tell large labels from small ones do not tell adjacent labels
apart. Let t be the normal score of the label: y = F^-1(Phi(t)) for its distribution function F. If t and its prediction
from the features are jointly normal with squared correlation rho, then by Mehler's formula

    Var E[g(y) | x] = sum over j >= 1 of rho^j c_j(g)^2,

where c_j(g) = E[g(y) He_j(t)] / sqrt(j!) are the Hermite coefficients of g (Lancaster 1957). The sum is at most rho
Var(g(y)), and much less for a g that rises and falls. rho is chosen so that the sum for g(y) = y is the given share.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from ..core.reproducible import dot, exp

# Hermite coefficients that are computed; the variance that they leave out is counted with the factor of the last.
_TERMS = 64
_BISECTIONS = 50


class ExplainedShare:
    """Variance of E[g(y) | x] for functions g of a label y, under the model of joint normal scores."""

    def __init__(self, labels: np.ndarray, weights: np.ndarray, explained: float):
        """Finds rho for a share of the label variance.

        Labels, ascending, and their probabilities have shape (k,). Raises ValueError if the share is not in [0, 1].
        """
        if not 0 <= explained <= 1:
            raise ValueError(f"explained must be between 0 and 1, not {explained:g}")
        self._weights = weights
        self._basis = _hermite_integrals(weights)
        own = self._parts(labels)
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if _combined(own, middle) >= explained * sum(own) else (middle, high)
        self._correlation = 0.0 if explained == 0 else high

    def of(self, values: np.ndarray) -> float:
        """Computes Var E[g(y) | x] from g of each label, shape (k,), in squared units of g."""
        return _combined(self._parts(values), self._correlation)

    def _parts(self, values: np.ndarray) -> list[float]:
        """Squared Hermite coefficients 1 to _TERMS, and the variance that they leave out."""
        centred = values - dot(self._weights, values)
        squares = [dot(row, centred) ** 2 for row in self._basis]
        return [*squares, max(dot(self._weights, centred**2) - sum(squares), 0.0)]


def _combined(parts: list[float], correlation: float) -> float:
    powers = [correlation**j for j in range(1, len(parts))]
    return sum(power * part for power, part in zip([*powers, powers[-1]], parts, strict=True))


def _hermite_integrals(weights: np.ndarray) -> np.ndarray:
    """Integrals of He_j(t) / sqrt(j!) over the normal scores of each label, shape (_TERMS, k).

    The antiderivative of He_j(t) phi(t) is -He_(j-1)(t) phi(t), which is 0 at both infinite ends.
    """
    bounds = ndtri(np.minimum(np.concatenate([[0.0], np.cumsum(weights)]), 1.0))
    finite = np.isfinite(bounds)
    scores = np.where(finite, bounds, 0.0)
    density = np.where(finite, exp(-(scores**2) / 2) / math.sqrt(2 * math.pi), 0.0)
    rows, last, before = [], np.ones_like(scores), np.zeros_like(scores)
    for j in range(1, _TERMS + 1):
        edges = last * density
        rows.append((edges[:-1] - edges[1:]) / math.sqrt(j))
        last, before = (scores * last - math.sqrt(j - 1) * before) / math.sqrt(j), last
    return np.array(rows)
