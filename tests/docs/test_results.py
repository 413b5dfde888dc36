"""Scripts behind docs/results: data sets are as described, the command accepts the flags, tables are current."""

import gzip
import importlib
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "results"

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


def _module(name: str) -> ModuleType:
    """Imports one of the scripts, which import each other by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def prepared(data_sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Working folder with the data sets."""
    work = tmp_path_factory.mktemp("work")
    _module("prepare").prepare(str(data_sets), str(work / "data"))
    # The package that has these is not in the lock.
    for name in _module("prepare").FURTHER:
        pd.DataFrame({"x": [0.5, 1.5], _labels()[name]: [1.0, 2.0]}).to_csv(work / "data" / f"{name}.csv", index=False)
    return work


def _labels() -> dict[str, str]:
    """Label column of each data set."""
    return {run["data"]: run["label"] for run in _module("run").RUNS.values()}


@pytest.mark.parametrize(
    ("name", "label", "records", "columns", "mean", "bounds"),
    [
        ("census_0_52", "work", 254_654, 8, 19.018, (0, 52)),
        ("census_1_52", "work", 134_513, 8, 36.004, (1, 52)),
        ("housing", "value", 20_640, 9, 2.0686, (0.14999, 5.00001)),
        ("communities", "ViolentCrimesPerPop", 1_994, 101, 0.23798, (0, 1)),
    ],
)
def test_data_sets_are_as_the_papers_describe_them(
    prepared: Path, name: str, label: str, records: int, columns: int, mean: float, bounds: tuple[float, float]
) -> None:
    table = pd.read_csv(prepared / "data" / f"{name}.csv")

    assert table.shape == (records, columns)
    assert table[label].mean() == pytest.approx(mean, rel=1e-4)
    assert (table[label].min(), table[label].max()) == bounds
    assert all(table[column].notna().any() for column in table.columns)


def test_images_become_their_principal_components(tmp_path: Path) -> None:
    """The differences of 30 images are all in 29 of them."""
    prepare = _module("prepare")
    with pytest.raises(SystemExit, match=r"fashion-mnist is missing: .* dpkg -x"):
        prepare.prepare_fashion(str(tmp_path), str(tmp_path / "data"))
    (tmp_path / "fashion-mnist").mkdir()
    images = np.random.default_rng(1).integers(0, 256, (30, 784), np.uint8)
    classes = np.arange(30, dtype=np.uint8) % 10
    for part, rows in (("train", slice(20)), ("t10k", slice(20, None))):
        for kind, header, values in (("images-idx3", 16, images), ("labels-idx1", 8, classes)):
            path = tmp_path / "fashion-mnist" / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(bytes(header) + values[rows].tobytes()))
    prepare.prepare_fashion(str(tmp_path), str(tmp_path / "data"))
    table = pd.read_csv(tmp_path / "data" / "fashion.csv")

    assert table.pop("class").tolist() == classes.tolist()
    assert table.shape == (30, prepare.COMPONENTS)
    between, expected = (np.linalg.norm(each - each[0], axis=1) for each in (table.to_numpy(), images / 255))
    np.testing.assert_allclose(between, expected, atol=0.01)


@pytest.mark.parametrize("name", sorted(_module("run").RUNS))
def test_every_evaluation_is_one_that_the_command_accepts(prepared: Path, name: str) -> None:
    from labeldp.pipelines.cli.commands import parse
    from labeldp.study.evaluate_command import parse_evaluation

    args, _ = parse(_module("run").command(name, prepared))
    task, cells = parse_evaluation(args)

    assert args.command == "evaluate"
    assert len(task.domain) in (11, 51, 52, 53, 101, 161, 201)
    assert len({cell.seed for cell in cells}) >= 3


@pytest.mark.parametrize(
    ("name", "cell"), [("communities", "RPWithPrior,0.5,0.0544,0.0065"), ("housing", "Unbiased,0.8,1.42420,0.0700")]
)
def test_published_figures_are_whole(name: str, cell: str) -> None:
    from labeldp.study.evaluation_results import read_published

    path = FOLDER / f"{name}_published.csv"
    found = read_published(str(path))

    assert len({(each.mechanism, each.epsilon) for each in found}) == len(found) == 6 * 12
    assert {each.epsilon for each in found} == set(_module("run").PUBLISHED_EPSILONS)
    assert cell in path.read_text().splitlines()


def test_the_tables_of_the_page_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generating the tables again changes nothing."""
    for path in FOLDER.iterdir():
        if path.suffix in (".csv", ".md"):
            shutil.copy(path, tmp_path)
    summary = _module("summary")
    monkeypatch.setattr(summary, "HERE", tmp_path)
    summary.main()

    assert (tmp_path / "README.md").read_text() == (FOLDER / "README.md").read_text()


@pytest.mark.parametrize(
    ("script", "kind", "name"),
    [("expect", "Loss", "expect"), ("rival", "Trial", "rival"), ("late_labels", "Score", "late_labels"),
     ("class_results", "Score", "classes_fashion"), ("fit_known", "Row", "fit_known"),
     ("log_features", "Row", "log_features"),
     ("fit_table", "Row", "fit_table"), ("fit_table", "Row", "fit_fresh")],
)  # fmt: skip
def test_rows_are_read_as_they_are_written(
    script: str, kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, rows_class = _module("summary"), getattr(_module(script), kind)
    rows = summary.read_rows(name, rows_class)
    monkeypatch.setattr(summary, "HERE", tmp_path)
    assert summary.read_rows(name, rows_class) == []
    summary.write_rows(name, rows, rows_class)

    assert (tmp_path / f"{name}.csv").read_bytes() == (FOLDER / f"{name}.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "runs"), [("communities", ("communities", "communities_coarse")), ("housing", ("housing",))]
)
def test_our_best_is_below_the_published_best_at_every_epsilon(name: str, runs: tuple[str, ...]) -> None:
    summary = _module("summary")
    ours, theirs = summary.read(*runs), summary.published(name)
    for epsilon in _module("run").PUBLISHED_EPSILONS:
        best = min(result.loss for result in ours if result.epsilon == epsilon)
        assert best < min(result.loss for result in theirs if result.epsilon == epsilon), epsilon


def test_the_tables_of_what_to_expect_are_those_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generating the tables again changes nothing."""
    expect = _module("expect")
    page = FOLDER.parent / "expect.md"
    shutil.copy(page, tmp_path)
    monkeypatch.setattr(expect, "PAGE", tmp_path / "expect.md")
    rows = _module("summary").read_rows("expect", expect.Loss)
    expect.write_page(rows)

    assert (tmp_path / "expect.md").read_text() == page.read_text()
    assert {row.records for row in rows} == set(expect.RECORDS)


def test_the_headline_is_what_its_command_gave() -> None:
    """The table of the first page is that of its file, and better than figures of the papers."""
    page = (FOLDER.parents[1] / "README.md").read_text()
    table = re.search(r"<!-- headline -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    known, summary = _module("fit_known"), _module("summary")
    rows = summary.read_rows("fit_known", known.Row)
    assert table is not None
    assert table[1] == known.summary(rows)
    best = re.search(r"best published figure for housing at epsilon 1 is (\d\.\d+)", " ".join(page.split()))
    assert best is not None
    published = min(result.loss for result in summary.published("housing") if result.epsilon == 1)
    assert best[1] == f"{published:.2f}"
