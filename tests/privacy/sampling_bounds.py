"""Lower bounds on epsilon from samples, and exact tests of sampled frequencies.

A mechanism with (epsilon, delta)-DP satisfies P(S | u) <= exp(epsilon) P(S | v) + delta for every set S of outcomes and
all neighboring inputs u and v. So samples under u and v bound epsilon from below. The inputs and the set are selected
on one sample, and the bound is computed on another one by Clopper-Pearson intervals: it holds with the stated
probability, however the selection was made (Jagielski, Ullman, Oprea 2020, "Auditing Differentially Private Machine
Learning").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import betainccinv, betaincinv, ndtri
from scipy.stats import binom

# Pairs of inputs for which sets of several outcomes are compared, the most promising first.
_MOST_PAIRS = 64
# Inverses of the beta distribution are accurate to about 1e-12; bounds are widened by more than that.
_INVERSE_ERROR = 1e-9
# Cells that deviate by fewer standard deviations are not tested. Fewer tests never cause a false finding.
_LEAST_DEVIATION = 3.0


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
    draws = counts.sum(axis=1, keepdims=True)
    expected = draws * probabilities
    deviation = np.abs(counts - expected) > _LEAST_DEVIATION * np.sqrt(expected * (1 - probabilities))
    rows, columns = np.nonzero(deviation)
    found, n, p = counts[rows, columns], draws[rows, 0], probabilities[rows, columns]
    # P(count or fewer) and P(count or more).
    tails = np.minimum(binom.cdf(found, n, p), binom.sf(found - 1, n, p))
    failed = tails < alpha / (2 * counts.size)
    return np.stack([rows[failed], columns[failed]], axis=1)
