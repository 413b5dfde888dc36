"""Gaussian mechanism: the discrete Gaussian of least variance for (epsilon, delta), certified exactly.

Sources: Canonne, Kamath, Steinke 2020 for the discrete Gaussian; Balle, Wang 2018, Theorem 8, for calibrating sigma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, pi, sqrt
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.certificate import hockey_stick
from ..core.integer_weights import BITS, TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import exp, expm1
from .output_grid import OutputGrid, make_output_grid, single_label_randomizer

_LEAST_DELTA, _LARGEST_DELTA = 1e-12, 0.5
# End of an unclipped grid beyond the label range, in standard deviations: less than 2^-40 of a normal distribution
# lies further out.
_GAUSSIAN_TAIL = 7.1
# Above this sigma, in steps, the normalizer is computed as an integral.
_WIDE = 1000.0
# Relative accuracy of sigma.
_ACCURACY = 1e-10


@dataclass(frozen=True)
class Gaussian:
    """Adds discrete Gaussian noise: z steps with probability proportional to exp(-z^2 / (2 sigma^2)).

    This is (epsilon, delta)-label DP, not pure: sigma is the least for which the exact hockey-stick divergence of the
    integer weights is at most delta.

    Attributes:
      name: Name on the command line and in mechanism files.
      delta: From 1e-12 to 0.5. It has no default, so that pure DP is given up only on request.
      step: As for `Laplace`.
      clip: As for `Laplace`.
    """

    name: ClassVar[str] = "gaussian"
    delta: float = 0.0
    step: float | None = None
    clip: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError if delta is missing or out of range."""
        if self.delta == 0:
            raise ValueError("gaussian is not pure label DP: it needs a `delta`")
        if not _LEAST_DELTA <= self.delta <= _LARGEST_DELTA:
            raise ValueError(f"delta must be between {_LEAST_DELTA:g} and {_LARGEST_DELTA:g}, not {self.delta:g}")

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Searches for sigma, which the parameters state in units of the label. It ignores the prior's weights.

        Cost O(k m) for m outputs, and up to O(k^2 m) to prove delta. `epsilon` is that of the (epsilon, delta) budget.
        Raises ValueError if epsilon or the step is out of range, or there are too many outputs.
        """
        check_epsilon(epsilon)
        parameters = {"clip": self.clip, "delta": self.delta}
        if len(prior.labels) == 1:
            return single_label_randomizer(self.name, prior, epsilon, parameters, self.delta)
        margin = 0.0 if self.clip else _GAUSSIAN_TAIL * _widest(epsilon, self.delta)
        grid = make_output_grid(prior.labels, self.step, margin)
        sigma, weights = _gaussian(grid, epsilon, self.delta)
        parameters |= {"step": grid.step, "sigma": sigma * grid.step}
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, parameters, delta=self.delta)


def _widest(epsilon: float, delta: float) -> float:
    """Returns a sufficient sigma for (epsilon, delta), per unit of sensitivity: slightly above the continuous one.

    Balle, Wang 2018, Theorem 8: the delta of the continuous mechanism is
    Phi(1/(2 sigma) - epsilon sigma) - E Phi(-1/(2 sigma) - epsilon sigma), E = exp(epsilon). With phi the standard
    normal density and c = epsilon sigma - 1/(2 sigma), this is the integral of phi(c + u) (1 - e^(-u/sigma)) over
    u > 0. Simpson's rule in steps of 1/64 is far more accurate than the 1 % that is added, and has no cancellation.
    """

    def excess(sigma: float) -> float:
        c = epsilon * sigma - 1 / (2 * sigma)
        count = 2 * ceil(32 * (12 + max(-c, 0.0)))
        u = np.arange(count + 1) / 64
        values = exp(-((c + u) ** 2) / 2) * -expm1(-u / sigma)
        values[1:-1:2] *= 4
        values[2:-1:2] *= 2
        return float(values.sum()) / (3 * 64 * sqrt(2 * pi)) - delta

    low = high = 1.0
    while excess(high) > 0:
        high *= 2
    while excess(low) <= 0:
        low /= 2
    return 1.01 * _least(excess, low, high, 1e-3)


def _least(excess: Callable[[float], float], low: float, high: float, accuracy: float = _ACCURACY) -> float:
    """Finds by bisection where `excess`, positive at low, becomes <= 0; returns the end where it is <= 0."""
    while high > low * (1 + accuracy):
        middle = (low + high) / 2
        if excess(middle) > 0:
            low = middle
        else:
            high = middle
    return high


def _gaussian(grid: OutputGrid, epsilon: float, delta: float) -> tuple[float, np.ndarray]:
    """Finds the least sigma, in steps, and its integer weights.

    A search in floats, over the two labels furthest apart, locates sigma; the exact divergence of the integer weights
    of all labels decides.
    """
    ratio = float(exp(epsilon))

    def ends_excess(sigma: float) -> float:
        noise, beyond = _gaussian_noise(grid, sigma)
        first, last = grid.end_rows(noise, beyond)
        return float(np.maximum(first - ratio * last, 0.0).sum()) - delta

    def excess(sigma: float) -> Fraction:
        return hockey_stick(gaussian_weights(grid, sigma), epsilon, BITS) - Fraction(delta)

    high = grid.steps * _widest(epsilon, delta)
    while ends_excess(high) > 0:
        high *= 2
    low = high / 2
    while ends_excess(low) <= 0:
        low /= 2
    sigma = _least(ends_excess, low, high)
    if excess(sigma) > 0:
        low, growth = sigma, _ACCURACY
        while excess(sigma * (1 + growth)) > 0:
            low, growth = sigma * (1 + growth), 2 * growth
        sigma = _least(lambda middle: 1.0 if excess(middle) > 0 else 0.0, low, sigma * (1 + growth))
    return sigma, gaussian_weights(grid, sigma)


def _gaussian_noise(grid: OutputGrid, sigma: float) -> tuple[np.ndarray, float]:
    """Returns the probability of z steps for z = 0..reach, and that of more steps, on one side."""
    densities = exp(-((np.arange(grid.reach + 1) / sigma) ** 2) / 2)
    if sigma > _WIDE:
        # The sum over all integers equals the integral to a relative 2 exp(-2 pi^2 sigma^2) (Poisson summation).
        noise = densities / (sqrt(2 * pi) * sigma)
        return noise, max(0.5 - noise[1:].sum() - noise[0] / 2, 0.0)
    beyond = exp(-((np.arange(grid.reach + 1, ceil(40 * sigma) + 1) / sigma) ** 2) / 2).sum()
    total = densities[0] + 2 * (densities[1:].sum() + beyond)
    return densities / total, float(beyond / total)


def gaussian_weights(grid: OutputGrid, sigma: float) -> np.ndarray:
    """Rounds the probabilities to integers that sum to 2^62; the likeliest output takes the remainder.

    `sigma` is in steps; weights have shape (k, m), uint64.
    """
    rows = grid.rows(*_gaussian_noise(grid, sigma))
    rows /= rows.sum(axis=1, keepdims=True)
    weights = np.rint(rows * float(TOTAL)).astype(np.int64)
    likeliest = weights.argmax(axis=1)
    # A row's sum differs from 2^62 by a few units per output, so it fits 63 bits.
    weights[np.arange(len(weights)), likeliest] += TOTAL - weights.sum(axis=1)
    return weights.astype(np.uint64)
