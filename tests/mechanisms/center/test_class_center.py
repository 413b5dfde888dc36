"""Center of classes: budgets, what the release may reveal, what it predicts, and its probabilities and draws."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from labeldp.mechanisms.center.cell_partition import LEAST_CELLS
from labeldp.mechanisms.center.class_center import (
    PROBABILITY_UNIT,
    ClassCenter,
    center_pays,
    coded_probabilities,
    design_classes,
    draw_classes,
    noised_class_counts,
    not_refuted,
    split_class_budget,
)
from labeldp.mechanisms.center.class_document import class_document, read_class_center
from labeldp.mechanisms.center.class_logit import LOGIT_UNIT, MOST_CLASSES, class_sums
from labeldp.mechanisms.center.class_trees import CellCounts
from labeldp.mechanisms.core.budget import CLASS_SHARE, split_budget
from labeldp.mechanisms.noise.sum_zero_laplace import sum_zero_variance

from .class_logs import KEYS, ClassLog, class_log, default_log, excess


@pytest.fixture(scope="module")
def log() -> ClassLog:
    return class_log(1)


@pytest.fixture(scope="module")
def center(log: ClassLog) -> ClassCenter:
    return log.release(4.0)


def test_new_records_are_predicted_better_than_by_the_linear_part(center: ClassCenter):
    new = class_log(2)
    linear = ClassCenter(center.budget, center.counts, center.linear, None)
    shares = np.broadcast_to(center.shares * PROBABILITY_UNIT, new.truth.shape)
    found = [
        excess(new, each) for each in (center.probabilities(new.columns), linear.probabilities(new.columns), shares)
    ]
    assert found[0] < 0.8 * found[1]
    assert found[1] < 0.8 * found[2]


@pytest.mark.parametrize("seed", [18, 68, 117])
def test_noise_in_the_sums_of_a_rare_class_does_not_make_predictions_certain(seed):
    """With these keys, sums put the mean of the rare class beyond all records: slopes of 25, losses above its share."""
    log = default_log(seed)
    found = log.release(1.0, keys=tuple(bytes([seed, place] * 16) for place in range(3)))
    shares = np.broadcast_to(log.truth.mean(axis=0) * PROBABILITY_UNIT, log.truth.shape)
    assert found.linear.sums
    assert np.abs(found.linear.coefficients[1:]).max() < 3 * LOGIT_UNIT
    assert excess(log, found.probabilities(log.columns)) < 0.3 * excess(log, shares)
    read_class_center(json.loads(json.dumps(class_document(found))))


def test_logits_that_the_counts_refute_are_those_of_the_shares(log: ClassLog, center: ClassCenter):
    cells = center.cells
    assert cells is not None
    sample, noise = cells.design.sample, sum_zero_variance(cells.design.noise, 3)
    targets = CellCounts(sample.partition.tree.cells(sample.codes), cells.counts.astype(np.float64), noise)
    kept = not_refuted(center.linear, sample, targets, cells.coefficients, cells.trees)
    assert kept[0] is cells.coefficients
    assert kept[1] is cells.trees
    coefficients, trees = not_refuted(center.linear, sample, targets, -40 * cells.coefficients, cells.trees)
    found = dataclasses.replace(center, cells=dataclasses.replace(cells, coefficients=coefficients, trees=trees))
    shares = np.broadcast_to(center.shares * PROBABILITY_UNIT, log.truth.shape)
    assert excess(log, found.probabilities(log.columns)) < 1.05 * excess(log, shares)


def test_two_classes_are_predicted(log: ClassLog):
    found = class_log(3, size=2).release(2.0)
    new = class_log(4, size=2)
    assert found.cells is not None
    assert excess(new, found.probabilities(new.columns)) < 0.25


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, 7.3])
def test_parts_add_up_to_at_most_epsilon(epsilon):
    split = split_budget(epsilon, 3, 10_000, most=CLASS_SHARE)
    budget = split_class_budget(split)
    assert budget.counts == split.prior
    assert Fraction(budget.sums) + Fraction(budget.cells) == Fraction(split.labels)
    assert budget.total <= epsilon


def test_the_center_spends_what_the_parts_say(log: ClassLog, center: ClassCenter):
    assert center.epsilon <= 4.0
    assert center.epsilon == pytest.approx(center.budget.total, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-5, 0.5, 2.0])
@pytest.mark.parametrize("records", [60, 6000])
@pytest.mark.parametrize("named", [["kind"], ["flag", "kind"], ["rare"], ["x0", "x1"]])
def test_features_and_records_for_few_cells_leave_no_epsilon_unspent(named, records, epsilon):
    log = class_log(6, records)
    flags = {"flag": 1.0 * (log.columns["x0"] > 0), "rare": 1.0 * (np.arange(records) % 50 == 3)}
    columns = {**log.columns, **flags}
    few = ClassLog({name: columns[name] for name in named}, log.classes, log.truth)
    center = few.release(epsilon)
    assert center.cells is not None
    assert center.epsilon == pytest.approx(center.budget.total, rel=1e-9)
    assert center.epsilon <= center.budget.total
    found = read_class_center(json.loads(json.dumps(class_document(center))))
    assert (found.probabilities(few.columns) == center.probabilities(few.columns)).all()
    if len(center.cells.counts) < LEAST_CELLS:
        assert not len(center.cells.trees.leaves)


def test_counts_of_few_cells_improve_the_coefficients():
    log = class_log(6)
    few = ClassLog({"flag": 1.0 * (log.columns["x0"] > 0), "kind": log.columns["kind"]}, log.classes, log.truth)
    centers = [few.release(0.05, keys=tuple(bytes([place + 3 * i]) * 32 for place in range(3))) for i in range(10)]
    assert all(center.cells is not None and len(center.cells.counts) == 10 for center in centers)
    found, linear = (
        sum(excess(few, each.probabilities(few.columns)) for each in several)
        for several in (centers, [dataclasses.replace(each, cells=None) for each in centers])
    )
    assert found < linear


def test_without_sums_and_cells_all_records_have_the_shares_of_the_classes(log: ClassLog):
    found = dataclasses.replace(log.release(1e-5), cells=None).probabilities(log.columns)
    assert (found == found[0]).all()


def test_counts_of_cells_add_up_to_the_public_number_of_records(log: ClassLog, center: ClassCenter):
    assert center.cells is not None
    linear, partition = center.linear, center.cells.design.sample.partition
    rows = linear.rows(log.columns)
    places = partition.tree.cells(partition.codes(log.columns, linear, rows, linear.logits(rows)))
    assert (center.cells.counts.sum(axis=1) == np.bincount(places, minlength=len(center.cells.counts))).all()
    assert np.array(center.linear.sums).sum(axis=1).tolist() == rows.sum(axis=0).tolist()


@settings(deadline=None, max_examples=20)
@given(arrays.arrays(np.int64, (4, 3), elements=st.integers(0, 50)), st.floats(0.1, 3.0))
def test_noise_of_counts_leaves_the_sums_of_rows(counts, epsilon):
    assert (noised_class_counts(counts, epsilon, KEYS[0]).sum(axis=1) == counts.sum(axis=1)).all()


def test_the_release_is_a_function_of_the_set_of_the_sample_not_of_its_order(log: ClassLog):
    small = class_log(5, records=3000)
    first, second = (small.release(2.0, seed) for seed in (1, 2))
    assert (first.probabilities(small.columns) == second.probabilities(small.columns)).all()


def test_a_change_of_one_label_moves_a_row_within_its_norm_and_one_within_a_cell(log: ClassLog, center: ClassCenter):
    rows = center.linear.rows(log.columns)
    changed = log.classes.copy()
    changed[5] = (changed[5] + 1) % 3
    moved = class_sums(rows, changed, 3) - class_sums(rows, log.classes, 3)
    assert (moved.sum(axis=1) == 0).all()
    # Half the L1 norm, divided by the scale of the noise, is the loss of privacy.
    assert np.abs(moved).sum() / 2 == np.abs(rows[5]).sum() <= center.linear.design.map.norm


@settings(deadline=None)
@given(arrays.arrays(np.int64, (5, 4), elements=st.integers(-40 * LOGIT_UNIT, 40 * LOGIT_UNIT)))
def test_probabilities_are_those_of_the_logits_and_add_up_exactly(logits):
    found = coded_probabilities(logits)
    assert (found.sum(axis=1) == PROBABILITY_UNIT).all()
    assert (found >= 1).all()
    exact = np.exp((logits - logits.max(axis=1, keepdims=True)) / LOGIT_UNIT)
    exact /= exact.sum(axis=1, keepdims=True)
    assert np.abs(found / PROBABILITY_UNIT - exact).max() <= 9 / PROBABILITY_UNIT


def test_draws_have_the_probabilities_exactly():
    probabilities = np.array([[1, 65_000, 535]])
    words = (np.arange(PROBABILITY_UNIT, dtype=np.uint64) << np.uint64(48)) + np.uint64(12_345)
    drawn = draw_classes(np.repeat(probabilities, PROBABILITY_UNIT, axis=0), words)
    assert np.bincount(drawn, minlength=3).tolist() == [1, 65_000, 535]


@pytest.mark.parametrize(
    ("shares", "epsilon", "pays"),
    [
        ([0.5, 0.5], 1.0, True),
        ([0.5, 0.5], 2.0, False),
        ([0.98, 0.02], 4.0, True),
        ([0.2] * 5, 1.0, True),
        ([0.2] * 5, 2.0, False),
        ([0.1] * 10, 2.0, True),
        ([0.05] * 20, 4.0, True),
    ],
)
def test_a_center_pays_for_rare_classes_and_small_epsilons(shares, epsilon, pays):
    assert center_pays(np.array(shares), epsilon) == pays


def test_too_many_classes_are_refused_and_one_has_no_center(log: ClassLog):
    with pytest.raises(ValueError, match="classes"):
        design_classes(log.sample(0), np.full(MOST_CLASSES + 1, 0.007), 700, 0.2)
    assert design_classes(log.sample(0), np.array([1.0]), 100, 0.2) is None
