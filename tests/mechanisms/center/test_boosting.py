"""Oblivious trees predict what a walk finds, and each cell is held out once."""

from __future__ import annotations

import numpy as np
import pytest
from labeldp.mechanisms.center.boosting import DEPTH, FOLDS, ObliviousTrees, held_out
from labeldp.mechanisms.center.cell_partition import CODES


@pytest.mark.parametrize(("trees", "width", "most"), [(0, 2, 9), (1, 1, 99), (5, 1, 1 << 29), (7, 3, 1 << 40)])
def test_predictions_are_those_of_a_walk(trees, width, most):
    random = np.random.default_rng(3)
    model = ObliviousTrees(
        random.integers(0, 3, (trees, DEPTH)),
        random.integers(1, CODES, (trees, DEPTH)),
        random.integers(-most, most, (trees, 1 << DEPTH, width)),
    )
    codes = random.integers(0, CODES, (50, 3)).astype(np.uint8)
    for row, predicted in zip(codes, model.predict(codes).tolist(), strict=True):
        total = [0] * width
        for columns, cuts, leaves in zip(model.columns, model.cuts, model.leaves.tolist(), strict=True):
            bits = "".join(str(int(row[column] >= cut)) for column, cut in zip(columns, cuts, strict=True))
            total = [one + other for one, other in zip(total, leaves[int(bits, 2)], strict=True)]
        assert predicted == total


def test_each_cell_is_held_out_once():
    held = np.array([held_out(1000, fold) for fold in range(FOLDS)])
    assert (held.sum(axis=0) == 1).all()
    assert held.sum(axis=1).min() > 250
