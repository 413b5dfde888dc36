"""Quality measures of a randomizer, by which mechanisms are compared: expected losses, variance and bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .losses import ABSOLUTE, SQUARED, Loss
from .prior import Prior
from .randomizer import Randomizer
from .reproducible import dot


@dataclass(frozen=True)
class Quality:
    """Quality measures of a randomizer, in units of the label or their square.

    Expectations are over labels y drawn from a prior and over the outputs M(y) of the randomizer.

    Attributes:
      epsilon: Certified epsilon.
      delta: Certified delta; 0 for pure label DP.
      outputs: Number of outputs.
      squared_error: E (M(y) - y)^2.
      absolute_error: E |M(y) - y|.
      loss: Expected value of the given loss; infinite if the loss of a possible output is.
      max_variance: Largest Var(M(y)) over all labels of the domain.
      max_bias: Largest |E[M(y)] - y| over all labels of the domain, rounded up.
      gap: Proven relative distance of the randomizer's own objective from its optimum; None without a proof.
    """

    epsilon: float
    delta: float
    outputs: int
    squared_error: float
    absolute_error: float
    loss: float
    max_variance: float
    max_bias: float
    gap: float | None


def quality(randomizer: Randomizer, prior: Prior, loss: Loss = SQUARED) -> Quality:
    """Computes the quality measures of a randomizer under a prior; the given loss is that of the field `loss`.

    Raises ValueError if the prior is over another domain, or the loss is not defined on it.
    """
    certificate = randomizer.certificate()
    return Quality(
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        outputs=len(randomizer.outputs),
        squared_error=randomizer.expected_loss(prior, SQUARED),
        absolute_error=randomizer.expected_loss(prior, ABSOLUTE),
        loss=randomizer.expected_loss(prior, loss),
        max_variance=float(variances(randomizer).max()),
        max_bias=certificate.max_bias,
        gap=randomizer.gap,
    )


def variances(randomizer: Randomizer) -> np.ndarray:
    """Var(M(y)) for every label y, in squared units of the label; shape (k,), float64."""
    means = randomizer.labels + randomizer.bias()
    return (randomizer.probabilities() * (randomizer.outputs - means[:, None]) ** 2).sum(axis=1)


def loss_without_labels(prior: Prior, loss: Loss = SQUARED) -> float:
    """Computes the smallest expected loss of a constant, a baseline that reveals nothing of the labels."""
    if loss.mean_optimal:
        best = dot(prior.weights, prior.labels)
    else:
        best = prior.labels[np.searchsorted(np.cumsum(prior.weights), 0.5)]
    likely = prior.weights > 0
    return dot(prior.weights[likely], loss.value(np.full(likely.sum(), best), prior.labels[likely]))
