"""Binding of all noise of a release to its input and to its request; for streaming (unbounded) input, to a name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.core.budget import BudgetSplit
from ..mechanisms.core.label_rounding import NEAREST
from ..mechanisms.noise.input_digest import input_digest
from ..mechanisms.noise.keyed_words import derive_noise_key, keyed_hash
from .batches import LabelledBatch
from .errors import InputError, redact_errors
from .label_column import LabelColumn
from .label_summary import LabelSummary, SummarizeLabels
from .noise_key_file import NoiseKeyFile
from .unique_ids import CountUniqueIds


@dataclass(frozen=True)
class NoiseBinding:
    """Everything except the secret key that the noise of one release is bound to. Safe to show.

    The record counts are informative; they do not enter the noise key.

    Attributes:
      digest: Keyed digest of the input for this request, in [0, 2^256).
      column: Name of the label column.
      domain: The k labels of the public domain, ascending.
      budget: Epsilon of the prior and of the randomizer.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      rounding: Rounding of labels to the domain, "nearest" or "randomized".
      center: Name of the center column; None for labels without a center.
      missing_centers: Number of records with a usable label, but with a missing or infinite center.
    """

    digest: int
    column: str
    domain: tuple[float, ...]
    budget: BudgetSplit
    records: int
    unusable: int
    rounding: str = NEAREST
    center: str | None = None
    missing_centers: int = 0

    def noise_key(self, secret: bytes) -> bytes:
        """Derives the noise key of this release.

        Args:
          secret: Secret key, 32 bytes.

        Returns:
          32 bytes.
        """
        domain = np.array(self.domain)
        return derive_noise_key(secret, self.digest, self.column, domain, self.budget, self.rounding, self.center)


def make_binding(summary: LabelSummary, column: LabelColumn, budget: BudgetSplit, secret: bytes) -> NoiseBinding:
    """Binds the noise of a release to a summary of its input.

    Args:
      summary: Raw summary of the whole input.
      column: The private column.
      budget: Epsilon of the prior and of the randomizer.
      secret: Secret key, 32 bytes.

    Returns:
      The part of the summary that is safe to show: digest and record counts.

    Raises:
      InputError: If no record has a center, though there is a center column.
    """
    if column.center is not None and summary.missing_centers == summary.records:
        raise InputError(
            f"no record has a usable center in {column.center!r} (missing, NaN or infinite): check --center_column, "
            "or with apply the center of --mechanism_file"
        )
    digest = input_digest(secret, summary.sums, column.name, column.labels, budget, column.rounding, column.center)
    return NoiseBinding(
        digest=digest,
        column=column.name,
        domain=column.domain,
        budget=budget,
        records=summary.records,
        unusable=summary.unusable,
        rounding=column.rounding,
        center=column.center,
        missing_centers=summary.missing_centers,
    )


@dataclass(frozen=True)
class StreamBinding:
    """Binding of the noise of an unbounded input: everything but the secret key. Safe to show.

    An unbounded input never has a final digest, so each random word is bound to its record alone: to the record's id
    and its label. A record that is delivered twice, or recomputed for a retry, gets the same output, so its noise
    cannot be averaged away. A record whose label changed gets independent noise: each of the two outputs satisfies
    epsilon-label DP on its own, but an observer who sees two different outputs for one id learns that its label
    changed. One id must therefore stand for one event with one label. A corrected event needs a new id, and costs its
    epsilon again. With a center column, words are bound to the record's center as well, and one id must stand for one
    label and one center.

    Attributes:
      release: Name of the stream, chosen by the user. The same records under another name get independent noise and
        are charged again.
    """

    release: str

    def noise_key(self, secret: bytes, column: LabelColumn) -> bytes:
        """Derives the noise key of this stream.

        Args:
          secret: Secret key, 32 bytes.
          column: The private column.

        Returns:
          32 bytes.
        """
        bound_to: list[Any] = [self.release, column.name, [label.hex() for label in column.domain], column.rounding]
        if column.center is not None:
            bound_to.append(["center", column.center])
        return keyed_hash(secret, b"labeldp endless", json.dumps(bound_to).encode())


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

    def check(self, records: int, unusable: int, label: str, several: int = 0) -> None:
        """Checks record counts against the limit.

        Args:
          records: Number of records with a usable label.
          unusable: Number of records without one.
          label: Name of the label column, for the message.
          several: Number of records without a usable label that are known to have several.

        Raises:
          InputError: If no record has a usable label, or more than the fraction have none.
        """
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
        if unusable > self.fraction * (records + unusable):
            raise InputError(
                f"{unusable:,} of {records + unusable:,} records have no usable label in {label!r} "
                f"({f'{several:,} of them have several values; ' if several else ''}missing, several, NaN or "
                f"infinite), more than --max_unusable_fraction {self.fraction:g}: fix them, exclude them with "
                "--where, or raise the threshold"
            )


def after_unique_ids(batches: PCollection[LabelledBatch], column: LabelColumn) -> list[AsSingleton]:
    """Makes a side input that is available only once all ids are known to be unique, so that no noise is drawn before.

    Args:
      batches: The records.
      column: The private column.

    Returns:
      The number of ids as the only side input; empty without an id column.
    """
    if column.id_column is None:
        return []
    count: Any = batches | "CountUniqueIds" >> CountUniqueIds(column.id_column)
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
    """

    column: LabelColumn
    budget: BudgetSplit
    key: NoiseKeyFile
    threshold: Threshold = Threshold()

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[NoiseBinding]:
        return (
            batches
            | "SummarizeLabels" >> SummarizeLabels(self.column, self.key)
            | "Bind"
            >> beam.ParDo(
                _Bind(self.column, self.budget, self.key, self.threshold), *after_unique_ids(batches, self.column)
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
        self._threshold.check(summary.records, summary.unusable, self._column.name, summary.several)
        yield make_binding(summary, self._column, self._budget, self._key.load())
