"""Driver of a plan in Beam: passes over the labels, each of which releases sums under label DP.

Everything that a pass releases is a deterministic function of its input and the secret key, so retries and further runs
reproduce it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.utils.shared import Shared

from ..mechanisms.center.linear_center import LinearCenter
from ..mechanisms.core.budget import BudgetSplit, split_budget
from ..mechanisms.release.bound_noise import NoiseBinding
from ..mechanisms.release.center_passes import After, Before, Design, Pass, PassResult
from ..mechanisms.release.feature_sample import FeatureSample
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import PassSums, add_passes
from ..mechanisms.release.plan import Binding, Histogram
from ..mechanisms.release.prior_release import PriorRelease, RefusedRelease
from .batches import (
    Argument,
    Carried,
    LabelledBatch,
    as_argument,
    as_side_input,
    check_whole_input,
    several_values,
)
from .center.append_center import check_features
from .center.feature_columns import center_columns
from .errors import InputError, redact_errors
from .input_checks import ID_GROUPS, after_unique_ids
from .job_metrics import PASSES
from .missing_labels import Threshold
from .noise_key_file import NoiseKeyFile
from .progress_log import LOGGER, Progress
from .shown_transform import ShownTransform
from .usable_records import usable_records


@dataclass(frozen=True)
class RunPlan:
    """Runs the passes of one label over batches of its records.

    Attributes:
      passes: The passes, of which one binds the noise.
      column: The private column.
      key: Reference to the secret key.
      read: Reads the batches of a pass of the center, by its name; they carry these side inputs.
      sample: Exactly one sample of features, of `SampleFeatures`; None if no pass needs it.
      threshold: Limit on the records without a usable label.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
      suffix: End of the names of stages.
      carries: Whether the batches carry side inputs; those of rows do not.
    """

    passes: tuple[Pass, ...]
    column: LabelColumn
    key: NoiseKeyFile
    read: Callable[[str, Sequence[Carried]], PCollection[LabelledBatch]]
    sample: PCollection[FeatureSample] | None = None
    threshold: Threshold = field(default_factory=Threshold)
    id_groups: int = ID_GROUPS
    suffix: str = ""
    carries: bool = True

    @property
    def _first(self) -> int:
        """Place of the pass that binds the noise."""
        return next(place for place, step in enumerate(self.passes) if step.binds)

    def before(self) -> PCollection[LinearCenter] | None:
        """Adds the passes before the noise is bound; returns exactly one element, a linear center, or None."""
        return functools.reduce(self._run, self.passes[: self._first], None)

    def bind(
        self, batches: PCollection[LabelledBatch], released: PCollection[LinearCenter] | LinearCenter | None
    ) -> PCollection[NoiseBinding]:
        """Adds the pass that binds the noise, over batches with centers if there are any, and all after it.

        `released` is the center that was made before. Returns exactly one element, what has been released.
        """
        step = self.passes[self._first]
        bound: PCollection[NoiseBinding] = batches | f"Release {step.name}{self.suffix}" >> ReleasePass(
            step, self.column, True, self.key, released, self.threshold, self.id_groups
        )
        return functools.reduce(self._run, self.passes[self._first + 1 :], bound)

    def _run(self, released: PCollection[Any] | None, step: Pass) -> PCollection[Any]:
        title = f"{step.name}{self.suffix}"
        assert self.sample is not None
        designed: PCollection[object] = self.sample | f"Design {title}" >> DesignPass(step, released)
        design = Carried(f"design of {title}", designed)
        before = None if released is None else Carried(f"before {title}", released)
        batches = self.read(title, [design] if before is None else [design, before])
        sides = (design, before) if self.carries else (designed, released)
        return batches | f"Release {title}" >> ReleasePass(
            step, self.column, sides[0], self.key, sides[1], self.threshold, self.id_groups
        )


@dataclass
class DesignPass(beam.PTransform):
    """Decides what a pass sums, from a sample of features and what passes before it have released.

    Takes a PCollection of exactly one FeatureSample, of `SampleFeatures`; returns exactly one design, or None where the
    pass is not worth its price. The job fails with InputError if the center cannot be made.

    Attributes:
      step: The pass.
      released: Exactly one element, what was released before; None for the first pass.
    """

    step: Pass
    released: PCollection[Any] | None = None

    def expand(self, sample: PCollection[FeatureSample]) -> PCollection[Any]:
        return (
            sample
            | "Design" >> beam.ParDo(_Design(self.step), as_side_input(self.released))
            # With a checkpoint it is computed once for all consumers.
            | "Checkpoint" >> beam.Reshuffle()
        )


@dataclass
class ReleasePass(beam.PTransform):
    """Releases the sums of a pass under label DP.

    Takes a PCollection of LabelledBatch with label, id and features, or for a pass that binds with centers. Returns
    exactly one element: what the pass has released, or what was released before it where there is no design. The job
    fails with InputError for empty input, too many unusable labels, or two records with the same id.

    Attributes:
      step: The pass.
      column: The private column.
      design: Exactly one design of the same records, from `DesignPass`, or carried by the batches, or a value.
      key: Reference to the secret key.
      released: Exactly one element, what was released before, or carried by the batches, or a value; None for the first
        pass.
      threshold: Limit on the records without a usable label.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    step: Pass
    column: LabelColumn
    design: object
    key: NoiseKeyFile
    released: PCollection[Any] | Carried[Any] | PassResult = None
    threshold: Threshold = field(default_factory=Threshold)
    id_groups: int = ID_GROUPS

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[Any]:
        """Raises InputError for an unbounded input, whose sums are never complete."""
        if not batches.is_bounded:
            raise InputError(
                "the label histogram of an unbounded input is never complete: fit on a bounded part of the input and "
                "apply the mechanism file to the stream (PrivatizeLabels with a StreamBinding)"
            )
        check_whole_input(batches, self)
        step, sides = self.step, [as_side_input(self.design), as_side_input(self.released)]
        # Ids are unique where labels were looked at before; those of the draws are looked at again.
        if step.binds or self.released is None:
            sides += after_unique_ids(batches, self.column, self.id_groups)
        # To count labels around their centers, no side input is needed.
        read = None if step.binds else as_argument(self.released)
        return (
            batches
            | "Sum"
            >> beam.ParDo(_Sum(step, self.column, self.key), as_argument(self.design), read).with_output_types(PassSums)
            | "Add" >> beam.CombineGlobally(MergePasses())
            | "AddNoise" >> beam.ParDo(_AddNoise(step, self.column, self.key, self.threshold), *sides)
            | "Checkpoint" >> beam.Reshuffle()
        )


