"""From raw labels to what may be released of them: the noised histogram and the keyed digest of the input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.digest import RawSums, add_sums, digest_sums, input_digest
from ..mechanisms.identities import Identities
from ..mechanisms.label_rounding import NEAREST, ROUNDINGS, LabelRounder
from ..mechanisms.noise import derive_noise_key, words
from ..mechanisms.prior import Prior, check_domain, check_epsilon, noisy_prior, split_budget
from .batches import LabelledBatch, label_values, record_identities
from .errors import InputError, guarded
from .noise_key import NoiseKeyFile
from .progress import LOGGER, Progress
from .unique_ids import CountUniqueIds


@dataclass(frozen=True)
class LabelColumn:
    """Which column is private, over which public domain, and what names a record.

    name: the column. domain: (k,) ascending; labels outside are clamped. id_column: unique ids that follow a record
    wherever it moves; None for its file and row. rounding: labels between two of the domain become the "nearest", or
    are "randomized", which is right on average (see `label_rounding`).
    """

    name: str
    domain: tuple[float, ...]
    id_column: str | None = None
    rounding: str = NEAREST

    def __post_init__(self) -> None:
        """Raises ValueError for a bad domain, a label that is its own id, or an unknown rounding."""
        check_domain(np.array(self.domain, np.float64))
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.id_column == self.name:
            raise ValueError("id_column must be another column than the label")

    @property
    def labels(self) -> np.ndarray:
        """(k,) float64."""
        return np.array(self.domain, np.float64)

    def indices(self, values: np.ndarray, identities: Identities, secret: bytes) -> np.ndarray:
        """Which labels of the domain these labels become: the same whenever they are asked for.

        values: (n,) finite float64. identities: their records' names. secret: 32 bytes, of the coins.
        Returns (n,) integers in [0, k).
        """
        if self.rounding == NEAREST:
            return self._rounder.nearest(values)
        purpose = f"rounding {self.name}".encode()
        return self._rounder.randomized(values, lambda: words(secret, purpose, identities))

    @cached_property
    def _rounder(self) -> LabelRounder:
        # Made once: it costs as much as the domain is long.
        return LabelRounder(self.labels)

    @property
    def columns(self) -> list[str]:
        """All that fitting has to read."""
        return [self.name] if self.id_column is None else [self.name, self.id_column]


@dataclass(frozen=True, eq=False)
class LabelSummary:
    """Raw facts of some records; they stay inside the job.

    counts: (k,) int64, records per label of the domain. unusable: how many records have no label that can be used.
    sums: what the others' digest is made of.
    """

    counts: np.ndarray = field(repr=False)
    unusable: int
    sums: RawSums

    @property
    def records(self) -> int:
        """How many records have a label."""
        return int(self.counts.sum())


def summarize(batch: LabelledBatch, column: LabelColumn, secret: bytes) -> LabelSummary:
    """The summary of one batch. secret: 32 bytes."""
    values = label_values(batch, column.name)
    usable = np.isfinite(values)
    kept, values = batch.keep(usable), values[usable]
    identities = record_identities(kept, column.id_column)
    counts = np.bincount(column.indices(values, identities, secret), minlength=len(column.domain))
    return LabelSummary(counts, int((~usable).sum()), digest_sums(secret, identities, values))


class MergeSummaries(beam.CombineFn):
    """Adds summaries up: counts, unusable records, and the sums modulo 2^64."""

    def __init__(self, labels: int):
        self._labels = labels

    def create_accumulator(self) -> LabelSummary:
        return LabelSummary(np.zeros(self._labels, np.int64), 0, add_sums([]))

    def add_input(self, accumulator: LabelSummary, element: LabelSummary) -> LabelSummary:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[LabelSummary]) -> LabelSummary:
        parts = [self.create_accumulator(), *accumulators]
        return LabelSummary(
            np.sum([part.counts for part in parts], axis=0),
            sum(part.unusable for part in parts),
            add_sums(part.sums for part in parts),
        )

    def extract_output(self, accumulator: LabelSummary) -> LabelSummary:
        return accumulator


@dataclass
class SummarizeLabels(beam.PTransform):
    """Takes a PCollection of LabelledBatch; gives exactly one LabelSummary, also for no batch.

    The result is raw: whoever uses it adds noise before anything leaves the job. key: the secret behind the digest.
    """

    column: LabelColumn
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[LabelSummary]:
        """Raises InputError for an unbounded input: its labels are never all counted."""
        if not batches.is_bounded:
            raise InputError(
                "labels of an unbounded input cannot be counted to the end: fit on a bounded part of it, and apply the "
                "mechanism file to the stream (PrivatizeLabels with a StreamBinding)"
            )
        return (
            batches
            | "Summarize" >> beam.ParDo(_Summarize(self.column, self.key)).with_output_types(LabelSummary)
            | "Merge" >> beam.CombineGlobally(MergeSummaries(len(self.column.domain)))
        )


class _Summarize(beam.DoFn):
    def __init__(self, column: LabelColumn, key: NoiseKeyFile):
        self._column = column
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("counted")

    @guarded("counting labels")
    def process(self, batch: LabelledBatch) -> Iterator[LabelSummary]:
        yield summarize(batch, self._column, self._secret)
        self._progress.add(batch.batch.num_rows)


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


def _binding(summary: LabelSummary, column: LabelColumn, epsilons: tuple[float, float], secret: bytes) -> NoiseBinding:
    """What may be shown of a summary."""
    digest, counts = input_digest(secret, summary.sums), (summary.records, summary.unusable)
    return NoiseBinding(digest, column.name, column.domain, epsilons, *counts, column.rounding)


@dataclass(frozen=True, eq=False)
class PriorRelease(NoiseBinding):
    """The released prior and all that it is bound to. epsilons: (e1, e2), e1 spent on it, e2 left for the labels."""

    prior: Prior = field(kw_only=True)


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


@dataclass
class NoisyPrior(beam.PTransform):
    """The label distribution, released under label DP: counted, noised, clipped, normalised.

    Takes a PCollection of LabelledBatch (the label and id columns are enough); gives exactly one PriorRelease. The
    same input under the same key gives the same release, however often it is computed.

    column: the private column. epsilon: the whole budget. key: the secret. prior_epsilon: e1, by default
    sqrt(k / n) and at most epsilon / 2. threshold: how many records may lack a label.
    The job fails with InputError for empty input, too many unusable labels, or two records with one id.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    prior_epsilon: float | None = None
    threshold: Threshold = Threshold()

    def __post_init__(self) -> None:
        """Raises ValueError for a bad budget."""
        super().__init__()
        check_epsilon(self.epsilon)
        if self.prior_epsilon is not None:
            split_budget(self.epsilon, 1, 1, self.prior_epsilon)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[PriorRelease]:
        summary = batches | "SummarizeLabels" >> SummarizeLabels(self.column, self.key)
        return (
            summary
            | "AddNoise"
            >> beam.ParDo(
                _AddNoise(self.column, self.epsilon, self.key, self.prior_epsilon, self.threshold),
                *_after_unique_ids(batches, self.column),
            ).with_output_types(PriorRelease)
            | "Keep" >> beam.Reshuffle()
        )


