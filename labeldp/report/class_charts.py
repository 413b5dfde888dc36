"""Charts of a mechanism of classes as inline SVG: bars with the names of the classes, and matrices between them.

At most 12 classes are drawn, those with the largest shares, in the order of the list. Names are shortened to the space
that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..pipelines.cli.text_format import clipped, percent
from .mechanism_charts import heat_map, legend
from .svg_plot import GAP, Axis, Frame, decimal, left_edge, rectangle, text_element, text_width

MOST_CLASSES = 12
"""Largest number of classes in a chart."""

MAX_NAME_WIDTH = 130
"""Largest width of the name of a class beside a chart."""

_LEAST_COLUMN_NAME = 34
_PLOT_HEIGHT, _MOST_STEP, _LEAST_STEP = 222, 60, 34
_MOST_BAR, _BETWEEN = 14, 1
_BELOW = 48  # ticks and name of the horizontal axis


@dataclass(frozen=True)
class Bars:
    """Probabilities of classes, as bars of one color.

    Attributes:
      kind: Class in the style sheet.
      name: Text of the legend.
      values: A probability for each class; estimates may be below 0, where no bar is drawn.
      errors: Standard error of each value, drawn to both sides of it; empty for exact values.
    """

    kind: str
    name: str
    values: Sequence[float]
    errors: Sequence[float] = ()

    def text(self, row: int) -> str:
        """The value of a class in percent, with its standard error."""
        error = f" \u00b1 {100 * self.errors[row]:.2g}%" if self.errors else ""
        return percent(self.values[row]) + error

    def ends(self, row: int) -> tuple[float, float]:
        """Value of a class less its standard error, and with it; not below 0."""
        error = self.errors[row] if self.errors else 0.0
        return max(self.values[row] - error, 0.0), max(self.values[row] + error, 0.0)


def short_names(names: Sequence[str], width: float) -> list[str]:
    """Shortens names until they fit; if that makes some equal, all of them get numbers in front."""
    found = [_shortened(name, width) for name in names]
    return found if len(set(found)) == len(found) else _numbered(names, width)


def _numbered(names: Sequence[str], width: float) -> list[str]:
    return [_shortened(f"{place} {name}", width) for place, name in enumerate(names, start=1)]


def _shortened(name: str, width: float) -> str:
    # A line break would be a space, and other control characters nothing.
    name = "".join(each if each.isprintable() else "\ufffd" for each in name)
    length = min(len(name), round(width))
    while length > 1 and text_width(clipped(name, length)) > width:
        length -= 1
    return clipped(name, length)


def bars_chart(names: Sequence[str], bars: Sequence[Bars], x_name: str, y_name: str, title: str) -> str:
    """Draws bars from the left for each class, from top to bottom, each with its probability.

    `x_name` and `y_name` are those of the axes.
    """
    step = min(max(_PLOT_HEIGHT / len(names), _LEAST_STEP), _MOST_STEP)
    bottom = Frame.top + step * len(names)
    frame = Frame(height=bottom + _BELOW, bottom=bottom)
    shown = short_names(names, MAX_NAME_WIDTH)
    left, rows = left_edge(shown), range(len(names))
    largest = max(each.ends(row)[1] for each in bars for row in rows)
    # To the right of the longest bar is the space for its probability.
    room = max(text_width(each.text(row)) for each in bars for row in rows) + GAP
    axis = Axis(0, largest * (frame.right - left) / (frame.right - left - room) or 1.0, percent)
    thick = min((step - 6) / len(bars) - _BETWEEN, _MOST_BAR)
    parts = vertical_lines(frame, axis, left)
    for row, name in enumerate(shown):
        middle = frame.top + (row + 0.5) * step
        parts.append(text_element(left - 6, middle + 4, name, "tick", "end"))
        top = middle - (thick + _BETWEEN) * len(bars) / 2
        for each in bars:
            low, end, high = (
                left + axis.share(value) * (frame.right - left)
                for value in (each.ends(row)[0], max(each.values[row], 0.0), each.ends(row)[1])
            )
            if end > left:
                parts.append(rectangle(each.kind, left, top, max(end, left + 0.5), top + thick))
            if each.errors:
                parts.append(_whisker(low, high, top + thick / 2))
            parts.append(text_element(high + 5, top + thick / 2 + 4, each.text(row), "tick", "start"))
            top += thick + _BETWEEN
    parts.append(f'<path class="axis" d="M{left} {decimal(frame.top)}V{decimal(bottom)}"/>')
    parts += [frame.axis_names(left, (x_name, 0), (y_name, 0)), legend([(each.kind, each.name) for each in bars])]
    described = " ".join(
        f"{name}: {', '.join(f'{each.name} {each.text(row)}' for each in bars)}." for row, name in enumerate(names)
    )
    return frame.picture(title, described, parts)


def _whisker(left: float, right: float, middle: float) -> str:
    """Draws an interval with a bar at each end."""
    ends = "".join(f"M{decimal(x)} {decimal(middle - 3)}v6" for x in (left, right))
    return f'<path class="whisker" d="M{decimal(left)} {decimal(middle)}H{decimal(right)}{ends}"/>'


def vertical_lines(frame: Frame, axis: Axis, left: float) -> list[str]:
    """Grid lines and names of the ticks of the horizontal axis, as many as have space."""
    for found in axis.choices():
        places = left + axis.share(np.array(found.values)) * (frame.right - left)
        if names := frame.x_tick_names(places, found.names):
            lines = [
                f'<path class="grid" d="M{decimal(place)} {decimal(frame.top)}V{decimal(frame.bottom)}"/>'
                for place in places[1:]
            ]
            return [*lines, *names]
    return []


def matrix_chart(names: Sequence[str], matrix: np.ndarray, rows: str, columns: str, title: str) -> str:
    """Draws probabilities between classes as a heat map: a row for each class, the first one at the top.

    `matrix` has shape (k, k), the probability of the class of the column for that of the row; `rows` and `columns` are
    the names of the axes.
    """
    row_names = short_names(names, MAX_NAME_WIDTH)
    width = (Frame.right - left_edge(row_names)) / len(names) - GAP
    column_names = [_shortened(name, width) for name in names]
    unclear = width < _LEAST_COLUMN_NAME or len(set(column_names)) < len(names)
    if unclear and column_names != [*names]:
        row_names = _numbered(names, MAX_NAME_WIDTH)
        column_names = [str(place) for place in range(1, len(names) + 1)]
    drawn = heat_map(matrix[::-1], row_names[::-1], column_names, (columns, 0), (rows, 0))
    likeliest = " ".join(
        f"{name}: {names[int(row.argmax())]}, with probability {percent(float(row.max()))}."
        for name, row in zip(names, matrix, strict=True)
    )
    return Frame().picture(title, f"Most likely {columns} by {rows}: {likeliest}", drawn)
