"""Centers under audit: they are replayed, predictions are those of the product, and rounded features pass."""

import functools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit.center_audit import center_sum_problems
from labeldp.audit.center_predictions import CenterPredictions
from labeldp.audit.center_replay import linear_replay_problems
from labeldp.audit.documents import residual_cells
from labeldp.audit.shard_columns import Column
from labeldp.mechanisms.center.cell_center import CellCenter, CellTables, design_cells, noised_cells
from labeldp.mechanisms.center.center_model import center_document
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums
from labeldp.mechanisms.center.residuals import ResidualDomain

RECORDS = 6000


def mechanism_of(center):
    """The part of a mechanism file that holds a center, and its domain."""
    domain = [float(label) for label in range(center.labels)]
    document = json.loads(json.dumps(center_document(center)))
    counts = [0] * len(residual_cells(center.labels))
    return {"center": {"column": "c", "domain": domain, "counts": counts, "linear": document}}


def as_columns(columns, dtype):
    found = {}
    for name, column in columns.items():
        rounded = np.full(len(column), dtype is np.float32)
        if isinstance(column, Categories):
            found[name] = Column(np.zeros(0), ~rounded & False, column.codes, column.values)
        else:
            with np.errstate(over="ignore"):
                found[name] = Column(column.astype(dtype).astype(float), rounded, np.zeros(0, int), [])
    return found


# Linear centers.


def fitted(seed, records, labels, epsilon):
    """A linear center, the columns of some records and their indices."""
    random = np.random.default_rng(seed)
    columns = {
        "a": random.normal(random.choice([0, 1e6]), 10.0, records),
        "b": np.where(random.random(records) < 0.1, np.nan, random.standard_cauchy(records)),
        "own": Categories(random.integers(-1, 3, records), ("x", "\udcff", "")),
        "hashed": Categories(random.integers(0, 9, records), tuple(f"v{i}" for i in range(9))),
    }
    columns["a"][:3] = 1e300, -np.inf, 3.4028235e38
    design = design_center({**columns, "a": np.clip(columns["a"], -1e7, 1e7)}, 1000, epsilon, 4)
    signal = np.clip((labels - 1) * (0.5 + random.normal(0, 0.3, records)), 0, labels - 1).astype(int)
    sums = moment_sums(design.map.rows(columns), signal, labels)
    sums = noised_sums(sums, design.map.norm, labels, design.epsilon, bytes(32)) if design.epsilon else ()
    center = LinearCenter.fit(design, labels, sums)
    return center, columns


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30), st.sampled_from([0.3, 2.0]), st.sampled_from([5, 53, 4096]))
def test_predictions_are_those_of_the_job(seed, epsilon, labels):
    center, columns = fitted(seed, 400, labels, epsilon)
    mechanism = mechanism_of(center)
    assert list(center_sum_problems(mechanism)) == []
    assert list(linear_replay_problems(mechanism["center"]["linear"])) == []
    true = center.indices(columns).astype(float)
    exact = CenterPredictions(mechanism, float32=False)
    assert not exact.wrong(as_columns(columns, float), true).any()
    other = np.where(true > 0, true - 1, true + 1)
    assert exact.wrong(as_columns(columns, float), other).all()
    single = CenterPredictions(mechanism, float32=True)
    assert not single.wrong(as_columns(columns, np.float32), true).any()


def test_rounding_to_float32_hides_little():
    """Only a record with a feature close to a bound between two steps may have another center, the next one."""
    found = 0
    for seed in range(20):
        center, columns = fitted(seed, 400, 53, 0.3)
        columns["a"] = np.clip(columns["a"], -1e3, 1e3)
        true = center.indices(columns).astype(float)
        single = CenterPredictions(mechanism_of(center), float32=True)
        wrong = single.wrong(as_columns(columns, np.float32), np.where(true > 0, true - 1, true + 1))
        found += int((~wrong).sum())
    assert found < 8000 * 0.001


def test_features_that_were_rounded_to_float32_pass():
    """Some centers follow from the features only before they were rounded; the auditor allows exactly these."""
    rounded = 0
    for seed in range(20):
        center, columns = fitted(seed, 4000, 4096, 2.0)
        true, single = center.indices(columns).astype(float), CenterPredictions(mechanism_of(center), float32=True)
        assert not single.wrong(as_columns(columns, np.float32), true).any()
        rounded += single.rounded
    assert 0 < rounded < 80_000 * 0.001


# Cells.


