"""Noise added to the label: Laplace, staircase, exponential and Gaussian, on a finite lattice with integer weights.

Sources: Ghosh, Roughgarden, Sundararajan 2009 for the discrete Laplace; Geng, Viswanath 2014, "The Optimal Noise-Adding
Mechanism in Differential Privacy", for the staircase; Ghazi et al. 2022, Appendices D and F, for these as baselines,
clipped to the label range or not, and for the exponential mechanism; Balle, Wang 2018 and Canonne, Kamath, Steinke 2020
for the Gaussian. The prior plays a part only where a parameter is chosen for a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, expm1, log, pi, sqrt
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_ndtr, ndtr

from .certificate import hockey_stick
from .lattice import Lattice, lattice
from .losses import SQUARED, Loss
from .prior import Prior, check_epsilon
from .randomizer import BITS, TOTAL, Randomizer
from .rounding import HAIR, integer_weights

_FOLDED = 40 * log(2)
"""Unclipped, the lattice ends where at most e^-this of a label's probability lies further out on that side."""


@dataclass(frozen=True)
class Laplace:
    """Adds discrete Laplace noise: z steps with probability proportional to exp(-epsilon |z| / Delta).

    Delta: the label range in steps. step: the lattice's, in units of the label; None is the label spacing. A finer one
    comes near the continuous mechanism. clip: outputs beyond the label range become its nearest end.
    """

    name: ClassVar[str] = "laplace"
    step: float | None = None
    clip: bool = True

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The prior's weights play no part. Cost O(k m) for m outputs.

        Raises ValueError for a bad step, one that makes too many outputs, or an epsilon too small for no clipping.
        """
        check_epsilon(epsilon)
        if len(prior.labels) == 1:
            return _single(self.name, prior, epsilon, {"clip": self.clip})
        target = epsilon - HAIR
        grid = lattice(prior.labels, self.step, 0.0 if self.clip else _FOLDED / target)
        decay = target / grid.steps
        distances = np.arange(grid.reach + 1)
        noise = np.exp(-decay * distances) * (-expm1(-decay) / (1 + exp(-decay)))
        rows = grid.rows(noise, exp(-decay * len(distances)) / (1 + exp(-decay)))
        weights = integer_weights(rows, epsilon)
        parameters = {"step": grid.step, "clip": self.clip}
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, parameters)


@dataclass(frozen=True)
class Staircase:
    """Adds staircase noise: flat steps of r and Delta - r lattice steps in turn, each exp(-epsilon) below the last.

    gamma: the share (r - 1/2) / Delta of the higher half of a stair, in [0, 1]; None takes the r in 1..Delta of least
    expected loss under the prior. loss: what that minimises. step, clip: as for `Laplace`.
    """

    name: ClassVar[str] = "staircase"
    loss: Loss = SQUARED
    gamma: float | None = None
    step: float | None = None
    clip: bool = True

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Cost O(k m) for m outputs; all r are compared, from sums that they share.

        Where the loss is infinite for every r, as Poisson log loss is for outputs of 0, the squared loss decides.
        Raises ValueError as `Laplace.solve`, for a gamma outside [0, 1], and for a loss not defined on the outputs.
        """
        check_epsilon(epsilon)
        if self.gamma is not None and not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be between 0 and 1, not {self.gamma:g}")
        self.loss.check(prior.labels)
        if self.loss.nonnegative and not self.clip:
            raise ValueError(f"the {self.loss.name} loss needs outputs >= 0: clip them to the label range (clip)")
        if len(prior.labels) == 1:
            return _single(self.name, prior, epsilon, {"clip": self.clip})
        target = epsilon - HAIR
        # A stair is as wide as the range, so noise is above Laplace's by up to one range.
        grid = lattice(prior.labels, self.step, 0.0 if self.clip else _FOLDED / target + 1)
        if self.gamma is None:
            losses = _staircase_losses(grid, prior, target, self.loss)
            if not np.all(np.isfinite(losses)):
                losses = _staircase_losses(grid, prior, target, SQUARED)
            r = int(np.argmin(losses)) + 1
        else:
            r = min(max(round(self.gamma * grid.steps + 0.5), 1), grid.steps)
        stairs = grid.reach // grid.steps + 1
        height, drop = _staircase_height(grid.steps, target)[r - 1], exp(-target)
        stair = np.where(np.arange(grid.steps) < r, 1.0, drop)
        noise = height * np.outer(np.exp(-target * np.arange(stairs)), stair).ravel()
        rows = grid.rows(noise, height * exp(-target * stairs) * stair.sum() / -expm1(-target))
        weights = integer_weights(rows, epsilon)
        parameters = {"step": grid.step, "clip": self.clip, "r": r, "gamma": (r - 0.5) / grid.steps}
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, parameters)


