"""Charts of a mechanism as inline SVG: the prior, the outputs, the channel and the error by label.

A channel is the matrix of the probabilities of the outputs given the labels. The size of a chart is bounded for every
label domain: bars, rows and columns are grouped, and points closer than a pixel are drawn once.

Labels, shape (k,), and outputs, shape (m,), ascend. A channel is an array of shape (k, m), whose rows sum to 1. The
parameter `name` is the name of the label column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..pipelines.cli.text_format import exact, label_range, number, percent, whole_percent
from .svg_plot import (
    GAP,
    MAX_TICK_WIDTH,
    Axis,
    Frame,
    Plot,
    decimal,
    left_edge,
    max_text_width,
    points_path,
    power_of_ten,
    rectangle,
    text_element,
    text_width,
)

_FRAME = Frame()
_TOP, _BOTTOM, _RIGHT = _FRAME.top, _FRAME.bottom, _FRAME.right

_MAX_BARS = 100
_MAX_POINTS = 400
_MAX_MARKS = 50

_LEGEND_LEFT, _LEGEND_BASELINE = 30, 16

_SHADES = 32
_LIGHT_TEXT = 0.9 * _SHADES  # darker shades have text in the color of the page
_LEGEND_SHADES = 16

_MIN_HEIGHT = 17  # of a cell with a number in it
_MAX_NAMED_ROWS = 12  # up to this number, all rows are named
_NAMED_ROWS = 7  # number of named rows if there are more


@dataclass(frozen=True)
class ChannelCells:
    """A channel reduced to at most a given number of rows and columns.

    Attributes:
      probabilities: Mean probability of one output of the column, given a label of the row, shape (r, c).
      rows: First and last label of each row.
      columns: First and last output of each column.
    """

    probabilities: np.ndarray
    rows: list[tuple[float, float]]
    columns: list[tuple[float, float]]


@dataclass(frozen=True)
class Bin:
    """Neighboring labels, from `first` to `last`, whose rows of the channel are equal.

    `output` is the most likely output, `probability` its probability given any label of the bin.
    """

    first: float
    last: float
    output: float
    probability: float


def channel_cells(
    labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, max_cells: int = 100
) -> ChannelCells:
    """Reduces a channel to cells that can be drawn, at most `max_cells` rows and columns.

    Neighboring labels with equal rows share a row of cells. If there are more than `max_cells` such rows, rows hold
    equally many labels instead, except for the last. Columns hold equally many outputs, except for the last.
    """
    rows = _run_starts(probabilities)
    if len(rows) > max_cells:
        rows = group_starts(len(labels), max_cells)
    columns = group_starts(len(outputs), max_cells)
    sums = np.add.reduceat(np.add.reduceat(probabilities, columns, axis=1), rows, axis=0)
    sizes = np.outer(np.diff(np.append(rows, len(labels))), np.diff(np.append(columns, len(outputs))))
    return ChannelCells(sums / sizes, _ranges(labels, rows), _ranges(outputs, columns))


def label_bins(labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, max_bins: int = 12) -> list[Bin]:
    """Finds the bins of a mechanism such as randomized response on bins, in ascending order.

    There are none if all labels have one bin, each label has its own, or there are more than `max_bins`, which are not
    worth showing.
    """
    starts = _run_starts(probabilities)
    if not 1 < len(starts) <= min(max_bins, len(labels) - 1):
        return []
    likeliest = probabilities[starts].argmax(axis=1)
    highest = probabilities[starts, likeliest]
    rows = zip(_ranges(labels, starts), outputs[likeliest].tolist(), highest.tolist(), strict=True)
    return [Bin(first, last, output, probability) for (first, last), output, probability in rows]


def group_starts(count: int, max_groups: int) -> np.ndarray:
    """Divides `count` consecutive items, >= 1, into groups of equal size, except for the last.

    The result has the index of the first item of each group, int64.
    """
    return np.arange(0, count, -(-count // max_groups))


def evenly_spaced(count: int, max_items: int) -> np.ndarray:
    """Chooses items at even distances, the first and the last among them: their indices, ascending, int64.

    There is at least one item, and `max_items` is at least 2.
    """
    return np.unique(np.linspace(0, count - 1, min(count, max_items)).round().astype(int))


def bar_edges(labels: np.ndarray) -> np.ndarray:
    """Edges of the ascending labels' bars, halfway between neighboring labels; shape (k + 1,)."""
    if len(labels) == 1:
        return np.array([labels[0] - 0.5, labels[0] + 0.5])
    middles = (labels[1:] + labels[:-1]) / 2
    return np.concatenate(([labels[0] - (middles[0] - labels[0])], middles, [labels[-1] + labels[-1] - middles[-1]]))


