"""Charts are well-formed and small, show the given numbers, and have no overlapping texts."""

import itertools
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import solve
from labeldp.report import mechanism_charts as charts
from labeldp.report.mechanism_charts import Bin, ChannelCells, channel_cells, channel_chart, label_bins
from labeldp.report.svg_plot import text_width

LABELS = np.array([0.0, 1.0, 2.0, 5.0])
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
HOSTILE = "<script>alert('&')</script>\"]]>"


def parsed(chart: str) -> ElementTree.Element:
    return ElementTree.fromstring(chart)


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in parsed(chart).iter("text")]


def boxes(chart: str, kind: str) -> list[list[float]]:
    """Coordinates of each closed subpath of the paths of a class."""
    paths = [path.get("d") or "" for path in parsed(chart).iter("path") if path.get("class") == kind]
    return [[float(x) for x in re.findall(r"-?[\d.]+", part)] for path in paths for part in path.split("z") if part]


def every_chart(
    name: str, labels: np.ndarray = LABELS, weights: np.ndarray = WEIGHTS, how: tuple[str, float] = ("rr_on_bins", 1.0)
) -> dict[str, str]:
    randomizer = solve(how[0], Prior(labels, weights), how[1])
    probabilities, bias = randomizer.probabilities(), randomizer.bias()
    bins = label_bins(labels, randomizer.outputs, probabilities)
    return {
        "prior": charts.prior_chart(labels, weights, randomizer.outputs, bins, name),
        "outputs": charts.outputs_chart(labels, randomizer.outputs, weights @ probabilities, name),
        "channel": channel_chart(channel_cells(labels, randomizer.outputs, probabilities), name),
        "errors": charts.errors_chart(labels, [("bias", name, bias)], name, name),
    }


class Box(NamedTuple):
    """Upper bound on the area of a text, in the units of the chart."""

    left: float
    top: float
    right: float
    bottom: float
    kind: str
    text: str


def text_boxes(chart: str) -> list[Box]:
    return [text_box(element) for element in parsed(chart).iter("text")]


def text_box(element: ElementTree.Element) -> Box:
    kind, text = element.get("class") or "", element.text or ""
    width = text_width(text, bold=kind.startswith(("cell-text", "output-text")))
    turned = re.fullmatch(r"translate\(([\d.]+) ([\d.]+)\) rotate\(-90\)", element.get("transform") or "")
    if turned:
        across, middle = float(turned[1]), float(turned[2])
        return Box(across - 10, middle - width / 2, across + 3, middle + width / 2, kind, text)
    x, y = float(element.get("x") or 0), float(element.get("y") or 0)
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor") or ""]
    return Box(left, y - 10, left + width, y + 3, kind, text)


def assert_apart(chart: str) -> None:
    """Checks that no two texts overlap and that all are within the chart, with a small margin at the right."""
    drawn = text_boxes(chart)
    for box in drawn:
        assert -0.1 <= box.left < box.right <= 490.1, box
        assert -0.1 <= box.top < box.bottom <= 300.1, box
    for one, other in itertools.combinations(drawn, 2):
        beside = one.right <= other.left + 0.2 or other.right <= one.left + 0.2
        assert beside or one.bottom <= other.top + 0.2 or other.bottom <= one.top + 0.2, (one, other)


PRIORS = {
    "few": np.arange(6.0),
    "weeks": np.arange(53.0),
    "prices": np.array([22755, 59269, 84012, 103885, 165454, 258306, 263687, 312964, 363816, 401127, 464781, 500001.0]),
    "large": np.sort(np.random.default_rng(1).choice(300_000_000, 40, replace=False)).astype(float),
    "negative": np.linspace(-600_000, 600_000, 13),
    "thousandths": np.arange(20.0) / 1000,
    "far from 0": 1.7e9 + np.arange(0.0, 120, 10),
    "many digits": np.sort(np.random.default_rng(2).random(10)),
    "one": np.array([123_456_789.0]),
}
WAYS = {"two bins": ("rr_on_bins", 1.0), "bins": ("rr_on_bins", 4.0), "unbiased": ("unbiased", 1.0), "rr": ("rr", 2.0)}


