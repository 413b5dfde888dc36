"""HTML page of the report, rendered from a template with charts as inline SVG.

The page has no script and refers to nothing outside itself; all text from files is escaped. Needs the extra
`evaluation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from ...mechanisms.analysis.utility import Utility, utility
from ...mechanisms.core.alias_table import BITS, TOTAL
from ...mechanisms.core.losses import LOSSES
from ..audit.audit_command import audit_report
from . import number_format
from .channel_chart import channel_chart
from .chart_data import Bin, channel_cells, label_bins
from .charts import errors_chart, outputs_chart, prior_chart
from .release_summary import attained_ratio, example, label_rows, ledger_rows, remaining_bias
from .report_input import ReportInput

_TEMPLATE = "report.html.j2"

_MAX_FEATURES = 60
_MAX_LEDGER_ROWS = 30
_MAX_NAME = 32  # characters of a column name on an axis
_MAX_TEXT = 80  # characters of any other text that users chose

# Shares of the label variance that the features explain, in the table of effective sample sizes.
_EXPLAINED_SHARES = (0.0, 0.5, 0.9)


def report_page(subject: ReportInput) -> str:
    """Renders the report.

    Args:
      subject: A release or a mechanism file.

    Returns:
      The HTML text; the same for the same input.
    """
    mechanism, manifest, audit = subject.mechanism, subject.manifest, subject.audit
    randomizer, prior = mechanism.randomizer, mechanism.prior
    moments = utility(randomizer, prior)
    tiny = 1e-9 * float(moments.labels[-1] - moments.labels[0])
    bins = label_bins(randomizer.labels, randomizer.outputs, randomizer.probabilities())
    losses = {name: loss for name, loss in LOSSES.items() if not loss.nonnegative or randomizer.labels[0] >= 0}
    ledger = ledger_rows(subject.ledger, audit.fingerprint, None if manifest else mechanism.prior_release)
    # The ledger of whoever applied a mechanism file may lack the prior, which fit charged to another ledger.
    least = Fraction(mechanism.prior_epsilon) + Fraction(audit.certified_epsilon) if manifest else Fraction(0)
    return (
        _environment(tiny)
        .get_template(_TEMPLATE)
        .render(
            name=subject.name,
            column=_column(subject),
            audit=audit,
            audit_report=audit_report(audit),
            manifest=manifest,
            mechanism=mechanism,
            randomizer=randomizer,
            certificate=randomizer.certificate(),
            ratio_at=attained_ratio(randomizer, audit.ratio) if audit.ratio and randomizer.pure else None,
            bits=BITS,
            total=TOTAL,
            total_epsilon=manifest.certified_epsilon if manifest else None,
            utility=moments,
            typical_error=math.sqrt(moments.squared_error),
            label_deviation=math.sqrt(moments.variance),
            efficiencies=[(share, moments.efficiency(share)) for share in _EXPLAINED_SHARES],
            losses={name: randomizer.expected_loss(prior, loss) for name, loss in losses.items()},
            remaining=remaining_bias(moments),
            example=example(randomizer, prior),
            bins=bins,
            rows=label_rows(randomizer, moments),
            validation=subject.validation,
            max_features=_MAX_FEATURES,
            expected_mean=float(moments.weights @ (moments.labels + moments.bias)),
            ledger=ledger[-_MAX_LEDGER_ROWS:],
            ledger_rows_before=len(ledger[:-_MAX_LEDGER_ROWS]),
            ledger_is_complete=any(row.this for row in ledger) and ledger[-1].spent.epsilon >= least,
            charts=_charts(subject, moments, bins, tiny),
        )
    )


def _column(subject: ReportInput) -> str:
    return subject.manifest.label if subject.manifest else "label"


def _charts(subject: ReportInput, moments: Utility, bins: list[Bin], tiny: float) -> dict[str, Markup]:
    randomizer, prior = subject.mechanism.randomizer, subject.mechanism.prior
    labels, outputs, probabilities = randomizer.labels, randomizer.outputs, randomizer.probabilities()
    name = number_format.clipped(_column(subject), _MAX_NAME)
    errors = [
        ("error", "root mean squared error", moments.error),
        ("deviation", "standard deviation", moments.deviation),
        ("bias", "bias", np.where(np.abs(moments.bias) > tiny, moments.bias, 0.0)),
    ]
    return {
        "prior": prior_chart(labels, prior.weights, outputs, bins, name),
        "outputs": outputs_chart(labels, outputs, prior.weights @ probabilities, name),
        "channel": channel_chart(channel_cells(labels, outputs, probabilities), name),
        "errors": errors_chart(labels, errors, name, "error, in units of the label"),
    }


def _environment(tiny: float) -> jinja2.Environment:
    """Jinja with the filters of the template. tiny: values below it come from rounding and are shown as 0."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": number_format.number,
        "small": lambda value: number_format.number(value if abs(value) > tiny else 0.0),
        "exact": number_format.exact,
        "percent": number_format.percent,
        "upper_bound": number_format.upper_bound,
        "all_digits": number_format.all_digits,
        "certainty": lambda epsilon: f"{number_format.upper_bound(100 / (1 + math.exp(-epsilon)))}%",
        "odds_factor": lambda epsilon: number_format.upper_bound(math.exp(epsilon)),
        "short": lambda value: number_format.clipped(str(value), _MAX_TEXT),
        "label_range": lambda ends: number_format.label_range(*ends),
        "count": lambda value: f"{value:,.0f}",
    }
    environment.filters |= filters
    return environment
