"""Center of classes as a document of center.json.

Documents are untrusted: their form is checked, and coefficients and trees must follow from the noised
sums and counts. Codes of the sample are one character each, of the alphabet of base64; its coarse rows are one signed
byte a number, in base64: a text for each column.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from ..core.budget import MIN_EPSILON
from ..core.document_form import check_form
from .cell_document import (
    codes_document,
    column_document,
    read_codes,
    read_column,
    read_cuts,
    read_tree,
    tree_document,
    trees_document,
)
from .center_model import read_row_map, row_map_document
from .class_center import ClassBudget, ClassCellDesign, ClassCenter, ReleasedClassCells, cells_epsilon
from .class_logit import (
    COARSE,
    MOST_LOGIT_ROWS,
    LinearClasses,
    LogitDesign,
)
from .class_partition import (
    MOST_CLASS_SAMPLE,
    ClassPartition,
    ClassSample,
    RowColumn,
)
from .document_values import check_same, read_sized
from .feature_rows import ROW_UNIT

_FITTED = "coefficients or trees"
_MOST_VALUE = 1 << 52


def class_document(center: ClassCenter) -> dict[str, Any]:
    """Writes a center of classes as a document: objects, lists, text and numbers. All of it is public or released."""
    budget, linear, design = center.budget, center.linear, center.linear.design
    return {
        "budget": {"counts": budget.counts, "sums": budget.sums, "cells": budget.cells},
        "counts": center.counts.tolist(),
        "linear": {
            **row_map_document(design.map),
            "records": design.records,
            "epsilon": design.epsilon,
            "rows": _rows_document(design.rows),
            "signal": list(design.signal),
            "sums": [list(each) for each in linear.sums],
            "coefficients": linear.coefficients.tolist(),
        },
        "cells": None if center.cells is None else _cells_document(center.cells),
    }


def _cells_document(cells: ReleasedClassCells) -> dict[str, Any]:
    sample = cells.design.sample
    return {
        "features": [column_document(each) for each in sample.partition.features],
        "others": [
            {"logit": each.logit, "place": each.place, "cuts": list(each.cuts)} for each in sample.partition.others
        ],
        "codes": codes_document(sample.codes),
        "rows": _rows_document(sample.rows),
        "tree": tree_document(sample.partition.tree),
        "epsilon": cells.design.epsilon,
        "counts": cells.counts.tolist(),
        "coefficients": cells.coefficients.tolist(),
        "trees": trees_document(cells.trees),
    }


def read_class_center(document: Any) -> ClassCenter:
    """Reads a center of classes from an untrusted document, parsed JSON, as `class_document` writes it.

    Raises ValueError, which says what is wrong, if the document is anything else, or what it says does not follow from
    its noised numbers.
    """
    check_form(document, "class_model", "center")
    budget = ClassBudget(**document["budget"])
    counts = np.array(document["counts"], np.int64)
    linear = _linear(document["linear"], len(counts))
    if linear.design.epsilon not in (0.0, budget.sums):
        raise ValueError("the linear center has another epsilon than its part of the budget")
    cells = None if document["cells"] is None else _cells(document["cells"], linear, budget)
    return ClassCenter(budget, counts, linear, cells)


def _linear(document: dict[str, Any], classes: int) -> LinearClasses:
    row_map = read_row_map(document)
    size, epsilon, records = row_map.size, document["epsilon"], document["records"]
    signal = tuple(read_sized(document["signal"], "signal", size - 1))
    if 0 < epsilon < MIN_EPSILON:
        raise ValueError(f"epsilon of the center must be 0 or at least {MIN_EPSILON:g}")
    rows = _rows(document["rows"], size, MOST_LOGIT_ROWS)
    design = LogitDesign(row_map, classes, records, epsilon, rows, signal)
    sums = _matrix(document["sums"], "sums", size if epsilon else 0, classes)
    with np.errstate(all="ignore"):
        linear = LinearClasses.fit(design, sums)
    check_same(document["coefficients"], linear.coefficients.tolist(), "coefficients", "its sums")
    return linear


def _cells(document: dict[str, Any], linear: LinearClasses, budget: ClassBudget) -> ReleasedClassCells:
    design, classes = linear.design, linear.design.classes
    features = tuple(read_column(column, design.map.encoders) for column in document["features"])
    others = tuple(_row_column(column, design) for column in document["others"])
    if not features and not others:
        raise ValueError("the cells of the center have no column")
    columns = len(features) + len(others)
    codes = read_codes(document["codes"], columns, MOST_CLASS_SAMPLE)
    rows = _rows(document["rows"], design.map.size, MOST_CLASS_SAMPLE)
    if len(codes) != len(rows):
        raise ValueError("the sample of the center has other numbers of codes and rows")
    tree = read_tree(document["tree"], columns)
    size = len(tree.leaves)
    if not np.bincount(tree.cells(codes), minlength=size).all():
        raise ValueError("a cell of the center has no record of the sample")
    sample = ClassSample(ClassPartition(features, others, tree), codes, rows)
    epsilon = document["epsilon"]
    if epsilon != cells_epsilon(linear, budget):
        raise ValueError("the cells of the center have another epsilon than their part of the budget")
    counts = np.array(_matrix(document["counts"], "counts", size, classes), np.int64)
    totals = counts.sum(axis=1)
    if (totals < 0).any() or int(totals.sum()) != design.records:
        raise ValueError("the counts of the cells do not add up to the number of records")
    with np.errstate(all="ignore"):
        cells = ReleasedClassCells.fit(ClassCellDesign(sample, epsilon), linear, counts)
    check_same(document["coefficients"], cells.coefficients.tolist(), _FITTED, "the counts of the cells")
    check_same(document["trees"], trees_document(cells.trees), _FITTED, "the counts of the cells")
    return cells


def _row_column(document: dict[str, Any], design: LogitDesign) -> RowColumn:
    logit, place = document["logit"], document["place"]
    if not (0 if logit else 1) <= place < (design.classes if logit else design.map.size):
        raise ValueError("a column of the cells of the center has a place that is not there")
    return RowColumn(logit, place, read_cuts(document["cuts"], _MOST_VALUE))


def _matrix(rows: list[list[int]], name: str, size: int, width: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(read_sized(row, name, width)) for row in read_sized(rows, name, size))


def _rows_document(rows: np.ndarray) -> list[str]:
    return [base64.b64encode((each // COARSE).astype(np.int8).tobytes()).decode() for each in rows.T]


def _rows(texts: list[str], columns: int, most: int) -> np.ndarray:
    read_sized(texts, "rows", columns)
    try:
        parts = [np.frombuffer(base64.b64decode(each, validate=True), np.int8) for each in texts]
    except (binascii.Error, ValueError):
        raise ValueError("rows of the center are not base64") from None
    if len({len(part) for part in parts}) != 1 or not 0 < len(parts[0]) <= most:
        raise ValueError(f"rows of the center are not from 1 to {most} bytes, all of one length")
    rows = np.stack(parts, axis=1).astype(np.int64) * COARSE
    if (rows < -127 * COARSE).any() or (rows[:, 0] < 0).any() or (rows[:, 0] > ROW_UNIT).any():
        raise ValueError("rows of the center are out of range")
    return rows
