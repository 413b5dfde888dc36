"""Chart of the channel: a heat map of the probabilities of the outputs given the labels, as inline SVG."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from .chart_data import ChannelCells, evenly_spaced
from .number_format import exact, label_range, number, percent, whole_percent
from .plot_axes import BOTTOM, GAP, MAX_TICK_WIDTH, RIGHT, TOP, axis_names, left_edge, power_of_ten, x_tick_names
from .svg_elements import (
    LEGEND_BASELINE,
    LEGEND_LEFT,
    decimal,
    max_text_width,
    picture,
    rectangle,
    text_element,
    text_width,
)

_SHADES = 32
_LIGHT_TEXT = 0.9 * _SHADES  # darker shades have text in the color of the page
_LEGEND_SHADES = 16

_MIN_HEIGHT = 17  # of a cell with a number in it
_MAX_NAMED_ROWS = 12  # up to this number, all rows are named
_NAMED_ROWS = 7  # number of named rows if there are more


def channel_chart(cells: ChannelCells, name: str) -> Markup:
    """Draws the channel as a heat map, the lowest labels at the bottom, the lowest outputs to the left.

    Shades grow with the square root of the probability, so that small probabilities can be seen.

    Args:
      cells: The channel, reduced to what can be drawn.
      name: Name of the label column.

    Returns:
      The picture.
    """
    rows, columns = cells.probabilities.shape
    names, outputs, power = _cell_names(cells)
    left = left_edge(names)
    width, height = (RIGHT - left) / columns, (BOTTOM - TOP) / rows
    largest = float(cells.probabilities.max())
    shades = np.ceil(np.sqrt(cells.probabilities / largest) * _SHADES).astype(int)
    parts = [rectangle("cell-ground", left, TOP, RIGHT, BOTTOM), _cells(shades, left, width, height)]
    centers, middles = left + (np.arange(columns) + 0.5) * width, BOTTOM - (np.arange(rows) + 0.5) * height
    for (row, column), text in _cell_texts(cells.probabilities, width, height).items():
        dark = " on-dark" if shades[row, column] > _LIGHT_TEXT else ""
        parts.append(text_element(centers[column], middles[row] + 4, text, f"cell-text{dark}", "middle"))
    for row in map(int, evenly_spaced(rows, _MAX_NAMED_ROWS if rows <= _MAX_NAMED_ROWS else _NAMED_ROWS)):
        parts.append(text_element(left - 6, middles[row] + 4, names[row], "tick", "end"))
    name_lines = (x_tick_names(centers[::step], outputs[::step]) for step in range(1, columns + 1))
    parts += next(filter(None, name_lines))
    parts.append(axis_names(left, (f"released {name}", power), (f"true {name}", power)))
    parts += _legend(largest)
    likeliest = cells.probabilities.argmax(axis=1)
    described = " ".join(
        f"{label_range(*cells.rows[row])}: {number(sum(cells.columns[likeliest[row]]) / 2)}, with probability "
        f"{percent(float(cells.probabilities[row, likeliest[row]]))}."
        for row in map(int, evenly_spaced(rows, _MAX_NAMED_ROWS))
    )
    return picture(
        f"Channel from true to released {name}",
        f"{rows} rows of true labels and {columns} columns of outputs, darker for a larger probability, at most "
        f"{percent(largest)}. Most likely outputs by true label: {described}",
        parts,
    )


def _cells(shades: np.ndarray, left: float, width: float, height: float) -> str:
    """One path for each shade, in units of a cell; equal neighbors of a row share a box."""
    group = (
        f'<g class="cell" transform="translate({left} {BOTTOM}) scale({decimal(width, 4)} {decimal(-height, 4)})" '
        'shape-rendering="crispEdges">'
    )
    paths = []
    for shade in sorted(set(shades.ravel().tolist()) - {0}):
        boxes = "".join(
            f"M{start} {row}h{stop - start}v1h{start - stop}z"
            for row in range(len(shades))
            for start, stop in _runs(shades[row] == shade)
        )
        paths.append(f'<path fill-opacity="{shade / _SHADES:.3g}" d="{boxes}"/>')
    return f"{group}{''.join(paths)}</g>"


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Start and end of each run of True."""
    changes = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True))


def _cell_names(cells: ChannelCells) -> tuple[list[str], list[str], int]:
    """Names of rows, names of columns, and the power of ten of both.

    A row is named by its whole range, exactly, if that leaves space for the cells; else by rounded or scaled numbers
    that still tell rows apart; else by its first label.
    """
    middles = [(first + last) / 2 for first, last in cells.columns]
    scale = power_of_ten([*np.ravel(cells.rows).tolist(), *middles])
    ranges = len(cells.rows) <= _MAX_NAMED_ROWS and any(first < last for first, last in cells.rows)
    for ends in (2, 1) if ranges else (1,):
        for power, write in ((0, exact), (0, number), (scale, number)):
            names = [" to ".join(dict.fromkeys(write(x / 10.0**power) for x in row[:ends])) for row in cells.rows]
            outputs = [number(x / 10.0**power) for x in middles]
            fits = max_text_width(names) <= ends * MAX_TICK_WIDTH and max_text_width(outputs) <= MAX_TICK_WIDTH
            if fits and len(set(names)) == len(names):
                return names, outputs, power
    return [exact(first) for first, _ in cells.rows], [number(x) for x in middles], 0


def _cell_texts(probabilities: np.ndarray, width: float, height: float) -> dict[tuple[int, int], str]:
    """Probabilities by row and column, as precise as fits; empty if cells are too small for them."""
    if height < _MIN_HEIGHT or width < text_width("0%", bold=True):
        return {}
    for write in (percent, whole_percent):
        texts = {place: write(float(probabilities[place])) for place in np.ndindex(*probabilities.shape)}
        if max(text_width(text, bold=True) for text in texts.values()) + GAP / 2 <= width:
            return texts
    return {}


def _legend(largest: float) -> list[str]:
    """Legend of the shades: those up to a quarter of the largest probability, and those above it."""
    parts, left = [], float(LEGEND_LEFT)
    width, half = 6, _LEGEND_SHADES // 2
    texts = ("probability: 0%", percent(largest / 4), percent(largest))
    for place, text in enumerate(texts):
        parts.append(text_element(left, LEGEND_BASELINE, text, "legend", "start"))
        left += round(text_width(text)) + 6
        if place == len(texts) - 1:
            break
        boxes = "".join(
            f'<rect class="cell" fill-opacity="{(place * half + shade + 1) / _LEGEND_SHADES:.3g}" '
            f'x="{decimal(left + shade * width)}" y="7" width="{width}" height="10"/>'
            for shade in range(half)
        )
        parts.append(f'<g shape-rendering="crispEdges">{boxes}</g>')
        left += half * width + 6
    return parts
