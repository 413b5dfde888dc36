"""Worth of a released label for models, in the report."""

from __future__ import annotations

from dataclasses import dataclass

from ..mechanisms.analysis.utility import ReleasedFacts

EXPLAINED_SHARES = (0.5, 0.9)
"""Shares of the label variance that features explain, for which the worth of a label is stated besides the bound."""


@dataclass(frozen=True)
class Worth:
    """Worth of one released label for a model.

    Attributes:
      records_per_parameter: Records n divided by parameters p of the model.
      error: Error of the model beyond that of the best model, as a share of `ReleasedFacts.label_variance`; a bound.
      bias: Part of it that is bias.
      less_than_nothing: Whether the model is worse than the mean of the noised histogram, for which no label is needed.
      worth: True labels that one released label is equivalent to, whatever the features explain.
      by_share: The same for features that explain `EXPLAINED_SHARES` of the label variance.
    """

    records_per_parameter: float
    error: float
    bias: float
    less_than_nothing: bool
    worth: float
    by_share: tuple[float, ...]


def worth_of_label(facts: ReleasedFacts, records_per_parameter: float) -> Worth | None:
    """Worth of one released label for n / p > 0 records per parameter of a model; None for a prior of one label."""
    moments = facts.whole_utility
    if not (moments.variance > 0 and facts.label_variance > 0):
        return None
    error, _ = moments.best_use(records_per_parameter)
    return Worth(
        records_per_parameter,
        error.total / facts.label_variance,
        error.bias / facts.label_variance,
        error.total >= moments.variance,
        moments.worth(records_per_parameter),
        tuple(moments.worth(records_per_parameter, share) for share in EXPLAINED_SHARES),
    )
