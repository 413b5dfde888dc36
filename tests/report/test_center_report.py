"""`labeldp report` on classes drawn from a center: figures computed from the center a second time."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.center.class_center import ClassCenter, ReleasedClassCells
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.report.center_summary import CenterSummary

from .release_states import NAMES, STATES

pytestmark = pytest.mark.xdist_group("states")
STATE = "center of classes"
ROWS = STATES[STATE].rows


@pytest.fixture(scope="module")
def center(shown: Any) -> ClassCenter:
    return shown(STATE).privatizer.mechanism_.drawing.made


def table_of(page: Any, beginning: str) -> list[list[str]]:
    (rows,) = (rows for caption, rows in page.tables.items() if caption.startswith(beginning))
    return rows


def share(text: str) -> float:
    return float(text.removesuffix("%").replace("\u2212", "-")) / 100


@pytest.mark.parametrize(("name", "times"), [(STATE, 1), ("center of classes of units", 2)])
def test_parts_of_the_budget(name: str, times: int, shown: Any) -> None:
    found = shown(name)
    center = found.document["class_center"]["center"]
    linear, cells, classes = center["linear"], center["cells"], len(center["counts"])
    parts = [("histogram", center["budget"]["counts"], classes, 2)]
    if linear["epsilon"]:
        size = len(linear["weights"][0]) + 1
        parts.append(("class sums", linear["epsilon"], classes * size, linear["norm"] / 256))
    if cells is not None:
        parts.append(("class cells", cells["epsilon"], classes * len(cells["counts"]), 1))
    *rows, total = table_of(found.page, "Privacy budget")[1:]
    for (part, epsilon, numbers, moved), (title, *stated) in zip(parts, rows, strict=True):
        assert title == part
        expected = [epsilon, *([times * epsilon] if times > 1 else [])]
        assert [float(each) for each in stated[: len(expected)]] == pytest.approx(expected, rel=1e-3)
        assert int(stated[-3].replace(",", "")) == numbers
        assert float(stated[-2]) == pytest.approx(moved / epsilon, rel=1e-3)
    assert float(total[times]) == pytest.approx(times * sum(epsilon for _, epsilon, _, _ in parts), rel=1e-3)


def test_numbers_by_class(center: ClassCenter, shown: Any) -> None:
    page, probabilities = shown(STATE).page, shown(STATE).privatizer.center_
    rows = table_of(page, "All classes")[1:]
    assert [row[0] for row in rows] == list(NAMES[:3])
    for place, (_, noised, error, mean, low, high) in enumerate(rows):
        own = probabilities[:, place]
        assert share(noised) == pytest.approx(center.counts[place] / ROWS, rel=5e-3)
        # Discrete Laplace noise of scale 2 / epsilon.
        assert share(error) == pytest.approx(8**0.5 / center.budget.counts / ROWS, rel=5e-3)
        # The sample is all records here; its rows are rounded.
        assert share(mean) == pytest.approx(own.mean(), abs=2e-3)
        assert [share(low), share(high)] == pytest.approx(np.quantile(own, (0.05, 0.95)), abs=0.03)
    entropy = -(probabilities * np.log(probabilities)).sum(axis=1).mean()
    means = probabilities.mean(axis=0)
    told = 1 - entropy / -(means * np.log(means)).sum()
    stated = page.text.split("What features tell of the class")[1].split("%")[0]
    assert float(stated) / 100 == pytest.approx(told, abs=0.01)


def test_bounds_on_label_inference(center: ClassCenter, shown: Any) -> None:
    epsilon = shown(STATE).privatizer.mechanism_.center_epsilon
    (shares, anything) = table_of(shown(STATE).page, "Label inference")[1:]
    likeliest = max(center.shares)
    odds = likeliest / (1 - likeliest) * math.exp(epsilon)
    assert share(shares[1]) == pytest.approx(likeliest, rel=5e-3)
    assert share(shares[2]) == pytest.approx(odds / (1 + odds) - likeliest, rel=1e-2)
    assert share(anything[2]) == pytest.approx(math.tanh(epsilon / 4), rel=5e-3)


def test_names_of_classes_are_text(shown: Any) -> None:
    page = shown(STATE).page
    charts = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg"]
    assert len(charts) == 2
    assert all(value in charts[0] for value in NAMES[:3])


# Centers without sums or cells, and many classes.


def test_a_center_without_cells(center: ClassCenter) -> None:
    found = summary(replace(center, cells=None))
    assert (found.cells, found.trees, [*found.charts("ill")]) == (0, 0, ["shares"])
    assert [part.name for part in found.center.parts] == ["histogram", "class sums"]
    assert 0 < found.told < 1


def test_a_center_that_knows_the_shares_alone(center: ClassCenter) -> None:
    linear = center.linear
    design = replace(linear.design, epsilon=0.0)
    found = summary(replace(center, cells=None, linear=type(linear).fit(design, ())))
    assert [part.name for part in found.center.parts] == ["histogram"]
    assert found.told == pytest.approx(0, abs=1e-12)
    assert all(len(set(row[-3:])) == 1 for row in found.by_class().rows)
    assert all("nan" not in chart for chart in found.charts("ill").values())


def summary(center: ClassCenter) -> CenterSummary:
    return CenterSummary(LabelClasses(NAMES[: len(center.counts)]), "p", center)


def test_noised_counts_below_zero(center: ClassCenter) -> None:
    found = summary(replace(center, counts=np.array([ROWS + 50, -60, 10])))
    assert found.by_class().rows[1][1] == "\u22121%"
    assert ">\u22121%<" in found.charts("ill")["shares"]


def test_groups_of_cells_add_up_to_their_counts(center: ClassCenter) -> None:
    found, cells = summary(center), center.cells
    assert isinstance(cells, ReleasedClassCells)
    groups = found.groups(cells)
    assert len(groups) == 10
    place = NAMES.index(found.telling)
    expected = cells.counts[:, place].sum() / ROWS
    assert np.mean([noised for _, noised, _ in groups]) == pytest.approx(expected, abs=0.02)
    assert 'class="band"' in found.charts("ill")["cells"]
