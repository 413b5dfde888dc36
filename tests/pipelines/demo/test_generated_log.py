"""The generated log has the published distributions, depends only on its seed, and its features predict the label."""

import hashlib
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.pipelines.cli.demo_command import CONVERTED, LABEL, LABEL_MAX, click_batches

from tests.false_alarms import count_bounds, standard_errors

CLICKS = 200_000
RATE = 1_732_721 / 15_995_634
CATEGORIES = 8


def log_of(seed: int, clicks: int = CLICKS, batch_rows: int = 50_000) -> pa.Table:
    """The whole log."""
    return pa.Table.from_batches(list(click_batches(clicks, seed, batch_rows)))


@pytest.fixture(scope="module", params=[1, 2])
def log(request: pytest.FixtureRequest) -> pa.Table:
    """200,000 clicks, of two seeds: the same in every run."""
    return log_of(request.param)


@pytest.fixture
def values(log: pa.Table) -> np.ndarray:
    """The labels of the clicks that converted."""
    return log.column(LABEL).drop_null().to_numpy()


def test_a_tenth_of_the_clicks_convert(log: pa.Table) -> None:
    low, high = count_bounds(CLICKS, RATE)
    assert round(RATE, 3) == 0.108
    assert low <= log.column(CONVERTED).to_numpy().sum() <= high


def test_who_did_not_convert_has_no_label(log: pa.Table) -> None:
    converted = log.column(CONVERTED).to_numpy()
    assert set(converted) == {0, 1}
    np.testing.assert_array_equal(log.column(LABEL).is_valid().to_numpy(), converted == 1)
    assert [name for name in log.schema.names if name != LABEL and log.column(name).null_count] == []


def test_labels_are_skewed_as_published(values: np.ndarray) -> None:
    assert LABEL_MAX == 400
    assert values.dtype == np.float32
    assert values.min() >= 0
    assert values.max() == 400
    assert np.median(values) == pytest.approx(60, rel=0.1)
    assert np.quantile(values, 0.95) == pytest.approx(400, rel=0.1)
    assert (values == 400).mean() == pytest.approx(0.05, abs=0.01)
    assert values.mean() > 1.4 * np.median(values)


def test_columns_have_their_types(log: pa.Table) -> None:
    kinds = {field.name: field.type for field in log.schema}
    assert len([name for name, kind in kinds.items() if kind == pa.string()]) == CATEGORIES
    assert {name for name, kind in kinds.items() if kind == pa.int64()} == {"nb_clicks_1week", "hour", CONVERTED}
    assert kinds[LABEL] == pa.float32()
    assert "product_price" not in kinds  # in the real log it reveals the label
    assert "Time_delay_for_conversion" not in kinds


def test_features_look_like_the_published_ones(log: pa.Table) -> None:
    assert log.column("nb_clicks_1week").to_numpy().mean() == pytest.approx(390, rel=0.1)
    assert set(log.column("hour").to_numpy()) == set(range(24))
    for name in ("partner_id", "product_brand"):
        counts = np.sort([count["counts"] for count in log.column(name).value_counts().to_pylist()])
        assert counts[-1] > 20 * np.median(counts)  # a few values are frequent
        lengths = {len(value) for value in log.column(name).unique().to_pylist()}
        assert lengths == {16}


def r_squared(log: pa.Table, *labels: np.ndarray) -> list[float]:
    """R^2 of least squares on one-hot frequent categories and log clicks, on the held-out half, for each label."""
    columns: list[Any] = [np.ones(len(log)), np.log1p(log.column("nb_clicks_1week").to_numpy())]
    for name in ("product_category_1", "product_category_2", "product_brand", "partner_id", "product_category_3"):
        values = np.array(log.column(name).to_pylist())
        _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
        columns += [codes == top for top in np.argsort(-counts)[:60]]
    features = np.stack(columns, axis=1).astype(float)
    targets = np.stack(labels, axis=1)
    fitted, held_out = slice(0, None, 2), slice(1, None, 2)
    coefficients = np.linalg.lstsq(features[fitted], targets[fitted], rcond=None)[0]
    residuals = targets[held_out] - features[held_out] @ coefficients
    return (1 - residuals.var(axis=0) / targets[held_out].var(axis=0)).tolist()


def test_features_foretell_the_label(log: pa.Table, values: np.ndarray) -> None:
    converted = log.filter(log.column(LABEL).is_valid())
    shuffled = np.random.default_rng(0).permutation(values).astype(float)

    ours, of_shuffled = r_squared(converted, np.log(np.maximum(values.astype(float), 0.01)), shuffled)
    assert 0.3 < ours < 0.9
    assert of_shuffled < 0.05


def test_conversion_does_not_follow_from_the_features(log: pa.Table) -> None:
    """Otherwise, records with a conversion would have another feature distribution than all records."""
    for name in ("product_category_1", "device_type"):
        table = log.group_by(name).aggregate([(CONVERTED, "sum"), (CONVERTED, "count")])
        sums, counts = (table.column(f"{CONVERTED}_{how}").to_numpy() for how in ("sum", "count"))
        deviations = (sums - counts * RATE) / np.sqrt(counts * RATE * (1 - RATE))
        assert np.abs(deviations).max() < standard_errors()


def digest_of(seed: int) -> str:
    """Digest of a small log."""
    state = hashlib.sha256()
    for batch in click_batches(3000, seed, 1000):
        for row in batch.to_pylist():
            state.update(repr(sorted(row.items())).encode())
    return state.hexdigest()


def test_a_seed_settles_everything(environment: dict[str, str]) -> None:
    """The log does not depend on global random state, the hash seed of the process or earlier calls."""
    np.random.seed(1)  # noqa: NPY002
    first = digest_of(7)
    np.random.seed(2)  # noqa: NPY002
    assert digest_of(8) != first
    assert digest_of(7) == first

    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("again", {__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.digest_of(7))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env=environment | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == first


def test_a_batch_does_not_depend_on_those_before_it() -> None:
    long = list(click_batches(5000, 3, 1000))
    short = list(click_batches(2500, 3, 1000))

    assert [batch.num_rows for batch in long] == [1000] * 5
    assert [batch.num_rows for batch in short] == [1000, 1000, 500]
    for one, two in zip(long[:2], short[:2], strict=True):
        assert one.equals(two)
    assert not long[0].equals(long[1])
