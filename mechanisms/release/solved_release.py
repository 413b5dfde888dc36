"""Solving for the randomizer of a released prior, or recognizing the mechanism of an earlier release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..analysis.automatic import CANDIDATES, choose_mechanism, solve_choice, solve_for_groups
from ..center.group_positions import MOST_POSITIONS, GroupRanges
from ..center.grouped_histogram import GroupedHistogram
from ..center.residuals import ResidualDomain
from ..center.truncation import choose_range, clipped_prior
from ..core.budget import BudgetSplit
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..registry import AUTO, Mechanism
from .prior_release import PriorRelease


@dataclass(frozen=True, eq=False)
class EarlierMechanism:
    """Mechanism of an earlier release, which a repetition of that release uses again instead of solving.

    Its maker has compared the parameters that were asked for: a randomizer may state those that were found.

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
        """True if a new release repeats the earlier one.

        That is the same input under the same key, the same request, and a noised prior that is equal bit for bit.
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
    """Clips a distribution of residuals, over all of their grid, to the range of a mechanism.

    `labels` are those of the mechanism: the residuals of the range. Raises ValueError if they are not consecutive
    residuals of the grid.
    """
    first = int(np.searchsorted(prior.labels, labels[0]))
    found = clipped_prior(prior, first, min(first + len(labels), len(prior.labels)) - 1)
    if not np.array_equal(found.labels, labels):
        raise ValueError("the mechanism is not for consecutive residuals of the label domain")
    return found


def histogram_of(release: PriorRelease) -> GroupedHistogram:
    """Histograms of the groups of a release, which has groups."""
    residuals = ResidualDomain(np.array(release.domain))
    return GroupedHistogram(residuals, release.counts, release.group_records, release.budget.prior)


def grouped_prior(histogram: GroupedHistogram, randomizer: Randomizer) -> Prior:
    """Distribution of the positions that a randomizer of residuals of groups was solved for, over its labels.

    Raises ValueError if the randomizer is not for ranges of these groups, or its labels are not the positions in them.
    """
    ranges = GroupRanges(randomizer.group_ranges or ())
    ranges.check(histogram.residuals)
    if len(ranges.ends) != len(histogram.records):
        raise ValueError("the mechanism is for another number of groups")
    prior = histogram.position_prior(ranges)
    if not np.array_equal(prior.labels, randomizer.labels):
        raise ValueError("the labels of the mechanism are not the positions in the ranges of its groups")
    return prior


def solved(release: PriorRelease, mechanism: Mechanism | None) -> Randomizer:
    """Solves for the randomizer of a released prior; with a center, for a range that is chosen for it.

    It is over the label domain or over the residuals of the range. Without a mechanism, `choose_mechanism` chooses one,
    and the randomizer states the choice. Raises ValueError if the mechanism has no randomizer for the prior; the
    message may depend on the prior.
    """
    prior, epsilon, residuals = release.prior, release.budget.labels, release.center is not None
    if release.groups is not None:
        return solve_for_groups(histogram_of(release), epsilon, mechanism)
    if mechanism is None:
        return solve_choice(prior, epsilon, choose_mechanism(prior, epsilon, release.records, residuals))
    if residuals:
        found = choose_range(prior, mechanism, epsilon, release.records)
        prior = clipped_prior(prior, found.first, found.last)
    return mechanism.solve(prior, epsilon)


def public_reason(mechanism: Mechanism, release: PriorRelease) -> str:
    """Finds the reason why there is no randomizer: the solver's message for a uniform prior, which is public.

    Its message for the noised histogram is not shown: a job that fails is not charged for the histogram. The result
    does not depend on the noised histogram.
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
