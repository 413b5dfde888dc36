"""A mechanism as it is named on the command line with parameters of its own: NAME or NAME:PARAMETER=VALUE,..."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ...mechanisms.registry import MECHANISMS, Mechanism, mechanism_named
from ..cli.arguments import UsageError, parse_parameters

HELP = f"NAME or NAME:PARAMETER=VALUE,... as in bias_limited:bias=0.2; known: {', '.join(MECHANISMS)}"


@dataclass(frozen=True)
class MechanismSpec:
    """A mechanism with its parameters. text: as the user named it, which is how tables and pictures name it."""

    text: str
    name: str
    parameters: dict[str, Any]

    @property
    def takes_delta(self) -> bool:
        """Whether it is for (epsilon, delta)-DP."""
        return takes_delta(self.name)

    def mechanism(self, loss: str) -> Mechanism:
        """The mechanism, for a loss by name, which those without one ignore. Raises ValueError for its parameters."""
        return mechanism_named(self.name, loss=loss, **self.parameters)


def parse_mechanism_spec(text: str, loss: str, delta: float | None = None) -> MechanismSpec:
    """What the text names, checked. delta: given to mechanisms that have one, and to no other.

    Raises UsageError, naming the flag `--mechanism`.
    """
    name, colon, pairs = text.partition(":")
    if colon and not pairs:
        raise UsageError(f"--mechanism {text}: write NAME:PARAMETER=VALUE,... or NAME alone")
    parameters = parse_parameters(pairs, delta if takes_delta(name) else None, flag=f"--mechanism {name}:")
    found = MechanismSpec(text, name, parameters)
    try:
        found.mechanism(loss)
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    return found


def takes_delta(name: str) -> bool:
    """Whether the mechanism of that name, if there is one, is for (epsilon, delta)-DP."""
    return name in MECHANISMS and "delta" in {field.name for field in dataclasses.fields(MECHANISMS[name])}
