"""Registry of the mechanisms by name. A new mechanism needs one new file and one line here."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, Protocol

from .additive.exponential import Exponential
from .additive.gaussian import Gaussian
from .additive.laplace import Laplace
from .additive.staircase import Staircase
from .core.budget import LABEL_SHARE, PUBLIC_SHARE, UNBIASED_SHARE
from .core.label_grid import NEAREST, RANDOMIZED
from .core.losses import Loss, loss_named
from .core.prior import Prior
from .core.randomizer import Randomizer
from .quantization import ERM, MVU, OPTM, RQM, Quantizer
from .response.debiased_rr import DebiasedResponse
from .response.randomized_response import RandomizedResponse
from .response.rp_with_prior import RPWithPrior
from .response.rr_on_bins import RROnBins
from .response.rr_top_k import RRTopK
from .unbiased.optimal_unbiased import BiasLimited, Unbiased
from .unbiased.unbiased_grid import UnbiasedGrid


class Mechanism(Protocol):
    """Mechanism: a frozen dataclass of parameters that solves for a randomizer.

    The class has a `name`. It may have a `rounding`, the default rounding of labels to the label domain: mechanisms
    whose purpose is unbiased output set it to `RANDOMIZED`.
    """

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves for the randomizer.

        Args:
          prior: Prior over the label domain.
          epsilon: Label DP budget of the randomizer.

        Returns:
          A randomizer over the prior's domain, certified for epsilon.
        """
        ...


_FAMILIES = (
    RROnBins,
    Unbiased,
    BiasLimited,
    UnbiasedGrid,
    DebiasedResponse,
    RandomizedResponse,
    RRTopK,
    RPWithPrior,
    Laplace,
    Staircase,
    Exponential,
    Gaussian,
    RQM,
    ERM,
    OPTM,
    MVU,
    Quantizer,
)

# Their randomizers are the same for all priors; that of the staircase has a step that depends on the prior, but hardly.
_WITHOUT_PRIOR = {
    family.name for family in (RandomizedResponse, DebiasedResponse, Laplace, Staircase, Exponential, Gaussian)
}

MECHANISMS: dict[str, Any] = {family.name: family for family in _FAMILIES}
"""Mechanism classes by name; each takes its parameters as keyword arguments."""


CLASS_MECHANISMS = (RandomizedResponse.name, RRTopK.name)
"""Names of the mechanisms of classes: those that take no distance of labels into account."""

AUTO = "auto"
"""In place of a name: the mechanism of least model error, of `analysis.automatic`."""


def mechanism_named(name: str, **parameters: Any) -> Mechanism:
    """Builds a mechanism by its name.

    Args:
      name: A key of `MECHANISMS`.
      **parameters: Parameters of the mechanism. `loss` is a Loss or the name of one; mechanisms without a loss
        ignore it.

    Returns:
      The mechanism.

    Raises:
      ValueError: If the name or a parameter is unknown (the message lists the known ones), or the type of a
        parameter is wrong.
    """
    if name not in MECHANISMS:
        raise ValueError(f"unknown mechanism {name!r}; known: {', '.join(MECHANISMS)}")
    family = MECHANISMS[name]
    known = {field.name: field.default for field in dataclasses.fields(family)}
    loss = parameters.pop("loss", None)
    if loss is not None and "loss" in known:
        parameters["loss"] = loss if isinstance(loss, Loss) else loss_named(loss)
    for parameter, value in parameters.items():
        if parameter not in known:
            raise ValueError(f"mechanism {name} has no parameter {parameter!r}; it has: {', '.join(known) or 'none'}")
        default = known[parameter]
        if isinstance(default, bool) != isinstance(value, bool) or (_is_number(default) and not _is_number(value)):
            raise ValueError(
                f"parameter {parameter!r} of {name} must have the type of its default {default!r}, not {value!r}"
            )
    return family(**parameters)


def default_rounding(name: str, coarser: bool = False) -> str:
    """Looks up the default rounding of a mechanism's labels to the label domain, "nearest" or "randomized".

    It is randomized for AUTO: labels that models are trained on must not be biased by rounding either. On a `coarser`
    grid than the declared one (`working_grid`), declared labels may be halfway between two of the grid, so they are
    rounded at random, for every mechanism. Unknown names have "nearest".
    """
    if name == AUTO or coarser:
        return RANDOMIZED
    return getattr(MECHANISMS.get(name), "rounding", NEAREST)


def prior_share(name: str) -> Fraction:
    """Largest share of epsilon that a default split gives to the histogram of a mechanism, for `split_budget`.

    The candidates of AUTO are mostly without bias. Unknown names have the share of mechanisms of least loss.
    """
    if name in _WITHOUT_PRIOR:
        return PUBLIC_SHARE
    return UNBIASED_SHARE if name == AUTO or default_rounding(name) == RANDOMIZED else LABEL_SHARE


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def solve(name: str, prior: Prior, epsilon: float, **parameters: Any) -> Randomizer:
    """Solves for the randomizer of the named mechanism.

    Args:
      name: A key of `MECHANISMS`.
      prior: Prior over the label domain.
      epsilon: Label DP budget of the randomizer.
      **parameters: Parameters of the mechanism, as for `mechanism_named`.

    Returns:
      A randomizer over the prior's domain, certified for epsilon.

    Raises:
      ValueError: If the name or a parameter is unknown, or the mechanism does not support the prior or the epsilon.
    """
    return mechanism_named(name, **parameters).solve(prior, epsilon)
