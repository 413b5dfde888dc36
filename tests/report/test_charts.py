"""Charts are well-formed and small, show the given numbers, and have no overlapping texts."""

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.analysis.utility import ReleasedFacts
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import solve
from labeldp.report.charts import Bars, Line, bars_chart, heat_map, lines_chart, range_names, short_names
from labeldp.report.number_summary import NumberSummary, channel_cells
from labeldp.report.svg_plot import text_width

HOSTILE = "<script>alert('&')</script>\"]]>"
HOSTILE_TEXTS = [HOSTILE, "\x00\x1b\ud800", "\u6c34" * 200, "W" * 500]
SVG = "{http://www.w3.org/2000/svg}"
LINES = [Line("first", [1, 2, 4], [100.0, 10.0, 1.0]), Line("second", [1, 2, 4], [50.0, None, math.inf])]
draw = partial(lines_chart, title="a title", x_name="epsilon", y_name="loss", file=True)


def parsed(chart: str) -> list[ElementTree.Element]:
    """All elements; those of pictures in a file have their names without the namespace."""
    elements = list(ElementTree.fromstring(chart).iter())
    for element in elements:
        element.tag = element.tag.removeprefix(SVG)
    return elements


def texts(chart: str, kind: str | None = None) -> list[str]:
    return [e.text or "" for e in parsed(chart) if e.tag == "text" and kind in (None, e.get("class"))]


def shapes(chart: str, kind: str) -> list[np.ndarray]:
    """Points of each path of a class that consists of straight lines, without those of the legend."""
    paths = [e.get("d") or "" for e in parsed(chart) if e.tag == "path" and e.get("class") == kind]
    return [np.array(re.findall(r"-?[\d.]+", path), float).reshape(-1, 2) for path in paths if "h22" not in path]


def widths(chart: str, kind: str) -> list[float]:
    """Widths of the bars of a class."""
    found = [e for e in parsed(chart) if e.tag == "rect" and e.get("class") == kind and e.get("x")]
    return [float(e.get("width") or 0) for e in found]


