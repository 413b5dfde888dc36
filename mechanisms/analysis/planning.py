"""What a budget buys, before any data is read: the best split of epsilon between histogram and labels, by simulation.

Source: Ghazi et al. 2022, Algorithm 4 and Theorem 7, for the two parts and the split that is held against.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..core.budget import MIN_EPSILON, split_budget
from ..core.losses import Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..noise.keyed_words import KEY_BYTES
from ..noise.noisy_histogram import mean_variance, noisy_prior
from ..registry import Mechanism
from ..response.rr_on_bins import RROnBins
from ..unbiased.optimal_unbiased import Unbiased
from .model_error import linear_error, recommend, short

# A share is looked for down to this many halvings of sqrt(k / n), and up to this part of epsilon.
_HALVINGS = 10


_LARGEST_SHARE = 0.75


Measure = Callable[[Randomizer, float], Sequence[float]]
"""What is wanted small, of a randomizer whose prior cost this epsilon (0: none was released; infinity: without noise):
its value, and after it the parts of it that are to be reported."""


@dataclass(frozen=True)
class Share:
    """What the histogram may spend, and what follows: the mean of a measure over draws of the histogram's noise.

    standard_error: of that mean, as the draws tell; 0 with a single draw. parts: the means of the measure's parts.
    """

    prior_epsilon: float
    value: float
    standard_error: float
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Split:
    """What becomes of a budget of epsilon, under a measure.

    default: the histogram's share sqrt(k / n), at most epsilon / 2. best: the best share found; the default one where
    none was better. known: the value if the prior were known, and labels had all of epsilon, which a split can only
    come near. flat: the value if labels had all of epsilon and the mechanism were solved for a flat prior, without a
    histogram.
    """

    epsilon: float
    default: Share
    best: Share
    known: float
    flat: float


def expected_loss(prior: Prior, loss: Loss) -> Measure:
    """The measure of labels themselves: their expected loss under a prior."""
    return lambda randomizer, _: (randomizer.expected_loss(prior, loss),)


def plan_split(mechanism: Mechanism, prior: Prior, records: int, epsilon: float, measure: Measure, draws: int) -> Split:
    """The best split of epsilon between the histogram and the labels, found by simulation.

    The prior is taken as the truth, and its counts among the records as the histogram. From sqrt(k / n) the share is
    halved for as long as that helps, else doubled, and in the end tried a factor sqrt(2) to either side; each time the
    mechanism is solved for `draws` noised histograms. Both shares that are returned are measured with as many draws
    that the search has not seen, the same for both.

    records: n >= 1. draws: at least 1. Raises ValueError as `split_budget`, the mechanism's `solve` and the measure.
    """
    default = split_budget(epsilon, len(prior.labels), records)[0]
    searched, fresh = range(draws), range(draws, 2 * draws)

    def share(prior_epsilon: float, numbers: Sequence[int]) -> Share:
        values = simulate(mechanism, prior, records, epsilon, prior_epsilon, measure, numbers)
        means = [float(mean) for mean in values.mean(axis=0)]
        return Share(prior_epsilon, means[0], _standard_error(values[:, 0]), tuple(means[1:]))

    @cache
    def value(prior_epsilon: float) -> float:
        return share(prior_epsilon, searched).value

    def tried(prior_epsilon: float, best: float) -> float:
        within = max(MIN_EPSILON, default / 2**_HALVINGS) <= prior_epsilon <= _LARGEST_SHARE * epsilon
        return prior_epsilon if within and value(prior_epsilon) < value(best) else best

    best = default
    for factor in (0.5, 2.0):
        while (nearer := tried(short(best * factor, 3), best)) != best:
            best = nearer
        if best != default:
            break
    middle = best
    for factor in (math.sqrt(0.5), math.sqrt(2.0)):
        best = tried(short(middle * factor, 3), best)
    found, usual = share(best, fresh), share(default, fresh)
    flat = Prior(prior.labels, np.ones(len(prior.labels)))
    return Split(
        epsilon=epsilon,
        default=usual,
        best=found if found.value < usual.value else usual,
        known=measure(mechanism.solve(prior, epsilon), math.inf)[0],
        flat=measure(mechanism.solve(flat, epsilon), 0.0)[0],
    )


def simulate(
    mechanism: Mechanism,
    prior: Prior,
    records: int,
    epsilon: float,
    prior_epsilon: float,
    measure: Measure,
    draws: Sequence[int],
) -> np.ndarray:
    """What a measure says of the mechanism solved for a noised histogram, for each draw of its noise.

    The noise is that of a job, `noisy_prior`, under a public key for each draw: it protects nothing, for nothing is
    private here. draws: (d,) their numbers; the same number gives the same noise. Returns (d, p) float64 for a measure
    of p numbers.
    """
    counts = expected_counts(prior, records)
    e1, e2 = split_budget(epsilon, len(prior.labels), records, prior_epsilon)
    noised = (noisy_prior(prior.labels, counts, e1, _public_key(draw)) for draw in draws)
    return np.array([measure(mechanism.solve(each, e2), e1) for each in noised])


def _standard_error(losses: np.ndarray) -> float:
    """Of their mean. 0 for a single one, infinite where a loss is."""
    if not np.all(np.isfinite(losses)):
        return math.inf
    return float(losses.std(ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0


def _public_key(draw: int) -> bytes:
    return hashlib.blake2b(draw.to_bytes(8, "little"), digest_size=KEY_BYTES, person=b"labeldp plan").digest()


def expected_counts(prior: Prior, records: int) -> np.ndarray:
    """(k,) int64 counts of the labels that sum to the records: each its share, rounded by largest remainders."""
    shares = prior.weights * records
    counts = np.floor(shares).astype(np.int64)
    missing = records - int(counts.sum())
    counts[np.argsort(counts - shares, kind="stable")[:missing]] += 1
    return counts


@dataclass(frozen=True)
class ModelPlan:
    """How a budget of epsilon is best spent on labels for a model.

    mechanism: as on the command line, NAME or NAME:PARAMETER=VALUE. split: of its `linear_error`, whose parts are the
    bias and the variance. unbiased: the error of that mechanism, with the share that is best for the bias bound.
    rr_on_bins: the error of that one, with its own best share.
    """

    mechanism: str
    split: Split
    unbiased: float
    rr_on_bins: float


def plan_model(
    prior: Prior, records: int, epsilon: float, features: int, explained: float | None, draws: int
) -> ModelPlan:
    """The mechanism and the split with the least `linear_error`, one after the other.

    The bias bound is recommended for labels that have all of epsilon, and the split found for it by `plan_split`:
    about 50 randomizers of bounded bias with 5 draws. It is held against rr_on_bins, whose best split is another.
    Raises ValueError as `plan_split` and `recommend`.
    """

    def measure(randomizer: Randomizer, prior_epsilon: float) -> Sequence[float]:
        known = mean_variance(prior, records, prior_epsilon)
        error = linear_error(randomizer, prior, records, features, explained, known)
        return error.total, error.bias, error.variance

    def split_for(mechanism: Mechanism) -> Split:
        return plan_split(mechanism, prior, records, epsilon, measure, draws)

    advice = recommend(prior, epsilon, records, features, explained)
    bins = split_for(RROnBins())
    split = bins if advice.bias is None else split_for(advice.solver())
    unbiased = simulate(
        Unbiased(), prior, records, epsilon, split.best.prior_epsilon, measure, range(draws, 2 * draws)
    )[:, 0].mean()
    better = split.best.value < bins.best.value
    return ModelPlan(
        mechanism=advice.mechanism if better else "rr_on_bins",
        split=split if better else bins,
        unbiased=float(unbiased),
        rr_on_bins=bins.best.value,
    )
