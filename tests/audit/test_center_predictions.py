"""Linear centers under audit: predictions equal those of the job."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.audit.center_audit import center_sum_problems
from labeldp.audit.center_predictions import CenterPredictions
from labeldp.audit.center_replay import linear_replay_problems
from labeldp.audit.shard_columns import Column
from labeldp.mechanisms.center.center_model import center_document
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums


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


def mechanism_of(center):
    """The part of a mechanism file that holds a center, and its domain."""
    domain = [float(label) for label in range(center.labels)]
    document = json.loads(json.dumps(center_document(center)))
    cells, distance = 1, 1
    while distance < center.labels:
        cells, distance = cells + 2, distance + max(distance // 4, 1)
    return {"center": {"column": "c", "domain": domain, "counts": [0] * cells, "linear": document}}


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