@dataclass(frozen=True)
class Exponential:
    """Reports a point of the label range with probability proportional to exp(-epsilon |point - label| / (2 range)).

    step: the largest distance of two points, in units of the label; None is the label spacing.
    """

    name: ClassVar[str] = "exponential"
    step: float | None = None

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The prior's weights play no part. Cost O(k m). Raises ValueError for a bad step or too many outputs."""
        check_epsilon(epsilon)
        if len(prior.labels) == 1:
            return _single(self.name, prior, epsilon, {})
        grid = lattice(prior.labels, self.step, 0.0)
        span = prior.labels[-1] - prior.labels[0]
        distances = np.abs(grid.points - prior.labels[:, None]) / span
        rows = np.exp(-(epsilon - HAIR) / 2 * distances)
        weights = integer_weights(rows, epsilon)
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, {"step": grid.step})


@dataclass(frozen=True)
class Gaussian:
    """Adds discrete Gaussian noise: z steps with probability proportional to exp(-z^2 / (2 sigma^2)).

    (epsilon, delta)-label DP, not pure: sigma is the least for which the integer weights' exact hockey-stick
    divergence is at most delta. delta: from 1e-12 to 0.5; there is no default, so nobody gives up pure DP unawares.
    step, clip: as for `Laplace`.
    """

    name: ClassVar[str] = "gaussian"
    delta: float = 0.0
    step: float | None = None
    clip: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError without a delta, and for one out of range."""
        if self.delta == 0:
            raise ValueError("gaussian is not pure label DP: it needs a delta (--delta)")
        if not _LEAST_DELTA <= self.delta <= _LARGEST_DELTA:
            raise ValueError(f"delta must be between {_LEAST_DELTA:g} and {_LARGEST_DELTA:g}, not {self.delta:g}")

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The prior's weights play no part. Cost O(k m), and up to O(k^2 m) to prove delta, for m outputs.

        Raises ValueError as `Laplace.solve`.
        """
        check_epsilon(epsilon)
        parameters = {"clip": self.clip, "delta": self.delta}
        if len(prior.labels) == 1:
            return _single(self.name, prior, epsilon, parameters, self.delta)
        margin = 0.0 if self.clip else _GAUSSIAN_TAIL * _widest(epsilon, self.delta)
        grid = lattice(prior.labels, self.step, margin)
        sigma, weights = _gaussian(grid, epsilon, self.delta)
        parameters |= {"step": grid.step, "sigma": sigma * grid.step}
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, parameters, delta=self.delta)


_LEAST_DELTA, _LARGEST_DELTA = 1e-12, 0.5
_GAUSSIAN_TAIL = 7.1
"""In standard deviations: less than 2^-40 of a normal distribution lies above."""
_WIDE = 1000.0
_FINENESS = 1e-10
"""sigma is the least one up to this, relatively."""


def _widest(epsilon: float, delta: float) -> float:
    """A sigma, per unit of sensitivity, that is enough for (epsilon, delta): a little above the continuous Gaussian's.

    Balle, Wang 2018, Theorem 8: its delta is Phi(1/(2 sigma) - epsilon sigma) - E Phi(-1/(2 sigma) - epsilon sigma).
    """

    def excess(sigma: float) -> float:
        below, above = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        return float(ndtr(below) - np.exp(epsilon + log_ndtr(above))) - delta

    low = high = 1.0
    while excess(high) > 0:
        high *= 2
    while excess(low) <= 0:
        low /= 2
    return 1.01 * _least(excess, low, high, 1e-3)


def _least(excess: Callable[[float], float], low: float, high: float, fineness: float = _FINENESS) -> float:
    """Where excess, positive at low, becomes <= 0: bisection to a relative fineness, ending on the side <= 0."""
    while high > low * (1 + fineness):
        middle = (low + high) / 2
        if excess(middle) > 0:
            low = middle
        else:
            high = middle
    return high


