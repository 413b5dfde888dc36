"""HTML page of the report on a release or a mechanism file.

It is rendered from a template with charts as inline SVG. A page has no script and refers to nothing outside itself; all
text from files is escaped. Needs the extra `evaluation`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from ..audit.audit_mechanism import Audit
from ..audit.audit_release import audit_report
from ..mechanisms.analysis.class_utility import ClassUtility
from ..mechanisms.analysis.findings import Verdict
from ..mechanisms.analysis.privacy_attacks import label_inferences, largest_advantage, largest_advantage_of_all
from ..mechanisms.analysis.release_warnings import measured_warnings, shown_warnings
from ..mechanisms.analysis.utility import ReleasedFacts
from ..mechanisms.analysis.verdict import debiasing, parameters_of, verdict
from ..mechanisms.center.class_model import ClassModel
from ..mechanisms.core.budget import round_up
from ..mechanisms.core.integer_weights import BITS, TOTAL
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.release.unit_bound import spent
from ..pipelines.cli.text_format import all_digits, clipped, exact, label_range, number, percent, upper_bound
from ..pipelines.publish.manifest import losses_of, manifest_facts
from ..pipelines.publish.release_blocks import certainty, privacy_lines, use_lines
from ..pipelines.spec.mechanism_file import MechanismFile, center_release_name
from .center_summary import CenterSummary
from .class_summary import ClassSummary
from .label_worth import EXPLAINED_SHARES, Worth, worth_of_label
from .mechanism_charts import Bin, channel_cells, channel_chart, errors_chart, label_bins, outputs_chart, prior_chart
from .release_summary import LedgerRow, attained_ratio, example, label_rows, ledger_rows, remaining_bias
from .report_input import ReportInput
from .svg_plot import page_style

_TEMPLATE, _CENTER_TEMPLATE = "report.html.j2", "class_center.html.j2"

# Lone surrogates are written as escapes, with the page.
_FORBIDDEN = re.compile("[^\\t\\n\\r -~\\xa0-\\ufffd\\U00010000-\\U0010ffff]")
_MAX_FEATURES = 60
_MAX_LEDGER_ROWS = 30
_MAX_NAME = 32  # characters of a column name on an axis
_MAX_TEXT = 80  # characters of any other text that users chose

# Models in the table of the worth of a label: their parameters, or without records, the records per parameter.
_PARAMETERS = (1, 10, 100, 1000)
_RECORDS_PER_PARAMETER = (10, 100, 1000, 10_000, 100_000)


def report_page(subject: ReportInput, party: str | None = None) -> str:
    """Renders the report on a release or a mechanism file as HTML; the same text for the same input.

    `party` released it, as the page shall say; None leaves it out.
    """
    mechanism, manifest, audit = subject.mechanism, subject.manifest, subject.audit
    randomizer = mechanism.drawing.solved
    facts = manifest_facts(mechanism, manifest)
    ledger = _ledger_of(subject)
    # The ledger of the party that applied a mechanism file may lack the prior, which fit charged to another ledger.
    before = Fraction(mechanism.center_epsilon) + Fraction(mechanism.prior_epsilon)
    of_record = before + Fraction(audit.certified_epsilon)
    labels_epsilon, labels_delta = mechanism.labels_certified
    least = Fraction(mechanism.total_epsilon(labels_epsilon)) if manifest else Fraction(0)
    drawn = _center_summary(mechanism)
    return (
        _environment(_tiny_of(facts))
        .get_template(_TEMPLATE if drawn is None else _CENTER_TEMPLATE)
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
            center=mechanism.drawing if mechanism.drawing.whole else None,
            has_cells=facts.center is not None and facts.center.cells,
            bits=BITS,
            total=TOTAL,
            total_epsilon=manifest.certified_epsilon if manifest else None,
            unit=subject.unit,
            record_epsilon=round_up(of_record),
            delta=manifest.certified_delta if manifest else labels_delta,
            labels_epsilon=labels_epsilon,
            of_unit=lambda epsilon: spent(mechanism.unit, epsilon),
            verdict=verdict(facts, subject.measured),
            warnings=[*shown_warnings(facts), *measured_warnings(subject.measured)],
            blocks=_blocks(subject, verdict(facts, subject.measured)),
            debiasing=debiasing(facts),
            validation=subject.validation,
            max_features=_MAX_FEATURES,
            ledger=ledger[-_MAX_LEDGER_ROWS:],
            ledger_rows_before=len(ledger[:-_MAX_LEDGER_ROWS]),
            ledger_is_complete=any(row.this for row in ledger) and ledger[-1].spent.epsilon >= least,
            listed=facts.classes,
            classes=_class_summary(facts),
            drawn=drawn,
            charts=_charts_of(subject, facts),
            **({} if facts.classes is not None else _numbers(facts)),
            **(_advantage_bounds(mechanism) if randomizer is None else _randomized(mechanism, randomizer, audit)),
        )
    )


def _blocks(subject: ReportInput, judged: Verdict) -> dict[str, Sequence[str]]:
    """Lines that the command printed of a release, for the head of the page; nothing for a mechanism file."""
    manifest = subject.manifest
    if manifest is None:
        return {}
    files = len(manifest.shards)
    shards = f", in {files} shard{'' if files == 1 else 's'}" if files else ""
    return {
        "Released": [f"{manifest.records:,} records with new labels in {manifest.label}{shards}"],
        "Privacy": privacy_lines(manifest.epsilon, [subject.mechanism]),
        "Use": use_lines([("", judged)]),
        "Next": ["Train on it with labeldp.training; keep the key with the raw labels, or destroy it."],
    }


def _tiny_of(facts: ReleasedFacts) -> float:
    """Values below this come from rounding."""
    labels = facts.prior.labels
    return 1e-9 * float(labels[-1] - labels[0])


def _randomized(mechanism: MechanismFile, randomizer: Randomizer, audit: Audit) -> dict[str, Any]:
    """Values of the page for labels that a randomizer draws."""
    prior, drawing = mechanism.prior, mechanism.drawing
    return {
        "clipping": drawing.clipping if drawing.whole else None,
        "certificate": randomizer.certificate(),
        "ratio_at": attained_ratio(randomizer, audit.ratio) if audit.ratio and randomizer.pure else None,
        "inferences": label_inferences(randomizer, prior, mechanism.classes is not None),
        "losses": {name: randomizer.expected_loss(prior, loss) for name, loss in losses_of(mechanism).items()},
    }


def _numbers(facts: ReleasedFacts) -> dict[str, Any]:
    """Values of the page for labels that are numbers alone."""
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
    if facts.classes is None or facts.drawn_from_center:
        return None
    return ClassSummary(facts.classes, ClassUtility(facts.randomizer, facts.prior), facts.records, facts.features)


def _center_summary(mechanism: MechanismFile) -> CenterSummary | None:
    """Summary of the center that classes were drawn from; None for any other release."""
    model = mechanism.drawing.model
    return CenterSummary(model.classes, model.column, model.center) if isinstance(model, ClassModel) else None


def _advantage_bounds(mechanism: MechanismFile) -> dict[str, Any]:
    """Bounds on the advantage at a center of classes: of who knows the shares, and of who knows anything."""
    share, epsilon = float(mechanism.prior.weights.max()), mechanism.center_epsilon
    return {"best_share": share, "bounds": (largest_advantage(share, epsilon), largest_advantage_of_all(epsilon))}


def _ledger_of(subject: ReportInput) -> list[LedgerRow]:
    """Rows of the ledger, of which some made the release, or the prior or center that the mechanism file holds."""
    mechanism = subject.mechanism
    released = None if subject.manifest else mechanism.drawing.prior_release
    if not mechanism.drawing.solved:
        released = center_release_name(mechanism)
    return ledger_rows(subject.ledger, subject.audit.fingerprint, released)


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
    name, drawing = _column_name(subject), subject.mechanism.drawing
    return f"{name} - {drawing.column}" if drawing.whole else name


def _charts_of(subject: ReportInput, facts: ReleasedFacts) -> dict[str, Markup]:
    """Draws the pictures of the page, by name: of prior, outputs, channel and errors, or those of classes.

    Biases that come from rounding are drawn as 0.
    """
    name = clipped(_axis_name(subject), _MAX_NAME)
    classes: ClassSummary | CenterSummary | None = _center_summary(subject.mechanism) or _class_summary(facts)
    if classes is not None:
        return {which: Markup(chart) for which, chart in classes.charts(name).items()}
    randomizer, prior, moments = facts.randomizer, facts.prior, facts.utility
    labels, outputs, probabilities = randomizer.labels, randomizer.outputs, randomizer.probabilities()
    tiny, bins = _tiny_of(facts), _bins(facts)
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


def _legible(value: Any) -> Any:
    """Replaces the characters of a text that HTML forbids, such as the escapes of terminals."""
    if not isinstance(value, str) or not _FORBIDDEN.search(value):
        return value
    # A Markup stays one: what it is made of was escaped.
    return type(value)(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value))


def _environment(tiny: float) -> jinja2.Environment:
    """Makes Jinja with the filters of the templates; values below `tiny` come from rounding and are shown as 0."""
    styles = jinja2.DictLoader({"charts.css": page_style()})
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(Path(__file__).parent), styles]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_legible,
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
        "certainty": certainty,
        "odds_factor": lambda epsilon: upper_bound(math.exp(epsilon)),
        "short": lambda value: clipped(str(value), _MAX_TEXT),
        "label_range": lambda ends: label_range(*ends),
        "count": lambda value: f"{value:,.0f}",
        "share_of": lambda share: "more than all" if share > 1 else percent(share),
    }
    found.filters |= filters
    return found
