"""`labeldp report` on classes drawn from a center: what was noised, what it knows, and no randomized response."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("jinja2", reason="the extra evaluation is not installed")

from labeldp import LabelPrivatizer
from labeldp.mechanisms.center.class_center import ClassCenter, ReleasedClassCells
from labeldp.mechanisms.center.class_model import ClassModel
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.report.center_charts import Group, Strip, groups_chart, strips_chart
from labeldp.report.center_summary import CenterSummary
from labeldp.report.class_charts import Bars, bars_chart

ROWS = 4000
VALUES = ("none", "<b>cold</b>", "a very long name of a class which no chart has the space for")
OF_RANDOMIZED = (
    "Released class is the true one", "Worth of one released class", "corrected for the noise", "Largest bias",
    "Error of a corrected share", "noisy prior", "Needs none", "clamped",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path) -> Path:
    """Releases 4,000 records around a center, the same with units, and a mechanism file."""
    folder, rng = tmp_path_factory.mktemp("center"), np.random.default_rng(5)
    feature, other = rng.normal(size=ROWS), rng.integers(0, 3, ROWS)
    places = np.searchsorted([0.6, 2.0], feature + (other == 1) + rng.normal(0, 0.5, ROWS))
    columns = {"id": np.arange(ROWS), "<i>f</i>": feature, "g": other, "user": np.arange(ROWS) // 2}
    columns |= {"ill": [VALUES[place] for place in places]}
    pq.write_table(pa.table(columns), folder / "log.parquet")
    (folder / "classes.txt").write_text("\n".join(VALUES))
    flags = {
        "input": folder / "log.parquet", "input_format": "parquet", "epsilon": 2, "noise_key_file": key_file,
        "id_column": "id", "for": "models",
    }  # fmt: skip
    classes = {"label": "ill", "label_classes": folder / "classes.txt", "center_features": "<i>f</i>,g"}
    jobs: dict[str, dict[str, Any]] = {
        "drawn": classes,
        "units": classes | {"unit_column": "user", "max_records_per_unit": 2},
    }
    for name, more in jobs.items():
        invoke(command("privatize", flags | more | {"output": folder / name})).ok()
    invoke(command("fit", flags | classes | {"mechanism_file": folder / "mechanism.json"})).ok()
    return folder


@pytest.fixture
def page_of(folder: Path, report_on: Any) -> Callable[[str], Any]:
    """Function (name) -> the page on a release, or on the mechanism file."""
    return lambda name: report_on(folder / name)


@pytest.fixture(scope="module")
def model(folder: Path) -> ClassModel:
    return ClassModel.from_json((folder / "drawn" / "center.json").read_text())


def table_of(page: Any, beginning: str) -> list[list[str]]:
    (rows,) = (rows for caption, rows in page.tables.items() if caption.startswith(beginning))
    return rows


def share(text: str) -> float:
    return float(text.removesuffix("%").replace("\u2212", "-")) / 100


@pytest.mark.parametrize("name", ["drawn", "units", "mechanism.json"])
def test_no_fact_of_randomized_labels(name: str, page_of: Callable[[str], Any]) -> None:
    page = page_of(name)
    assert [text for text in OF_RANDOMIZED if text in page.text] == []
    assert "Audit passed" in page.text
    assert "Verdict: the center is the model" in page.text
    assert "Validating models." in page.text
    assert "rows = soft_rows(features, probabilities)" in page.text
    assert not {"i", "script"} & {tag for tag, _ in page.elements}


@pytest.mark.parametrize(("name", "times"), [("drawn", 1), ("units", 2), ("mechanism.json", 1)])
def test_parts_of_the_budget(name: str, times: int, folder: Path, page_of: Callable[[str], Any]) -> None:
    path = folder / name if name.endswith("json") else folder / name / "mechanism.json"
    center = json.loads(path.read_text())["class_center"]["center"]
    spent = [center["budget"]["counts"], center["linear"]["epsilon"], center["cells"]["epsilon"]]
    rows = table_of(page_of(name), "Privacy budget")[1:]
    assert [row[0] for row in rows] == ["histogram", "class sums", "class cells", "total"]
    for epsilon, (_, stated, *rest) in zip(spent, rows, strict=False):
        assert float(stated) == pytest.approx(epsilon, rel=1e-3)
        if times > 1:
            assert float(rest.pop(0)) == pytest.approx(times * epsilon, rel=1e-3)
    size, cells = len(center["linear"]["weights"][0]) + 1, len(center["cells"]["counts"])
    numbers = [int(row[-3].replace(",", "")) for row in rows[:3]]
    assert numbers == [3, 3 * size, 3 * cells]
    scales = [float(row[-2]) for row in rows[:3]]
    moved = [2, center["linear"]["norm"] / 256, 1]
    assert scales == pytest.approx([most / epsilon for most, epsilon in zip(moved, spent, strict=True)], rel=1e-3)
    assert float(rows[3][times if times > 1 else 1]) == pytest.approx(times * sum(spent), rel=1e-3)


def test_numbers_by_class(folder: Path, model: ClassModel, page_of: Callable[[str], Any]) -> None:
    page = page_of("drawn")
    log = pq.read_table(folder / "drawn" / "data")
    probabilities = np.array(log["ill_probabilities"].to_pylist())
    rows = table_of(page, "All classes")[1:]
    assert [row[0] for row in rows] == list(VALUES)
    for place, (_, noised, error, mean, low, high) in enumerate(rows):
        own = probabilities[:, place]
        assert share(noised) == pytest.approx(model.center.counts[place] / ROWS, rel=5e-3)
        # Discrete Laplace noise of scale 2 / epsilon.
        assert share(error) == pytest.approx(8**0.5 / model.center.budget.counts / ROWS, rel=5e-3)
        # The sample is all records here; its rows are rounded.
        assert share(mean) == pytest.approx(own.mean(), abs=2e-3)
        assert [share(low), share(high)] == pytest.approx(np.quantile(own, (0.05, 0.95)), abs=0.03)
    entropy = -(probabilities * np.log(probabilities)).sum(axis=1).mean()
    means = probabilities.mean(axis=0)
    told = 1 - entropy / -(means * np.log(means)).sum()
    stated = page.text.split("What features tell of the class")[1].split("%")[0]
    assert float(stated) / 100 == pytest.approx(told, abs=0.01)


def test_bounds_on_label_inference(model: ClassModel, page_of: Callable[[str], Any]) -> None:
    (shares, anything) = table_of(page_of("drawn"), "Label inference")[1:]
    likeliest = max(model.center.shares)
    odds = likeliest / (1 - likeliest) * math.exp(model.epsilon)
    assert share(shares[1]) == pytest.approx(likeliest, rel=5e-3)
    assert share(shares[2]) == pytest.approx(odds / (1 + odds) - likeliest, rel=1e-2)
    assert share(anything[2]) == pytest.approx(math.tanh(model.epsilon / 4), rel=5e-3)


def test_names_of_classes_and_features_are_text(page_of: Callable[[str], Any]) -> None:
    page = page_of("drawn")
    charts = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg"]
    assert len(charts) == 3
    assert all(value in chart for value in VALUES for chart in charts[:2])
    details = dict(table_of(page, "From release.json"))
    assert details["Classes"].startswith("3: none, <b>cold</b>, a very long")
    assert details["Center"] == "probabilities in the column ill_probabilities, from 2 features: <i>f</i>, g"


def test_the_ledger_knows_the_center(page_of: Callable[[str], Any]) -> None:
    page = page_of("drawn")
    marked = [row[3] for row in table_of(page, "All runs") if "(this release)" in row[3]]
    # The mechanism file has the same center: its noise is bound to the same labels and request.
    assert marked == ["drawn (this release)", "mechanism.json (this release)"]
    assert "This ledger does not contain" not in page.text
    assert "Released on " in page.text
    assert "This ledger does not contain" not in page_of("mechanism.json").text


def test_the_certificate(model: ClassModel, folder: Path, page_of: Callable[[str], Any]) -> None:
    facts = page_of("drawn").facts("Certificate")
    assert facts["\u03b5 of the center"] == repr(model.epsilon)
    manifest = json.loads((folder / "drawn" / "release.json").read_text())
    assert facts["Fingerprint of the center"] == manifest["class_center"]["fingerprint"]
    assert facts["Likelihood ratio of the draws"].startswith("1: they do not depend on true classes")


@pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
def test_a_release_in_memory(tmp_path: Path, key_file: Path, read_page: Any) -> None:
    rng = np.random.default_rng(1)
    feature = rng.normal(size=2000)
    labels = np.where(feature + rng.normal(0, 0.5, 2000) > 1.5, "yes", "no")
    privatizer = LabelPrivatizer(
        label_classes=["no", "yes"], epsilon=1, noise_key_file=key_file, ledger=tmp_path / "ledger.jsonl"
    )
    privatizer.fit_transform(labels, features={"f": feature})
    privatizer.report(tmp_path / "page.html")
    page = read_page((tmp_path / "page.html").read_text())
    assert [row[0] for row in table_of(page, "All classes")[1:]] == ["no", "yes"]
    assert "Audit passed" in page.text


# Centers without sums or cells, and many classes.


def test_a_center_without_cells(model: ClassModel) -> None:
    found = summary(replace(model.center, cells=None))
    assert (found.cells, found.trees, [*found.charts("ill")]) == (0, 0, ["shares", "strips"])
    assert [part.name for part in found.center.parts] == ["histogram", "class sums"]
    assert 0 < found.told < 1


def test_a_center_that_knows_the_shares_alone(model: ClassModel) -> None:
    linear = model.center.linear
    design = replace(linear.design, epsilon=0.0)
    found = summary(replace(model.center, cells=None, linear=type(linear).fit(design, ())))
    assert [part.name for part in found.center.parts] == ["histogram"]
    assert found.told == pytest.approx(0, abs=1e-12)
    assert all(row.low == row.mean == row.high for row in found.rows())
    assert all("nan" not in chart for chart in found.charts("ill").values())


def summary(center: ClassCenter) -> CenterSummary:
    return CenterSummary(LabelClasses(VALUES[: len(center.counts)]), "p", center)


def test_noised_counts_below_zero(model: ClassModel) -> None:
    found = summary(replace(model.center, counts=np.array([ROWS + 50, -60, 10])))
    assert found.rows()[1].share == -60 / ROWS
    assert "\u22121.5% \u00b1" in found.charts("ill")["shares"]


def test_groups_of_cells_add_up_to_their_counts(model: ClassModel) -> None:
    found, cells = summary(model.center), model.center.cells
    assert isinstance(cells, ReleasedClassCells)
    chart = found.charts("ill")["cells"]
    assert chart.count("<circle") == 10
    place = VALUES.index(found.telling)
    shares = [float(text.split("%")[0]) for text in chart.split('aria-label="')[1].split('"')[0].split("share ")[1:]]
    assert np.mean(shares) == pytest.approx(100 * cells.counts[:, place].sum() / ROWS, abs=2)


def test_charts_of_extreme_probabilities() -> None:
    flat = Strip(1e-5, (1e-5,) * 5)
    for strips in ([flat, Strip(1 - 1e-5, (1 - 1e-5,) * 5)], [flat, flat], [Strip(0.5, (0, 0.2, 0.4, 0.8, 1.0))] * 12):
        chart = strips_chart([f"class {place}" for place in range(len(strips))], strips, "x", "y", "title")
        assert "nan" not in chart
        assert chart.count('class="median"') == len(strips)
    for groups in ([Group(1e-5, 0.0, 1e-6)], [Group(0.2, -0.4, 0.3), Group(0.9, 1.2, 0.5)]):
        assert "nan" not in groups_chart(groups, "x", "y", "title")


def test_bars_with_errors() -> None:
    bars = [Bars("prior", "noised", [0.5, -0.01], [0.02, 0.02]), Bars("output", "exact", [0.4, 0.0])]
    chart = bars_chart(["a", "b"], bars, "x", "y", "title")
    assert chart.count('class="whisker"') == 2
    assert ">50% \u00b1 2%<" in chart
    assert ">40%<" in chart
    assert chart.count("<rect") == 4  # two of the legend, and those of values above 0


def test_the_column_of_probabilities_is_new(folder: Path, tmp_path: Path, report_on: Any) -> None:
    pytest.importorskip("tensorflow_metadata", reason="the extra validation is not installed")
    from google.protobuf import text_format
    from labeldp.transforms.validation.tensorflow_libraries import parse_statistics

    validation = shutil.copytree(folder / "drawn", tmp_path / "valid") / "validation"
    validation.mkdir()
    common = "common_stats { num_non_missing: 4000 tot_num_values: 4000 }"
    number = f"num_stats {{ mean: 0.5 max: 1 {common} }}"
    feature = f'features {{ path {{ step: "g" }} type: INT {number} }}'
    added = f'features {{ path {{ step: "ill_probabilities" }} type: FLOAT {number} }}'
    label = f'features {{ path {{ step: "ill" }} type: STRING string_stats {{ unique: 3 {common} }} }}'
    for name, features in (("feature", feature), ("output", feature + added + label)):
        message = parse_statistics(b"")
        text_format.Parse(f"datasets {{ num_examples: 4000 {features} }}", message)
        (validation / f"{name}_stats.pb").write_bytes(message.SerializeToString())
    (validation / "anomalies.pbtxt").write_text("")
    page = report_on(tmp_path / "valid")
    rows = table_of(page, "All features, and the released")[1:]
    assert [(row[0], row[-1]) for row in rows] == [("g", "same"), ("ill_probabilities", "new"), ("ill", "private")]
    assert "The features are unchanged." in page.text
