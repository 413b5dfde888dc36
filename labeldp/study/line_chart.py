"""Line charts of results as SVG files, with names at the line ends instead of a legend."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..pipelines.cli.text_format import clipped, number
from ..report.svg_plot import Axis, Frame, Plot, file_style, max_text_width, points_path, text_element, text_width

# Okabe and Ito's hues for color-blind readers, as dark or as light as the ground needs.
_COLORS = {
    "series0": ("#0072b2", "#56b4e9"),
    "series1": ("#d0500a", "#f2935c"),
    "series2": ("#00805e", "#2cc295"),
    "series3": ("#b04a90", "#e39ac4"),
    "series4": ("#8a6400", "#e6b422"),
    "series5": ("#4a3fb0", "#a9a3ff"),
    "series6": ("#1c2127", "#e7eaee"),
}
_DASHES = ("", " dashes", " dots")
_RULES = (
    "".join(f"svg .{name} {{ color: var(--{name}); }}\n" for name in _COLORS)
    + """svg .guide { color: var(--soft); }
svg .line { stroke: currentColor; }
svg .mark, svg .band { fill: currentColor; }
svg .band { fill-opacity: 0.15; }
svg .guide .line { stroke-width: 1.2; }
svg .line.leader { stroke-width: 0.7; }
svg .dashes { stroke-dasharray: 7 3; }
svg .dots { stroke-dasharray: 2 3; }
svg .title { font-size: 15px; font-weight: 600; }
"""
)
# Around a point: circle, square, diamond and triangles.
_MARKS = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", "m-3.1-3.1h6.2v6.2h-6.2z", "m0-4.6l4.6 4.6-4.6 4.6-4.6-4.6z",
    "m0-4.2l4.4 7.4h-8.8z", "m0 4.2l4.4-7.4h-8.8z",
)  # fmt: skip

_PLOT_WIDTH, _PLOT_HEIGHT = 500, 320
_TOP, _BELOW = 44, 50  # space around the plot
_LEADER = 40  # from the plot to the names
_NAME_HEIGHT = 18
_MAX_NAME, _MAX_TITLE = 60, 90  # characters
_TITLE_FACTOR = 1.3  # a title is bold and larger than other texts

# From this ratio of the largest to the smallest value on, an axis is logarithmic.
_LEAST = 1e-100  # of a logarithmic axis: its margin and quotients of its values are floats as well
_WIDE = 8.0
_MARGIN = 0.04
_MAX_TICKS = 10  # at the values themselves


@dataclass(frozen=True)
class Line:
    """Line of a chart.

    Attributes:
      name: Text at the end of the line.
      x: Positions, ascending.
      y: Values, one for each position; None and infinite ones are not drawn.
      band: Half heights of a band around the line, one for each position; None for no band.
      guide: True for a reference line, dashed and gray.
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


@dataclass(frozen=True)
class _Entry:
    """Part of a chart with a name beside the plot: its class and its shapes, and the point that the name is for."""

    name: str
    kind: str
    tip: tuple[float, float]
    shapes: str
    mark: str = ""


def draw_lines(
    lines: Sequence[Line],
    title: str,
    x_label: str,
    y_label: str,
    levels: Sequence[tuple[str, float]] = (),
    from_zero: bool = False,
) -> str:
    """Draws a line chart as the text of an SVG file; writes no file.

    An axis is logarithmic where its values are from 1e-100 to 1e100 and the largest is at least 8 times the smallest;
    with `from_zero`, axes are linear from 0 on, and no value is negative. Lines without a finite value are left out.
    `levels` are names and values of horizontal reference lines. The same arguments give the same text.
    """
    lines = [line for line in lines if line.points()]
    levels = [(name, height) for name, height in levels if math.isfinite(height)]
    points = [point for line in lines for point in line.points()]
    places = sorted({x for x, _, _ in points})
    heights = [y for _, y, _ in points] + [height for _, height in levels]
    ends = heights + [y + side * band for _, y, band in points for side in (-1, 1)]
    x_axis = _axis(places, places, from_zero, places if len(places) <= _MAX_TICKS and not from_zero else ())
    y_axis = _axis(heights, ends, from_zero)
    names = [clipped(name, _MAX_NAME) for name in (*(line.name for line in lines), *(name for name, _ in levels))]
    bottom = _TOP + max(_PLOT_HEIGHT, _NAME_HEIGHT * len(names))
    left = Plot(x_axis, y_axis, Frame(top=_TOP, bottom=bottom)).left
    title = clipped(title, _MAX_TITLE)
    width = max(_PLOT_WIDTH + _LEADER + max_text_width(names), _TITLE_FACTOR * text_width(title))
    plot = Plot(x_axis, y_axis, Frame(left + math.ceil(width), bottom + _BELOW, left + _PLOT_WIDTH, _TOP, bottom))

    series = itertools.count()
    entries = [_of_line(plot, line, None if line.guide else next(series)) for line in lines]
    entries += [_of_level(plot, *level) for level in levels]
    parts = [text_element(left, 24, title, "title", "start"), plot.axes(x_label, y_label)]
    parts += _with_names(plot, entries, names)
    description = [f"{y_label} against {x_label}."]
    for line in lines:
        (first_x, first_y, _), (last_x, last_y, _) = line.points()[0], line.points()[-1]
        end = f", {number(last_y)} at {number(last_x)}" if first_x < last_x else ""
        description.append(f"{line.name}: {number(first_y)} at {number(first_x)}{end}.")
    description += [f"{name}: {number(height)}." for name, height in levels]
    return plot.frame.picture(title, " ".join(description), parts, file_style(_COLORS, _RULES))


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
    low, high = 0.0 if from_zero else min(ends), max(ends)
    margin = _MARGIN * (high - low) or _MARGIN * abs(high) or 1.0
    return Axis(low if from_zero else low - margin, high + margin, number, marks=marks)