def summarize(
    step: Pass[Design, Before, After],
    batch: LabelledBatch,
    column: LabelColumn,
    design: Design,
    released: Before,
    secret: bytes,
) -> PassSums:
    """Sums of a pass over one batch, which has its features or centers; `secret` has 32 bytes.

    Raises InputError as `usable_records`, or if a feature has the wrong type or is the label.
    """
    row_map = step.row_map(design, released)
    if row_map is not None:
        check_features(column, row_map)
    records = usable_records(batch, column, centered=step.binds)
    features = {} if row_map is None else center_columns(records.batch, row_map)
    sums = step.summarize(records.labels, features, design, released, secret)
    return dataclasses.replace(sums, several=several_values(batch, column.name), left_out=batch.left_out)


class MergePasses(beam.CombineFn):
    """Adds raw sums of a pass; None for none."""

    def create_accumulator(self) -> PassSums | None:
        return None

    def add_input(self, accumulator: PassSums | None, element: PassSums) -> PassSums | None:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[PassSums | None]) -> PassSums | None:
        return add_passes(sums for sums in accumulators if sums is not None)

    def extract_output(self, accumulator: PassSums | None) -> PassSums | None:
        return accumulator


@dataclass(eq=False)
class _Design(beam.DoFn):
    _step: Pass

    @redact_errors("designing the center")
    def process(self, sample: FeatureSample, released: PassResult) -> Iterator[object]:
        LOGGER.info("designing the %s of the center", self._step.name)
        try:
            yield self._step.design(sample, released)
        except RefusedRelease as error:
            raise InputError(str(error)) from None


