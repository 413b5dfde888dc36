"""Charts in three forms as SVG: bars by name, a heat map of probabilities, and lines.

The size of a chart is bounded by its arguments: callers group or select names, rows and points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .number_text import clipped, exact, number, percent, whole_percent
from .svg_plot import (
    GAP,
    SERIES,
    Axis,
    Plot,
    decimal,
    left_edge,
    max_text_width,
    middles,
    points_path,
    rectangle,
    shortened,
    text_element,
    text_width,
)

MOST_NAMES = 12
"""Largest number of names along an axis; callers choose the most important ones."""

_MAX_NAME_WIDTH = 130
_PLOT_HEIGHT, _MOST_STEP, _LEAST_STEP = 222, 60, 34
_MOST_BAR, _BETWEEN = 14, 1

_SHADES = 32
_LIGHT_TEXT = 0.9 * _SHADES  # darker shades have text in the color of the page
_MIN_HEIGHT = 17  # of a cell with a number in it
_NAMED_ROWS = 7  # number of named rows if there are more than can be named

_DASHES = ("", " dashes", " dots")
# Around a point: circle, square, diamond and triangles.
_MARKS = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", "m-3.1-3.1h6.2v6.2h-6.2z", "m0-4.6l4.6 4.6-4.6 4.6-4.6-4.6z",
    "m0-4.2l4.4 7.4h-8.8z", "m0 4.2l4.4-7.4h-8.8z",
)  # fmt: skip
_MAX_MARKS = 20  # points of a line with marks
_MAX_TICKS = 10  # at the values themselves
_MAX_NAME, _MAX_TITLE = 60, 90  # characters
_FILE_WIDTH, _FILE_HEIGHT = 640, 320

# From this ratio of the largest to the smallest value on, an axis is logarithmic.
_WIDE = 8.0
_LEAST = 1e-100  # of a logarithmic axis: its margin and quotients of its values are floats as well
_MARGIN = 0.04


@dataclass(frozen=True)
class Bars:
    """Probabilities by name, as bars of one color.

    Attributes:
      name: Text of the legend.
      values: A probability for each name; estimates may be below 0, where no bar is drawn.
      spans: Ends of a line over each bar, such as a standard error to both sides; empty for none.
    """

    name: str
    values: Sequence[float]
    spans: Sequence[tuple[float, float]] = ()

    def text(self, row: int) -> str:
        """The value of a name in percent, with the ends of its line."""
        span = f" ({percent(self.spans[row][0])} to {percent(self.spans[row][1])})" if self.spans else ""
        return percent(self.values[row]) + span

    def end(self, row: int) -> float:
        """The largest value that is drawn; not below 0."""
        return max(0.0, self.values[row], *(self.spans[row] if self.spans else ()))


def bars_chart(names: Sequence[str], series: Sequence[Bars], x_name: str, y_name: str, title: str) -> str:
    """Draws bars from the left for each name, from top to bottom, each with its probability.

    `x_name` and `y_name` are those of the axes.
    """
    step = min(max(_PLOT_HEIGHT / len(names), _LEAST_STEP), _MOST_STEP)
    shown, rows = short_names(names), range(len(names))
    largest = max(bars.end(row) for bars in series for row in rows)
    # To the right of the longest bar is the space for its probability.
    width = Plot.width - 20 - left_edge(shown)
    space = max(text_width(percent(value)) for bars in series for value in bars.values) + GAP
    axis = Axis(0, largest * width / (width - space) or 1.0, percent)
    keys = [
        (f'<rect class="bar series{i}" y="-9" width="22" height="10"/>', bars.name) for i, bars in enumerate(series)
    ]
    plot = Plot(x_name, y_name, axis.choices(), middles(shown[::-1]), keys, height=step * len(names))
    thick = min((step - 6) / len(series) - _BETWEEN, _MOST_BAR)
    parts = []
    for row in rows:
        top = plot.top + (row + 0.5) * step - (thick + _BETWEEN) * len(series) / 2
        for place, bars in enumerate(series):
            end, last = (float(plot.x(axis.share(value))) for value in (max(bars.values[row], 0.0), bars.end(row)))
            if end > plot.left:
                parts.append(rectangle(f"bar series{place}", plot.left, top, max(end, plot.left + 0.5), top + thick))
            middle = top + thick / 2
            if bars.spans:
                low, high = (float(plot.x(axis.share(max(value, 0.0)))) for value in bars.spans[row])
                ends = "".join(f"M{decimal(x)} {decimal(middle - 3)}v6" for x in (low, high))
                parts.append(f'<path class="whisker" d="M{decimal(low)} {decimal(middle)}H{decimal(high)}{ends}"/>')
            parts.append(text_element(last + 5, middle + 4, percent(bars.values[row]), "tick", "start"))
            top += thick + _BETWEEN
    described = " ".join(
        f"{name}: {', '.join(f'{bars.name} {bars.text(row)}' for bars in series)}." for row, name in enumerate(names)
    )
    return plot.picture(title, described, parts, "x")


def short_names(names: Sequence[str]) -> list[str]:
    """Shortens names until they fit beside a chart; if that makes some equal, all of them get numbers in front."""
    short = [shortened(name, _MAX_NAME_WIDTH) for name in names]
    if len(set(short)) == len(short):
        return short
    return [shortened(f"{place} {name}", _MAX_NAME_WIDTH) for place, name in enumerate(names, start=1)]


def square_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of rows and columns of a matrix between classes; columns that are too narrow for names have numbers."""
    rows, columns = short_names(names), [*names]
    if max_text_width(columns) <= (Plot.width - 20 - left_edge(rows)) / len(names) - GAP:
        return rows, columns
    columns = [str(place) for place in range(1, len(names) + 1)]
    return [shortened(f"{place} {name}", _MAX_NAME_WIDTH) for place, name in zip(columns, names, strict=True)], columns


