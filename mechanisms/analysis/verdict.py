"""Verdict on released labels: their use, the line that debiases them, what would serve better; and warnings.

Everything is computed from released and public facts, so it costs no budget and may be shown to anybody. Errors are
those of `Utility.training_error`, as bounds for any features: a verdict does not depend on what the features explain.
The auditor computes the same warnings with code of its own; docs/guides/release.md explains each of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..center.residuals import MODEL_PARAMETERS
from ..core.budget import MAX_EPSILON
from ..core.prior import Prior
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from ..registry import Mechanism, mechanism_named
from ..unbiased.optimal_unbiased import Unbiased
from .class_verdict import class_debiasing, class_verdict, class_warnings
from .findings import (
    AS_FLAGS,
    LOSS,
    NOTHING_ELSE,
    PART,
    SMALL_MODEL,
    Debiasing,
    Naming,
    Verdict,
    Warn,
    percent,
    rounded_down,
    rounded_up,
)
from .model_error import ModelError
from .utility import ReleasedFacts, Utility, clipped_utility, utility

EXPLAINED_SHARES = (0.5, 0.9)
"""Shares of the label variance that features explain, for which the worth of a label is stated besides the bound."""

# Proposals are computed for priors of at most this many labels, and then on this many: errors depend on the range.
_MOST_LABELS, _COARSE_LABELS = 64, 33
# A share of the range of the labels.
_ROUNDING = 1e-9
# Relative gap of their losses, which are stated with two digits.
_GAP = 1e-3
_STEPS_OF_EPSILON = 12  # by factors of sqrt(2)
# A mechanism is proposed only if the error falls by this factor.
_BETTER = 0.8

SIZES = (10, 100, 1000)
"""Numbers of parameters of models whose cost is stated."""

TREES = 0.7
"""Boosted trees fit noise as a linear model of rate * rounds * leaves / TREES parameters does (docs/expect.md)."""

LEAST_LEAF = 20
"""Least number of records in a leaf that is advised, the default of libraries."""

END_SHARE = 0.1
"""An end of the domain is suspect with more than this share of the labels, and with more than twice the next label."""

END_MARGINS = ((0.25, 34, 20), (0.6, 39, 5))
"""Rows (m, a, b): up to a margin of m of all labels, the noise of k counts needs one of a + k / b times its scale."""

LABEL_ERROR = 0.9
"""The error of a label is near the spread of labels if its square is at least this share of the label variance."""

MODEL_NOISE = 0.5
"""Records are few if the noise adds this share of the label variance to the error of a linear model."""

CENTER_RANGE = 0.5
"""A center saves little noise if the squared range of the residuals is at least this share of that of the labels."""

MISSING_CENTERS = 0.05
"""Largest share of records without a center that is not worth a warning."""


@dataclass(frozen=True)
class Worth:
    """Worth of one released label for a model.

    Attributes:
      records_per_parameter: Records n divided by parameters p of the model.
      error: Error of the model beyond that of the best model, as a share of `ReleasedFacts.label_variance`; a bound.
      bias: Part of it that is bias.
      less_than_nothing: Whether the model is worse than the mean of the noised histogram, for which no label is needed.
      worth: True labels that one released label is equivalent to, whatever the features explain.
      by_share: The same for features that explain `EXPLAINED_SHARES` of the label variance.
    """

    records_per_parameter: float
    error: float
    bias: float
    less_than_nothing: bool
    worth: float
    by_share: tuple[float, ...]


def worth_of_label(facts: ReleasedFacts, records_per_parameter: float) -> Worth | None:
    """Worth of one released label for n / p > 0 records per parameter of a model; None for a prior of one label."""
    moments = facts.whole_utility
    if not (moments.variance > 0 and facts.label_variance > 0):
        return None
    error, _ = moments.best_use(records_per_parameter)
    return Worth(
        records_per_parameter,
        error.total / facts.label_variance,
        error.bias / facts.label_variance,
        error.total >= moments.variance,
        moments.worth(records_per_parameter),
        tuple(moments.worth(records_per_parameter, share) for share in EXPLAINED_SHARES),
    )


def parameters_of(facts: ReleasedFacts) -> int:
    """Number of parameters of the model that a release is judged by: 100, or of a linear model of all its features.

    It is the larger of the two.
    """
    return max(MODEL_PARAMETERS, (facts.features or 0) + 1)


def verdict(facts: ReleasedFacts, naming: Naming = AS_FLAGS) -> Verdict:
    """Judges released labels: by what noise costs of what features explain."""
    if facts.classes is not None:
        return class_verdict(facts, naming)
    moments, parameters = facts.whole_utility, parameters_of(facts)
    if not (moments.variance > 0 and facts.label_variance > 0):
        randomized = "labels" if facts.center is None else "residuals"
        prior = "noised histogram" if facts.prior_epsilon else "public prior"
        return Verdict("none", f"not usable: the {prior} has a single value, and the {randomized} say no more")
    needed = _records_per_parameter(facts)
    if facts.records is None:
        return _without_records(facts, needed)
    most, costs = facts.records / needed, _costs(facts)
    if most >= parameters:
        return Verdict(
            "good",
            f"good for training{_condition(facts, noise_cost(facts, parameters))}: {costs}; {_carried(facts, needed)}",
        )
    if facts.center is not None and facts.center.cells:
        leave_out = f"{naming('center')} linear, without {naming('for')} log_features"
        text = f"the center is the model: {NOTHING_ELSE}; {_explains(facts)}, and labels around the center, for which "
        return Verdict("center", f"{text}little of epsilon is left, say little more. For labels that do: {leave_out}")
    if math.isinf(needed):
        bias = percent(min(min(error.bias for error in _errors(facts)) / facts.label_variance, 1.0))
        level = "bias"
        text = f"biased: a model keeps a bias of up to {bias} of the variance of the {facts.of_what}, which no number "
        text += f"of records averages out; use its predictions for their order only; {costs}"
    elif most >= SMALL_MODEL:
        level, text = "small", f"usable for small models: {costs}; {_carried(facts, needed)}"
    elif most >= 1:
        level, text = "averages", f"usable only for averages over at least {rounded_up(needed):,} records: {costs}"
    else:
        level, text = "none", f"not usable: even the average over all {facts.records:,} records is too noisy; {costs}"
    return Verdict(level, text, tuple(_proposals(facts, needed * parameters, naming)))


def model_note(facts: ReleasedFacts, naming: Naming = AS_FLAGS) -> str | None:
    """Line for the top of a release whose center took most of epsilon; None for one of labels."""
    if verdict(facts).level != "center":
        return None
    other = " none" if facts.classes is not None else f" linear, without {naming('for')} log_features"
    return f"the release is a model: {NOTHING_ELSE}; if theirs say more, {naming('center')}{other}"


def carried_parameters(facts: ReleasedFacts) -> int | None:
    """Largest number of parameters of a model that released numbers serve; None if it is unknown, or for classes."""
    if facts.classes is not None or facts.records is None or not facts.label_variance > 0:
        return None
    return int(facts.records / _records_per_parameter(facts))


def _errors(facts: ReleasedFacts) -> list[ModelError]:
    known = facts.explainable
    return facts.whole_utility.noise_errors(1.0 if known is None else known)


def _allowed(facts: ReleasedFacts) -> float:
    """Share of the variance that noise and bias may cost."""
    return LOSS if facts.explainable is None else PART * facts.explainable


def _records_per_parameter(facts: ReleasedFacts) -> float:
    """Least number of records for each parameter of a model, >= 1; infinite if the bias that remains is too large."""
    return _least_ratio(_errors(facts), _allowed(facts) * facts.label_variance)


def _least_ratio(errors: list[ModelError], most: float) -> float:
    return min(max(part.variance / (most - part.bias), 1.0) if part.bias < most else math.inf for part in errors)


def _without_records(facts: ReleasedFacts, needed: float) -> Verdict:
    if math.isinf(needed):
        return Verdict("unknown", f"biased: no number of records averages out the bias of the {facts.of_what}")
    parameters = parameters_of(facts)
    return Verdict(
        "unknown",
        f"good for training a model of {parameters} parameters{_condition(facts, LOSS)} from about "
        f"{rounded_up(needed * parameters):,} records on",
    )


def _condition(facts: ReleasedFacts, cost: float) -> str:
    """Share that features must explain for the verdict to hold; empty where they are known to."""
    if facts.explainable is not None:
        return ""
    return f" if features explain {percent(min(cost / PART, 1.0))} of the variance of the {facts.of_what}"


def noise_cost(facts: ReleasedFacts, parameters: int) -> float:
    """Share of the label variance that noise and bias add to the error of a model; the records are known."""
    assert facts.records is not None
    errors = _errors(facts)
    return min(part.bias + part.variance * parameters / facts.records for part in errors) / facts.label_variance


def _costs(facts: ReleasedFacts) -> str:
    """Text on what features explain, and on what noise costs models of some sizes."""
    assert facts.records is not None
    sizes = [size for size in sorted({*SIZES, parameters_of(facts)}) if size <= max(facts.records, SIZES[0])]
    shown, costs = " / ".join(f"{size:,}" for size in sizes), [noise_cost(facts, size) for size in sizes]
    biased = min(_errors(facts), key=lambda part: part.bias).bias > 0.01 * costs[0] * facts.label_variance
    what = "noise and bias cost" if biased else "noise costs"
    shares = " / ".join(percent(cost) for cost in costs)
    return f"{_explains(facts)}; {what} a model of {shown} parameters {shares} of the variance"


def _explains(facts: ReleasedFacts) -> str:
    """Text on what features explain at least."""
    if facts.explainable is None or facts.center is None or facts.center.explained is None:
        return f"what features explain of the {facts.of_what} is not known"
    share, error = facts.center.explained, facts.center.explained_error
    if share <= error:
        return f"the center explains at most about {percent(share + error)} of the variance of the labels"
    between = f"{percent(share)} (standard error {percent(error)})"
    return f"features explain about {between} of the variance of the labels or more, and the center as much"


def _carried(facts: ReleasedFacts, needed: float) -> str:
    """Text on the largest models that the labels serve."""
    assert facts.records is not None
    most, of_trees = int(facts.records / needed), int(TREES * facts.records / needed)
    assumed = "" if facts.explainable is not None else ", if features explain half"
    leaf = rounded_up(max(needed, LEAST_LEAF))
    return (
        f"use at most {rounded_down(most):,} parameters, or boosted trees with {leaf:,} records in a leaf and rate x "
        f"rounds x leaves up to {rounded_down(of_trees):,}{assumed}"
    )


def _proposals(facts: ReleasedFacts, records: float, naming: Naming) -> Iterator[str]:
    """Changes that would make a release good for a model: mechanism, larger epsilon, more records, center."""
    assert facts.records is not None
    moments, parameters, ratio = facts.whole_utility, parameters_of(facts), facts.records / parameters_of(facts)
    epsilon = facts.randomizer.epsilon
    # Shares of the variance of the residuals are this many of that of the labels.
    scale = moments.variance / facts.label_variance
    present, most = noise_cost(facts, parameters), _allowed(facts)

    def share(solved: Utility | None) -> float:
        """Share of the label variance that noise costs a model with another mechanism."""
        if solved is None or not solved.variance > 0:
            return math.inf
        errors = solved.noise_errors(1.0 if facts.explainable is None else facts.explainable)
        return min(part.bias + part.variance / ratio for part in errors) / solved.variance * scale

    mechanism: Mechanism = Unbiased(_GAP)
    unbiased = _solved(facts, mechanism, epsilon)
    if facts.utility.unbiased:
        mechanism, other = _own_mechanism(facts), ""
    else:
        other = f"{naming('mechanism')} unbiased"
        cost = share(unbiased)
        if cost <= most:
            yield f"with {other}, the same epsilon costs a model {percent(cost)}"
            return
        if cost < _BETTER * present:
            yield f"{other} at the same epsilon ({percent(cost)})"
        if unbiased is not None:
            errors = unbiased.noise_errors(1.0 if facts.explainable is None else facts.explainable)
            records = min(records, _least_ratio(errors, most * unbiased.variance / scale) * parameters)
    larger = [epsilon * 2 ** (step / 2) for step in range(1, _STEPS_OF_EPSILON + 1)]
    larger = [each for each in larger if each <= MAX_EPSILON]
    # The loss falls with epsilon.
    step = bisect_left(larger, True, key=lambda each: share(_solved(facts, mechanism, each)) <= most)
    if step < len(larger):
        total = rounded_up((larger[step] + facts.prior_epsilon) * facts.records_per_unit)
        yield f"raise {naming('epsilon')} to about {total:g}{' with ' + other if other else ''}"
    if facts.records < records < math.inf:
        yield f"release about {rounded_up(records):,} records{' with ' + other if other else ''}"
    if facts.center is None:
        yield f"give a prediction of the labels ({naming('center_column')})"


def _own_mechanism(facts: ReleasedFacts) -> Mechanism:
    """Mechanism of the release; `unbiased` if its parameters are unknown, as those of other versions may be."""
    own = facts.randomizer
    try:
        return mechanism_named(own.mechanism, **own.parameters)
    except ValueError:
        return Unbiased()


def _solved(facts: ReleasedFacts, mechanism: Mechanism, epsilon: float) -> Utility | None:
    """Moments of a mechanism for the prior of a release, approximately; None if it does not support them."""
    prior = _coarse(facts.prior)
    try:
        randomizer = mechanism.solve(prior, epsilon)
    except ValueError:
        return None
    # With a center, the range stays as it is, and so does the error of clipping.
    whole = facts.center.prior if facts.center is not None else None
    exact = whole is not None and len(prior.labels) == len(facts.prior.labels)
    return clipped_utility(randomizer, whole) if exact and whole is not None else utility(randomizer, prior)


def _coarse(prior: Prior) -> Prior:
    labels = prior.labels
    if len(labels) <= _MOST_LABELS:
        return prior
    place = np.rint((labels - labels[0]) / (labels[-1] - labels[0]) * (_COARSE_LABELS - 1)).astype(np.intp)
    even = np.linspace(labels[0], labels[-1], _COARSE_LABELS)
    return Prior(even, np.bincount(place, prior.weights, _COARSE_LABELS))


def debiasing(facts: ReleasedFacts) -> Debiasing:
    """Line that debiases released labels, or the reason why there is none."""
    if facts.classes is not None:
        return class_debiasing(facts)
    if facts.utility.unbiased:
        clipping = "" if facts.center is None else ", up to the clipping of residuals"
        return Debiasing(None, f"needs none: the labels are unbiased{clipping}")
    moments = facts.whole_utility
    if moments.line is None:
        return Debiasing(None, "there is no line: the mean released label does not rise with the true one")
    intercept, slope = moments.line
    released, before = ("released", "") if facts.center is None else ("released - center", "center + ")
    # Rounding leaves a little of an intercept of 0.
    if abs(intercept) > _ROUNDING * (facts.prior.labels[-1] - facts.prior.labels[0]):
        released += f" {'-' if intercept >= 0 else '+'} {abs(intercept):.6g}"
    formula = f"true = {before}({released}) / {slope:.6g}"
    if facts.records is not None and not moments.best_use(facts.records / parameters_of(facts))[1]:
        return Debiasing(formula, "for averages over many records; a model of so few records is better without it")
    return Debiasing(formula, "for averages over many records and for predictions")


def release_warnings(facts: ReleasedFacts, naming: Naming = AS_FLAGS) -> list[Warn]:
    """Finds everything about a release that a user should look at, in a fixed order."""
    if facts.classes is not None:
        return [*class_warnings(facts, naming)]
    return [
        *_ends(facts, naming),
        *_label_error(facts),
        *_few_records(facts, naming),
        *_negative_outputs(facts, naming),
        *_center(facts, naming),
    ]


def end_margin(labels: int, records: int, prior_epsilon: float) -> float | None:
    """Bounds the change of the share of an end of the domain by the noise of a histogram: the margin m of the shares.

    None if the margin would be above 0.6, and no share could be told from noise. There is at least one record.

    Let c be the true counts, Z the noise, of scale s = 2 / prior_epsilon, e the end, f the label beside it, and w the
    released shares, (c + Z)^+ / S with S = sum (c + Z)^+ >= n + sum Z. Each of

        w_e > 1/10 + m  although  c_e <= n / 10,     w_e > 2 w_f + m  although  c_e <= 2 c_f

    implies that a sum of independent a_i Z_i exceeds m n, where in the first case |a_e| <= 1 and other |a_i| <= 1/10 +
    m, and in the second |a_e| <= 1, |a_f| <= 2 + m and other |a_i| <= m. E exp(t Z) <= 1 / (1 - (s t)^2) for discrete
    Laplace noise. So by Markov's inequality at t = 0.4 / s each has a probability of at most 10^-5 if m <= 1/4 and
    m n >= s (34 + k / 20), and at t = 0.35 / s if m <= 0.6 and m n >= s (39 + k / 5).
    """
    for most, constant, per_label in END_MARGINS:
        margin = HISTOGRAM_SENSITIVITY / prior_epsilon * (constant + labels / per_label) / records
        if margin <= most:
            return margin
    return None


def _ends(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    """Asks whether labels beyond an end of the domain were clamped. A public prior says nothing about these labels."""
    weights, labels = facts.prior.weights, facts.prior.labels
    if facts.center is not None or facts.records is None or facts.prior_epsilon == 0 or len(labels) < 3:
        return
    margin = end_margin(len(labels), facts.records, facts.prior_epsilon)
    if margin is None:
        return
    for name, end, beside, parameter, word in (
        ("low_end", 0, 1, "label_min", "lower"),
        ("high_end", -1, -2, "label_max", "raise"),
    ):
        if weights[end] > END_SHARE + margin and weights[end] > 2 * weights[beside] + margin:
            yield Warn(
                name,
                f"about {100 * weights[end]:.2g} % of the labels are at the {name.split('_')[0]} end of the domain, "
                f"{labels[end]:.6g}, by the noised histogram. If labels lie beyond it, they were all replaced by it: "
                f"{word} {naming(parameter)}. If that many labels are truly {labels[end]:.6g}, the domain is right",
            )


def _label_error(facts: ReleasedFacts) -> Iterator[Warn]:
    moments = facts.utility
    if moments.variance > 0 and moments.squared_error >= LABEL_ERROR * moments.variance:
        error, spread = moments.squared_error**0.5, moments.variance**0.5
        yield Warn(
            "label_error",
            f"a single released label says little: its error, {error:.4g}, is {error / spread:.2g} times the standard "
            f"deviation of the {_labels(facts)}, {spread:.4g}. Use the labels for averages over many records and for "
            "training, not one by one",
        )


def _few_records(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    """Compares the noise in a linear model of all features with what the model could explain at most."""
    moments = facts.utility
    if facts.records is None or facts.features is None or not moments.variance > 0:
        return
    ratio = facts.records / (facts.features + 1)
    noise = min(moments.training_error(ratio, debiased=debiased).variance for debiased in moments.uses)
    if noise >= MODEL_NOISE * moments.variance:
        yield Warn(
            "few_records",
            f"{facts.records:,} records are few for {facts.features:,} feature columns: the noise adds about "
            f"{100 * noise / moments.variance:.2g} % of the variance of the {_labels(facts)} to the error of a linear "
            "model, and more to that of trees. Use fewer features, strong regularization, more records or a larger "
            f"{naming('epsilon')}",
        )


def _negative_outputs(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    lowest = float(facts.randomizer.outputs[0]) + (facts.center.domain[0] if facts.center else 0.0)
    if facts.loss == "poisson" and lowest < 0:
        yield Warn(
            "negative_outputs",
            f"some released labels are negative, down to {lowest:.6g}, and libraries refuse them for Poisson loss. "
            f"Train with squared loss, or use {naming('mechanism')} rr_on_bins, whose outputs are in the domain. "
            "Clipping them at 0 would add a bias",
        )


def _center(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    if facts.center is None:
        return
    ends, domain = facts.randomizer.labels, np.array(facts.center.domain)
    share = float((ends[-1] - ends[0]) / (domain[-1] - domain[0]))
    if share**2 >= CENTER_RANGE:
        yield Warn(
            "wide_residuals",
            f"the center saves little noise: some residuals are so large that they need {100 * share:.3g} % of the "
            f"range of the labels. Give a better prediction, or none ({naming('center')} none), and compare",
        )
    missing = facts.center.missing
    if missing is not None and facts.records is not None and missing > MISSING_CENTERS * facts.records:
        yield Warn(
            "missing_centers",
            f"{missing:,} of {facts.records:,} records have no center and got the middle of the domain, which widens "
            f"the residuals of all. Fill {naming('center_column')}, for example with the mean of an earlier release",
        )


def _labels(facts: ReleasedFacts) -> str:
    return "labels" if facts.center is None else "residuals"
