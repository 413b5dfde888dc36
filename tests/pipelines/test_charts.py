"""Charts: what is drawn is what was given, it is well-formed, and it stays small."""

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("markupsafe", reason="the extra evaluation is not installed")

from labeldp.mechanisms.prior import Prior
from labeldp.mechanisms.registry import solve
from labeldp.pipelines import charts

LABELS = np.array([0.0, 1.0, 2.0, 5.0])
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
HOSTILE = "<script>alert('&')</script>\"]]>"


def parsed(chart: str) -> ElementTree.Element:
    return ElementTree.fromstring(chart)


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in parsed(chart).iter("text")]


def boxes(chart: str, kind: str) -> list[list[float]]:
    """The numbers of each closed part of the paths of a class."""
    paths = [path.get("d") or "" for path in parsed(chart).iter("path") if path.get("class") == kind]
    return [[float(x) for x in re.findall(r"-?[\d.]+", part)] for path in paths for part in path.split("z") if part]


def every_chart(name: str) -> dict[str, str]:
    randomizer = solve("rr_on_bins", Prior(LABELS, WEIGHTS), 1.0)
    probabilities, bias = randomizer.probabilities(), randomizer.bias()
    bins = charts.bins(LABELS, randomizer.outputs, probabilities)
    return {
        "prior": charts.prior_chart(LABELS, WEIGHTS, randomizer.outputs, bins, name),
        "outputs": charts.outputs_chart(LABELS, randomizer.outputs, WEIGHTS @ probabilities, name),
        "channel": charts.heat_map(charts.gather(LABELS, randomizer.outputs, probabilities), name),
        "errors": charts.lines_chart(LABELS, [("bias", name, bias)], name, name),
    }


@pytest.mark.parametrize("which", ["prior", "outputs", "channel", "errors"])
def test_names_are_escaped_and_shown(which: str) -> None:
    chart = every_chart(HOSTILE)[which]

    assert "<script" not in chart
    assert any(HOSTILE in text for text in texts(chart))
    assert HOSTILE in (parsed(chart).get("aria-label") or "")
    assert parsed(chart).get("role") == "img"


def test_bars_are_as_high_as_the_chances() -> None:
    chart = charts.prior_chart(LABELS, WEIGHTS, np.array([1.0, 4.0]), [], "y")

    heights = [bottom - top for _, bottom, top, _, _ in boxes(chart, "prior")]
    assert np.array(heights) / heights[0] == pytest.approx(WEIGHTS / WEIGHTS[0], abs=0.01)
    lefts, rights = zip(*[(left, right) for left, _, _, right, _ in boxes(chart, "prior")], strict=True)
    # A bar ends halfway to the next label; 0.5 at either end is left free.
    assert np.array(rights) - np.array(lefts) + 1 == pytest.approx(
        np.array([1, 1, 2, 3]) * (rights[0] - lefts[0] + 1), abs=0.3
    )


def test_bins_are_labels_that_are_treated_alike() -> None:
    alike = np.array([[0.7, 0.3], [0.7, 0.3], [0.7, 0.3], [0.3, 0.7]])

    assert charts.bins(LABELS, np.array([1.0, 4.0]), alike) == [
        charts.Bin(0, 2, 1, 0.7),
        charts.Bin(5, 5, 4, 0.7),
    ]
    assert charts.bins(LABELS, LABELS, np.eye(4)) == []
    assert charts.bins(LABELS, LABELS, np.full((4, 4), 0.25)) == []
    chart = charts.prior_chart(
        LABELS, WEIGHTS, np.array([1.0, 4.0]), charts.bins(LABELS, np.array([1.0, 4.0]), alike), "y"
    )
    assert "\u2192 1" in texts(chart)
    assert "\u2192 4" in texts(chart)