def range_names(ranges: Sequence[tuple[float, float]]) -> list[str]:
    """Names ranges of numbers: exactly, with four digits, or by their first numbers, as fits and tells them apart."""
    names: list[str] = []
    for ends in (2, 1):
        for write in (exact, number):
            names = [" to ".join(dict.fromkeys(map(write, pair[:ends]))) for pair in ranges]
            if max_text_width(names) <= _MAX_NAME_WIDTH and len(set(names)) == len(names):
                return names
    return [exact(first) for first, _ in ranges]


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    probabilities: np.ndarray,
    axes: tuple[str, str],
    title: str,
    description: str,
) -> str:
    """Draws a matrix of probabilities as shaded cells, the first row at the top.

    Shades grow with the square root of the probability, so that small probabilities can be seen. `axes` are the names
    of the horizontal and the vertical axis.
    """
    count, across = probabilities.shape
    shades = np.ceil(np.sqrt(probabilities / probabilities.max()) * _SHADES).astype(int)
    named = {int(row) for row in evenly_spaced(count, MOST_NAMES if count <= MOST_NAMES else _NAMED_ROWS)}
    ticks = [tick for row, tick in enumerate(middles(rows[::-1])) if count - 1 - row in named]
    choices = (middles(columns)[::step] for step in range(1, across + 1))
    keys = [(_key(math.sqrt(share)), percent(float(share * probabilities.max()))) for share in (0.04, 0.25, 1.0)]
    plot = Plot(*axes, choices, ticks, keys)
    width, height = (plot.right - plot.left) / across, plot.height / count
    place = f'transform="translate({plot.left} {decimal(plot.top)}) scale({decimal(width, 4)} {decimal(height, 4)})"'
    parts = [f'<g class="series0" {place} shape-rendering="crispEdges">']
    for shade in sorted(set(shades.ravel().tolist()) - {0}):
        boxes = "".join(f"M{column} {row}h1v1h-1z" for row, column in np.argwhere(shades == shade).tolist())
        parts.append(f'<path class="bar" fill-opacity="{shade / _SHADES:.3g}" d="{boxes}"/>')
    parts.append("</g>")
    for (row, column), text in _cell_texts(probabilities, width, height).items():
        dark = " on-dark" if shades[row, column] > _LIGHT_TEXT else ""
        x, y = plot.left + (column + 0.5) * width, plot.top + (row + 0.5) * height
        parts.append(text_element(x, y + 4, text, f"cell-text{dark}", "middle"))
    return plot.picture(title, description, parts)


def _key(opacity: float) -> str:
    return f'<rect class="bar series0" fill-opacity="{opacity:.3g}" y="-9" width="22" height="10"/>'


def _cell_texts(probabilities: np.ndarray, width: float, height: float) -> dict[tuple[int, int], str]:
    """Probabilities by row and column, as precise as fits; empty if cells are too small for them."""
    if height < _MIN_HEIGHT or width < text_width("0%", bold=True):
        return {}
    for write in (percent, whole_percent):
        texts = {(row, column): write(float(value)) for (row, column), value in np.ndenumerate(probabilities)}
        if max(text_width(text, bold=True) for text in texts.values()) + GAP / 2 <= width:
            return texts
    return {}


def evenly_spaced(count: int, max_items: int) -> np.ndarray:
    """Chooses items at even distances, the first and the last among them: their indices, ascending, int64.

    There is at least one item, and `max_items` is at least 2.
    """
    return np.unique(np.linspace(0, count - 1, min(count, max_items)).round().astype(int))