def _run_starts(probabilities: np.ndarray) -> np.ndarray:
    """Index of the first row of each run of equal rows."""
    return np.concatenate(([0], np.flatnonzero((probabilities[1:] != probabilities[:-1]).any(axis=1)) + 1))


def _ranges(values: np.ndarray, starts: np.ndarray) -> list[tuple[float, float]]:
    ends = np.append(starts[1:], len(values)) - 1
    return list(zip(values[starts].tolist(), values[ends].tolist(), strict=True))


def prior_chart(labels: np.ndarray, weights: np.ndarray, outputs: np.ndarray, bins: Sequence[Bin], name: str) -> str:
    """Draws the prior as bars, over bands for the bins, with marks for the outputs in its range.

    Weights are probabilities, shape (k,); bars of grouped labels show their mean.
    """
    edges = bar_edges(labels)
    starts = group_starts(len(labels), _MAX_BARS)
    counts = np.diff(np.append(starts, len(labels)))
    heights = np.add.reduceat(weights, starts) / counts
    # Outputs of bins are written above the highest bar.
    plot = Plot(Axis(edges[0], edges[-1]), Axis(0, float(heights.max()) * (1.2 if bins else 1.12), percent))
    bands, bin_outputs = _bands(plot, labels, edges, bins)
    bars = zip(plot.x(edges[starts]), plot.x(edges[starts + counts]), plot.y(heights), strict=True)
    gap = 0.5 if len(starts) <= _MAX_BARS // 2 else 0
    boxes = "".join(
        f"M{decimal(left + gap)} {_BOTTOM}V{decimal(top)}H{decimal(right - gap)}V{_BOTTOM}z"
        for left, right, top in bars
        if top < _BOTTOM
    )
    parts = [*bands, plot.axes(name, "probability of one label"), f'<path class="prior" d="{boxes}"/>']
    entries = [("prior", "probability of a true label")]
    inside = outputs[(outputs >= edges[0]) & (outputs <= edges[-1])]
    if 0 < len(inside) <= _MAX_MARKS:
        marks = "".join(f"M{place - 4} {_TOP}h8l-4 8z" for place in sorted({round(plot.x(value)) for value in inside}))
        parts.append(f'<path class="output" d="{marks}"/>')
        entries.append(("output mark", "a value that can be released"))
    parts += [*bin_outputs, legend(entries)]
    return _FRAME.picture(
        f"Prior of {name}",
        f"Probabilities of {len(labels)} labels from {exact(labels[0])} to {exact(labels[-1])}; {len(inside)} of "
        f"{len(outputs)} outputs are in this range. "
        + " ".join(f"Most likely output of {label_range(b.first, b.last)}: {number(b.output)}." for b in bins),
        parts,
    )


def _bands(plot: Plot, labels: np.ndarray, edges: np.ndarray, bins: Sequence[Bin]) -> tuple[list[str], list[str]]:
    """Bands of the bins, and the names of their outputs where these fit."""
    bands, names = [], []
    for place, each in enumerate(bins):
        first, last = np.searchsorted(labels, [each.first, each.last])
        left, right, kind = plot.x(edges[first]), plot.x(edges[last + 1]), f"band{place % 2}"
        bands.append(rectangle(kind, left, _TOP, right, _BOTTOM))
        text = f"\u2192 {number(each.output / 10.0**plot.x_ticks.power)}"
        middle, half = (left + right) / 2, text_width(text, bold=True) / 2
        if right - left >= 2 * half + GAP:
            # The band once more, to cover the grid.
            names.append(rectangle(kind, middle - half, _TOP + 14, middle + half, _TOP + 30))
            names.append(text_element(middle, _TOP + 26, text, "output-text", "middle"))
    return bands, names


