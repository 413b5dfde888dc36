"""Charts as inline SVG: no script, no font and no colour of their own.

Elements carry classes; the page's style sheet colours them, so that one chart serves light, dark and print. The size of
a chart is bounded whatever the size of the domain: what is closer than a pixel is drawn once, and large matrices are
gathered into cells first. Text is escaped. Functions are pure: numbers in, markup out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

_WIDTH, _HEIGHT = 480, 300
_RIGHT, _TOP, _BOTTOM = 468, 30, 252
_LEGEND = 30
_CHARACTER = 7.2  # the width of one, at most, in the style sheet's 13 px
_MOST_BARS = 100
_MOST_POINTS = 400
_MOST_MARKS = 50
_LEVELS = 32
_LIGHT_TEXT = 0.9 * _LEVELS  # shades above it take text in the colour of the page
_MOST_NUMBERS = 6  # rows and columns of a heat map that has room for numbers in its cells
_MOST_NAMES = 12  # rows that are all named


def number(value: float) -> str:
    """Four significant digits, thousands set apart, a real minus sign."""
    if value == 0 or not math.isfinite(value):
        return {0.0: "0"}.get(value, "infinite")
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", "\u2212")


def exact(value: float) -> str:
    """A value as it is, up to 15 digits: what a label is called."""
    return f"{value:.15g}".replace("-", "\u2212")


def percent(share: float) -> str:
    """Three significant digits of a hundred; 100% and 0% are exact."""
    text = f"{100 * share:.3g}"
    if text == "100" and share < 1:
        text = "99.9+"
    return f"{text}%".replace("-", "\u2212")


def span(first: float, last: float) -> str:
    """The name of a range of labels."""
    return exact(first) if first == last else f"{exact(first)} to {exact(last)}"


@dataclass(frozen=True)
class Cells:
    """A channel gathered for the eye.

    chances: (r, c), of one output of the column for one label of the row, on average. rows, columns: the first and the
    last label, and output, of each.
    """

    chances: np.ndarray
    rows: list[tuple[float, float]]
    columns: list[tuple[float, float]]


@dataclass(frozen=True)
class Bin:
    """Neighbouring labels that are treated alike, their likeliest output, and its chance."""

    first: float
    last: float
    output: float
    chance: float


def gather(labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, most: int = 100) -> Cells:
    """At most `most` rows and columns. Neighbouring labels that are treated alike share a row, always; beyond that rows
    and columns hold equally many labels and outputs, but for the last.

    labels: (k,). outputs: (m,). probabilities: (k, m), rows sum to 1.
    """
    rows = _alike(probabilities)
    if len(rows) > most:
        rows = np.arange(0, len(labels), -(-len(labels) // most))
    columns = np.arange(0, len(outputs), -(-len(outputs) // most))
    sums = np.add.reduceat(np.add.reduceat(probabilities, columns, axis=1), rows, axis=0)
    sizes = np.outer(np.diff(np.append(rows, len(labels))), np.diff(np.append(columns, len(outputs))))
    return Cells(sums / sizes, _ranges(labels, rows), _ranges(outputs, columns))


def _ranges(values: np.ndarray, starts: np.ndarray) -> list[tuple[float, float]]:
    ends = np.append(starts[1:], len(values)) - 1
    return list(zip(values[starts].tolist(), values[ends].tolist(), strict=True))


def bins(labels: np.ndarray, outputs: np.ndarray, probabilities: np.ndarray, most: int = 12) -> list[Bin]:
    """Neighbouring labels that are treated exactly alike; none where they are more than `most`, or one each."""
    starts = _alike(probabilities)
    if not 1 < len(starts) <= min(most, len(labels) - 1):
        return []
    likeliest = probabilities[starts].argmax(axis=1)
    chances = probabilities[starts, likeliest]
    places = zip(_ranges(labels, starts), outputs[likeliest].tolist(), chances.tolist(), strict=True)
    return [Bin(first, last, output, chance) for (first, last), output, chance in places]


def _alike(probabilities: np.ndarray) -> np.ndarray:
    """Where each run of equal rows starts."""
    return np.concatenate(([0], np.flatnonzero((probabilities[1:] != probabilities[:-1]).any(axis=1)) + 1))


def prior_chart(
    labels: np.ndarray, weights: np.ndarray, outputs: np.ndarray, found: Sequence[Bin], name: str
) -> Markup:
    """The prior as bars, mean chance per label, with bins behind and the outputs within its range on top."""
    edges = _edges(labels)
    starts = np.arange(0, len(labels), -(-len(labels) // _MOST_BARS))
    counts = np.diff(np.append(starts, len(labels)))
    heights = np.add.reduceat(weights, starts) / counts
    plot = _Plot(edges[0], edges[-1], 0, float(heights.max()) * 1.12, percent)
    parts = []
    for place, each in enumerate(found):
        first, last = np.searchsorted(labels, [each.first, each.last])
        left, right = plot.x(edges[first]), plot.x(edges[last + 1])
        parts.append(f'<rect class="band{place % 2}" {_box(left, _TOP, right, _BOTTOM)}/>')
        text = f"\u2192 {number(each.output)}"
        if right - left > _CHARACTER * len(text):
            parts.append(_text((left + right) / 2, _TOP + 26, text, "output-text", "middle"))
    parts.append(plot.axes(name, "chance of one label"))
    bars = zip(plot.x(edges[starts]), plot.x(edges[starts + counts]), plot.y(heights), strict=True)
    gap = 0.5 if len(starts) <= _MOST_BARS // 2 else 0
    boxes = "".join(
        f"M{_short(left + gap)} {_BOTTOM}V{_short(top)}H{_short(right - gap)}V{_BOTTOM}z"
        for left, right, top in bars
        if top < _BOTTOM
    )
    parts.append(f'<path class="prior" d="{boxes}"/>')
    legend = [("prior", "labels")]
    inside = outputs[(outputs >= edges[0]) & (outputs <= edges[-1])]
    if 0 < len(inside) <= _MOST_MARKS:
        marks = "".join(f"M{place - 4} {_TOP}h8l-4 8z" for place in sorted({round(plot.x(value)) for value in inside}))
        parts.append(f'<path class="output" d="{marks}"/>')
        legend.append(("output mark", "outputs"))
    parts.append(_legend(legend))
    return _svg(
        f"Prior of {name}",
        f"Chances of {len(labels)} labels from {exact(labels[0])} to {exact(labels[-1])}; {len(inside)} of "
        f"{len(outputs)} outputs lie among them. "
        + " ".join(f"{span(b.first, b.last)} mostly become {number(b.output)}." for b in found),
        parts,
    )


def outputs_chart(labels: np.ndarray, outputs: np.ndarray, chances: np.ndarray, name: str) -> Markup:
    """The chance of every output as a stick, over the range of the labels."""
    low, high = min(labels[0], outputs[0]), max(labels[-1], outputs[-1])
    margin = 0.04 * (high - low) or 0.5
    plot = _Plot(low - margin, high + margin, 0, float(chances.max()) * 1.12, percent)
    few = len(outputs) <= _MOST_MARKS
    tallest: dict[float, float] = {}
    for place, chance in zip(np.round(plot.x(outputs), 1 if few else 0), chances, strict=True):
        tallest[float(place)] = max(tallest.get(float(place), 0.0), float(chance))
    sticks = "".join(f"M{_short(place)} {_BOTTOM}V{_short(plot.y(top))}" for place, top in tallest.items())
    dots = [
        f'<circle cx="{_short(place)}" cy="{_short(plot.y(chance))}" r="3.5"/>' for place, chance in tallest.items()
    ]
    parts = [
        f'<rect class="band0" {_box(plot.x(labels[0]), _TOP, plot.x(labels[-1]), _BOTTOM)}/>',
        plot.axes(f"released {name}", "chance of one output"),
        f'<path class="stick" d="{sticks}"/>',
        f'<g class="output">{"".join(dots) if few else ""}</g>',
        _legend([("output", "outputs"), ("band0", "range of the labels")]),
    ]
    top = int(chances.argmax())
    return _svg(
        f"Chances of the released values of {name}",
        f"{len(outputs)} possible outputs from {number(outputs[0])} to {number(outputs[-1])}; the likeliest is "
        f"{number(outputs[top])}, with {percent(chances[top])}.",
        parts,
    )


def heat_map(cells: Cells, name: str) -> Markup:
    """The channel: a row per label or range of labels, the lowest at the bottom; a column per output or range."""
    rows, columns = cells.chances.shape
    named = rows <= _MOST_NAMES
    names = [span(*row) if named else exact(row[0]) for row in cells.rows]
    left = _left(names)
    width, height = (_RIGHT - left) / columns, (_BOTTOM - _TOP) / rows
    largest = float(cells.chances.max())
    levels = np.ceil(np.sqrt(cells.chances / largest) * _LEVELS).astype(int)
    parts = [f'<rect class="cell-ground" {_box(left, _TOP, _RIGHT, _BOTTOM)}/>']
    # One path a shade, in units of a cell, equal neighbours of a row in one box.
    parts.append(
        f'<g class="cell" transform="translate({left} {_BOTTOM}) scale({_short(width, 4)} {_short(-height, 4)})" '
        'shape-rendering="crispEdges">'
    )
    for level in sorted(set(levels.ravel().tolist()) - {0}):
        boxes = "".join(
            f"M{start} {row}h{stop - start}v1h{start - stop}z"
            for row in range(rows)
            for start, stop in _runs(levels[row] == level)
        )
        parts.append(f'<path fill-opacity="{level / _LEVELS:.3g}" d="{boxes}"/>')
    parts.append("</g>")
    if rows <= _MOST_NUMBERS and columns <= _MOST_NUMBERS:
        for row, column in np.ndindex(rows, columns):
            dark = " on-dark" if levels[row, column] > _LIGHT_TEXT else ""
            place = left + (column + 0.5) * width, _BOTTOM - (row + 0.5) * height + 4
            parts.append(_text(*place, percent(cells.chances[row, column]), f"cell-text{dark}", "middle"))
    for row in _spread(rows, _MOST_NAMES if named else 7):
        parts.append(_text(left - 6, _BOTTOM - (row + 0.5) * height + 4, names[row], "tick", "end"))
    outputs = [number((first + last) / 2) for first, last in cells.columns]
    room = int((_RIGHT - left) / (_CHARACTER * (max(map(len, outputs)) + 2)))
    for column in _spread(columns, max(2, min(8, room))):
        parts.append(_text(left + (column + 0.5) * width, _BOTTOM + 17, outputs[column], "tick", "middle"))
    parts.append(_names(left, f"released {name}", f"true {name}"))
    parts += _shades(largest)
    likeliest = cells.chances.argmax(axis=1)
    words = [
        f"{span(*row)}: {percent(cells.chances[i, likeliest[i]])} to {number(sum(cells.columns[likeliest[i]]) / 2)}."
        for i, row in enumerate(cells.rows)
        if i in _spread(rows, _MOST_NAMES)
    ]
    return _svg(
        f"Channel from true to released {name}",
        f"{rows} rows of true labels and {columns} columns of outputs, darker for a larger chance, at most "
        f"{percent(largest)}. Likeliest outputs by true label: " + " ".join(words),
        parts,
    )


def lines_chart(labels: np.ndarray, lines: Sequence[tuple[str, str, np.ndarray]], name: str, unit: str) -> Markup:
    """Lines over the labels. lines: a class of the style sheet, what the line is, and (k,) its values."""
    some = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), _MOST_POINTS)).round().astype(int))
    values = np.concatenate([line for _, _, line in lines])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    margin = 0.08 * (high - low) or 1.0
    right = labels[-1] if len(labels) > 1 else labels[0] + 1
    plot = _Plot(labels[0], right, low - margin if low < 0 else 0, high + margin, number)
    parts = [plot.axes(f"true {name}", unit)]
    parts.append(f'<path class="zero" d="M{plot.left} {_short(plot.y(0.0))}H{_RIGHT}"/>')
    for kind, _, line in lines:
        points = zip(plot.x(labels[some]), plot.y(line[some]), strict=True)
        path = "L".join(f"{_short(across)} {_short(down)}" for across, down in points)
        parts.append(f'<path class="line {kind}" d="M{path}"/>')
    parts.append(_legend([(f"line {kind}", what) for kind, what, _ in lines]))
    return _svg(
        f"Error of a released {name} by its true value",
        " ".join(f"{what} from {number(line.min())} to {number(line.max())}." for _, what, line in lines),
        parts,
    )


@dataclass(frozen=True)
class _Plot:
    """A rectangle of values in the picture, as far to the right as the names of its upward ticks need."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    y_text: Callable[[float], str]

    @cached_property
    def left(self) -> int:
        """Where it starts."""
        return _left(map(self.y_text, ticks(self.y_low, self.y_high, 5)))

    def x(self, values: Any) -> Any:
        """Places of values, numbers or arrays, from left to right."""
        return self.left + (values - self.x_low) / (self.x_high - self.x_low) * (_RIGHT - self.left)

    def y(self, values: Any) -> Any:
        """Places of values upwards."""
        return _BOTTOM - (values - self.y_low) / (self.y_high - self.y_low) * (_BOTTOM - _TOP)

    def axes(self, x_name: str, y_name: str) -> str:
        """Ticks, their names and the axes' names."""
        parts = []
        for value in ticks(self.y_low, self.y_high, 5):
            parts.append(f'<path class="grid" d="M{self.left} {_short(self.y(value))}H{_RIGHT}"/>')
            parts.append(_text(self.left - 6, self.y(value) + 4, self.y_text(value), "tick", "end"))
        for value in ticks(self.x_low, self.x_high, 6):
            parts.append(f'<path class="axis" d="M{_short(self.x(value))} {_BOTTOM}v4"/>')
            parts.append(_text(self.x(value), _BOTTOM + 17, exact(value), "tick", "middle"))
        parts.append(f'<path class="axis" d="M{self.left} {_BOTTOM}H{_RIGHT}"/>')
        parts.append(_names(self.left, x_name, y_name))
        return "".join(parts)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, within [low, high], at most one more than `most`. low < high."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Through text: three steps of 0.1 are 0.3.
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def _left(names: Iterable[str]) -> int:
    return 30 + math.ceil(_CHARACTER * max((len(name) for name in names), default=0))


