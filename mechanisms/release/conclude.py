"""Conclusion from a released prior: how its labels are drawn. A repetition of an earlier release recognizes its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analysis.automatic import CANDIDATES, LABELS, choose_mechanism, solve_choice
from ..center.class_center import ClassCenter
from ..center.class_model import ClassModel
from ..center.linear_center import LinearCenter
from ..center.residuals import choose_range, clipped_prior
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..registry import AUTO, Mechanism, mechanism_named
from .drawing import Around, Drawing, FromCenter, Table
from .noised_counts import NoisedCounts, NoisedResiduals, restricted_prior
from .prior_release import PriorRelease


@dataclass(frozen=True, eq=False)
class EarlierMechanism:
    """Drawing of an earlier release, which a repetition of that release uses again instead of solving.

    Its maker has compared the parameters that were asked for: a randomizer may state those that were chosen.

    Attributes:
      digest: Keyed digest of the input of that release, which binds the label column and the request as well.
      drawing: The drawing. Its randomizer is certified again whenever it is read or sent to a worker.
    """

    digest: int
    drawing: Drawing

    def belongs_to(self, release: PriorRelease, mechanism: str) -> bool:
        """True if a new release repeats the earlier one.

        That is the same input under the same key, the same request, and a noised prior that is equal bit for bit.
        """
        candidates = {name.partition(":")[0] for name in CANDIDATES} if mechanism == AUTO else {mechanism}
        return self.digest == release.digest and self.drawing.name in candidates and self.drawing.repeats(release)


def conclude(
    release: PriorRelease,
    mechanism: str,
    parameters: Mapping[str, Any],
    earlier: Iterable[EarlierMechanism] = (),
) -> Drawing:
    """Concludes how the labels of a release are drawn, at the epsilon that the prior left for them.

    Args:
      release: What was released before the labels.
      mechanism: Name of the mechanism, or AUTO for the one with the least error of a model.
      parameters: Parameters of the mechanism, by name.
      earlier: Mechanisms of earlier releases, of which the first that belongs to the release is taken.

    Returns:
      The drawing.

    Raises:
      ValueError: If the mechanism has no randomizer for the prior. The message is public.
    """
    repeated = next((made.drawing for made in earlier if made.belongs_to(release, mechanism)), None)
    if repeated is not None and not isinstance(release.made, ClassCenter):
        return repeated
    solver = None if mechanism == AUTO else mechanism_named(mechanism, **parameters)
    try:
        randomizer = solved(release, solver)
    except ValueError:
        randomizer = None
    if randomizer is None:
        # The solver's own message may depend on the noised histogram, which is not charged yet.
        raise ValueError(public_reason(CANDIDATES[LABELS] if solver is None else solver, release))
    return drawing_for(release, randomizer)


def drawing_for(release: PriorRelease, randomizer: Randomizer) -> Drawing:
    """The drawing from a center of classes, where the release made one, or else by a randomizer solved for its prior.

    The randomizer is solved in any case, so that no line or time tells which one it is before the release is charged.
    """
    made, column = release.made, release.center
    if isinstance(made, ClassCenter) and column is not None and release.classes is not None:
        return FromCenter.of(ClassModel(column, release.classes, made))
    spent, prior = release.budget.prior, release.prior
    stated: dict[str, Any] = {
        "prior_epsilon": spent,
        "rounding": release.rounding,
        "prior_release": release.release_name,
    }
    if column is None or not release.around_center:
        return Table(randomizer, prior=prior, noised=NoisedCounts(release.counts, release.records), **stated)
    residuals = NoisedResiduals(
        column, release.domain, release.counts, spent, made if isinstance(made, LinearCenter) else None
    )
    return Around(randomizer, prior=restricted_prior(prior, randomizer.labels), residuals=residuals, **stated)


def solved(release: PriorRelease, mechanism: Mechanism | None) -> Randomizer:
    """Solves for the randomizer of a released prior; with a center, for a range that is chosen for it.

    It is over the label domain or over the residuals of the range. Without a mechanism, `choose_mechanism` chooses one,
    and the randomizer states the choice. Raises ValueError if the mechanism has no randomizer for the prior; the
    message may depend on the prior.
    """
    prior, epsilon, residuals = release.prior, release.budget.labels, release.around_center
    if mechanism is None:
        return solve_choice(prior, epsilon, choose_mechanism(prior, epsilon, release.records, residuals))
    if residuals:
        taken = choose_range(prior, mechanism, epsilon, release.records)
        prior = clipped_prior(prior, taken.first, taken.last)
    return mechanism.solve(prior, epsilon)


def public_reason(mechanism: Mechanism, release: PriorRelease) -> str:
    """Finds the reason why there is no randomizer: the solver's message for a uniform prior, which is public.

    Its message for the noised histogram is not shown: a job that fails is not charged for the histogram. The result
    does not depend on the noised histogram.
    """
    flat = Prior(release.prior.labels, np.ones(len(release.prior.labels)))
    try:
        mechanism.solve(flat, release.budget.labels)
    except ValueError as error:
        return str(error)
    return (
        "there is no randomizer for the noised histogram of these labels, though there is one for a flat prior: "
        "choose another epsilon, mechanism or label step"
    )