def outputs_chart(labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, name: str) -> str:
    """Draws the distribution of the released values from their probabilities, shape (m,).

    The range of the labels is shown as a band.
    """
    low, high = min(labels[0], outputs[0]), max(labels[-1], outputs[-1])
    margin = 0.04 * (high - low) or 0.5
    plot = Plot(Axis(low - margin, high + margin), Axis(0, float(probabilities.max()) * 1.12, percent))
    few = len(outputs) <= _MAX_MARKS
    highest: dict[float, float] = {}
    for place, probability in zip(np.round(plot.x(outputs), 1 if few else 0), probabilities, strict=True):
        highest[float(place)] = max(highest.get(float(place), 0.0), float(probability))
    sticks = "".join(f"M{decimal(place)} {_BOTTOM}V{decimal(plot.y(top))}" for place, top in highest.items())
    dots = [f'<circle cx="{decimal(place)}" cy="{decimal(plot.y(top))}" r="3.5"/>' for place, top in highest.items()]
    parts = [
        rectangle("band0", plot.x(labels[0]), _TOP, plot.x(labels[-1]), _BOTTOM),
        plot.axes(f"released {name}", "probability of one output"),
        f'<path class="stick" d="{sticks}"/>',
        f'<g class="output">{"".join(dots) if few else ""}</g>',
        legend([("output", "probability of a released value"), ("band0", "range of the true labels")]),
    ]
    top = int(probabilities.argmax())
    return _FRAME.picture(
        f"Distribution of the released values of {name}",
        f"{len(outputs)} possible outputs from {number(outputs[0])} to {number(outputs[-1])}; the most likely one is "
        f"{number(outputs[top])}, with probability {percent(probabilities[top])}.",
        parts,
    )


