"""Choice of the mechanism with which a model that is trained on the labels has the least error.

The error is E b^2 + p / n E v for the bias b and the variance v of the labels, with the squared error of clipping added
for labels around a center. p is the size of model that labels without bias serve: the noise of one costs at most `LOSS`
of the variance of what is randomized, of which features explain half a priori. Larger models would be worse than small
ones with any mechanism. Everything is computed from the noised histogram and from public numbers, so the choice costs
no budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..center.residuals import (
    COARSE,
    MODEL_PARAMETERS,
    MOST_RESIDUALS,
    ResidualRange,
    choose_range,
    clipped_prior,
    mechanism_error,
    noise_share,
)
from ..core.losses import SQUARED
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, expm1
from ..registry import AUTO, Mechanism
from ..response.rr_on_bins import RROnBins
from ..unbiased.optimal_unbiased import BiasLimited, Unbiased
from .findings import LOSS

LABELS = "rr_on_bins"
"""The candidate with the least error of single labels. It supports any number of labels."""
CLOSE = 1.25
"""Errors up to this multiple of the least one are close to it: of a few thousand records, whose histogram is mostly
noise, the estimate differs by as much from one draw of the noise to the next."""
_EQUAL = 1e-6
CANDIDATES: dict[str, Mechanism] = {
    "unbiased": Unbiased(),
    **{f"bias_limited:bias={bias:g}": BiasLimited(bias) for bias in (0.02, 0.05, 0.1, 0.2, 0.3)},
    LABELS: RROnBins(),
}
"""The mechanisms to choose from, by command line name, from no bias to the most."""


@dataclass(frozen=True)
class Choice:
    """Chosen mechanism.

    `ranges` holds for each candidate the indices of the labels that it is for (all of them without a center) and its
    errors, infinite where the candidate supports no such prior. `share` is the share of the noise that a model of the
    size has that is judged by.
    """

    name: str
    ranges: dict[str, ResidualRange]
    share: float

    @property
    def range(self) -> ResidualRange:
        """Indices of the labels that the chosen mechanism is for."""
        return self.ranges[self.name]

    @property
    def errors(self) -> dict[str, float]:
        """Expected squared error of a model, by candidate."""
        return {name: found.error(self.share) for name, found in self.ranges.items()}

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, ready to solve."""
        return CANDIDATES[self.name]

    def to_document(self) -> dict[str, Any]:
        """JSON object for mechanism files and manifests: the name under `mechanism`, the errors under `model_errors`.

        Infinite errors are null.
        """
        errors = {each: error if math.isfinite(error) else None for each, error in self.errors.items()}
        return {"mechanism": self.name, "model_errors": errors}


def default_mechanism(purpose: str | None, loss: str) -> str:
    """Names the mechanism of a request that names none.

    The labels are to serve "models" or "labels"; None stands for models. The name is `LABELS` for labels, and for other
    losses than the squared one, because a model of another loss is not helped by labels without bias.
    """
    return LABELS if purpose == "labels" or loss != SQUARED.name else AUTO


def choose_mechanism(prior: Prior, epsilon: float, records: int, residuals: bool) -> Choice:
    """Chooses the candidate of the smallest bias of those whose error is at most `CLOSE` times the least one.

    Bias does not average out, and the least error is an estimate. There is at least one record. With a center, the
    prior is that of the residuals, over all of their grid, which may be clipped to a range.
    """
    ranges: dict[str, ResidualRange] = {}
    for name, mechanism in CANDIDATES.items():
        if residuals:
            ranges[name] = choose_range(prior, mechanism, epsilon, records)
        else:
            small = len(prior.labels) <= MOST_RESIDUALS or name == LABELS
            errors = mechanism_error(prior, mechanism, epsilon, COARSE) if small else (math.inf, math.inf)
            ranges[name] = ResidualRange(0, len(prior.labels) - 1, *errors)
    share = _share(prior, records, ranges["unbiased"].noise)
    return Choice(_best({name: found.error(share) for name, found in ranges.items()}), ranges, share)


def _share(prior: Prior, records: int, noise: float) -> float:
    """Share of the noise that is left in a model of the size that unbiased labels of this noise serve."""
    most = noise_share(records, MODEL_PARAMETERS)
    if not math.isfinite(noise):
        return most
    spread = prior.labels - dot(prior.weights, prior.labels)
    return min(most, LOSS * dot(prior.weights, spread * spread) / noise) if noise > 0 else most


def least_records(epsilon: float) -> int:
    """Number of records from which labels for models can be of use: 3 coth(epsilon / 2)^2 - 1, rounded up.

    Randomized response between the two ends of a domain of length L, without bias, has a variance of
    L^2 / 4 (coth(epsilon / 2)^2 - 1 / 3) on average over the domain. With fewer records, the mean of all released
    labels has a larger squared error than a label drawn from the domain has from its middle, L^2 / 12.
    """
    growth = float(expm1(epsilon))
    return math.ceil(3 * (1 + 2 / growth) ** 2 - 1)


def solve_choice(prior: Prior, epsilon: float, choice: Choice) -> Randomizer:
    """Solves for the chosen mechanism, or for the next one if that has the same output for all labels.

    A constant has the least error where labels are few and the noise is large, but says nothing about the labels.
    """
    clipped = clipped_prior(prior, choice.range.first, choice.range.last)
    randomizer = choice.mechanism.solve(clipped, epsilon)
    if len(prior.labels) > 1 and _is_constant(randomizer):
        others = {name: math.inf if name == choice.name else error for name, error in choice.errors.items()}
        choice = Choice(_best(others), choice.ranges, choice.share)
        clipped = clipped_prior(prior, choice.range.first, choice.range.last)
        randomizer = choice.mechanism.solve(clipped, epsilon)
    # The main program says why it was chosen, and does not choose again.
    randomizer.choice = choice.to_document()
    return randomizer


def _is_constant(randomizer: Randomizer) -> bool:
    """True if all outputs are equal, up to a millionth of the label range."""
    length = float(randomizer.labels[-1] - randomizer.labels[0])
    return float(randomizer.outputs[-1] - randomizer.outputs[0]) <= _EQUAL * length


def _best(errors: dict[str, float]) -> str:
    """Name of the candidate of the smallest bias of those whose error is close to the least one."""
    return next(name for name, error in errors.items() if error <= CLOSE * min(errors.values()))