@dataclass(frozen=True)
class Line:
    """Line of a chart.

    Attributes:
      name: Text of the legend.
      x: Positions, ascending.
      y: Values, one for each position; None and infinite ones are not drawn.
      band: Half heights of a band around the line, one for each position; None for no band.
      guide: True for a reference line, thin and dashed.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    band: Sequence[float | None] | None = None
    guide: bool = False

    def points(self) -> list[tuple[float, float, float]]:
        """Selects the points that are drawn: x, y and half height of the band, for each finite y."""
        bands = self.band or [None] * len(self.x)
        return [
            (x, y, band if band is not None and math.isfinite(band) else 0.0)
            for x, y, band in zip(self.x, self.y, bands, strict=True)
            if y is not None and math.isfinite(y)
        ]


def lines_chart(
    lines: Sequence[Line],
    title: str,
    x_name: str,
    y_name: str,
    levels: Sequence[tuple[str, float]] = (),
    from_zero: bool = False,
    file: bool = False,
) -> str:
    """Draws lines with a legend.

    An axis is logarithmic where its values are from 1e-100 to 1e100 and the largest is at least 8 times the smallest;
    with `from_zero`, axes are linear, from 0 on if values come near it. Lines without a finite value are left out.
    `levels` are names and values of horizontal reference lines. With `file`, the picture is a file of its own.
    """
    lines = [line for line in lines if line.points()]
    places = sorted({x for line in lines for x, _, _ in line.points()})
    lines += [
        Line(name, [places[0], places[-1]] if places else [0.0, 1.0], [height] * 2, guide=True)
        for name, height in levels
        if math.isfinite(height)
    ]
    points = [point for line in lines for point in line.points()]
    heights = [y for _, y, _ in points]
    ends = [y + side * band for _, y, band in points for side in (-1, 1)]
    marks = places if len(places) <= _MAX_TICKS and not from_zero else ()
    x_axis, y_axis = _axis(places, places, from_zero, marks), _axis(heights, ends, from_zero)
    shapes, keys = [], []
    for place, line in enumerate(lines):
        few = len(line.points()) <= _MAX_MARKS and not line.guide
        dashes = _DASHES[(place if not few else place // SERIES) % len(_DASHES)]
        kind = f"line thin{_DASHES[1 + place // SERIES % 2]}" if line.guide else f"line{dashes}"
        mark = _MARKS[place % len(_MARKS)] if few else ""
        shapes.append((line, kind, mark))
        sign = f'<path class="mark" d="M11-4{mark}"/>' if mark else ""
        keys.append((f'<g class="series{place % SERIES}"><path class="{kind}" d="M0-4h22"/>{sign}</g>', line.name))
    keys = [(shape, clipped(name, _MAX_NAME)) for shape, name in keys]
    size = (_FILE_WIDTH, _FILE_HEIGHT) if file else (Plot.width, Plot.height)
    plot = Plot(x_name, y_name, x_axis.choices(), y_axis.ticks(round(size[1] / 45)), keys, file, *size)
    parts = []
    for place, (line, kind, mark) in enumerate(shapes):
        spots = [(float(plot.x(x_axis.share(x))), float(plot.y(y_axis.share(y)))) for x, y, _ in line.points()]
        drawn = f'<path class="{kind}" d="{points_path(spots)}"/>'
        if any(band for _, _, band in line.points()):
            low, high = y_axis.low, y_axis.high
            around = [[min(max(y + side * band, low), high) for _, y, band in line.points()] for side in (1, -1)]
            sides = [
                [(x, float(plot.y(y_axis.share(y)))) for (x, _), y in zip(spots, ys, strict=True)] for ys in around
            ]
            drawn = f'<path class="band" d="{points_path([*sides[0], *reversed(sides[1])])}z"/>{drawn}'
        if mark:
            drawn += f'<path class="mark" d="{"".join(f"{points_path([spot])}{mark}" for spot in spots)}"/>'
        parts.append(f'<g class="series{place % SERIES}">{drawn}</g>')
    description = [f"{y_name} against {x_name}."]
    for line in lines:
        (first_x, first, _), *_, (last_x, last, _) = [*line.points(), line.points()[-1]]
        low, high = min(y for _, y, _ in line.points()), max(y for _, y, _ in line.points())
        end = f", {number(last)} at {number(last_x)}" if (first_x, first) != (last_x, last) else ""
        between = (
            f", from {number(low)} to {number(high)}" if (low, high) != (min(first, last), max(first, last)) else ""
        )
        description.append(f"{line.name}: {number(first)} at {number(first_x)}{end}{between}.")
    return plot.picture(clipped(title, _MAX_TITLE), " ".join(description), parts, "y")


def _axis(values: Sequence[float], ends: Sequence[float], from_zero: bool, marks: Sequence[float] = ()) -> Axis:
    """Axis for values, and for `ends`: those, and the ends of the bands around them. It has a margin."""
    if not values:
        return Axis(0.0, 1.0)
    low, high = min(values), max(values)
    if low >= _LEAST and _WIDE * low <= high <= 1 / _LEAST and not from_zero:
        # The lower end of a band can be negative.
        low, high = max(low / 2, min(ends)), max(ends)
        margin = (high / low) ** _MARGIN
        return Axis(low / margin, high * margin, log=True, marks=marks)
    low, high = min(ends), max(ends)
    zero = from_zero and 0 <= low <= high / 2
    low = 0.0 if zero else low
    margin = _MARGIN * (high - low) or _MARGIN * abs(high) or 1.0
    return Axis(low if zero else low - margin, high + margin, number, marks=marks)
