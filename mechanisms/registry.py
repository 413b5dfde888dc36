"""Every mechanism by its name. A new one is one new file and one line here."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from .additive.exponential import Exponential
from .additive.gaussian import Gaussian
from .additive.laplace import Laplace
from .additive.staircase import Staircase
from .core.label_rounding import NEAREST
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
    """A frozen dataclass of parameters that solves for a randomizer.

    Its class has a `name`, and may have a `rounding`: how labels between those of the domain are brought to it unless
    the user says otherwise, which is `RANDOMIZED` for mechanisms that are there to be unbiased.
    """

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The mechanism's randomizer for this prior, label DP with epsilon."""
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


MECHANISMS: dict[str, Any] = {family.name: family for family in _FAMILIES}
"""Mechanism families by name; each is called with its parameters and gives a `Mechanism`."""


def mechanism_named(name: str, **parameters: Any) -> Mechanism:
    """The mechanism of that name. A `loss` is given as a Loss or by its name; families without one ignore it.

    Raises ValueError, listing what is known, for an unknown name or parameter.
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
            raise ValueError(f"parameter {parameter!r} of {name} must be like {default!r}, not {value!r}")
    return family(**parameters)


def default_rounding(name: str) -> str:
    """How the named mechanism's labels are rounded unless the user says otherwise. "nearest" for unknown names."""
    return getattr(MECHANISMS.get(name), "rounding", NEAREST)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def solve(name: str, prior: Prior, epsilon: float, **parameters: Any) -> Randomizer:
    """The randomizer of the named mechanism for a prior, under label DP with epsilon.

    Raises ValueError for an unknown name or parameter, or when the mechanism refuses the prior or the epsilon.
    """
    return mechanism_named(name, **parameters).solve(prior, epsilon)
