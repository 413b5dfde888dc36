"""Reconstruction advantage: what a release adds to guesses of labels by an adversary who knows the features.

Source: Busa-Fekete et al. 2024, "Auditing Privacy Mechanisms via Label Inference Attacks" (arXiv 2406.02797). The
expected attack utility of an adversary is the probability that the guess of a record's label is right. The additive
advantage is the utility of the best guess given the release, minus that of the best guess from the features alone. The
multiplicative advantage of a record is the change of the log-odds of its true label. As in Kalemaj et al. 2025,
"Observational Auditing of Label Privacy" (arXiv 2511.14084), nothing is planted among the records: the adversaries are
scored on the labels that were released.

Adversaries. All know the features of all records, and the true labels of four of five folds, and guess those of the
fifth fold (see `label_beliefs`).

- `features` knows no more.
- `channel` knows the released label and the mechanism, too: by Bayes, its belief is that of `features` times the
  probability of the released label. There is none for classes that were drawn from probabilities, which say everything.
- `learned` knows what was released and no mechanism: its trees learn from the released labels, centers and
  probabilities of the other folds how these go with true labels.
- `known`, for comparison, is `learned` without the released label. Without a center, it is `features`.

Bounds. For a belief p in a set of labels before the release and pure epsilon, the belief after it is at most p E / (p E
+ 1 - p), E = exp(epsilon) (see `label_inference`). It holds for each record of `channel`, with the epsilon of the
labels. It is concave in p, so the utility given a release is at most this bound at p = the utility from features alone,
for the best adversaries. The one from features here is an estimate of the best. But for each released value, the
guesses of `learned` are those of a predictor of the same kind as `known`. So an advantage of `learned` over `known`
that is above the bound by many standard errors says that the release is not what its manifest claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..mechanisms.analysis.privacy_attacks import largest_advantage, largest_advantage_of_all
from ..pipelines.spec.machine import one_thread_for_fits
from .label_beliefs import Beliefs, GuessedLabels, cross_fitted
from .record_features import FeatureMatrix
from .released_channel import ReleasedChannel, ReleasedLabels

QUANTILES = (0.5, 0.9, 0.99, 1.0)
"""Quantiles of the gain in belief over the records; the last one is the largest gain."""
SIGNIFICANT = 6.0
"""Number of standard errors beyond the bound of epsilon that contradict it."""
LEAST_GROUP = 5
"""Groups of fewer records are not shown: they are single records."""
# Beliefs are sums of floats.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Guesses:
    """Guesses of one adversary.

    Attributes:
      right: Whether the best guess of each record is right, shape (n,), bool.
      near: Belief that the label is within the tolerance of the true one, shape (n,), in (0, 1).
    """

    right: np.ndarray
    near: np.ndarray

    @property
    def utility(self) -> float:
        """Share of right guesses, the estimate of the expected attack utility."""
        return float(self.right.mean())


@dataclass(frozen=True)
class Advantage:
    """Advantage of one adversary over another.

    Attributes:
      before: Utility without the release.
      after: Utility with it.
      error: Standard error of their difference.
    """

    before: float
    after: float
    error: float

    @classmethod
    def of(cls, before: Guesses, after: Guesses) -> Advantage:
        """Compares two adversaries on the same records."""
        differences = after.right.astype(float) - before.right
        return cls(before.utility, after.utility, float(differences.std() / math.sqrt(len(differences))))

    @property
    def value(self) -> float:
        """The additive advantage; below 0 if the second adversary guesses worse."""
        return self.after - self.before


@dataclass(frozen=True)
class GroupAdvantage:
    """Advantage for the records with one value of a public column.

    Attributes:
      value: The value, as text.
      records: Number of its records.
      before: Mean belief in the true label from features alone.
      after: Mean belief with the release.
    """

    value: str
    records: int
    before: float
    after: float

    @property
    def advantage(self) -> float:
        """Mean gain in belief."""
        return self.after - self.before


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Guesses of all adversaries about the same records.

    Attributes:
      features: Guesses from features alone.
      channel: Guesses from features, released label and mechanism; None if there is no such mechanism.
      learned: Guesses from features and all that was released, learned from true labels.
      known: Guesses of the same without the released label.
      epsilon: Claimed epsilon of all that was released of a label; None for approximate DP, which bounds no advantage.
    """

    features: Guesses
    channel: Guesses | None
    learned: Guesses
    known: Guesses
    epsilon: float | None

    @property
    def advantages(self) -> dict[str, Advantage]:
        """Advantage over features alone of each adversary who has the release, by name."""
        found = {} if self.channel is None else {"channel": Advantage.of(self.features, self.channel)}
        return {**found, "learned": Advantage.of(self.features, self.learned)}

    @property
    def largest(self) -> float:
        """The largest advantage of an adversary, at least 0."""
        return max(0.0, *(each.value for each in self.advantages.values()))

    @property
    def bound(self) -> float | None:
        """Bound on the advantage over the best adversary with the utility of `features`; None for approximate DP."""
        return None if self.epsilon is None else _bound(self.features.utility, self.epsilon)

    @property
    def bound_of_record(self) -> float | None:
        """Bound on the gain in belief about any record; None for approximate DP."""
        return None if self.epsilon is None else largest_advantage_of_all(self.epsilon)

    @property
    def contradiction(self) -> Advantage | None:
        """Advantage of the released labels, if epsilon does not allow it by many standard errors; else None."""
        added = Advantage.of(self.known, self.learned)
        if self.epsilon is None:
            return None
        return added if added.value - SIGNIFICANT * added.error > _bound(added.before, self.epsilon) else None

    @property
    def informed(self) -> Guesses:
        """Guesses whose beliefs are compared record by record: by the mechanism where there is one."""
        return self.learned if self.channel is None else self.channel

    @property
    def gains(self) -> np.ndarray:
        """Gain in belief in the true label, shape (n,)."""
        return self.informed.near - self.features.near

    @property
    def log_odds(self) -> np.ndarray:
        """Change of the log-odds of the true label, the multiplicative advantage, shape (n,)."""
        return _logit(self.informed.near) - _logit(self.features.near)

    def by_group(self, values: np.ndarray) -> list[GroupAdvantage]:
        """Advantage for each value, shape (n,), of at least `LEAST_GROUP` records; the largest first."""
        names, places, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
        before, after = (np.bincount(places, each.near) / counts for each in (self.features, self.informed))
        found = [
            GroupAdvantage(str(name), int(count), float(first), float(last))
            for name, count, first, last in zip(names, counts, before, after, strict=True)
            if count >= LEAST_GROUP
        ]
        return sorted(found, key=lambda group: (-group.advantage, group.value))


