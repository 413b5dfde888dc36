"""Linear center of classes: its sums, its coefficients, and the choice of its components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center.class_logit import (
    COARSE,
    LOGIT_UNIT,
    LinearClasses,
    best_size,
    class_sums,
    coarse,
    design_logit,
    floored_shares,
    noised_class_sums,
)
from labeldp.mechanisms.center.feature_rows import ROW_UNIT
from labeldp.mechanisms.center.logit_fit import softmax

from .class_logs import KEYS, class_log, excess

SHARES = np.full(3, 1 / 3)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 40))
def test_class_sums_are_those_of_the_records_of_each_class(seed, classes, records):
    random = np.random.default_rng(seed)
    rows, indices = random.integers(-900, 900, (records, 3)), random.integers(0, classes, records)
    found = class_sums(rows, indices, classes)
    for one in range(classes):
        assert found[:, one].tolist() == rows[indices == one].sum(axis=0).tolist()
    noised = noised_class_sums(found, 1000, 0.5, KEYS[0])
    assert np.array(noised).sum(axis=1).tolist() == rows.sum(axis=0).tolist()
    assert noised == noised_class_sums(found, 1000, 0.5, KEYS[0])


def test_coefficients_are_those_of_a_logistic_regression_where_noise_is_small():
    log = class_log(1, records=4000, other=0.0)
    design = design_logit(log.sample(0), 4000, SHARES, 25.0)
    assert design is not None
    rows = design.map.rows(log.columns)
    linear = LinearClasses.fit(
        design, noised_class_sums(class_sums(rows, log.classes, 3), design.map.norm, 25.0, KEYS[0])
    )
    chances = softmax(linear.logits(rows) / LOGIT_UNIT)
    assert excess(log, chances * (1 << 16)) < 0.02
    # Sums of the model are about those of the records.
    missed = (rows / ROW_UNIT).T @ (chances - np.eye(3)[log.classes])
    assert np.abs(missed).max() < 40


def test_coefficients_shrink_as_the_noise_grows():
    log = class_log(1)
    sizes = []
    for epsilon in (20.0, 0.3, 0.1):
        design = design_logit(log.sample(0), 6000, SHARES, epsilon)
        assert design is not None
        rows = design.map.rows(log.columns)
        sums = class_sums(rows, log.classes, 3)
        linear = LinearClasses.fit(design, noised_class_sums(sums, design.map.norm, epsilon, KEYS[0]))
        sizes.append(float(softmax(linear.logits(rows) / LOGIT_UNIT).std()))
    assert sizes == sorted(sizes, reverse=True)


def test_components_are_as_many_as_their_noise_allows():
    signal, norms = np.full(10, 0.3), np.arange(11.0) + 1
    found = [best_size(signal, norms, 10_000, SHARES, epsilon) for epsilon in (0.0, 1e-3, 0.03, 0.1, 10.0)]
    assert found == sorted(found)
    assert found[0] == found[1] == 0
    assert found[-1] == 10
    rare = np.array([0.98, 0.01, 0.01])
    assert best_size(signal, norms, 10_000, rare, 0.1) <= found[3]


def test_shares_are_at_least_those_of_the_noise():
    found = floored_shares(np.array([-50.0, 500.0, 550.0]), 1000, 400.0)
    assert found.sum() == pytest.approx(1)
    assert 0.019 < found[0] < 0.022


def test_coarse_rows_are_close_and_keep_the_constant():
    rows = np.array([[ROW_UNIT, 7, 8, -9, 100_000, -100_000]])
    assert coarse(rows).tolist() == [[ROW_UNIT, 0, COARSE, -COARSE, 127 * COARSE, -127 * COARSE]]


def test_without_features_there_is_no_design():
    assert design_logit({"same": np.ones(100)}, 100, SHARES, 1.0) is None


def test_without_sums_all_logits_are_0_and_classes_equal():
    log = class_log(1, records=2000)
    design = design_logit(log.sample(0), 2000, SHARES, 0.0)
    assert design is not None
    linear = LinearClasses.fit(design, ())
    assert not linear.logits(design.map.rows(log.columns)).any()
    assert (linear.shares == 1 / 3).all()
