"""Plots as SVG: elements, text of known width, axes with round ticks, and their style.

Elements have classes and no colors. A style sheet colors them for light, dark and paper: that of the HTML page around
an inline picture, or one within a file. There is no script and no font of their own. Text is escaped. Lengths are in
units of the picture, which its reader scales.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..pipelines.cli.text_format import clipped, exact, number

FONTS = 'system-ui, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif'
COLORS = {
    "ground": ("#ffffff", "#14171b"),
    "ink": ("#1c2127", "#e7eaee"),
    "soft": ("#57606a", "#a3acb7"),
    "grid": ("#e6e9ed", "#2a3038"),
}
"""Colors that all charts share, by name: on a light and on a dark ground."""
RULES = """svg text { font-family: inherit; fill: var(--ink); font-size: 13px; }
svg .tick, svg .legend { fill: var(--soft); }
svg .tick { font-variant-numeric: tabular-nums; }
svg .axis { stroke: var(--soft); fill: none; }
svg .grid { stroke: var(--grid); fill: none; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
"""
"""Rules of the style sheet that all charts share."""
DARK = "@media screen and (prefers-color-scheme: dark)"

GAP = 10  # between texts side by side
MAX_TICK_WIDTH = 75  # wider names of ticks leave too little space for the plot

_FONT_SIZE = 13  # as in the style sheet
# Widths of characters in DejaVu Sans, the widest of the usual fonts, in units of the font size.
_WIDTHS: dict[str, float] = {
    **dict.fromkeys(" ',.Iijl", 0.32),
    **dict.fromkeys("!()*-/:;[]frt|", 0.42),
    **dict.fromkeys("mw", 1.0),
}
_BOLD_FACTOR = 1.1
_AXIS_NAME_RIGHT = 16  # right edge of the rotated name of the vertical axis
_OVERHANG = 10  # how far text may reach beyond the picture to the right, into the page's margin
_Y_TICK_DISTANCE = 45
_FILE_MARGIN = 8
_UNITS = {0: "", 3: " (thousands)", 6: " (millions)", 9: " (billions)", 12: " (trillions)"}
# Leading digits of the ticks of a logarithmic axis, from many to few ticks.
_LEADING = ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def page_style() -> str:
    """CSS of all charts for an HTML page, with the colors as custom properties."""
    light, dark = (" ".join(f"--{name}: {colors[place]};" for name, colors in COLORS.items()) for place in (0, 1))
    return f":root {{ {light} }}\n{DARK} {{ :root {{ {dark} }} }}\n{RULES}"


def file_style(colors: Mapping[str, tuple[str, str]], rules: str) -> str:
    """CSS of a picture in a file. It has no custom properties, which many converters ignore.

    Further colors are as in `COLORS`; in further rules `var(--NAME)` is a color.
    """
    known = COLORS | dict(colors)
    text = f"svg {{ background: var(--ground); font-family: {FONTS}; }}\n{RULES}{rules}"
    light, dark = (re.sub(r"var\(--(\w+)\)", lambda found, i=place: known[found[1]][i], text) for place in (0, 1))
    return f"{light}{DARK} {{\n{dark}}}\n"


def escaped(text: str) -> str:
    """Escapes a text for SVG and HTML; U+FFFD stands for a character that XML does not allow."""
    return html.escape(_NO_XML.sub("\ufffd", text))


def text_width(text: str, bold: bool = False) -> float:
    """Upper bound of the width of a line of text in the usual fonts."""
    sizes = (_WIDTHS.get(each, 0.64 if each.isdecimal() or each.islower() else 1.0) for each in text)
    return _FONT_SIZE * (_BOLD_FACTOR if bold else 1) * sum(sizes)


def max_text_width(texts: Iterable[str]) -> float:
    """Largest width of some lines of text; 0 without any."""
    return max(map(text_width, texts), default=0.0)


def decimal(value: float, digits: int = 1) -> str:
    """Formats a coordinate in as few characters as possible, without trailing zeros.

    It has at most `digits` digits after the decimal point.
    """
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def points_path(points: Iterable[tuple[float, float]]) -> str:
    """Path through points, as the value of the attribute `d`."""
    return "M" + "L".join(f"{decimal(x)} {decimal(y)}" for x, y in points)


def rectangle(kind: str, left: float, top: float, right: float, bottom: float) -> str:
    """Draws a rectangle of a class in the style sheet; `bottom` is larger than `top`."""
    place = f'x="{decimal(left)}" y="{decimal(top)}"'
    return f'<rect class="{kind}" {place} width="{decimal(right - left)}" height="{decimal(bottom - top)}"/>'


def text_element(x: float, y: float, text: str, kind: str, anchor: str, rotated: bool = False) -> str:
    """Draws a line of text, which is not escaped yet, of a class in the style sheet.

    `anchor` is the part of the text at `x`: start, middle or end; `y` is the baseline. Rotated text runs upward.
    """
    place = f'x="{decimal(x)}" y="{decimal(y)}"'
    if rotated:
        place = f'transform="translate({decimal(x)} {decimal(y)}) rotate(-90)"'
    return f'<text class="{kind}" {place} text-anchor="{anchor}">{escaped(text)}</text>'


def ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Chooses multiples of 1, 2 or 5 times a power of ten within an interval, ascending.

    `high` is above `low`. There may be one more tick than `max_ticks`.
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


def log_ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Chooses powers of ten, or multiples of them by 2 and 5 or by 3 as well, within an interval.

    At least one value and at most `max_ticks`, ascending. `low` is > 0, `high` at least 8 `low`.
    """
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    choices = [
        [value for power in powers for digit in leading if low <= (value := float(f"{digit}e{power}")) <= high]
        for leading in _LEADING
    ]
    # There may be no power of ten, but there is a multiple.
    choices = list(filter(None, choices))
    fewest = choices[-1]
    return next((found for found in choices if len(found) <= max_ticks), fewest[:: -(-len(fewest) // max_ticks)])


def power_of_ten(values: Iterable[float]) -> int:
    """Chooses the unit for large values: thousands, millions and so on, as the largest value suggests.

    The exponent of the unit is 0 below 1,000, else a multiple of 3. Values are finite.
    """
    largest = max(map(abs, values), default=0.0)
    return 3 * math.floor(math.log10(largest) / 3) if largest >= 1e3 else 0


@dataclass(frozen=True)
class Ticks:
    """Ticks of an axis: ascending values, and their texts in units of 10^power."""

    values: list[float]
    names: list[str]
    power: int = 0

    @classmethod
    def at(cls, values: list[float], write: Callable[[float], str]) -> Ticks:
        """Names ascending ticks, in thousands, millions and so on if their names are too wide otherwise."""
        names, power = list(map(write, values)), power_of_ten(values)
        scaled = [x / 10.0**power for x in values]
        # 1.7000001 billions are no easier to read than the number itself.
        if max_text_width(names) > MAX_TICK_WIDTH and all(exact(x) == number(x) for x in scaled):
            return cls(values, list(map(write, scaled)), power)
        return cls(values, names)


@dataclass(frozen=True)
class Axis:
    """Linear or logarithmic axis.

    Attributes:
      low: Value at its left or lower end; > 0 where it is logarithmic.
      high: Value at the other end, > low.
      write: Formats a value.
      log: True for a logarithmic axis.
      marks: Values that are its ticks where their names fit; empty for no preference.
    """

    low: float
    high: float
    write: Callable[[float], str] = exact
    log: bool = False
    marks: Sequence[float] = ()

    def share(self, values: Any) -> Any:
        """Maps a number or an array of values to positions on the axis, 0 at the low end and 1 at the high end."""
        if self.log:
            return np.log(values / self.low) / math.log(self.high / self.low)
        return (values - self.low) / (self.high - self.low)

    def ticks(self, max_ticks: int) -> Ticks:
        """Chooses ticks at round values; `max_ticks` is an intended limit."""
        if not self.log:
            return Ticks.at(ticks(self.low, self.high, max_ticks), self.write)
        values = log_ticks(self.low, self.high, max_ticks)
        plain = values[0] >= 1e-4 and values[-1] < 1e7
        return Ticks(values, [number(value) if plain else _as_power(value) for value in values])

    def choices(self) -> Iterator[Ticks]:
        """Yields ticks to choose from, those to be preferred first, to the fewest."""
        if self.marks:
            yield Ticks(list(self.marks), list(map(exact, self.marks)))
        yield from map(self.ticks, range(8 if self.log else 6, 0, -1))


def _as_power(value: float) -> str:
    digit, power = f"{value:.0e}".split("e")
    return ("" if digit == "1" else f"{digit}\u00d7") + "10" + str(int(power)).translate(_SUPERSCRIPTS)


@dataclass(frozen=True)
class Frame:
    """Picture of a width and height around a plot, which has the other edges.

    The left edge of the plot depends on the names of the vertical axis' ticks.
    """

    width: float = 480
    height: float = 300
    right: float = 460
    top: float = 30
    bottom: float = 252

    def x_tick_names(self, positions: np.ndarray, names: Sequence[str]) -> list[str]:
        """Draws the tick names of the horizontal axis, moved to lie within the picture.

        Positions ascend. There is an element for each name, or none if two names would touch.
        """
        halves = np.array([text_width(text) / 2 for text in names])
        centers = np.clip(positions, _AXIS_NAME_RIGHT + halves, self.width + _OVERHANG - halves)
        if (np.diff(centers) < halves[1:] + halves[:-1] + GAP).any():
            return []
        y = self.bottom + 17
        return [text_element(x, y, text, "tick", "middle") for x, text in zip(centers, names, strict=True)]

    def axis_names(self, left: float, x_axis: tuple[str, int], y_axis: tuple[str, int]) -> str:
        """Draws the names of both axes, shortened to fit.

        Each axis is given by its name and the power of ten of its ticks; `left` is the left edge of the plot.
        """
        across, up = (left + self.right) / 2, (self.top + self.bottom) / 2
        x_name = _axis_name(*x_axis, 2 * min(self.width - across, across - _AXIS_NAME_RIGHT))
        y_name = _axis_name(*y_axis, 2 * min(self.height - up, up))
        x_element = text_element(across, self.height - 12, x_name, "axis-name", "middle")
        return x_element + text_element(12, up, y_name, "axis-name", "middle", rotated=True)

    def picture(self, title: str, description: str, parts: Iterable[str], style: str | None = None) -> str:
        """Makes a picture that screen readers announce by a text: an svg element, well-formed for XML and HTML.

        The text begins with the title, which has no full stop. Parts come from back to front. `style` is the style
        sheet of a picture in a file; None for one within a page.
        """
        margin = 0 if style is None else _FILE_MARGIN
        width, height = decimal(self.width + 2 * margin), decimal(self.height + 2 * margin)
        size = f'viewBox="{-margin} {-margin} {width} {height}"'
        named = f'role="img" aria-label="{escaped(f"{title}. {description}".strip())}"'
        if style is None:
            return f"<svg {size} {named}>{''.join(parts)}</svg>"
        size += f' width="{width}" height="{height}"'
        head = f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n"
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named}>\n{head}' + "\n".join(parts) + "\n</svg>\n"


def left_edge(names: Iterable[str]) -> int:
    """Left edge of a plot, to the right of the vertical axis' name and tick names."""
    return _AXIS_NAME_RIGHT + GAP + 6 + math.ceil(max_text_width(names))


def _axis_name(name: str, power: int, max_width: float) -> str:
    """Shortens the name until it fits with its unit."""
    unit = _UNITS.get(power, f" ({exact(10.0**power)})")
    length = len(name)
    while length > 1 and text_width(clipped(name, length) + unit) > max_width:
        length -= 1
    return clipped(name, length) + unit


@dataclass(frozen=True)
class Plot:
    """Plot in a frame, as wide as the names of the vertical axis' ticks allow."""

    x_axis: Axis
    y_axis: Axis
    frame: Frame = Frame()

    @cached_property
    def y_ticks(self) -> Ticks:
        """Ticks of the vertical axis."""
        return self.y_axis.ticks(round((self.frame.bottom - self.frame.top) / _Y_TICK_DISTANCE))

    @cached_property
    def x_ticks(self) -> Ticks:
        """Ticks of the horizontal axis, as many as have space for their names."""
        fitting = (
            found
            for found in self.x_axis.choices()
            if self.frame.x_tick_names(self.x(np.array(found.values)), found.names)
        )
        return next(fitting, Ticks([], []))

    @cached_property
    def left(self) -> int:
        """Left edge of the plot."""
        return left_edge(self.y_ticks.names)

    def x(self, values: Any) -> Any:
        """Maps a number or an array of values to horizontal positions."""
        return self.left + self.x_axis.share(values) * (self.frame.right - self.left)

    def y(self, values: Any) -> Any:
        """Maps a number or an array of values to vertical positions, from the top."""
        return self.frame.bottom - self.y_axis.share(values) * (self.frame.bottom - self.frame.top)

    def axes(self, x_name: str, y_name: str) -> str:
        """Draws grid lines, ticks and the names of both axes."""
        right, bottom = decimal(self.frame.right), decimal(self.frame.bottom)
        parts = []
        for value, text in zip(self.y_ticks.values, self.y_ticks.names, strict=True):
            parts.append(f'<path class="grid" d="M{self.left} {decimal(self.y(value))}H{right}"/>')
            parts.append(text_element(self.left - 6, self.y(value) + 4, text, "tick", "end"))
        positions = self.x(np.array(self.x_ticks.values))
        parts += [f'<path class="axis" d="M{decimal(position)} {bottom}v4"/>' for position in positions]
        parts += self.frame.x_tick_names(positions, self.x_ticks.names)
        parts.append(f'<path class="axis" d="M{self.left} {bottom}H{right}"/>')
        parts.append(self.frame.axis_names(self.left, (x_name, self.x_ticks.power), (y_name, self.y_ticks.power)))
        return "".join(parts)
