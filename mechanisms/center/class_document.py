"""Center of classes as a document of center.json.

Documents are untrusted: every number that is read is checked, and coefficients and trees must follow from the noised
sums and counts. Codes of the sample are one character each, of the alphabet of base64; its coarse rows are one signed
byte a number, in base64: a text for each column.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from ..core.budget import MAX_EPSILON, MIN_EPSILON
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
from .cell_partition import MOST_CELLS, MOST_COLUMNS
from .center_model import MOST_RECORDS, read_row_map, row_map_document
from .class_center import ClassBudget, ClassCellDesign, ClassCenter, ReleasedClassCells, cells_epsilon
from .class_logit import (
    COARSE,
    MOST_CLASSES,
    MOST_LOGIT_ROWS,
    LinearClasses,
    LogitDesign,
)
from .class_partition import (
    MOST_CLASS_SAMPLE,
    MOST_COMPONENT_COLUMNS,
    MOST_LOGIT_COLUMNS,
    ClassPartition,
    ClassSample,
    RowColumn,
)
from .document_values import check_same, read_list, read_object, read_real, read_text, read_whole, read_wholes
from .feature_rows import ROW_UNIT
from .linear_center import MOST_COMPONENTS

_FITTED = "coefficients or trees"
_KEYS = ("budget", "counts", "linear", "cells")
_BUDGET = ("counts", "sums", "cells")
_LINEAR = ("encoders", "weights", "norm", "records", "epsilon", "rows", "signal", "sums", "coefficients")
_CELLS = ("features", "others", "codes", "rows", "tree", "epsilon", "counts", "coefficients", "trees")
_MOST_COUNT, _MOST_SUM, _MOST_VALUE = 1 << 62, 1 << 128, 1 << 52
_LEAST_SIGNAL, _MOST_SIGNAL = 1e-30, 1e3


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


def read_class_center(document: object) -> ClassCenter:
    """Reads a center of classes from an untrusted document, parsed JSON, as `class_document` writes it.

    Raises ValueError, which says what is wrong, if the document is anything else, or what it says does not follow from
    its noised numbers.
    """
    found = read_object(document, _KEYS, "the center")
    parts = read_object(found["budget"], _BUDGET, "budget of the center")
    budget = ClassBudget(*(read_real(parts[name], name, 0.0, MAX_EPSILON) for name in _BUDGET))
    if budget.counts < MIN_EPSILON:
        raise ValueError(f"the counts of the classes must have an epsilon of at least {MIN_EPSILON:g}")
    listed = read_list(found["counts"], "counts", MOST_CLASSES)
    if len(listed) < 2:
        raise ValueError("the center has fewer than two classes")
    counts = np.array(read_wholes(listed, "counts", len(listed), -_MOST_COUNT, _MOST_COUNT), np.int64)
    linear = _linear(found["linear"], len(counts))
    if linear.design.epsilon not in (0.0, budget.sums):
        raise ValueError("the linear center has another epsilon than its part of the budget")
    cells = None if found["cells"] is None else _cells(found["cells"], linear, budget)
    return ClassCenter(budget, counts, linear, cells)


def _linear(document: object, classes: int) -> LinearClasses:
    found = read_object(document, _LINEAR, "the linear center")
    row_map = read_row_map(found)
    size = row_map.size
    signal = tuple(
        read_real(each, "signal", _LEAST_SIGNAL, _MOST_SIGNAL)
        for each in read_list(found["signal"], "signal", MOST_COMPONENTS)
    )
    if len(signal) != size - 1 or not signal:
        raise ValueError(f"the center has {len(signal)} entries of signal for {size - 1} components")
    epsilon = read_real(found["epsilon"], "epsilon", 0.0, MAX_EPSILON)
    if 0 < epsilon < MIN_EPSILON:
        raise ValueError(f"epsilon of the center must be 0 or at least {MIN_EPSILON:g}")
    records = read_whole(found["records"], "records", 1, MOST_RECORDS)
    rows = _rows(found["rows"], size, MOST_LOGIT_ROWS)
    design = LogitDesign(row_map, classes, records, epsilon, rows, signal)
    sums = _matrix(found["sums"], "sums", size if epsilon else 0, classes, _MOST_SUM)
    with np.errstate(all="ignore"):
        linear = LinearClasses.fit(design, sums)
    check_same(found["coefficients"], linear.coefficients.tolist(), "coefficients", "its sums")
    return linear


def _cells(document: object, linear: LinearClasses, budget: ClassBudget) -> ReleasedClassCells:
    found = read_object(document, _CELLS, "cells of the center")
    design, classes = linear.design, linear.design.classes
    features = tuple(
        read_column(each, design.map.encoders) for each in read_list(found["features"], "features", MOST_COLUMNS)
    )
    most = MOST_COMPONENT_COLUMNS + MOST_LOGIT_COLUMNS
    others = tuple(_row_column(each, design) for each in read_list(found["others"], "others", most))
    if not features and not others:
        raise ValueError("the cells of the center have no column")
    columns = len(features) + len(others)
    codes = read_codes(found["codes"], columns, MOST_CLASS_SAMPLE)
    rows = _rows(found["rows"], design.map.size, MOST_CLASS_SAMPLE)
    if len(codes) != len(rows):
        raise ValueError("the sample of the center has other numbers of codes and rows")
    tree = read_tree(found["tree"], columns)
    size = len(tree.leaves)
    if not np.bincount(tree.cells(codes), minlength=size).all():
        raise ValueError("a cell of the center has no record of the sample")
    sample = ClassSample(ClassPartition(features, others, tree), codes, rows)
    epsilon = read_real(found["epsilon"], "epsilon", MIN_EPSILON, MAX_EPSILON)
    if epsilon != cells_epsilon(linear, budget):
        raise ValueError("the cells of the center have another epsilon than their part of the budget")
    counts = np.array(_matrix(found["counts"], "counts", size, classes, _MOST_COUNT // MOST_CELLS), np.int64)
    totals = counts.sum(axis=1)
    if (totals < 0).any() or int(totals.sum()) != design.records:
        raise ValueError("the counts of the cells do not add up to the number of records")
    with np.errstate(all="ignore"):
        cells = ReleasedClassCells.fit(ClassCellDesign(sample, epsilon), linear, counts)
    check_same(found["coefficients"], cells.coefficients.tolist(), _FITTED, "the counts of the cells")
    check_same(found["trees"], trees_document(cells.trees), _FITTED, "the counts of the cells")
    return cells


def _row_column(document: object, design: LogitDesign) -> RowColumn:
    found = read_object(document, ("logit", "place", "cuts"), "a column of the cells")
    logit = found["logit"]
    if not isinstance(logit, bool):
        raise ValueError("logit of a column of the cells must be true or false")
    first, last = (0, design.classes - 1) if logit else (1, design.map.size - 1)
    return RowColumn(logit, read_whole(found["place"], "place", first, last), read_cuts(found["cuts"], _MOST_VALUE))


def _matrix(document: object, name: str, size: int, width: int, most: int) -> tuple[tuple[int, ...], ...]:
    rows = read_list(document, name, size)
    if len(rows) != size:
        raise ValueError(f"{name} of the center has {len(rows)} rows instead of {size}")
    return tuple(read_wholes(row, name, width, -most, most) for row in rows)


def _rows_document(rows: np.ndarray) -> list[str]:
    return [base64.b64encode((each // COARSE).astype(np.int8).tobytes()).decode() for each in rows.T]


def _rows(document: object, columns: int, most: int) -> np.ndarray:
    texts = [read_text(each, "rows") for each in read_list(document, "rows", columns)]
    if len(texts) != columns or any(len(each) > 2 * most for each in texts):
        raise ValueError(f"rows of the center are not {columns} texts of at most {most} bytes")
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
