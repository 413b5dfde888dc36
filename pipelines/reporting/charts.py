"""Charts of the prior, the outputs and the error by label, as inline SVG.

The size of a chart is bounded for every label domain: bars are grouped, and points closer than a pixel are drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from .chart_data import Bin, bar_edges, evenly_spaced, group_starts
from .number_format import exact, label_range, number, percent
from .plot_axes import BOTTOM, GAP, RIGHT, TOP, Plot
from .svg_elements import decimal, legend, picture, rectangle, text_element, text_width

_MAX_BARS = 100
_MAX_POINTS = 400
_MAX_MARKS = 50


def prior_chart(labels: np.ndarray, weights: np.ndarray, outputs: np.ndarray, bins: Sequence[Bin], name: str) -> Markup:
    """Draws the prior as bars, over bands for the bins, with marks for the outputs in its range.

    Args:
      labels: Ascending, shape (k,).
      weights: Probabilities of the labels, shape (k,). Bars of grouped labels show their mean.
      outputs: Ascending, shape (m,).
      bins: Bins of the mechanism; empty for none.
      name: Name of the label column.

    Returns:
      The picture.
    """
    edges = bar_edges(labels)
    starts = group_starts(len(labels), _MAX_BARS)
    counts = np.diff(np.append(starts, len(labels)))
    heights = np.add.reduceat(weights, starts) / counts
    # Outputs of bins are written above the highest bar.
    plot = Plot(edges[0], edges[-1], 0, float(heights.max()) * (1.2 if bins else 1.12), percent)
    bands, bin_outputs = _bands(plot, labels, edges, bins)
    bars = zip(plot.x(edges[starts]), plot.x(edges[starts + counts]), plot.y(heights), strict=True)
    gap = 0.5 if len(starts) <= _MAX_BARS // 2 else 0
    boxes = "".join(
        f"M{decimal(left + gap)} {BOTTOM}V{decimal(top)}H{decimal(right - gap)}V{BOTTOM}z"
        for left, right, top in bars
        if top < BOTTOM
    )
    parts = [*bands, plot.axes(name, "probability of one label"), f'<path class="prior" d="{boxes}"/>']
    entries = [("prior", "probability of a true label")]
    inside = outputs[(outputs >= edges[0]) & (outputs <= edges[-1])]
    if 0 < len(inside) <= _MAX_MARKS:
        marks = "".join(f"M{place - 4} {TOP}h8l-4 8z" for place in sorted({round(plot.x(value)) for value in inside}))
        parts.append(f'<path class="output" d="{marks}"/>')
        entries.append(("output mark", "a value that can be released"))
    parts += [*bin_outputs, legend(entries)]
    return picture(
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
        bands.append(rectangle(kind, left, TOP, right, BOTTOM))
        text = f"\u2192 {number(each.output / 10.0**plot.x_ticks.power)}"
        middle, half = (left + right) / 2, text_width(text, bold=True) / 2
        if right - left >= 2 * half + GAP:
            # The band once more, to cover the grid.
            names.append(rectangle(kind, middle - half, TOP + 14, middle + half, TOP + 30))
            names.append(text_element(middle, TOP + 26, text, "output-text", "middle"))
    return bands, names


def outputs_chart(labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, name: str) -> Markup:
    """Draws the distribution of the released values.

    Args:
      labels: Ascending, shape (k,); their range is shown as a band.
      outputs: Ascending, shape (m,).
      probabilities: Of the outputs, shape (m,).
      name: Name of the label column.

    Returns:
      The picture.
    """
    low, high = min(labels[0], outputs[0]), max(labels[-1], outputs[-1])
    margin = 0.04 * (high - low) or 0.5
    plot = Plot(low - margin, high + margin, 0, float(probabilities.max()) * 1.12, percent)
    few = len(outputs) <= _MAX_MARKS
    highest: dict[float, float] = {}
    for place, probability in zip(np.round(plot.x(outputs), 1 if few else 0), probabilities, strict=True):
        highest[float(place)] = max(highest.get(float(place), 0.0), float(probability))
    sticks = "".join(f"M{decimal(place)} {BOTTOM}V{decimal(plot.y(top))}" for place, top in highest.items())
    dots = [f'<circle cx="{decimal(place)}" cy="{decimal(plot.y(top))}" r="3.5"/>' for place, top in highest.items()]
    parts = [
        rectangle("band0", plot.x(labels[0]), TOP, plot.x(labels[-1]), BOTTOM),
        plot.axes(f"released {name}", "probability of one output"),
        f'<path class="stick" d="{sticks}"/>',
        f'<g class="output">{"".join(dots) if few else ""}</g>',
        legend([("output", "probability of a released value"), ("band0", "range of the true labels")]),
    ]
    top = int(probabilities.argmax())
    return picture(
        f"Distribution of the released values of {name}",
        f"{len(outputs)} possible outputs from {number(outputs[0])} to {number(outputs[-1])}; the most likely one is "
        f"{number(outputs[top])}, with probability {percent(probabilities[top])}.",
        parts,
    )


def errors_chart(labels: np.ndarray, lines: Sequence[tuple[str, str, np.ndarray]], name: str, unit: str) -> Markup:
    """Draws measures of error against the true label.

    Args:
      labels: Ascending, shape (k,).
      lines: Class in the style sheet, name, and values at the labels, shape (k,), of each measure.
      name: Name of the label column.
      unit: Name of the vertical axis.

    Returns:
      The picture.
    """
    shown = evenly_spaced(len(labels), _MAX_POINTS)
    values = np.concatenate([line for _, _, line in lines])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    margin = 0.08 * (high - low) or 1.0
    right = labels[-1] if len(labels) > 1 else labels[0] + 1
    plot = Plot(labels[0], right, low - margin if low < 0 else 0, high + margin, number)
    parts = [plot.axes(f"true {name}", unit)]
    parts.append(f'<path class="zero" d="M{plot.left} {decimal(plot.y(0.0))}H{RIGHT}"/>')
    for kind, _, line in lines:
        points = zip(plot.x(labels[shown]), plot.y(line[shown]), strict=True)
        path = "L".join(f"{decimal(x)} {decimal(y)}" for x, y in points)
        parts.append(f'<path class="line {kind}" d="M{path}"/>')
    parts.append(legend([(f"line {kind}", measure) for kind, measure, _ in lines]))
    return picture(
        f"Error of a released {name} by its true value",
        " ".join(f"{measure} from {number(line.min())} to {number(line.max())}." for _, measure, line in lines),
        parts,
    )
