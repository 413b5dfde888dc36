"""Partitions into cells: codes, the tree against a walk of each record, and where a split is not possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.center.cell_partition import (
    CODES,
    MOST_CELLS,
    MOST_COLUMNS,
    CellTree,
    _median_cut,
    choose_partition,
    split_cells,
)
from labeldp.mechanisms.center.feature_rows import Categories, Category
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums

from .conftest import KEYS, LABELS, Log


def walked(tree: CellTree, codes: list[int]) -> int:
    """Cell of one record, from the root down."""
    node = 0
    while tree.children[node] != node:
        node = tree.children[node] + (codes[tree.columns[node]] >= tree.cuts[node])
    return tree.leaves.tolist().index(node)


def test_each_record_lies_in_the_cell_that_a_walk_finds(log: Log):
    partition = log.design.partition
    codes = partition.codes(log.columns, log.linear, log.linear.indices(log.columns))
    assert codes.dtype == np.uint8
    assert codes.max() < CODES
    cells = partition.tree.cells(codes)
    some = np.arange(0, len(cells), 97)
    assert [walked(partition.tree, codes[row].tolist()) for row in some] == cells[some].tolist()
    # The tree was made for the sample, so each cell has records of it, about as many as any other.
    sizes = np.bincount(partition.tree.cells(log.design.codes), minlength=len(partition.tree.leaves))
    assert sizes.min() >= 1
    assert sizes.max() <= 6 * sizes.mean()


def test_codes_are_those_of_the_definition(log: Log):
    partition, centers = log.design.partition, log.linear.indices(log.columns)
    codes = partition.codes(log.columns, log.linear, centers)
    for place, column in enumerate(partition.columns):
        if column.feature < 0:
            values = centers
        else:
            encoder = log.linear.design.map.encoders[column.feature]
            values: Any = log.columns[encoder.name]
            if isinstance(encoder, Category):
                known = [encoder.values.index(values.values[code]) if code >= 0 else -1 for code in values.codes]
                assert codes[:, place].tolist() == [column.places[each] for each in known]
                continue
            values = encoder.encode(values)
        assert codes[:, place].tolist() == [sum(cut <= value for cut in column.cuts) for value in values.tolist()]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 1 << 30), st.integers(1, 60), st.integers(1, 40), st.integers(1, 4), st.integers(1, CODES))
def test_trees_of_any_codes(seed: int, records: int, cells: int, columns: int, kinds: int):
    random = np.random.Generator(np.random.PCG64(seed))
    codes = random.integers(0, kinds, (records, columns)).astype(np.uint8)
    tree = split_cells(codes, codes.astype(np.float64), cells)
    found = tree.cells(codes)
    assert len(tree.leaves) <= cells
    assert set(found.tolist()) == set(range(len(tree.leaves)))
    assert [walked(tree, row) for row in codes.tolist()] == found.tolist()
    distinct = len({tuple(row) for row in codes.tolist()})
    assert len(tree.leaves) == min(cells, distinct)


@given(st.lists(st.integers(0, CODES - 1), min_size=2, max_size=50).filter(lambda codes: len(set(codes)) > 1))
def test_the_median_cut_is_the_most_even_one(codes: list[int]):
    cut = _median_cut(np.array(codes))
    uneven = {
        at: abs(2 * sum(code < at for code in codes) - len(codes)) for at in range(min(codes) + 1, max(codes) + 1)
    }
    assert uneven[cut] == min(uneven.values())


@pytest.mark.parametrize("kinds", [1, 3, 500])
def test_columns_are_bounded(kinds: int):
    """Constant features, few values, and more categories than columns."""
    random = np.random.Generator(np.random.PCG64(1))
    columns: dict[str, Any] = {f"n{i}": random.integers(0, kinds, 3000).astype(np.float64) for i in range(20)}
    columns |= {f"t{i}": Categories(random.integers(0, kinds, 3000), tuple(map(str, range(kinds)))) for i in range(20)}
    columns["varied"] = random.normal(size=3000)
    design = design_center(columns, 10**6, 1.0)
    sums = moment_sums(design.map.rows(columns), random.integers(0, LABELS, 3000), LABELS)
    noised = noised_sums(sums, design.map.norm, LABELS, design.epsilon, KEYS[0])
    partition, codes = choose_partition(columns, LinearCenter.fit(design, LABELS, noised), MOST_CELLS)
    assert codes.shape == (3000, len(partition.columns))
    assert len(partition.columns) <= MOST_COLUMNS + 1
    assert 1 < len(partition.tree.leaves) <= MOST_CELLS
    assert codes.max() < CODES
