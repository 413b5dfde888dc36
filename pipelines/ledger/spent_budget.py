"""Budget of single releases, and of several together; caps on it, over all time or within any window of one length.

Basic composition: epsilons add up, and so do deltas. Budgets that people write are decimals and add up as decimals:
three times 0.1 is 0.3. Computed bounds, which have more digits, add up as the floats that they are. Caps are checked in
exact arithmetic, by basic composition.

Composition at a target delta, by the privacy loss distributions of dp-accounting, needs the extra `ledger`. Of all
(epsilon, delta)-DP mechanisms, one that fails with probability delta and is randomized response otherwise says the most
(Kairouz, Oh and Viswanath 2015, Theorem 3.1). The distribution of its privacy loss has three values; the library
convolves those of all releases and reads off the epsilon that holds with the target delta. Releases may be chosen
adaptively. Losses are rounded up to a grid, so that all distributions have their values on it: the result is an upper
bound, up to the library's floating-point arithmetic.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ...mechanisms.core.budget import decimal_value, shown_above
from ...transforms.errors import InputError
from ..errors import FieldNames

# Far above every budget; sums of numbers up to it are finite as floats.
_LARGEST = 1e9

_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}

SMALLEST_DELTA = 1e-10
"""Smallest target delta; rounding errors of the library are far below it."""

# Cells of the grid: rounding adds at most a cell for each release.
_CELLS_A_RELEASE, _FEWEST_CELLS, _MOST_CELLS = 1000, 1 << 16, 1 << 22
_SMALLEST_CELL = 2.0**-60
# exp of it is a float.
_LARGEST_EPSILON = 500


@dataclass(frozen=True)
class LedgerEntry:
    """Budget spent on one release of a prior or of labels.

    Attributes:
      what: Kind of the release: center, prior or labels; request for a run that is only checked against caps.
      epsilon: Epsilon spent, >= 0.
      release: Name of the release. A release is charged once, however often it is made.
      delta: Delta spent, >= 0.
    """

    what: str
    epsilon: float
    release: str
    delta: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Object of JSON types that the ledger holds."""
        delta = {"delta": self.delta} if self.delta else {}
        return {"what": self.what, "epsilon": self.epsilon, **delta, "release": self.release}

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> LedgerEntry:
        """Reads an object that `to_dict` made.

        Raises ValueError if epsilon or delta is not a number from 0 to 1e9, KeyError if a key is missing, and TypeError
        if the entry is not an object.
        """
        for bound in (entry["epsilon"], entry.get("delta", 0.0)):
            if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not 0 <= bound <= _LARGEST:
                raise ValueError(f"epsilon and delta of a ledger entry must be numbers from 0 to {_LARGEST:g}")
        return cls(str(entry["what"]), entry["epsilon"], str(entry["release"]), entry.get("delta", 0.0))


class SpentBudget(NamedTuple):
    """Sums of the epsilons and of the deltas of several releases, in exact rationals."""

    epsilon: Fraction
    delta: Fraction


def costs(entries: Iterable[LedgerEntry]) -> dict[str, SpentBudget]:
    """Cost by the name of the release.

    If a release has several entries, its largest epsilon and its largest delta count.
    """
    found: dict[str, SpentBudget] = {}
    for entry in entries:
        epsilon, delta = found.get(entry.release, SpentBudget(Fraction(0), Fraction(0)))
        found[entry.release] = SpentBudget(
            max(decimal_value(entry.epsilon), epsilon), max(decimal_value(entry.delta), delta)
        )
    return found


def total(spent: Iterable[SpentBudget]) -> SpentBudget:
    """Adds up the costs of distinct releases."""
    epsilon, delta = Fraction(0), Fraction(0)
    for each in spent:
        epsilon, delta = epsilon + each.epsilon, delta + each.delta
    return SpentBudget(epsilon, delta)


def compose(entries: Iterable[LedgerEntry]) -> SpentBudget:
    """Adds up distinct releases (basic composition), each with its largest epsilon and its largest delta."""
    return total(costs(entries).values())


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


class CapError(FieldNames, InputError):
    """A cap would be exceeded, or cannot be kept."""


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
    def stated(self) -> dict[str, float]:
        """The caps by the names of their fields."""
        named = {"epsilon_cap": self.epsilon, "delta_cap": self.delta}
        return {name: cap for name, cap in named.items() if cap is not None}

    def exceeded(self, spent: SpentBudget, unit: str | None = None) -> CapError | None:
        """Error that names an exceeded cap and the sum; None within the caps.

        `spent` includes the run in question. `unit` is the column of the privacy units; None for records.
        """
        where = (f" per {unit}" if unit is not None else "") + (f" within {self.window.text}" if self.window else "")
        for name, cap, sum in (("epsilon", self.epsilon, spent.epsilon), ("delta", self.delta, spent.delta)):
            if cap is not None and sum > decimal_value(cap):
                # Six digits, or as many as show that it is more.
                short = f"{float(sum):g}"
                shown = short if float(short) > cap else repr(shown_above(sum))
                now = f"with this run the {name} spent{where} is {shown}"
                return CapError(f"{{{name}_cap}} {{cap:g}} would be exceeded: {{now}}", cap=cap, now=now)
        return None


def composed_epsilon(spent: Sequence[SpentBudget], delta: float) -> float | None:
    """Upper bound on the epsilon of distinct releases at a target delta, from `SMALLEST_DELTA` to below 1.

    It is at most the sum of the epsilons where the sum of the deltas is within the target. None if there is no bound,
    because the deltas of the releases alone exceed the target, or it is far above 500. Raises ImportError if
    dp-accounting is not installed.
    """
    sums = total(spent)
    basic = shown_above(sums.epsilon) if sums.delta <= decimal_value(delta) else math.inf
    found = basic
    if sums.epsilon and max(cost.epsilon for cost in spent) <= _LARGEST_EPSILON:
        found = min(basic, _by_loss_distributions(spent, float(sums.epsilon), delta))
    return None if math.isinf(found) else found


def _by_loss_distributions(spent: Sequence[SpentBudget], sum_of_epsilons: float, delta: float) -> float:
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    cells = min(max(_CELLS_A_RELEASE * len(spent), _FEWEST_CELLS), _MOST_CELLS)
    # Multiples of a power of two: the library divides by it exactly.
    cell = 2.0 ** math.floor(math.log2(max(sum_of_epsilons / cells, _SMALLEST_CELL)))
    counts = Counter((math.ceil(cost.epsilon / Fraction(cell)), min(float(cost.delta), 1.0)) for cost in spent)
    distributions = []
    for (cells, own_delta), count in counts.items():
        privacy = DifferentialPrivacyParameters(cells * cell, own_delta)
        distributions.append(from_privacy_parameters(privacy, value_discretization_interval=cell).self_compose(count))
    # In pairs, so that most convolutions are short.
    while len(distributions) > 1:
        pairs = [pair[0].compose(pair[1]) for pair in zip(distributions[::2], distributions[1::2], strict=False)]
        distributions = pairs + distributions[2 * len(pairs) :]
    return float(distributions[0].get_epsilon_for_delta(delta))
