"""Stage that solves for the optimal randomizer of a released prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from ..mechanisms.analysis.automatic import CANDIDATES, LABELS, choose_mechanism, solve_for_groups
from ..mechanisms.center.group_positions import MOST_POSITIONS, GroupRanges
from ..mechanisms.center.grouped_histogram import GroupedHistogram
from ..mechanisms.center.residuals import ResidualDomain
from ..mechanisms.center.truncation import choose_range, clipped_prior
from ..mechanisms.core.budget import BudgetSplit
from ..mechanisms.core.prior import Prior
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.registry import AUTO, Mechanism, mechanism_named
from .errors import InputError
from .noisy_prior import PriorRelease
from .progress_log import LOGGER


@dataclass(frozen=True, eq=False)
class EarlierMechanism:
    """Mechanism of an earlier release, which a repetition of that release uses again instead of solving.

    Whoever makes it has compared the parameters that were asked for: a randomizer may state those that were found.

    Attributes:
      digest: Keyed digest of the input of that release, which binds the label column and the request as well.
      prior: Released prior that it was solved for.
      budget: Epsilon of the prior and of the randomizer.
      rounding: Rounding of labels to the domain.
      randomizer: The randomizer. It is certified again whenever it is read or sent to a worker.
    """

    digest: int
    prior: Prior
    budget: BudgetSplit
    rounding: str
    randomizer: Randomizer

    def belongs_to(self, release: PriorRelease, mechanism: str) -> bool:
        """Compares the earlier release with a new one.

        Args:
          release: The prior that was released now.
          mechanism: Name of the mechanism that is asked for.

        Returns:
          True if the new release repeats the earlier one: same input under the same key, same request, and a noised
          prior that is equal bit for bit.
        """
        return (
            self.digest == release.digest
            and self.budget == release.budget
            and self.rounding == release.rounding
            and (self.randomizer.mechanism == mechanism or (mechanism == AUTO and self._is_candidate()))
            and self._same_prior(release)
        )

    def _is_candidate(self) -> bool:
        return self.randomizer.mechanism in {name.partition(":")[0] for name in CANDIDATES}

    def _same_prior(self, release: PriorRelease) -> bool:
        labels = self.randomizer.labels
        try:
            if release.groups is not None:
                prior = grouped_prior(histogram_of(release), self.randomizer)
            else:
                prior = release.prior if release.center is None else restricted_prior(release.prior, labels)
        except ValueError:
            return False
        return np.array_equal(prior.labels, labels) and self.prior.weights.tobytes() == prior.weights.tobytes()


def restricted_prior(prior: Prior, labels: np.ndarray) -> Prior:
    """Clips a distribution of residuals to the range of a mechanism.

    Args:
      prior: Distribution of the residuals, over all of their grid.
      labels: Labels of the mechanism: the residuals of the range.

    Returns:
      The distribution of the clipped residuals, over these labels.

    Raises:
      ValueError: If they are not consecutive residuals of the grid.
    """
    first = int(np.searchsorted(prior.labels, labels[0]))
    found = clipped_prior(prior, first, min(first + len(labels), len(prior.labels)) - 1)
    if not np.array_equal(found.labels, labels):
        raise ValueError("the mechanism is not for consecutive residuals of the label domain")
    return found


def histogram_of(release: PriorRelease) -> GroupedHistogram:
    """Reads the histograms of the groups of a release.

    Args:
      release: The released prior, with groups.

    Returns:
      The histograms.
    """
    residuals = ResidualDomain(np.array(release.domain))
    return GroupedHistogram(residuals, release.counts, release.group_records, release.budget.prior)


def grouped_prior(histogram: GroupedHistogram, randomizer: Randomizer) -> Prior:
    """Distribution of the positions that a randomizer of residuals of groups was solved for.

    Args:
      histogram: The histograms of the groups.
      randomizer: The randomizer.

    Returns:
      The distribution, over the labels of the randomizer.

    Raises:
      ValueError: If the randomizer is not for ranges of these groups, or its labels are not the positions in them.
    """
    ranges = GroupRanges(randomizer.group_ranges or ())
    ranges.check(histogram.residuals)
    if len(ranges.ends) != len(histogram.records):
        raise ValueError("the mechanism is for another number of groups")
    prior = histogram.position_prior(ranges)
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the labels of the mechanism are not the positions in the ranges of its groups")
    return prior


@dataclass
class SolveRandomizer(beam.PTransform):
    """Solves for the randomizer of each PriorRelease, at the epsilon that the prior left for the labels.

    With a center, the randomizer is for the residuals of a range, which is chosen for it; its labels are that range.
    With groups, each has a range, and labels are positions in it.

    Takes a PCollection of PriorRelease and returns a PCollection of Randomizer. It sees released values only, so it
    spends no budget. The job fails with InputError if the mechanism has no randomizer for the prior.

    Attributes:
      mechanism: Name in `MECHANISMS`, or "auto" for the one with the least error of a model (`choose_mechanism`).
      parameters: Parameters of the mechanism, by name; "auto" has none.
      earlier: Mechanisms of earlier releases. The first that belongs to the PriorRelease is returned, so that a
        repeated release has the same bytes even where the solver would give another result.
    """

    mechanism: str = "rr_on_bins"
    parameters: dict[str, Any] = field(default_factory=dict)
    earlier: Sequence[EarlierMechanism] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown mechanism or parameter."""
        super().__init__()
        if self.mechanism != AUTO:
            mechanism_named(self.mechanism, **self.parameters)
        elif self.parameters:
            raise ValueError(f"mechanism auto has no parameter {next(iter(self.parameters))!r}: it finds them itself")

    def expand(self, releases: PCollection[PriorRelease]) -> PCollection[Randomizer]:
        return (
            releases
            | "Solve"
            >> beam.ParDo(_Solve(self.mechanism, self.parameters, tuple(self.earlier))).with_output_types(Randomizer)
            # A solver may be slow: with a checkpoint, it runs once for all consumers.
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Solve(beam.DoFn):
    def __init__(self, mechanism: str, parameters: dict[str, Any], earlier: Sequence[EarlierMechanism]):
        self._mechanism = mechanism
        self._parameters = parameters
        self._earlier = earlier

    def process(self, release: PriorRelease) -> Iterator[Randomizer]:
        # The lines are the same for an earlier mechanism: the log does not tell whether the input is unchanged.
        LOGGER.info("solving %s", self._mechanism)
        randomizer = self._earlier_randomizer(release) or self._solve(release)
        # The number of outputs is not logged: it depends on the noised histogram, which is charged, and may be shown,
        # only once the job has succeeded.
        LOGGER.info("solved %s", self._mechanism)
        yield randomizer

    def _earlier_randomizer(self, release: PriorRelease) -> Randomizer | None:
        for earlier in self._earlier:
            if earlier.belongs_to(release, self._mechanism):
                return earlier.randomizer
        return None

    def _solve(self, release: PriorRelease) -> Randomizer:
        mechanism = None if self._mechanism == AUTO else mechanism_named(self._mechanism, **self._parameters)
        try:
            return solved(release, mechanism)
        except ValueError:
            shown = CANDIDATES[LABELS] if mechanism is None else mechanism
            raise InputError(f"--mechanism {self._mechanism}: {_public_reason(shown, release)}") from None


def solved(release: PriorRelease, mechanism: Mechanism | None) -> Randomizer:
    """Solves for the randomizer of a released prior; with a center, for a range that is chosen for it.

    Args:
      release: The released prior.
      mechanism: The mechanism; None for the one that `choose_mechanism` chooses.

    Returns:
      The randomizer, over the label domain or over the residuals of the range; a chosen one states the choice.

    Raises:
      ValueError: If the mechanism has no randomizer for the prior; the message may depend on it.
    """
    prior, epsilon, residuals = release.prior, release.budget.labels, release.center is not None
    if release.groups is not None:
        return solve_for_groups(histogram_of(release), epsilon, mechanism)
    if mechanism is None:
        choice = choose_mechanism(prior, epsilon, release.records, residuals)
        randomizer = choice.mechanism.solve(clipped_prior(prior, choice.range.first, choice.range.last), epsilon)
        # The main program says why it was chosen, and does not choose again.
        randomizer.choice = choice.to_document()
        return randomizer
    if residuals:
        found = choose_range(prior, mechanism, epsilon, release.records)
        prior = clipped_prior(prior, found.first, found.last)
    return mechanism.solve(prior, epsilon)


def _public_reason(mechanism: Mechanism, release: PriorRelease) -> str:
    """Reason why there is no randomizer: the solver's message for a uniform prior, which is public.

    Its message for the noised histogram is not shown: a job that fails is not charged for the histogram.
    """
    labels = release.prior.labels if release.groups is None else release.prior.labels[:MOST_POSITIONS]
    flat = Prior(labels, np.ones(len(labels)))
    try:
        mechanism.solve(flat, release.budget.labels)
    except ValueError as error:
        return str(error)
    return (
        "there is no randomizer for the noised histogram of these labels, though there is one for a flat prior: "
        "choose another epsilon, mechanism or label step"
    )
