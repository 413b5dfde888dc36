"""Line charts of results as PNG, SVG or PDF, with names at the line ends. Needs the extra `evaluation`."""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..cli.arguments import UsageError
from ..cli.optional_extras import check_extra

FORMATS = ("png", "svg", "pdf")
# Okabe and Ito's palette for color-blind readers, without its yellow, which is hard to see on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_STYLES = ("-", "--", ":")
_GRAY = "#777777"
_BAND_OPACITY = 0.15
_FONT_POINTS = 9.0
_DOTS_PER_INCH = 120
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
_WIDE = 8.0
_MOST_TICKS = 10


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
        """Selects the points that are drawn.

        Returns:
          x, y and half height of the band, for each finite y.
        """
        bands = self.band or [None] * len(self.x)
        return [
            (x, y, band or 0.0)
            for x, y, band in zip(self.x, self.y, bands, strict=True)
            if y is not None and math.isfinite(y)
        ]


def check_picture(flag: str, path: str) -> None:
    """Checks that a picture can be drawn in the format of a file name.

    Args:
      flag: Name of the flag, with dashes.
      path: Its value.

    Raises:
      UsageError: If the ending of the path is not in FORMATS, or matplotlib is not installed.
    """
    if _format(path) not in FORMATS:
        raise UsageError(f"{flag} {path} must end in one of .{', .'.join(FORMATS)}")
    check_extra(flag, "evaluation", "matplotlib")


def draw_lines(
    path: str,
    lines: Sequence[Line],
    title: str,
    x_label: str,
    y_label: str,
    levels: Sequence[tuple[str, float]] = (),
) -> bytes:
    """Draws a line chart; writes no file.

    An axis is logarithmic where its values are positive and the largest is at least 8 times the smallest.

    Args:
      path: File name; its ending tells the format.
      lines: The lines; those without a finite value are left out.
      title: Title of the chart.
      x_label: Label of the horizontal axis.
      y_label: Label of the vertical axis.
      levels: Names and values of horizontal reference lines.

    Returns:
      The content of the file. The same arguments give the same bytes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text is kept as text in SVG, and ids are not random.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "labeldp", "font.size": _FONT_POINTS}):
        figure = Figure(figsize=(7.6, 4.4), dpi=_DOTS_PER_INCH)
        axes = figure.add_axes((0.1, 0.12, 0.62, 0.78))
        drawn = [line for line in lines if line.points()]
        ends: list[tuple[str, float | None, float, str]] = []
        heights = [y for line in drawn for _, y, _ in line.points()]
        places = itertools.count()
        for line in drawn:
            ends.append(_draw(axes, line, None if line.guide else next(places)))
        for name, height in levels:
            if math.isfinite(height):
                axes.axhline(height, color=_GRAY, linewidth=1, linestyle=(0, (2, 3)), zorder=0)
                ends.append((name, None, height, _GRAY))
                heights.append(height)
        _scale(axes, sorted({x for line in drawn for x, _, _ in line.points()}), heights)
        axes.set_title(title, loc="left", fontsize=_FONT_POINTS + 1.5)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(color="#E4E4E4", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        _name_ends(figure, axes, ends)
        return _bytes(figure, path)


def _draw(axes: Any, line: Line, place: int | None) -> tuple[str, float | None, float, str]:
    """Draws a line in the color of its place, or as a reference line; gives its name, its end and its color."""
    x, y, bands = zip(*line.points(), strict=True)
    if place is None:
        color = _GRAY
        axes.plot(x, y, "--", color=color, marker="x", markersize=4, linewidth=1.2)
    else:
        color = _COLORS[place % len(_COLORS)]
        style = _STYLES[place // len(_COLORS) % len(_STYLES)]
        axes.plot(x, y, style, color=color, marker=_MARKERS[place % len(_MARKERS)], markersize=4.5, linewidth=1.6)
    if any(bands):
        low = [height - band for height, band in zip(y, bands, strict=True)]
        high = [height + band for height, band in zip(y, bands, strict=True)]
        axes.fill_between(x, low, high, color=color, alpha=_BAND_OPACITY, linewidth=0)
    return line.name, x[-1], y[-1], color


def _scale(axes: Any, x: Sequence[float], y: Sequence[float]) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    if y and min(y) > 0 and max(y) >= _WIDE * min(y):
        axes.set_yscale("log")
        if max(y) >= 100 * min(y):
            axes.yaxis.set_minor_formatter(NullFormatter())
    if x and min(x) > 0 and max(x) >= _WIDE * min(x):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    if len(x) <= _MOST_TICKS:
        axes.set_xticks(x, [f"{value:g}" for value in x])


def _name_ends(figure: Any, axes: Any, ends: Sequence[tuple[str, float | None, float, str]]) -> None:
    """Writes the names of the lines to the right of the axes, at the height of their ends, without overlap."""
    figure.draw_without_rendering()
    to_axes = axes.transData + axes.transAxes.inverted()
    height_points = axes.get_position().height * figure.get_figheight() * 72
    high = axes.get_xlim()[1]
    tips = [to_axes.transform((high if x is None else x, y)) for _, x, y, _ in ends]
    heights = separate([float(tip[1]) for tip in tips], 1.4 * _FONT_POINTS / height_points)
    for (name, _, _, color), tip, height in zip(ends, tips, heights, strict=True):
        axes.annotate(
            name,
            xy=tuple(tip),
            xytext=(1.06, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            color=color,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "relpos": (0, 0.5), "shrinkB": 3},
        )


def separate(places: Sequence[float], distance: float) -> list[float]:
    """Moves places apart with the least sum of squared movements; keeps their order.

    Args:
      places: Places in [0, 1], in any order.
      distance: Least distance of any two, >= 0.

    Returns:
      The moved places, in the order given; within [0, 1] where they fit.
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


def _bytes(figure: Any, path: str) -> bytes:
    kind = _format(path)
    # Without date and version, the bytes change only with the content.
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=metadata, bbox_inches="tight", pad_inches=0.1)
    return content.getvalue()


def _format(path: str) -> str:
    return os.path.splitext(path)[1].lower().removeprefix(".")