def _gaussian(grid: Lattice, epsilon: float, delta: float) -> tuple[float, np.ndarray]:
    """The least sigma, in steps, and its integer weights.

    Floats, on the two labels furthest apart, say where it is; the integers of all labels decide.
    """
    ratio = exp(epsilon)

    def ends_excess(sigma: float) -> float:
        noise, beyond = _gaussian_noise(grid, sigma)
        first, last = grid.ends_rows(noise, beyond)
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
        low, growth = sigma, _FINENESS
        while excess(sigma * (1 + growth)) > 0:
            low, growth = sigma * (1 + growth), 2 * growth
        sigma = _least(lambda middle: 1.0 if excess(middle) > 0 else 0.0, low, sigma * (1 + growth))
    return sigma, gaussian_weights(grid, sigma)


def _gaussian_noise(grid: Lattice, sigma: float) -> tuple[np.ndarray, float]:
    """The probability of z steps for z = 0..reach, and that of more, on one side."""
    densities = np.exp(-((np.arange(grid.reach + 1) / sigma) ** 2) / 2)
    if sigma > _WIDE:
        # The sum over all integers is the integral, relatively within 2 exp(-2 pi^2 sigma^2) (Poisson summation).
        noise = densities / (sqrt(2 * pi) * sigma)
        return noise, max(0.5 - noise[1:].sum() - noise[0] / 2, 0.0)
    beyond = np.exp(-((np.arange(grid.reach + 1, ceil(40 * sigma) + 1) / sigma) ** 2) / 2).sum()
    total = densities[0] + 2 * (densities[1:].sum() + beyond)
    return densities / total, float(beyond / total)


def gaussian_weights(grid: Lattice, sigma: float) -> np.ndarray:
    """(k, m) uint64: the integers nearest to 2^62 times the probabilities; the likeliest output takes what is left."""
    rows = grid.rows(*_gaussian_noise(grid, sigma))
    rows /= rows.sum(axis=1, keepdims=True)
    weights = np.rint(rows * float(TOTAL)).astype(np.int64)
    likeliest = weights.argmax(axis=1)
    # A row is off by a few units of 2^-62 per output, so its sum fits 63 bits.
    weights[np.arange(len(weights)), likeliest] += TOTAL - weights.sum(axis=1)
    return weights.astype(np.uint64)


def _single(name: str, prior: Prior, epsilon: float, parameters: dict[str, Any], delta: float = 0.0) -> Randomizer:
    """One label has nothing to hide."""
    weights = np.full((1, 1), TOTAL, np.uint64)
    return Randomizer(prior.labels, prior.labels, weights, epsilon, name, parameters, delta=delta)


def _staircase_height(steps: int, epsilon: float) -> np.ndarray:
    """(steps,): the probability of no noise for r = 1..steps."""
    r, fall = np.arange(1, steps + 1), -expm1(-epsilon)
    return fall / (2 * (r + exp(-epsilon) * (steps - r)) - fall)


def _staircase_losses(grid: Lattice, prior: Prior, epsilon: float, loss: Loss) -> np.ndarray:
    """(steps,): the expected loss for r = 1..steps, above the least one that any output could have.

    Noise of t + i Delta steps, 0 <= t < Delta, has probability height(r) e^(-i epsilon) (1 if t < r else e^-epsilon);
    so with the loss of each t summed over i, all r need only one cumulated sum over t.
    """
    last, stairs = len(grid.points) - 1, grid.reach // grid.steps + 1
    distances = np.arange(stairs * grid.steps)
    per_distance, far = np.zeros(len(distances)), 0.0
    for label, mass, lower, share in zip(prior.labels, prior.weights, grid.lower, grid.share, strict=True):
        if mass == 0:
            continue
        losses = loss.divergence(grid.points, label)
        far += mass * (losses[0] + losses[last])
        for place, part in ((lower, mass * (1 - share)), (lower + 1, mass * share)):
            if part > 0:
                up, down = np.minimum(place + distances, last), np.maximum(place - distances, 0)
                per_distance += part * (losses[up] + losses[down])
    per_distance[0] /= 2
    stair = np.exp(-epsilon * np.arange(stairs)) @ per_distance.reshape(stairs, grid.steps)
    # Beyond the last stair, every output is an end of the lattice.
    stair += far * exp(-epsilon * stairs) / -expm1(-epsilon)
    sums = exp(-epsilon) * stair.sum() - expm1(-epsilon) * np.cumsum(stair)
    return _staircase_height(grid.steps, epsilon) * sums
