"""Budget of single releases, and of several together by basic composition: epsilons add up, and so do deltas.

Budgets that people write are decimals and add up as decimals: three times 0.1 is 0.3. Computed bounds, which have more
digits, add up as the floats that they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ...mechanisms.core.budget import decimal_value

# Far above every budget; sums of numbers up to it are finite as floats.
_LARGEST = 1e9


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
