"""Proposed label domains hold the labels, up to the share that may be clamped, and do not follow the noise."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.analysis.label_range import FALSE_ALARM, log_spaced_labels, propose_domain
from labeldp.mechanisms.core.label_grid import label_grid

CELLS = log_spaced_labels()


def counts_of(labels: np.ndarray) -> np.ndarray:
    """Labels per cell, each rounded away from 0, by brute force."""
    ends = [min(CELLS[label <= CELLS]) if label >= 0 else max(CELLS[label >= CELLS]) for label in np.unique(labels)]
    found = np.zeros(len(CELLS), np.int64)
    np.add.at(found, np.searchsorted(CELLS, ends), np.unique(labels, return_counts=True)[1])
    return found


def noise(epsilon: float, seed: int) -> np.ndarray:
    """Discrete Laplace noise of scale 2 / epsilon, as the difference of two geometric numbers."""
    one, other = np.random.default_rng(seed).geometric(1 - np.exp(-epsilon / 2), (2, len(CELLS)))
    return one - other


def test_cells_are_round_numbers_of_both_signs() -> None:
    assert len(CELLS) == 381
    assert np.array_equal(CELLS, -CELLS[::-1])
    assert (np.diff(CELLS) > 0).all()
    assert {1.5e-6, 1.0, 8.0, 1e12} <= set(CELLS.tolist())


LABELS = {
    "weeks": np.random.default_rng(1).integers(0, 53, 50_000).astype(float),
    "both signs": np.round(np.random.default_rng(2).standard_normal(50_000), 3),
    "negative": -np.round(5 * np.random.default_rng(3).random(50_000), 2),
    "prices": np.round(60 * np.exp(1.15 * np.random.default_rng(4).standard_normal(50_000)), 1),
    "far from 0": 1e6 + np.random.default_rng(5).integers(0, 1000, 50_000),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("epsilon", [0.2, 5.0])
def test_at_most_the_share_is_outside(name: str, epsilon: float) -> None:
    labels = LABELS[name]
    for seed in range(5):
        found = propose_domain(counts_of(labels) + noise(epsilon, seed), len(labels), epsilon, 0.02)
        outside = [np.mean(labels < float(found.low)), np.mean(labels > float(found.high))]
        # Counts below the limit of noise, at most 12 of them in the cells of one sign and one end, are not seen.
        unseen = 12 * (2 / epsilon) * np.log(len(CELLS) / (2 * FALSE_ALARM)) / len(labels)
        assert max(outside) <= 0.01 + 6 * found.error + unseen
        # A label at the outer end of a cell is in it.
        cells = [np.mean(labels <= float(found.low)) if found.low > 0 else outside[0], outside[1]]
        assert np.abs(np.array([found.below, found.above]) - cells).max() <= 6 * found.error + 1e-12
        length = float(found.high - found.low)
        # Cells are at most a factor of 1.5 wide on each side.
        assert length <= 4 * max(float(np.quantile(labels, 0.999)), 0) - 4 * min(float(np.quantile(labels, 0.001)), 0)
        grid = label_grid(*(f"{each:f}" for each in (found.low, found.high, found.step)))
        assert len(grid) == found.labels
        assert 50 <= found.labels <= 130


def test_natural_ends_are_at_zero() -> None:
    exact = {name: propose_domain(counts_of(labels), len(labels), 20.0, 0.0) for name, labels in LABELS.items()}
    assert (exact["weeks"].low, exact["weeks"].high, exact["weeks"].step) == (0, 60, 1)
    assert exact["negative"].high == 0
    assert exact["prices"].low == 0
    assert exact["both signs"].low < 0 < exact["both signs"].high
    assert exact["weeks"].flags == "--label_min 0 --label_max 60 --label_step 1"
    assert exact["weeks"].median == 30
    assert not exact["weeks"].skewed


@pytest.mark.parametrize(
    ("labels", "flags"),
    [
        ([0, 1], "--label_min 0.00 --label_max 1.00 --label_step 0.02"),
        ([-1, 0, 1], "--label_min -1.00 --label_max 1.00 --label_step 0.02"),
        ([1, 2, 3, 4, 5], "--label_min 0.0 --label_max 5.0 --label_step 0.1"),
        ([0, 12], "--label_min 0.0 --label_max 12.0 --label_step 0.2"),
        ([0, 1, 50, 100], "--label_min 0 --label_max 100 --label_step 2"),
        ([-4, -1], "--label_min -4.00 --label_max 0.00 --label_step 0.05"),
    ],
)
def test_round_numbers_are_ends_of_the_domain(labels: list[int], flags: str) -> None:
    counts = counts_of(np.repeat(np.array(labels, float), 2000))
    for seed in range(10):
        found = propose_domain(counts + noise(0.2, seed), int(counts.sum()), 0.2, 0.01)
        assert found.flags == flags
        assert max(found.below, found.above) <= 6 * found.error


def test_labels_that_are_all_zero_have_no_domain() -> None:
    counts = counts_of(np.zeros(1000))
    with pytest.raises(ValueError, match="all labels that can be told from noise are 0"):
        propose_domain(counts + noise(1, 1), 1000, 1.0, 0.01)


def test_noise_is_not_taken_for_labels() -> None:
    """Without labels in the outer cells, noise extends the range in at most `FALSE_ALARM` of the runs."""
    exact, alarms = counts_of(LABELS["weeks"]), 0
    runs = 400
    for seed in range(runs):
        found = propose_domain(exact + noise(0.1, seed), int(exact.sum()), 0.1, 0.0)
        alarms += found.high > 60 or found.low < 0
    # 14 alarms or more in 400 runs have a probability below 1e-4, if each has one of 0.01.
    assert alarms < 14


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_too_few_records_are_said_to_be_too_few(epsilon: float) -> None:
    with pytest.raises(ValueError, match="no range of the labels can be told from noise"):
        propose_domain(np.where(CELLS == 3, 2, 0), 2, epsilon, 0.01)


@settings(deadline=None)
@given(st.lists(st.integers(-50, 100_000), min_size=381, max_size=381), st.floats(0.05, 20), st.floats(0, 0.5))
def test_any_counts_give_a_domain_or_none(counts: list[int], epsilon: float, clamped: float) -> None:
    try:
        found = propose_domain(np.array(counts), max(sum(counts), 1), epsilon, clamped)
    except ValueError:
        return
    assert found.low < found.high
    assert (found.high - found.low) % found.step == 0
    assert found.low % found.step == 0 or found.low == 0
    assert isinstance(found.step, Decimal)
    assert 0 <= found.below <= 1
    assert 0 <= found.above <= 1