def test_sticks_stand_on_their_outputs() -> None:
    chances = np.array([0.5, 0.3, 0.2])
    chart = charts.outputs_chart(np.array([0.0, 10.0]), np.array([-10.0, 0.0, 20.0]), chances, "y")

    circles = [(float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in parsed(chart).iter("circle")]
    (x0, y0), (x1, y1), (x2, y2) = circles
    assert (x2 - x1) / (x1 - x0) == pytest.approx(2, abs=0.02)
    bottom = next(numbers[1] for numbers in boxes(chart, "stick"))
    assert np.array([bottom - y for y in (y0, y1, y2)]) / (bottom - y0) == pytest.approx(chances / 0.5, abs=0.01)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_gathering_keeps_the_mass(labels: int, outputs: int, most: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Some neighbours alike.
    rows = generator.dirichlet(np.ones(outputs), labels)[np.sort(generator.integers(0, labels, labels))]
    values = np.arange(float(labels)), np.arange(float(outputs)) * 2

    cells = charts.gather(*values, rows, most)

    assert cells.chances.shape == (len(cells.rows), len(cells.columns))
    assert max(cells.chances.shape) <= most
    sizes = np.outer([b - a + 1 for a, b in cells.rows], [(b - a) / 2 + 1 for a, b in cells.columns])
    assert (cells.chances * sizes).sum() == pytest.approx(labels)
    for ranges, all_values in zip((cells.rows, cells.columns), values, strict=True):
        assert ranges[0][0] == all_values[0]
        assert ranges[-1][1] == all_values[-1]


def test_labels_that_are_treated_alike_share_a_row() -> None:
    rows = np.repeat(np.array([[0.8, 0.2], [0.2, 0.8]]), [300, 101], axis=0)
    cells = charts.gather(np.arange(401.0), np.array([1.0, 2.0]), rows)

    assert cells.rows == [(0, 299), (300, 400)]
    assert cells.chances == pytest.approx(np.array([[0.8, 0.2], [0.2, 0.8]]))
    assert {"0 to 299", "300 to 400", "80%", "20%"} <= set(texts(charts.heat_map(cells, "y")))


def test_shades_grow_with_the_chances() -> None:
    cells = charts.Cells(np.array([[0.64, 0.36], [0.0, 1.0]]), [(0, 0), (1, 1)], [(0, 0), (1, 1)])
    group = next(group for group in parsed(charts.heat_map(cells, "y")).iter("g") if group.get("class") == "cell")

    drawn = {path.get("d"): float(path.get("fill-opacity") or 0) for path in group}
    # The square root of the chance; nothing for 0.
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
        charts.heat_map(charts.gather(labels, outputs, probabilities), "y"),
        charts.lines_chart(labels, [("bias", "bias", np.sin(labels))], "y", "error"),
    ]

    assert sum(map(len, drawn)) < 300_000


@settings(deadline=None)
@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 8))
def test_ticks_are_round_and_within(low: float, width: float, most: int) -> None:
    high = low + width
    if (high - low) < 1e-9 * abs(low):
        return
    ticks = charts.ticks(low, high, most)

    assert 1 <= len(ticks) <= most + 1
    slack = 1e-6 * (high - low)
    assert low - slack <= ticks[0]
    assert ticks[-1] <= high + slack
    steps = np.diff(ticks)
    if len(steps):
        leading = f"{steps[0]:.3e}"[:3]
        assert leading in ("1.0", "2.0", "5.0")
        assert steps == pytest.approx(np.full(len(steps), steps[0]), rel=1e-3)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (charts.number, 0.0, "0"),
        (charts.number, -12.3456, "\u221212.35"),
        (charts.number, 10316.7, "10,317"),
        (charts.number, 1e-12, "1e\u221212"),
        (charts.number, float("inf"), "infinite"),
        (charts.exact, 1234.5, "1234.5"),
        (charts.exact, -0.1, "\u22120.1"),
        (charts.percent, 0.7189, "71.9%"),
        (charts.percent, 1.0, "100%"),
        (charts.percent, 1 - 1e-9, "99.9+%"),
        (charts.percent, 0.0, "0%"),
    ],
)
def test_numbers_for_people(function: Any, value: float, text: str) -> None:
    assert function(value) == text
