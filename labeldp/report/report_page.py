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
from labeldp import ClassModel
from markupsafe import Markup

from ..audit.audit_release import audit_report
from ..mechanisms.analysis.class_utility import ClassUtility
from ..mechanisms.analysis.privacy_attacks import label_inferences, largest_advantage, largest_advantage_of_all
from ..mechanisms.center.marginal_center import MarginalCenter
from ..mechanisms.core.budget import round_up
from ..mechanisms.core.integer_weights import BITS, TOTAL
from ..pipelines.publish.release_blocks import certainty, privacy_lines, use_lines
from ..pipelines.publish.released import Released
from .center_summary import CenterSummary
from .class_summary import ClassSummary
from .number_summary import NumberSummary
from .number_text import all_digits, clipped, exact, label_range, number, percent, upper_bound
from .release_summary import LedgerRow, Table, attained_ratio, count, ledger_rows, short
from .report_input import Column, ReportInput
from .svg_plot import page_style

_TEMPLATE = "report.html.j2"

# Lone surrogates are written as escapes, with the page.
_FORBIDDEN = re.compile("[^\\t\\n\\r -~\\xa0-\\ufffd\\U00010000-\\U0010ffff]")
_MAX_FEATURES = 60
_MAX_LEDGER_ROWS = 30
_MAX_NAME = 32  # characters of a column name on an axis

Part = tuple[str, str, float, list[str]]
"""Part of a budget: name, style of its color, epsilon of one record, and texts of further columns."""


def report_page(subject: ReportInput, party: str | None = None) -> str:
    """Renders the report on a release or a mechanism file as HTML; the same text for the same input.

    `party` released it, as the page shall say; None leaves it out.
    """
    released, audit = subject.released, subject.audit
    mechanism, manifest, facts = released.mechanism, released.manifest, released.facts
    ledger, judged = _ledger_of(subject), released.verdict(subject.measured)
    # The ledger of the party that applied a mechanism file may lack the prior, which fit charged to another ledger.
    before = Fraction(mechanism.center_epsilon) + Fraction(mechanism.prior_epsilon)
    labels_epsilon, labels_delta = mechanism.labels_certified
    least = Fraction(mechanism.total_epsilon(labels_epsilon)) if manifest else Fraction(0)
    prior_name = "the noisy prior" if mechanism.prior_epsilon else "the public prior"
    summary = _summary(released, prior_name)
    name = clipped(_axis_name(released), _MAX_NAME)
    return (
        _environment(summary.small if isinstance(summary, NumberSummary) else number)
        .get_template(_TEMPLATE)
        .render(
            name=released.title,
            column=_column_name(released),
            party=party,
            date=_release_date(ledger),
            audit=audit,
            audit_report=audit_report(audit),
            manifest=manifest,
            mechanism=mechanism,
            randomizer=mechanism.drawing.solved,
            center=mechanism.drawing if mechanism.drawing.whole else None,
            has_cells=facts.center.cells,
            has_marginals=isinstance(mechanism.drawing.made, MarginalCenter),
            bits=BITS,
            total=TOTAL,
            total_epsilon=manifest.certified_epsilon if manifest else None,
            unit=released.unit,
            record_epsilon=round_up(before + Fraction(audit.certified_epsilon)),
            delta=manifest.certified_delta if manifest else labels_delta,
            labels_epsilon=labels_epsilon,
            of_unit=released.of_unit,
            prior_name=prior_name,
            verdict=judged,
            warnings=released.warnings(subject.measured, shown=True),
            blocks=_blocks(released, judged),
            debiasing=released.debiasing,
            validation=subject.validation,
            columns=_columns(subject),
            ledger=_ledger_table(ledger, "release" if manifest else "file"),
            ledger_spent=ledger[-1].spent if ledger else None,
            ledger_is_complete=any(row.this for row in ledger) and ledger[-1].spent.epsilon >= least,
            listed=facts.classes,
            facts=facts,
            summary=summary,
            cards=summary.cards(),
            charts={which: Markup(chart) for which, chart in summary.charts(name).items()},
            drawn=summary if isinstance(summary, CenterSummary) else None,
            budget=_budget(released),
            inferences=_inferences(released, prior_name),
            **_randomized(subject),
        )
    )


def _summary(released: Released, prior_name: str) -> NumberSummary | ClassSummary | CenterSummary:
    """Summary of what is released: numbers, classes, or classes that were drawn from a center."""
    drawing, facts, model = released.mechanism.drawing, released.facts, released.mechanism.drawing.model
    if isinstance(model, ClassModel):
        return CenterSummary(model.classes, model.column, model.center)
    if facts.classes is not None:
        utility = ClassUtility(facts.randomizer, facts.prior)
        return ClassSummary(facts.classes, utility, facts.records, facts.features, prior_name)
    clipping = drawing.clipping if drawing.whole else None
    return NumberSummary(facts, "residual" if drawing.whole else "label", prior_name, clipping)