def _bound(before: float, epsilon: float) -> float:
    return largest_advantage(before, epsilon) if before > 0 else 0.0


def _logit(beliefs: np.ndarray) -> np.ndarray:
    inside = np.clip(beliefs, _ROUNDING, 1 - _ROUNDING)
    return np.log(inside) - np.log1p(-inside)


def score(
    beliefs: Beliefs, truth: np.ndarray, guessed: GuessedLabels, channel: ReleasedChannel | None = None
) -> Guesses:
    """Scores guesses of n records by their true labels, places of shape (n,).

    With a channel, beliefs are updated by the released labels first.
    """
    right, near = np.zeros(len(truth), bool), np.zeros(len(truth))
    for rows, prior in beliefs.blocks():
        own = prior
        if channel is not None:
            own = prior * channel.likelihood(rows)
            own /= own.sum(axis=1, keepdims=True)
        right[rows], near[rows] = guessed.right(own, truth[rows]), guessed.near(own, truth[rows])
    return Guesses(right, near)


@one_thread_for_fits()
def reconstruct(
    features: FeatureMatrix,
    truth: np.ndarray,
    guessed: GuessedLabels,
    released: ReleasedLabels,
    channel: ReleasedChannel | None,
    epsilon: float | None,
    seed: int,
    progress: Callable[[str], object],
) -> Reconstruction:
    """Fits and scores all adversaries.

    `truth` has the places of the true labels, shape (n,). `channel` is None for classes that were drawn from
    probabilities, `epsilon` for approximate DP. `progress` gets lines about the work.
    """

    def fitted(name: str, matrix: FeatureMatrix) -> Beliefs:
        return cross_fitted(matrix, truth, guessed, seed, lambda step: progress(f"learning from {name}: {step}"))

    before = fitted("features", features)
    plain = score(before, truth, guessed)
    informed = None if channel is None else score(before, truth, guessed, channel)
    known = plain
    if released.known_before is not None:
        with_center = features.with_numbers("center", released.known_before)
        known = score(fitted("features and centers", with_center), truth, guessed)
    learned = score(fitted("the release", features.with_numbers("released", released.columns)), truth, guessed)
    return Reconstruction(plain, informed, learned, known, epsilon)


def most_affected(gains: np.ndarray, rows: np.ndarray, number: int) -> Sequence[int]:
    """Numbers in the release of the records with the largest gains, the largest first."""
    order = np.argsort(-gains, kind="stable")[:number]
    return rows[order].tolist()