def _after_unique_ids(batches: PCollection[LabelledBatch], column: LabelColumn) -> list[AsSingleton]:
    """A side input that exists once all ids are known to be unique: nothing random happens before."""
    if column.id_column is None:
        return []
    count: Any = batches | "CountUniqueIds" >> CountUniqueIds(column.id_column)
    return [AsSingleton(count)]


class _AddNoise(beam.DoFn):
    def __init__(
        self,
        column: LabelColumn,
        epsilon: float,
        key: NoiseKeyFile,
        prior_epsilon: float | None,
        threshold: Threshold,
    ):
        self._column = column
        self._epsilon = epsilon
        self._key = key
        self._prior_epsilon = prior_epsilon
        self._threshold = threshold

    @guarded("noising the prior")
    def process(self, summary: LabelSummary, unique_ids: int = 0) -> Iterator[PriorRelease]:
        self._threshold.check(summary.records, summary.unusable, self._column.name)
        domain = self._column.domain
        epsilons = split_budget(self._epsilon, len(domain), summary.records, self._prior_epsilon)
        secret = self._key.load()
        binding = _binding(summary, self._column, epsilons, secret)
        prior = noisy_prior(self._column.labels, summary.counts, epsilons[0], binding.noise_key(secret))
        LOGGER.info("released the prior of %s labels over %s records", f"{len(domain):,}", f"{summary.records:,}")
        yield PriorRelease(**vars(binding), prior=prior)


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
                _Bind(self.column, self.epsilons, self.key, self.threshold), *_after_unique_ids(batches, self.column)
            ).with_output_types(NoiseBinding)
            | "Keep" >> beam.Reshuffle()
        )


class _Bind(beam.DoFn):
    def __init__(self, column: LabelColumn, epsilons: tuple[float, float], key: NoiseKeyFile, threshold: Threshold):
        self._column = column
        self._epsilons = epsilons
        self._key = key
        self._threshold = threshold

    @guarded("binding the noise")
    def process(self, summary: LabelSummary, unique_ids: int = 0) -> Iterator[NoiseBinding]:
        self._threshold.check(summary.records, summary.unusable, self._column.name)
        yield _binding(summary, self._column, self._epsilons, self._key.load())
