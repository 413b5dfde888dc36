"""Utility of randomized labels: their error for every label, the error of a model trained on them, and their worth.

Everything is computed from released and public facts, the randomizer and a noised prior among them: no label enters, so
it may be published. The worth of a label is the number of true labels, per released label, on which a model has the
same error: noise averages out over the records of a model, the bias that a debiasing line leaves does not, so the worth
falls with the number of records per parameter. Unbiased labels keep the best predictor of squared and Poisson loss
(Badanidiyuru et al. 2023, "Optimal Unbiased Randomizers for Regression with Label DP", Theorem 5). docs/report.md
derives the formulas.

`records_per_parameter` is the number of records n divided by that of parameters p, > 0. `explained` is the share R of
the label variance that the features explain, in [0, 1]; None if unknown.

A model of the features learns E[g(y) | x] of a function g of the label, such as the bias of a mechanism. How much of
the variance of g(y) that is depends on g: features that tell large labels from small ones do not tell adjacent labels
apart. Let t be the normal score of the label: y = F^-1(Phi(t)) for its distribution function F. If t and its prediction
from the features are jointly normal with squared correlation rho, then by Mehler's formula

    Var E[g(y) | x] = sum over j >= 1 of rho^j c_j(g)^2,

where c_j(g) = E[g(y) He_j(t)] / sqrt(j!) are the Hermite coefficients of g (Lancaster 1957). The sum is at most rho
Var(g(y)), and much less for a g that rises and falls. rho is chosen so that the sum for g(y) = y is the given share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from ..core.label_classes import LabelClasses
from ..core.prior import Prior
from ..core.randomizer import Randomizer, solved_randomizer, variances
from ..core.reproducible import dot, exp
from .model_error import ModelError

# A bias below this fraction of the label range comes from the rounding to integer weights.
_BIAS_TOLERANCE = 1e-9
# Hermite coefficients that are computed; the variance that they leave out is counted with the factor of the last.
_TERMS = 64
LARGEST_ERROR = 0.25
"""Standard error of the share that features explain above which the estimate says nothing."""

_BISECTIONS = 50


@dataclass(frozen=True, eq=False)
class Utility:
    """Moments of the output M(y), for every label y and for a label drawn from the prior, in units of the label.

    Attributes:
      labels: Shape (k,); the label domain.
      weights: Shape (k,); the prior's weights.
      bias: Shape (k,); E[M(y)] - y.
      deviation: Shape (k,); standard deviation of M(y).
      has_line: False if the labels are to be used as they are: without bias, or with that of clipping alone.
    """

    labels: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    deviation: np.ndarray
    has_line: bool = True

    @property
    def error(self) -> np.ndarray:
        """Root mean squared error of M(y) for every label, shape (k,): error^2 = bias^2 + deviation^2."""
        return np.hypot(self.bias, self.deviation)

    @property
    def unbiased(self) -> bool:
        """True if no label has a bias above 1e-9 of the label range, which integer rounding may leave."""
        return float(np.abs(self.bias).max()) <= _BIAS_TOLERANCE * float(self.labels[-1] - self.labels[0])

    @property
    def noise(self) -> float:
        """Mean of the variance of M(y) over the prior."""
        return dot(self.weights, self.deviation**2)

    @property
    def squared_error(self) -> float:
        """Mean of (M(y) - y)^2 over the prior."""
        return dot(self.weights, self.error**2)

    @property
    def variance(self) -> float:
        """Variance of the label under the prior."""
        return _covariance(self.weights, self.labels, self.labels)

    @cached_property
    def slope(self) -> float:
        """Slope b of the line a + b y closest to E[M(y)] under the prior.

        1 without bias, 0 if the mean output does not depend on the label or the prior has a single label.
        """
        variance = self.variance
        return _covariance(self.weights, self.labels, self.labels + self.bias) / variance if variance > 0 else 0.0

    @cached_property
    def intercept(self) -> float:
        """Intercept a of the line a + b y closest to E[M(y)] under the prior."""
        return dot(self.weights, self.labels + self.bias) - self.slope * dot(self.weights, self.labels)

    @property
    def remaining_bias(self) -> np.ndarray:
        """Bias of (M(y) - a) / b that remains after correction by the line, shape (k,).

        Raises ValueError if the slope is 0.
        """
        if self.slope == 0:
            raise ValueError("the outputs cannot be debiased, because their mean does not depend on the label")
        return (self.labels + self.bias - self.intercept) / self.slope - self.labels

    @cached_property
    def line(self) -> tuple[float, float] | None:
        """Intercept a and slope b of the debiasing line (M(y) - a) / b; None if the outputs have none.

        There is none for labels without bias, which need none, and where the mean output does not rise with the label.
        """
        return (self.intercept, self.slope) if self.has_line and not self.unbiased and self.slope > 0 else None

    @property
    def uses(self) -> tuple[bool, ...]:
        """Uses of the labels: as they are, and debiased if there is a line."""
        return (False,) if self.line is None else (False, True)

    def training_error(
        self, records_per_parameter: float, explained: float | None = None, debiased: bool = False
    ) -> ModelError:
        """Computes the expected squared error of a model trained on the labels, beyond that of the best model.

        It is that of `model_error` for n records and d + 1 = p parameters, with two differences. Labels may be debiased
        by the line first. And if the share R that the features explain is given, the share of the bias that they
        explain is not taken to be R too, but computed by `ExplainedShare`: a model averages over the labels of similar
        records, and so over bias that changes from label to label.

        The error is in squared units of the label; n / p is > 0, and R in [0, 1]. Without R it is the bound of
        `model_error`, which holds for every R. Raises ValueError if an argument is out of range, or labels cannot be
        debiased.
        """
        if not records_per_parameter > 0:
            raise ValueError(f"records_per_parameter must be above 0, not {records_per_parameter:g}")
        if debiased and self.line is None:
            raise ValueError("the outputs have no line that debiases them")
        intercept, slope = self.line if debiased and self.line else (0.0, 1.0)
        means = (self.labels + self.bias - intercept) / slope
        bias = means - self.labels
        spread, bias_spread = _covariance(self.weights, means, means), _covariance(self.weights, bias, bias)
        fitted, learned = spread, bias_spread
        if explained is None:
            fitted = 0.0
        else:
            share = self._explained(explained)
            fitted, learned = share.of(means), share.of(bias)
        noise = self.noise / slope**2 + max(spread - fitted, 0.0)
        return ModelError(bias=dot(self.weights, bias) ** 2 + learned, variance=noise / records_per_parameter)

    def best_use(self, records_per_parameter: float, explained: float | None = None) -> tuple[ModelError, bool]:
        """Chooses between the labels as they are and the debiased labels, for a model.

        The result is the smaller error, and whether it is that of debiased labels. Raises ValueError if an argument is
        out of range.
        """
        errors = [(self.training_error(records_per_parameter, explained, debiased), debiased) for debiased in self.uses]
        return min(errors, key=lambda each: each[0].total)

    def noise_errors(self, explained: float) -> list[ModelError]:
        """Error that noise and bias add to a model of one record per parameter, in each use of the labels.

        The variance is that of the noise alone: what labels without noise cost as well is left out. With n / p records
        per parameter it is p / n of this. Of the bias, the part counts that features can explain that explain the given
        share of the variance of the label, in [0, 1].
        """
        slopes = [self.line[1] if debiased and self.line else 1.0 for debiased in self.uses]
        biases = [self.training_error(1.0, explained, debiased).bias for debiased in self.uses]
        return [ModelError(bias, self.noise / slope**2) for bias, slope in zip(biases, slopes, strict=True)]

    def worth(self, records_per_parameter: float, explained: float | None = None) -> float:
        """Computes how many true labels one released label is equivalent to, for a model.

        A model of p parameters on m true labels has the error p / m (1 - R) Var(y). The worth is m / n for the m at
        which this equals the error on n released labels in their best use. Without bias it does not depend on n. It is
        0 if the prior has a single label.

        The share R is in [0, 1). If it is None, the error on released labels is a bound, and that on true labels is the
        one for R = 0. Raises ValueError if an argument is out of range.
        """
        if explained is not None and not 0 <= explained < 1:
            raise ValueError(f"the explained share must be at least 0 and below 1, not {explained:g}")
        left = (1 - (explained or 0.0)) * self.variance
        error, _ = self.best_use(records_per_parameter, explained)
        return left / (records_per_parameter * error.total) if left > 0 else 0.0

    def records_per_parameter(self, error: float, explained: float | None = None) -> float:
        """Least n / p at which a model's error, in squared units of the label, is at most the given one.

        Infinite if the bias that remains is larger than the error. Raises ValueError if an argument is out of range.
        """
        parts = [self.training_error(1.0, explained, debiased) for debiased in self.uses]
        return min(part.variance / (error - part.bias) if part.bias < error else np.inf for part in parts)

    def _explained(self, explained: float) -> ExplainedShare:
        if explained not in self._shares:
            self._shares[explained] = ExplainedShare(self.labels, self.weights, explained)
        return self._shares[explained]

    @cached_property
    def _shares(self) -> dict[float, ExplainedShare]:
        return {}


def utility(randomizer: Randomizer, prior: Prior) -> Utility:
    """Computes the moments of a randomizer under a prior. Raises ValueError if the prior is over another domain."""
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the prior and the randomizer have different label domains")
    return Utility(randomizer.labels, prior.weights, randomizer.bias(), np.sqrt(variances(randomizer)))


def clipped_utility(randomizer: Randomizer, prior: Prior) -> Utility:
    """Computes the moments of a randomizer for labels that are clipped to its domain first, such as residuals.

    The error of clipping is part of the bias. The prior is over a domain that contains that of the randomizer, without
    labels between the randomizer's own; otherwise ValueError is raised.
    """
    clipped = np.clip(prior.labels, randomizer.labels[0], randomizer.labels[-1])
    place = np.searchsorted(randomizer.labels, clipped)
    if not np.array_equal(randomizer.labels[place], clipped) or not np.isin(randomizer.labels, prior.labels).all():
        raise ValueError("the domain of the randomizer is not a part of the prior's")
    own, deviation = randomizer.bias(), np.sqrt(variances(randomizer))
    unbiased = Utility(randomizer.labels, prior.weights[: len(own)], own, deviation).unbiased
    bias = own[place] + (clipped - prior.labels)
    return Utility(prior.labels, prior.weights, bias, deviation[place], has_line=not unbiased)


@dataclass(frozen=True)
class CenterFacts:
    """Public center of labels, whose residuals the randomizer takes; by default none, and no label is clipped.

    Attributes:
      prior: Noised distribution of the residuals before they are clipped to the randomizer's range; None without a
        center.
      domain: Smallest and largest label of the public domain.
      missing: Number of records whose center is missing; None if unknown.
      label_variance: Estimated variance of the labels, from the released sums of a linear center; None if unknown.
      explained: Estimated share of it that the center explains, and features at least; None if unknown.
      explained_error: Standard error of that share.
      cells: Whether it is a center of cells, which most of epsilon is spent on.
    """

    prior: Prior | None = None
    domain: tuple[float, float] = (0.0, 0.0)
    missing: int | None = None
    label_variance: float | None = None
    explained: float | None = None
    explained_error: float = 0.0
    cells: bool = False

    @property
    def of(self) -> str:
        """Names what is randomized."""
        return "residuals" if self.prior else "labels"


@dataclass(frozen=True)
class ClassCounts:
    """Noised counts of classes, of a histogram or of a center.

    Attributes:
      counts: Noised number of records of each class; some may be negative.
      deviation: Standard deviation of the noise of a count.
    """

    counts: tuple[int, ...]
    deviation: float


@dataclass(frozen=True, eq=False)
class ReleasedFacts:
    """Facts about a release that everybody may know.

    Attributes:
      solved: The randomizer; None for classes that are drawn from a center.
      prior: Prior over the labels that are randomized, or drawn: noised, or public.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior.
      records: Number of records n; None if no labels are released yet.
      features: Number of feature columns d; None if unknown.
      loss: Name of the loss that was asked for; None if unknown.
      center: Center of the labels.
      records_per_unit: Largest number of records of a privacy unit. Epsilons are those of one record.
      classes: Classes of the label, of which the labels of the randomizer are the places; None for numbers.
      center_epsilon: Budget, for a record, of the center that classes were drawn from. None for any other release.
      class_counts: Noised counts of the classes; None for numbers and for a public prior.
    """

    solved: Randomizer | None
    prior: Prior
    prior_epsilon: float
    records: int | None = None
    features: int | None = None
    loss: str | None = None
    center: CenterFacts = CenterFacts()
    records_per_unit: int = 1
    classes: LabelClasses | None = None
    center_epsilon: float | None = None
    class_counts: ClassCounts | None = None

    @property
    def randomizer(self) -> Randomizer:
        """The randomizer. Raises ValueError for classes that are drawn from a center: they have none."""
        return solved_randomizer(self.solved)

    @property
    def drawn_from_center(self) -> bool:
        """True if classes were drawn from a center; there is no randomizer then."""
        return self.center_epsilon is not None

    @cached_property
    def utility(self) -> Utility:
        """Moments of the outputs for the labels of the randomizer; with a center, for the clipped residuals."""
        return utility(self.randomizer, self.prior)

    @cached_property
    def whole_utility(self) -> Utility:
        """Moments of the outputs for all labels; with a center, for residuals before they are clipped."""
        return clipped_utility(self.randomizer, self.center.prior) if self.center.prior else self.utility

    @property
    def label_variance(self) -> float:
        """Variance that losses are stated as shares of: of the labels; around a center column, of the residuals."""
        estimated = self.center.label_variance
        return self.whole_utility.variance if estimated is None else estimated

    @property
    def explainable(self) -> float | None:
        """Share of the label variance that features explain at least, as far as released numbers tell.

        It is the estimate, or its standard error where that is larger. None if nothing is known, or next to nothing.
        """
        center = self.center
        if center.explained is None or center.explained_error > LARGEST_ERROR:
            return None
        return min(max(center.explained, center.explained_error), 1.0)

    @property
    def of_what(self) -> str:
        """Names what has that variance."""
        return self.center.of if self.center.label_variance is None else "labels"


class ExplainedShare:
    """Variance of E[g(y) | x] for functions g of a label y, under the model of joint normal scores."""

    def __init__(self, labels: np.ndarray, weights: np.ndarray, explained: float):
        """Finds rho for a share of the label variance.

        Labels, ascending, and their probabilities have shape (k,). Raises ValueError if the share is not in [0, 1].
        """
        if not 0 <= explained <= 1:
            raise ValueError(f"explained must be between 0 and 1, not {explained:g}")
        self._weights = weights
        self._basis = _hermite_integrals(weights)
        own = self._parts(labels)
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if _combined(own, middle) >= explained * sum(own) else (middle, high)
        self._correlation = 0.0 if explained == 0 else high

    def of(self, values: np.ndarray) -> float:
        """Computes Var E[g(y) | x] from g of each label, shape (k,), in squared units of g."""
        return _combined(self._parts(values), self._correlation)

    def _parts(self, values: np.ndarray) -> list[float]:
        """Squared Hermite coefficients 1 to _TERMS, and the variance that they leave out."""
        centred = values - dot(self._weights, values)
        squares = [dot(row, centred) ** 2 for row in self._basis]
        return [*squares, max(dot(self._weights, centred**2) - sum(squares), 0.0)]


def _combined(parts: list[float], correlation: float) -> float:
    powers = [correlation**j for j in range(1, len(parts))]
    return sum(power * part for power, part in zip([*powers, powers[-1]], parts, strict=True))


def _hermite_integrals(weights: np.ndarray) -> np.ndarray:
    """Integrals of He_j(t) / sqrt(j!) over the normal scores of each label, shape (_TERMS, k).

    The antiderivative of He_j(t) phi(t) is -He_(j-1)(t) phi(t), which is 0 at both infinite ends.
    """
    bounds = ndtri(np.minimum(np.concatenate([[0.0], np.cumsum(weights)]), 1.0))
    finite = np.isfinite(bounds)
    scores = np.where(finite, bounds, 0.0)
    density = np.where(finite, exp(-(scores**2) / 2) / math.sqrt(2 * math.pi), 0.0)
    rows, last, before = [], np.ones_like(scores), np.zeros_like(scores)
    for j in range(1, _TERMS + 1):
        edges = last * density
        rows.append((edges[:-1] - edges[1:]) / math.sqrt(j))
        last, before = (scores * last - math.sqrt(j - 1) * before) / math.sqrt(j), last
    return np.array(rows)


def _covariance(weights: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    return dot(weights, (first - dot(weights, first)) * (second - dot(weights, second)))
