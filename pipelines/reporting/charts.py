"""Charts as inline SVG: no script, no font and no colour of their own.

Elements carry classes; the page's style sheet colours them, so that one chart serves light, dark and print. The size of
a chart is bounded whatever the size of the domain: what is closer than a pixel is drawn once, and large matrices are
gathered into cells first. Texts keep clear of each other: what does not fit is written shorter, in thousands or
millions, or left out. Text is escaped. Functions are pure: numbers in, markup out.
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


_RIGHT, _TOP, _BOTTOM = 460, 30, 252


_LEGEND = 30


_FONT = 13  # the style sheet's, in pixels


# The widths of characters in DejaVu Sans, the widest of the usual fonts, in sizes of the font. Bold is wider.
_WIDTHS = dict.fromkeys(" ',.Iijl", 0.32) | dict.fromkeys("!()*-/:;[]frt|", 0.42) | dict.fromkeys("mw", 1.0)


_BOLD = 1.1


_GAP = 10  # between texts side by side


_WIDEST = 75  # names of ticks; wider ones leave too little room for the plot


_AXIS_NAME = 16  # the right edge of the upward one


_OVERHANG = 10  # how far text may stick out to the right, into the page's margin


_MOST_BARS = 100


_MOST_POINTS = 400


_MOST_MARKS = 50


_LEVELS = 32


_LIGHT_TEXT = 0.9 * _LEVELS  # shades above it take text in the colour of the page


_LEAST_HEIGHT = 17  # of a cell with a number in it


_MOST_NAMES = 12  # rows that are all named


def number(value: float) -> str:
    """Four significant digits, thousands set apart, a real minus sign."""
    if value == 0 or not math.isfinite(value):
        return {0.0: "0"}.get(value, "infinite")
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    return text.replace("-", "\u2212")


def exact(value: float) -> str:
    """A value as it is, up to 15 digits, thousands set apart: what a label is called."""
    return f"{value:,.15g}".replace("-", "\u2212")


def percent(share: float) -> str:
    """Three significant digits of a hundred; 100% and 0% are exact."""
    text = f"{100 * share:.3g}"
    if text == "100" and share < 1:
        text = "99.9+"
    return f"{text}%".replace("-", "\u2212")


def whole_percent(share: float) -> str:
    """At most two digits of a hundred; 100% and 0% are exact."""
    text = f"{100 * share:.0f}%"
    if text == "0%" and share > 0:
        return "<1%"
    return ">99%" if text == "100%" and share < 1 else text


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
    # Outputs of bins are written above the highest bar.
    plot = _Plot(edges[0], edges[-1], 0, float(heights.max()) * (1.2 if found else 1.12), percent)
    parts, over = [], []
    for place, each in enumerate(found):
        first, last = np.searchsorted(labels, [each.first, each.last])
        left, right = plot.x(edges[first]), plot.x(edges[last + 1])
        band = f'<rect class="band{place % 2}" '
        parts.append(f"{band}{_box(left, _TOP, right, _BOTTOM)}/>")
        text = f"\u2192 {number(each.output / 10.0**plot.across.power)}"
        middle, half = (left + right) / 2, text_width(text, bold=True) / 2
        if right - left >= 2 * half + _GAP:
            # The band once more, to cover the grid.
            over.append(f"{band}{_box(middle - half, _TOP + 14, middle + half, _TOP + 30)}/>")
            over.append(_text(middle, _TOP + 26, text, "output-text", "middle"))
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
    parts += [*over, _legend(legend)]
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
    names, outputs, power = _cell_names(cells)
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
    centres, middles = left + (np.arange(columns) + 0.5) * width, _BOTTOM - (np.arange(rows) + 0.5) * height
    for (row, column), text in _cell_texts(cells.chances, width, height).items():
        dark = " on-dark" if levels[row, column] > _LIGHT_TEXT else ""
        parts.append(_text(centres[column], middles[row] + 4, text, f"cell-text{dark}", "middle"))
    for row in _spread(rows, _MOST_NAMES if rows <= _MOST_NAMES else 7):
        parts.append(_text(left - 6, middles[row] + 4, names[row], "tick", "end"))
    lines = (_line(centres[::step], outputs[::step]) for step in range(1, columns + 1))
    parts += next(filter(None, lines))
    parts.append(_names(left, (f"released {name}", power), (f"true {name}", power)))
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


def _cell_names(cells: Cells) -> tuple[list[str], list[str], int]:
    """Names of rows, names of columns, and the power of ten that they are in. A row is named by all its range, exactly,
    where that leaves room for the cells, else by rounded or scaled numbers that still tell rows apart, else by its
    first label.
    """
    middles = [(first + last) / 2 for first, last in cells.columns]
    scale = _power([*np.ravel(cells.rows).tolist(), *middles])
    ranges = len(cells.rows) <= _MOST_NAMES and any(first < last for first, last in cells.rows)
    for ends in (2, 1) if ranges else (1,):
        for power, write in ((0, exact), (0, number), (scale, number)):
            names = [" to ".join(dict.fromkeys(write(x / 10.0**power) for x in row[:ends])) for row in cells.rows]
            outputs = [number(x / 10.0**power) for x in middles]
            fits = _widest(names) <= ends * _WIDEST and _widest(outputs) <= _WIDEST
            if fits and len(set(names)) == len(names):
                return names, outputs, power
    return [exact(first) for first, _ in cells.rows], [number(x) for x in middles], 0


def _cell_texts(chances: np.ndarray, width: float, height: float) -> dict[tuple[int, int], str]:
    """The chances by row and column, in three digits or in less; none where cells are too small for all of them."""
    if height < _LEAST_HEIGHT or width < text_width("0%", bold=True):
        return {}
    for write in (percent, whole_percent):
        texts = {place: write(float(chances[place])) for place in np.ndindex(*chances.shape)}
        if max(text_width(text, bold=True) for text in texts.values()) + _GAP / 2 <= width:
            return texts
    return {}


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
class _Ticks:
    """Values on an axis, and their names in units of a power of ten."""

    values: list[float]
    names: list[str]
    power: int

    @classmethod
    def of(cls, values: list[float], write: Callable[[float], str]) -> _Ticks:
        """In thousands, millions, ... where names are too wide otherwise."""
        names, power = list(map(write, values)), _power(values)
        scaled = [x / 10.0**power for x in values]
        # 1.7000001 billions are no easier to read.
        if _widest(names) > _WIDEST and all(exact(x) == number(x) for x in scaled):
            return cls(values, list(map(write, scaled)), power)
        return cls(values, names, 0)


@dataclass(frozen=True)
class _Plot:
    """A rectangle of values in the picture, as far to the right as the names of its upward ticks need."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    y_text: Callable[[float], str]

    @cached_property
    def upward(self) -> _Ticks:
        """Ticks of the upward axis."""
        return _Ticks.of(ticks(self.y_low, self.y_high, 5), self.y_text)

    @cached_property
    def across(self) -> _Ticks:
        """Ticks of the other axis: as many as have room for their names."""
        for most in range(6, 0, -1):
            found = _Ticks.of(ticks(self.x_low, self.x_high, most), exact)
            if _line(self.x(np.array(found.values)), found.names):
                return found
        return _Ticks([], [], 0)

    @cached_property
    def left(self) -> int:
        """Where it starts."""
        return _left(self.upward.names)

    def x(self, values: Any) -> Any:
        """Places of values, numbers or arrays, from left to right."""
        return self.left + (values - self.x_low) / (self.x_high - self.x_low) * (_RIGHT - self.left)

    def y(self, values: Any) -> Any:
        """Places of values upwards."""
        return _BOTTOM - (values - self.y_low) / (self.y_high - self.y_low) * (_BOTTOM - _TOP)

    def axes(self, x_name: str, y_name: str) -> str:
        """Ticks, their names and the axes' names."""
        parts = []
        for value, text in zip(self.upward.values, self.upward.names, strict=True):
            parts.append(f'<path class="grid" d="M{self.left} {_short(self.y(value))}H{_RIGHT}"/>')
            parts.append(_text(self.left - 6, self.y(value) + 4, text, "tick", "end"))
        places = self.x(np.array(self.across.values))
        parts += [f'<path class="axis" d="M{_short(place)} {_BOTTOM}v4"/>' for place in places]
        parts += _line(places, self.across.names)
        parts.append(f'<path class="axis" d="M{self.left} {_BOTTOM}H{_RIGHT}"/>')
        parts.append(_names(self.left, (x_name, self.across.power), (y_name, self.upward.power)))
        return "".join(parts)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, within [low, high], at most one more than `most`. low < high."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Through text: three steps of 0.1 are 0.3.
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def _power(values: Iterable[float]) -> int:
    """The power of ten to write values in: thousands, millions, ..., as of the largest."""
    largest = max(map(abs, values), default=0.0)
    return 3 * math.floor(math.log10(largest) / 3) if largest >= 1e3 else 0


