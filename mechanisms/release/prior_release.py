"""Release of the label distribution under label DP, with the binding of its noise."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..center.linear_center import LinearCenter
from ..core.budget import LEAST_RESIDUAL_SHARE, RESIDUAL_SHARE, split_budget
from ..core.prior import Prior
from ..noise.noisy_histogram import estimated_prior, noisy_counts
from ..registry import prior_share
from .bound_noise import NoiseBinding, make_binding
from .label_column import LabelColumn
from .label_counts import LabelSummary


@dataclass(frozen=True, eq=False)
class PriorRelease(NoiseBinding):
    """Released prior with the binding of its noise. The prior has spent `budget.prior`; `budget.labels` remains.

    Attributes:
      prior: The noised label distribution; with a center, that of the residuals, over all of their grid.
      counts: The noised counts of the labels, or with a center, of the cells of residuals. The prior follows from them.
      linear: The linear center, which has spent its `design.epsilon`; None for any other center, or none.
    """

    prior: Prior = field(kw_only=True)
    counts: tuple[int, ...] = field(kw_only=True, default=())
    linear: LinearCenter | None = field(kw_only=True, default=None)


def release_prior(
    summary: LabelSummary,
    column: LabelColumn,
    epsilon: float,
    prior_epsilon: float | None,
    secret: bytes,
    mechanism: str,
) -> PriorRelease:
    """Releases the label distribution, or that of the residuals, under label DP.

    Args:
      summary: Raw summary of the whole input.
      column: The private column.
      epsilon: Total budget of prior and labels.
      prior_epsilon: Epsilon of the prior; None for the default: sqrt(k / n), within the shares of the mechanism.
      secret: Secret key, 32 bytes.
      mechanism: Name of the mechanism that will be solved for the prior; it decides the default of `prior_epsilon`.

    Returns:
      The prior and the binding of its noise.

    Raises:
      ValueError: If there are no records, or a budget is out of range.
    """
    shares = {"most": prior_share(mechanism)}
    if column.center is not None:
        shares = {"most": RESIDUAL_SHARE, "least": LEAST_RESIDUAL_SHARE}
    budget = split_budget(epsilon, column.cells, summary.records, prior_epsilon, **shares)
    binding = make_binding(summary, column, budget, secret)
    counts = noisy_counts(summary.counts, budget.prior, binding.noise_key(secret))
    if column.center is None:
        prior = estimated_prior(column.labels, counts, summary.records, budget.prior)
    else:
        prior = column.residuals.prior(counts, budget.prior)
    return PriorRelease(**vars(binding), prior=prior, counts=tuple(counts.tolist()))
