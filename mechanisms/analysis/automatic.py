"""Choice of the mechanism with which a model that is trained on the labels has the least error.

The error is that of `training_error`, E b^2 + p / n E v, with the squared error of clipping added for labels around a
center. It is computed from the noised histogram and from public numbers, so the choice costs no budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..center.truncation import MOST_RESIDUALS, ResidualRange, choose_range, training_error
from ..core.losses import SQUARED
from ..core.prior import Prior
from ..registry import AUTO, Mechanism
from ..response.rr_on_bins import RROnBins
from ..unbiased.optimal_unbiased import BiasLimited, Unbiased

LABELS = "rr_on_bins"
"""The candidate with the least error of single labels. It supports any number of labels."""
CLOSE = 1.05
"""Errors up to this multiple of the least one are close to it."""
CANDIDATES: dict[str, Mechanism] = {
    "unbiased": Unbiased(),
    **{f"bias_limited:bias={bias:g}": BiasLimited(bias) for bias in (0.02, 0.05, 0.1, 0.2, 0.3)},
    LABELS: RROnBins(),
}
"""The mechanisms to choose from, by command line name, from no bias to the most."""


@dataclass(frozen=True)
class Choice:
    """Chosen mechanism.

    Attributes:
      name: Its name in `CANDIDATES`.
      range: Indices of the labels that it is for; all of them without a center.
      errors: Expected squared error of a model, by candidate; infinite where a candidate supports no such prior.
    """

    name: str
    range: ResidualRange
    errors: dict[str, float]

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, ready to solve."""
        return CANDIDATES[self.name]

    def to_document(self) -> dict[str, Any]:
        """States the choice for mechanism files and manifests.

        Returns:
          A JSON object: the name under `mechanism`, and the errors under `model_errors`, null where infinite.
        """
        errors = {name: error if math.isfinite(error) else None for name, error in self.errors.items()}
        return {"mechanism": self.name, "model_errors": errors}


def default_mechanism(purpose: str | None, loss: str) -> str:
    """Names the mechanism of a request that names none.

    Args:
      purpose: "models" or "labels", for which the released labels are to serve; None for models.
      loss: Name of the loss.

    Returns:
      The name of `AUTO`, or of `LABELS`: for labels, and for other losses than the squared one, because a model of
      another loss is not helped by labels without bias.
    """
    return LABELS if purpose == "labels" or loss != SQUARED.name else AUTO


def choose_mechanism(prior: Prior, epsilon: float, records: int, residuals: bool) -> Choice:
    """Chooses the candidate with the least error.

    Args:
      prior: Noised distribution of the labels; with a center, of the residuals, over all of their grid.
      epsilon: Budget of the mechanism.
      records: Number of records, >= 1.
      residuals: Whether labels are residuals around a center, which may be clipped to a range.

    Returns:
      The choice: the candidate of the smallest bias of those whose error is at most `CLOSE` times the least one. Bias
      does not average out, and the least error is an estimate.
    """
    ranges: dict[str, ResidualRange] = {}
    for name, mechanism in CANDIDATES.items():
        if residuals:
            ranges[name] = choose_range(prior, mechanism, epsilon, records)
        else:
            small = len(prior.labels) <= MOST_RESIDUALS or name == LABELS
            error = training_error(prior, mechanism, epsilon, records) if small else math.inf
            ranges[name] = ResidualRange(0, len(prior.labels) - 1, error)
    least = min(found.error for found in ranges.values())
    best = next(name for name, found in ranges.items() if found.error <= CLOSE * least)
    return Choice(best, ranges[best], {name: found.error for name, found in ranges.items()})