def _blocks(released: Released, judged: Any) -> dict[str, Sequence[str]]:
    """Lines that the command printed of a release, for the head of the page; nothing for a mechanism file."""
    manifest = released.manifest
    if manifest is None:
        return {}
    files = len(manifest.shards)
    shards = f", in {files} shard{'' if files == 1 else 's'}" if files else ""
    return {
        "Released": [f"{manifest.records:,} records with new labels in {manifest.label}{shards}"],
        "Privacy": privacy_lines(manifest.epsilon, [released.mechanism]),
        "Use": use_lines([("", judged)]),
        "Next": ["Train on it with labeldp.training; keep the key with the raw labels, or destroy it."],
    }


def _randomized(subject: ReportInput) -> dict[str, Any]:
    """Values of the page for labels that a randomizer draws; none for classes that were drawn from a center."""
    randomizer, ratio = subject.released.mechanism.drawing.solved, subject.audit.ratio
    if randomizer is None:
        return {}
    ratio_at = attained_ratio(randomizer, ratio) if ratio and randomizer.pure else None
    return {"certificate": randomizer.certificate(), "ratio_at": ratio_at, "losses": subject.released.losses}


def _budget(released: Released) -> tuple[Table, list[tuple[str, str, float]]]:
    """Table of the parts of the budget; style, name and epsilon of each part, of a whole unit, for their bar."""
    mechanism, manifest, of_unit = released.mechanism, released.manifest, released.of_unit
    parts: list[Part]
    if mechanism.drawing.solved is None:
        kinds = ("to-prior", "to-center", "to-labels")
        parts = [
            (part.name, kind, part.epsilon, [count(part.numbers), number(float(part.scale)), number(part.deviation)])
            for part, kind in zip(mechanism.drawing.parts, kinds, strict=False)
        ]
        heads, words, last = ["numbers", "scale of the noise", "its standard deviation"], (0,), [""] * 3
        whole = of_unit(mechanism.center_epsilon)
        caption = "all that depends on true classes. Noise adds up to 0 over the classes; its scale is what one "
        caption += "changed label moves, divided by \u03b5."
    else:
        parts, heads, words = _parts(released), ["Purpose"], (0, 3 if mechanism.unit.request else 2)
        caption = "Certified values are computed exactly from the integer weights that the sampler uses."
        whole, last = of_unit(sum(part[2] for part in parts)), [""]
        if manifest:
            delta = f", with \u03b4 = {number(manifest.delta)}" if manifest.delta else ""
            whole, last = manifest.certified_epsilon, [f"certified; requested: {number(manifest.epsilon)}{delta}"]
    of_record = round_up(sum((Fraction(part[2]) for part in parts), Fraction(0)))
    epsilons = ["\u03b5"]
    if mechanism.unit.request:
        times = f"\u03b5 of a unit, {count(mechanism.unit.max_records)} times that"
        epsilons = ["\u03b5 of one record", times]

    def row(name: str, epsilon: float, whole: float, more: list[str]) -> list[str]:
        return [name, *([number(epsilon)] if mechanism.unit.request else []), number(whole), *more]

    sizes = [(kind, name, of_unit(epsilon)) for name, kind, epsilon, _ in parts]
    rows = [row(name, epsilon, of_unit(epsilon), more) for name, _, epsilon, more in parts]
    rows.append(row("total", of_record, whole, last))
    stop = ":" if mechanism.drawing.solved is None else "."
    heads = ["Release", *epsilons, *heads]
    return Table("Budget", f"Privacy budget{stop} {caption}", heads, rows, words, [part[1] for part in parts]), sizes


def _parts(released: Released) -> list[Part]:
    """Parts of the budget of labels that a randomizer draws, with their purposes."""
    mechanism, drawing = released.mechanism, released.mechanism.drawing
    parts: list[Part] = []
    if drawing.whole and mechanism.center_epsilon:
        cells = " and of residuals in cells of the features," if released.facts.center.cells else ""
        sums = f"noisy sums of features times labels,{cells} from which the center is computed"
        if isinstance(drawing.made, MarginalCenter):
            of = "noisy histogram of the labels, and noisy sums of them by parts of each feature"
            sums = f"{of}, from which the center is computed"
        parts.append(("center", "to-center", mechanism.center_epsilon, [sums]))
    purpose = "none: the prior is public"
    if mechanism.prior_epsilon:
        kinds = "classes" if mechanism.classes is not None else "residuals" if drawing.whole else "labels"
        use = ", for which the mechanism is optimized"
        if mechanism.classes is not None:
            use = ": their shares, as far as noise shows them"
        purpose = f"noisy histogram of the {kinds}{use}"
    labels = drawing.randomizer.certificate().epsilon
    parts.append(("prior", "to-prior", mechanism.prior_epsilon, [purpose]))
    return [*parts, ("labels", "to-labels", labels, ["one randomized label for each record"])]


