"""Cells of a center as a document of center.json and mechanism files.

Documents are untrusted: their form is checked before, and the trees must follow from the sums. Codes of the sample are
one character each, of the alphabet of base64: a text for each column.
"""

from __future__ import annotations

import itertools
import string
from typing import Any

import numpy as np

from .boosting import ObliviousTrees
from .cell_center import CellDesign, ReleasedCells
from .cell_partition import CODES, LEAST_CELLS, CellPartition, CellTree, CodedColumn
from .document_values import check_same, read_sized
from .feature_rows import FEATURE_UNIT, LARGEST_FEATURE, Category, Encoder
from .linear_center import MOST_SAMPLE, LinearCenter

_ALPHABET = np.frombuffer((string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8)


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


def read_cells(document: dict[str, Any], center: LinearCenter) -> ReleasedCells:
    """Reads the cells of a linear center from a document that has their form.

    Raises ValueError, which says what is wrong, if its members do not fit together, or its trees do not follow from its
    sums.
    """
    columns = tuple(read_column(column, center.design.map.encoders, center.labels) for column in document["columns"])
    codes = read_codes(document["codes"], len(columns))
    if len(codes) != center.design.sampled or (np.lexsort(codes.T[::-1]) != np.arange(len(codes))).any():
        raise ValueError("codes of the center are not those of its sample, in ascending order")
    tree = read_tree(document["tree"], len(columns), LEAST_CELLS)
    partition = CellPartition(columns, tree)
    design = CellDesign(partition, codes, document["histogram_epsilon"], document["sums_epsilon"])
    size = len(tree.leaves)
    if np.unique(tree.cells(codes)).size < size:
        raise ValueError("a cell of the center has no record of the sample")
    records = np.array(read_sized(document["records"], "records", size), np.int64)
    if not records.any():
        raise ValueError("no cell of the center has a record")
    counts = tuple(read_sized(document["counts"], "counts", design.histogram_cells(center.labels)))
    released = document["sums"]
    sums = tuple(read_sized(released, "sums", size if released else 0))
    with np.errstate(all="ignore"):
        cells = ReleasedCells.fit(design, center, records, counts, sums)
    if tuple(document["range"]) != cells.ends:
        raise ValueError("the range of the residuals of the center does not follow from their histogram")
    check_same(document["trees"], trees_document(cells.trees), "trees", "its sums")
    return cells


def read_column(document: dict[str, Any], encoders: tuple[Encoder, ...], labels: int = 0) -> CodedColumn:
    """Reads a column of codes; one of a center's own predictions needs the number of labels."""
    feature = document["feature"]
    if not (-1 if labels else 0) <= feature < len(encoders):
        raise ValueError("a column of the cells of the center has a feature that is not there")
    encoder = None if feature < 0 else encoders[feature]
    if ("places" in document) != isinstance(encoder, Category):
        raise ValueError("a column of the cells has places without a category, or a category without them")
    if isinstance(encoder, Category):
        return CodedColumn(feature, places=tuple(read_sized(document["places"], "places", encoder.width + 1)))
    most = labels if encoder is None else LARGEST_FEATURE * FEATURE_UNIT
    return CodedColumn(feature, read_cuts(document["cuts"], most))


def read_cuts(cuts: list[int], most: int) -> tuple[int, ...]:
    """Reads the cuts of a column, integers of at most `most` in absolute value."""
    if any(first >= second for first, second in itertools.pairwise(cuts)):
        raise ValueError("cuts of a column of the cells are not ascending")
    if any(abs(cut) > most for cut in cuts):
        raise ValueError(f"cuts of a column of the cells are not from {-most} to {most}")
    return tuple(cuts)


def read_codes(texts: list[str], columns: int, most: int = MOST_SAMPLE) -> np.ndarray:
    """Reads the codes of the sample of at most so many records, shape (s, d), uint8."""
    lengths = set(map(len, read_sized(texts, "codes", columns)))
    if len(lengths) != 1 or max(lengths) > most:
        raise ValueError(f"codes of the center are not texts of one length, of at most {most} characters")
    code = np.zeros(256, np.uint8)
    code[_ALPHABET] = np.arange(CODES)
    return np.ascontiguousarray(np.stack([code[np.frombuffer(text.encode(), np.uint8)] for text in texts], axis=1))


def read_tree(document: dict[str, list[int]], columns: int, least: int = 1) -> CellTree:
    """Reads the tree of a partition into at least so many cells."""
    children, split, cuts = (document[key] for key in ("children", "columns", "cuts"))
    size = len(children)
    read_sized(split, "columns of the tree", size)
    read_sized(cuts, "cuts of the tree", size)
    # Children come after their node, two by two, and all but the root are those of one node.
    firsts = [child for node, child in enumerate(children) if child != node]
    leaves = all((child == i) == (cuts[i] == CODES) for i, child in enumerate(children))
    leaves = leaves and all(child != i or split[i] == 0 for i, child in enumerate(children))
    inside = all(node <= child < size for node, child in enumerate(children)) and max(split) < columns
    if not (leaves and inside and sorted(firsts) == list(range(1, size, 2)) and size >= 2 * least - 1):
        raise ValueError("the tree of the center is none")
    return CellTree(*(np.array(values, np.int64) for values in (split, cuts, children)))