@cache
def example(prior: str, way: str) -> dict[str, str]:
    labels = PRIORS[prior]
    weights = np.random.default_rng(3).dirichlet(np.full(len(labels), 2.0))
    return every_chart("label", labels, weights, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prior", PRIORS)
def test_texts_keep_clear_of_each_other(prior: str, way: str) -> None:
    for chart in example(prior, way).values():
        assert_apart(chart)
        ticks = [box for box in text_boxes(chart) if box.kind == "tick"]
        assert sum(box.bottom > 260 for box in ticks) >= 1
        # The name of the vertical axis does not touch the tick labels.
        assert min(box.left for box in ticks if box.bottom < 260) >= 22


@settings(deadline=None)
@given(
    st.integers(1, 25),
    st.integers(1, 25),
    st.sampled_from([1e-6, 0.001, 0.37, 1.0, 1234.0, 54321.0, 7654321.0, 1e12]),
    st.sampled_from([0.0, -0.5, 1000.0]),
    st.integers(0, 2**32 - 1),
)
def test_numbers_of_the_channel_fit_their_cells(rows: int, columns: int, step: float, shift: float, seed: int) -> None:
    chances = np.random.default_rng(seed).dirichlet(np.full(columns, 0.3), rows)
    ranges = ([((x + shift) * step, (x + shift + 0.5) * step) for x in range(count)] for count in (rows, columns))
    chart = channel_chart(ChannelCells(chances, *ranges), "label")

    assert_apart(chart)
    group = next(group for group in parsed(chart).iter("g") if group.get("class") == "cell")
    left, bottom, width, height = map(float, re.findall(r"[\d.]+", (group.get("transform") or "").replace("-", "")))
    numbers = [box for box in text_boxes(chart) if box.kind.startswith("cell-text")]
    assert len(numbers) in (0, rows * columns)
    for place, box in enumerate(numbers):
        row, column = divmod(place, columns)
        assert left + column * width <= box.left + 0.2
        assert box.right <= left + (column + 1) * width + 0.2
        assert bottom - (row + 1) * height <= box.top
        assert box.bottom <= bottom - row * height


@pytest.mark.parametrize("name", ["y" * 32, "W" * 32, "\u6c34" * 32, HOSTILE])
def test_long_names_stay_within_the_picture(name: str) -> None:
    labels, weights = PRIORS["large"], np.full(40, 1 / 40)
    assert_apart(charts.errors_chart(labels, [("bias", "bias", labels)], name, name))
    drawn = every_chart(name, labels, weights, WAYS["bins"])
    for which in ("prior", "outputs", "channel"):
        assert_apart(drawn[which])


def test_large_numbers_are_in_millions() -> None:
    drawn = example("large", "bins")

    for chart in drawn.values():
        names = [box.text for box in text_boxes(chart) if box.kind == "axis-name"]
        assert names[0].endswith("label (millions)")
        assert max(len(box.text) for box in text_boxes(chart) if box.kind == "tick") <= len("123.4 to 123.4")
    assert {"100", "200"} <= set(texts(drawn["prior"]))
    names = [box.text for box in text_boxes(example("prices", "bins")["prior"])]
    assert {"label", "100,000", "400,000"} <= set(names)


@pytest.mark.parametrize("prior", ["few", "weeks", "prices", "large"])
def test_outputs_of_bins_are_written_over_the_bars(prior: str) -> None:
    chart = example(prior, "bins")["prior"]
    elements = list(parsed(chart))
    kinds = [element.get("class") if element.get("y") != "7" else "legend" for element in elements]
    written = [place for place, kind in enumerate(kinds) if kind == "output-text"]
    bands = [elements[place] for place, kind in enumerate(kinds) if kind in ("band0", "band1")]

    assert written
    assert min(written) > max(place for place, kind in enumerate(kinds) if kind in ("prior", "grid", "axis"))
    highest = min(top for _, _, top, _, _ in boxes(chart, "prior"))
    for place in written:
        box = text_box(elements[place])
        assert box.bottom <= highest
        # The whole text is within one band, on a background of that band's color.
        around = [band for band in bands if covers(band, box)]
        assert len(around) == 2
        assert around[0].get("class") == around[1].get("class") == kinds[place - 1]


def covers(rectangle: ElementTree.Element, box: Box) -> bool:
    left, top, width, height = (float(rectangle.get(each) or 0) for each in ("x", "y", "width", "height"))
    across = left <= box.left + 0.2 and box.right <= left + width + 0.2
    return across and top <= box.top and box.bottom <= top + height


@pytest.mark.parametrize("which", ["prior", "outputs", "channel", "errors"])
def test_names_are_escaped_and_shown(which: str) -> None:
    chart = every_chart(HOSTILE)[which]

    assert "<script" not in chart
    assert any(HOSTILE in text for text in texts(chart))
    assert HOSTILE in (parsed(chart).get("aria-label") or "")
    assert parsed(chart).get("role") == "img"


def test_bars_are_as_high_as_the_probabilities() -> None:
    chart = charts.prior_chart(LABELS, WEIGHTS, np.array([1.0, 4.0]), [], "y")

    heights = [bottom - top for _, bottom, top, _, _ in boxes(chart, "prior")]
    assert np.array(heights) / heights[0] == pytest.approx(WEIGHTS / WEIGHTS[0], abs=0.01)
    lefts, rights = zip(*[(left, right) for left, _, _, right, _ in boxes(chart, "prior")], strict=True)
    # A bar ends halfway to the next label, less a margin of 0.5 on each side.
    assert np.array(rights) - np.array(lefts) + 1 == pytest.approx(
        np.array([1, 1, 2, 3]) * (rights[0] - lefts[0] + 1), abs=0.3
    )


def test_bins_name_their_outputs() -> None:
    found = [Bin(0, 2, 1, 0.7), Bin(5, 5, 4, 0.7)]
    chart = charts.prior_chart(LABELS, WEIGHTS, np.array([1.0, 4.0]), found, "y")

    assert {"\u2192 1", "\u2192 4"} <= set(texts(chart))


def test_sticks_stand_on_their_outputs() -> None:
    chances = np.array([0.5, 0.3, 0.2])
    chart = charts.outputs_chart(np.array([0.0, 10.0]), np.array([-10.0, 0.0, 20.0]), chances, "y")

    circles = [(float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in parsed(chart).iter("circle")]
    (x0, y0), (x1, y1), (x2, y2) = circles
    assert (x2 - x1) / (x1 - x0) == pytest.approx(2, abs=0.02)
    bottom = next(numbers[1] for numbers in boxes(chart, "stick"))
    assert np.array([bottom - y for y in (y0, y1, y2)]) / (bottom - y0) == pytest.approx(chances / 0.5, abs=0.01)


def test_rows_are_named_by_their_ranges() -> None:
    rows = np.repeat(np.array([[0.8, 0.2], [0.2, 0.8]]), [300, 101], axis=0)
    cells = channel_cells(np.arange(401.0), np.array([1.0, 2.0]), rows)

    assert {"0 to 299", "300 to 400", "80%", "20%"} <= set(texts(channel_chart(cells, "y")))


def test_shades_grow_with_the_probabilities() -> None:
    cells = ChannelCells(np.array([[0.64, 0.36], [0.0, 1.0]]), [(0, 0), (1, 1)], [(0, 0), (1, 1)])
    group = next(group for group in parsed(channel_chart(cells, "y")).iter("g") if group.get("class") == "cell")

    drawn = {path.get("d"): float(path.get("fill-opacity") or 0) for path in group}
    # The opacity is the square root of the probability; cells of probability 0 are not drawn.
    expected = {"M0 0h1v1h-1z": 0.8, "M1 0h1v1h-1z": 0.6, "M1 1h1v1h-1z": 1.0}
    assert drawn == {path: pytest.approx(shade, abs=1 / 30) for path, shade in expected.items()}


def test_charts_of_large_domains_are_small() -> None:
    k, m = 3000, 2000
    labels, outputs = np.arange(float(k)), np.linspace(-500, 5000, m)
    probabilities = np.random.default_rng(1).dirichlet(np.ones(m), k)
    weights = np.full(k, 1 / k)

    drawn = [
        charts.prior_chart(labels, weights, outputs, [], "y"),
        charts.outputs_chart(labels, outputs, weights @ probabilities, "y"),
        channel_chart(channel_cells(labels, outputs, probabilities), "y"),
        charts.errors_chart(labels, [("bias", "bias", np.sin(labels))], "y", "error"),
    ]

    assert sum(map(len, drawn)) < 300_000


def test_texts_of_a_page_are_within_its_pictures(page_text: str) -> None:
    drawn = re.findall(r"<svg .*?</svg>", page_text, re.DOTALL)
    assert len(drawn) == 4
    for chart in drawn:
        assert_apart(chart)


def test_bins_are_labels_with_equal_rows() -> None:
    alike = np.array([[0.7, 0.3], [0.7, 0.3], [0.7, 0.3], [0.3, 0.7]])

    assert label_bins(LABELS, np.array([1.0, 4.0]), alike) == [
        Bin(0, 2, 1, 0.7),
        Bin(5, 5, 4, 0.7),
    ]
    assert label_bins(LABELS, LABELS, np.eye(4)) == []
    assert label_bins(LABELS, LABELS, np.full((4, 4), 0.25)) == []


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_cells_keep_the_mass(labels: int, outputs: int, max_cells: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Some neighboring rows are equal.
    rows = generator.dirichlet(np.ones(outputs), labels)[np.sort(generator.integers(0, labels, labels))]
    values = np.arange(float(labels)), np.arange(float(outputs)) * 2

    cells = channel_cells(*values, rows, max_cells)

    assert cells.probabilities.shape == (len(cells.rows), len(cells.columns))
    assert max(cells.probabilities.shape) <= max_cells
    sizes = np.outer([b - a + 1 for a, b in cells.rows], [(b - a) / 2 + 1 for a, b in cells.columns])
    assert (cells.probabilities * sizes).sum() == pytest.approx(labels)
    for ranges, all_values in zip((cells.rows, cells.columns), values, strict=True):
        assert ranges[0][0] == all_values[0]
        assert ranges[-1][1] == all_values[-1]


def test_labels_with_equal_rows_share_a_row() -> None:
    rows = np.repeat(np.array([[0.8, 0.2], [0.2, 0.8]]), [300, 101], axis=0)
    cells = channel_cells(np.arange(401.0), np.array([1.0, 2.0]), rows)

    assert cells.rows == [(0, 299), (300, 400)]
    assert cells.probabilities == pytest.approx(np.array([[0.8, 0.2], [0.2, 0.8]]))