class _Sum(beam.DoFn):
    def __init__(self, step: Pass, column: LabelColumn, key: NoiseKeyFile):
        self._step = step
        self._column = column
        self._key = key
        self._shared = Shared()

    def setup(self) -> None:
        self._secret = self._key.load()
        done = "counted" if self._step.binds else "summed"
        self._progress = self._shared.acquire(lambda: Progress(done))

    @redact_errors("counting labels")
    def process(
        self, batch: LabelledBatch, design: Argument[object], released: Argument[PassResult]
    ) -> Iterator[PassSums]:
        known = batch.resolve(design)
        if known is not None:
            yield summarize(self._step, batch, self._column, known, batch.resolve(released), self._secret)
        self._progress.add(batch.batch.num_rows)


@dataclass(eq=False)
class _AddNoise(beam.DoFn):
    _step: Pass
    _column: LabelColumn
    _key: NoiseKeyFile
    _threshold: Threshold

    @redact_errors("adding noise")
    def process(
        self, sums: PassSums | None, design: object, released: PassResult, unique_ids: int = 0
    ) -> Iterator[PassResult]:
        if design is not None:
            sums = self._threshold.check_sums(sums, self._column)
            try:
                released = self._step.release(sums, self._column, design, released, self._key.load())
            except RefusedRelease as error:
                raise InputError(str(error)) from None
        # The line is the same without a design: whether there is one may follow from a histogram that is not charged.
        LOGGER.info("finished the pass of the %s", self._step.name)
        PASSES.inc()
        yield released


@dataclass
class NoisyPrior(ShownTransform):
    """Releases the label distribution under label DP: counts labels, adds noise and estimates the distribution.

    With a center column, it releases the distribution of the residuals, labels minus centers, in cells.

    Takes a PCollection of LabelledBatch (the label and id columns suffice) and returns exactly one PriorRelease. The
    job fails with InputError for empty input, too many unusable labels, or two records with the same id.

    Source: Ghazi et al. 2022, Algorithm 3, and Theorem 7 for the default of prior_epsilon.

    Attributes:
      column: The private column.
      epsilon: Total budget of prior and labels, and of the linear center if there is one.
      key: Reference to the secret key.
      prior_epsilon: Epsilon of the prior; by default sqrt(k / n) for k labels (with a center, k cells) and n records,
        at most the mechanism's share of epsilon (with a center, from epsilon / 32 to epsilon / 8).
      threshold: Limit on the records without a usable label.
      mechanism: Name of the mechanism that will be solved for the prior; it decides the default of prior_epsilon.
      linear: Exactly one LinearCenter, which has made the center column; None if there is none.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    prior_epsilon: float | None = None
    threshold: Threshold = field(default_factory=Threshold)
    mechanism: str = "rr_on_bins"
    linear: PCollection[LinearCenter] | None = None
    id_groups: int = ID_GROUPS

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid budget."""
        split_budget(self.epsilon, 1, 1, self.prior_epsilon)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[PriorRelease]:
        histogram = Histogram(self.epsilon, self.prior_epsilon, self.mechanism)
        return batches | "Histogram" >> ReleasePass(
            histogram, self.column, True, self.key, self.linear, self.threshold, self.id_groups
        )


@dataclass
class BindNoise(ShownTransform):
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
    threshold: Threshold = field(default_factory=Threshold)
    id_groups: int = ID_GROUPS

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[NoiseBinding]:
        return batches | "Bind" >> ReleasePass(
            Binding(self.budget), self.column, True, self.key, None, self.threshold, self.id_groups
        )
