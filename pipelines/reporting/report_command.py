"""`labeldp report`: one self-contained HTML page on a release, for those who audit it and those who train on it.

Everything on it follows from what was released: mechanism.json, release.json, validation/ and the ledger. The page has
no script and refers to nothing outside itself. A release that fails the audit, or whose manifest says other than its
mechanism, gets no page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ...mechanisms.analysis.utility import Utility, utility
from ...mechanisms.core.alias_table import BITS, TOTAL
from ...mechanisms.core.losses import LOSSES
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...transforms.errors import InputError
from ..audit.audit_command import report as audit_text
from ..audit.audit_mechanism import Audit
from ..audit.audit_release import audit_path
from ..cli.arguments import ArgumentParser, UsageError
from ..cli.exit_codes import run_command
from ..cli.local_files import check_file, write_file
from ..cli.optional_extras import check_extra
from ..release.ledger import Ledger, LedgerEntry, Spent, ledger_beside, total
from ..release.manifest import ADJACENCY, MANIFEST_NAME, Manifest, read_manifest
from ..release.mechanism_file import MECHANISM_NAME, MechanismFile, read_mechanism_file
from .validation_summary import ValidationSummary, read_validation

REPORT_NAME = "report.html"


_TEMPLATE = "report.html.j2"


_MOST_ROWS = 21  # of the table of labels


_MOST_FEATURES = 60


_MOST_RUNS = 30  # of the ledger


_MOST_LISTED = 4  # outputs of the example


_LONGEST_NAME = 32  # of a column, on a chart's axis


_LONGEST_TEXT = 80  # of what users name, in the text


_EXPLAINED = (0.0, 0.5, 0.9)


_SAME = 1e-9  # relative; sums may differ in their last digits between versions of numpy


def run(argv: Sequence[str] | None = None) -> int:
    """The command. Prints where the page is. Returns the exit code."""
    parser = ArgumentParser("labeldp report", "Explain a release, or a mechanism file, as one HTML page.")
    parser.add_argument("path", metavar="FOLDER|FILE", help="an output folder or a mechanism file")
    parser.add_argument(
        "--output", metavar="FILE", help=f"the page to write; default {REPORT_NAME} beside the manifest"
    )
    args = parser.parse_args(argv)

    def work() -> None:
        check_extra(parser.prog, "evaluation", "jinja2")
        if not os.path.exists(args.path):
            raise UsageError(f"{args.path} does not exist: name an output folder or a mechanism file")
        output = args.output if args.output is not None else default_output(args.path)
        _check_output(output)
        page = report_page(args.path)
        try:
            write_file(output, page)
        except OSError as error:
            raise InputError(f"--output {output} cannot be written: {error.strerror}") from None
        print(f"report     {output}")

    return run_command(parser.prog, work, (InputError,))


def default_output(path: str) -> str:
    """Where the page goes: into a release's folder, or beside a file."""
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path), REPORT_NAME)


def _check_output(output: str) -> None:
    if not output.strip():
        raise UsageError("--output is empty: name a file")
    check_file("--output", output)
    if os.path.lexists(output):
        # A page that was there before would still look fine when this release is not.
        raise UsageError(f"--output {output} exists: name another file, or delete it")


def report_page(path: str) -> str:
    """The page on a release or a mechanism file. Raises InputError, saying why, when there is nothing to vouch for."""
    audit = audit_path(path)
    if audit.problems:
        raise InputError(f"{path} fails the audit, so there is no report on it: {'; '.join(audit.problems)}")
    where = Path(path)
    released = where.is_dir() or audit.total_epsilon is not None
    folder = where if where.is_dir() else where.parent
    mechanism = read_mechanism_file(str(folder / MECHANISM_NAME if released else where))
    manifest = read_manifest(str(folder / MANIFEST_NAME)) if released else None
    problems = contradictions(manifest, mechanism) if manifest else []
    if mechanism.randomizer.fingerprint.hex() != audit.fingerprint:
        problems.append("the mechanism file changed while it was read")
    if problems:
        raise InputError(f"{path} contradicts itself, so there is no report on it: {'; '.join(problems)}")
    validation = read_validation(str(folder), manifest.label) if manifest else None
    if manifest and validation:
        counts = (manifest.records + manifest.records_without_label, manifest.records)
        if (validation.before, validation.after) != counts:
            raise InputError(f"{path} contradicts itself, so there is no report on it: validation/ is of other records")
    name = os.path.basename(os.path.abspath(folder if released else where))
    ledger = Ledger(ledger_beside(os.path.abspath(folder if released else where)))
    return render(name, audit, mechanism, manifest, ledger.entries(), validation)


