"""What a randomizer does to labels, in the numbers that mechanisms are compared by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.losses import ABSOLUTE, SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer


@dataclass(frozen=True)
class Quality:
    """Expectations are over labels drawn from a prior and the randomizer's outputs for them.

    epsilon, delta: as certified. outputs: how many. squared_error, absolute_error: the mean of (M(y) - y)^2 and of
    |M(y) - y|. loss: the mean of the loss asked for; infinite where an output has no such loss. max_variance: the
    largest Var(M(y)) over all labels of the domain. max_bias: the largest |E[M(y)] - y|, rounded up. gap: the proven
    relative distance of the randomizer's own objective from its optimum, None without a proof. Units of the label,
    or their square.
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
    """The quality of a randomizer for labels of this prior.

    Raises ValueError when the prior is over another domain, or the loss is not defined on it.
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
    """(k,) float64: Var(M(y)) for every label y of the domain, in squared units of the label."""
    means = randomizer.labels + randomizer.bias()
    return (randomizer.probabilities() * (randomizer.outputs - means[:, None]) ** 2).sum(axis=1)


def loss_without_labels(prior: Prior, loss: Loss = SQUARED) -> float:
    """The least expected loss of one output for all labels: what a mechanism that says nothing about them can reach."""
    if loss.mean_optimal:
        best = prior.weights @ prior.labels
    else:
        best = prior.labels[np.searchsorted(np.cumsum(prior.weights), 0.5)]
    likely = prior.weights > 0
    return float(prior.weights[likely] @ loss.value(np.full(likely.sum(), best), prior.labels[likely]))