def _of_line(plot: Plot, line: Line, place: int | None) -> _Entry:
    """A line with its marks and its band, in the color of its place, or as a reference line."""
    spots = [(float(plot.x(x)), float(plot.y(y))) for x, y, _ in line.points()]
    kind, dashes, mark = "guide", _DASHES[1], ""
    if place is not None:
        kind, dashes = f"series{place % len(_COLORS)}", _DASHES[place // len(_COLORS) % len(_DASHES)]
        mark = _MARKS[place % len(_MARKS)]
    shapes = f'<path class="line{dashes}" d="{points_path(spots)}"/>'
    if any(band for _, _, band in line.points()):
        sides = [[(x, y + side * band) for x, y, band in line.points()] for side in (1, -1)]
        outline = [*sides[0], *reversed(sides[1])]
        low, high = plot.y_axis.low, plot.y_axis.high
        around = [(float(plot.x(x)), float(plot.y(min(max(y, low), high)))) for x, y in outline]
        shapes = f'<path class="band" d="{points_path(around)}z"/>{shapes}'
    if mark:
        shapes += f'<path class="mark" d="{"".join(f"{points_path([spot])}{mark}" for spot in spots)}"/>'
    return _Entry(line.name, kind, spots[-1], shapes, mark)


def _of_level(plot: Plot, name: str, height: float) -> _Entry:
    """A horizontal reference line."""
    y = float(plot.y(height))
    ends = [(float(plot.left), y), (plot.frame.right, y)]
    return _Entry(name, "guide", ends[1], f'<path class="line{_DASHES[2]}" d="{points_path(ends)}"/>')


def _with_names(plot: Plot, entries: Sequence[_Entry], names: Sequence[str]) -> list[str]:
    """The entries, with their names to the right of the plot at the height of their tips, without overlap."""
    frame = plot.frame
    extent = frame.bottom - frame.top
    shares = separate([(entry.tip[1] - frame.top) / extent for entry in entries], _NAME_HEIGHT / extent)
    parts, left = [], frame.right + _LEADER
    for entry, name, share in zip(entries, names, shares, strict=True):
        y = frame.top + share * extent
        before = [(entry.tip[0] + 6, entry.tip[1]), (left - 12, y)]
        leader = f'<path class="line leader" d="{points_path(before)}"/>'
        if entry.mark:
            leader += f'<path class="mark" d="{points_path([(left - 10, y)])}{entry.mark}"/>'
        parts.append(f'<g class="{entry.kind}">{entry.shapes}{leader}</g>')
        parts.append(text_element(left, y + 4.5, name, "name", "start"))
    return parts


def separate(places: Sequence[float], distance: float) -> list[float]:
    """Moves places apart with the least sum of squared movements; keeps their order.

    Places are in [0, 1], in any order, and are moved at least `distance` apart, within [0, 1] where they fit.
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    # Less rank * distance, the places must be ascending: isotonic regression by pooling neighbors.
    pools: list[list[float]] = []
    for rank, place in enumerate(order):
        pools.append([places[place] - rank * distance])
        while len(pools) > 1 and _mean(pools[-2]) >= _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    moved = [_mean(pool) for pool in pools for _ in pool]
    largest = max(1 - distance * (len(places) - 1), 0.0)
    found = [0.0] * len(places)
    for rank, place in enumerate(order):
        found[place] = min(max(moved[rank], 0.0), largest) + rank * distance
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