def contradictions(manifest: Manifest, mechanism: MechanismFile) -> list[str]:
    """What a manifest says of its mechanism that does not follow from it, beyond what the audit checks."""
    randomizer, problems = mechanism.randomizer, []
    if manifest.mechanism != randomizer.mechanism:
        problems.append(f"{MANIFEST_NAME} names another mechanism")
    if manifest.adjacency != ADJACENCY:
        problems.append(f"{MANIFEST_NAME} names another adjacency")
    if manifest.delta != randomizer.delta:
        problems.append(f"{MANIFEST_NAME} names another delta")
    if manifest.domain != (randomizer.labels[0], randomizer.labels[-1], len(randomizer.labels)):
        problems.append(f"{MANIFEST_NAME} names another label domain")
    if not math.isclose(manifest.max_bias, randomizer.certificate().max_bias, rel_tol=_SAME):
        problems.append(f"{MANIFEST_NAME} names another max_bias")
    for name, loss in LOSSES.items():
        said = manifest.expected_loss.get(name)
        if said is not None and not _same(said, randomizer.expected_loss(mechanism.prior, loss)):
            problems.append(f"{MANIFEST_NAME} names another expected {name} loss")
    if sum(manifest.shards.values()) != manifest.records:
        problems.append(f"the shards in {MANIFEST_NAME} do not add up to its records")
    return problems


def _same(said: float, found: float) -> bool:
    return math.isclose(said, found, rel_tol=_SAME, abs_tol=1e-300)


@dataclass(frozen=True)
class Attained:
    """Where the largest likelihood ratio is: at how many outputs, and for the first of them which labels have the
    largest and the smallest chance, as first and last label."""

    outputs: int
    output: float
    likely: tuple[float, float]
    unlikely: tuple[float, float]


def attained(randomizer: Randomizer, ratio: Fraction) -> Attained:
    """Where the ratio is attained, decided in integers. Raises ValueError when it is not the randomizer's."""
    largest, smallest = randomizer.weights.max(axis=0), randomizer.weights.min(axis=0)
    pairs = zip(largest.tolist(), smallest.tolist(), strict=True)
    columns = [column for column, (top, bottom) in enumerate(pairs) if bottom and Fraction(top, bottom) == ratio]
    if not columns:
        raise ValueError("no output has this likelihood ratio")
    column = randomizer.weights[:, columns[0]]
    output = float(randomizer.outputs[columns[0]])
    first_run = [_first_run(randomizer.labels, column == extreme) for extreme in (column.max(), column.min())]
    return Attained(len(columns), output, *first_run)


def _first_run(labels: np.ndarray, mask: np.ndarray) -> tuple[float, float]:
    first = int(mask.argmax())
    rest = mask[first:]
    length = len(rest) if rest.all() else int(rest.argmin())
    return float(labels[first]), float(labels[first + length - 1])


@dataclass(frozen=True)
class Example:
    """What becomes of one label: its outputs and their chances where they are few, else 90 % of them as a range."""

    label: float
    chance: float
    outputs: list[tuple[float, float]]
    central: tuple[float, float]


def example(randomizer: Randomizer, prior: Prior) -> Example:
    """Of the label that the prior holds most likely."""
    place = int(prior.weights.argmax())
    weights = randomizer.weights[place]
    row, outputs = weights / float(TOTAL), randomizer.outputs
    order = np.argsort(-row)[: _MOST_LISTED if len(outputs) <= _MOST_LISTED else 0]
    below = np.cumsum(row)
    central = outputs[np.searchsorted(below, [0.05, 0.95 * below[-1]])]
    listed = [(float(outputs[output]), float(row[output])) for output in order]
    return Example(float(prior.labels[place]), float(prior.weights[place]), listed, tuple(central.tolist()))


@dataclass(frozen=True)
class Run:
    """A line of the ledger. added: what it cost that was not charged before; spent: what all came to by then."""

    time: str
    command: str
    label: str
    output: str
    records: str
    added: Spent
    spent: Spent
    this: bool


def ledger_runs(entries: Sequence[dict[str, Any]], fingerprint: str, prior_release: str | None) -> list[Run]:
    """The ledger's lines with their sums: a release is charged once, however often it is made. `this` are those with
    labels of that fingerprint, or a prior of that name."""
    known: list[LedgerEntry] = []
    runs, before = [], total(known)
    for entry in entries:
        charges = [LedgerEntry.from_dict(charge) for charge in entry["charges"]]
        known += charges
        spent = total(known)
        runs.append(
            Run(
                str(entry.get("time", "")),
                str(entry.get("command", "")),
                str(entry.get("label", "")),
                # Folders above it are the labels party's own affair.
                os.path.basename(str(entry.get("output", ""))),
                str(entry.get("records", "")),
                Spent(spent.epsilon - before.epsilon, spent.delta - before.delta),
                spent,
                any(charge.release.endswith(fingerprint[:32]) or charge.release == prior_release for charge in charges),
            )
        )
        before = spent
    return runs


@dataclass(frozen=True)
class Row:
    """What happens to one label: its chance under the prior, its likeliest output, and how far outputs are from it."""

    label: float
    weight: float
    output: float
    chance: float
    bias: float
    deviation: float
    error: float


