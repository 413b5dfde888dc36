"""Error of a linear model trained on privatized labels, and the label bias for which it is smallest.

A model inherits the bias of its labels, while their variance averages out (Badanidiyuru et al. 2023, Section 3 and
Theorem 5). `model_error` derives the sum of the two for least squares, `ridge_error` for ridge regression.

`explained` is the share of the label variance that the features explain, in [0, 1]; None if unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..core.prior import Prior
from ..core.randomizer import Randomizer, variances
from ..core.reproducible import dot
from ..response.rr_on_bins import RROnBins
from ..unbiased.optimal_unbiased import BiasLimited, Unbiased

# `recommend` tries bias bounds down to the largest one divided by 2 to this power.
_HALVINGS = 7


@dataclass(frozen=True)
class ModelError:
    """Expected squared error of a model trained on privatized labels, in squared units of the label.

    The error is in addition to that of the best model without privacy and with unlimited records.

    Attributes:
      bias: Part caused by the bias of the labels and, for `ridge_error`, by the regularization. For `model_error` it
        does not depend on the number of records.
      variance: Part caused by the noise. For `model_error` it decreases as 1/n for n records.
    """

    bias: float
    variance: float

    @property
    def total(self) -> float:
        """Sum of bias and variance."""
        return self.bias + self.variance


def model_error(
    randomizer: Randomizer, prior: Prior, records: int, features: int, explained: float | None = None
) -> ModelError:
    """Bounds the error of least squares with a constant and d features on privatized labels.

    Let f(x) = E[y | x], and let b(y) and v(y) be the bias and the variance of the randomizer at label y. Privatized
    labels have the regression function f(x) + E[b(y) | x] and the variance E[v(y) | x] + Var(y + b(y) | x) around it.
    If f is linear in the features, least squares converges to f plus the best linear fit of E[b(y) | x]. Therefore

        bias     <=  E (E[b(y) | x])^2  =  (E b)^2 + r Var(b)
        variance  =  (d + 1) / n  (E v + (1 - r) Var(y + b)),

    with expectations over the prior, to first order in (d + 1) / n. r is the share of the label variance that the
    features explain. It is assumed to be the same for b(y) and y + b(y), which holds if b is affine in y. The noise is
    assumed to be independent of a record's leverage. If r is unknown, both parts are bounds for every r: the bias is
    computed with r = 1, the variance with r = 0. If f is not linear, its misfit adds to the error, equally for every
    mechanism. For other models, d + 1 is the effective number of parameters.

    Raises ValueError unless records > features + 1 >= 1 and `explained` is in [0, 1] or None, and if the prior is over
    another domain.
    """
    _check(randomizer, prior, features, explained)
    if records <= features + 1:
        raise ValueError(f"records must be more than features + 1 = {features + 1}, not {records}")
    bias = randomizer.bias()
    kept, unexplained = (1.0, 1.0) if explained is None else (explained, 1 - explained)
    return ModelError(
        bias=dot(prior.weights, bias) ** 2 + kept * _variance(prior, bias),
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
    """Computes the error of ridge regression on privatized labels, with the penalty that suits the noise.

    The model is that of `model_error`, but regularized: for d whitened features with exchangeable coefficients it
    multiplies the least squares coefficients by a factor s. Let c be the slope of the line closest to
    E[M(y)] = y + b(y), R the variance of b around that line, S = r Var(y) the variance that the features explain, N the
    variance of the noise divided by n, and V = d N. Without noise, the fitted values have the variance
    G = c^2 S + r R, and the best factor is s = G / (G + V). The constant is the mean of the labels combined with the
    mean of the noisy histogram, whose variance is A, in proportion to their precisions: w = A / (A + N) is the weight
    of the former. Then

        bias      =  w^2 (E b)^2 + (1 - s c)^2 S + s^2 r R
        variance  =  w N + s^2 V.

    With many records s = 1, and except for the constant the result is that of `model_error`. With few records the
    model predicts the mean and its error is S, however many features there are. `labeldp evaluate --model linear`
    trains such a model, and docs/results compares it with this formula.

    `mean_variance` is A: 0 if the mean of the labels is known, infinite if there is no histogram. Raises ValueError
    unless records >= 1, features >= 0, `explained` is in [0, 1] and A >= 0, and if the prior is over another domain.
    """
    _check(randomizer, prior, features, explained)
    if records < 1:
        raise ValueError(f"records must be at least 1, not {records}")
    if not mean_variance >= 0:
        raise ValueError(f"mean_variance must be at least 0, not {mean_variance:g}")
    bias, weights = randomizer.bias(), prior.weights
    spread = _variance(prior, prior.labels)
    centred = prior.labels - dot(weights, prior.labels)
    slope = 1 + dot(weights, centred * bias) / spread if spread else 1.0
    residual = max(_variance(prior, bias) - (slope - 1) ** 2 * spread, 0.0)
    signal, fitted = explained * spread, explained * (slope**2 * spread + residual)
    noise = _noise(randomizer, prior, 1 - explained) / records
    factor = _share(fitted, features * noise)
    weight = _share(mean_variance, noise)
    return ModelError(
        bias=(weight * dot(weights, bias)) ** 2 + (1 - factor * slope) ** 2 * signal + factor**2 * explained * residual,
        variance=weight * noise + factor**2 * features * noise,
    )


def _share(one: float, other: float) -> float:
    """one / (one + other); one may be infinite; 0 if both are 0."""
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
    """Computes `ridge_error` if the share that the features explain is known, otherwise the bounds of `model_error`.

    The bounds ignore `mean_variance`. Raises ValueError if an argument is out of range, or the prior is over another
    domain.
    """
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
    """Variance of a privatized label around its regression function."""
    own = dot(prior.weights, variances(randomizer))
    return own + unexplained * _variance(prior, prior.labels + randomizer.bias())


def _variance(prior: Prior, values: np.ndarray) -> float:
    return dot(prior.weights, (values - dot(prior.weights, values)) ** 2)


def recommend(
    prior: Prior, epsilon: float, records: int, features: int, explained: float | None = None
) -> float | None:
    """Finds the bias bound of `bias_limited` with the smallest `linear_error`, for a known prior.

    It is a fraction of the label range; 0 stands for `unbiased`, None for no bound, which is `rr_on_bins`. The bounds
    tried are 0, the largest bias of `rr_on_bins` (larger bounds have no effect) divided by powers of 2, and then the
    best one times and divided by sqrt(2), all rounded to two significant digits.

    Raises ValueError if an argument is out of range, or a mechanism does not support the prior or the epsilon.
    """
    free = RROnBins().solve(prior, epsilon)
    span = float(prior.labels[-1] - prior.labels[0])
    largest = free.certificate().max_bias / span if span else 0.0

    def error(randomizer: Randomizer) -> float:
        return linear_error(randomizer, prior, records, features, explained).total

    errors = {0.0: error(Unbiased().solve(prior, epsilon))}

    def least_of(biases: Iterable[float]) -> float:
        for bias in (significant(each, 2) for each in biases):
            if bias < largest and bias not in errors:
                errors[bias] = error(BiasLimited(bias).solve(prior, epsilon))
        return min(errors, key=lambda bias: errors[bias])

    best = least_of(largest / 2**halvings for halvings in range(1, _HALVINGS + 1))
    best = least_of((best / math.sqrt(2), best * math.sqrt(2)))
    return None if error(free) < errors[best] else best


def significant(value: float, digits: int) -> float:
    """Rounds to significant digits, so that a user can copy the value from a table to a command line."""
    return float(f"{value:.{digits}g}")
