"""Plots as SVG: elements, text of known width, axes with round ticks, and their style.

Elements have classes and no colors. A style sheet colors them for light, dark and paper: that of the HTML page around
an inline picture, or one within a file. There is no script and no font of their own. Text is escaped. Lengths are in
units of the picture, which its reader scales.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .number_text import clipped, exact, number

FONTS = 'system-ui, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif'
SERIES = 7
"""Number of colors of lines and bars."""
_COLORS = {
    "ground": ("#ffffff", "#14171b"),
    "ink": ("#1c2127", "#e7eaee"),
    "soft": ("#57606a", "#a3acb7"),
    "grid": ("#e6e9ed", "#2a3038"),
    # Okabe and Ito's hues for color-blind readers, as dark or as light as the ground needs.
    "series0": ("#0072b2", "#56b4e9"),
    "series1": ("#d0500a", "#f2935c"),
    "series2": ("#00805e", "#2cc295"),
    "series3": ("#b04a90", "#e39ac4"),
    "series4": ("#8a6400", "#e6b422"),
    "series5": ("#4a3fb0", "#a9a3ff"),
    "series6": ("#1c2127", "#e7eaee"),
}
_RULES = """svg text { font-family: inherit; fill: var(--ink); font-size: 13px; }
svg .tick, svg .legend { fill: var(--soft); }
svg .tick { font-variant-numeric: tabular-nums; }
svg .title, svg .cell-text { font-weight: 600; }
svg .on-dark { fill: var(--ground); }
svg .axis { stroke: var(--soft); fill: none; }
svg .grid { stroke: var(--grid); fill: none; }
svg .line { stroke: currentColor; fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .thin { stroke-width: 1.2; }
svg .dashes { stroke-dasharray: 7 3; }
svg .dots { stroke-dasharray: 2 3; }
svg .mark, svg .bar, svg .band { fill: currentColor; }
svg .band { fill-opacity: 0.15; }
svg .whisker { stroke: var(--ink); stroke-width: 1.3; fill: none; }
""" + "".join(f"svg .series{place} {{ color: var(--series{place}); }}\n" for place in range(SERIES))
_DARK = "@media screen and (prefers-color-scheme: dark)"

GAP = 10
"""Distance between texts side by side."""

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
_RIGHT, _BELOW = 20, 48  # space beside the plot, and below it for ticks and name of the horizontal axis
_ROW = 18  # height of a row of the legend
_KEY = 22  # width of the shape of an entry
_TITLE = 26  # height of the title of a picture in a file
_FILE_MARGIN = 8
# Leading digits of the ticks of a logarithmic axis, from many to few ticks.
_LEADING = ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def page_style() -> str:
    """CSS of all charts for an HTML page, with the colors as custom properties."""
    light, dark = (" ".join(f"--{name}: {color[i]};" for name, color in _COLORS.items()) for i in (0, 1))
    return f":root {{ {light} }}\n{_DARK} {{ :root {{ {dark} }} }}\n{_RULES}"


def _file_style() -> str:
    """CSS of a picture in a file. It has no custom properties, which many converters ignore."""
    text = f"svg {{ background: var(--ground); font-family: {FONTS}; }}\n{_RULES}"
    light, dark = (re.sub(r"var\(--(\w+)\)", lambda name, i=i: _COLORS[name[1]][i], text) for i in (0, 1))
    return f"{light}{_DARK} {{\n{dark}}}\n"


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


Tick = tuple[float, str]
"""Position along an axis, from 0 at its low end to 1, and name."""


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

    def ticks(self, max_ticks: int) -> list[Tick]:
        """Chooses ticks at round values; `max_ticks` is an intended limit."""
        values = (log_ticks if self.log else ticks)(self.low, self.high, max_ticks)
        write = self.write
        if self.log:
            write = number if values[0] >= 1e-4 and values[-1] < 1e7 else _as_power
        return [(float(self.share(value)), write(value)) for value in values]

    def choices(self) -> Iterator[list[Tick]]:
        """Yields ticks to choose from, those to be preferred first, to the fewest."""
        if self.marks:
            yield [(float(self.share(value)), exact(value)) for value in self.marks]
        yield from map(self.ticks, range(8 if self.log else 6, 0, -1))


def _as_power(value: float) -> str:
    digit, power = f"{value:.0e}".split("e")
    return ("" if digit == "1" else f"{digit}\u00d7") + "10" + str(int(power)).translate(_SUPERSCRIPTS)


def middles(names: Sequence[str]) -> list[Tick]:
    """Ticks in the middles of equal parts of an axis, one for each name."""
    return [((place + 0.5) / len(names), name) for place, name in enumerate(names)]


def shortened(name: str, width: float) -> str:
    """Shortens a line of text until it fits."""
    # A line break would be a space, and other control characters nothing.
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    length = min(len(name), max(round(width), 1))
    while length > 1 and text_width(clipped(name, length)) > width:
        length -= 1
    return clipped(name, length)


@dataclass(frozen=True)
class Plot:
    """Plot with names and ticks of its axes and a legend above it.

    Attributes:
      x_name, y_name: Names of the axes; shortened to fit.
      x_choices: Ticks of the horizontal axis to choose from, those to be preferred first.
      y_ticks: Ticks of the vertical axis, upward. Their names set the left edge of the plot.
      keys: Entries of the legend: an element 22 wide around the baseline of its text, from 0 on, and the text.
      file: True for a picture in a file, with its own style and a title above it.
      width: Width of the picture.
      height: Height of the plot.
    """

    x_name: str
    y_name: str
    x_choices: Iterable[list[Tick]]
    y_ticks: Sequence[Tick]
    keys: Sequence[tuple[str, str]]
    file: bool = False
    width: float = 480
    height: float = 222

    @property
    def left(self) -> int:
        """Left edge of the plot, to the right of the names of ticks."""
        return left_edge(name for _, name in self.y_ticks)

    @property
    def right(self) -> float:
        """Right edge of the plot."""
        return self.width - _RIGHT

    @property
    def top(self) -> float:
        """Upper edge of the plot."""
        rows = self._legend[1]
        return 12 + _ROW * max(rows, 1) + (_TITLE if self.file else 0)

    @property
    def bottom(self) -> float:
        """Lower edge of the plot."""
        return self.top + self.height

    def x(self, shares: Any) -> Any:
        """Maps positions along the horizontal axis, from 0 to 1, to those in the picture."""
        return self.left + shares * (self.right - self.left)

    def y(self, shares: Any) -> Any:
        """Maps positions along the vertical axis, from 0 to 1, to those in the picture."""
        return self.bottom - shares * self.height

    def picture(self, title: str, description: str, parts: Iterable[str], grid: str = "") -> str:
        """Makes a picture that screen readers announce by a text: an svg element, well-formed for XML and HTML.

        The text begins with the title, which has no full stop. Parts come from back to front. `grid` has the names of
        the axes, x and y, whose ticks have lines across the plot.
        """
        total = self.bottom + _BELOW
        margin = _FILE_MARGIN if self.file else 0
        width, height = decimal(self.width + 2 * margin), decimal(total + 2 * margin)
        head = f'viewBox="{-margin} {-margin} {width} {height}"'
        name = f'role="img" aria-label="{escaped(f"{title}. {description}".strip())}"'
        body = "\n".join([*self._axes(grid), *parts, self._frame(total), *self._legend[0]])
        if not self.file:
            return f"<svg {head} {name}>{body}</svg>"
        shown = text_element(self.left, 20, shortened(title, (self.width - self.left) / _BOLD_FACTOR), "title", "start")
        style = f"<title>{escaped(title)}</title>\n<style>\n{_file_style()}</style>"
        xml = f'<svg xmlns="http://www.w3.org/2000/svg" {head} width="{width}" height="{height}" {name}>'
        return f"{xml}\n{style}\n{shown}\n{body}\n</svg>\n"

    def _axes(self, grid: str) -> Iterator[str]:
        """Lines of the grid and names of the ticks."""
        left, right, top, bottom = map(decimal, (self.left, self.right, self.top, self.bottom))
        for share, name in self.y_ticks:
            y = float(self.y(share))
            if "y" in grid:
                yield f'<path class="grid" d="M{left} {decimal(y)}H{right}"/>'
            yield text_element(self.left - 6, y + 4, name, "tick", "end")
        for choice in self.x_choices:
            places = [float(self.x(share)) for share, _ in choice]
            halves = np.array([text_width(name) / 2 for _, name in choice])
            # Moved to lie within the picture.
            centers = np.clip(places, _AXIS_NAME_RIGHT + halves, self.width + _OVERHANG - halves)
            if len(choice) < 2 or (np.diff(centers) >= halves[1:] + halves[:-1] + GAP).all():
                if "x" in grid:
                    yield from (f'<path class="grid" d="M{decimal(x)} {top}V{bottom}"/>' for x in places)
                for x, (_, name) in zip(centers.tolist(), choice, strict=True):
                    yield text_element(x, self.bottom + 17, name, "tick", "middle")
                return

    def _frame(self, total: float) -> str:
        """Lines and names of both axes."""
        left, right, top, bottom = map(decimal, (self.left, self.right, self.top, self.bottom))
        across, up = (self.left + self.right) / 2, (self.top + self.bottom) / 2
        x_name = shortened(self.x_name, 2 * min(self.width - across, across - _AXIS_NAME_RIGHT))
        y_name = shortened(self.y_name, 2 * min(total - up, up))
        return (
            f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'
            + text_element(across, total - 12, x_name, "axis-name", "middle")
            + text_element(12, up, y_name, "axis-name", "middle", rotated=True)
        )

    @cached_property
    def _legend(self) -> tuple[list[str], int]:
        """The legend, from left to right and in as many rows as it needs, and their number."""
        parts, start, rows = [], 30.0, 1
        left, first = start, 16 + (_TITLE if self.file else 0)
        for shape, text in self.keys:
            name = shortened(text, self.width - start - _KEY - 6)
            if left > start and left + _KEY + 6 + text_width(name) > self.width:
                left, rows = start, rows + 1
            y = first + _ROW * (rows - 1)
            parts.append(f'<g transform="translate({decimal(left)} {y})">{shape}</g>')
            parts.append(text_element(left + _KEY + 6, y, name, "legend", "start"))
            left += _KEY + 6 + text_width(name) + 14
        return parts, rows


def left_edge(names: Iterable[str]) -> int:
    """Left edge of a plot, to the right of the vertical axis' name and tick names."""
    return _AXIS_NAME_RIGHT + GAP + 6 + math.ceil(max_text_width(names))
