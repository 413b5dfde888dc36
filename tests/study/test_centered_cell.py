"""Cells around a center: the release is that of the job, the budget adds up, and models train on residuals."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms import Randomizer
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums
from labeldp.mechanisms.noise.keyed_words import row_identities
from labeldp.mechanisms.release import center_passes
from labeldp.mechanisms.release.drawing import Drawing
from labeldp.pipelines.api import array_release
from labeldp.pipelines.api.array_release import ArrayRelease
from labeldp.study.dataset import Dataset
from labeldp.study.evaluation_cell import (
    LINEAR_CENTER,
    Cell,
    Score,
    Task,
    label_of,
    privatize_labels,
    score_cell,
    seed_secret,
)
from labeldp.study.models import MODELS, TrainingLabels, linear

from tests.commands import write_key

RECORDS = 3000
TASK = Task("y", tuple(float(label) for label in range(21)))
AROUND = Cell("unbiased", 1.0, 3, "linear", LINEAR_CENTER)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Labels in 0..20 that two numbers and a text explain but for a standard deviation of 1."""
    rng = np.random.default_rng(5)
    numbers, codes = rng.normal(size=(RECORDS, 2)), rng.integers(0, 3, RECORDS)
    labels = 10 + 3 * numbers[:, 0] - numbers[:, 1] + 2 * (codes == 1) + rng.normal(size=RECORDS)
    columns = {"a": numbers[:, 0], "b": numbers[:, 1], "text": Categories(codes, ("x", "y", "z"))}
    matrix = np.concatenate([numbers, codes[:, None] == np.arange(3)], axis=1)
    names = ["a", "b", "text=x", "text=y", "text=z"]
    earlier = np.where(np.arange(RECORDS) % 50 == 0, np.nan, labels + rng.normal(size=RECORDS))
    return Dataset.from_arrays(names, matrix, np.clip(labels, 0, 20).round(2), columns, earlier)


def _training(dataset: Dataset, cell: Cell = AROUND) -> Dataset:
    return dataset.part(dataset.split(cell.seed)[0])


def _released(dataset: Dataset, cell: Cell = AROUND) -> ArrayRelease:
    return privatize_labels(cell, TASK, _training(dataset, cell))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.3])
def test_center_prior_and_labels_spend_the_whole_epsilon(dataset: Dataset, epsilon: float) -> None:
    cell = replace(AROUND, epsilon=epsilon)
    drawing = _released(dataset, cell).drawing

    parts = Fraction(drawing.center_epsilon) + Fraction(drawing.prior_epsilon)
    assert drawing.center_epsilon > 0
    # The certificate of the randomizer has an upper bound on the epsilon of the labels, computed from its integers.
    assert parts < parts + Fraction(drawing.certified[0]) <= Fraction(epsilon)
    # Weights are rounded to the private side by a few parts in 2^50.
    assert float(parts) + drawing.certified[0] > 0.999 * epsilon


