"""Center of cells: sensitivity, noise, budget and range of the sums; what is public; predictions."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center import cell_center
from labeldp.mechanisms.center.boosting import ObliviousTrees
from labeldp.mechanisms.center.cell_center import (
    LEAF_UNIT,
    MOST_EPSILON,
    CellCenter,
    CellTables,
    ReleasedCells,
    chosen_range,
    design_cells,
    ends_in_steps,
    noise_scale,
    noised_cells,
)
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import COEFFICIENT_UNIT, ROW_UNIT, LinearCenter
from labeldp.mechanisms.center.residuals import ResidualDomain

from .conftest import KEYS, LABELS, SAMPLED, Log, log_of


@pytest.fixture
def without_trees(released: CellCenter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the trees, which follow from the sums and take a second; those of `released` are there."""
    monkeypatch.setattr(cell_center, "boost", lambda codes, means: ObliviousTrees.none(1))


# Sensitivity and noise.


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_one_label_changes_one_sum_by_at_most_the_length_of_the_range(data: st.DataObject):
    labels, size, records = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    residuals = ResidualDomain(np.arange(labels, dtype=np.float64))
    index = st.integers(0, labels - 1)
    cells = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=records, max_size=records)))
    centers = np.array(data.draw(st.lists(index, min_size=records, max_size=records)))
    before = np.array(data.draw(st.lists(index, min_size=records, max_size=records)))
    after = before.copy()
    after[0] = data.draw(index)
    first = data.draw(st.integers(0, residuals.cells - 1))
    last = data.draw(st.integers(first, residuals.cells - 1))
    low, high = ends_in_steps(first, last, residuals)
    one, two = (CellTables.of_records(cells, size, each - centers, residuals) for each in (before, after))
    sums = [each.clipped(first, last, residuals) for each in (one, two)]
    expected = [np.bincount(cells, np.clip(each - centers, low, high), size) for each in (before, after)]
    assert [each.tolist() for each in sums] == [each.tolist() for each in expected]
    changed = np.abs(sums[1] - sums[0])
    assert np.delete(changed, cells[0]).sum() == 0
    assert changed[cells[0]] <= high - low
    assert np.abs(two.counts.sum(axis=0) - one.counts.sum(axis=0)).sum() <= 2
    assert (one.counts.sum(axis=1) == two.counts.sum(axis=1)).all(), "the number of records of a cell is public"


def test_the_scale_is_the_sensitivity_over_epsilon_exactly(log: Log, released: CellCenter):
    low, high = released.cells.ends
    assert noise_scale((low, high), log.design.epsilon) == (high - low) / Fraction(log.design.epsilon)


@pytest.mark.usefixtures("without_trees")
def test_the_noise_of_the_sums_has_its_scale(log: Log):
    """Over 20 keys and all cells: the mean of |noise| is the scale, with a standard error of a 200th of it."""
    tables, sizes = log.tables, []
    for seed in range(20):
        cells = noised_cells(log.design, log.linear, tables, KEYS[1], bytes([seed]) * 32)
        first, last = (int(np.searchsorted(log.residuals.bounds, end, side="right")) - 1 for end in cells.ends)
        raw = tables.clipped(first, last, log.residuals)
        scale = (cells.ends[1] - cells.ends[0]) / log.design.epsilon
        sizes.append(np.abs(np.array(cells.sums) - raw) / scale)
    every = np.concatenate(sizes)
    assert len(every) == 20 * len(log.design.partition.tree.leaves)
    assert abs(every.mean() - 1) < 5 / math.sqrt(len(every))


@pytest.mark.usefixtures("without_trees")
def test_all_cells_are_released_empty_ones_too(log: Log, released: CellCenter):
    size = len(log.design.partition.tree.leaves)
    assert len(released.cells.sums) == size
    empty = CellTables(np.zeros_like(log.tables.counts), np.zeros_like(log.tables.sums))
    empty.counts[0] = log.tables.counts.sum(axis=0)
    empty.sums[0] = log.tables.sums.sum(axis=0)
    cells = noised_cells(log.design, log.linear, empty, *KEYS[1:])
    assert len(cells.sums) == size
    assert np.mean(np.array(cells.sums) == 0) < 0.1, "sums of empty cells have noise"


# Budget.


@pytest.mark.usefixtures("without_trees")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_parts_add_up_to_less_than_the_budget(epsilon: float):
    log = log_of(2, epsilon=epsilon)
    center = log.release()
    parts = [log.linear.design.epsilon, log.design.histogram, log.design.epsilon]
    assert Fraction(center.epsilon) >= sum(map(Fraction, parts))
    assert center.epsilon < 0.95 * epsilon
    assert len(log.design.partition.tree.leaves) == pytest.approx(len(log.indices) * epsilon / 10, rel=0.5)


def test_cells_are_left_out_where_they_do_not_pay(log: Log):
    assert design_cells(log.sample, log.linear, 20_000, math.nextafter(MOST_EPSILON, 3)) is None
    assert design_cells(log.sample, log.linear, 1_999, 1.0) is None
    assert design_cells(log.sample, log.linear, 2_000, 1.0) is not None
    alike = {name: column[:1].repeat(SAMPLED) if name != "kind" else column for name, column in log.sample.items()}
    assert design_cells(alike, log.linear, 20_000, 1.0) is None, "codes of few values give few cells"
    without = LinearCenter.fit(dataclasses.replace(log.linear.design, epsilon=0.0), LABELS, ())
    assert design_cells(log.sample, without, 20_000, 1.0) is None


