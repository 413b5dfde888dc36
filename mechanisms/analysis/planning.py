"""Planning of a release before any data is read: the split of epsilon between prior and labels, and between labels.

The best split between prior and labels is found by simulation. Source: Ghazi et al. 2022, Algorithm 4 for the two
stages, Theorem 7 for the default split. There is at least one record, and at least one draw. `explained` is the share
of the label variance that the features explain, in [0, 1]; None if unknown.

All labels of a record may change at once, so their epsilons add up. What each of them needs depends on how many labels
its domain has: the split between them is chosen from the label domains alone, which are public.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from ..center.residuals import COARSE, coarse_randomizer
from ..core.budget import LEAST_RESIDUAL_SHARE, MIN_EPSILON, RESIDUAL_SHARE, round_down, split_budget, within_decimal
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot
from ..noise.keyed_words import KEY_BYTES
from ..noise.noisy_histogram import mean_variance, noisy_priors
from ..registry import Mechanism, prior_share
from ..response.rr_on_bins import RROnBins
from ..unbiased.optimal_unbiased import BiasLimited, Unbiased
from .model_error import linear_error, recommend, significant

# The search for the prior's share of epsilon goes down to this many halvings of the default.
_MAX_HALVINGS = 10
# The search goes up to this fraction of epsilon.
_LARGEST_SHARE = 0.75

Measure = Callable[[Randomizer, float], Sequence[float]]
"""Objective to minimize: a function of a randomizer and of the epsilon that its prior cost (0 without a histogram,
infinite for a histogram without noise). Returns the objective first, then the parts of it to report."""

_EPSILON_STEPS = 32
"""Steps of epsilon that are compared, at least; and at least so many for each label."""
_EPSILON_STEPS_A_LABEL = 4
_ERROR_DIGITS = 9
"""Decimal digits of an error that are compared, so that the last bits of a sum decide nothing."""


@dataclass(frozen=True)
class PriorShare:
    """Epsilon of the histogram, and the resulting mean of a measure over draws of the histogram's noise.

    Attributes:
      prior_epsilon: Epsilon of the histogram.
      value: Mean of the measure.
      standard_error: Standard error of that mean, estimated from the draws; 0 with a single draw, infinite if a
        value is.
      parts: Means of the measure's parts.
    """

    prior_epsilon: float
    value: float
    standard_error: float
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class SplitPlan:
    """Default and best split of a budget under a measure, with two values for comparison.

    Attributes:
      epsilon: Total budget of histogram and labels.
      default: The default share of the histogram: that of a job with this mechanism.
      best: The best share found; the default one if no other is better.
      known_prior: Value if the prior were known and the labels had all of epsilon; a split can only approach it.
      uniform_prior: Value without a histogram: the mechanism is solved for a uniform prior with all of epsilon.
    """

    epsilon: float
    default: PriorShare
    best: PriorShare
    known_prior: float
    uniform_prior: float


def expected_loss(prior: Prior, loss: Loss) -> Measure:
    """Measure of the labels themselves: their expected loss, without parts."""
    return lambda randomizer, _: (randomizer.expected_loss(prior, loss),)


def plan_split(
    mechanism: Mechanism,
    prior: Prior,
    records: int,
    epsilon: float,
    measure: Measure,
    draws: int,
    residuals: bool = False,
) -> SplitPlan:
    """Finds the best split of epsilon between the histogram and the labels by simulation.

    The given prior is taken as the true distribution. Starting from the default, the share of the histogram is halved
    as long as the measure improves; if it does not, the share is doubled. Finally the best share is tried times and
    divided by sqrt(2). Each share is evaluated by solving the mechanism for `draws` noisy histograms. The two shares
    that are returned are evaluated with as many new draws, the same for both.

    The histogram of residuals around a center gets another share by default. Raises ValueError if `split_budget`, the
    mechanism or the measure does not support the arguments.
    """
    most, least = prior_share(getattr(mechanism, "name", "")), Fraction(0)
    if residuals:
        most, least = RESIDUAL_SHARE, LEAST_RESIDUAL_SHARE
    default = split_budget(epsilon, len(prior.labels), records, most=most, least=least).prior
    searched, fresh = range(draws), range(draws, 2 * draws)

    def share(prior_epsilon: float, numbers: Sequence[int]) -> PriorShare:
        values = simulate(mechanism, prior, records, epsilon, prior_epsilon, measure, numbers)
        means = [float(mean) for mean in values.mean(axis=0)]
        return PriorShare(prior_epsilon, means[0], _standard_error(values[:, 0]), tuple(means[1:]))

    @cache
    def value(prior_epsilon: float) -> float:
        return share(prior_epsilon, searched).value

    # Halvings are rounded to three digits, so the last one may be a little below this many halvings.
    smallest = max(MIN_EPSILON, 0.98 * default / 2**_MAX_HALVINGS)

    def tried(prior_epsilon: float, best: float) -> float:
        within = smallest <= prior_epsilon <= _LARGEST_SHARE * epsilon
        return prior_epsilon if within and value(prior_epsilon) < value(best) else best

    best = default
    for factor in (0.5, 2.0):
        while (nearer := tried(significant(best * factor, 3), best)) != best:
            best = nearer
        if best != default:
            break
    middle = best
    for factor in (math.sqrt(0.5), math.sqrt(2.0)):
        best = tried(significant(middle * factor, 3), best)
    found, usual = share(best, fresh), share(default, fresh)
    uniform = Prior(prior.labels, np.ones(len(prior.labels)))
    return SplitPlan(
        epsilon=epsilon,
        default=usual,
        best=found if found.value < usual.value else usual,
        known_prior=measure(mechanism.solve(prior, epsilon), math.inf)[0],
        uniform_prior=measure(mechanism.solve(uniform, epsilon), 0.0)[0],
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
    """Evaluates a measure of the mechanism solved for a noisy histogram, for several draws of the noise.

    The noise is that of a job, `noisy_counts`, but under public keys, because nothing is private here.

    The same number in `draws` gives the same noise. The result has shape (d, p) for d draws and the p numbers of the
    measure, float64. Raises ValueError if `split_budget`, the mechanism or the measure does not support the arguments.
    """
    counts = expected_counts(prior, records)
    split = split_budget(epsilon, len(prior.labels), records, prior_epsilon)
    noisy = noisy_priors(prior.labels, counts, split.prior, [_public_key(draw) for draw in draws])
    return np.array([measure(mechanism.solve(each, split.labels), split.prior) for each in noisy])


def _standard_error(losses: np.ndarray) -> float:
    """Standard error of the mean: 0 for a single loss, infinite if a loss is infinite."""
    if not np.all(np.isfinite(losses)):
        return math.inf
    return float(losses.std(ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0


def _public_key(draw: int) -> bytes:
    return hashlib.blake2b(draw.to_bytes(8, "little"), digest_size=KEY_BYTES, person=b"labeldp plan").digest()


def expected_counts(prior: Prior, records: int) -> np.ndarray:
    """Histogram that a prior predicts, rounded by the largest remainder method.

    Shape (k,), int64; the counts sum to `records`.
    """
    shares = prior.weights * records
    counts = np.floor(shares).astype(np.int64)
    missing = records - int(counts.sum())
    counts[np.argsort(counts - shares, kind="stable")[:missing]] += 1
    return counts


@dataclass(frozen=True)
class ModelPlan:
    """Best mechanism and split of a budget for labels that train a model.

    Attributes:
      mechanism: Recommended mechanism in command line form, NAME or NAME:PARAMETER=VALUE.
      split: Split for its `linear_error`, whose parts are the bias and the variance.
      unbiased: Model error of `unbiased`, with the share that is best for the recommended bias bound.
      rr_on_bins: Model error of `rr_on_bins`, with its own best share.
    """

    mechanism: str
    split: SplitPlan
    unbiased: float
    rr_on_bins: float


def plan_model(
    prior: Prior,
    records: int,
    epsilon: float,
    features: int,
    explained: float | None,
    draws: int,
    residuals: bool = False,
) -> ModelPlan:
    """Finds the mechanism with the smallest `linear_error`, then its best split.

    The bias bound is that of `recommend` for labels that have all of epsilon; `plan_split` then finds its split. With 5
    draws this solves about 50 randomizers of bounded bias. The result is compared with `rr_on_bins` at its own best
    split.

    `draws` is the number of simulated histograms per share. Raises ValueError if an argument is out of range, or a
    mechanism does not support the prior or the epsilon.
    """

    def measure(randomizer: Randomizer, prior_epsilon: float) -> Sequence[float]:
        known = mean_variance(prior, records, prior_epsilon)
        error = linear_error(randomizer, prior, records, features, explained, known)
        return error.total, error.bias, error.variance

    def split_for(mechanism: Mechanism) -> SplitPlan:
        return plan_split(mechanism, prior, records, epsilon, measure, draws, residuals)

    bias = recommend(prior, epsilon, records, features, explained)
    bins = split_for(RROnBins())
    split = bins if bias is None else split_for(BiasLimited(bias) if bias else Unbiased())
    unbiased = simulate(
        Unbiased(), prior, records, epsilon, split.best.prior_epsilon, measure, range(draws, 2 * draws)
    )[:, 0].mean()
    better, name = split.best.value < bins.best.value, f"bias_limited:bias={bias:g}" if bias else "unbiased"
    return ModelPlan(
        mechanism=name if better else "rr_on_bins",
        split=split if better else bins,
        unbiased=float(unbiased),
        rr_on_bins=bins.best.value,
    )


def label_shares(epsilon: float, domains: Sequence[np.ndarray], mechanism: Mechanism) -> list[Fraction]:
    """Chooses the share of each label for which the sum of the relative errors is least.

    The relative error of a label is E (z - y)^2 / Var y, for a released label z of a label y that is equally often
    each one of its domain: 1 where z says as little as a constant. Labels whose domains have the same shape get equal
    shares, so labels that are all alike get 1 / m each. Between shapes, all splits in steps of epsilon / 32 are
    compared, because errors need not be convex in epsilon. Each label gets at least 1 / (2 m): of a mechanism with bias
    it could be best to give up a label, but it was asked for.

    `epsilon` is the budget of all labels of a record together; the m domains have shapes (k,), ascending float64. The m
    shares are positive, sum to 1 and are the same on every machine.
    """
    shapes = [_shape(domain) for domain in domains]
    sizes = Counter(shapes)
    if len(sizes) == 1:
        return [Fraction(1, len(domains))] * len(domains)
    steps = max(_EPSILON_STEPS, _EPSILON_STEPS_A_LABEL * len(domains))
    # By steps that are spent: the least error, and the steps of each shape so far.
    least = {shape: math.ceil(Fraction(steps * size, 2 * len(domains))) for shape, size in sizes.items()}
    spare = steps - sum(least.values())
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for shape, size in sizes.items():
        domain = domains[shapes.index(shape)]
        errors = {
            number: size * _relative_error(domain, mechanism, epsilon * number / (steps * size))
            for number in range(least[shape], least[shape] + spare + 1)
        }
        extended: dict[int, tuple[float, tuple[int, ...]]] = {}
        for spent, (error, numbers) in best.items():
            for number, own in errors.items():
                candidate = float(f"{error + own:.{_ERROR_DIGITS}e}"), (*numbers, number)
                if spent + number <= steps and candidate < extended.get(spent + number, (math.inf, ())):
                    extended[spent + number] = candidate
        best = extended
    numbers = dict(zip(sizes, best[steps][1], strict=True))
    return [Fraction(numbers[shape], steps * sizes[shape]) for shape in shapes]


def _shape(domain: np.ndarray) -> tuple[float, ...]:
    """The domain moved and scaled to [0, 1], on which relative errors do not depend."""
    width = domain[-1] - domain[0]
    return tuple(np.round((domain - domain[0]) / width, _ERROR_DIGITS).tolist()) if width else (0.0,)


def _relative_error(domain: np.ndarray, mechanism: Mechanism, epsilon: float) -> float:
    if len(domain) == 1:
        return 0.0
    try:
        prior, randomizer = coarse_randomizer(Prior(domain, np.ones(len(domain))), mechanism, epsilon, COARSE)
    except ValueError:
        return math.inf
    spread = dot(prior.weights, (prior.labels - dot(prior.weights, prior.labels)) ** 2)
    return randomizer.expected_loss(prior, SQUARED) / spread


def split_exactly(total: float, shares: Sequence[Fraction]) -> list[float]:
    """Splits an epsilon or delta >= 0 so that the parts add up to at most the total, in exact arithmetic.

    The shares are positive and sum to 1. The exact sum of the parts, rounded up to a float, is the total, or the float
    below if the total is above the decimal that it was read from.
    """
    total = within_decimal(total)
    parts = [round_down(Fraction(total) * share) for share in shares[:-1]]
    return [*parts, round_down(Fraction(total) - sum(map(Fraction, parts)))]
