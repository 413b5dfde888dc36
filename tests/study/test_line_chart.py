"""Line charts: their content, names, axes and bands; no texts overlap; the same text for the same chart."""

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from labeldp.report.svg_plot import text_width
from labeldp.study.line_chart import Line, draw_lines, separate
from scipy.optimize import minimize

LINES = [Line("first", [1, 2, 4], [100.0, 10.0, 1.0]), Line("second", [1, 2, 4], [50.0, None, math.inf])]
SVG = "{http://www.w3.org/2000/svg}"
draw = partial(draw_lines, title="a title", x_label="epsilon", y_label="loss")


class Box(NamedTuple):
    """Upper bound on the area of a text."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str, kind: str | None = None) -> list[str]:
    found = parsed(svg).iter(f"{SVG}text")
    return [each.text or "" for each in found if kind in (None, each.get("class"))]


def shapes(svg: str, kind: str) -> list[np.ndarray]:
    """Points of each path of a class that consists of straight lines."""
    paths = [path.get("d") or "" for path in parsed(svg).iter(f"{SVG}path") if path.get("class") == kind]
    return [np.array(re.findall(r"-?[\d.]+", path), float).reshape(-1, 2) for path in paths]


def box(element: ElementTree.Element) -> Box:
    text = element.text or ""
    width = text_width(text) * (1.3 if element.get("class") == "title" else 1)
    turned = re.match(r"translate\(([\d.]+) ([\d.]+)\)", element.get("transform") or "")
    if turned:
        x, y = float(turned[1]), float(turned[2])
        return Box(x - 10, y - width / 2, x + 3, y + width / 2, text)
    x, y = float(element.get("x") or 0), float(element.get("y") or 0)
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor") or ""]
    return Box(left, y - 10, left + width, y + 3, text)


def assert_apart(svg: str) -> None:
    """Checks that no two texts overlap and that all texts and lines are within the picture."""
    root = parsed(svg)
    left, top, width, height = map(float, (root.get("viewBox") or "").split())
    boxes = [box(element) for element in root.iter(f"{SVG}text")]
    for each in boxes:
        assert left <= each.left <= each.right <= left + width + 0.1, each
        assert top <= each.top < each.bottom <= top + height + 0.1, each
    for one, other in itertools.combinations(boxes, 2):
        beside = one.right <= other.left + 0.2 or other.right <= one.left + 0.2
        assert beside or one.bottom <= other.top + 0.2 or other.bottom <= one.top + 0.2, (one, other)
    (axis,) = (path.get("d") for path in root.iter(f"{SVG}path") if re.fullmatch(r"M\d+ \d+H\d+", path.get("d") or "")
        and path.get("class") == "axis")  # fmt: skip
    edges = list(map(float, re.findall(r"[\d.]+", axis or "")))
    for kind in ("line", "line dashes", "line dots", "band"):
        for points in shapes(svg, kind):
            assert points[:, 0].min() >= edges[0] - 0.1
            assert points[:, 0].max() <= edges[2] + 0.1
            assert points[:, 1].min() >= 44 - 0.1
            assert points[:, 1].max() <= edges[1] + 0.1


def test_a_file_stands_alone_and_is_the_same_again() -> None:
    drawn = draw(LINES)

    assert draw(LINES) == drawn
    assert len(drawn) < 6_000
    root = parsed(drawn)
    assert root.get("role") == "img"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "a title"
    described = "a title. loss against epsilon. first: 100 at 1, 1 at 4. second: 50 at 1."
    assert root.get("aria-label") == described
    # Nothing is loaded, nothing runs, and converters that know no custom properties see all colors.
    assert not re.search(r"href|url\(|@import|<script|var\(|http(?!://www\.w3\.org/2000/svg\")", drawn)
    light, _, dark = drawn.partition("@media screen and (prefers-color-scheme: dark)")
    assert "background: #ffffff" in light
    assert "background: #14171b" in dark


@pytest.mark.parametrize(
    "text",
    ["<script>alert('&')</script>\"]]>", "\x00\x1b\ud800", "\u6c34" * 200, "W" * 500],
    ids=["markup", "no XML", "wide", "long"],
)
def test_every_text_is_well_formed_and_fits(text: str) -> None:
    drawn = draw([Line(text, [1, 2], [3.0, 4.0])], title=text, x_label=text, y_label=text, levels=[(text, 3.5)])

    assert "<script" not in drawn
    assert len(texts(drawn, "name")) == 2
    assert texts(drawn, "name")[0][:10] == re.sub("[\x00\x1b\ud800]", "\ufffd", text)[:10]
    assert_apart(drawn)
    drawn.encode()


def test_everything_is_named_and_the_axes_are_logarithmic_where_that_reads_better() -> None:
    wide = draw(LINES, levels=[("a limit", 70.0), ("none", math.inf)])
    narrow = draw([Line("only", [1, 2], [3.0, 4.0])])
    negative = draw([Line("only", [1, 2], [-300.0, 4.0])])

    assert texts(wide, "name") == ["first", "second", "a limit"]
    assert texts(wide, "title") == ["a title"]
    assert texts(wide, "axis-name") == ["epsilon", "loss"]
    assert {"1", "2", "4", "5", "20", "50", "100"} <= set(texts(wide, "tick"))
    assert {"3", "3.2", "3.8"} <= set(texts(narrow, "tick"))
    assert {"\u2212200", "0"} <= set(texts(negative, "tick"))
    # Equal ratios are equal distances.
    (line, *_) = shapes(wide, "line")
    assert np.diff(line[:, 1]) == pytest.approx(np.full(2, line[1, 1] - line[0, 1]), abs=0.2)
    assert "none:" not in (parsed(wide).get("aria-label") or "")


def test_axes_from_zero_are_linear() -> None:
    lines = [Line("steep", [0.1, 0.2], [10.0, 20.0]), Line("flat", [2, 12], [1.0, 6.0])]
    drawn = draw(lines, from_zero=True)

    steep, flat = shapes(drawn, "line")
    (level,) = shapes(draw([*lines, Line("zero", [0, 12], [0.0, 0.0], guide=True)], from_zero=True), "line dashes")
    origin, unit = level[0], (flat[1] - flat[0]) / np.array([10, 5])
    for points, line in ((steep, lines[0]), (flat, lines[1])):
        expected = origin + np.column_stack([np.array(line.x), np.array(line.y)]) * unit
        np.testing.assert_allclose(points, expected, atol=0.3)
    assert texts(drawn, "tick").count("0") == 2


def test_a_line_of_nothing_is_not_drawn() -> None:
    drawn = draw([*LINES, Line("nothing", [1, 2, 4], [None, None, math.nan])])
    assert "nothing" not in texts(drawn)
    assert drawn == draw(LINES)


def test_bands_are_as_high_as_they_are_told() -> None:
    plain = draw([Line("only", [1, 2], [3.0, 4.0])])
    drawn = draw([Line("only", [1, 2, 3], [3.0, 4.0, 5.0], band=[0.5, None, 1.0])])

    assert shapes(plain, "band") == []
    (band,), (line,) = shapes(drawn, "band"), shapes(drawn, "line")
    unit = line[0, 1] - line[1, 1]
    heights = np.array([0.5, 0, 1, -1, 0, -0.5])
    np.testing.assert_allclose(line[[0, 1, 2, 2, 1, 0], 1] - heights * unit, band[:, 1], atol=0.2)


def test_a_band_below_zero_ends_at_a_logarithmic_axis() -> None:
    drawn = draw([Line("only", [1, 2], [100.0, 1.0], band=[200.0, 50.0])])
    assert_apart(drawn)
    # The axis ends at half of the lowest value, less a margin.
    (line,), (band,) = shapes(drawn, "line"), shapes(drawn, "band")
    unit = (line[1, 1] - line[0, 1]) / math.log(100)
    assert (band[:, 1].max() - line[1, 1]) / unit == pytest.approx(math.log(2) + 0.04 * math.log(600), abs=0.02)


def test_a_guide_takes_no_color_of_the_lines() -> None:
    lone = draw([Line("only", [1, 2], [3.0, 4.0])])
    guided = draw([Line("a guide", [1, 2], [5.0, 6.0], guide=True), Line("only", [1, 2], [3.0, 4.0])])

    groups = [group.get("class") for group in parsed(guided).iter(f"{SVG}g")]
    assert groups == ["guide", "series0"]
    assert [group.get("class") for group in parsed(lone).iter(f"{SVG}g")] == ["series0"]
    assert "a guide" in texts(guided)


def test_twenty_lines_differ() -> None:
    drawn = draw([Line(f"line {place}", [1, 2], [place + 1.0, place + 2.0]) for place in range(20)])

    looks = set()
    for group in parsed(drawn).iter(f"{SVG}g"):
        kinds = [path.get("class") for path in group if path.get("class") != "line leader"]
        marks = [re.sub(r"M[\d. ]+", "", path.get("d") or "") for path in group if path.get("class") == "mark"]
        looks.add((group.get("class"), *kinds, *marks))
    assert len(looks) == 20
    assert_apart(drawn)


def test_nothing_at_all_is_a_picture_too() -> None:
    assert_apart(draw([]))
    assert_apart(draw([Line("one point", [3], [0.0])]))


VALUES = st.one_of(st.none(), st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.sampled_from([0.0, 1e-12, 1e15, math.inf]))


PLACES = [0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 1e3, 1e6]


@st.composite
def lines(drawing: Any) -> Line:
    x = sorted(drawing(st.sets(st.sampled_from(PLACES), min_size=1)))
    y = drawing(st.lists(VALUES, min_size=len(x), max_size=len(x)))
    band = drawing(st.one_of(st.none(), st.lists(st.floats(0, 1e9), min_size=len(x), max_size=len(x))))
    return Line(drawing(st.text(max_size=80)), x, y, band, drawing(st.booleans()))


@settings(deadline=None)
@given(st.lists(lines(), max_size=5), st.lists(st.tuples(st.text(max_size=20), st.floats(0, 100)), max_size=3))
@example([Line("a", [1, 2], [1e9 + 1, 1e9 + 2])], [])
@example([Line("a", [1000, 10**8], [1e-7, 1e7])], [("b", 3e-7)])
@example([Line("a", [1, 2, 3], [0.001, 0.002, 0.001], band=[0.01, 0.02, 0.03])] * 30, [])
def test_texts_keep_clear_of_each_other(drawn: list[Line], levels: list[tuple[str, float]]) -> None:
    assert_apart(draw(drawn, levels=levels))


POSITIONS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)


@settings(deadline=None)
@given(POSITIONS, st.floats(0.0, 0.15))
def test_names_are_apart_in_order_and_within(heights: list[float], distance: float) -> None:
    moved = separate(heights, distance)

    order = np.argsort(heights, kind="stable")
    assert np.all(np.diff(np.array(moved)[order]) >= distance - 1e-12)
    assert min(moved) >= 0
    assert max(moved) <= 1 + 1e-12
    if np.all(np.diff(np.sort(heights)) > distance):
        np.testing.assert_allclose(moved, heights, atol=1e-12)


def test_names_move_as_little_as_possible() -> None:
    heights, distance = np.array([0.4, 0.42, 0.44, 0.7, 0.72]), 0.1
    least = minimize(
        lambda moved: ((moved - heights) ** 2).sum(),
        np.arange(5) * 0.2,
        constraints={"type": "ineq", "fun": lambda moved: np.diff(moved) - distance},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(separate(heights.tolist(), distance), least.x, atol=1e-6)
