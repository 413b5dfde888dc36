"""Plan of a release: which passes over the labels make it, and a driver that runs them over records in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..center.feature_rows import MappedColumns
from ..center.linear_center import LinearCenter
from ..core.budget import BudgetSplit, remaining_epsilon
from ..noise.input_digest import RawSums, add_sums
from .bound_noise import NoiseBinding, make_binding
from .center_passes import (
    ClassCells,
    ClassSums,
    FirstDesigned,
    Marginals,
    Moments,
    Pass,
    PassResult,
    ResidualCells,
)
from .feature_sample import CenterFeatures, FeatureSample
from .label_column import LabelColumn
from .label_records import LabelRecords, PassSums, add_passes
from .prior_release import PriorRelease, release_prior


class _Bound(Pass[bool, "LinearCenter | None", NoiseBinding]):
    """Pass over labels with their centers, to whose digest the noise of the draws is bound."""

    binds = True

    def design(self, sample: FeatureSample, released: LinearCenter | None) -> bool:
        return True

    def row_map(self, design: bool, released: LinearCenter | None) -> None:
        return None

    def sums_of(
        self,
        records: LabelRecords,
        features: MappedColumns,
        design: bool,
        released: LinearCenter | None,
        secret: bytes,
    ) -> tuple[np.ndarray, RawSums]:
        column, indices = records.column, records.indices(secret)
        if records.centers is None:
            return np.bincount(indices, minlength=len(column.domain)), add_sums([])
        return column.residuals.count(indices - records.centers), add_sums([])


@dataclass(frozen=True)
class Histogram(_Bound):
    """Noised histogram of the labels, or of their residuals around a linear center.

    Source: Ghazi et al. 2022, Algorithm 3, and Theorem 7 for the default of `prior_epsilon`.

    Attributes:
      epsilon: Total budget of center, prior and labels.
      prior_epsilon: Epsilon of the prior; None for the default of `release_prior`.
      mechanism: Name of the mechanism that will be solved for the prior; it decides that default.
    """

    name = "histogram"
    epsilon: float
    prior_epsilon: float | None = None
    mechanism: str = "rr_on_bins"

    def release(
        self, sums: PassSums, column: LabelColumn, design: bool, released: LinearCenter | None, secret: bytes
    ) -> PriorRelease:
        return release_prior(sums, column, self.epsilon, self.prior_epsilon, secret, self.mechanism, released)


@dataclass(frozen=True)
class Binding(_Bound):
    """Binding of the noise alone, for a mechanism that was fitted before: `budget` is that of its prior and labels."""

    name = "binding"
    budget: BudgetSplit

    def release(
        self, sums: PassSums, column: LabelColumn, design: bool, released: LinearCenter | None, secret: bytes
    ) -> NoiseBinding:
        return make_binding(sums, column, self.budget, secret)


def passes_of(column: LabelColumn, histogram: Histogram, features: CenterFeatures | None) -> tuple[Pass, ...]:
    """Returns the passes that release what labels are drawn by: a center of these features, if any, and a histogram.

    A center of numbers comes before the histogram, which is of residuals then; one of classes comes after it.
    """
    if features is None:
        return (histogram,)
    if column.classes is not None:
        return histogram, ClassSums(always=features.cells), ClassCells()
    epsilon = remaining_epsilon(histogram.epsilon, histogram.prior_epsilon or 0.0)
    if not features.cells:
        return Marginals(epsilon) if features.marginals else Moments(epsilon), histogram
    first = FirstDesigned((Marginals(epsilon, False), Moments(epsilon))) if features.marginals else Moments(epsilon)
    return first, ResidualCells(epsilon), histogram


Blocks: TypeAlias = Callable[[Pass, Any, PassResult], Iterator[tuple[LabelRecords, MappedColumns]]]


def run_plan(
    passes: Iterable[Pass],
    sample: FeatureSample,
    column: LabelColumn,
    secret: bytes,
    add: Callable[[Pass, Any, PassResult], PassSums],
    released: PassResult = None,
) -> Any:
    """Runs passes one after the other; returns what they have released.

    `add` gives the sums of all records of a pass, for its design and what was released before. `released` is what was
    released before the first one. Raises RefusedRelease as `Pass.design`.
    """
    for step in passes:
        design = step.design(sample, released)
        if design is not None:
            released = step.release(add(step, design, released), column, design, released, secret)
    return released


def run_passes(
    passes: Iterable[Pass],
    sample: FeatureSample,
    column: LabelColumn,
    secret: bytes,
    blocks: Blocks,
    released: PassResult = None,
) -> Any:
    """Runs passes over records in memory, as `run_plan`.

    `blocks` gives the records in parts, with the features that a pass of a design reads, and with their centers for a
    pass that binds.
    """

    def add(step: Pass, design: Any, before: PassResult) -> PassSums:
        parts = blocks(step, design, before)
        sums = add_passes(step.summarize(*part, design, before, secret) for part in parts)
        assert sums is not None
        return sums

    return run_plan(passes, sample, column, secret, add, released)
