"""HTML pages of the report: on one release or mechanism file, or on two of them side by side.

They are rendered from templates with charts as inline SVG. A page has no script and refers to nothing outside itself;
all text from files is escaped. Needs the extra `evaluation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from ...mechanisms.analysis.class_verdict import ClassUtility
from ...mechanisms.analysis.privacy_attacks import label_inferences
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.analysis.verdict import (
    EXPLAINED_SHARES,
    Worth,
    debiasing,
    parameters_of,
    release_warnings,
    verdict,
    worth_of_label,
)
from ...mechanisms.core.budget import round_up
from ...mechanisms.core.integer_weights import BITS, TOTAL
from ...mechanisms.release.unit_bound import spent
from ..audit.audit_release import audit_report
from ..charts.svg_plot import page_style
from ..charts.text_format import all_digits, clipped, exact, label_range, number, percent, upper_bound
from ..publish.manifest import losses_of, manifest_facts
from .class_summary import ClassSummary
from .mechanism_charts import Bin, channel_cells, channel_chart, errors_chart, label_bins, outputs_chart, prior_chart
from .release_summary import LedgerRow, attained_ratio, example, label_rows, ledger_rows, remaining_bias
from .report_input import ReportInput

_TEMPLATE = "report.html.j2"

_MAX_FEATURES = 60
_MAX_LEDGER_ROWS = 30
_MAX_NAME = 32  # characters of a column name on an axis
_MAX_TEXT = 80  # characters of any other text that users chose

# Models in the table of the worth of a label: their parameters, or without records, the records per parameter.
_PARAMETERS = (1, 10, 100, 1000)
_RECORDS_PER_PARAMETER = (10, 100, 1000, 10_000, 100_000)

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


def report_page(subject: ReportInput, party: str | None = None) -> str:
    """Renders the report on a release or a mechanism file as HTML; the same text for the same input.

    `party` released it, as the page shall say; None leaves it out.
    """
    mechanism, manifest, audit = subject.mechanism, subject.manifest, subject.audit
    randomizer, prior = mechanism.randomizer, mechanism.prior
    facts = manifest_facts(mechanism, manifest)
    ledger = ledger_rows(subject.ledger, audit.fingerprint, None if manifest else mechanism.prior_release)
    # The ledger of the party that applied a mechanism file may lack the prior, which fit charged to another ledger.
    before = Fraction(mechanism.center_epsilon) + Fraction(mechanism.prior_epsilon)
    of_record = before + Fraction(audit.certified_epsilon)
    labels_epsilon, labels_delta = mechanism.labels_certified
    least = Fraction(mechanism.total_epsilon(labels_epsilon)) if manifest else Fraction(0)
    return (
        _environment(_tiny(facts))
        .get_template(_TEMPLATE)
        .render(
            name=subject.name,
            column=_column_name(subject),
            party=party,
            date=_release_date(ledger),
            audit=audit,
            audit_report=audit_report(audit),
            manifest=manifest,
            mechanism=mechanism,
            randomizer=randomizer,
            center=subject.mechanism.center,
            groups=center.group_rows(randomizer) if (center := subject.mechanism.center) else [],
            clipping=center.clipping(randomizer) if (center := subject.mechanism.center) else None,
            certificate=randomizer.certificate(),
            ratio_at=attained_ratio(randomizer, audit.ratio) if audit.ratio and randomizer.pure else None,
            bits=BITS,
            total=TOTAL,
            total_epsilon=manifest.certified_epsilon if manifest else None,
            unit=subject.unit,
            record_epsilon=round_up(of_record),
            delta=manifest.certified_delta if manifest else labels_delta,
            labels_epsilon=labels_epsilon,
            of_unit=lambda epsilon: spent(mechanism.unit, epsilon),
            inferences=label_inferences(randomizer, prior, facts.classes is not None),
            verdict=verdict(facts),
            warnings=release_warnings(facts),
            debiasing=debiasing(facts),
            losses={name: randomizer.expected_loss(prior, loss) for name, loss in losses_of(mechanism).items()},
            validation=subject.validation,
            max_features=_MAX_FEATURES,
            ledger=ledger[-_MAX_LEDGER_ROWS:],
            ledger_rows_before=len(ledger[:-_MAX_LEDGER_ROWS]),
            ledger_is_complete=any(row.this for row in ledger) and ledger[-1].spent.epsilon >= least,
            classes=_class_summary(facts),
            charts=_charts_of(subject, facts),
            **({} if facts.classes is not None else _numbers(facts)),
        )
    )


def _tiny(facts: ReleasedFacts) -> float:
    """Values below this come from rounding."""
    labels = facts.utility.labels
    return 1e-9 * float(labels[-1] - labels[0])


def _numbers(facts: ReleasedFacts) -> dict[str, Any]:
    """What the page has for labels that are numbers alone."""
    randomizer, prior, moments = facts.randomizer, facts.prior, facts.utility
    return {
        "utility": moments,
        "typical_error": math.sqrt(moments.squared_error),
        "label_deviation": math.sqrt(moments.variance),
        "whole": facts.whole_utility,
        "of_what": facts.of_what,
        "parameters": parameters_of(facts),
        "headline": _headline_worth(facts),
        "explained_shares": EXPLAINED_SHARES,
        "worths": _worths(facts),
        "remaining": remaining_bias(facts.whole_utility),
        "example": example(randomizer, prior),
        "bins": _bins(facts),
        "rows": label_rows(randomizer, moments),
        "expected_mean": float(moments.weights @ (moments.labels + moments.bias)),
    }


def _bins(facts: ReleasedFacts) -> list[Bin]:
    randomizer = facts.randomizer
    return label_bins(randomizer.labels, randomizer.outputs, randomizer.probabilities())


def _class_summary(facts: ReleasedFacts) -> ClassSummary | None:
    """Summary of classes; None for labels that are numbers."""
    if facts.classes is None:
        return None
    return ClassSummary(facts.classes, ClassUtility(facts.randomizer, facts.prior), facts.records, facts.features)


def _release_date(ledger: Sequence[LedgerRow]) -> str | None:
    """Year, month and day of the last run that made the release, in UTC; None if the ledger does not have it."""
    return next((row.time[:10] for row in reversed(ledger) if row.this and row.time), None)


def _headline_worth(facts: ReleasedFacts) -> Worth | None:
    """Computes the worth of a label for the model of the verdict; None if there is none.

    Without records, it is that where noise has averaged out for most uses.
    """
    if facts.records is None:
        return worth_of_label(facts, _RECORDS_PER_PARAMETER[2])
    return worth_of_label(facts, facts.records / parameters_of(facts))


def _worths(facts: ReleasedFacts) -> list[tuple[int | None, Worth | None]]:
    """Rows of the table of worths: parameters of a model, None where the records are unknown, and the worth."""
    if facts.records is None:
        return [(None, worth_of_label(facts, ratio)) for ratio in _RECORDS_PER_PARAMETER]
    linear = () if facts.features is None else (facts.features + 1,)
    models = sorted({*_PARAMETERS, *linear})
    return [(each, worth_of_label(facts, facts.records / each)) for each in models if each <= facts.records]


def _column_name(subject: ReportInput) -> str:
    """Name of the label column; "label" where no file names it."""
    return subject.manifest.label if subject.manifest else "label"


def _axis_name(subject: ReportInput) -> str:
    """Name of what the mechanism randomizes: the label, or the label minus its center."""
    center = subject.mechanism.center
    return _column_name(subject) if center is None else f"{_column_name(subject)} - {center.column}"


def _charts_of(subject: ReportInput, facts: ReleasedFacts) -> dict[str, Markup]:
    """Draws the pictures of the page, by name: of prior, outputs, channel and errors, or those of classes.

    Biases that come from rounding are drawn as 0.
    """
    randomizer, prior, moments = facts.randomizer, facts.prior, facts.utility
    name, classes = clipped(_axis_name(subject), _MAX_NAME), _class_summary(facts)
    if classes is not None:
        return {which: Markup(chart) for which, chart in classes.charts(name).items()}
    labels, outputs, probabilities = randomizer.labels, randomizer.outputs, randomizer.probabilities()
    tiny, bins = _tiny(facts), _bins(facts)
    errors = [
        ("error", "total error", moments.error),
        ("deviation", "noise (averages out)", moments.deviation),
        ("bias", "bias (does not)", np.where(np.abs(moments.bias) > tiny, moments.bias, 0.0)),
    ]
    drawn = {
        "prior": prior_chart(labels, prior.weights, outputs, bins, name),
        "outputs": outputs_chart(labels, outputs, prior.weights @ probabilities, name),
        "channel": channel_chart(channel_cells(labels, outputs, probabilities), name),
        "errors": errors_chart(labels, errors, name, "error, in units of the label"),
    }
    return {which: Markup(chart) for which, chart in drawn.items()}


def _environment(tiny: float) -> jinja2.Environment:
    """Makes Jinja with the filters of the templates; values below `tiny` come from rounding and are shown as 0."""
    styles = jinja2.DictLoader({"charts.css": page_style()})
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(Path(__file__).parent), styles]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": number,
        "small": lambda value: number(value if abs(value) > tiny else 0.0),
        "exact": exact,
        "percent": percent,
        "upper_bound": upper_bound,
        "all_digits": all_digits,
        "certainty": lambda epsilon: f"{upper_bound(100 / (1 + math.exp(-epsilon)))}%",
        "odds_factor": lambda epsilon: upper_bound(math.exp(epsilon)),
        "short": lambda value: clipped(str(value), _MAX_TEXT),
        "label_range": lambda ends: label_range(*ends),
        "count": lambda value: f"{value:,.0f}",
        "share_of": lambda share: "more than all" if share > 1 else percent(share),
    }
    found.filters |= filters
    return found


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
        _environment(0.0)
        .get_template(_COMPARISON_TEMPLATE)
        .render(columns=columns, charts=[*zip(*(column.charts for column in columns), strict=True)], party=party)
    )


def _column(subject: ReportInput, name: str) -> Column:
    mechanism, manifest, audit = subject.mechanism, subject.manifest, subject.audit
    randomizer = mechanism.randomizer
    facts = manifest_facts(mechanism, manifest)
    guess = label_inferences(randomizer, mechanism.prior)[0]
    ledger = ledger_rows(subject.ledger, audit.fingerprint, None if manifest else mechanism.prior_release)
    certificate, unit = randomizer.certificate(), subject.unit
    labels_epsilon, labels_delta = mechanism.labels_certified
    of_unit = partial(spent, mechanism.unit)
    parts = (mechanism.center_epsilon, mechanism.prior_epsilon, certificate.epsilon)
    record = sum(map(Fraction, parts), Fraction(0))
    missing = "-"
    texts = {
        "label": _column_name(subject),
        "released on": _release_date(ledger) or missing,
        "records": f"{manifest.records:,}" if manifest else missing,
        "label domain": (
            f"{len(mechanism.domain)} values, {label_range(mechanism.domain[0], mechanism.domain[-1])}"
            if facts.classes is None
            else f"{len(facts.classes):,} classes"
        ),
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
        **_errors(facts, missing),
        "center": mechanism.center.column if mechanism.center else "none",
        "clipped": percent(mechanism.center.clipping(randomizer).share) if mechanism.center else missing,
    }
    captions = _CAPTIONS if facts.classes is None else _CLASS_CAPTIONS
    charts = _charts_of(subject, facts)
    return Column(
        name,
        texts,
        verdict(facts).text,
        [warning.text for warning in release_warnings(facts)],
        [(charts[which], caption) for which, caption in captions.items()],
        None if unit is None else unit.column,
    )


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
    moments, worth, bias = facts.utility, _headline_worth(facts), facts.randomizer.certificate().max_bias
    yield missing
    yield number(math.sqrt(moments.squared_error))
    yield number(math.sqrt(moments.variance))
    yield number(bias if bias > _tiny(facts) else 0.0)
    if worth is None or facts.records is None:
        yield from (missing, missing)
        return
    yield f"{percent(worth.error)} of the variance of the {facts.of_what}, for {parameters_of(facts)} parameters"
    yield "less than nothing" if worth.less_than_nothing else f"{number(worth.worth)} true labels"


def _errors_of_classes(facts: ReleasedFacts, missing: str) -> Iterator[str]:
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
