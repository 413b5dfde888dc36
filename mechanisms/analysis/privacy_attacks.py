"""Privacy attacks: the best guess of a label from a channel and a prior, and lower bounds on epsilon from samples.

Label inference. An adversary who knows the prior and the randomizer guesses a record's label. The attack utility is the
probability of a correct guess. The advantage is the utility of the best guess given the released label minus that of
the best guess from the prior alone (Wu, Zhou, Weinberger, Guo 2023, "Does Label Differential Privacy Prevent Label
Inference Attacks?"). For numeric labels a guess may also count as correct within a tolerance.

Samples. A mechanism with (epsilon, delta)-DP satisfies P(S | u) <= exp(epsilon) P(S | v) + delta for every set S of
outcomes and all neighboring inputs u and v. So samples under u and v bound epsilon from below. The inputs and the set
are selected on one sample, and the bound is computed on another one by Clopper-Pearson intervals: it holds with the
stated probability, however the selection was made (Jagielski, Ullman, Oprea 2020, "Auditing Differentially Private
Machine Learning"). Exact tests compare sampled frequencies with stated probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import betainccinv, betaincinv, ndtri

from ..core.prior import Prior
from ..core.randomizer import Randomizer

# Probabilities are sums in floats; a gain below this part of them is none.
_ROUNDING = 1e-12
# Pairs of inputs for which sets of several outcomes are compared, the most promising first.
_MOST_PAIRS = 64
# Inverses of the beta distribution are accurate to about 1e-12; bounds are widened by more than that.
_INVERSE_ERROR = 1e-9
# Cells that deviate by fewer standard deviations are not tested. Fewer tests never cause a false finding.
_LEAST_DEVIATION = 3.0


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


def clopper_pearson(count: int, draws: int, alpha: float) -> tuple[float, float]:
    """Lower and upper one-sided Clopper-Pearson bound of a probability; each fails with probability <= alpha.

    `count` of `draws` independent draws, >= 1, are in the event; alpha is in (0, 1).
    """
    lower = betaincinv(count, draws - count + 1, alpha) if count > 0 else 0.0
    upper = betainccinv(count + 1, draws - count, alpha) if count < draws else 1.0
    return float(lower) * (1 - _INVERSE_ERROR), min(float(upper) * (1 + _INVERSE_ERROR), 1.0)


@dataclass(frozen=True)
class Event:
    """Set of outcomes by which two neighboring inputs are told apart.

    Attributes:
      first: Index of the input under which the event is likely.
      second: Index of the input under which it is unlikely.
      outcomes: Shape (m,), bool: the outcomes in the event.
    """

    first: int
    second: int
    outcomes: np.ndarray


def select_event(
    counts: np.ndarray, draws: int, alpha: float, delta: float = 0.0, pairs: Iterable[tuple[int, int]] | None = None
) -> Event:
    """Selects the inputs and the set of outcomes that promise the largest lower bound on epsilon.

    The sample is split in two by coins. On one part, single outcomes are compared over all inputs, and for the best
    pairs of inputs the outcomes are sorted by their likelihood ratio. On the other part, each set of those with the
    largest ratios is compared; counted on the first part, rare outcomes would seem to have larger ratios than they do.

    `counts` has shape (inputs, m), integers, with at least one outcome for each input; `draws` and `alpha` are those of
    the sample and of the bound to be computed. Any two inputs are neighbors without `pairs`. Raises ValueError for
    fewer than two inputs.
    """
    if len(counts) < 2:
        raise ValueError("an event needs two inputs to tell apart")
    deviations = -float(ndtri(alpha / 2))
    # The seed is fixed: the same counts give the same event.
    part = np.random.default_rng(0).binomial(counts, 0.5)
    rest = counts - part
    # Shares of no draws are 0.
    sizes = np.maximum(rest.sum(axis=1), 1)
    best, event = -math.inf, None
    for first, second in _candidates(part, deviations, delta) if pairs is None else pairs:
        order = np.argsort(-(part[first] + 0.5) / (part[second] + 0.5), kind="stable")
        # Scaled to the size of the other sample, so that the intervals are as wide as they will be there.
        inside = np.cumsum(rest[first][order]) * (draws / sizes[first])
        outside = np.cumsum(rest[second][order]) * (draws / sizes[second])
        scores = _scores(_wilson(inside, draws, deviations)[0], _wilson(outside, draws, deviations)[1], delta)
        size = int(scores.argmax())
        if event is None or scores[size] > best:
            chosen = np.zeros(counts.shape[1], bool)
            chosen[order[: size + 1]] = True
            best, event = float(scores[size]), Event(first, second, chosen)
    assert event is not None
    return event


def _candidates(counts: np.ndarray, deviations: float, delta: float) -> list[tuple[int, int]]:
    """For each outcome, the inputs that make it the most and the least likely; in both orders, the best pairs first."""
    lower, upper = _wilson(counts, np.maximum(counts.sum(axis=1, keepdims=True), 1), deviations)
    first, second = lower.argmax(axis=0), upper.argmin(axis=0)
    columns = np.arange(counts.shape[1])
    best = np.argsort(-_scores(lower[first, columns], upper[second, columns], delta), kind="stable")
    # The two ends of the domain as well: with additive noise, sets of outputs tell them apart best.
    ends = (0, len(counts) - 1)
    found = [ends, *((int(first[column]), int(second[column])) for column in best)]
    return list(dict.fromkeys(pair for one, two in found for pair in ((one, two), (two, one)) if one != two))[
        :_MOST_PAIRS
    ]


def _wilson(counts: np.ndarray, draws: np.ndarray | int, deviations: float) -> tuple[np.ndarray, np.ndarray]:
    """Approximate lower and upper bounds of probabilities, for the selection only."""
    share = np.minimum(counts / draws, 1.0)
    centre = share + deviations**2 / (2 * draws)
    half = deviations * np.sqrt(share * (1 - share) / draws + (deviations / (2 * draws)) ** 2)
    scale = 1 + deviations**2 / draws
    return np.maximum(centre - half, 0.0) / scale, (centre + half) / scale


def _scores(lower: np.ndarray, upper: np.ndarray, delta: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(lower - delta, 0.0)) - np.log(upper)


def epsilon_at_least(likely: tuple[int, int], unlikely: tuple[int, int], alpha: float, delta: float = 0.0) -> float:
    """Lower bound on epsilon, at least 0, from counts of one event under two neighboring inputs.

    The event must have been selected without these draws. `likely` and `unlikely` hold the count of the event and the
    number of independent draws, under the input that makes it likely and under the other one. `alpha`, in (0, 1), is
    the probability that the bound exceeds the true epsilon.
    """
    lower, _ = clopper_pearson(*likely, alpha / 2)
    _, upper = clopper_pearson(*unlikely, alpha / 2)
    return max(math.log((lower - delta) / upper), 0.0) if lower > delta else 0.0


def misfits(counts: np.ndarray, probabilities: np.ndarray, alpha: float) -> np.ndarray:
    """Finds the probabilities that sampled counts contradict, by an exact binomial test of each.

    Counts, integers, and claimed probabilities have shape (k, m): one row of independent draws for each input. `alpha`,
    in (0, 1), is the probability of any false finding; it is divided by the number of tests (Bonferroni). The result
    has shape (f, 2), integers: input and outcome of each contradiction.
    """
    # It takes a second of a report, which needs other functions of this module.
    from scipy.stats import binom

    draws = counts.sum(axis=1, keepdims=True)
    expected = draws * probabilities
    deviation = np.abs(counts - expected) > _LEAST_DEVIATION * np.sqrt(expected * (1 - probabilities))
    rows, columns = np.nonzero(deviation)
    found, n, p = counts[rows, columns], draws[rows, 0], probabilities[rows, columns]
    # P(count or fewer) and P(count or more).
    tails = np.minimum(binom.cdf(found, n, p), binom.sf(found - 1, n, p))
    failed = tails < alpha / (2 * counts.size)
    return np.stack([rows[failed], columns[failed]], axis=1)