def errors_chart(labels: np.ndarray, lines: Sequence[tuple[str, str, np.ndarray]], name: str, unit: str) -> str:
    """Draws measures of error against the true label.

    Each line has a class in the style sheet, a name, and values at the labels, shape (k,). `unit` is the name of the
    vertical axis.
    """
    shown = evenly_spaced(len(labels), _MAX_POINTS)
    values = np.concatenate([line for _, _, line in lines])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    margin = 0.08 * (high - low) or 1.0
    right = labels[-1] if len(labels) > 1 else labels[0] + 1
    plot = Plot(Axis(labels[0], right), Axis(low - margin if low < 0 else 0, high + margin, number))
    parts = [plot.axes(f"true {name}", unit)]
    parts.append(f'<path class="zero" d="M{plot.left} {decimal(plot.y(0.0))}H{_RIGHT}"/>')
    for kind, _, line in lines:
        points = zip(plot.x(labels[shown]), plot.y(line[shown]), strict=True)
        parts.append(f'<path class="line {kind}" d="{points_path(points)}"/>')
    parts.append(legend([(f"line {kind}", measure) for kind, measure, _ in lines]))
    return _FRAME.picture(
        f"Error of a released {name} by its true value",
        " ".join(f"{measure} from {number(line.min())} to {number(line.max())}." for _, measure, line in lines),
        parts,
    )


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Draws a legend above the plot, from class and text of each entry: a line, a triangle (mark) or a square."""
    parts, left = [], float(_LEGEND_LEFT)
    for kind, text in entries:
        if kind.startswith("line"):
            parts.append(f'<path class="{kind}" d="M{decimal(left)} 12h22"/>')
        elif kind.endswith("mark"):
            parts.append(f'<path class="{kind}" d="M{decimal(left)} 8h8l-4 8z"/>')
        else:
            parts.append(rectangle(kind, left, 7, left + 12, 17))
        left += 28 if kind.startswith("line") else 18
        parts.append(text_element(left, _LEGEND_BASELINE, text, "legend", "start"))
        left += text_width(text) + 14
    return "".join(parts)


def channel_chart(cells: ChannelCells, name: str) -> str:
    """Draws the channel as a heat map, the lowest labels at the bottom, the lowest outputs to the left.

    Shades grow with the square root of the probability, so that small probabilities can be seen.
    """
    rows, columns = cells.probabilities.shape
    names, outputs, power = _cell_names(cells)
    parts = heat_map(cells.probabilities, names, outputs, (f"released {name}", power), (f"true {name}", power))
    largest = float(cells.probabilities.max())
    likeliest = cells.probabilities.argmax(axis=1)
    described = " ".join(
        f"{label_range(*cells.rows[row])}: {number(sum(cells.columns[likeliest[row]]) / 2)}, with probability "
        f"{percent(float(cells.probabilities[row, likeliest[row]]))}."
        for row in map(int, evenly_spaced(rows, _MAX_NAMED_ROWS))
    )
    return _FRAME.picture(
        f"Channel from true to released {name}",
        f"{rows} rows of true labels and {columns} columns of outputs, darker for a larger probability, at most "
        f"{percent(largest)}. Most likely outputs by true label: {described}",
        parts,
    )


def heat_map(
    probabilities: np.ndarray,
    row_names: Sequence[str],
    column_names: Sequence[str],
    x_axis: tuple[str, int],
    y_axis: tuple[str, int],
) -> list[str]:
    """Draws a matrix of probabilities as shaded cells, the first row at the bottom: parts of a picture.

    Each axis is given by its name and the power of ten of the numbers along it.
    """
    rows, columns = probabilities.shape
    left = left_edge(row_names)
    width, height = (_RIGHT - left) / columns, (_BOTTOM - _TOP) / rows
    largest = float(probabilities.max())
    shades = np.ceil(np.sqrt(probabilities / largest) * _SHADES).astype(int)
    parts = [rectangle("cell-ground", left, _TOP, _RIGHT, _BOTTOM), _cells(shades, left, width, height)]
    centers, middles = left + (np.arange(columns) + 0.5) * width, _BOTTOM - (np.arange(rows) + 0.5) * height
    for (row, column), text in _cell_texts(probabilities, width, height).items():
        dark = " on-dark" if shades[row, column] > _LIGHT_TEXT else ""
        parts.append(text_element(centers[column], middles[row] + 4, text, f"cell-text{dark}", "middle"))
    for row in map(int, evenly_spaced(rows, _MAX_NAMED_ROWS if rows <= _MAX_NAMED_ROWS else _NAMED_ROWS)):
        parts.append(text_element(left - 6, middles[row] + 4, row_names[row], "tick", "end"))
    name_lines = (_FRAME.x_tick_names(centers[::step], column_names[::step]) for step in range(1, columns + 1))
    parts += next(filter(None, name_lines))
    return [*parts, _FRAME.axis_names(left, x_axis, y_axis), *_shades_legend(largest)]


def _cells(shades: np.ndarray, left: float, width: float, height: float) -> str:
    """One path for each shade, in units of a cell; equal neighbors of a row share a box."""
    group = (
        f'<g class="cell" transform="translate({left} {_BOTTOM}) scale({decimal(width, 4)} {decimal(-height, 4)})" '
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


def _shades_legend(largest: float) -> list[str]:
    """Legend of the shades: those up to a quarter of the largest probability, and those above it."""
    parts, left = [], float(_LEGEND_LEFT)
    width, half = 6, _LEGEND_SHADES // 2
    texts = ("probability: 0%", percent(largest / 4), percent(largest))
    for place, text in enumerate(texts):
        parts.append(text_element(left, _LEGEND_BASELINE, text, "legend", "start"))
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
