"""`labeldp report` on classes: names, shares and probabilities, and nothing that supposes distances between classes."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("jinja2", reason="the extra evaluation is not installed")

from labeldp import LabelPrivatizer
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.class_verdict import ClassUtility
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.report.class_charts import short_names
from labeldp.report.class_summary import ClassSummary

VALUES = ("none", "<b>cold</b>", "flu & fever", "rare")
OF_NUMBERS = ("squared error", "standard deviation", "Largest bias", "mean of the released", "clamped", "True label")
ALL = "All classes, under the noisy prior"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path) -> Path:
    """Releases rr, top_k and units of a log of 4,000 records.

    With ids, the noise does not depend on the path of the log.
    """
    folder, rng = tmp_path_factory.mktemp("classes"), np.random.default_rng(5)
    places = rng.choice(4, 4000, p=[0.5, 0.35, 0.13, 0.02])
    columns = {
        "f": np.arange(4000) % 3,
        "user": np.arange(4000) // 2,
        "id": np.arange(4000),
        "ill": [VALUES[place] for place in places],
    }
    pq.write_table(pa.table(columns), folder / "log.parquet")
    flags = {
        "input": folder / "log.parquet", "input_format": "parquet", "label": "ill", "epsilon": 1, "prior_epsilon": 0.1,
        "noise_key_file": key_file, "mechanism": "rr", "id_column": "id",
    }  # fmt: skip
    classes = {"label_classes": ",".join(VALUES)}
    jobs: dict[str, dict[str, Any]] = {
        "rr": classes,
        "top_k": classes | {"mechanism": "rr_top_k"},
        "units": classes | {"unit_column": "user", "max_records_per_unit": 1},
    }
    for name, more in jobs.items():
        invoke(command("privatize", flags | more | {"output": folder / name})).ok()
    invoke(command("fit", flags | classes | {"mechanism_file": folder / "mechanism.json"})).ok()
    return folder


@pytest.fixture
def page_of(folder: Path, report_on: Any) -> Callable[[str], Any]:
    """Function (name) -> the page on a release, or on the mechanism file."""
    return lambda name: report_on(folder / name)


def channel_of(path: Path) -> np.ndarray:
    """Probabilities of each class (column) given each class (row), from the integers."""
    document = json.loads(path.read_text())
    square = np.zeros((len(document["labels"]),) * 2)
    for output, column in zip(document["outputs"], document["columns"], strict=True):
        weights = [int(weight) for weight, times in column for _ in range(times)]
        square[:, int(output)] = np.array(weights, float) / 2 ** document["bits"]
    return square


def share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@pytest.mark.parametrize("name", ["rr", "top_k", "units", "mechanism.json"])
def test_numbers_by_class_are_those_of_the_integers_and_the_histogram(
    name: str, folder: Path, page_of: Callable[[str], Any]
) -> None:
    page, path = page_of(name), folder / name if name.endswith("json") else folder / name / "mechanism.json"
    channel, prior = channel_of(path), np.array(json.loads(path.read_text())["prior"]["weights"])
    released = prior @ channel
    rows = page.tables[ALL][1:]
    assert [row[0] for row in rows] == list(VALUES)
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
    assert f"with a probability of {100 - 100 * (prior @ np.diag(channel)):.3g}%" in page.text


@pytest.mark.parametrize("name", ["rr", "top_k", "units", "mechanism.json"])
def test_nothing_supposes_distances(name: str, page_of: Callable[[str], Any]) -> None:
    page = page_of(name)
    assert [text for text in OF_NUMBERS if text in page.text] == []
    assert [row[0] for row in page.tables["Certificate"]].count("Largest bias") == 0
    guesses = next(rows for caption, rows in page.tables.items() if caption.startswith("Best label-inference attack"))
    assert [row[0] for row in guesses[1:]] == ["the class itself"]
    assert page.facts("Certificate")["Expected loss under the noisy prior"].startswith("zero_one 0.")


def test_names_of_classes_are_text(page_of: Callable[[str], Any]) -> None:
    page = page_of("rr")
    assert not {"b", "script"} & {tag for tag, _ in page.elements}
    charts = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg"]
    assert len(charts) == 4
    assert all(value in chart for value in VALUES for chart in charts)
    (details,) = (page.facts(caption) for caption in page.tables if caption.startswith("From release.json"))
    assert details["Classes"] == "4: none, <b>cold</b>, flu & fever, rare; public, declared in advance"
    assert details["Other values"] == "count as none"
    attained = page.facts("Certificate")["Attained at"]
    assert attained.startswith("class none: most likely for itself, least likely for <b>cold</b> and others")


def test_probabilities_that_are_those_of_all_classes(folder: Path, page_of: Callable[[str], Any]) -> None:
    channel = channel_of(folder / "rr" / "mechanism.json")
    kept, other = f"{100 * channel[0, 0]:.3g}%", f"{100 * channel[0, 1]:.3g}%"
    text = page_of("rr").text
    assert f"Each class is released as it is with a probability of {kept}, and as each of the 3 others with" in text
    assert f"each class is kept with a probability of {kept} and becomes each other one with {other}" in text
    assert "classes are never released" not in text


def test_classes_that_are_never_released(page_of: Callable[[str], Any]) -> None:
    page = page_of("top_k")
    assert "of 4 classes are never released: each of their records gets one of the others" in page.text
    assert "Shares cannot be corrected, because some classes are never released" in page.text
    assert "Error of a corrected share" not in page.text
    assert "never released, so no model can learn them" in page.text


def test_the_card_of_corrected_shares(folder: Path, page_of: Callable[[str], Any]) -> None:
    channel = channel_of(folder / "rr" / "mechanism.json")
    noise = (channel * (1 - channel)).max() ** 0.5 / 4000**0.5 / (channel.max() - channel.min())
    text = page_of("rr").text
    stated = re.search(r"Error of a corrected share ?\u00b1 ([\d.]+%)", text)
    assert stated is not None
    assert 0.5 * noise < share(stated[1]) <= noise * 1.005
    assert "Error of a corrected share" not in page_of("mechanism.json").text


def test_the_losses_of_models(folder: Path, page_of: Callable[[str], Any]) -> None:
    path = folder / "rr" / "mechanism.json"
    channel, prior = channel_of(path), np.array(json.loads(path.read_text())["prior"]["weights"])
    worth = ((prior @ channel**2 / (prior @ channel)).sum() - 1) / 3
    entropy = -(prior * np.log(prior)).sum()
    page = page_of("rr")
    for parameters, ratio, loss, on_true in page.tables["Loss of a model by its size"][1:]:
        records = 4000 / float(parameters.replace(",", ""))
        assert float(ratio.replace(",", "")) == pytest.approx(records, rel=1e-3)
        exact = 3 / 2 / records / entropy
        assert share(on_true) == pytest.approx(exact, rel=5e-3) if exact <= 1 else on_true == "more than all"
        assert loss == "more than all" if exact > worth else share(loss) == pytest.approx(exact / worth, rel=5e-3)
    assert re.search(rf"Worth of one released class ?{worth:.4g} ?true ones", page.text)


def test_a_release_in_memory(tmp_path: Path, key_file: Path, read_page: Any) -> None:
    labels = np.array(["yes", "no", "no", "maybe"] * 300)
    privatizer = LabelPrivatizer(
        label_classes=["yes", "no", "maybe"], epsilon=2, noise_key_file=key_file, ledger=tmp_path / "ledger.jsonl"
    )
    privatizer.fit_transform(labels)
    privatizer.report(tmp_path / "page.html")
    page = read_page((tmp_path / "page.html").read_text())
    assert [row[0] for row in page.tables[ALL][1:]] == ["yes", "no", "maybe"]
    assert "Audit passed" in page.text


def test_statistics_of_the_released_labels(folder: Path, tmp_path: Path, report_on: Any) -> None:
    pytest.importorskip("tensorflow_metadata", reason="the extra validation is not installed")
    from google.protobuf import text_format
    from labeldp.transforms.validation.tensorflow_libraries import parse_statistics

    validation = shutil.copytree(folder / "rr", tmp_path / "valid") / "validation"
    validation.mkdir()
    common = "common_stats { num_non_missing: 4000 tot_num_values: 4000 }"
    label = f'features {{ path {{ step: "ill" }} type: STRING string_stats {{ unique: 4 {common} }} }}'
    for name, features in (("feature", ""), ("output", label)):
        message = parse_statistics(b"")
        text_format.Parse(f"datasets {{ num_examples: 4000 {features} }}", message)
        (validation / f"{name}_stats.pb").write_bytes(message.SerializeToString())
    (validation / "anomalies.pbtxt").write_text("")
    page = report_on(tmp_path / "valid")
    assert "Validation" in page.headings
    assert "The mean of the released labels" not in page.text
    (rows,) = (rows for caption, rows in page.tables.items() if caption.startswith("All features, and the released"))
    assert rows[-1][:3] == ["ill", "text", "0"]


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
    assert [row.value for row in found.rows()] == [found.classes.values[place] for place in found.shown]
    assert len(found.shown) == 21
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
    assert found.losses()[0].loss == found.losses()[0].on_true == float("inf")


def test_names_are_shortened_to_fit() -> None:
    assert short_names(["a", "b"], 50) == ["a", "b"]
    one, other = short_names(["x" * 40 + "1", "x" * 40 + "2"], 60)
    assert (one[:2], other[:2], one[-1]) == ("1 ", "2 ", "…")
    assert short_names(["a\nb", "\u202ec"], 80) == ["a\ufffdb", "\ufffdc"]
