"""Release of the label distribution under label DP, with the binding of its noise. The secret key has 32 bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from ..analysis.automatic import least_records
from ..center.class_center import ClassCenter
from ..center.linear_center import LinearCenter
from ..center.residuals import MOST_RESIDUALS
from ..core.budget import (
    CELL_RESIDUAL_SHARE,
    CLASS_SHARE,
    LEAST_RESIDUAL_SHARE,
    MIN_EPSILON,
    RESIDUAL_SHARE,
    BudgetSplit,
    remaining_epsilon,
    split_budget,
    whole_grains,
)
from ..core.prior import Prior
from ..noise.noisy_histogram import estimated_prior, noisy_counts
from ..registry import AUTO, prior_share
from .bound_noise import NoiseBinding, make_binding
from .label_column import LabelColumn
from .label_records import PassSums


class RefusedRelease(ValueError):
    """A release that cannot be of use, as public facts tell."""


@dataclass(frozen=True, eq=False)
class PriorRelease(NoiseBinding):
    """Released prior with the binding of its noise. The prior has spent `budget.prior`; `budget.labels` remains.

    Attributes:
      prior: The noised label distribution; with a center, that of the residuals, over all of their grid.
      counts: The noised counts of the labels, or with a center, of the cells of residuals. The prior follows from them.
      made: The center that the release has made of features, of classes after their histogram; None for any other
        center, or none.
    """

    prior: Prior = field(kw_only=True)
    counts: tuple[int, ...] = field(kw_only=True, default=())
    made: LinearCenter | ClassCenter | None = field(kw_only=True, default=None)


def release_prior(
    sums: PassSums,
    column: LabelColumn,
    epsilon: float,
    prior_epsilon: float | None,
    secret: bytes,
    mechanism: str,
    linear: LinearCenter | None = None,
) -> PriorRelease:
    """Releases the label distribution, or that of the residuals, under label DP, with the binding of its noise.

    `sums` are the raw ones of the whole input, and `epsilon` the total budget of center, prior and labels; `linear` is
    the center that was made of features. By default, `prior_epsilon` is sqrt(k / n), within the shares of the mechanism
    that will be solved for the prior. Raises RefusedRelease if the mechanism is chosen automatically, and there are too
    few records for any, or if there are too many labels for a center; ValueError if there are no records, or a budget
    is out of range.
    """
    shares = histogram_shares(column, mechanism, epsilon, linear)
    left = remaining_epsilon(epsilon, 0.0 if linear is None else linear.epsilon)
    if column.around_center and len(column.residuals.grid) > MOST_RESIDUALS:
        raise RefusedRelease(
            f"{len(column.domain):,} labels have more residuals around a center than the {MOST_RESIDUALS:,} that "
            "mechanisms support: use a coarser grid (`working_grid` chooses one)"
        )
    budget = split_budget(left, column.cells, sums.records, prior_epsilon, **shares)
    if column.classes is not None and column.center is not None:
        # The parts of a center add up to it exactly. The least epsilon is left unspent: noise is a function of budgets.
        budget = BudgetSplit(budget.prior, whole_grains(remaining_epsilon(budget.labels, MIN_EPSILON)))
    if not _has_cells(linear):
        # A center of cells is of use without labels.
        check_records(budget, sums.records, mechanism)
    binding = make_binding(sums, column, budget, secret)
    counts = noisy_counts(sums.sums, budget.prior, binding.noise_key(secret))
    if not column.around_center:
        prior = estimated_prior(column.labels, counts, sums.records, budget.prior)
    else:
        prior = column.residuals.prior(counts, budget.prior)
    return PriorRelease(**vars(binding), prior=prior, counts=tuple(counts.tolist()), made=linear)


def _has_cells(linear: LinearCenter | None) -> bool:
    return linear is not None and linear.is_model


def histogram_shares(
    column: LabelColumn, mechanism: str, epsilon: float, linear: LinearCenter | None
) -> dict[str, Fraction]:
    """Arguments of `split_budget`: bounds on the histogram's share of what the center leaves of `epsilon`."""
    if not column.around_center:
        return {"most": max(prior_share(mechanism), Fraction(0) if column.classes is None else CLASS_SHARE)}
    least = LEAST_RESIDUAL_SHARE
    if linear is not None and _has_cells(linear):
        left = Fraction(epsilon) - Fraction(linear.epsilon)
        least = min(least * Fraction(epsilon) / left, CELL_RESIDUAL_SHARE)
    return {"most": max(RESIDUAL_SHARE, least), "least": least}


def check_records(budget: BudgetSplit, records: int, mechanism: str) -> None:
    """Refuses an automatic release that cannot be of use. The number of records is public.

    Args:
      budget: Epsilon of the prior and of the labels of a record.
      records: Number of records.
      mechanism: Name of the mechanism, or AUTO.

    Raises:
      RefusedRelease: If the mechanism is AUTO, and there are fewer records than `least_records`.
    """
    least = least_records(budget.labels)
    if mechanism == AUTO and records < least:
        raise RefusedRelease(
            f"{records:,} records are too few for the epsilon of the labels, {budget.labels:.4g} after center and "
            f"histogram: even the mean of all released labels would say nothing. Release at least {least:,}, raise "
            "epsilon, leave out the center, or name a mechanism in place of auto, which takes any number of records"
        )
