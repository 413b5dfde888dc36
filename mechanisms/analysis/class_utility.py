"""Information that released classes have about true ones, and the correction of their shares.

Fisher information. A model of the class probabilities p with the channel P, the randomizer's (K, m) probabilities,
sees outputs of the probabilities q = p P. A true label has the Fisher information I of p, and a released one
P diag(1/q) P' on the changes of p that sum to 0. The worth of a label, the share of information that it keeps on
average over the K - 1 directions, is the chi-squared divergence of label and output from independence, over K - 1:

    worth = (sum over c, z of p_c P_cz^2 / q_z - 1) / (K - 1),

because the covariance diag(p) - p p' of one label is the inverse of I there. It is 1 for true labels, and 0 for outputs
that say nothing. By Wilks' theorem (1938), a model of k parameters for each of K - 1 logits that maximizes the
likelihood of n labels loses about k (K - 1) / (2 n) of log loss, and as much divided by the worth on released ones. It
is stated as a share of the entropy of the classes, the log loss of a model that knows no features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..core.integer_weights import TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, log


@dataclass(frozen=True)
class ClassUtility:
    """Information of released classes about true ones, under a prior.

    Attributes:
      randomizer: Randomizer of K classes.
      prior: Prior over them.
    """

    randomizer: Randomizer
    prior: Prior

    @property
    def classes(self) -> int:
        """Number of classes that the prior knows."""
        return int((self.prior.weights > 0).sum())

    @cached_property
    def worth(self) -> float:
        """Share of the Fisher information of a true label, in [0, 1]; 0 if the prior has a single class."""
        chances, weights = self.randomizer.probabilities(), self.prior.weights
        if self.classes < 2:
            return 0.0
        outputs = np.array([dot(weights, column) for column in chances.T])
        likely = outputs > 0
        parts = [
            dot(weights, column**2) / share for column, share in zip(chances.T[likely], outputs[likely], strict=True)
        ]
        return min(max((math.fsum(parts) - 1) / (self.classes - 1), 0.0), 1.0)

    @cached_property
    def released(self) -> np.ndarray:
        """Probability that each class is released, under the prior, shape (K,); 0 for one that never is."""
        return self.square.T @ self.prior.weights

    @cached_property
    def posterior(self) -> np.ndarray:
        """Probability of each class to be the true one given a released one: shape (K, K), a row for each released one.

        Rows of classes that are never released are 0.
        """
        joint = (self.square * self.prior.weights[:, None]).T
        return np.divide(joint, self.released[:, None], out=np.zeros_like(joint), where=self.released[:, None] > 0)

    @cached_property
    def square(self) -> np.ndarray:
        """Probability of each released class given each true one, shape (K, K)."""
        square = np.zeros((len(self.randomizer.labels),) * 2)
        square[:, np.searchsorted(self.randomizer.labels, self.randomizer.outputs)] = self.randomizer.probabilities()
        return square

    def share_error(self, records: int) -> float:
        """Largest standard error of a share of a class that is corrected by `class_debiasing`, from the noise alone.

        It is infinite if some classes are never released, or all of them with the same probability.
        """
        own, other = correction(self.randomizer)
        if self.lost or own == other:
            return math.inf
        variances = np.array([dot(self.prior.weights, column * (1 - column)) for column in self.square.T])
        return math.sqrt(variances.max() / records) / (own - other)

    @property
    def entropy(self) -> float:
        """Entropy of the classes in nats: the log loss of a model that knows no features."""
        weights = self.prior.weights[self.prior.weights > 0]
        return -dot(weights, log(weights))

    @property
    def kept(self) -> float:
        """Probability that a released class is the true one."""
        chances, labels = self.randomizer.probabilities(), self.randomizer.labels
        own = np.array([chances[place, self.randomizer.outputs == label].sum() for place, label in enumerate(labels)])
        return dot(self.prior.weights, own)

    def loss(self, records_per_parameter: float) -> float:
        """Share of the entropy that a model loses with so many records for each parameter of a logit; may be inf."""
        kept = 2 * self.entropy * self.worth * records_per_parameter
        return (self.classes - 1) / kept if kept > 0 else math.inf

    @property
    def lost(self) -> tuple[int, ...]:
        """Places of the classes that are never released."""
        return tuple(np.flatnonzero(~np.isin(self.randomizer.labels, self.randomizer.outputs)).tolist())


def correction(randomizer: Randomizer) -> tuple[float, float]:
    """Probability of a true class, and of each other one, to be released as the class, of randomized response."""
    weights = randomizer.weights
    own, other = (float(Fraction(int(weight), TOTAL)) for weight in (weights.max(), weights.min()))
    return own, other
