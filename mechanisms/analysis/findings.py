"""Findings about a release for its user: verdict, debiasing and warnings; and the form of their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

PART = 0.2
"""Labels serve a model if they add at most this part of the variance that features explain to its error."""

LOSS = 0.1
"""The same as a share of the label variance where nothing is known of features: they are taken to explain half of it.
Of classes, a share of the entropy."""

NOTHING_ELSE = "recipients learn what the log's features say, and nothing else"
"""Said of releases whose center took most of epsilon."""

Naming = Callable[[str], str]
"""How parameters of a release are named in texts: as flags, unless another is given."""
AS_FLAGS: Naming = "--{}".format


@dataclass(frozen=True)
class Verdict:
    """Use that released labels can be put to.

    Attributes:
      level: "good" for training, "center" where the center is the model and labels add little, "small" models only,
        "averages" only, or "unknown" where it cannot be told or was not measured.
      text: One line for a user; with the proposals, at most 160 characters unless the center is the model.
      proposals: What would make the labels good for training, at most one; empty if they are, or if nothing would.
    """

    level: str
    text: str
    proposals: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The text with the proposals."""
        return f"{self.text}; better: {', or '.join(self.proposals)}" if self.proposals else self.text


@dataclass(frozen=True)
class Debiasing:
    """Line that debiases released labels, or predictions learned from them.

    In the formula to paste, `released` is a label or a prediction and `center` the center; None without a line. The
    advice says when to use it, or why there is none.
    """

    formula: str | None
    advice: str

    @property
    def line(self) -> str:
        """Formula and advice."""
        return self.advice if self.formula is None else f"{self.formula}, {self.advice}"


@dataclass(frozen=True)
class Warn:
    """Warning: its name in release.json, and one line for a user, without the name of the label column."""

    name: str
    text: str


def percent(share: float) -> str:
    """Formats a share >= 0 of the label variance: percent with two significant digits; above 1, "more than all"."""
    return f"{100 * share:.2g} %" if share < 0.995 else "more than all"


def rounded_up(value: float) -> float:
    """Rounds up to two significant digits."""
    if value <= 0:
        return 0
    grain = 10.0 ** (math.floor(math.log10(value)) - 1)
    rounded = math.ceil(value / grain - 1e-9) * grain
    return int(rounded) if rounded >= 10 else round(rounded, 12)
