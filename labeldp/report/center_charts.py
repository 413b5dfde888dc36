"""Charts of a center of classes as inline SVG: its probabilities by class, and the noised counts of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..pipelines.cli.text_format import percent
from .class_charts import MAX_NAME_WIDTH, short_names, vertical_lines
from .mechanism_charts import legend
from .svg_plot import Axis, Frame, Plot, decimal, left_edge, points_path, rectangle, text_element

AGAINST = "noised counts"
_PLOT_HEIGHT, _MOST_STEP, _LEAST_STEP = 222, 60, 26
_BELOW = 48  # ticks and name of the horizontal axis
_MOST_BAR = 16


@dataclass(frozen=True)
class Strip:
    """Probabilities of a class over records.

    Attributes:
      mean: Their mean.
      quantiles: Probabilities that 5, 25, 50, 75 and 95 % of the records stay below.
    """

    mean: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True)
class Group:
    """Cells of similar probability of a class.

    Attributes:
      mean: Mean probability of the class.
      share: Share of the class by the noised counts of the cells.
      error: Standard error of it, from the noise and from chance.
    """

    mean: float
    share: float
    error: float


def strips_chart(names: Sequence[str], strips: Sequence[Strip], x_name: str, y_name: str, title: str) -> str:
    """Draws the distribution of the probability of each class, from top to bottom: a line, a box, median and mean.

    `x_name` and `y_name` are those of the axes.
    """
    step = min(max(_PLOT_HEIGHT / len(names), _LEAST_STEP), _MOST_STEP)
    bottom = Frame.top + step * len(names)
    frame = Frame(height=bottom + _BELOW, bottom=bottom)
    shown = short_names(names, MAX_NAME_WIDTH)
    left, high = left_edge(shown), max(max(each.mean, *each.quantiles) for each in strips)
    axis = Axis(0, min(high * 1.02, 1.0), percent)
    half = min(step - 8, _MOST_BAR) / 2
    parts = vertical_lines(frame, axis, left)
    for row, (name, each) in enumerate(zip(shown, strips, strict=True)):
        middle = frame.top + (row + 0.5) * step
        first, low, median, top, last, mean = (
            left + float(axis.share(value)) * (frame.right - left) for value in (*each.quantiles, each.mean)
        )
        parts += [
            text_element(left - 6, middle + 4, name, "tick", "end"),
            f'<path class="line spread" d="M{decimal(first)} {decimal(middle)}H{decimal(last)}"/>',
            rectangle("prior", low, middle - half, max(top, low + 0.5), middle + half),
            f'<path class="median" d="M{decimal(median)} {decimal(middle - half)}v{decimal(2 * half)}"/>',
            f'<path class="mean mark" d="M{decimal(mean - 4)} {decimal(middle - half - 7)}h8l-4 7z"/>',
        ]
    parts.append(f'<path class="axis" d="M{left} {decimal(frame.top)}V{decimal(bottom)}"/>')
    names_of_marks = (("line spread", "90% of records"), ("prior", "middle half"), ("mean mark", "mean"))
    parts += [frame.axis_names(left, (x_name, 0), (y_name, 0)), legend(names_of_marks)]
    described = " ".join(
        f"{name}: mean {percent(each.mean)}, from {percent(each.quantiles[0])} to {percent(each.quantiles[-1])}."
        for name, each in zip(names, strips, strict=True)
    )
    return frame.picture(title, described, parts)


def groups_chart(groups: Sequence[Group], x_name: str, y_name: str, title: str) -> str:
    """Draws shares by noised counts against probabilities, with standard errors, and the line where both are equal."""
    low = min(0.0, *(group.share - group.error for group in groups))
    high = max(max(group.mean, group.share + group.error) for group in groups)
    plot = Plot(Axis(0, min(high * 1.02, 1.0), percent), Axis(low, high * 1.02, percent))
    end = plot.x_axis.high
    parts = [plot.axes(x_name, y_name)]
    parts.append(f'<path class="zero" d="{points_path([(plot.x(0), plot.y(0)), (plot.x(end), plot.y(end))])}"/>')
    for group in groups:
        x, y = float(plot.x(group.mean)), float(plot.y(group.share))
        top, bottom = (float(plot.y(group.share + sign * group.error)) for sign in (1, -1))
        ends = "".join(f"M{decimal(x - 3)} {decimal(place)}h6" for place in (top, bottom))
        parts.append(f'<path class="whisker" d="M{decimal(x)} {decimal(top)}V{decimal(bottom)}{ends}"/>')
        parts.append(f'<circle class="output" cx="{decimal(x)}" cy="{decimal(y)}" r="4"/>')
    parts.append(legend((("output", "cells of similar probability"), ("line zero", "equal"))))
    described = " ".join(
        f"Probability {percent(group.mean)}: share {percent(group.share)} \u00b1 {percent(group.error)}."
        for group in groups
    )
    return plot.frame.picture(title, described, parts)
