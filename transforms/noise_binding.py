"""Stage that binds the noise of a release to its input, and the checks of the input that come before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.core.budget import BudgetSplit
from ..mechanisms.release.bound_noise import NoiseBinding, make_binding
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import LabelSummary
from .batches import LabelledBatch
from .errors import InputError, redact_errors
from .label_summary import SummarizeLabels
from .noise_key_file import NoiseKeyFile
from .unique_ids import ID_GROUPS, CountUniqueIds


def check_centers(summary: LabelSummary, column: LabelColumn) -> None:
    """Checks that some record has a center, if there is a center column.

    Raises InputError if none has; `summary` is the raw one of the whole input.
    """
    if column.center is not None and summary.missing_centers == summary.records:
        raise InputError(
            f"no record has a usable center in {column.center!r} (missing, NaN or infinite): check --center_column, "
            "or with apply the center of --mechanism_file"
        )


@dataclass(frozen=True)
class Threshold:
    """Limit on the records without a usable label.

    Attributes:
      fraction: Largest tolerated fraction of all records, in [0, 1].
    """

    fraction: float = 0.001

    def __post_init__(self) -> None:
        """Raises ValueError for a fraction outside [0, 1]."""
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"max_unusable_fraction must be between 0 and 1, not {self.fraction:g}")

    def check(self, records: int, unusable: int, label: str, several: int = 0, left_out: int = 0) -> None:
        """Checks record counts against the limit.

        Args:
          records: Number of records with a usable label.
          unusable: Number of records without one.
          label: The label column as the message names it.
          several: Number of records without a usable label that are known to have several.
          left_out: Number of records with a usable label that were left out for the bound of their unit.

        Raises:
          InputError: If no record has a usable label, or more than the fraction have none.
        """
        if records == 0 and left_out:
            raise InputError("no record with a usable label has a unit: check --unit_column")
        if records + unusable == 0:
            raise InputError(
                "the input is empty: the files that match --input contain no records, or --where excludes all of them"
            )
        if records == 0:
            held = "hold several values" if several == unusable else "have no value or several, NaN or infinity"
            raise InputError(
                f"no record has a usable label in {label!r}: all {unusable:,} records {held}, but a label is one "
                "number: check --label"
            )
        total = records + unusable + left_out
        if unusable > self.fraction * total:
            raise InputError(
                f"{unusable:,} of {total:,} records have no usable label in {label!r} "
                f"({f'{several:,} of them have several values; ' if several else ''}missing, several, NaN or "
                f"infinite), more than --max_unusable_fraction {self.fraction:g}: fix them, exclude them with "
                "--where, or raise the threshold"
            )


def after_unique_ids(batches: PCollection[LabelledBatch], column: LabelColumn, groups: int) -> list[AsSingleton]:
    """Makes a side input that is available only once all ids are known to be unique, so that no noise is drawn before.

    Returns the number of ids as the only side input; empty without an id column. `groups` is the number of groups of
    ids, as of `CountUniqueIds`.
    """
    if column.id_column is None:
        return []
    count: Any = batches | "CountUniqueIds" >> CountUniqueIds(column.id_column, groups)
    return [AsSingleton(count)]


@dataclass
class BindNoise(beam.PTransform):
    """Binds noise to an input without releasing its histogram, for an already fitted mechanism.

    Takes a PCollection of LabelledBatch and returns exactly one NoiseBinding. With the budget, domain and input of a
    PriorRelease, the noise is the same as that of the PriorRelease. The job fails with InputError as for `NoisyPrior`.

    Attributes:
      column: The private column.
      budget: Epsilon of the mechanism's prior and of its randomizer.
      key: Reference to the secret key.
      threshold: Limit on the records without a usable label.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    column: LabelColumn
    budget: BudgetSplit
    key: NoiseKeyFile
    threshold: Threshold = Threshold()
    id_groups: int = ID_GROUPS

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[NoiseBinding]:
        return (
            batches
            | "SummarizeLabels" >> SummarizeLabels(self.column, self.key)
            | "Bind"
            >> beam.ParDo(
                _Bind(self.column, self.budget, self.key, self.threshold),
                *after_unique_ids(batches, self.column, self.id_groups),
            ).with_output_types(NoiseBinding)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Bind(beam.DoFn):
    def __init__(self, column: LabelColumn, budget: BudgetSplit, key: NoiseKeyFile, threshold: Threshold):
        self._column = column
        self._budget = budget
        self._key = key
        self._threshold = threshold

    @redact_errors("binding the noise")
    def process(self, summary: LabelSummary, unique_ids: int = 0) -> Iterator[NoiseBinding]:
        counts = summary.records, summary.unusable, self._column.described, summary.several, summary.left_out
        self._threshold.check(*counts)
        check_centers(summary, self._column)
        yield make_binding(summary, self._column, self._budget, self._key.load())
