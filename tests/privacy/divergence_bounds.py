"""Lower bounds on epsilon from samples of two distributions, by their Renyi divergence.

Renyi divergence D_a(P || Q), of order a > 1, has a variational form (Birrell, Dupuis, Katsoulakis, Rey-Bellet, Wang
2021, "Variational Representations and Neural Network Estimation of Renyi Divergences"): for every bounded
function h,

    D_a(P || Q) >= a / (a - 1) log E_P[exp((a - 1) h)] - log E_Q[exp(a h)],

with equality for h = log dP/dQ. A discriminator gives h, a step function of its scores. On fresh samples, the means
are sums of tail probabilities with Clopper-Pearson intervals, so the bound holds with a stated probability. Testers of
this kind are those of Kong, Munoz Medina, Ribero, Syed 2024, "DP-Auditorium".

Under epsilon-DP, D_a is at most that of randomized response, of which every such pair is a post-processing (Kairouz,
Oh, Viswanath 2015, "The Composition Theorem for Differential Privacy"). So a bound on D_a is one on epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from labeldp.mechanisms.core.budget import MAX_EPSILON

from tests.privacy.sampling_bounds import clopper_pearson

_BISECTIONS = 60


def largest_renyi_divergence(order: float, epsilon: float) -> float:
    """Largest Renyi divergence of two distributions within epsilon of each other: that of randomized response.

    The order is above 1, and `epsilon` at least 0.
    """
    # log(p^a q^(1 - a) + q^a p^(1 - a)) / (a - 1) for p = e^epsilon / (1 + e^epsilon), q = 1 - p.
    terms = np.logaddexp(order * epsilon, (1 - order) * epsilon) - np.logaddexp(0.0, epsilon)
    return max(float(terms) / (order - 1), 0.0)


def epsilon_of_renyi(order: float, divergence: float) -> float:
    """Smallest epsilon that allows a Renyi divergence; 0 for one that is not positive, at most MAX_EPSILON."""
    low, high = 0.0, MAX_EPSILON
    if divergence <= 0:
        return 0.0
    if largest_renyi_divergence(order, high) <= divergence:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if largest_renyi_divergence(order, middle) <= divergence:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class LogRatios:
    """Log-ratios h of two distributions P and Q, one for each of b bins, ascending; shape (b,), float64."""

    values: np.ndarray

    @classmethod
    def of_counts(cls, first: np.ndarray, second: np.ndarray, most: float) -> tuple[LogRatios, np.ndarray]:
        """Estimates log-ratios from counts of draws from P and Q by bin, shape (b,), clipped to [-most, most].

        Returns them with the order of the bins in which they ascend.
        """
        ratios = np.log((first + 0.5) / (first.sum() + 1)) - np.log((second + 0.5) / (second.sum() + 1))
        order = np.argsort(ratios, kind="stable")
        return cls(np.clip(ratios[order], -most, most)), order

    def mean_bounds(self, counts: np.ndarray, factor: float, alpha: float) -> tuple[float, float]:
        """Lower and upper bound on the mean of exp(factor h), for a factor > 0; both hold with probability 1 - alpha.

        `counts` are those of the bins in fresh draws, shape (b,), integers. The mean is a sum over the bins of the
        probability of this bin or a later one, each of which has a Clopper-Pearson interval.
        """
        draws, steps = int(counts.sum()), np.diff(np.exp(factor * self.values))
        later = np.cumsum(counts[::-1])[::-1][1:]
        low = high = math.exp(factor * float(self.values[0]))
        for count, step in zip(later.tolist(), steps.tolist(), strict=True):
            below, above = clopper_pearson(count, draws, alpha / (2 * len(steps)))
            low, high = low + step * below, high + step * above
        return low, high

    def renyi_at_least(self, first: np.ndarray, second: np.ndarray, order: float, alpha: float) -> float:
        """Lower bound on D_a(P || Q), which may be negative.

        Args:
          first: Counts of the bins in draws from P that the log-ratios were estimated without, shape (b,), integers.
          second: The same in draws from Q.
          order: Order a > 1.
          alpha: Probability that the bound exceeds the divergence.

        Returns:
          The bound.
        """
        likely, _ = self.mean_bounds(first, order - 1, alpha / 2)
        _, unlikely = self.mean_bounds(second, order, alpha / 2)
        return order / (order - 1) * math.log(likely) - math.log(unlikely)
