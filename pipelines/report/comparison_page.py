"""HTML page that shows two releases, or mechanism files, side by side. Needs the extra `evaluation`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from markupsafe import Markup

from ...mechanisms.analysis.privacy_attacks import label_inferences
from ...mechanisms.analysis.verdict import parameters_of, release_warnings, verdict
from ...mechanisms.core.budget import round_up
from ...mechanisms.release.unit_bound import spent
from ..charts.number_format import label_range, number, percent, upper_bound
from ..publish.facts_of_release import manifest_facts
from .mechanism_charts import label_bins
from .release_summary import ledger_rows
from .report_input import ReportInput
from .report_page import charts_of, column_name, environment, headline_worth, release_date

_TEMPLATE = "comparison.html.j2"


@dataclass(frozen=True)
class Column:
    """One side of the comparison.

    Attributes:
      name: Name of the folder or file.
      facts: Text of each fact, by its name; the names and their order are the same on both sides.
      verdict: The verdict.
      warnings: Texts of the warnings.
      charts: Pictures, by name.
      unit: Column of the privacy unit; None for single records.
    """

    name: str
    facts: dict[str, str]
    verdict: str
    warnings: Sequence[str]
    charts: dict[str, Markup]
    unit: str | None


def comparison_page(subjects: Sequence[ReportInput], party: str | None = None) -> str:
    """Renders the comparison of two releases or mechanism files as HTML; the same text for the same input.

    `party` released them, as the page shall say; None leaves it out.
    """
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        names = [f"{name} ({place})" for name, place in zip(names, ("first", "second"), strict=True)]
    columns = [_column(subject, name) for subject, name in zip(subjects, names, strict=True)]
    return environment(0.0).get_template(_TEMPLATE).render(columns=columns, party=party)


def _column(subject: ReportInput, name: str) -> Column:
    mechanism, manifest, audit = subject.mechanism, subject.manifest, subject.audit
    randomizer = mechanism.randomizer
    facts = manifest_facts(mechanism, manifest)
    moments = facts.utility
    tiny = 1e-9 * float(moments.labels[-1] - moments.labels[0])
    worth, guess = headline_worth(facts), label_inferences(randomizer, mechanism.prior)[0]
    ledger = ledger_rows(subject.ledger, audit.fingerprint, None if manifest else mechanism.prior_release)
    certificate, unit = randomizer.certificate(), subject.unit
    labels_epsilon, labels_delta = mechanism.labels_certified
    of_unit = partial(spent, mechanism.unit)
    parts = (mechanism.center_epsilon, mechanism.prior_epsilon, certificate.epsilon)
    record = sum(map(Fraction, parts), Fraction(0))
    missing = "-"
    texts = {
        "label": column_name(subject),
        "released on": release_date(ledger) or missing,
        "records": f"{manifest.records:,}" if manifest else missing,
        "label domain": f"{len(mechanism.domain)} values, {label_range(mechanism.domain[0], mechanism.domain[-1])}",
        "mechanism": randomizer.mechanism,
        "outputs": f"{len(randomizer.outputs):,}",
        "privacy unit": "one record" if unit is None else f"{unit.column}: all labels of one",
        "records of a unit": missing if unit is None else f"at most {unit.max_records:,}",
        "further records, without a label of their own": f"{unit.left_out:,}" if unit and unit.released else missing,
        "epsilon, certified": upper_bound(manifest.certified_epsilon if manifest else labels_epsilon),
        "delta, certified": upper_bound(labels_delta) if labels_delta else "0",
        "of which for the center": number(of_unit(mechanism.center_epsilon)),
        "of which for the histogram": number(of_unit(mechanism.prior_epsilon)),
        "of which for the labels": number(labels_epsilon),
        "epsilon of one record": upper_bound(round_up(record) if manifest else certificate.epsilon),
        "advantage of the best guess of a label": percent(guess.advantage),
        "root mean squared error of one label": number(math.sqrt(moments.squared_error)),
        "standard deviation of what is randomized": number(math.sqrt(moments.variance)),
        "largest bias": number(certificate.max_bias if certificate.max_bias > tiny else 0.0),
        "loss of a model": (
            f"{percent(worth.error)} of the variance of the {facts.of_what}, for {parameters_of(facts)} parameters"
            if worth and manifest
            else missing
        ),
        "worth of one released label": (
            missing
            if worth is None or not manifest
            else "less than nothing"
            if worth.less_than_nothing
            else f"{number(worth.worth)} true labels"
        ),
        "center": mechanism.center.column if mechanism.center else "none",
        "clipped": percent(mechanism.center.clipping(randomizer).share) if mechanism.center else missing,
    }
    bins = label_bins(randomizer.labels, randomizer.outputs, randomizer.probabilities())
    return Column(
        name,
        texts,
        verdict(facts).text,
        [warning.text for warning in release_warnings(facts)],
        charts_of(subject, moments, bins, tiny),
        None if unit is None else unit.column,
    )
