"""`labeldp report` on classes: figures are those of the integers and the histogram, and names are text."""

import re
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.class_utility import ClassUtility
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.report.class_summary import ClassSummary

from .release_states import NAMES

pytestmark = pytest.mark.xdist_group("states")


def share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@pytest.mark.parametrize("name", ["classes", "classes by rr", "top k", "classes of units", "class of missing labels"])
def test_numbers_by_class_are_those_of_the_integers_and_the_histogram(name: str, shown: Any) -> None:
    found = shown(name)
    channel, prior = found.channel, found.prior
    released = prior @ channel
    rows = found.page.tables["All classes, under the noisy prior"][1:]
    assert [row[0] for row in rows] == list(found.privatizer.classes_.values)
    for place, (_, *texts) in enumerate(rows):
        others = np.delete(channel[place], place).max()
        assert [share(text) for text in texts[:4]] == pytest.approx(
            [prior[place], released[place], channel[place, place], others], rel=5e-3
        )
        if released[place]:
            right = prior[place] * channel[place, place] / released[place]
            assert share(texts[4]) == pytest.approx(right, rel=5e-3)
        else:
            assert texts[4] == "never released"
    assert f"with a probability of {100 - 100 * (prior @ np.diag(channel)):.3g}%" in found.page.text


def test_names_of_classes_are_text(shown: Any) -> None:
    charts = [attributes["aria-label"] for tag, attributes in shown("classes by rr").page.elements if tag == "svg"]
    assert len(charts) == 3
    assert all(value in chart for value in NAMES[:3] for chart in charts)


def test_the_card_of_corrected_shares(shown: Any) -> None:
    found = shown("classes by rr")
    channel = found.channel
    noise = (channel * (1 - channel)).max() ** 0.5 / 4000**0.5 / (channel.max() - channel.min())
    stated = re.search(r"Error of a corrected share ?\u00b1 ([\d.]+%)", found.page.text)
    assert stated is not None
    assert 0.5 * noise < share(stated[1]) <= noise * 1.005
    assert "Error of a corrected share" not in found.pages[0].text


def test_the_losses_of_models(shown: Any) -> None:
    found = shown("classes by rr")
    page, channel, prior = found.page, found.channel, found.prior
    worth = ((prior @ channel**2 / (prior @ channel)).sum() - 1) / 3
    entropy = -(prior * np.log(prior)).sum()
    for parameters, ratio, loss, on_true in page.tables["Loss of a model by its size"][1:]:
        records = 4000 / float(parameters.replace(",", ""))
        assert float(ratio.replace(",", "")) == pytest.approx(records, rel=1e-3)
        exact = 3 / 2 / records / entropy
        assert share(on_true) == pytest.approx(exact, rel=5e-3) if exact <= 1 else on_true == "more than all"
        assert loss == "more than all" if exact > worth else share(loss) == pytest.approx(exact / worth, rel=5e-3)
    assert re.search(rf"Worth of one released class ?{worth:.4g} ?true ones", page.text)


# Many classes, and two.


def summary(weights: list[float], epsilon: float, values: list[str], name: str = "rr") -> ClassSummary:
    prior = Prior(np.arange(float(len(weights))), np.array(weights))
    utility = ClassUtility(solve(name, prior, epsilon), prior)
    return ClassSummary(LabelClasses(tuple(values)), utility, 10_000, 2)


def test_of_many_classes_the_most_frequent_are_shown() -> None:
    weights = [1.0] * 500
    weights[7], weights[400] = 9.0, 5.0
    found = summary(weights, 3.0, [f"class whose name has the number {place}" for place in range(500)])
    assert found.drawn == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 400]
    rows = found.by_class().rows
    assert len(rows) == 21
    assert {row[0] for row in rows} > {found.classes.values[place] for place in found.drawn}
    charts = found.charts("label")
    assert sum(map(len, charts.values())) < 100_000
    # Names that are equal when they are shortened have numbers.
    assert re.search(">8 class [^<]*\u2026</text>", charts["shares"])
    assert ">1</text>" in charts["channel"]


def test_short_names_of_classes_are_those_of_columns() -> None:
    found = summary([1.0] * 12, 3.0, [f"{place}" for place in range(40, 52)]).charts("label")["channel"]
    assert [found.count(f">{place}</text>") for place in range(40, 52)] == [2] * 12  # of a row and of a column


def test_charts_of_extreme_probabilities() -> None:
    for weights, epsilon in (([1.0, 0.0], 1.0), ([1.0, 1.0], 0.001), ([0.999999, 0.000001], 25.0)):
        charts = summary(weights, epsilon, ["a", "b\n"]).charts("label")
        assert all("nan" not in chart for chart in charts.values())


def test_a_single_class_and_no_information() -> None:
    found = summary([1.0, 0.0, 0.0], 1.0, ["a", "b", "c"])
    assert found.utility.worth == 0
    assert found.losses().rows[0][-2:] == ["more than all"] * 2
