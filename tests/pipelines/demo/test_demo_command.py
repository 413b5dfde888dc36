"""`labeldp demo`: generates a log, privatizes its conversions and prints a short summary."""

import json
from pathlib import Path
from typing import Any

import pytest

CLICKS = 4000

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, invoke: Any) -> tuple[Path, Any]:
    """Output folder and outcome of the demo with 4,000 clicks."""
    folder = tmp_path_factory.mktemp("demo") / "output"
    return folder, invoke(["demo", f"--output={folder}", f"--clicks={CLICKS}", "--seed=5"]).ok()


def test_it_says_what_was_released_in_fewer_than_fifteen_lines(demo: tuple[Path, Any]) -> None:
    folder, outcome = demo
    lines = outcome.out.splitlines()

    assert len(lines) < 15
    assert lines[1].strip() == str(folder / "released")
    assert outcome.errors == []


def test_it_releases_the_conversions_of_its_log(demo: tuple[Path, Any], invoke: Any) -> None:
    from labeldp.pipelines.cli.demo_command import CONVERTED, click_batches

    folder, _ = demo
    manifest = json.loads((folder / "released" / "release.json").read_text())
    rows = CLICKS // len(list((folder / "clicks").iterdir()))
    conversions = sum(batch.column(CONVERTED).to_numpy().sum() for batch in click_batches(CLICKS, 5, rows))

    assert manifest["records"] == conversions == sum(manifest["shards"].values())
    assert manifest["epsilon"] == 1
    assert manifest["label"] == "SalesAmountInEuro"
    assert manifest["domain"] == {"min": 0.0, "max": 400.0, "labels": 401}
    assert manifest["where"] == "Sale=1"
    assert len(manifest["shards"]) == 4
    assert invoke(["audit", str(folder / "released")]).ok().out.endswith("PASS\n")


def test_its_log_is_the_generated_one(demo: tuple[Path, Any]) -> None:
    tensorflow: Any = pytest.importorskip("tensorflow")
    from labeldp.pipelines.cli.demo_command import LABEL, click_batches

    folder, _ = demo
    files = sorted(map(str, (folder / "clicks").iterdir()))
    labels = []
    for record in tensorflow.data.TFRecordDataset(files).as_numpy_iterator():
        labels.append(list(tensorflow.train.Example.FromString(record).features.feature[LABEL].float_list.value))
    generated = [
        [] if value is None else [value]
        for batch in click_batches(CLICKS, 5, CLICKS // len(files))
        for value in batch.column(LABEL).to_pylist()
    ]

    assert labels == generated
    assert len(labels) == CLICKS


def test_its_key_is_not_released(demo: tuple[Path, Any], tree: Any) -> None:
    folder, _ = demo
    key = (folder / "noise.key").read_bytes()

    assert (folder / "noise.key").stat().st_mode & 0o777 == 0o600
    assert len(key) == 32
    assert not [name for name, content in tree(folder / "released").items() if key in content]


def test_it_refuses_a_folder_that_exists(demo: tuple[Path, Any], invoke: Any, tree: Any) -> None:
    folder, _ = demo
    before = tree(folder)

    outcome = invoke(["demo", f"--output={folder}", "--clicks=10"])

    assert outcome.code == 2
    assert f"--output {folder}" in outcome.error
    assert tree(folder) == before


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--clicks=0"], "--clicks"),
        (["--clicks=many"], "--clicks"),
        (["--seed=x"], "--seed"),
        (["--seed=-1"], "--seed"),
        (["--epsilon=0"], "--epsilon"),
        (["--epsilon=nan"], "--epsilon"),
        (["--epsilon=many"], "--epsilon"),
        (["--unknown=1"], "--unknown"),
    ],
)
def test_bad_usage_leaves_no_folder(invoke: Any, tmp_path: Path, flags: list[str], named: str) -> None:
    outcome = invoke(["demo", f"--output={tmp_path / 'output'}", "--clicks=100", *flags])

    assert outcome.code == 2
    assert named in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_the_output_is_needed(invoke: Any) -> None:
    outcome = invoke(["demo"])

    assert outcome.code == 2
    assert "--output" in outcome.error
