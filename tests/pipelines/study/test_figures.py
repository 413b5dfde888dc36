"""Charts: their contents and names, and the same bytes for the same chart."""

import math
import re
import struct
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.cli.arguments import UsageError
from labeldp.pipelines.study.figures import FORMATS, Line, check_picture, draw_lines, separate
from scipy.optimize import minimize

LINES = [Line("first", [1, 2, 4], [100.0, 10.0, 1.0]), Line("second", [1, 2, 4], [50.0, None, math.inf])]
draw = partial(draw_lines, title="a title", x_label="epsilon", y_label="loss")
SIGNATURES = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def texts(svg: bytes) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", svg.decode())


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_and_the_same_bytes_again(kind: str) -> None:
    drawn = draw(f"a.{kind}", LINES)

    assert drawn.startswith(SIGNATURES[kind])
    assert len(drawn) < 100_000
    assert draw(f"b.{kind}", LINES) == drawn


def test_everything_is_named_and_the_axes_are_logarithmic_where_that_reads_better() -> None:
    wide = draw("a.svg", LINES, levels=[("a limit", 70.0), ("none", math.inf)])
    narrow = draw("a.svg", [Line("only", [1, 2], [3.0, 4.0])])
    negative = draw("a.svg", [Line("only", [1, 2], [-300.0, 4.0])])

    assert {"first", "second", "a limit", "a title", "epsilon", "loss"} <= set(texts(wide))
    assert {"1", "2", "4"} <= set(texts(wide))
    # A logarithmic axis has powers of ten as tick labels, whose exponents are <tspan> elements.
    assert b"<tspan" in wide
    assert b"<tspan" not in narrow
    assert b"<tspan" not in negative


def test_a_line_of_nothing_is_not_drawn() -> None:
    drawn = draw("a.svg", [*LINES, Line("nothing", [1, 2, 4], [None, None, math.nan])])
    assert "nothing" not in texts(drawn)
    assert drawn == draw("a.svg", LINES)


def test_bands_and_guides() -> None:
    plain = draw("a.svg", [Line("only", [1, 2], [3.0, 4.0])])
    banded = draw("a.svg", [Line("only", [1, 2], [3.0, 4.0], band=[0.5, None])])
    guided = draw("a.svg", [Line("a guide", [1, 2], [5.0, 6.0], guide=True), Line("only", [1, 2], [3.0, 4.0])])

    assert plain != banded
    assert b"FillBetween" in banded
    assert b"FillBetween" not in plain
    # A guide does not use any of the line colors.
    assert plain.count(b"#0072b2") <= guided.count(b"#0072b2")
    assert b"#d55e00" not in guided
    assert "a guide" in texts(guided)


def test_nothing_at_all_is_a_picture_too() -> None:
    png = draw("a.png", [])
    width, height = struct.unpack(">II", png[16:24])
    assert min(width, height) > 300


@pytest.mark.parametrize("path", ["a", "a.gif", "png", "a.png.txt"])
def test_a_file_that_is_no_picture(path: str) -> None:
    with pytest.raises(UsageError, match=r"--picture .* must end in one of \.png, \.svg, \.pdf"):
        check_picture("--picture", path)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    check_picture("--picture", "a.PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"--picture needs the extra evaluation"):
        check_picture("--picture", "a.png")


places = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)


@settings(deadline=None)
@given(places, st.floats(0.0, 0.15))
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
