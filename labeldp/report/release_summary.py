"""Summary of a release for its report: example, table of labels, privacy unit, sums of the ledger, attained ratio."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..mechanisms.analysis.utility import Utility
from ..mechanisms.core.integer_weights import TOTAL
from ..mechanisms.core.prior import Prior
from ..mechanisms.core.randomizer import Randomizer
from ..pipelines.ledger.spent_budget import LedgerEntry, SpentBudget, compose
from ..pipelines.spec.mechanism_file import MechanismFile
from .mechanism_charts import evenly_spaced

_MAX_LABEL_ROWS = 21
_MAX_LISTED_OUTPUTS = 4  # of the example


@dataclass(frozen=True)
class AttainedRatio:
    """Location of the largest likelihood ratio.

    Attributes:
      outputs: Number of outputs that have it.
      output: The first of them.
      likely: First and last of the lowest labels that give this output the largest probability.
      unlikely: The same for the smallest probability.
    """

    outputs: int
    output: float
    likely: tuple[float, float]
    unlikely: tuple[float, float]


def attained_ratio(randomizer: Randomizer, ratio: Fraction) -> AttainedRatio:
    """Finds the outputs with the largest likelihood ratio of two weights, in integers.

    Raises ValueError if no output has this ratio.
    """
    largest, smallest = randomizer.weights.max(axis=0), randomizer.weights.min(axis=0)
    pairs = zip(largest.tolist(), smallest.tolist(), strict=True)
    columns = [column for column, (top, bottom) in enumerate(pairs) if bottom and Fraction(top, bottom) == ratio]
    if not columns:
        raise ValueError("no output has this likelihood ratio")
    column = randomizer.weights[:, columns[0]]
    output = float(randomizer.outputs[columns[0]])
    first_runs = [_first_run(randomizer.labels, column == extreme) for extreme in (column.max(), column.min())]
    return AttainedRatio(len(columns), output, *first_runs)


def _first_run(labels: np.ndarray, mask: np.ndarray) -> tuple[float, float]:
    first = int(mask.argmax())
    rest = mask[first:]
    length = len(rest) if rest.all() else int(rest.argmin())
    return float(labels[first]), float(labels[first + length - 1])


@dataclass(frozen=True)
class Example:
    """Distribution of the output for one label.

    Outputs are listed with their probabilities, the most likely first; none if there are more than 4. `central` has the
    ends of a range that holds at least 90 % of the outputs.
    """

    label: float
    outputs: list[tuple[float, float]]
    central: tuple[float, float]


def example(randomizer: Randomizer, prior: Prior) -> Example:
    """Describes the output for the most likely label."""
    place = int(prior.weights.argmax())
    weights = randomizer.weights[place]
    row, outputs = weights / float(TOTAL), randomizer.outputs
    order = np.argsort(-row)[: _MAX_LISTED_OUTPUTS if len(outputs) <= _MAX_LISTED_OUTPUTS else 0]
    cumulated = np.cumsum(row)
    central = outputs[np.searchsorted(cumulated, [0.05, 0.95 * cumulated[-1]])]
    listed = [(float(outputs[output]), float(row[output])) for output in order]
    return Example(float(prior.labels[place]), listed, tuple(central.tolist()))


@dataclass(frozen=True)
class UnitSummary:
    """Privacy unit of a release, or of a mechanism file.

    Attributes:
      column: Public column that names the unit of each record.
      max_records: Largest number M of records of a unit that are released.
      released: Whether labels were released, which the following counts are of.
      units: Number of units.
      left_out: Records beyond the bounds of their units.
      without_unit: Records without a unit.
    """

    column: str
    max_records: int
    released: bool = False
    units: int = 0
    left_out: int = 0
    without_unit: int = 0

    @property
    def beyond(self) -> int:
        """Number of records that are left out because of units."""
        return self.left_out + self.without_unit


def unit_summary(mechanism: MechanismFile, stated: dict[str, Any] | None) -> UnitSummary | None:
    """Summarizes the privacy unit of a release; None for single records.

    `stated` is the member `unit` of the manifest, which passed the audit; None without one, or without a manifest.
    """
    unit = mechanism.unit
    if unit is None:
        return None
    if stated is None:
        return UnitSummary(unit.column, unit.max_records)
    return UnitSummary(
        unit.column,
        unit.max_records,
        True,
        stated["units"],
        stated["records_left_out"],
        stated["records_without_unit"],
    )


@dataclass(frozen=True)
class LedgerRow:
    """One run in the ledger.

    Attributes:
      time: When it ran.
      command: Its subcommand.
      label: Name of the label column.
      output: Last component of the output path; the folders above it are not public.
      records: Number of records, as text.
      added: Epsilon and delta that this run charged for the first time.
      spent: Sums up to and including this run.
      this: Whether the run made the release, or the prior, that the report is about.
    """

    time: str
    command: str
    label: str
    output: str
    records: str
    added: SpentBudget
    spent: SpentBudget
    this: bool


def ledger_rows(runs: Sequence[dict[str, Any]], fingerprint: str, prior_release: str | None) -> list[LedgerRow]:
    """Sums up a ledger run by run, in order. A release that was made several times is charged once.

    `fingerprint`, in hexadecimal digits, is that of the mechanism whose labels the report is about; `prior_release` is
    the name of the prior that it is about, or None.
    """
    entries: list[LedgerEntry] = []
    rows, before = [], compose(entries)
    for run in runs:
        added = [LedgerEntry.from_dict(entry) for entry in run["charges"]]
        entries += added
        spent = compose(entries)
        rows.append(
            LedgerRow(
                str(run.get("time", "")),
                str(run.get("command", "")),
                str(run.get("label", "")),
                os.path.basename(str(run.get("output", ""))),
                str(run.get("records", "")),
                SpentBudget(spent.epsilon - before.epsilon, spent.delta - before.delta),
                spent,
                any(each.release.endswith(fingerprint[:32]) or each.release == prior_release for each in added),
            )
        )
        before = spent
    return rows


@dataclass(frozen=True)
class LabelRow:
    """Error of the output for one label, whose weight is its probability under the prior.

    `output` is the most likely output, with its probability; `bias` is the mean output minus the label, `deviation` the
    standard deviation of the output, `error` its root mean squared error.
    """

    label: float
    weight: float
    output: float
    probability: float
    bias: float
    deviation: float
    error: float


def label_rows(randomizer: Randomizer, moments: Utility) -> list[LabelRow]:
    """Tabulates the error by ascending label, for all labels or for 21 at even distances, both ends included."""
    shown = evenly_spaced(len(moments.labels), _MAX_LABEL_ROWS)
    likeliest = randomizer.weights[shown].argmax(axis=1)
    probabilities = randomizer.weights[shown, likeliest] / float(TOTAL)
    columns = (
        moments.labels[shown],
        moments.weights[shown],
        randomizer.outputs[likeliest],
        probabilities,
        moments.bias[shown],
        moments.deviation[shown],
        moments.error[shown],
    )
    return [LabelRow(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


@dataclass(frozen=True)
class RemainingBias:
    """Bias of labels that were debiased by a line, in units of the label.

    `typical` is the root mean square over the prior, `largest` the largest absolute value.
    """

    typical: float
    largest: float


def remaining_bias(moments: Utility) -> RemainingBias | None:
    """Summarizes the bias that the debiasing line leaves.

    None if there is no line, because the mean output does not depend on the label.
    """
    if moments.slope == 0:
        return None
    left = moments.remaining_bias
    return RemainingBias(math.sqrt(moments.weights @ left**2), float(np.abs(left).max()))