def text_width(text: str, bold: bool = False) -> float:
    """How wide a text is, at most, in the usual fonts."""
    sizes = (_WIDTHS.get(each, 0.64 if each.isdecimal() or each.islower() else 1.0) for each in text)
    return _FONT * (_BOLD if bold else 1) * sum(sizes)


def _widest(texts: Iterable[str]) -> float:
    return max(map(text_width, texts), default=0.0)


def _line(places: np.ndarray, texts: Sequence[str]) -> list[str]:
    """The names of places, on a line below the plot, within the picture; nothing if they would touch."""
    halves = np.array([text_width(text) / 2 for text in texts])
    centres = np.clip(places, _AXIS_NAME + halves, _WIDTH + _OVERHANG - halves)
    if (np.diff(centres) < halves[1:] + halves[:-1] + _GAP).any():
        return []
    return [_text(place, _BOTTOM + 17, text, "tick", "middle") for place, text in zip(centres, texts, strict=True)]


def _left(names: Iterable[str]) -> int:
    """Where a plot starts, right of the axis' name and the names of ticks."""
    return _AXIS_NAME + _GAP + 6 + math.ceil(_widest(names))


def _names(left: float, x: tuple[str, int], y: tuple[str, int]) -> str:
    """The axes' names. x, y: each with the power of ten that its ticks are in."""
    middle = (left + _RIGHT) / 2
    where = f'transform="translate(12 {_short((_TOP + _BOTTOM) / 2)}) rotate(-90)"'
    return (
        _text(middle, _HEIGHT - 12, _axis_name(*x, 2 * (_WIDTH - middle)), "axis-name", "middle")
        + f'<text class="axis-name" {where} text-anchor="middle">'
        + f"{Markup.escape(_axis_name(*y, _TOP + _BOTTOM))}</text>"
    )


def _axis_name(name: str, power: int, room: float) -> str:
    """The name, clipped to the room that there is, and the unit."""
    unit = {0: "", 3: " (thousands)", 6: " (millions)", 9: " (billions)", 12: " (trillions)"}
    end = unit.get(power, f" ({exact(10.0**power)})")
    while text_width(name + end) > room and len(name) > 1:
        name = name[:-2] + "\u2026"
    return name + end


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
        place += text_width(what) + 14
    return "".join(parts)


def _shades(largest: float) -> list[str]:
    """The legend of a heat map: shade goes with the square root, so that small chances are seen."""
    steps = 16
    cell, start = 6, round(_LEGEND + text_width("chance 0%")) + 6
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
