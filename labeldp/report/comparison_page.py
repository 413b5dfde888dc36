"""HTML page of the report that compares two releases or mechanism files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import zip_longest

from markupsafe import Markup

from ..mechanisms.analysis.class_verdict import ClassUtility
from ..mechanisms.analysis.privacy_attacks import label_inferences
from ..mechanisms.analysis.utility import ReleasedFacts
from ..mechanisms.analysis.verdict import parameters_of, release_warnings, verdict
from ..mechanisms.core.budget import round_up
from ..mechanisms.release.unit_bound import spent
from ..pipelines.cli.text_format import label_range, number, percent, upper_bound
from ..pipelines.publish.manifest import manifest_facts
from ..pipelines.spec.mechanism_file import MechanismFile
from .report_input import ReportInput
from .report_page import (
    advantage_bounds,
    charts_of,
    column_name,
    environment,
    headline_worth,
    ledger_of,
    release_date,
    tiny_of,
)

_COMPARISON_TEMPLATE = "comparison.html.j2"
_CAPTIONS = {
    "prior": "Released prior of what is randomized.",
    "outputs": "Distribution of the released values.",
    "errors": "Error of a released label by its true value.",
}
_CLASS_CAPTIONS = {
    "shares": "Share of each class by the released prior, and in the released labels.",
    "channel": "Probability of each released class given each true one.",
    "right": "Probability that a class is released if it is true, and true if it is released.",
}
_CENTER_CAPTIONS = {
    "shares": "Share of each class by the noised counts, and its mean probability in a sample.",
    "strips": "Probabilities of each class in a sample of the records.",
    "cells": "Noised counts of cells against the probabilities of their records.",
}


@dataclass(frozen=True)
class Column:
    """One side of the comparison.

    Attributes:
      name: Name of the folder or file.
      facts: Text of each fact, by its name; the names and their order are the same on both sides.
      verdict: The verdict.
      warnings: Texts of the warnings.
      charts: Pictures with their captions.
      unit: Column of the privacy unit; None for single records.
    """

    name: str
    facts: dict[str, str]
    verdict: str
    warnings: Sequence[str]
    charts: Sequence[tuple[Markup, str]]
    unit: str | None


def comparison_page(subjects: Sequence[ReportInput], party: str | None = None) -> str:
    """Renders the comparison of two releases or mechanism files as HTML; the same text for the same input.

    `party` released them, as the page shall say; None leaves it out.
    """
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        names = [f"{name} ({place})" for name, place in zip(names, ("first", "second"), strict=True)]
    columns = [_column(subject, name) for subject, name in zip(subjects, names, strict=True)]
    return (
        environment(0.0)
        .get_template(_COMPARISON_TEMPLATE)
        .render(columns=columns, charts=[*zip_longest(*(column.charts for column in columns))], party=party)
    )


def _column(subject: ReportInput, name: str) -> Column:
    mechanism, manifest = subject.mechanism, subject.manifest
    randomizer, unit = mechanism.solved, subject.unit
    facts = manifest_facts(mechanism, manifest)
    ledger = ledger_of(subject)
    labels_epsilon, labels_delta = mechanism.labels_certified
    of_unit = partial(spent, mechanism.unit)
    certified = 0.0 if randomizer is None else randomizer.certificate().epsilon
    record = Fraction(mechanism.center_epsilon) + Fraction(mechanism.prior_epsilon) + Fraction(certified)
    missing = "-"
    texts = {
        "label": column_name(subject),
        "released on": release_date(ledger) or missing,
        "records": f"{manifest.records:,}" if manifest else missing,
        "label domain": (
            f"{len(mechanism.domain)} values, {label_range(mechanism.domain[0], mechanism.domain[-1])}"
            if facts.classes is None
            else f"{len(facts.classes):,} classes"
        ),
        "mechanism": mechanism.name,
        "outputs": f"{len(mechanism.domain if randomizer is None else randomizer.outputs):,}",
        "privacy unit": "one record" if unit is None else f"{unit.column}: all labels of one",
        "records of a unit": missing if unit is None else f"at most {unit.max_records:,}",
        "further records, without a label of their own": f"{unit.left_out:,}" if unit and unit.released else missing,
        "epsilon, certified": upper_bound(manifest.certified_epsilon if manifest else labels_epsilon),
        "delta, certified": upper_bound(labels_delta) if labels_delta else "0",
        "of which for the center": number(of_unit(mechanism.center_epsilon)),
        "of which for the histogram": number(of_unit(mechanism.prior_epsilon)),
        "of which for the labels": number(labels_epsilon),
        "epsilon of one record": upper_bound(round_up(record) if manifest else certified),
        "advantage of the best guess of a label": _advantage(mechanism),
        **_errors(facts, missing),
        "center": mechanism.center_column or "none",
        "clipped": percent(mechanism.center.clipping(mechanism.randomizer).share) if mechanism.center else missing,
    }
    captions = _CAPTIONS if facts.classes is None else _CLASS_CAPTIONS
    captions = _CENTER_CAPTIONS if facts.drawn_from_center else captions
    charts = charts_of(subject, facts)
    return Column(
        name,
        texts,
        verdict(facts).text,
        [warning.text for warning in release_warnings(facts)],
        [(charts[which], caption) for which, caption in captions.items() if which in charts],
        None if unit is None else unit.column,
    )


def _advantage(mechanism: MechanismFile) -> str:
    """Advantage of the best guess; at a center of classes, what it is at most."""
    if mechanism.class_center is None:
        return percent(label_inferences(mechanism.randomizer, mechanism.prior)[0].advantage)
    return f"at most {percent(advantage_bounds(mechanism)['bounds'][0])}"


def _errors(facts: ReleasedFacts, missing: str) -> dict[str, str]:
    """Facts about the errors of labels, by name; `missing` stands for those that numbers have and classes do not."""
    names = (
        "probability that a released class is the true one",
        "root mean squared error of one label",
        "standard deviation of what is randomized",
        "largest bias",
        "loss of a model",
        "worth of one released label",
    )
    texts = _errors_of_numbers(facts, missing) if facts.classes is None else _errors_of_classes(facts, missing)
    return dict(zip(names, texts, strict=True))


def _errors_of_numbers(facts: ReleasedFacts, missing: str) -> Iterator[str]:
    moments, worth, bias = facts.utility, headline_worth(facts), facts.randomizer.certificate().max_bias
    yield missing
    yield number(math.sqrt(moments.squared_error))
    yield number(math.sqrt(moments.variance))
    yield number(bias if bias > tiny_of(facts) else 0.0)
    if worth is None or facts.records is None:
        yield from (missing, missing)
        return
    yield f"{percent(worth.error)} of the variance of the {facts.of_what}, for {parameters_of(facts)} parameters"
    yield "less than nothing" if worth.less_than_nothing else f"{number(worth.worth)} true labels"


def _errors_of_classes(facts: ReleasedFacts, missing: str) -> Iterator[str]:
    if facts.drawn_from_center:
        yield from [missing] * 6
        return
    utility, parameters = ClassUtility(facts.randomizer, facts.prior), parameters_of(facts)
    yield percent(utility.kept)
    yield from (missing, missing, missing)
    if facts.records is None:
        yield from (missing, missing)
        return
    loss = utility.loss(facts.records / parameters)
    share = percent(loss) if loss <= 1 else "more than all"
    yield f"{share} of the entropy, for {parameters} parameters a class"
    yield f"{number(utility.worth)} true labels"
