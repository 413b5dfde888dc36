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

LEAST_CELLS, MOST_CELLS = 30, 1 << 12
"""Bounds on the number of cells."""
MOST_SAMPLE, MOST_LEAF = 1 << 14, 1 << 40
"""Bounds on the records of a sample and on leaves."""

_MOST_COLUMNS, _MOST_TREES = 33, 960
_MOST_RECORDS, _MOST_COUNT, _MOST_SUM = 1 << 41, 1 << 62, 1 << 90
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
    nodes = read_nodes(found[f"{_NAME}.tree"], len(columns), f"{_NAME}.tree", LEAST_CELLS)
    leaves = sum(child == node for node, (_, _, child) in enumerate(nodes))
    records = read_integers(found[f"{_NAME}.records"], f"{_NAME}.records", leaves, 0, _MOST_RECORDS)
    if not any(records):
        raise RefusedDocument(f"{_NAME}.records are all 0")
    sums, ends = (read_member(found, f"{_NAME}.{key}", list) for key in ("sums", "range"))
    if bool(sums) != bool(ends):
        raise RefusedDocument(f"{_NAME} has a range without sums, or sums without a range")
    return Cells(
        [read_coded_column(column, encoders, labels, f"{_NAME}.columns") for column in columns],
        read_codes(read_member(found, f"{_NAME}.codes", list), len(columns), f"{_NAME}.codes"),
        nodes,
        read_epsilon(found, f"{_NAME}.histogram_epsilon"),
        read_epsilon(found, f"{_NAME}.sums_epsilon"),
        records,
        read_integers(
            found[f"{_NAME}.counts"], f"{_NAME}.counts", len(residual_cells(labels)), -_MOST_COUNT, _MOST_COUNT
        ),
        read_integers(ends, f"{_NAME}.range", 2 if ends else 0, -labels, labels),
        read_integers(sums, f"{_NAME}.sums", leaves if sums else 0, -_MOST_SUM, _MOST_SUM),
        *_trees(found[f"{_NAME}.trees"], len(columns)),
    )


def read_epsilon(found: dict[str, Any], key: str) -> Fraction:
    """Reads an epsilon from 1e-9 to 30 exactly."""
    epsilon = read_nonnegative(found, key)
    if not _LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON:
        raise RefusedDocument(f"{key} is not between {_LEAST_EPSILON:g} and {_LARGEST_EPSILON}")
    return epsilon


def read_integers(values: Any, name: str, size: int, least: int, most: int) -> list[int]:
    """Takes a list of exactly so many integers within bounds; `name` is that of the member."""
    if not isinstance(values, list) or len(values) != size:
        raise RefusedDocument(f"{name} do not have {size} entries")
    if not all(type(value) is int and least <= value <= most for value in values):
        raise RefusedDocument(f"{name} are not integers from {least} to {most}")
    return values


def read_members(document: Any, keys: tuple[str, ...], name: str) -> list[Any]:
    """Takes the members of an object that has exactly these."""
    if not isinstance(document, dict) or set(document) != set(keys):
        raise RefusedDocument(f"{name} has not exactly the members {', '.join(keys)}")
    return [document[key] for key in keys]


def read_coded_column(document: Any, encoders: list[dict[str, Any]], labels: int, name: str) -> CodedColumn:
    """Reads a column of codes; without labels it is one of a feature."""
    kind = "places" if isinstance(document, dict) and "places" in document else "cuts"
    feature, values = read_members(document, ("feature", kind), name)
    (feature,) = read_integers([feature], f"{name}.feature", 1, -1 if labels else 0, len(encoders) - 1)
    encoder = encoders[feature] if feature >= 0 else {}
    if ("shares" in encoder) != (kind == "places"):
        raise RefusedDocument(f"{name} has places of a feature that is no category, or cuts of one that is")
    if kind == "places":
        places = read_integers(values, f"{name}.places", len(encoder["shares"]) + 1, 0, CODES - 1)
        return CodedColumn(feature, [], places)
    return CodedColumn(feature, read_cuts(values, labels if feature < 0 else _LARGEST_ENCODED, name), [])