def test_the_center_is_that_of_the_functions_of_the_job(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference computes the center from the whole dataset in another order of records."""
    used: list[tuple[list[int], bytes]] = []

    def spy(sums: list[int], norm: int, labels: int, epsilon: float, noise_key: bytes) -> tuple[int, ...]:
        used.append((sums, noise_key))
        return noised_sums(sums, norm, labels, epsilon, noise_key)

    monkeypatch.setattr(center_passes, "noised_sums", spy)
    released, training = _released(dataset), _training(dataset)
    # All records fit into the sample, and neither encoders nor moments depend on its order.
    design = design_center(training.columns, len(training.labels), 1.0)
    (sums, key), *more = used
    assert not more
    # Randomized rounding: the sums of the labels are those of `column.indices` of the same secret.
    column = label_of(AROUND, TASK).column
    identities = row_identities("training records", np.arange(len(training.labels)))
    indices = column.indices(training.labels, identities, seed_secret(AROUND.seed))
    assert sums == moment_sums(design.map.rows(training.columns), indices, 21)
    center = LinearCenter.fit(design, 21, noised_sums(sums, design.map.norm, 21, design.epsilon, key))

    np.testing.assert_array_equal(released.centers, np.arange(21.0)[center.indices(training.columns)])
    assert released.drawing.center_epsilon == design.epsilon
    # The offset of models is the same center before it is rounded.
    offset = released.center_of(training.columns, training.center)
    assert offset is not None
    assert np.abs(offset[:, 0] - released.centers).max() <= 0.5
    assert len(np.unique(offset)) > 1000


def test_released_labels_are_the_center_plus_an_output(dataset: Dataset) -> None:
    released = _released(dataset)
    steps = (released.outputs - released.centers)[:, None] - released.drawing.randomizer.outputs

    assert np.abs(steps).min(axis=1).max() < 1e-9
    np.testing.assert_array_equal(released.drawing.prior.labels, released.drawing.randomizer.labels)


def test_labels_around_a_column_are_those_that_the_command_releases(
    dataset: Dataset, tmp_path: Path, invoke: Any, command: Callable[..., list[str]]
) -> None:
    seed, path = 3, tmp_path / "log.parquet"
    # The name that the cell gives to the center column: noise is bound to it.
    cell = Cell("unbiased", 1.5, seed, "linear", "earlier")
    name = label_of(cell, TASK).column.center
    pq.write_table(pa.table({"y": dataset.labels, name: dataset.center}), path)
    key = write_key(tmp_path / "noise.key", seed_secret(seed))
    flags = {
        "input": path, "input_format": "parquet", "label": "y", "label_min": 0, "label_max": 20, "label_step": 1,
        "epsilon": 1.5, "center_column": name, "noise_key_file": key, "output": tmp_path / "released",
        "output_format": "parquet",
    }  # fmt: skip
    invoke(command("privatize", {**flags, "mechanism": "unbiased"})).ok()

    found = privatize_labels(cell, TASK, dataset, str(path))

    released = pq.read_table(tmp_path / "released" / "data").column("y").to_numpy()
    np.testing.assert_array_equal(found.outputs, released)
    text = (tmp_path / "released" / "mechanism.json").read_text()
    assert Randomizer.from_json(text).fingerprint == found.drawing.randomizer.fingerprint
    assert json.loads((tmp_path / "released" / "release.json").read_text())["center"]["missing"] == RECORDS // 50


def test_a_missing_center_is_the_label_in_the_middle(dataset: Dataset) -> None:
    released = privatize_labels(replace(AROUND, center="earlier"), TASK, dataset)
    offset = released.center_of(dataset.columns, dataset.center)

    assert offset is not None
    assert (offset[::50] == 10).all()
    assert released.drawing.center_epsilon == 0


def test_clipping_counts_as_bias(dataset: Dataset) -> None:
    released, score = _released(dataset), score_cell(AROUND, TASK, dataset)
    low, high = released.drawing.randomizer.labels[[0, -1]]
    residuals = _training(dataset).labels - released.centers

    assert score.range == pytest.approx((high - low) / 20)
    assert score.clipped == pytest.approx(np.mean((residuals < low) | (residuals > high)))
    # `unbiased` has no bias of its own.
    expected = np.sqrt(np.mean((np.clip(residuals, low, high) - residuals) ** 2))
    assert score.rms_bias == pytest.approx(expected)


def test_a_mechanism_that_refuses_residuals_has_a_reason(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Drawing:
        raise ValueError("not for these residuals")

    monkeypatch.setattr(array_release, "conclude", refuse)

    assert score_cell(AROUND, TASK, dataset) == Score(reason="not for these residuals")


def _residuals(values: np.ndarray, noise: float = 0.0) -> TrainingLabels:
    return TrainingLabels(values, 0.0, max(float(values.var()) - noise, 1e-3), 1e9, noise, residuals=True)


def test_residuals_without_a_mean_are_predicted_as_the_center_alone() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 10, 1000)
    values -= values.mean() - 0.2

    assert _residuals(values, 99.0).baseline() == 0.0
    # Ten standard errors from 0: only a hundredth is taken off.
    assert _residuals(values + 3, 99.0).baseline() == pytest.approx(3.2, rel=0.02)
    plain = replace(_residuals(values, 99.0), residuals=False)
    assert plain.baseline() == pytest.approx(0.2)


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_residuals_of_a_good_center_leave_it_alone(model: str) -> None:
    """Under heavy noise, residuals that no feature explains must not move the predictions."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(2000, 5))
    values = rng.normal(0, 1, 2000) + rng.choice([-10.0, 10.0], 2000)

    predictions = MODELS[model](features, _residuals(values, 100.0), features, 0)

    # The error of an unshrunk regression on five features would be 5 * 101 / 2000.
    assert np.mean(predictions**2) < 0.2 * 5 * 101 / 2000


def test_a_linear_model_finds_what_the_center_missed() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(2000, 5))
    truth = 0.5 * features[:, 0]
    values = truth + rng.normal(0, 1, 2000) + rng.choice([-3.0, 3.0], 2000)

    predictions = linear(features, _residuals(values, 9.0), features, 0)

    assert np.mean((predictions - truth) ** 2) < 0.2 * truth.var()


def test_the_prior_of_the_residuals_covers_the_range_alone(dataset: Dataset) -> None:
    prior = _released(dataset).drawing.prior

    assert len(prior.labels) < 2 * 21 - 1
    assert prior.weights.sum() == pytest.approx(1)


def test_the_center_of_log_features_is_chosen_as_by_its_purpose() -> None:
    features = label_of(replace(AROUND, mechanism="auto", center="log_features"), TASK, ("x",)).features

    assert features is not None
    assert features.cells
    assert features.marginals
