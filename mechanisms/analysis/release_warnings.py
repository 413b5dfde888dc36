"""Warnings about a release: what its user should look at, computed from released and public facts.

The auditor computes the same warnings with code of its own; docs/guides/release.md explains each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..center.class_center import center_pays
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from .class_utility import ClassUtility
from .explained import Measured
from .findings import AS_FLAGS, Naming, Warn
from .utility import ReleasedFacts

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

STANDS_OUT = 4
"""A class stands out of the noise if its count is above so many standard deviations of it.

Noise alone takes the count of a class without records above it with a probability of exp(-4 sqrt(2)) / 2, 0.2 %.
"""

LEAST_KEPT = 0.5
"""A single label says little if it is kept with a smaller probability."""

_NAMED = 6
_NAME_LENGTH = 40


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


def measured_warnings(measured: Measured | None) -> list[Warn]:
    """Finds what was measured on the files of a release and calls for an act. No document has it."""
    if measured is None or measured.by_position is None:
        return []
    return [
        Warn(
            "position",
            f"file and row of the records tell about {100 * min(measured.by_position, 1):.2g} % of the true labels, at "
            "any epsilon, as in files of one label each or a sorted log. Before you pass this release on, see what "
            "they reveal: labeldp attack RELEASE --truth INPUT --input_format FORMAT. With --shuffle and another "
            "--output they reveal nothing",
        )
    ]


def shown_warnings(facts: ReleasedFacts, naming: Naming = AS_FLAGS) -> list[Warn]:
    """The warnings that call for an act. release.json has the others, too.

    That a single label says little holds for nearly every release, and the range of the residuals of a center that a
    job makes by default is no mistake of its user.
    """
    made = {"wide_residuals"} if facts.center.explained is not None else set()
    ordinary = {"label_error", *made}
    return [warning for warning in release_warnings(facts, naming) if warning.name not in ordinary]


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
    if facts.center.prior or facts.records is None or facts.prior_epsilon == 0 or len(labels) < 3:
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
            f"deviation of the {facts.center.of}, {spread:.4g}. Use the labels for averages over many records and for "
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
            f"{100 * noise / moments.variance:.2g} % of the variance of the {facts.center.of} to the error of a linear "
            "model, and more to that of trees. Use fewer features, strong regularization, more records or a larger "
            f"{naming('epsilon')}",
        )


def _negative_outputs(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    lowest = float(facts.randomizer.outputs[0]) + facts.center.domain[0]
    if facts.loss == "poisson" and lowest < 0:
        yield Warn(
            "negative_outputs",
            f"some released labels are negative, down to {lowest:.6g}, and libraries refuse them for Poisson loss. "
            f"Train with squared loss, or use {naming('mechanism')} rr_on_bins, whose outputs are in the domain. "
            "Clipping them at 0 would add a bias",
        )


def _center(facts: ReleasedFacts, naming: Naming) -> Iterator[Warn]:
    if not facts.center.prior:
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