def read_cuts(values: Any, most: int, name: str) -> list[int]:
    """Reads the cuts of a column of codes, ascending integers of at most this size."""
    if not isinstance(values, list) or len(values) >= CODES:
        raise RefusedDocument(f"{name}.cuts are not at most {CODES - 1} integers")
    cuts = read_integers(values, f"{name}.cuts", len(values), -most, most)
    if any(first >= second for first, second in itertools.pairwise(cuts)):
        raise RefusedDocument(f"{name}.cuts are not ascending")
    return cuts


def read_codes(texts: list[Any], columns: int, name: str, most: int = MOST_SAMPLE) -> list[bytes]:
    """Reads the codes of a sample of at most so many records, by column."""
    if len(texts) != columns or not all(isinstance(text, str) and text.isascii() for text in texts):
        raise RefusedDocument(f"{name} are not one text of ASCII for each column")
    encoded = [text.encode() for text in texts]
    if len(set(map(len, encoded))) != 1 or not 1 <= len(encoded[0]) <= most:
        raise RefusedDocument(f"{name} are not texts of one length from 1 to {most}")
    if any(text.translate(None, _ALPHABET) for text in encoded):
        raise RefusedDocument(f"{name} have characters that are not of base64")
    return [text.translate(_TO_CODES) for text in encoded]


def read_nodes(document: Any, columns: int, name: str, least: int = 1) -> list[tuple[int, int, int]]:
    """Reads nodes that are a binary tree of at least so many leaves: its root comes first, pairs of children later."""
    lists = read_members(document, ("columns", "cuts", "children"), name)
    size = len(lists[2]) if isinstance(lists[2], list) else 0
    if not 2 * least <= size + 1 <= 2 * MOST_CELLS:
        raise RefusedDocument(f"{name} does not have {least} to {MOST_CELLS} cells")
    bounds = {"columns": (0, columns - 1), "cuts": (1, CODES), "children": (0, size - 1)}
    checked = [
        read_integers(each, f"{name}.{key}", size, *bounds[key]) for key, each in zip(bounds, lists, strict=True)
    ]
    nodes, parents = list(zip(*checked, strict=True)), [0] * size
    for node, (column, cut, child) in enumerate(nodes):
        if (child == node) != (cut == CODES) or (child == node and column) or child < node:
            raise RefusedDocument(f"{name} has a node before its parent, or a leaf that is split")
        if child > node:
            if child % 2 == 0:
                raise RefusedDocument(f"{name} has children that are not a pair")
            parents[child] += 1
    # Pairs begin at odd nodes, and each has one parent.
    if size % 2 == 0 or parents[1::2] != [1] * (size // 2):
        raise RefusedDocument(f"{name} has nodes without exactly one parent")
    return nodes


def read_splits(document: Any, columns: int, name: str) -> tuple[list[tuple[list[int], list[int]]], list[Any]]:
    """Reads columns and cuts of the levels of each tree, and takes its leaves as they are."""
    lists = read_members(document, ("columns", "cuts", "leaves"), name)
    if not all(isinstance(each, list) and len(each) <= _MOST_TREES for each in lists) or len(set(map(len, lists))) > 1:
        raise RefusedDocument(f"{name} are not lists of one length, of at most {_MOST_TREES} trees")
    splits = [
        (
            read_integers(own, f"{name}.columns", DEPTH, 0, columns - 1),
            read_integers(cuts, f"{name}.cuts", DEPTH, 1, CODES),
        )
        for own, cuts in zip(lists[0], lists[1], strict=True)
    ]
    return splits, lists[2]


def _trees(document: Any, columns: int) -> tuple[list[tuple[list[int], list[int]]], list[list[int]]]:
    splits, leaves = read_splits(document, columns, f"{_NAME}.trees")
    name = f"{_NAME}.trees.leaves"
    return splits, [read_integers(each, name, 1 << DEPTH, -MOST_LEAF, MOST_LEAF) for each in leaves]