def _names(left: float, x_name: str, y_name: str) -> str:
    where = f'transform="translate(12 {_short((_TOP + _BOTTOM) / 2)}) rotate(-90)"'
    return (
        _text((left + _RIGHT) / 2, _HEIGHT - 12, x_name, "axis-name", "middle")
        + f'<text class="axis-name" {where} text-anchor="middle">{Markup.escape(y_name)}</text>'
    )


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    parts, place = [], float(_LEGEND)
    for kind, what in entries:
        if kind.startswith("line"):
            parts.append(f'<path class="{kind}" d="M{_short(place)} 12h22"/>')
        elif kind.endswith("mark"):
            parts.append(f'<path class="{kind}" d="M{_short(place)} 8h8l-4 8z"/>')
        else:
            parts.append(f'<rect class="{kind}" x="{_short(place)}" y="7" width="12" height="10"/>')
        place += 28 if kind.startswith("line") else 18
        parts.append(_text(place, 16, what, "legend", "start"))
        place += _CHARACTER * len(what) + 14
    return "".join(parts)


def _shades(largest: float) -> list[str]:
    """The legend of a heat map: shade goes with the square root, so that small chances are seen."""
    steps = 16
    cell, start = 6, _LEGEND + 62
    boxes = [
        f'<rect class="cell" fill-opacity="{(step + 1) / steps:.3g}" x="{start + step * cell}" y="7" width="{cell}" '
        'height="10"/>'
        for step in range(steps)
    ]
    middle = f"{percent(largest / 4)} in the middle, {percent(largest)}"
    return [
        _text(start - 6, 16, "chance 0%", "legend", "end"),
        '<g shape-rendering="crispEdges">',
        *boxes,
        "</g>",
        _text(start + steps * cell + 6, 16, middle, "legend", "start"),
    ]


def _edges(labels: np.ndarray) -> np.ndarray:
    """(k + 1,) ends of the labels' bars, halfway to the next label."""
    if len(labels) == 1:
        return np.array([labels[0] - 0.5, labels[0] + 0.5])
    middles = (labels[1:] + labels[:-1]) / 2
    return np.concatenate(([labels[0] - (middles[0] - labels[0])], middles, [labels[-1] + labels[-1] - middles[-1]]))


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    changes = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True))


def _spread(count: int, most: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _short(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def _box(left: float, top: float, right: float, bottom: float) -> str:
    return f'x="{_short(left)}" y="{_short(top)}" width="{_short(right - left)}" height="{_short(bottom - top)}"'


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}">{Markup.escape(text)}</text>'


def _svg(title: str, description: str, parts: Sequence[str]) -> Markup:
    alternative = Markup.escape(f"{title}. {description}".strip())
    return Markup(
        f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-label="{alternative}">' + "".join(parts) + "</svg>"
    )
