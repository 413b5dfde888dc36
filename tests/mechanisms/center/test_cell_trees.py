"""Trees of cell means: they learn what cells tell, and find nothing in noise."""

from __future__ import annotations

import numpy as np
from labeldp.mechanisms.center.boosting import FOLDS
from labeldp.mechanisms.center.cell_center import _SIZES, LEAF_UNIT, CellMeans, boost
from labeldp.mechanisms.center.cell_partition import CODES, LEAST_CELLS, split_cells


def cells_of(seed: int, columns: int = 4, records: int = 6000, cells: int = 400) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.Generator(np.random.PCG64(seed))
    codes = random.integers(0, CODES, (records, columns)).astype(np.uint8)
    return codes, split_cells(codes, codes.astype(np.float64), cells).cells(codes)


def means_of(cells: np.ndarray, values: np.ndarray, deviation: float, seed: int = 1) -> CellMeans:
    """Means of values over the cells, with noise."""
    counts = np.bincount(cells)
    noise = np.random.Generator(np.random.PCG64(seed)).normal(0, deviation, len(counts))
    return CellMeans(cells, np.bincount(cells, values) / counts + noise, np.full(len(counts), deviation**2))


def test_an_interaction_is_learned_from_means_alone():
    codes, cells = cells_of(1)
    truth = np.where((codes[:, 0] >= 32) ^ (codes[:, 1] >= 32), 3.0, -3.0) + (codes[:, 2] >= 16)
    means = means_of(cells, truth - truth.mean(), 2.0)
    trees = boost(codes, means)
    assert 0 < len(trees.leaves) <= FOLDS * _SIZES[-1]
    assert len(trees.leaves) % FOLDS == 0
    error = ((trees.predict(codes)[:, 0] / LEAF_UNIT - (truth - truth.mean())) ** 2).mean()
    # The cells say it with a variance of 4, and cells of 15 records mix what is not alike.
    assert error < 0.15 * truth.var()


def test_a_heavy_cell_counts_for_more():
    """Cells without noise on one side outweigh wrong ones with much of it on the other."""
    codes, cells = cells_of(2)
    counts = np.bincount(cells)
    truth = np.where(codes[:, 0] >= 32, 2.0, -2.0)
    means = np.bincount(cells, truth) / counts
    wrong = np.arange(len(means)) % 4 == 0
    noise = np.where(wrong, -5 * means, means)
    trees = boost(codes, CellMeans(cells, noise, np.where(wrong, 1e4, 0.1)))
    assert ((trees.predict(codes)[:, 0] / LEAF_UNIT - truth) ** 2).mean() < 0.1


def test_noise_alone_gives_no_trees():
    """The agreement with held-out cells must be 2.5 standard errors, of the best of six numbers of trees."""
    found = 0
    for seed in range(8):
        codes, cells = cells_of(seed, records=2000, cells=150)
        found += len(boost(codes, means_of(cells, np.zeros(2000), 1.0, seed)).leaves) > 0
    # Each has a chance of at most 6 times 0.6 %.
    assert found <= 1


def test_the_fewest_cells_of_records_that_are_alike_give_no_trees():
    codes, cells = np.zeros((60, 2), np.uint8), np.arange(60) % LEAST_CELLS
    assert not len(boost(codes, CellMeans(cells, np.zeros(LEAST_CELLS), np.ones(LEAST_CELLS))).leaves)
