"""Parameters of a mechanism as text, and mechanisms with theirs: NAME or NAME:PARAMETER=VALUE,...

Functions raise FieldError if a text is malformed, or a parameter is unknown or out of range.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ...mechanisms.registry import AUTO, MECHANISMS, Mechanism, mechanism_named
from ..errors import FieldError, did_you_mean
from .fields import pairs_of


@dataclass(frozen=True)
class MechanismSpec:
    """Mechanism with its parameters, delta included; tables and figures name it by the text that the user wrote."""

    text: str
    name: str
    parameters: dict[str, Any]

    @property
    def takes_delta(self) -> bool:
        """True for a mechanism with (epsilon, delta)-DP."""
        return takes_delta(self.name)

    def mechanism(self, loss: str) -> Mechanism:
        """Makes the mechanism, ready to solve, for the name of a loss; mechanisms without a loss ignore it.

        Raises ValueError if a parameter is unknown or out of range.
        """
        return mechanism_named(self.name, loss=loss, **self.parameters)


def parse_mechanism_spec(text: str, loss: str, delta: float | None = None, auto: bool = False) -> MechanismSpec:
    """Parses and checks one value of `--mechanism`: NAME or NAME:PARAMETER=VALUE,...

    Delta is given to mechanisms with (epsilon, delta)-DP only. With `auto`, the name may be "auto", which has no
    mechanism before a prior is released.
    """
    if auto and text == AUTO:
        return MechanismSpec(text, AUTO, {})
    name = text.partition(":")[0]
    spec = MechanismSpec(text, name, mechanism_parameters(text, delta if takes_delta(name) else None))
    try:
        spec.mechanism(loss)
    except ValueError as error:
        raise FieldError.at(
            "mechanism", f"{error}{'' if name in MECHANISMS else did_you_mean(name, MECHANISMS)}"
        ) from None
    return spec


def mechanism_parameters(text: str, delta: float | None = None) -> dict[str, Any]:
    """Reads the parameters in NAME:PARAMETER=VALUE,...: integers, floats, true, false or text.

    `delta`, which is checked, is added as the parameter `delta`; None for pure DP.
    """
    name, colon, pairs = text.partition(":")
    if colon and not pairs:
        raise FieldError("{mechanism} {text}: write NAME:PARAMETER=VALUE,... or NAME alone", text=text)
    where = "{mechanism} {name}:"
    given = pairs_of(pairs or None, "PARAMETER=VALUE", where, name=name)
    parameters = {parameter: _value(value) for parameter, value in given.items()}
    for field in ("delta", "loss"):
        if field in parameters:
            raise FieldError(f"{where} {field}: give it as {{{field}}}", name=name)
    if "name" in parameters:
        raise FieldError(f"{where} name: no mechanism has such a parameter", name=name)
    if delta is not None:
        check_delta(delta)
        parameters["delta"] = delta
    return parameters


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_delta(delta: float) -> None:
    """Checks the range of a delta."""
    if not 0 < delta < 1:
        raise FieldError(
            "{delta} must be above 0 and below 1, not {value:g}; for pure label DP leave it out", value=delta
        )


def takes_delta(name: str) -> bool:
    """Tells whether a mechanism exists and has a parameter delta, for (epsilon, delta)-DP."""
    return name in MECHANISMS and "delta" in {field.name for field in dataclasses.fields(MECHANISMS[name])}
