"""Released and public facts about privatized labels, from which warnings and verdicts are computed. No label enters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .utility import Utility, clipped_utility, utility


@dataclass(frozen=True)
class CenterFacts:
    """Public center of labels, whose residuals the randomizer takes.

    Attributes:
      prior: Noised distribution of the residuals before they are clipped to the range of the randomizer.
      domain: Smallest and largest label of the public domain.
      missing: Number of records whose center is missing; None if unknown.
      grouped: Whether groups of records have ranges of their own. The randomizer's labels are then positions in the
        ranges, scaled so that its mean squared errors are those of all records.
      label_variance: Estimated variance of the labels, from the released sums of a linear center; None if unknown.
    """

    prior: Prior
    domain: tuple[float, float]
    missing: int | None
    grouped: bool = False
    label_variance: float | None = None


@dataclass(frozen=True)
class ReleasedFacts:
    """Facts about a release that everybody may know.

    Attributes:
      randomizer: The randomizer.
      prior: Prior over its labels: noised, or public.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior.
      records: Number of records n; None if no labels are released yet.
      features: Number of feature columns d; None if unknown.
      loss: Name of the loss that was asked for; None if unknown.
      center: Center of the labels; None without one.
      records_per_unit: Largest number of records of a privacy unit. Epsilons are those of one record.
    """

    randomizer: Randomizer
    prior: Prior
    prior_epsilon: float
    records: int | None = None
    features: int | None = None
    loss: str | None = None
    center: CenterFacts | None = None
    records_per_unit: int = 1

    @cached_property
    def utility(self) -> Utility:
        """Moments of the outputs for the labels of the randomizer; with a center, for the clipped residuals."""
        return utility(self.randomizer, self.prior)

    @cached_property
    def whole_utility(self) -> Utility:
        """Moments of the outputs for all labels; with a center, for residuals before they are clipped."""
        return self.utility if self.center is None else clipped_utility(self.randomizer, self.center.prior)

    @property
    def label_variance(self) -> float:
        """Variance that losses are stated as shares of: of the labels; around a center column, of the residuals."""
        estimated = None if self.center is None else self.center.label_variance
        return self.whole_utility.variance if estimated is None else estimated

    @property
    def of_what(self) -> str:
        """Names what has that variance."""
        return "labels" if self.center is None or self.center.label_variance is not None else "residuals"
