"""Axes of a chart: round ticks, names that fit into the picture, and the mapping of values to positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .number_format import exact, number
from .svg_elements import HEIGHT, WIDTH, decimal, max_text_width, text_element, text_width

# Edges of the plot. Its left edge depends on the width of the tick names.
RIGHT, TOP, BOTTOM = 460, 30, 252

GAP = 10  # between texts side by side
MAX_TICK_WIDTH = 75  # wider names of ticks leave too little space for the plot

_AXIS_NAME_RIGHT = 16  # right edge of the rotated name of the vertical axis
_OVERHANG = 10  # how far text may reach beyond the picture to the right, into the page's margin
_UNITS = {0: "", 3: " (thousands)", 6: " (millions)", 9: " (billions)", 12: " (trillions)"}


def ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Chooses multiples of 1, 2 or 5 times a power of ten within an interval.

    Args:
      low: Lower end.
      high: Upper end, > low.
      max_ticks: Intended limit of ticks; there may be one more.

    Returns:
      The values, ascending.
    """
    rough = (high - low) / max_ticks
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [power * times for times in (0.5, 1, 2, 5, 10)]
    place = next(place for place, step in enumerate(steps) if step >= rough * (1 - 1e-9))
    # A step longer than the interval may have no multiple in it; the one before has.
    return _multiples(low, high, steps[place]) or _multiples(low, high, steps[place - 1])


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Through text: three steps of 0.1 are 0.3.
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def power_of_ten(values: Iterable[float]) -> int:
    """Chooses the unit for large values: thousands, millions and so on.

    Args:
      values: Finite floats.

    Returns:
      The exponent of the unit: 0 below 1,000, else a multiple of 3, as the largest value suggests.
    """
    largest = max(map(abs, values), default=0.0)
    return 3 * math.floor(math.log10(largest) / 3) if largest >= 1e3 else 0


@dataclass(frozen=True)
class Ticks:
    """Ticks of an axis.

    Attributes:
      values: Values on the axis, ascending.
      names: Their texts, in units of a power of ten.
      power: Exponent of that power.
    """

    values: list[float]
    names: list[str]
    power: int

    @classmethod
    def at(cls, values: list[float], write: Callable[[float], str]) -> Ticks:
        """Names ticks, in thousands, millions and so on if their names are too wide otherwise.

        Args:
          values: Ascending.
          write: Formats a value.

        Returns:
          The ticks.
        """
        names, power = list(map(write, values)), power_of_ten(values)
        scaled = [x / 10.0**power for x in values]
        # 1.7000001 billions are no easier to read than the number itself.
        if max_text_width(names) > MAX_TICK_WIDTH and all(exact(x) == number(x) for x in scaled):
            return cls(values, list(map(write, scaled)), power)
        return cls(values, names, 0)


@dataclass(frozen=True)
class Plot:
    """Plot area with linear axes, as wide as the names of the vertical axis' ticks allow.

    Attributes:
      x_low: Value at the left edge.
      x_high: Value at the right edge, > x_low.
      y_low: Value at the bottom.
      y_high: Value at the top, > y_low.
      write_y: Formats a value of the vertical axis.
    """

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    write_y: Callable[[float], str]

    @cached_property
    def y_ticks(self) -> Ticks:
        """Ticks of the vertical axis."""
        return Ticks.at(ticks(self.y_low, self.y_high, 5), self.write_y)

    @cached_property
    def x_ticks(self) -> Ticks:
        """Ticks of the horizontal axis, as many as have space for their names."""
        for max_ticks in range(6, 0, -1):
            found = Ticks.at(ticks(self.x_low, self.x_high, max_ticks), exact)
            if x_tick_names(self.x(np.array(found.values)), found.names):
                return found
        return Ticks([], [], 0)

    @cached_property
    def left(self) -> int:
        """Left edge of the plot."""
        return left_edge(self.y_ticks.names)

    def x(self, values: Any) -> Any:
        """Maps values to horizontal positions.

        Args:
          values: A number or an array.

        Returns:
          The positions, in units of the picture.
        """
        return self.left + (values - self.x_low) / (self.x_high - self.x_low) * (RIGHT - self.left)

    def y(self, values: Any) -> Any:
        """Maps values to vertical positions.

        Args:
          values: A number or an array.

        Returns:
          The positions, in units of the picture, from the top.
        """
        return BOTTOM - (values - self.y_low) / (self.y_high - self.y_low) * (BOTTOM - TOP)

    def axes(self, x_name: str, y_name: str) -> str:
        """Draws grid lines, ticks and the names of both axes.

        Args:
          x_name: Name of the horizontal axis.
          y_name: Name of the vertical axis.

        Returns:
          The elements.
        """
        parts = []
        for value, text in zip(self.y_ticks.values, self.y_ticks.names, strict=True):
            parts.append(f'<path class="grid" d="M{self.left} {decimal(self.y(value))}H{RIGHT}"/>')
            parts.append(text_element(self.left - 6, self.y(value) + 4, text, "tick", "end"))
        positions = self.x(np.array(self.x_ticks.values))
        parts += [f'<path class="axis" d="M{decimal(position)} {BOTTOM}v4"/>' for position in positions]
        parts += x_tick_names(positions, self.x_ticks.names)
        parts.append(f'<path class="axis" d="M{self.left} {BOTTOM}H{RIGHT}"/>')
        parts.append(axis_names(self.left, (x_name, self.x_ticks.power), (y_name, self.y_ticks.power)))
        return "".join(parts)


def left_edge(names: Iterable[str]) -> int:
    """Left edge of a plot, to the right of the vertical axis' name and tick names.

    Args:
      names: The tick names.

    Returns:
      The position, in units of the picture.
    """
    return _AXIS_NAME_RIGHT + GAP + 6 + math.ceil(max_text_width(names))


def x_tick_names(positions: np.ndarray, names: Sequence[str]) -> list[str]:
    """Draws the tick names of the horizontal axis, moved to lie within the picture.

    Args:
      positions: Horizontal positions of the ticks, ascending.
      names: Their names.

    Returns:
      An element for each name; empty if two names would touch.
    """
    halves = np.array([text_width(text) / 2 for text in names])
    centers = np.clip(positions, _AXIS_NAME_RIGHT + halves, WIDTH + _OVERHANG - halves)
    if (np.diff(centers) < halves[1:] + halves[:-1] + GAP).any():
        return []
    return [text_element(x, BOTTOM + 17, text, "tick", "middle") for x, text in zip(centers, names, strict=True)]


def axis_names(left: float, x_axis: tuple[str, int], y_axis: tuple[str, int]) -> str:
    """Draws the names of both axes, shortened to fit.

    Args:
      left: Left edge of the plot.
      x_axis: Name of the horizontal axis, and the power of ten of its ticks.
      y_axis: The same of the vertical axis.

    Returns:
      The elements.
    """
    middle = (left + RIGHT) / 2
    x_name = _axis_name(*x_axis, 2 * (WIDTH - middle))
    y_name = _axis_name(*y_axis, TOP + BOTTOM)
    return text_element(middle, HEIGHT - 12, x_name, "axis-name", "middle") + text_element(
        12, (TOP + BOTTOM) / 2, y_name, "axis-name", "middle", rotated=True
    )


def _axis_name(name: str, power: int, max_width: float) -> str:
    """Shortens the name until it fits with its unit."""
    unit = _UNITS.get(power, f" ({exact(10.0**power)})")
    while text_width(name + unit) > max_width and len(name) > 1:
        name = name[:-2] + "\u2026"
    return name + unit
