"""Mechanism with parameters as text on the command line: NAME or NAME:PARAMETER=VALUE,..."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ...mechanisms.registry import AUTO, MECHANISMS, Mechanism, mechanism_named
from ..errors import UsageError
from ..flags.arguments import parse_parameters
from ..flags.suggestions import did_you_mean


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
    mechanism before a prior is released. Raises UsageError, which names `--mechanism`, if the text names no mechanism,
    or a parameter is unknown or out of range.
    """
    if auto and text == AUTO:
        return MechanismSpec(text, AUTO, {})
    name, colon, pairs = text.partition(":")
    if colon and not pairs:
        raise UsageError(f"--mechanism {text}: write NAME:PARAMETER=VALUE,... or NAME alone")
    parameters = parse_parameters(pairs, delta if takes_delta(name) else None, flag=f"--mechanism {name}:")
    spec = MechanismSpec(text, name, parameters)
    try:
        spec.mechanism(loss)
    except ValueError as error:
        meant = "" if name in MECHANISMS else did_you_mean(name, MECHANISMS)
        raise UsageError(f"--mechanism: {error}{meant}") from None
    return spec


def takes_delta(name: str) -> bool:
    """Tells whether a mechanism exists and has a parameter delta, for (epsilon, delta)-DP."""
    return name in MECHANISMS and "delta" in {field.name for field in dataclasses.fields(MECHANISMS[name])}