class Box(NamedTuple):
    """Upper bound on the area of a text, in the units of the chart."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


def text_box(element: ElementTree.Element) -> Box:
    kind, text = element.get("class") or "", element.text or ""
    width = text_width(text, bold=kind.startswith(("cell-text", "title")))
    turned = re.fullmatch(r"translate\(([\d.]+) ([\d.]+)\) rotate\(-90\)", element.get("transform") or "")
    if turned:
        across, middle = float(turned[1]), float(turned[2])
        return Box(across - 10, middle - width / 2, across + 3, middle + width / 2, text)
    x, y = float(element.get("x") or 0), float(element.get("y") or 0)
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor") or ""]
    return Box(left, y - 10, left + width, y + 3, text)


def assert_apart(chart: str) -> None:
    """Checks that no two texts overlap, and that all texts and lines are within the picture or its margin."""
    elements = parsed(chart)
    left, top, width, height = map(float, (elements[0].get("viewBox") or "").split())
    drawn = [text_box(element) for element in elements if element.tag == "text"]
    for box in drawn:
        assert left - 0.1 <= box.left <= box.right <= left + width + 10.1, box
        assert top - 0.1 <= box.top < box.bottom <= top + height + 0.1, box
    for one, other in itertools.combinations(drawn, 2):
        beside = one.right <= other.left + 0.2 or other.right <= one.left + 0.2
        assert beside or one.bottom <= other.top + 0.2 or other.bottom <= one.top + 0.2, (one, other)
    (axis,) = (e.get("d") or "" for e in elements if e.get("class") == "axis")
    start, upper, lower, end = map(float, re.findall(r"[\d.]+", axis))
    for kind in ("line", "line dashes", "line dots", "line thin dashes", "line thin dots", "band"):
        for points in shapes(chart, kind):
            assert start - 0.1 <= points[:, 0].min() <= points[:, 0].max() <= end + 0.1
            assert upper - 0.1 <= points[:, 1].min() <= points[:, 1].max() <= lower + 0.1
    assert "nan" not in chart


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
def summary(prior: str, way: str) -> NumberSummary:
    labels = PRIORS[prior]
    weights = np.random.default_rng(3).dirichlet(np.full(len(labels), 2.0))
    mechanism, epsilon = WAYS[way]
    known = Prior(labels, weights)
    return NumberSummary(ReleasedFacts(solve(mechanism, known, epsilon), known, 0.1, 1000), "label", "the prior")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prior", PRIORS)
def test_texts_of_a_mechanism_keep_clear_of_each_other(prior: str, way: str) -> None:
    for chart in summary(prior, way).charts("label").values():
        assert_apart(chart)
        assert len(texts(chart, "tick")) >= 2


@pytest.mark.parametrize("name", ["y" * 32, "W" * 32, "\u6c34" * 32, HOSTILE])
def test_long_names_stay_within_the_picture(name: str) -> None:
    for chart in summary("large", "bins").charts(name).values():
        assert_apart(chart)
        assert "<script" not in chart
        assert any(name[:5] in text for text in texts(chart))
        assert name in (parsed(chart)[0].get("aria-label") or "")
        assert parsed(chart)[0].get("role") == "img"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prior", ["few", "weeks", "prices"])
def test_shares_of_ranges_are_those_of_the_integers(prior: str, way: str) -> None:
    found = summary(prior, way)
    randomizer, weights = found.facts.randomizer, found.facts.prior.weights
    labels, outputs = randomizer.labels, randomizer.outputs
    released = weights @ randomizer.probabilities()
    described = parsed(found.charts("label")["shares"])[0].get("aria-label") or ""
    rows = re.findall(
        r"(below|above|[\d,]+)(?: [\d,to ]+)?: true, by the prior ([\d.]+)%, released ([\d.]+)%", described
    )
    assert sum(float(true) for _, true, _ in rows) == pytest.approx(100, abs=0.3)
    assert sum(float(drawn) for _, _, drawn in rows) == pytest.approx(100, abs=0.3)
    outside = {name: float(drawn) for name, _, drawn in rows if name in ("below", "above")}
    assert outside.get("below", 0) == pytest.approx(100 * released[outputs < labels[0]].sum(), abs=0.1)
    assert outside.get("above", 0) == pytest.approx(100 * released[outputs > labels[-1]].sum(), abs=0.1)


def test_rows_are_named_by_their_ranges() -> None:
    assert range_names([(0, 299), (300, 400)]) == ["0 to 299", "300 to 400"]
    assert range_names([(22755.0, 59269.123456789)]) == ["22,755 to 59,269"]
    assert range_names([(1.7e9, 1.7e9 + 1), (1.7e9 + 2, 1.7e9 + 3)]) == ["1,700,000,000", "1,700,000,002"]


@settings(deadline=None)
@given(st.integers(1, 25), st.integers(1, 25), st.integers(0, 2**32 - 1))
def test_numbers_of_a_heat_map_fit_their_cells(rows: int, columns: int, seed: int) -> None:
    chances = np.random.default_rng(seed).dirichlet(np.full(columns, 0.3), rows)
    down, across = ([str(place) for place in range(count)] for count in (rows, columns))
    chart = heat_map(down, across, chances, ("released", "true"), "title", "")

    assert_apart(chart)
    group = next(e for e in parsed(chart) if "scale" in (e.get("transform") or ""))
    left, top, width, height = map(float, re.findall(r"[\d.]+", group.get("transform") or ""))
    numbers = [text_box(e) for e in parsed(chart) if (e.get("class") or "").startswith("cell-text")]
    assert len(numbers) in (0, rows * columns)
    for place, box in enumerate(numbers):
        row, column = divmod(place, columns)
        assert left + column * width <= box.left + 0.2
        assert box.right <= left + (column + 1) * width + 0.2
        assert top + row * height <= box.top
        assert box.bottom <= top + (row + 1) * height


def test_shades_grow_with_the_probabilities() -> None:
    chart = heat_map(["a", "b"], ["a", "b"], np.array([[0.64, 0.36], [0.0, 1.0]]), ("x", "y"), "title", "")
    drawn = {e.get("d"): float(e.get("fill-opacity") or 0) for e in parsed(chart) if e.tag == "path"}
    # The opacity is the square root of the probability; cells of probability 0 are not drawn.
    expected = {"M0 0h1v1h-1z": 0.8, "M1 0h1v1h-1z": 0.6, "M1 1h1v1h-1z": 1.0}
    assert {path: drawn[path] for path in expected} == {
        path: pytest.approx(shade, abs=1 / 30) for path, shade in expected.items()
    }
    assert texts(chart, "tick") == ["b", "a", "a", "b"], "the first row is at the top"


def test_charts_of_large_domains_are_small() -> None:
    labels = np.arange(3000.0)
    prior = Prior(labels, np.full(3000, 1 / 3000))
    facts = ReleasedFacts(solve("rr", prior, 6.0), prior, 0.1, 1000)
    drawn = NumberSummary(facts, "label", "the prior").charts("label")
    assert sum(map(len, drawn.values())) < 150_000


@pytest.mark.parametrize("max_cells", [1, 7, 50])
@pytest.mark.parametrize("way", WAYS)
def test_cells_keep_the_mass(way: str, max_cells: int) -> None:
    randomizer = summary("weeks", way).facts.randomizer
    cells, rows, columns = channel_cells(randomizer, max_cells)
    assert cells.shape == (len(rows), len(columns))
    assert max(cells.shape) <= max_cells
    labels, outputs = randomizer.labels.tolist(), randomizer.outputs.tolist()
    down, across = (
        np.array([values.index(last) - values.index(first) + 1 for first, last in ranges])
        for values, ranges in ((labels, rows), (outputs, columns))
    )
    assert (cells * np.outer(down, across)).sum() == pytest.approx(len(labels))
    assert (down.sum(), across.sum()) == (len(labels), len(outputs))


def test_texts_of_a_page_are_within_its_pictures(page_text: str) -> None:
    drawn = re.findall(r"<svg .*?</svg>", page_text, re.DOTALL)
    assert len(drawn) == 3
    for chart in drawn:
        assert_apart(chart)


def test_bars_are_as_long_as_the_probabilities() -> None:
    bars = [Bars("noised", [0.5, -0.01], [(0.48, 0.52), (-0.03, 0.01)]), Bars("exact", [0.4, 0.0])]
    chart = bars_chart(["a", "b"], bars, "x", "y", "title")
    assert_apart(chart)
    assert chart.count('class="whisker"') == 2
    assert {"50%", "\u22121%", "40%", "0%"} <= set(texts(chart, "tick"))
    (noised,), (exact,) = widths(chart, "bar series0"), widths(chart, "bar series1")
    assert exact / noised == pytest.approx(0.8, abs=0.01), "values of 0 or less have no bar"
    described = "title. a: noised 50% (48% to 52%), exact 40%. b: noised \u22121% (\u22123% to 1%), exact 0%."
    assert parsed(chart)[0].get("aria-label") == described


def test_names_are_shortened_to_fit() -> None:
    assert short_names(["a", "b"]) == ["a", "b"]
    one, other = short_names(["x" * 40 + "1", "x" * 40 + "2"])
    assert (one[:2], other[:2], one[-1]) == ("1 ", "2 ", "\u2026")
    assert short_names(["a\nb", "\u202ec"]) == ["a\ufffdb", "\ufffdc"]


# Lines.


def test_a_file_stands_alone_and_is_the_same_again() -> None:
    drawn = draw(LINES)

    assert draw(LINES) == drawn
    assert len(drawn) < 6_500
    root = parsed(drawn)[0]
    assert root.get("role") == "img"
    assert [e.text for e in parsed(drawn) if e.tag == "title"] == ["a title"]
    described = "a title. loss against epsilon. first: 100 at 1, 1 at 4. second: 50 at 1."
    assert root.get("aria-label") == described
    # Nothing is loaded, nothing runs, and converters that know no custom properties see all colors.
    assert not re.search(r"href|url\(|@import|<script|var\(|http(?!://www\.w3\.org/2000/svg\")", drawn)
    light, _, dark = drawn.partition("@media screen and (prefers-color-scheme: dark)")
    assert "background: #ffffff" in light
    assert "background: #14171b" in dark


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=["markup", "no XML", "wide", "long"])
def test_every_text_is_well_formed_and_fits(text: str) -> None:
    drawn = draw([Line(text, [1, 2], [3.0, 4.0])], title=text, x_name=text, y_name=text, levels=[(text, 3.5)])

    assert "<script" not in drawn
    assert len(texts(drawn, "legend")) == 2
    assert texts(drawn, "legend")[0][:10] == re.sub("[\x00\x1b\ud800]", "\ufffd", text)[:10]
    assert_apart(drawn)
    drawn.encode()


def test_everything_is_named_and_the_axes_are_logarithmic_where_that_reads_better() -> None:
    wide = draw(LINES, levels=[("a limit", 70.0), ("none", math.inf)])
    narrow = draw([Line("only", [1, 2], [3.0, 4.0])])
    negative = draw([Line("only", [1, 2], [-300.0, 4.0])])

    assert texts(wide, "legend") == ["first", "second", "a limit"]
    assert texts(wide, "title") == ["a title"]
    assert texts(wide, "axis-name") == ["epsilon", "loss"]
    assert {"1", "2", "4", "5", "20", "50", "100"} <= set(texts(wide, "tick"))
    assert {"3", "3.2", "3.8"} <= set(texts(narrow, "tick"))
    assert {"\u2212200", "0"} <= set(texts(negative, "tick"))
    # Equal ratios are equal distances.
    (line, *_) = shapes(wide, "line")
    assert np.diff(line[:, 1]) == pytest.approx(np.full(2, line[1, 1] - line[0, 1]), abs=0.2)
    assert "none:" not in (parsed(wide)[0].get("aria-label") or "")


def test_axes_from_zero_are_linear() -> None:
    lines = [Line("steep", [0.1, 0.2], [10.0, 20.0]), Line("flat", [2, 12], [1.0, 6.0])]
    drawn = draw(lines, from_zero=True)

    steep, flat = shapes(drawn, "line")
    (level,) = shapes(draw([*lines, Line("z", [0, 12], [0.0, 0.0], guide=True)], from_zero=True), "line thin dashes")
    origin, unit = level[0], (flat[1] - flat[0]) / np.array([10, 5])
    for points, line in ((steep, lines[0]), (flat, lines[1])):
        expected = origin + np.column_stack([np.array(line.x), np.array(line.y)]) * unit
        np.testing.assert_allclose(points, expected, atol=0.3)
    assert texts(drawn, "tick").count("0") == 2


def test_bands_are_as_high_as_they_are_told() -> None:
    plain = draw([Line("only", [1, 2], [3.0, 4.0])])
    drawn = draw([Line("only", [1, 2, 3], [3.0, 4.0, 5.0], band=[0.5, None, 1.0])])

    assert shapes(plain, "band") == []
    (band,), (line,) = shapes(drawn, "band"), shapes(drawn, "line")
    unit = line[0, 1] - line[1, 1]
    heights = np.array([0.5, 0, 1, -1, 0, -0.5])
    np.testing.assert_allclose(line[[0, 1, 2, 2, 1, 0], 1] - heights * unit, band[:, 1], atol=0.2)


VALUES = st.one_of(st.none(), st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.sampled_from([0.0, 1e-12, 1e15, math.inf]))
PLACES = [0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 1e3, 1e6]


@st.composite
def lines(drawing: Any) -> Line:
    x = sorted(drawing(st.sets(st.sampled_from(PLACES), min_size=1)))
    y = drawing(st.lists(VALUES, min_size=len(x), max_size=len(x)))
    band = drawing(st.one_of(st.none(), st.lists(st.floats(0, 1e9), min_size=len(x), max_size=len(x))))
    return Line(drawing(st.text(max_size=80)), x, y, band, drawing(st.booleans()))


@settings(deadline=None)
@given(
    st.lists(lines(), max_size=5),
    st.lists(st.tuples(st.text(max_size=20), st.floats(0, 100)), max_size=3),
    st.booleans(),
)
@example([Line("a", [1, 2], [1e9 + 1, 1e9 + 2])], [], True)
@example([Line("a", [1000, 10**8], [1e-7, 1e7])], [("b", 3e-7)], False)
@example([Line("a", [1, 2, 3], [0.001, 0.002, 0.001], band=[0.01, 0.02, 0.03])] * 30, [], True)
def test_texts_of_lines_keep_clear_of_each_other(
    drawn: list[Line], levels: list[tuple[str, float]], file: bool
) -> None:
    assert_apart(draw(drawn, levels=levels, file=file))
