"""Caps on the budget that a ledger adds up to, over all time or within any window of time of one length."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...mechanisms.core.budget import decimal_value, shown_above
from .spent_budget import SpentBudget

_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


@dataclass(frozen=True)
class Window:
    """Length of a window of time.

    Attributes:
      text: The length as the user states it, for example 30d.
      seconds: The length in seconds, >= 3600.
    """

    text: str
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Window:
        """Parses a whole number of hours, days or weeks: 12h, 30d, 4w.

        Raises ValueError for a text of another form; the message begins with the verb.
        """
        found = re.fullmatch(r"([1-9][0-9]{0,5})([hdw])", text)
        if found is None:
            raise ValueError(f"takes a whole number of hours, days or weeks, such as 12h, 30d or 4w, not {text!r}")
        return cls(text, int(found[1]) * _SECONDS[found[2]])


@dataclass(frozen=True)
class Caps:
    """Upper bounds on the budget that a ledger adds up to.

    The caps hold in windows of the times that the ledger has. What a wrong clock does to these is said in
    `charged_runs`.

    Attributes:
      epsilon: Cap on epsilon; None for no cap.
      delta: Cap on delta; None for no cap.
      window: Length of the windows of time in which the caps hold; None for all time together.
    """

    epsilon: float | None = None
    delta: float | None = None
    window: Window | None = None

    @property
    def stated(self) -> tuple[str, ...]:
        """The flags of the caps, with their values."""
        named = (("epsilon", self.epsilon), ("delta", self.delta))
        return tuple(f"--{name}_cap {cap:g}" for name, cap in named if cap is not None)

    def exceeded(self, spent: SpentBudget, unit: str | None = None) -> str | None:
        """Message that names the flag of an exceeded cap and the sum; None within the caps.

        `spent` includes the run in question. `unit` is the column of the privacy units; None for records.
        """
        where = (f" per {unit}" if unit is not None else "") + (f" within {self.window.text}" if self.window else "")
        for name, cap, sum in (("epsilon", self.epsilon, spent.epsilon), ("delta", self.delta, spent.delta)):
            if cap is not None and sum > decimal_value(cap):
                # Six digits, or as many as show that it is more.
                short = f"{float(sum):g}"
                shown = short if float(short) > cap else repr(shown_above(sum))
                now = f"with this run the {name} spent{where} is {shown}"
                return f"--{name}_cap {cap:g} would be exceeded: {now}"
        return None
