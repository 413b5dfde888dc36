"""Label inference: the best guess of a label from a channel and a prior.

An adversary who knows the prior and the randomizer guesses a record's label. The attack utility is the
probability of a correct guess. The advantage is the utility of the best guess given the released label minus that of
the best guess from the prior alone (Wu, Zhou, Weinberger, Guo 2023, "Does Label Differential Privacy Prevent Label
Inference Attacks?"). For numeric labels a guess may also count as correct within a tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.prior import Prior
from ..core.randomizer import Randomizer

# Probabilities are sums in floats; a gain below this part of them is none.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class LabelInference:
    """Probabilities of a correct guess, for labels drawn from a prior.

    Attributes:
      tolerance: Largest distance of a correct guess from the label, in units of the label; 0 for exact guesses.
      informed: Probability of a correct guess given the released label, for the best adversary.
      uninformed: Probability of a correct guess from the prior alone.
      bound: For pure label DP, the largest advantage that any randomizer of this epsilon can give under this prior;
        None for (epsilon, delta)-label DP.
    """

    tolerance: float
    informed: float
    uninformed: float
    bound: float | None

    @property
    def advantage(self) -> float:
        """The gain in probability that the released label gives, >= 0; 0 where only rounding errors are left of it."""
        gain = self.informed - self.uninformed
        return gain if gain > _ROUNDING * self.uninformed else 0.0


def label_inference(randomizer: Randomizer, prior: Prior, tolerance: float = 0.0) -> LabelInference:
    """Computes the success of the Bayes-optimal adversary; nothing is sampled.

    A guess is correct for the labels of a window of width 2 * tolerance. Given output c, the best guess is the middle
    of the window with the largest sum of P(y) P(c | y). Cost O(k m) for k labels and m outputs.

    The bound: for a window of prior mass p, the posterior mass is at most p E / (p E + 1 - p), E = exp(epsilon),
    because within epsilon every P(c | y) outside the window is at least 1 / E times the largest one inside. This
    increases with p, so the largest p bounds every guess.

    The probabilities are computed in floats: a relative error of about 1e-13 remains. Raises ValueError if the prior is
    over another domain, or the tolerance (in units of the label) is negative or not finite.
    """
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the prior and the randomizer have different label domains")
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"the tolerance must be finite and not negative, not {tolerance:g}")
    # First label beyond the window that starts at each label.
    ends = np.searchsorted(randomizer.labels, randomizer.labels + 2 * tolerance, side="right")
    joint = prior.weights[:, None] * randomizer.probabilities()
    informed = float(_windows(joint, ends).max(axis=0).sum())
    uninformed = float(_windows(prior.weights[:, None], ends).max())
    bound = None
    if randomizer.pure:
        bound = largest_advantage(uninformed, randomizer.certificate().epsilon)
    return LabelInference(tolerance, min(informed, 1.0), min(uninformed, 1.0), bound)


def largest_advantage(uninformed: float, epsilon: float) -> float:
    """Bounds the advantage at guesses that are right with a probability of at most `uninformed`, in (0, 1], before.

    It is that of any release of this pure epsilon, whatever is released (see `label_inference`).
    """
    uninformed = min(uninformed, 1.0)
    # p E / (p E + 1 - p) - p, written so that no term overflows.
    return max(uninformed / (uninformed + (1 - uninformed) * math.exp(-epsilon)) - uninformed, 0.0)


def largest_advantage_of_all(epsilon: float) -> float:
    """The largest of these bounds over all adversaries: p E / (p E + 1 - p) - p is at most tanh(epsilon / 4)."""
    return math.tanh(epsilon / 4)


def label_inferences(randomizer: Randomizer, prior: Prior, classes: bool = False) -> list[LabelInference]:
    """Computes the success at exact guesses, and at guesses within 1/20 of the label range.

    The second is left out where the tolerance is below half the spacing of the labels, so that it changes nothing, and
    for labels that are places of classes, whose distances mean nothing. Raises ValueError if the prior is over another
    domain.
    """
    exact = label_inference(randomizer, prior)
    if classes:
        return [exact]
    near = label_inference(randomizer, prior, float(randomizer.labels[-1] - randomizer.labels[0]) / 20)
    return [exact, near] if (near.informed, near.uninformed) != (exact.informed, exact.uninformed) else [exact]


def _windows(columns: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Sums of each column over the rows from i to before ends[i], for every i."""
    if np.array_equal(ends, np.arange(1, len(ends) + 1)):
        # Windows of one label: differences of cumulated sums would lose digits.
        return columns
    cumulated = np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns, axis=0)])
    return cumulated[ends] - cumulated[:-1]
