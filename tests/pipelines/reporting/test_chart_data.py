"""Chart data: the transition probabilities reduced to cells, and bins of labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.pipelines.reporting.chart_data import Bin, channel_cells, label_bins

LABELS = np.array([0.0, 1.0, 2.0, 5.0])


def test_bins_are_labels_with_equal_rows() -> None:
    alike = np.array([[0.7, 0.3], [0.7, 0.3], [0.7, 0.3], [0.3, 0.7]])

    assert label_bins(LABELS, np.array([1.0, 4.0]), alike) == [
        Bin(0, 2, 1, 0.7),
        Bin(5, 5, 4, 0.7),
    ]
    assert label_bins(LABELS, LABELS, np.eye(4)) == []
    assert label_bins(LABELS, LABELS, np.full((4, 4), 0.25)) == []


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_cells_keep_the_mass(labels: int, outputs: int, max_cells: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Some neighboring rows are equal.
    rows = generator.dirichlet(np.ones(outputs), labels)[np.sort(generator.integers(0, labels, labels))]
    values = np.arange(float(labels)), np.arange(float(outputs)) * 2

    cells = channel_cells(*values, rows, max_cells)

    assert cells.probabilities.shape == (len(cells.rows), len(cells.columns))
    assert max(cells.probabilities.shape) <= max_cells
    sizes = np.outer([b - a + 1 for a, b in cells.rows], [(b - a) / 2 + 1 for a, b in cells.columns])
    assert (cells.probabilities * sizes).sum() == pytest.approx(labels)
    for ranges, all_values in zip((cells.rows, cells.columns), values, strict=True):
        assert ranges[0][0] == all_values[0]
        assert ranges[-1][1] == all_values[-1]


def test_labels_with_equal_rows_share_a_row() -> None:
    rows = np.repeat(np.array([[0.8, 0.2], [0.2, 0.8]]), [300, 101], axis=0)
    cells = channel_cells(np.arange(401.0), np.array([1.0, 2.0]), rows)

    assert cells.rows == [(0, 299), (300, 400)]
    assert cells.probabilities == pytest.approx(np.array([[0.8, 0.2], [0.2, 0.8]]))
