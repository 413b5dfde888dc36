"""Cells of a center as a document of center.json and mechanism files.

Documents are untrusted: every number that is read is checked, and the trees must follow from the sums. Codes of the
sample are one character each, of the alphabet of base64: a text for each column.
"""

from __future__ import annotations

import itertools
import string
from typing import Any

import numpy as np

from .boosting import ObliviousTrees
from .cell_center import CellDesign, ReleasedCells
from .cell_partition import CODES, LEAST_CELLS, MOST_CELLS, MOST_COLUMNS, CellPartition, CellTree, CodedColumn
from .document_values import check_same, read_list, read_object, read_real, read_whole, read_wholes
from .feature_rows import FEATURE_UNIT, LARGEST_FEATURE, Category, Encoder
from .linear_center import MOST_SAMPLE, LinearCenter

_KEYS = ("columns", "codes", "tree", "histogram_epsilon", "sums_epsilon", "records", "counts", "range", "sums", "trees")
_ALPHABET = np.frombuffer((string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8)
_MOST_COUNT = 1 << 62
_MOST_RECORDS = 1 << 53
_MOST_SUM = 1 << 90


def cells_document(cells: ReleasedCells) -> dict[str, Any]:
    """Writes cells as a document: objects, lists, text and numbers. All of it is public or released."""
    design = cells.design
    return {
        "columns": [column_document(column) for column in design.partition.columns],
        "codes": codes_document(design.codes),
        "tree": tree_document(design.partition.tree),
        "histogram_epsilon": design.histogram,
        "sums_epsilon": design.epsilon,
        "records": cells.records.tolist(),
        "counts": list(cells.counts),
        "range": list(cells.ends),
        "sums": list(cells.sums),
        "trees": trees_document(cells.trees),
    }


def column_document(column: CodedColumn) -> dict[str, Any]:
    """Writes a column of codes of a feature."""
    if column.places:
        return {"feature": column.feature, "places": list(column.places)}
    return {"feature": column.feature, "cuts": list(column.cuts)}


def codes_document(codes: np.ndarray) -> list[str]:
    """Writes codes, shape (s, d), uint8, as a text for each column."""
    return [_ALPHABET[each].tobytes().decode() for each in codes.T]


def tree_document(tree: CellTree) -> dict[str, Any]:
    """Writes the tree of a partition."""
    return {"columns": tree.columns.tolist(), "cuts": tree.cuts.tolist(), "children": tree.children.tolist()}


def trees_document(trees: ObliviousTrees) -> dict[str, Any]:
    """Writes trees; leaves of one value as numbers."""
    leaves = trees.leaves[..., 0] if trees.leaves.shape[2] == 1 else trees.leaves
    return {"columns": trees.columns.tolist(), "cuts": trees.cuts.tolist(), "leaves": leaves.tolist()}


def read_cells(document: object, center: LinearCenter) -> ReleasedCells:
    """Reads the cells of a linear center from an untrusted document, parsed JSON.

    Raises ValueError, which says what is wrong, if the document is anything else, or its trees do not follow from its
    sums.
    """
    found = read_object(document, _KEYS, "cells of the center")
    encoders = center.design.map.encoders
    columns = tuple(
        read_column(each, encoders, center.labels) for each in read_list(found["columns"], "columns", MOST_COLUMNS + 1)
    )
    if not columns:
        raise ValueError("the cells of the center have no column")
    codes = read_codes(found["codes"], len(columns))
    if len(codes) != center.design.sampled or (np.lexsort(codes.T[::-1]) != np.arange(len(codes))).any():
        raise ValueError("codes of the center are not those of its sample, in ascending order")
    tree = read_tree(found["tree"], len(columns), LEAST_CELLS)
    budgets = [read_real(found[name], name, 1e-9, 30.0) for name in ("histogram_epsilon", "sums_epsilon")]
    design = CellDesign(CellPartition(columns, tree), codes, *budgets)
    size = len(tree.leaves)
    if np.unique(tree.cells(codes)).size < size:
        raise ValueError("a cell of the center has no record of the sample")
    records = np.array(read_wholes(found["records"], "records", size, 0, _MOST_RECORDS // MOST_CELLS), np.int64)
    if not records.any():
        raise ValueError("no cell of the center has a record")
    width = design.histogram_cells(center.labels)
    counts = read_wholes(found["counts"], "counts", width, -_MOST_COUNT, _MOST_COUNT)
    released = read_list(found["sums"], "sums", size)
    sums = read_wholes(released, "sums", size if released else 0, -_MOST_SUM, _MOST_SUM)
    with np.errstate(all="ignore"):
        cells = ReleasedCells.fit(design, center, records, counts, sums)
    ends = read_list(found["range"], "range", 2)
    if read_wholes(ends, "range", len(cells.ends), -center.labels, center.labels) != cells.ends:
        raise ValueError("the range of the residuals of the center does not follow from their histogram")
    check_same(found["trees"], trees_document(cells.trees), "trees", "its sums")
    return cells


def read_column(document: object, encoders: tuple[Encoder, ...], labels: int = 0) -> CodedColumn:
    """Reads a column of codes; one of a center's own predictions needs the number of labels."""
    places = isinstance(document, dict) and "places" in document
    found = read_object(document, ("feature", "places" if places else "cuts"), "a column of the cells")
    feature = read_whole(found["feature"], "feature", -1 if labels else 0, len(encoders) - 1)
    encoder = None if feature < 0 else encoders[feature]
    if places != isinstance(encoder, Category):
        raise ValueError("a column of the cells has places without a category, or a category without them")
    if isinstance(encoder, Category):
        codes = read_wholes(found["places"], "places", encoder.width + 1, 0, CODES - 1)
        return CodedColumn(feature, places=codes)
    most = labels if encoder is None else LARGEST_FEATURE * FEATURE_UNIT
    return CodedColumn(feature, read_cuts(found["cuts"], most))


def read_cuts(document: object, most: int) -> tuple[int, ...]:
    """Reads the cuts of a column, integers of at most `most` in absolute value."""
    listed = read_list(document, "cuts", CODES - 1)
    cuts = read_wholes(listed, "cuts", len(listed), -most, most)
    if any(first >= second for first, second in itertools.pairwise(cuts)):
        raise ValueError("cuts of a column of the cells are not ascending")
    return cuts


def read_codes(document: object, columns: int, most: int = MOST_SAMPLE) -> np.ndarray:
    """Reads the codes of the sample of at most so many records, shape (s, d), uint8."""
    texts = read_list(document, "codes", columns)
    if len(texts) != columns or not all(isinstance(each, str) and len(each) <= most for each in texts):
        raise ValueError(f"codes of the center are not {columns} texts of at most {most} characters")
    place = np.full(256, CODES, np.uint8)
    place[_ALPHABET] = np.arange(CODES)
    rows = [place[np.frombuffer(each.encode(errors="replace"), np.uint8)] for each in texts]
    if len({len(row) for row in rows}) != 1 or not len(rows[0]) or any((row == CODES).any() for row in rows):
        raise ValueError("codes of the center are not texts of one length of characters of base64")
    return np.ascontiguousarray(np.stack(rows, axis=1))


def read_tree(document: object, columns: int, least: int = 1) -> CellTree:
    """Reads the tree of a partition into at least so many cells."""
    found = read_object(document, ("columns", "cuts", "children"), "the tree of the center")
    size = len(read_list(found["children"], "children", 2 * MOST_CELLS - 1))
    children = read_wholes(found["children"], "children", size, 0, max(size - 1, 0))
    split = read_wholes(found["columns"], "columns", size, 0, columns - 1)
    cuts = read_wholes(found["cuts"], "cuts", size, 1, CODES)
    # Children come after their node, two by two, and all but the root are those of one node.
    firsts = [child for node, child in enumerate(children) if child != node]
    leaves = all((child == i) == (cuts[i] == CODES) for i, child in enumerate(children))
    leaves = leaves and all(child != i or split[i] == 0 for i, child in enumerate(children))
    later = all(child >= node for node, child in enumerate(children))
    if not (leaves and later and sorted(firsts) == list(range(1, size, 2)) and size >= 2 * least - 1):
        raise ValueError("the tree of the center is none")
    return CellTree(*(np.array(each, np.int64) for each in (split, cuts, children)))