def test_no_sum_is_released_where_the_linear_center_explains_little():
    """Labels are an interaction alone: most of the cells' budget stays for the labels."""
    log = log_of(3, linear=0.05)
    center = log.release()
    assert (center.cells.sums, center.cells.ends) == ((), ())
    assert not len(center.cells.trees.leaves)
    assert center.epsilon < log.linear.design.epsilon + 1.01 * log.design.histogram
    assert (center.indices(log.columns) == log.linear.indices(log.columns)).all()
    sums = (0,) * len(log.design.partition.tree.leaves)
    with pytest.raises(ValueError, match="that the histogram of the residuals speaks against"):
        ReleasedCells.fit(log.design, log.linear, center.cells.records, center.cells.counts, sums)


def test_residuals_that_are_all_0_get_no_sums(log: Log):
    """Their variance is 0, by which nothing may be divided."""
    counts = np.zeros(log.residuals.cells, np.int64)
    counts[log.residuals.cells // 2] = 20_000
    assert chosen_range(log.design, log.linear, 20_000, tuple(counts.tolist())) is None


def test_the_design_does_not_depend_on_the_order_of_the_sample(log: Log):
    """It follows from the secret key."""
    order = np.random.Generator(np.random.PCG64(1)).permutation(SAMPLED)
    moved = {
        name: Categories(column.codes[order], column.values) if isinstance(column, Categories) else column[order]
        for name, column in log.sample.items()
    }
    again = design_cells(moved, log.linear, 20_000, 1.0)
    assert again is not None
    np.testing.assert_array_equal(again.codes, log.design.codes)
    np.testing.assert_array_equal(again.partition.tree.cuts, log.design.partition.tree.cuts)
    np.testing.assert_array_equal(again.partition.tree.columns, log.design.partition.tree.columns)


def test_more_records_get_a_smaller_share_for_cells(log: Log):
    few, many = (design_cells(log.sample, log.linear, records, 1.0) for records in (50_000, 5_000_000))
    assert few is not None
    assert many is not None
    assert many.epsilon == pytest.approx(few.epsilon / 100, rel=1e-4)


# Use.


def test_the_interaction_is_predicted(log: Log, released: CellCenter):
    linear, cells = (((each.indices(log.columns) - log.indices) ** 2).mean() for each in (log.linear, released))
    assert cells < 0.45 * linear


def test_predictions_are_the_linear_ones_and_the_trees(log: Log, released: CellCenter):
    centers = log.linear.indices(log.columns)
    codes = released.cells.design.partition.codes(log.columns, log.linear, centers)
    unit = COEFFICIENT_UNIT * ROW_UNIT
    rows = log.linear.design.map.rows(log.columns)
    linear = np.clip((rows @ np.array(log.linear.coefficients)) / unit, -(LABELS - 1) / 2, (LABELS - 1) / 2)
    position = linear + released.cells.trees.predict(codes)[:, 0] / LEAF_UNIT + (LABELS - 1) / 2
    np.testing.assert_allclose(released.positions(log.columns), np.clip(position, 0, LABELS - 1), atol=1e-6)
    expected = np.clip(np.floor(position + 0.5), 0, LABELS - 1)
    # Halves may fall on either side in floats.
    assert (expected != released.indices(log.columns)).mean() < 1e-3


def test_the_variance_of_labels_is_that_of_the_linear_center(log: Log, released: CellCenter):
    prior = cell_center.residual_prior(log.linear, released.cells.counts, log.design.histogram)
    own = prior.weights @ (prior.labels - prior.weights @ prior.labels) ** 2
    assert released.label_variance(1.0) == pytest.approx(log.linear.label_variance(float(own)), rel=1e-9)
    assert released.label_variance(1.0) == pytest.approx(log.indices.var(), rel=0.3)


@pytest.mark.usefixtures("without_trees")
def test_the_range_depends_on_released_numbers_alone(log: Log, released: CellCenter):
    """A change of raw tables that leaves the noised histogram as it is leaves the range as it is."""
    tables = log.tables
    moved = CellTables(tables.counts[::-1].copy(), tables.sums[::-1].copy())
    again = noised_cells(log.design, log.linear, moved, *KEYS[1:])
    assert again.counts == released.cells.counts
    assert again.ends == released.cells.ends


def test_a_center_far_outside_the_domain_leaves_the_trees_their_say(log: Log, released: CellCenter):
    """Linear predictions are clipped to the domain before the trees are added."""
    far = {**log.columns, "a": np.full(len(log.indices), 1e9)}
    codes = released.cells.design.partition.codes(far, log.linear, log.linear.indices(far))
    ends = released.positions(far)
    trees = released.cells.trees.predict(codes)[:, 0] / LEAF_UNIT
    linear = log.linear.positions(far)
    np.testing.assert_allclose(ends, np.clip(linear + trees, 0, LABELS - 1), atol=1e-6)


def test_tables_add_up(log: Log):
    size = len(log.design.partition.tree.leaves)
    parts = [
        CellTables.of_records(log.cells[part], size, log.steps[part], log.residuals)
        for part in (slice(0, 7), slice(7, None))
    ]
    assert (parts[0].counts + parts[1].counts == log.tables.counts).all()
    assert (parts[0].sums + parts[1].sums == log.tables.sums).all()
    assert cell_center.residual_prior(log.linear, tuple(log.tables.counts.sum(axis=0)), 30.0).weights.sum() > 0
