"""The binding of all noise of a release to its input and its request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.core.label_rounding import NEAREST
from ..mechanisms.noise.input_digest import input_digest
from ..mechanisms.noise.noise_binding_key import derive_noise_key
from .batches import LabelledBatch
from .errors import InputError, redact_errors
from .label_column import LabelColumn
from .label_summary import LabelSummary, SummarizeLabels
from .noise_key_file import NoiseKeyFile
from .unique_ids import CountUniqueIds


@dataclass(frozen=True)
class NoiseBinding:
    """What the noise of one release is bound to, besides the secret. Safe to show.

    digest: the input's keyed digest. column: the label column's name. domain: the labels. epsilons: what the prior
    and the randomizer may spend.
    records: how many records have a label. unusable: how many do not. rounding: how labels were brought to the domain.
    """

    digest: int
    column: str
    domain: tuple[float, ...]
    epsilons: tuple[float, float]
    records: int
    unusable: int
    rounding: str = NEAREST

    def noise_key(self, secret: bytes) -> bytes:
        """The 32-byte key of all noise of this release."""
        domain = np.array(self.domain)
        return derive_noise_key(secret, self.digest, self.column, domain, self.epsilons, self.rounding)


def make_binding(
    summary: LabelSummary, column: LabelColumn, epsilons: tuple[float, float], secret: bytes
) -> NoiseBinding:
    """What may be shown of a summary."""
    digest, counts = input_digest(secret, summary.sums), (summary.records, summary.unusable)
    return NoiseBinding(digest, column.name, column.domain, epsilons, *counts, column.rounding)


@dataclass(frozen=True)
class Threshold:
    """How many of the records may lack a usable label. fraction: in [0, 1]."""

    fraction: float = 0.001

    def __post_init__(self) -> None:
        """Raises ValueError for a fraction outside [0, 1]."""
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"max_unusable_fraction must be between 0 and 1, not {self.fraction:g}")

    def check(self, records: int, unusable: int, label: str) -> None:
        """Raises InputError when no record has a label, or more than the fraction have none."""
        if records + unusable == 0:
            raise InputError("the input is empty: the files that match --input have no record, or --where keeps none")
        if records == 0:
            raise InputError(f"no record has a usable label in {label!r}: check --label")
        if unusable > self.fraction * (records + unusable):
            raise InputError(
                f"{unusable:,} of {records + unusable:,} records have no usable label in {label!r} (missing, NaN or "
                f"infinite), more than --max_unusable_fraction {self.fraction:g}: mend them, leave them out with "
                "--where, or raise the threshold"
            )


def after_unique_ids(batches: PCollection[LabelledBatch], column: LabelColumn) -> list[AsSingleton]:
    """A side input that exists once all ids are known to be unique: nothing random happens before."""
    if column.id_column is None:
        return []
    count: Any = batches | "CountUniqueIds" >> CountUniqueIds(column.id_column)
    return [AsSingleton(count)]


@dataclass
class BindNoise(beam.PTransform):
    """Binds noise to an input without releasing anything of it: for a mechanism that was fitted before.

    Takes a PCollection of LabelledBatch; gives exactly one NoiseBinding. epsilons: what the mechanism's prior and
    its randomizer spent; with the epsilons, domain and input of a PriorRelease, the noise is the same as well.
    """

    column: LabelColumn
    epsilons: tuple[float, float]
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
                _Bind(self.column, self.epsilons, self.key, self.threshold), *after_unique_ids(batches, self.column)
            ).with_output_types(NoiseBinding)
            | "Keep" >> beam.Reshuffle()
        )


class _Bind(beam.DoFn):
    def __init__(self, column: LabelColumn, epsilons: tuple[float, float], key: NoiseKeyFile, threshold: Threshold):
        self._column = column
        self._epsilons = epsilons
        self._key = key
        self._threshold = threshold

    @redact_errors("binding the noise")
    def process(self, summary: LabelSummary, unique_ids: int = 0) -> Iterator[NoiseBinding]:
        self._threshold.check(summary.records, summary.unusable, self._column.name)
        yield make_binding(summary, self._column, self._epsilons, self._key.load())
