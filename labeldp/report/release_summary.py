"""Summary of a release for its report: tables, privacy unit, sums of the ledger, and the attained likelihood ratio."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from labeldp import Randomizer

from ..pipelines.ledger.spent_budget import LedgerEntry, SpentBudget, compose
from .number_text import clipped, number

MOST_ROWS = 21
"""Largest number of rows of a table of labels."""

RECORDS_PER_PARAMETER = (10, 100, 1000, 10_000, 100_000)
"""Models in tables by size, where no number of records is known."""

_PARAMETERS = (1, 10, 100, 1000)
_MAX_TEXT = 80  # characters of a text that users chose


@dataclass(frozen=True)
class Table:
    """Table of the page, whose rows and columns have heads.

    Attributes:
      name: Name for screen readers.
      caption: Text above it.
      heads: Names of the columns.
      rows: Texts by row, the head of the row first.
      words: Columns of words; all others are numbers.
      colors: Style of the square before the head of each of the first rows.
    """

    name: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[int] = (0,)
    colors: Sequence[str] = ()


def short(value: object) -> str:
    """Shortens a text that users chose."""
    return clipped(str(value), _MAX_TEXT)


def count(value: float) -> str:
    """Formats a number in whole units with thousands separators."""
    return f"{value:,.0f}"


def all_or_some(shown: int, whole: int, things: str) -> str:
    """Says how many of some things are shown, those with the largest shares."""
    return f"All {things}" if shown == whole else f"The {shown} most frequent of {count(whole)} {things}"


def most_frequent(weights: np.ndarray, number_of_items: int) -> list[int]:
    """Places of the items with the largest weights, ascending."""
    return sorted(np.argsort(-weights, kind="stable")[:number_of_items].tolist())


def model_sizes(records: int, features: int | None) -> list[int]:
    """Parameters of the models in tables by size: at most one for each record."""
    linear = () if features is None else (features + 1,)
    return [size for size in sorted({*_PARAMETERS, *linear}) if size <= records]


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
class LedgerRow:
    """One run in the ledger.

    Attributes:
      run: The run, as the ledger has it.
      added: Epsilon and delta that this run charged for the first time.
      spent: Sums up to and including this run.
      this: True if the run made the release, or the prior, that the report is about.
    """

    run: dict[str, Any]
    added: SpentBudget
    spent: SpentBudget
    this: bool

    def texts(self, name: str, deltas: bool) -> list[str]:
        """Cells of the table; `name` is that of the subject. Folders above the output are not public."""
        time, command, label, output, records = (
            short(self.run.get(key, "")) for key in ("time", "command", "label", "output", "records")
        )
        output = short(os.path.basename(str(self.run.get("output", "")))) + (f" (this {name})" if self.this else "")
        sums = [self.added.epsilon, self.spent.epsilon, *([self.added.delta, self.spent.delta] if deltas else [])]
        return [time, command, label, output, records, *(number(float(value)) for value in sums)]


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
        this = any(each.release.endswith(fingerprint[:32]) or each.release == prior_release for each in added)
        more = SpentBudget(spent.epsilon - before.epsilon, spent.delta - before.delta)
        rows.append(LedgerRow(run, more, spent, this))
        before = spent
    return rows
