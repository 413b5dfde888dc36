"""What a model loses when it is trained on privatized labels, and which bias of the labels makes it least.

That a model inherits the bias of its labels, while their variance averages out: Badanidiyuru et al. 2023, section 3 and
Theorem 5. The sum of the two is derived at `model_error` and, for a model that expects noise, at `ridge_error`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..registry import Mechanism
from ..response.rr_on_bins import RROnBins
from ..unbiased.optimal_unbiased import BiasLimited, Unbiased
from .quality import variances

_OCTAVES = 7


@dataclass(frozen=True)
class ModelError:
    """The expected squared error of a model trained on privatized labels, beyond what it would have without privacy
    and with any number of records. bias: the part that stays. variance: the part that shrinks as 1/n."""

    bias: float
    variance: float

    @property
    def total(self) -> float:
        """Both parts. In squared units of the label."""
        return self.bias + self.variance


def model_error(
    randomizer: Randomizer, prior: Prior, records: int, features: int, explained: float | None = None
) -> ModelError:
    """What least squares with a constant and d features makes of the randomizer's labels.

    Let f(x) = E[y | x], and b(y), v(y) the bias and the variance of the randomizer at label y. Privatized labels have
    the regression function f(x) + E[b(y) | x] and, around it, the variance E[v(y) | x] + Var(y + b(y) | x). Where f is
    linear in the features, least squares converges to f plus the best linear fit of E[b(y) | x], so that

        bias     <=  E (E[b(y) | x])^2  =  (E b)^2 + r Var(b)
        variance  =  (d + 1) / n  (E v + (1 - r) Var(y + b)),

    expectations over the prior, to first order in (d + 1) / n. r is the part of the variance of the labels that the
    features explain, assumed to be the same for b(y) and y + b(y), which it is where b is affine in y; the noise is
    assumed not to grow with a record's leverage. Without r, both parts are bounds for any r: 1 for the bias, 0 for the
    variance. Where f is not linear, its own misfit comes on top, the same for every mechanism; for other models d + 1
    is their effective number of parameters.

    records: n > features + 1. features: d >= 0. explained: r in [0, 1], None where it is unknown.
    Raises ValueError for anything else, or a prior over another domain.
    """
    _check(randomizer, prior, features, explained)
    if records <= features + 1:
        raise ValueError(f"records must be more than features + 1 = {features + 1}, not {records}")
    bias = randomizer.bias()
    kept, unexplained = (1.0, 1.0) if explained is None else (explained, 1 - explained)
    return ModelError(
        bias=float(prior.weights @ bias) ** 2 + kept * _variance(prior, bias),
        variance=(features + 1) / records * _noise(randomizer, prior, unexplained),
    )


def ridge_error(
    randomizer: Randomizer,
    prior: Prior,
    records: int,
    features: int,
    explained: float,
    mean_variance: float = 0.0,
) -> ModelError:
    """What ridge regression makes of the randomizer's labels, when its penalty suits the noise.

    As `model_error`, but the model expects noise: of d whitened features, whose coefficients are alike a priori, it
    shrinks what least squares would find, by a factor s. Let c be the slope of the line closest to E[M(y)] = y + b(y),
    R the variance that the line leaves of b, S = r Var(y) what the features explain, N the variance of the noise over
    n, and V = d N. What is fitted has the variance G = c^2 S + r R without noise; the best factor for it is
    s = G / (G + V). The constant is the mean of the labels and that of the noised histogram, whose variance is A, by
    their precisions: w = A / (A + N) is the former's weight. Then

        bias      =  w^2 (E b)^2 + (1 - s c)^2 S + s^2 r R
        variance  =  w N + s^2 V.

    Where there are many records, s = 1 and these are the lines of `model_error`, but for the constant; where there are
    few, the model says the mean, and the error is S: more features than the labels can pay for cost no more than that.
    `labeldp evaluate --model linear` is such a model, and docs/results holds this against it.

    records: n >= 1. features: d >= 0. explained: r in [0, 1]. mean_variance: A >= 0; 0 where the mean of the labels is
    known, infinite where it is not. Raises ValueError for anything else, or a prior over another domain.
    """
    _check(randomizer, prior, features, explained)
    if records < 1:
        raise ValueError(f"records must be at least 1, not {records}")
    if not mean_variance >= 0:
        raise ValueError(f"mean_variance must be at least 0, not {mean_variance:g}")
    bias, weights = randomizer.bias(), prior.weights
    spread = _variance(prior, prior.labels)
    centred = prior.labels - weights @ prior.labels
    slope = 1 + float(weights @ (centred * bias)) / spread if spread else 1.0
    left = max(_variance(prior, bias) - (slope - 1) ** 2 * spread, 0.0)
    signal, fitted = explained * spread, explained * (slope**2 * spread + left)
    noise = _noise(randomizer, prior, 1 - explained) / records
    factor = _part(fitted, features * noise)
    weight = _part(mean_variance, noise)
    return ModelError(
        bias=(weight * float(weights @ bias)) ** 2 + (1 - factor * slope) ** 2 * signal + factor**2 * explained * left,
        variance=weight * noise + factor**2 * features * noise,
    )


def _part(one: float, other: float) -> float:
    """one / (one + other); one may be infinite. Of nothing, nothing."""
    if math.isinf(one):
        return 1.0
    return one / (one + other) if one + other else 0.0


def linear_error(
    randomizer: Randomizer,
    prior: Prior,
    records: int,
    features: int,
    explained: float | None = None,
    mean_variance: float = 0.0,
) -> ModelError:
    """`ridge_error` where it is known how much the features explain, else the bounds of `model_error`."""
    if explained is None:
        return model_error(randomizer, prior, records, features)
    return ridge_error(randomizer, prior, records, features, explained, mean_variance)


def _check(randomizer: Randomizer, prior: Prior, features: int, explained: float | None) -> None:
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the prior and the randomizer have different label domains")
    if features < 0:
        raise ValueError(f"features must be at least 0, not {features}")
    if explained is not None and not 0 <= explained <= 1:
        raise ValueError(f"explained must be between 0 and 1, not {explained:g}")


def _noise(randomizer: Randomizer, prior: Prior, unexplained: float) -> float:
    """The variance of a privatized label around its regression function."""
    own = float(prior.weights @ variances(randomizer))
    return own + unexplained * _variance(prior, prior.labels + randomizer.bias())


def _variance(prior: Prior, values: np.ndarray) -> float:
    return float(prior.weights @ (values - prior.weights @ values) ** 2)


@dataclass(frozen=True)
class Recommendation:
    """The bias bound whose labels make the best model. bias: a fraction of the label range, for `bias_limited`; 0 is
    `unbiased`, and None says that no bound is best, which is `rr_on_bins`. error, unbiased, rr_on_bins: of the model,
    with the best bound, without bias, and without a bound."""

    bias: float | None
    error: ModelError
    unbiased: ModelError
    rr_on_bins: ModelError

    @property
    def mechanism(self) -> str:
        """As on the command line: NAME or NAME:PARAMETER=VALUE."""
        if self.bias is None:
            return "rr_on_bins"
        return f"bias_limited:bias={self.bias:g}" if self.bias else "unbiased"

    def solver(self) -> Mechanism:
        """The mechanism itself."""
        if self.bias is None:
            return RROnBins()
        return BiasLimited(self.bias) if self.bias else Unbiased()


def recommend(
    prior: Prior, epsilon: float, records: int, features: int, explained: float | None = None
) -> Recommendation:
    """The bias bound of `bias_limited` with the least `linear_error`, at what the labels may spend, for a known prior.

    Bounds are tried from the largest bias of `rr_on_bins`, above which nothing binds, down by factors of 2 and then of
    its root, besides 0; to two digits. Raises ValueError as `linear_error` and the mechanisms.
    """
    free = RROnBins().solve(prior, epsilon)
    unbound = linear_error(free, prior, records, features, explained)
    found: dict[float, ModelError] = {}
    span = float(prior.labels[-1] - prior.labels[0])
    largest = free.certificate().max_bias / span if span else 0.0

    def least_of(biases: Iterable[float]) -> float:
        for bias in (short(each, 2) for each in biases):
            if bias < largest and bias not in found:
                found[bias] = linear_error(BiasLimited(bias).solve(prior, epsilon), prior, records, features, explained)
        return min(found, key=lambda bias: found[bias].total)

    found[0.0] = linear_error(Unbiased().solve(prior, epsilon), prior, records, features, explained)
    best = least_of(largest / 2**octave for octave in range(1, _OCTAVES + 1))
    best = least_of((best / math.sqrt(2), best * math.sqrt(2)))
    if unbound.total < found[best].total:
        return Recommendation(None, unbound, found[0.0], unbound)
    return Recommendation(best, found[best], found[0.0], unbound)


def short(value: float, digits: int) -> float:
    """The value with so few digits that whoever reads it off can give it to a command."""
    return float(f"{value:.{digits}g}")
