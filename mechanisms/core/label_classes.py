"""Public classes of a label without order, such as clicked or not, or a diagnosis; the label domain is their places.

A randomizer of K classes is one of the labels 0, 1, ..., K - 1, the places of the classes in their list, whose
distances mean nothing: its loss is the probability of another class (`losses.ZERO_ONE`). Every value that is not listed
counts as one class, `other`, as numbers outside of a label grid are clamped to it: nothing may tell that there was one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

MOST_CLASSES = 1000
"""Largest number of classes."""

INTEGER, BOOLEAN, TEXT = "integer", "boolean", "text"

_TRUTH = {"false": False, "true": True, "0": False, "1": True}
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class LabelClasses:
    """Classes of a label, in the order of their places.

    Attributes:
      values: The K classes as text, all different and not empty: integers in decimal digits, booleans as false and
        true. Of columns that are read, the type tells which of the three they are.
      other: Place of the class that all values count as that are not listed.
    """

    values: tuple[str, ...]
    other: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for fewer than two classes, too many, an empty one or two equal ones, or no such place."""
        if not 2 <= len(self.values) <= MOST_CLASSES:
            raise ValueError(f"there must be 2 to {MOST_CLASSES:,} classes, not {len(self.values):,}")
        if not all(self.values):
            raise ValueError("a class must not be empty: records without a label have no text")
        if not all(value.isascii() or value.encode(errors="replace").decode() == value for value in self.values):
            raise ValueError("a class is not text in Unicode: it has a half of a surrogate pair")
        repeated = next((value for i, value in enumerate(self.values) if value in self.values[:i]), None)
        if repeated is not None:
            raise ValueError(f"class {repeated!r} is there twice")
        if not 0 <= self.other < len(self.values):
            raise ValueError("the other class must be one of the classes")

    @classmethod
    def of(cls, values: Sequence[str], other: str | None = None) -> LabelClasses:
        """Makes them of their texts.

        Args:
          values: The classes.
          other: Class that values count as that are not listed; by default the first one.

        Returns:
          The classes, in this order.

        Raises:
          ValueError: If there are fewer than two classes, too many, an empty one or two equal ones, or `other` is none
            of them.
        """
        values = tuple(values)
        if other is not None and other not in values:
            raise ValueError(f"class {other!r} is not listed")
        return cls(values, 0 if other is None else values.index(other))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def domain(self) -> tuple[float, ...]:
        """Places of the classes, 0.0, 1.0, ..., the label domain of a randomizer."""
        return tuple(map(float, range(len(self.values))))

    @property
    def request(self) -> list[object]:
        """The classes as noise is bound to them."""
        return [list(self.values), self.other]

    @cached_property
    def kind(self) -> str:
        """Type that the texts suggest where a file has only text, as CSV: INTEGER, BOOLEAN or TEXT."""
        if self.integers is not None:
            return INTEGER
        return TEXT if self.booleans is None else BOOLEAN

    @cached_property
    def integers(self) -> tuple[int, ...] | None:
        """The classes as integers of 64 bits; None if one is none, or not in its plain form."""
        numbers = [_integer(value) for value in self.values]
        return None if None in numbers else tuple(number for number in numbers if number is not None)

    @cached_property
    def booleans(self) -> tuple[bool, ...] | None:
        """The classes as booleans, false or 0 and true or 1; None if they are not both of them."""
        found = tuple(_TRUTH.get(value) for value in self.values)
        return None if set(found) != {False, True} or len(found) != 2 else tuple(map(bool, found))


def stated_label(label: float, classes: LabelClasses | None) -> float | str:
    """A label of the domain as files state it: a number, or the class at this place."""
    return label if classes is None else classes.values[int(label)]


def domain_label(label: float | str, classes: LabelClasses | None) -> float:
    """The label of the domain that `stated_label` states. Raises ValueError if it is none of the classes."""
    return float(label if classes is None else classes.values.index(str(label)))


def _integer(text: str) -> int | None:
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        return None
    number = int(text)
    return number if str(number) == text and number in _INT64 else None
