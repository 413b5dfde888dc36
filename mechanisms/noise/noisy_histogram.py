"""Release of a label histogram under label DP, as a prior, and estimation of the counts behind the noise.

The noise is that of Ghazi et al. 2022, Algorithm 3, but discrete, so that the guarantee holds exactly, without floating
point. Estimation is post-processing: it costs no budget.

Counts of neighboring labels are often alike, many are small, and some stand alone (atoms, such as 0 weeks worked). The
model says so without assuming a shape: along the labels, the count is a Markov chain that either drifts to a similar
count or, with probability `jump`, starts again from a distribution over counts. Both the distribution and the
probability are fitted to all noised counts (expectation maximization), so this is an empirical Bayes method; the
estimate of a count is its mean given all noised counts (forward-backward algorithm). Where neighbors say nothing about
each other, the fitted chain jumps at every label, and where all counts are alike, it never does.

Compared with clipping at zero, no positive total is added to rare labels, and no label that may have records gets
the weight 0, after which a mechanism of many outputs would give it none.

Every result has the same bits on every CPU: sums have a fixed order, and `exp` is that of `reproducible`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..core.budget import check_epsilon
from ..core.prior import Prior
from ..core.reproducible import dot, exp, expm1
from .discrete_laplace import ByteStream, discrete_laplace

HISTOGRAM_SENSITIVITY = 2
"""The histograms of neighboring datasets differ by one in two cells."""

MOST_COUNTS = 1 << 12
"""Counts that are estimated side by side: more take more memory (some 2 kB each) and hardly less time."""
# Counts are compared with levels that are a quarter of the noise's scale apart, up to 64 such steps.
_STEPS_PER_SCALE, _STEPS = 4, 64
_FIT_ROUNDS = 10
# Probability of a step to the next level, up and down, from one label to the next without a jump.
_DRIFT = 0.25
_FIRST_JUMP, _LEAST_JUMP = 0.3, 0.02


def noisy_priors(
    labels: np.ndarray, counts: np.ndarray, prior_epsilon: float, noise_keys: Sequence[bytes]
) -> list[Prior]:
    """Simulates several releases of a label histogram under label DP, one with each key.

    Each adds discrete Laplace noise of scale 2 / prior_epsilon to every count (Ghazi et al. 2022, Algorithm 3), then
    estimates the prior from the noised counts, with the bits that it has alone. Many take little more time than one.

    Counts are integers, shape (k,), keys have 32 bytes. Raises ValueError unless `prior_epsilon` is in [1e-9, 30].
    """
    records, found = max(int(np.sum(counts)), 1), []
    draws = max(MOST_COUNTS // len(counts), 1)
    for start in range(0, len(noise_keys), draws):
        noised = [noisy_counts(counts, prior_epsilon, key) for key in noise_keys[start : start + draws]]
        estimates = estimate_counts_of_draws(np.array(noised), records, HISTOGRAM_SENSITIVITY / prior_epsilon)
        found += [Prior(labels, estimate) for estimate in estimates]
    return found


def estimated_prior(labels: np.ndarray, noised: np.ndarray, records: int, prior_epsilon: float) -> Prior:
    """Estimates the prior from a noised histogram; see `estimate_counts`. It is post-processing: it costs no budget.

    Noised counts are integers, shape (k,); the number of records is public, and `prior_epsilon` > 0.
    """
    return Prior(labels, estimate_counts(noised, max(records, 1), HISTOGRAM_SENSITIVITY / prior_epsilon))


def noisy_counts(counts: np.ndarray, prior_epsilon: float, noise_key: bytes) -> np.ndarray:
    """Releases a histogram of labels, or of cells of them, under label DP: adds discrete Laplace noise to every count.

    Counts are integers, shape (k,); the result has the same shape, int64, and may be negative. The same key (32 bytes)
    and counts give the same result. Raises ValueError unless `prior_epsilon` is in [1e-9, 30].
    """
    check_epsilon(prior_epsilon)
    stream = ByteStream(noise_key, b"prior")
    noise = discrete_laplace(stream, HISTOGRAM_SENSITIVITY / Fraction(prior_epsilon), len(counts))
    return np.asarray(counts, np.int64) + noise


def mean_variance(prior: Prior, records: int, prior_epsilon: float) -> float:
    """Bounds the variance of the mean label of a noisy histogram, in squared units of the label.

    Each count has discrete Laplace noise of scale 2 / prior_epsilon, whose variance is below twice the square of the
    scale. The bound is that of the mean of the noised counts, to first order in noise / records. The estimated prior
    has a mean at least as close in simulations, because its tails have no clipped noise (tests).

    There is at least one record. The bound is infinite for a `prior_epsilon` of 0 (no histogram); an infinite one
    stands for a histogram without noise.
    """
    if prior_epsilon == 0:
        return math.inf
    centred = prior.labels - dot(prior.weights, prior.labels)
    return 2 * (2 / prior_epsilon) ** 2 * dot(centred, centred) / records**2


def estimate_counts(noised: np.ndarray, records: int, scale: float) -> np.ndarray:
    """Estimates counts from noised ones, in O(k) time for k counts.

    Noised counts are integers with discrete Laplace noise of this scale, > 0, shape (k,), in the order of the labels.
    The number of records n is public, >= 1. Estimates are float64, >= 0 and at least one above 0; their sum is about n.
    """
    return estimate_counts_of_draws(np.asarray(noised)[None], records, scale)[0]


def estimate_counts_of_draws(noised: np.ndarray, records: int, scale: float) -> np.ndarray:
    """Estimates counts from several noised histograms, each on its own: `estimate_counts` of each row, bit for bit.

    The histograms, shape (d, k), are computed side by side, so many take little more time than one. `records` and
    `scale` are those of each histogram.
    """
    # All possible counts explain a noised count outside [0, n] as well as the nearest number inside.
    counts = np.clip(np.asarray(noised, np.float64), 0.0, float(records))
    chain = _Chain.of_counts(np.ascontiguousarray(counts.T), records, scale)
    draws, states = len(counts), chain.likelihood.shape[2]
    distribution, jump = np.full((draws, states), 1 / states), np.full((draws, 1), _FIRST_JUMP)
    step = _Step(draws, states, chain.levels)
    for _ in range(_FIT_ROUNDS):
        _, distribution, jump = chain.expectation(distribution, jump, step)
    found, _, _ = chain.expectation(distribution, jump, step)
    found[~found.any(axis=1)] = 1.0
    return found


class _Step:
    """One step of d chains without a jump, in place.

    The matrix of a step is symmetric, so it serves both directions.

    Attributes:
      found: Result of the last step, shape (d, m).
      kept: Factor of the result, shape (d, m).
    """

    def __init__(self, draws: int, states: int, levels: int):
        up, down = np.zeros((draws, states)), np.zeros((draws, states))
        up[:, : levels - 1] = down[:, 1:levels] = _DRIFT
        self.found, self.kept, self._moved = np.empty_like(up), np.empty_like(up), np.empty_like(up)
        # Probability to stay at a state: exact, as _DRIFT is a quarter.
        self._stay, self._up, self._down = 1 - up - down, up, down
        # Nothing moves up from the last state or down from the first, so all chains shift as one array.
        found, moved = self.found.reshape(-1), self._moved.reshape(-1)
        self._moved_up, self._moved_down = (found[1:], moved[:-1]), (found[:-1], moved[1:])

    def __call__(self, chances: np.ndarray) -> None:
        """Writes `kept` times the chances after a step from `chances`, shape (d, m), to `found`."""
        found, moved = self.found, self._moved
        np.multiply(chances, self._stay, found)
        np.multiply(chances, self._up, moved)
        to, those = self._moved_up
        np.add(to, those, to)
        np.multiply(chances, self._down, moved)
        to, those = self._moved_down
        np.add(to, those, to)
        np.multiply(found, self.kept, found)


@dataclass(frozen=True, eq=False)
class _Chain:
    """Hidden Markov chains of counts, one for each of d histograms.

    Attributes:
      likelihood: Probability of each noised count given each state, shape (k, d, m), up to a factor for each count.
      means: Mean count given each state and noised count, shape (k, d, m).
      levels: The first states are those of one count each; a further one stands for all larger counts.
    """

    likelihood: np.ndarray
    means: np.ndarray
    levels: int

    @classmethod
    def of_counts(cls, counts: np.ndarray, records: int, scale: float) -> _Chain:
        step = max(1.0, min(scale / _STEPS_PER_SCALE, records / _STEPS))
        levels = step * np.arange(_STEPS + 1)
        levels = levels[levels <= records]
        # P(z) = tanh(1 / (2 scale)) exp(-|z| / scale), where tanh(x / 2) = expm1(x) / (expm1(x) + 2).
        rate = float(expm1(min(1 / scale, 700.0)))
        likelihood = exp(-np.abs(counts[..., None] - levels) / scale) * (rate / (rate + 2))
        means = np.broadcast_to(levels, likelihood.shape)
        last = float(levels[-1])
        if records > last:
            # Counts above the last level are taken as equally likely, so a noised one far above it stays as it is.
            beyond = 0.5 * exp(-np.abs(counts - last) / scale)
            more = np.where(counts > last, 1 - beyond, beyond) / (records - last)
            likelihood = np.concatenate([likelihood, more[..., None]], axis=2)
            means = np.concatenate([means, np.where(counts > last, counts, last + scale)[..., None]], axis=2)
        return cls(likelihood, means, len(levels))

    def expectation(
        self, distribution: np.ndarray, jump: np.ndarray, step: _Step
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the mean counts, the distribution of the states that are jumped to, and the share of jumps.

        Takes a distribution of shape (d, m) and a jump of shape (d, 1); returns shapes (d, k), (d, m) and (d, 1).
        """
        labels, draws, _ = self.likelihood.shape
        filtered, chances = np.empty_like(self.likelihood), np.empty((labels, draws, 1))
        jumped, predicted = jump * distribution, step.found
        predicted[:], step.kept[:] = distribution, 1 - jump
        # Results are written in place and operands mostly have one shape: arrays are so small that an operation costs
        # little more than its call, and broadcasting doubles that.
        for likelihood, state, chance in zip(self.likelihood, filtered, chances, strict=True):
            np.multiply(predicted, likelihood, state)
            np.add.reduce(state, axis=1, out=chance, keepdims=True)
            np.divide(state, chance, state)
            step(state)
            np.add(predicted, jumped, predicted)
        # `later` is the probability of all later noised counts given the state here, relative to that given the
        # earlier ones.
        later, here, product = step.found, np.empty_like(distribution), np.empty_like(distribution)
        arrivals, arrived, jumps = np.zeros_like(distribution), np.empty_like(jump), np.zeros_like(jump)
        later[:] = 1.0
        for likelihood, state, chance in zip(self.likelihood[:0:-1], filtered[:0:-1], chances[:0:-1], strict=True):
            np.multiply(state, later, state)
            np.multiply(likelihood, later, here)
            np.divide(here, chance, here)
            np.add(arrivals, here, arrivals)
            np.multiply(distribution, here, product)
            np.add.reduce(product, axis=1, out=arrived, keepdims=True)
            np.multiply(arrived, jump, arrived)
            np.add(jumps, arrived, jumps)
            step(here)
            np.add(later, arrived, later)
        filtered[0] *= later
        arrivals = (jump * arrivals + self.likelihood[0] * later / chances[0]) * distribution
        share = np.minimum(np.maximum((jumps + 1) / (labels + 1), _LEAST_JUMP), 1.0)
        filtered *= self.means
        means = np.add.reduce(filtered, axis=2)
        return np.ascontiguousarray(means.T), arrivals / np.add.reduce(arrivals, axis=1, keepdims=True), share
