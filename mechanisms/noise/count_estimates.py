"""Estimation of counts from a noised histogram, whose noise is known: post-processing, which costs no budget.

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

from dataclasses import dataclass

import numpy as np

from ..core.reproducible import exp, expm1

# Counts are compared with levels that are a quarter of the noise's scale apart, up to 64 such steps.
_STEPS_PER_SCALE, _STEPS = 4, 64
_ROUNDS = 10
# Probability of a step to the next level, up and down, from one label to the next without a jump.
_DRIFT = 0.25
_FIRST_JUMP, _LEAST_JUMP = 0.3, 0.02


def estimate_counts(noised: np.ndarray, records: int, scale: float) -> np.ndarray:
    """Estimates counts from noised ones, in O(k) time for k counts.

    Args:
      noised: Counts with discrete Laplace noise, shape (k,), integers, in the order of the labels.
      records: Number of records n, which is public, >= 1.
      scale: Scale of the noise, > 0.

    Returns:
      Shape (k,), float64, >= 0 and at least one above 0. Their sum is about n.
    """
    # All possible counts explain a noised count outside [0, n] as well as the nearest number inside.
    counts = np.clip(np.asarray(noised, np.float64), 0.0, float(records))
    chain = _Chain.of_counts(counts, records, scale)
    distribution, jump = np.full(chain.size, 1 / chain.size), _FIRST_JUMP
    for _ in range(_ROUNDS):
        _, distribution, jump = chain.expectation(distribution, jump)
    found, _, _ = chain.expectation(distribution, jump)
    return found if found.any() else np.ones(len(counts))


@dataclass(frozen=True, eq=False)
class _Chain:
    """Hidden Markov chain of counts.

    Attributes:
      likelihood: Probability of each noised count given each state, shape (k, m), up to a factor for each count.
      means: Mean count given each state and noised count, shape (k, m).
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
        likelihood = exp(-np.abs(counts[:, None] - levels) / scale) * (rate / (rate + 2))
        means = np.broadcast_to(levels, likelihood.shape)
        last = float(levels[-1])
        if records > last:
            # Counts above the last level are taken as equally likely, so a noised one far above it stays as it is.
            beyond = 0.5 * exp(-np.abs(counts - last) / scale)
            more = np.where(counts > last, 1 - beyond, beyond) / (records - last)
            likelihood = np.column_stack([likelihood, more])
            means = np.column_stack([means, np.where(counts > last, counts, last + scale)])
        return cls(likelihood, means, len(levels))

    @property
    def size(self) -> int:
        return self.likelihood.shape[1]

    def expectation(self, distribution: np.ndarray, jump: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Computes the mean counts, the distribution of the states that are jumped to, and the share of jumps."""
        labels = len(self.likelihood)
        stay = self._drift_weights()
        jumped = jump * distribution
        filtered, chances = np.empty_like(self.likelihood), np.empty(labels)
        predicted = distribution
        for label in range(labels):
            state = predicted * self.likelihood[label]
            chances[label] = np.add.reduce(state)
            filtered[label] = state / chances[label]
            predicted = (1 - jump) * self._drift(filtered[label], stay) + jumped
        # `later` is the probability of all later noised counts given the state here, relative to that given the
        # earlier ones.
        later, arrivals, jumps = np.ones(self.size), np.zeros(self.size), 0.0
        for label in range(labels - 1, -1, -1):
            filtered[label] *= later
            here = self.likelihood[label] * later / chances[label]
            if label == 0:
                arrivals = jump * arrivals + here
                break
            arrivals += here
            arrived = jump * float(np.add.reduce(distribution * here))
            jumps += arrived
            later = (1 - jump) * self._drift(here, stay) + arrived
        arrivals *= distribution
        share = min(max((jumps + 1) / (labels + 1), _LEAST_JUMP), 1.0)
        return np.add.reduce(filtered * self.means, axis=1), arrivals / np.add.reduce(arrivals), share

    def _drift_weights(self) -> np.ndarray:
        """Probability to stay at a state where the chain does not jump."""
        stay = np.ones(self.size)
        stay[: self.levels - 1] -= _DRIFT
        stay[1 : self.levels] -= _DRIFT
        return stay

    def _drift(self, chances: np.ndarray, stay: np.ndarray) -> np.ndarray:
        """One step between levels; its matrix is symmetric, so it serves both directions."""
        near = _DRIFT * chances[: self.levels]
        drifted = stay * chances
        drifted[1 : self.levels] += near[:-1]
        drifted[: self.levels - 1] += near[1:]
        return drifted
