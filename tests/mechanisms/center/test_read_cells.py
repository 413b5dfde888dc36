"""Cells of a center as documents: the round trip, and documents that are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.center.cell_center import CellCenter
from labeldp.mechanisms.center.center_model import center_document, read_center

from .conftest import Log, log_of


@pytest.fixture(scope="module")
def log() -> Log:
    return log_of(1, records=5000)


@pytest.fixture(scope="module")
def released(log: Log) -> CellCenter:
    return log.release()


@pytest.fixture(scope="module")
def document(released: CellCenter) -> dict[str, Any]:
    return json.loads(json.dumps(center_document(released), allow_nan=False))


def test_a_document_keeps_everything(log: Log, released: CellCenter, document: dict[str, Any]):
    again = read_center(copy.deepcopy(document))
    assert isinstance(again, CellCenter)
    assert center_document(again) == document
    assert again.epsilon == released.epsilon
    np.testing.assert_array_equal(again.positions(log.columns), released.positions(log.columns))


def test_cells_without_sums_have_a_document():
    log = log_of(3, linear=0.05)
    center = log.release()
    document = json.loads(json.dumps(center_document(center)))
    assert (document["cells"]["sums"], document["cells"]["range"]) == ([], [])
    again = read_center(document)
    assert isinstance(again, CellCenter)
    assert again.epsilon == center.epsilon
    np.testing.assert_array_equal(again.indices(log.columns), log.linear.indices(log.columns))


def within(*path: Any) -> Callable[[dict[str, Any], Any], None]:
    def replace(cells: dict[str, Any], value: Any) -> None:
        *above, last = path
        for key in above:
            cells = cells[key]
        cells[last] = value(cells[last]) if callable(value) else value

    return replace


def less(value: Any) -> Any:
    return value[:-1]


def swapped(rows: list[Any]) -> list[Any]:
    return [rows[1], rows[0], *rows[2:]]


@pytest.mark.parametrize(
    ("change", "value", "message"),
    [
        (within("sums", 3), lambda each: each + 10**6, "the trees of the center do not follow from its sums"),
        (within("sums"), [], "sums of cells are missing that the histogram of the residuals speaks for"),
        (within("trees", "leaves", 0, 0), lambda each: each + 1, "the trees of the center do not follow"),
        (within("trees", "leaves", 0, 0), 1 << 50, "center.cells.trees.leaves is not between"),
        (within("trees", "cuts", 0, 0), lambda each: each % 60 + 1, "the trees of the center do not follow"),
        (within("trees", "cuts", 0, 0), 65, "center.cells.trees.cuts is not between 1 and 64"),
        (within("trees", "columns", 0, 0), 99, "center.cells.trees.columns is not between"),
        (within("trees", "columns"), less, "the trees of the center do not follow"),
        (within("trees", "leaves"), swapped, "the trees of the center do not follow"),
        (within("trees", "leaves", 0, 0), float, "center.cells.trees.leaves is not integer"),
        (within("trees", "cuts", 0, 0), bool, "center.cells.trees.cuts is not integer"),
        (within("range", 0), lambda each: each - 1, "the range of the residuals of the center does not follow"),
        (within("counts", 17), 10**5, "range of the residuals of the center|trees of the center|speaks against"),
        (within("records", 0), lambda each: each + 500, "the trees of the center do not follow"),
        (within("records"), lambda each: [0] * len(each), "no cell of the center has a record"),
        (within("histogram_epsilon"), 0.0, "center.cells.histogram_epsilon is not between"),
        (within("sums_epsilon"), 0.5, "range of the residuals of the center|trees of the center"),
        (within("tree", "children", 0), 3, "the tree of the center is none"),
        (within("tree", "children", 5), 0, "the tree of the center is none"),
        (within("tree", "cuts", 0), 64, "the tree of the center is none"),
        (within("tree"), {"columns": [0], "cuts": [64], "children": [0]}, "the tree of the center is none"),
        (within("codes", 0), lambda each: "A" * len(each), "no record of the sample|ascending order"),
        (within("codes", 0), lambda each: "-" + each[1:], "center.cells.codes does not have the form"),
        (within("codes", 0), lambda each: "é" + each[1:], "center.cells.codes does not have the form"),
        (
            within("codes", 0),
            lambda each: "A" * (1 << 15),
            "texts of one length, of at most 16384 characters|has 1 entries",
        ),
        (within("codes"), lambda each: [text[::-1] for text in each], "not those of its sample, in ascending order"),
        (within("codes"), lambda each: [text[:-1] for text in each], "not those of its sample, in ascending order"),
        (within("columns", 0, "feature"), 99, "has a feature that is not there"),
        (within("columns", 0), {"feature": -1, "places": [0]}, "center.cells.columns.feature is not between"),
        (within("columns", 0, "cuts"), lambda each: each[::-1], "cuts of a column of the cells are not ascending"),
        (within("columns", 0, "cuts"), lambda each: list(range(64)), "center.cells.columns.cuts has 64 entries"),
    ],
)
def test_other_documents_are_refused(document: dict[str, Any], change: Any, value: Any, message: str):
    changed = copy.deepcopy(document)
    change(changed["cells"], value)
    with pytest.raises(ValueError, match=message):
        read_center(changed)
