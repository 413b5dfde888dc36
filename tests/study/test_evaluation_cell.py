"""A cell privatizes labels as `labeldp privatize` does, and its metrics agree with an independent computation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms import MECHANISMS, Randomizer
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.release.drawing import DRAWN_BY_CENTER
from labeldp.study.dataset import Dataset, read_dataset
from labeldp.study.evaluation_cell import (
    CELL_CENTER,
    CLEAN,
    MEAN_PREDICTOR,
    Cell,
    Task,
    label_of,
    privatize_labels,
    score_cell,
    seed_secret,
)
from labeldp.transforms import Format

from tests.commands import write_key

RECORDS = 1200
TASK = Task("y", tuple(float(label) for label in range(11)))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Labels in 0..10, between the grid labels, that depend on the first of three features."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(RECORDS, 3))
    labels = np.clip(5 + 2 * features[:, 0] + rng.normal(size=RECORDS), 0, 10).round(2)
    return Dataset.from_arrays(["a", "b", "c"], features, labels)


@pytest.mark.parametrize("mechanism", ["unbiased", "rr_on_bins", "bias_limited:bias=0.2"])
def test_labels_are_those_that_the_command_releases(
    dataset: Dataset, mechanism: str, tmp_path: Path, invoke: Any, command: Callable[..., list[str]]
) -> None:
    seed, path = 3, tmp_path / "log.parquet"
    pq.write_table(pa.table({"y": dataset.labels}), path)
    key = write_key(tmp_path / "noise.key", seed_secret(seed))
    flags = {
        "input": path, "input_format": "parquet", "label": "y", "label_min": 0, "label_max": 10, "label_step": 1,
        "epsilon": 1.5, "mechanism": mechanism, "noise_key_file": key,
        "output": tmp_path / "released", "output_format": "parquet",
    }  # fmt: skip
    invoke(command("privatize", flags)).ok()

    found = privatize_labels(Cell(mechanism, 1.5, seed, "linear"), TASK, dataset, str(path))

    released = pq.read_table(tmp_path / "released" / "data").column("y").to_numpy()
    np.testing.assert_array_equal(found.outputs, released)
    text = (tmp_path / "released" / "mechanism.json").read_text()
    assert Randomizer.from_json(text).fingerprint == found.drawing.randomizer.fingerprint


@pytest.mark.parametrize("mechanism", ["rr", "rr_top_k", DRAWN_BY_CENTER])
def test_classes_are_those_that_the_command_releases(
    mechanism: str, tmp_path: Path, invoke: Any, command: Callable[..., list[str]]
) -> None:
    rng, path, names = np.random.default_rng(4), tmp_path / "log.parquet", ("no", "click", "buy")
    x, classes = rng.normal(size=3000), LabelClasses(names)
    places = np.clip(np.round(1 + x + 0.3 * rng.normal(size=3000)), 0, 2).astype(int)
    log = {"x": x, "text": np.array(["u", "v"])[(rng.random(3000) < 0.5).astype(int)], "y": np.array(names)[places]}
    pq.write_table(pa.table(log), path)
    center = CELL_CENTER if mechanism == DRAWN_BY_CENTER else None
    cell, task = Cell(mechanism, 1.5, 3, "linear", center), Task("y", classes.domain, "zero_one", classes=classes)
    how: dict[str, Any] = {"mechanism": mechanism, "center": "none"}
    if center is not None:
        how = {"center": center, "center_column": label_of(cell, task).column.center}
    flags = {
        "input": path, "input_format": "parquet", "label": "y", "label_classes": ",".join(names), "epsilon": 1.5, **how,
        "noise_key_file": write_key(tmp_path / "noise.key", seed_secret(3)), "output": tmp_path / "released",
        "output_format": "parquet",
    }  # fmt: skip
    invoke(command("privatize", flags)).ok()

    dataset = read_dataset(str(path), Format("parquet", classes={"y": classes}), "y")
    found = privatize_labels(cell, task, dataset, str(path))
    released = pq.read_table(tmp_path / "released" / "data")

    np.testing.assert_array_equal(np.array(names)[found.outputs.astype(int)], released.column("y").to_numpy())
    text = (tmp_path / "released" / "mechanism.json").read_text()
    if center is None:
        assert Randomizer.from_json(text).fingerprint == found.drawing.randomizer.fingerprint
    else:
        shares = np.array(released.column(how["center_column"]).to_pylist(), np.float32)
        np.testing.assert_array_equal(np.array(found.center_of(dataset.columns, dataset.center), np.float32), shares)


def test_the_errors_are_those_of_the_privatized_labels(dataset: Dataset) -> None:
    cell = Cell("rr_on_bins", 1.0, 2, "linear")
    found = score_cell(cell, TASK, dataset)
    training = dataset.part(dataset.split(2)[0])
    privatized, truth = privatize_labels(cell, TASK, training), training.labels
    randomizer = privatized.drawing.randomizer
    means = randomizer.probabilities() @ randomizer.outputs - np.array(TASK.domain)

    assert found.mechanism_error == pytest.approx(np.mean((privatized.outputs - truth) ** 2))
    assert found.bias == pytest.approx(np.mean(privatized.outputs - truth))
    assert found.rms_bias == pytest.approx(np.sqrt(np.mean(np.interp(truth, TASK.domain, means) ** 2)))


def test_unbiased_labels_have_no_bias(dataset: Dataset) -> None:
    """The mean error is within six standard errors of 0; rounding to the label grid adds no bias."""
    found = score_cell(Cell("unbiased", 2.0, 1, "linear"), TASK, dataset)

    assert found.bias is not None
    assert found.mechanism_error is not None
    assert abs(found.bias) <= 6 * np.sqrt(found.mechanism_error / (RECORDS * 0.8))
    assert found.rms_bias == pytest.approx(0, abs=1e-9)


def test_the_mean_predictor_is_the_mean_of_the_training_labels(dataset: Dataset) -> None:
    found = score_cell(Cell(MEAN_PREDICTOR, None, 4, MEAN_PREDICTOR), TASK, dataset)
    train, test = dataset.split(4)

    expected = np.mean((dataset.labels[test] - dataset.labels[train].mean()) ** 2)
    assert found.test_loss == pytest.approx(expected)
    assert found.mechanism_error is None


def test_labels_outside_the_domain_are_clamped_everywhere(dataset: Dataset) -> None:
    wild = Dataset.from_arrays(dataset.names, dataset.features, np.where(dataset.labels > 9, 1e6, dataset.labels))
    tame = Dataset.from_arrays(dataset.names, dataset.features, np.where(dataset.labels > 9, 10.0, dataset.labels))
    for mechanism, epsilon in [(MEAN_PREDICTOR, None), (CLEAN, None)]:
        model = MEAN_PREDICTOR if mechanism == MEAN_PREDICTOR else "linear"
        cell = Cell(mechanism, epsilon, 0, model)
        assert score_cell(cell, TASK, wild) == score_cell(cell, TASK, tame)
    found = score_cell(Cell("unbiased", 1.0, 0, "linear"), TASK, wild)
    assert found.mechanism_error is not None
    assert found.mechanism_error < 1e4


def test_the_poisson_loss_takes_predictions_below_zero(dataset: Dataset) -> None:
    poisson = replace(TASK, loss="poisson")
    found = score_cell(Cell("unbiased", 0.5, 0, "linear"), poisson, dataset)
    mean = score_cell(Cell(MEAN_PREDICTOR, None, 0, MEAN_PREDICTOR), poisson, dataset)
    train, test = dataset.split(0)
    rate = dataset.labels[train].mean()

    assert mean.test_loss == pytest.approx(np.mean(rate - dataset.labels[test] * np.log(rate)))
    assert found.test_loss is not None
    assert np.isfinite(found.test_loss)


def test_a_mechanism_that_refuses_has_a_reason_and_no_score(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Randomizer:
        raise ValueError("too many labels for this one")

    monkeypatch.setattr(MECHANISMS["rr_on_bins"], "solve", refuse)
    found = score_cell(Cell("rr_on_bins", 1.0, 0, "linear"), TASK, dataset)

    assert found.reason == "too many labels for this one"
    assert found.test_loss is None