def _inferences(released: Released, prior_name: str) -> Table:
    """Table of the best guesses of a label, or of bounds on the advantage at a center of classes."""
    mechanism, randomizer = released.mechanism, released.mechanism.drawing.solved
    if randomizer is None:
        share, epsilon = float(mechanism.prior.weights.max()), mechanism.center_epsilon
        bounds = percent(largest_advantage(share, epsilon)), percent(largest_advantage_of_all(epsilon))
        rows = [
            ["knows the shares of the classes, by the noised counts", percent(share), bounds[0]],
            ["knows anything else, such as features and all other labels", "any", bounds[1]],
        ]
        gain = "Largest gain in the probability of a correct guess of one class"
        caption = f"Label inference. {gain}, at this \u03b5{' of one record' if released.unit else ''}."
        heads = ["Adversary", "correct without the release", "advantage, at most"]
        return Table("Label inference", caption, heads, rows)
    itself = "the label itself" if mechanism.classes is None else "the class itself"
    rows = [
        [
            f"within {number(guess.tolerance)} of the label" if guess.tolerance else itself,
            *map(percent, (guess.informed, guess.uninformed, guess.advantage)),
            *([] if guess.bound is None else [percent(guess.bound)]),
        ]
        for guess in label_inferences(randomizer, mechanism.prior, mechanism.classes is not None)
    ]
    heads = ["Correct guess", "with the released label", "from the prior alone", "advantage"]
    if randomizer.pure:
        heads.append("largest advantage at this \u03b5")
    adversary = f"an adversary who knows {prior_name} and the mechanism guesses a label correctly"
    return Table("Label inference", f"Best label-inference attack. Probability that {adversary}.", heads, rows)


def _columns(subject: ReportInput) -> Table | None:
    """Table of the columns of a validated release."""
    validation = subject.validation
    if validation is None:
        return None
    shown, fewer = validation.features[:_MAX_FEATURES], validation.before != validation.after

    def row(column: Column, compared: str) -> list[str]:
        values = [column.low, column.mean, column.high]
        numbers = ["" if value is None or column.distinct is not None else number(value) for value in values]
        distinct = "" if column.distinct is None else count(column.distinct)
        return [short(column.name), column.kind, count(column.missing), *numbers, distinct, compared]

    def compared(column: Column) -> str:
        changed = "fewer records" if fewer else "different"
        return "new" if column.added else "same" if column.unchanged else changed

    rows = [row(column, compared(column)) for column in shown] + [row(validation.label, "private")]
    heads = ["Column", "type", "missing", "minimum", "mean", "maximum", "distinct values", "compared with the input"]
    some = f"{len(shown)} of {len(validation.features)} features"
    if len(shown) == len(validation.features):
        some = "All features"
    caption = f"{some}, and the released label, in {count(validation.after)} records"
    return Table("Columns", caption, heads, rows, (0, 1, 7))


def _ledger_table(ledger: Sequence[LedgerRow], name: str) -> Table | None:
    """Table of the last runs in the ledger; None without a ledger."""
    if not ledger:
        return None
    deltas, shown = bool(ledger[-1].spent.delta), ledger[-_MAX_LEDGER_ROWS:]
    rows = [row.texts(name, deltas) for row in shown]
    epsilon, delta = "\u03b5", "\u03b4"
    heads = ["Time", "command", "label", "output", "records", f"{epsilon} added", f"total {epsilon}"]
    heads += [f"{delta} added", f"total {delta}"] if deltas else []
    caption = "All runs" if len(rows) == len(ledger) else f"The last {len(rows)} of {len(ledger)} runs"
    return Table("Ledger", caption, heads, rows, range(4))


def _ledger_of(subject: ReportInput) -> list[LedgerRow]:
    """Rows of the ledger, of which some made the release, or the prior or center that the mechanism file holds."""
    return ledger_rows(subject.ledger, subject.audit.fingerprint, subject.released.charged_as)


def _release_date(ledger: Sequence[LedgerRow]) -> str | None:
    """Year, month and day of the last run that made the release, in UTC; None if the ledger does not have it."""
    return next((str(row.run["time"])[:10] for row in reversed(ledger) if row.this and row.run.get("time")), None)


def _column_name(released: Released) -> str:
    """Name of the label column; "label" where no file names it."""
    return released.manifest.label if released.manifest else "label"


def _axis_name(released: Released) -> str:
    """Name of what the mechanism randomizes: the label, or the label minus its center."""
    name, drawing = _column_name(released), released.mechanism.drawing
    return f"{name} - {drawing.column}" if drawing.whole else name


def _legible(value: Any) -> Any:
    """Replaces the characters of a text that HTML forbids, such as the escapes of terminals."""
    if not isinstance(value, str) or not _FORBIDDEN.search(value):
        return value
    # A Markup stays one: what it is made of was escaped.
    return type(value)(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value))


def _environment(small: Callable[[float], str]) -> jinja2.Environment:
    """Makes Jinja with the filters of the template; `small` formats values that may come from rounding."""
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
        "small": small,
        "exact": exact,
        "percent": percent,
        "upper_bound": upper_bound,
        "all_digits": all_digits,
        "certainty": certainty,
        "odds_factor": lambda epsilon: upper_bound(math.exp(epsilon)),
        "short": short,
        "label_range": lambda ends: label_range(*ends),
        "count": count,
    }
    found.filters |= filters
    return found
