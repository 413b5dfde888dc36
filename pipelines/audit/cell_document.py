"""Reader of the cells of a center in mechanism files, for the auditor: what each member may be.

Cells are a partition of the records by codes of their features. The member `cells` of a linear center has the columns
of codes, a binary tree over them whose leaves are the cells, the codes of a sample of records, a noised histogram of
the residuals around the linear center, a noised sum of the residuals of each cell, and trees that follow from them.
"""

from __future__ import annotations

import itertools
import string
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .documents import RefusedDocument, read_member, read_nonnegative, residual_cells

CODES, DEPTH = 64, 3
"""Number of codes of a column, and of levels of a tree."""

_MOST_COLUMNS, _LEAST_CELLS, _MOST_CELLS, _MOST_TREES, _MOST_SAMPLE = 33, 30, 1 << 12, 960, 1 << 14
_MOST_RECORDS, _MOST_COUNT, _MOST_SUM, _MOST_LEAF = 1 << 41, 1 << 62, 1 << 90, 1 << 40
_LARGEST_ENCODED = 4 << 10
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-9, 30
_ALPHABET = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
_TO_CODES = bytes(max(_ALPHABET.find(octet), 0) for octet in range(256))
_KEYS = {"columns", "codes", "tree", "histogram_epsilon", "sums_epsilon", "records", "counts", "range", "sums", "trees"}
_NAME = "center.linear.cells"


@dataclass(frozen=True)
class CodedColumn:
    """Column of codes.

    Attributes:
      feature: Place of its encoder in the linear center; -1 for the index that the linear center predicts.
      cuts: Of a number or an index, whose code is the number of cuts that are at most its encoded value; ascending.
      places: Of a category, the code of each place and of a missing value; empty otherwise.
    """

    feature: int
    cuts: list[int]
    places: list[int]


@dataclass(frozen=True)
class Cells:
    """Cells of a center, with all members within their bounds.

    Attributes:
      columns: Columns of codes.
      codes: Codes of the records of the sample, by column.
      nodes: Column, cut and first child of each node of the tree; a leaf is its own child. Codes from the cut on belong
        to the second child.
      histogram_epsilon, sums_epsilon: Budgets of the histogram and of the sums.
      records: Number of records of each cell.
      counts: Noised counts of the histogram.
      ends: Least and largest residual in the sums, in steps of the label domain; empty without sums.
      sums: Noised sum of the clipped residuals of each cell; empty if none were released.
      splits: Columns and cuts of the levels of each tree.
      leaves: Leaves of each tree.
    """

    columns: list[CodedColumn]
    codes: list[bytes]
    nodes: list[tuple[int, int, int]]
    histogram_epsilon: Fraction
    sums_epsilon: Fraction
    records: list[int]
    counts: list[int]
    ends: list[int]
    sums: list[int]
    splits: list[tuple[list[int], list[int]]]
    leaves: list[list[int]]

    @property
    def epsilon(self) -> Fraction:
        """Budget that histogram and sums have spent."""
        return self.histogram_epsilon + (self.sums_epsilon if self.sums else 0)


def read_cells(stated: Any, encoders: list[dict[str, Any]], labels: int) -> Cells:
    """Reads the cells of a linear center with these encoders, for a domain of so many labels.

    Raises RefusedDocument, which names the member, if it is missing, has the wrong type or length, or is out of bounds.
    """
    if not isinstance(stated, dict) or set(stated) != _KEYS:
        raise RefusedDocument(f"{_NAME} has not exactly the members of cells")
    found = {f"{_NAME}.{key}": value for key, value in stated.items()}
    columns = read_member(found, f"{_NAME}.columns", list)
    if not 1 <= len(columns) <= _MOST_COLUMNS:
        raise RefusedDocument(f"{_NAME}.columns are not 1 to {_MOST_COLUMNS} columns")
    nodes = _nodes(read_member(found, f"{_NAME}.tree", dict), len(columns))
    leaves = sum(child == node for node, (_, _, child) in enumerate(nodes))
    records = _integers(found[f"{_NAME}.records"], "records", leaves, 0, _MOST_RECORDS)
    if not any(records):
        raise RefusedDocument(f"{_NAME}.records are all 0")
    sums, ends = (read_member(found, f"{_NAME}.{key}", list) for key in ("sums", "range"))
    if bool(sums) != bool(ends):
        raise RefusedDocument(f"{_NAME} has a range without sums, or sums without a range")
    return Cells(
        [_column(column, encoders, labels) for column in columns],
        _codes(read_member(found, f"{_NAME}.codes", list), len(columns)),
        nodes,
        _epsilon(found, f"{_NAME}.histogram_epsilon"),
        _epsilon(found, f"{_NAME}.sums_epsilon"),
        records,
        _integers(found[f"{_NAME}.counts"], "counts", len(residual_cells(labels)), -_MOST_COUNT, _MOST_COUNT),
        _integers(ends, "range", 2 if ends else 0, -labels, labels),
        _integers(sums, "sums", leaves if sums else 0, -_MOST_SUM, _MOST_SUM),
        *_trees(read_member(found, f"{_NAME}.trees", dict), len(columns)),
    )