def rows(randomizer: Randomizer, found: Utility) -> list[Row]:
    """Of all labels, or of some of them, evenly spaced, the first and the last among them."""
    k = len(found.labels)
    some = np.unique(np.linspace(0, k - 1, min(k, _MOST_ROWS)).round().astype(int))
    likeliest = randomizer.weights[some].argmax(axis=1)
    chances = randomizer.weights[some, likeliest] / float(TOTAL)
    columns = (
        found.labels[some],
        found.weights[some],
        randomizer.outputs[likeliest],
        chances,
        found.bias[some],
        found.deviation[some],
        found.error[some],
    )
    return [Row(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def bound(value: float | Fraction) -> str:
    """Four significant digits, rounded up."""
    exact = Fraction(value)
    rounded = Context(prec=4, rounding=ROUND_CEILING).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{float(rounded):.4g}"


def clipped(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than that."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _remaining(found: Utility) -> dict[str, float] | None:
    """The bias that the line leaves: over the prior, and at most. None where there is no line."""
    if found.slope == 0:
        return None
    left = found.remaining_bias
    return {"typical": math.sqrt(found.weights @ left**2), "most": float(np.abs(left).max())}


def render(
    name: str,
    audit: Audit,
    mechanism: MechanismFile,
    manifest: Manifest | None,
    entries: Sequence[dict[str, Any]],
    validation: ValidationSummary | None = None,
) -> str:
    """The page as text. name: of the release. entries: the ledger's."""
    import jinja2

    from . import charts

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    randomizer, prior = mechanism.randomizer, mechanism.prior
    found = utility(randomizer, prior)
    tiny = 1e-9 * float(found.labels[-1] - found.labels[0])
    environment.filters |= {
        "number": charts.number,
        "small": lambda value: charts.number(value if abs(value) > tiny else 0.0),
        "exact": charts.exact,
        "percent": charts.percent,
        "bound": bound,
        "digits": lambda value: repr(value) if math.isfinite(value) else "infinite",
        "certainty": lambda epsilon: f"{bound(100 / (1 + math.exp(-epsilon)))}%",
        "factor": lambda epsilon: bound(math.exp(epsilon)),
        "short": lambda value: clipped(str(value), _LONGEST_TEXT),
        "range": lambda ends: charts.span(*ends),
    }
    probabilities = randomizer.probabilities()
    column = manifest.label if manifest else "label"
    short = clipped(column, _LONGEST_NAME)
    bins = charts.bins(randomizer.labels, randomizer.outputs, probabilities)
    losses = {name: loss for name, loss in LOSSES.items() if not loss.nonnegative or randomizer.labels[0] >= 0}
    runs = ledger_runs(entries, audit.fingerprint, None if manifest else mechanism.prior_release)
    # Of a release that was made with a mechanism file, ledgers may have the labels alone.
    least = Fraction(mechanism.prior_epsilon) + Fraction(audit.certified_epsilon) if manifest else Fraction(0)
    errors = [
        ("error", "root mean squared error", found.error),
        ("deviation", "standard deviation", found.deviation),
        ("bias", "bias", np.where(np.abs(found.bias) > tiny, found.bias, 0.0)),
    ]
    return environment.get_template(_TEMPLATE).render(
        name=name,
        column=column,
        audit=audit,
        audit_text=audit_text(audit),
        manifest=manifest,
        mechanism=mechanism,
        randomizer=randomizer,
        certificate=randomizer.certificate(),
        ratio_at=attained(randomizer, audit.ratio) if audit.ratio and randomizer.pure else None,
        bits=BITS,
        total=TOTAL,
        total_epsilon=manifest.certified_epsilon if manifest else None,
        utility=found,
        typical_error=math.sqrt(found.squared_error),
        spread=math.sqrt(found.variance),
        worth=[(explained, found.worth(explained)) for explained in _EXPLAINED],
        losses={name: randomizer.expected_loss(prior, loss) for name, loss in losses.items()},
        remaining=_remaining(found),
        example=example(randomizer, prior),
        bins=bins,
        rows=rows(randomizer, found),
        validation=validation,
        most_features=_MOST_FEATURES,
        expected_mean=float(found.weights @ (found.labels + found.bias)),
        runs=runs[-_MOST_RUNS:],
        runs_before=len(runs[:-_MOST_RUNS]),
        runs_name_this=any(run.this for run in runs) and runs[-1].spent.epsilon >= least,
        charts={
            "prior": charts.prior_chart(randomizer.labels, prior.weights, randomizer.outputs, bins, short),
            "outputs": charts.outputs_chart(
                randomizer.labels, randomizer.outputs, prior.weights @ probabilities, short
            ),
            "channel": charts.heat_map(charts.gather(randomizer.labels, randomizer.outputs, probabilities), short),
            "errors": charts.lines_chart(randomizer.labels, errors, short, "error, in the label's unit"),
        },
    )