def features(random):
    """Numbers with missing ones, some far away; a category of its own values, and one of hashed ones."""
    columns = {
        "a": random.normal(random.choice([0.0, 100.0]), 1.0, RECORDS),
        "b": np.where(random.random(RECORDS) < 0.1, np.nan, random.integers(0, 5, RECORDS)),
        "own": Categories(random.integers(-1, 3, RECORDS), ("x", "\udcff", "")),
        "hashed": Categories(random.integers(0, 90, RECORDS), tuple(f"v{i}" for i in range(90))),
    }
    columns["a"][:2] = -np.inf, np.nan
    return columns


def labels_of(columns, random, labels):
    a, b = (np.where(np.isfinite(columns[name]), columns[name], 0.0) for name in "ab")
    a = np.where(a == 0.0, 0.0, a - np.median(a))
    signal = 0.4 + 0.15 * a + 0.04 * b + 0.08 * np.where((a > 0) == (b > 2), 1, -1) + random.normal(0, 0.03, RECORDS)
    return np.clip(np.rint(signal * (labels - 1)), 0, labels - 1).astype(int)


@functools.cache
def released(seed, labels, epsilon):
    """A center with cells, and the features of its records."""
    random = np.random.default_rng(seed)
    columns = features(random)
    true = labels_of(columns, random, labels)
    design = design_center(columns, RECORDS, epsilon)
    sums = noised_sums(moment_sums(design.map.rows(columns), true, labels), design.map.norm, labels, design.epsilon,
                       random.bytes(32))  # fmt: skip
    linear = LinearCenter.fit(design, labels, sums)
    cells = design_cells(columns, linear, RECORDS, epsilon)
    assert cells is not None
    indices = linear.indices(columns)
    own = cells.partition.tree.cells(cells.partition.codes(columns, linear, indices))
    domain = ResidualDomain(np.arange(float(labels)))
    tables = CellTables.of_records(own, len(cells.partition.tree.leaves), true - indices, domain)
    return CellCenter.of(linear, noised_cells(cells, linear, tables, random.bytes(32), random.bytes(32))), columns


@pytest.mark.parametrize(("seed", "labels", "epsilon"), [(0, 5, 1.0), (1, 53, 0.8), (2, 4096, 2.0)])
def test_centers_of_the_product_pass(seed, labels, epsilon):
    center, columns = released(seed, labels, epsilon)
    assert center.cells.sums
    mechanism = mechanism_of(center)
    assert list(center_sum_problems(mechanism)) == []
    assert list(linear_replay_problems(mechanism["center"]["linear"])) == []
    true = center.indices(columns).astype(float)
    assert len(center.cells.trees.leaves)
    other = np.where(true > 0, true - 1, true + 1)
    exact = CenterPredictions(mechanism, float32=False)
    assert not exact.wrong(as_columns(columns, float), true).any()
    assert exact.cells is not None
    assert list(exact.cells.problems(0)) == []
    assert exact.wrong(as_columns(columns, float), other).all()
    # The same records twice are not those of the cells.
    assert list(exact.cells.problems(0)) == ["center.linear.cells.records are not the numbers of records in each cell"]
    single = CenterPredictions(mechanism, float32=True)
    assert not single.wrong(as_columns(columns, np.float32), true).any()
    assert single.cells is not None
    assert list(single.cells.problems(0)) == []
    assert single.wrong(as_columns(columns, np.float32), other).mean() > 0.95


def test_codes_of_features_that_were_rounded_to_float32_pass():
    """Some codes and centers follow from the features only before they were rounded; exactly these pass."""
    rounded = 0
    for case in ((2, 4096, 2.0), (4, 4096, 2.0)):
        center, columns = released(*case)
        true, single = center.indices(columns).astype(float), CenterPredictions(mechanism_of(center), float32=True)
        assert not single.wrong(as_columns(columns, np.float32), true).any()
        assert single.cells is not None
        assert list(single.cells.problems(0)) == []
        rounded += single.rounded
    assert 0 < rounded < 2 * RECORDS * 0.02


def test_codes_of_other_records_than_the_sample():
    center, columns = released(1, 53, 0.8)
    mechanism = mechanism_of(center)
    cells = mechanism["center"]["linear"]["cells"]
    cells["codes"][0] = cells["codes"][0][::-1]
    predictions = CenterPredictions(mechanism, float32=False)
    predictions.wrong(as_columns(columns, float), center.indices(columns).astype(float))
    assert predictions.cells is not None
    assert list(predictions.cells.problems(10)) == [
        "center.linear.cells.codes are not those of a sample of the records"
    ]
    assert list(predictions.cells.problems(RECORDS)) == []
