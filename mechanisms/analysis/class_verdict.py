"""Verdict on released classes: what a model can learn from them, how shares are corrected, and warnings.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..center.class_center import center_pays
from ..center.residuals import MODEL_PARAMETERS
from ..core.budget import MAX_EPSILON
from ..core.integer_weights import TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, log
from ..response.randomized_response import RandomizedResponse
from .findings import (
    LOSS,
    NOTHING_ELSE,
    SMALL_MODEL,
    Debiasing,
    Naming,
    Verdict,
    Warn,
    percent,
    rounded_down,
    rounded_up,
)
from .utility import ReleasedFacts

STANDS_OUT = 4
"""A class stands out of the noise if its count is above so many standard deviations of it.

Noise alone takes the count of a class without records above it with a probability of exp(-4 sqrt(2)) / 2, 0.2 %.
"""

LEAST_KEPT = 0.5
"""A single label says little if it is kept with a smaller probability."""

_NAMED = 6
_NAME_LENGTH = 40
_STEPS_OF_EPSILON = 12  # by factors of sqrt(2)


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

    def records_per_parameter(self, share: float) -> float:
        """Records for each parameter of a logit at which a model loses this share of the entropy; may be infinite."""
        left = 2 * share * self.entropy * self.worth
        return (self.classes - 1) / left if left > 0 else math.inf

    def loss(self, records_per_parameter: float) -> float:
        """Share of the entropy that a model loses with so many records for each parameter of a logit."""
        return self.records_per_parameter(1.0) / records_per_parameter

    @property
    def lost(self) -> tuple[int, ...]:
        """Places of the classes that are never released."""
        return tuple(np.flatnonzero(~np.isin(self.randomizer.labels, self.randomizer.outputs)).tolist())


def class_verdict(facts: ReleasedFacts, naming: Naming) -> Verdict:
    """Judges released classes by the log loss of a model with corrected losses."""
    if facts.drawn_from_center:
        text = (
            f"the center is the model: {NOTHING_ELSE}. Classes are drawn from its probabilities, which are beside "
            "them: train on the probabilities, and judge models by them. For classes that say more: "
        )
        return Verdict("center", f"{text}{naming('center')} none")
    moments, parameters = ClassUtility(facts.randomizer, facts.prior), MODEL_PARAMETERS
    parameters = max(parameters, (facts.features or 0) + 1)
    needed = moments.records_per_parameter(LOSS)
    if math.isinf(needed):
        return Verdict("none", "not usable: the noised histogram has a single class, or released classes say nothing")
    if facts.records is None:
        return Verdict(
            "unknown",
            f"good for training a model of {parameters} parameters a class from about "
            f"{rounded_up(needed * parameters):,} records on",
        )
    share, most = moments.loss(facts.records / parameters), int(facts.records / needed)
    worth = f"a released class says as much as {moments.worth:.2g} true ones"
    costs = f"a model of {parameters} parameters a class loses about {percent(share)} of the entropy of the classes"
    if most >= parameters:
        return Verdict("good", f"good for training with corrected losses: {costs} to noise; {worth}")
    if most >= SMALL_MODEL:
        text = f"usable for small models with corrected losses, of at most {rounded_down(most)} parameters a class"
        found = Verdict("small", f"{text}; {worth}")
    elif most >= 1:
        found = Verdict(
            "averages", f"usable only for corrected shares of at least {rounded_up(needed):,} records; {worth}"
        )
    else:
        found = Verdict(
            "none", f"not usable: even the shares of the classes in all {facts.records:,} records are too noisy"
        )
    return replace(found, proposals=tuple(_proposals(facts, moments, parameters, naming)))


def _proposals(facts: ReleasedFacts, moments: ClassUtility, parameters: int, naming: Naming) -> Iterator[str]:
    """Changes that would make a release good for a model: a larger epsilon, more records."""
    assert facts.records is not None
    ratio, epsilon = facts.records / parameters, facts.randomizer.epsilon
    for step in range(1, _STEPS_OF_EPSILON + 1):
        larger = epsilon * 2 ** (step / 2)
        if larger > MAX_EPSILON:
            break
        found = ClassUtility(RandomizedResponse().solve(facts.prior, larger), facts.prior)
        if found.loss(ratio) <= LOSS:
            total = rounded_up((larger + facts.prior_epsilon) * facts.records_per_unit)
            yield f"raise {naming('epsilon')} to about {total:g}"
            break
    yield f"release about {rounded_up(moments.records_per_parameter(LOSS) * parameters):,} records"


def class_debiasing(facts: ReleasedFacts) -> Debiasing:
    """Formula that corrects shares of released classes; models are corrected by their losses."""
    if facts.drawn_from_center:
        return Debiasing(None, "needs none: the mean probability of a class is its share as the center knows it")
    randomizer, models = facts.randomizer, "models with the losses of labeldp.training"
    if len(randomizer.outputs) < len(randomizer.labels):
        return Debiasing(None, f"shares cannot be corrected, because some classes are never released; {models}")
    own, other = correction(randomizer)
    return Debiasing(f"true share = (released share - {other:.6g}) / {own - other:.6g}", f"for each class; {models}")


def correction(randomizer: Randomizer) -> tuple[float, float]:
    """Probability of a true class, and of each other one, to be released as the class, of randomized response."""
    weights = randomizer.weights
    own, other = (float(Fraction(int(weight), TOTAL)) for weight in (weights.max(), weights.min()))
    return own, other


def class_warnings(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    """Finds what a user of released classes should look at, in a fixed order."""
    assert facts.classes is not None
    yield from _unseen_classes(facts, naming)
    if facts.center_epsilon is not None:
        yield from _frequent_classes(facts.prior.weights, facts.center_epsilon, naming)
        return
    moments, values = ClassUtility(facts.randomizer, facts.prior), facts.classes.values
    if moments.lost:
        yield Warn(
            "lost_classes",
            f"{_named(values, moments.lost)}: never released, so no model can learn them. {naming('mechanism')} rr "
            "keeps all classes",
        )
    if moments.kept < LEAST_KEPT:
        yield Warn(
            "label_error",
            f"a single released label says little: it is the true one with probability {moments.kept:.3g}. Use the "
            "labels for corrected shares and for training, not one by one",
        )


def _unseen_classes(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    """Names the classes that may have no record, by the released counts."""
    if facts.class_counts is None or facts.classes is None:
        return
    most, values = STANDS_OUT * facts.class_counts.deviation, facts.classes.values
    unseen = [place for place, count in enumerate(facts.class_counts.counts) if count <= most]
    if unseen:
        yield Warn(
            "unseen_classes",
            f"{_named(values, unseen)}: by the released counts, of at most {most:,.0f} records, as many as noise alone "
            f"may give. Check the spelling of {naming('label_classes')}, spaces and case included: all values that are "
            f"not listed count as {_quoted(values[facts.classes.other])}. If it is right, these classes are rare or "
            "absent",
        )


def _frequent_classes(shares: np.ndarray, epsilon: float, naming: Naming) -> Iterator[Warn]:
    """Asks whether classes one by one would say more than their center, by the released shares."""
    # Shares of a center are above 0; those of other files need not be.
    if shares.max() < 1 and not center_pays(shares, epsilon):
        yield Warn(
            "frequent_classes",
            "at this epsilon and with these shares of the classes, classes that are randomized one by one, and trained "
            f"on with the correction, say more than the center: {naming('center')} none",
        )


def _named(values: Sequence[str], places: Sequence[int]) -> str:
    """Names the classes at some places; of many, the first ones."""
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return ", ".join(_quoted(values[place]) for place in places[:_NAMED]) + more


def _quoted(value: str) -> str:
    return repr(value if len(value) <= _NAME_LENGTH else value[:_NAME_LENGTH] + "...")