def _epsilon(found: dict[str, Any], key: str) -> Fraction:
    epsilon = read_nonnegative(found, key)
    if not _LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON:
        raise RefusedDocument(f"{key} is not between {_LEAST_EPSILON:g} and {_LARGEST_EPSILON}")
    return epsilon


def _integers(values: Any, name: str, size: int, least: int, most: int) -> list[int]:
    if not isinstance(values, list) or len(values) != size:
        raise RefusedDocument(f"{_NAME}.{name} do not have {size} entries")
    if not all(type(value) is int and least <= value <= most for value in values):
        raise RefusedDocument(f"{_NAME}.{name} are not integers from {least} to {most}")
    return values


def _members(document: Any, keys: tuple[str, ...], name: str) -> list[Any]:
    if not isinstance(document, dict) or set(document) != set(keys):
        raise RefusedDocument(f"{_NAME}.{name} has not exactly the members {', '.join(keys)}")
    return [document[key] for key in keys]


def _column(document: Any, encoders: list[dict[str, Any]], labels: int) -> CodedColumn:
    kind = "places" if isinstance(document, dict) and "places" in document else "cuts"
    feature, values = _members(document, ("feature", kind), "columns")
    (feature,) = _integers([feature], "columns.feature", 1, -1, len(encoders) - 1)
    encoder = encoders[feature] if feature >= 0 else {}
    if ("shares" in encoder) != (kind == "places"):
        raise RefusedDocument(f"{_NAME}.columns has places of a feature that is no category, or cuts of one that is")
    if kind == "places":
        return CodedColumn(feature, [], _integers(values, "columns.places", len(encoder["shares"]) + 1, 0, CODES - 1))
    if not isinstance(values, list) or len(values) >= CODES:
        raise RefusedDocument(f"{_NAME}.columns.cuts are not at most {CODES - 1} integers")
    most = labels if feature < 0 else _LARGEST_ENCODED
    cuts = _integers(values, "columns.cuts", len(values), -most, most)
    if any(first >= second for first, second in itertools.pairwise(cuts)):
        raise RefusedDocument(f"{_NAME}.columns.cuts are not ascending")
    return CodedColumn(feature, cuts, [])


def _codes(texts: list[Any], columns: int) -> list[bytes]:
    if len(texts) != columns or not all(isinstance(text, str) and text.isascii() for text in texts):
        raise RefusedDocument(f"{_NAME}.codes are not one text of ASCII for each column")
    encoded = [text.encode() for text in texts]
    if len(set(map(len, encoded))) != 1 or not 1 <= len(encoded[0]) <= _MOST_SAMPLE:
        raise RefusedDocument(f"{_NAME}.codes are not texts of one length from 1 to {_MOST_SAMPLE}")
    if any(text.translate(None, _ALPHABET) for text in encoded):
        raise RefusedDocument(f"{_NAME}.codes have characters that are not of base64")
    return [text.translate(_TO_CODES) for text in encoded]


def _nodes(document: dict[str, Any], columns: int) -> list[tuple[int, int, int]]:
    """Checks that nodes are a binary tree: its root comes first, children come in pairs after their node."""
    lists = _members(document, ("columns", "cuts", "children"), "tree")
    size = len(lists[2]) if isinstance(lists[2], list) else 0
    if not 2 * _LEAST_CELLS <= size + 1 <= 2 * _MOST_CELLS:
        raise RefusedDocument(f"{_NAME}.tree does not have {_LEAST_CELLS} to {_MOST_CELLS} cells")
    bounds = {"columns": (0, columns - 1), "cuts": (1, CODES), "children": (0, size - 1)}
    checked = [_integers(each, f"tree.{key}", size, *bounds[key]) for key, each in zip(bounds, lists, strict=True)]
    nodes, parents = list(zip(*checked, strict=True)), [0] * size
    for node, (column, cut, child) in enumerate(nodes):
        if (child == node) != (cut == CODES) or (child == node and column) or child < node:
            raise RefusedDocument(f"{_NAME}.tree has a node before its parent, or a leaf that is split")
        if child > node:
            if child % 2 == 0:
                raise RefusedDocument(f"{_NAME}.tree has children that are not a pair")
            parents[child] += 1
    # Pairs begin at odd nodes, and each has one parent.
    if size % 2 == 0 or parents[1::2] != [1] * (size // 2):
        raise RefusedDocument(f"{_NAME}.tree has nodes without exactly one parent")
    return nodes


def _trees(document: dict[str, Any], columns: int) -> tuple[list[tuple[list[int], list[int]]], list[list[int]]]:
    split_columns, split_cuts, leaves = _members(document, ("columns", "cuts", "leaves"), "trees")
    lists = (split_columns, split_cuts, leaves)
    if not all(isinstance(each, list) and len(each) <= _MOST_TREES for each in lists) or len(set(map(len, lists))) > 1:
        raise RefusedDocument(f"{_NAME}.trees are not lists of one length, of at most {_MOST_TREES} trees")
    return (
        [
            (_integers(own, "trees.columns", DEPTH, 0, columns - 1), _integers(cuts, "trees.cuts", DEPTH, 1, CODES))
            for own, cuts in zip(split_columns, split_cuts, strict=True)
        ],
        [_integers(each, "trees.leaves", 1 << DEPTH, -_MOST_LEAF, _MOST_LEAF) for each in leaves],
    )
