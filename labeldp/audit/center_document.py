"""Reader of a linear center and its cells in mechanism files, for the auditor: what each member may be.

The map of a center goes from features to rows: a number is standardized, a category has one indicator for each of its
places. Components are weighted sums of these, in integers, and a row is a constant and the components, shortened to an
L1 norm of at most A.

Cells are a partition of the records by codes of their features. The member `cells` has the columns of codes, a binary
tree over them whose leaves are the cells, the codes of a sample of records, a noised histogram of the residuals around
the linear center, a noised sum of the residuals of each cell, and trees that follow from them.

All functions raise RefusedDocument, which names the member, if one is missing, has the wrong type or length, or is out
of bounds.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .documents import Members, RefusedDocument, exact_members, read_center, read_integers, residual_cells

ROW_UNIT, FEATURE_UNIT, WEIGHT_UNIT = 1 << 8, 1 << 10, 1 << 14
COEFFICIENT_UNIT = 1 << 16
"""Coefficients are integer multiples of 1 / COEFFICIENT_UNIT."""
LARGEST_FEATURE = 4
"""Standardized numbers are clipped here."""

CODES, DEPTH = 64, 3
"""Number of codes of a column, and of levels of a tree."""
LEAST_CELLS, MOST_CELLS = 30, 1 << 12
"""Bounds on the number of cells."""
MOST_SAMPLE, MOST_LEAF, LEAST_SIGNAL = 1 << 14, 1 << 40, 1e-30
"""Bounds on the records of a sample, on leaves and on a-priori variances."""

_MOST_ENCODED, _MOST_COMPONENTS, _MOST_WEIGHT = 1 << 12, 48, 1 << 26
_MOST_NORM, _MOST_TERM, _MOST_LABELS, _MOST_COEFFICIENT = 1 << 24, 1 << 53, 1 << 20, 1 << 36
_MOST_COLUMNS, _MOST_TREES = 33, 960
_MOST_RECORDS, _MOST_COUNT, _MOST_SUM = 1 << 41, 1 << 62, 1 << 90
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-9, 30
_ALPHABET = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
_TO_CODES = bytes(max(_ALPHABET.find(octet), 0) for octet in range(256))
_LINEAR_KEYS = {
    "encoders", "weights", "norm", "epsilon", "gram", "sampled", "signal", "records", "labels", "sums", "coefficients",
}  # fmt: skip
_CELL_KEYS = {
    "columns", "codes", "tree", "histogram_epsilon", "sums_epsilon", "records", "counts", "range", "sums", "trees",
}  # fmt: skip


@dataclass(frozen=True)
class CodedColumn:
    """Column of codes.

    Attributes:
      feature: Place of its encoder in the center; -1 for the index that the linear center predicts.
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


@dataclass(frozen=True)
class LinearCenter:
    """Linear center of a mechanism file, with all members within their bounds.

    Attributes:
      encoders, weights, norm: Map from features to rows of m + 1 integers.
      features: Names of the features.
      epsilon: Budget of the sums, a float as stated; 0 without components.
      records: Number of records.
      labels: Number of labels of the domain.
      sums: Noised sums, m + 1 of them; empty without components.
      coefficients: Shape (m + 1,).
      cells: None if there are none.
    """

    encoders: list[dict[str, Any]]
    weights: list[list[int]]
    norm: int
    features: list[str]
    epsilon: float
    records: int
    labels: int
    sums: list[int]
    coefficients: list[int]
    cells: Cells | None


def read_linear_center(mechanism: Mapping[str, Any]) -> LinearCenter | None:
    """Reads the linear center of a mechanism file; None without a center, or with one that is a column of the input."""
    center = mechanism.get("center")
    if not isinstance(center, dict) or "linear" not in center:
        return None
    linear = Members(center, "center").members("linear")
    if set(linear) - {"cells"} != _LINEAR_KEYS:
        raise RefusedDocument("center.linear has not exactly the members of a linear center")
    size, features = read_row_map(linear)
    if not 1 <= linear.count("sampled") <= MOST_SAMPLE:
        raise RefusedDocument(f"center.linear.sampled is not between 1 and {MOST_SAMPLE}")
    linear.positive("records")
    if not 2 <= linear.count("labels") <= _MOST_LABELS:
        raise RefusedDocument(f"center.linear.labels is not between 2 and {_MOST_LABELS}")
    if linear["labels"] != len(read_center(mechanism).domain):
        raise RefusedDocument("center.linear.labels is not the number of labels of center.domain")
    if (size > 0) != (linear.nonnegative("epsilon") > 0):
        raise RefusedDocument("center.linear has components without an epsilon, or an epsilon without components")
    read_signal(linear, size, 1)
    _check_gram(linear, size + 1)
    most = 1 << 128
    sums = linear.integers("sums", size + 1 if size else 0, -most, most)
    if "cells" in linear and not sums:
        raise RefusedDocument("center.linear has cells, but no sums that they were made from")
    coefficients = linear.integers("coefficients", size + 1, -_MOST_COEFFICIENT, _MOST_COEFFICIENT)
    cells = _read_cells(linear) if "cells" in linear else None
    taken = {key: linear[key] for key in ("encoders", "weights", "norm", "epsilon", "records", "labels")}
    return LinearCenter(**taken, features=features, sums=sums, coefficients=coefficients, cells=cells)


def read_row_map(owner: Members) -> tuple[int, list[str]]:
    """Checks the `encoders`, `weights` and `norm` of a center; gives the number of components, names of features."""
    name, encoders = owner.name, owner.read("encoders", list)
    features = [_feature(encoder, name) for encoder in encoders]
    if len(set(features)) < len(encoders):
        raise RefusedDocument(f"{name}.encoders have one name twice")
    width, weights = sum(map(_width, encoders)), owner.read("weights", list)
    if len(weights) != width or width > _MOST_ENCODED:
        raise RefusedDocument(f"{name}.weights are not one row for each of at most {_MOST_ENCODED} places")
    size = len(weights[0]) if weights and isinstance(weights[0], list) else 0
    if bool(size) != bool(width) or size > _MOST_COMPONENTS:
        raise RefusedDocument(f"{name}.weights do not have 1 to {_MOST_COMPONENTS} components")
    owner.matrix("weights", width, size, _MOST_WEIGHT)
    _check_terms(encoders, weights, size, name)
    if not ROW_UNIT <= owner.count("norm") <= _MOST_NORM:
        raise RefusedDocument(f"{name}.norm is not between {ROW_UNIT} and {_MOST_NORM}")
    return size, features


def category_steps(encoder: dict[str, Any]) -> tuple[int, list[int]]:
    """Computes what an indicator of a category adds to its place, and the mean of each indicator in the same units.

    Both are in units of 1 / FEATURE_UNIT. The encoder has shares.
    """
    spread = encoder["spread"]
    return round(FEATURE_UNIT / spread), [round(FEATURE_UNIT * share / spread) for share in encoder["shares"]]


def _feature(encoder: Any, name: str) -> str:
    """Checks one encoder; returns the name of its feature."""
    if not isinstance(encoder, dict) or not isinstance(encoder.get("name"), str):
        raise RefusedDocument(f"{name}.encoders do not all have a name")
    category = "shares" in encoder
    if set(encoder) != ({"name", "values", "shares", "spread"} if category else {"name", "mean", "spread"}):
        raise RefusedDocument(f"{name}.encoders do not all have the members of a number or a category")
    spread = encoder["spread"]
    if not isinstance(spread, float) or not 0 < spread < math.inf:
        raise RefusedDocument(f"a spread of {name}.encoders is not a finite float above 0")
    if not category:
        if not isinstance(encoder["mean"], float) or not math.isfinite(encoder["mean"]):
            raise RefusedDocument(f"a mean of {name}.encoders is not a finite float")
        return encoder["name"]
    values, shares = encoder["values"], encoder["shares"]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RefusedDocument(f"values of {name}.encoders are not texts")
    if not isinstance(shares, list) or not all(isinstance(share, float) and 0 <= share <= 1 for share in shares):
        raise RefusedDocument(f"shares of {name}.encoders are not floats from 0 to 1")
    if not 0 < len(shares) <= _MOST_ENCODED or len(set(values)) < len(values) or len(values) not in (0, len(shares)):
        raise RefusedDocument(f"a category of {name}.encoders has not one share for each value")
    if spread != math.sqrt(sum(share * (1 - share) for share in shares)) or FEATURE_UNIT / spread > _MOST_TERM:
        raise RefusedDocument(f"a spread of {name}.encoders does not follow from the shares, or is too small")
    return encoder["name"]


def _width(encoder: dict[str, Any]) -> int:
    return len(encoder["shares"]) if "shares" in encoder else 1


def _check_terms(encoders: list[dict[str, Any]], weights: list[list[int]], size: int, name: str) -> None:
    """Refuses weights with which a component could exceed 2^53: sums would depend on their order."""
    totals, first = [0] * size, 0
    for encoder in encoders:
        rows = weights[first : first + _width(encoder)]
        first += len(rows)
        step, means = category_steps(encoder) if "shares" in encoder else (LARGEST_FEATURE * FEATURE_UNIT, [0])
        for j in range(size):
            sizes = [abs(row[j]) for row in rows]
            totals[j] += step * max(sizes) + sum(map(int.__mul__, means, sizes))
    if any(total >= _MOST_TERM for total in totals):
        raise RefusedDocument(f"{name}.weights are too large for the spread of the features")


def read_signal(owner: Members, size: int, most: float) -> list[float]:
    """Reads the a-priori variance of each component."""
    signal = owner.read("signal", list)
    if len(signal) != size or not all(isinstance(value, float) and LEAST_SIGNAL <= value <= most for value in signal):
        raise RefusedDocument(
            f"{owner.name}.signal is not one float from {LEAST_SIGNAL:g} to {most:g} for each component"
        )
    return signal


def _check_gram(linear: Members, size: int) -> None:
    gram = linear.matrix("gram", size, size, linear["sampled"] * linear["norm"] ** 2)
    if gram[0][0] < 1 or any(gram[i][i] < 0 for i in range(size)):
        raise RefusedDocument("center.linear.gram has a diagonal that no rows have")
    if any(
        gram[i][j] != gram[j][i] or gram[i][j] ** 2 > gram[i][i] * gram[j][j]
        for i, j in itertools.combinations(range(size), 2)
    ):
        raise RefusedDocument("center.linear.gram is not a matrix of inner products")


def _read_cells(linear: Members) -> Cells:
    name, encoders, labels = linear.path("cells"), linear["encoders"], linear["labels"]
    if not isinstance(linear["cells"], dict) or set(linear["cells"]) != _CELL_KEYS:
        raise RefusedDocument(f"{name} has not exactly the members of cells")
    cells = linear.members("cells")
    columns = cells.read("columns", list)
    if not 1 <= len(columns) <= _MOST_COLUMNS:
        raise RefusedDocument(f"{name}.columns are not 1 to {_MOST_COLUMNS} columns")
    nodes = read_nodes(cells, len(columns), LEAST_CELLS)
    size = len(nodes) // 2 + 1
    records = cells.integers("records", size, 0, _MOST_RECORDS)
    if not any(records):
        raise RefusedDocument(f"{name}.records are all 0")
    sums, ends = cells.read("sums", list), cells.read("range", list)
    if bool(sums) != bool(ends):
        raise RefusedDocument(f"{name} has a range without sums, or sums without a range")
    splits, leaves = read_splits(cells, len(columns))
    return Cells(
        columns=[read_coded_column(column, encoders, labels, f"{name}.columns") for column in columns],
        codes=read_codes(cells, len(columns)),
        nodes=nodes,
        histogram_epsilon=read_epsilon(cells, "histogram_epsilon"),
        sums_epsilon=read_epsilon(cells, "sums_epsilon"),
        records=records,
        counts=cells.integers("counts", len(residual_cells(labels)), -_MOST_COUNT, _MOST_COUNT),
        ends=cells.integers("range", 2 if ends else 0, -labels, labels),
        sums=cells.integers("sums", size if sums else 0, -_MOST_SUM, _MOST_SUM),
        splits=splits,
        leaves=[read_integers(leaf, f"{name}.trees.leaves", 1 << DEPTH, -MOST_LEAF, MOST_LEAF) for leaf in leaves],
    )


def read_epsilon(owner: Members, key: str) -> Fraction:
    """Reads an epsilon from 1e-9 to 30 exactly."""
    epsilon = owner.nonnegative(key)
    if not _LEAST_EPSILON <= epsilon <= _LARGEST_EPSILON:
        raise RefusedDocument(f"{owner.path(key)} is not between {_LEAST_EPSILON:g} and {_LARGEST_EPSILON}")
    return epsilon


def read_coded_column(document: Any, encoders: list[dict[str, Any]], labels: int, name: str) -> CodedColumn:
    """Reads a column of codes; without labels it is one of a feature."""
    kind = "places" if isinstance(document, dict) and "places" in document else "cuts"
    column = exact_members(document, ("feature", kind), name)
    feature = column.integer("feature", -1 if labels else 0, len(encoders) - 1)
    encoder = encoders[feature] if feature >= 0 else {}
    if ("shares" in encoder) != (kind == "places"):
        raise RefusedDocument(f"{name} has places of a feature that is no category, or cuts of one that is")
    if kind == "places":
        return CodedColumn(feature, [], column.integers("places", len(encoder["shares"]) + 1, 0, CODES - 1))
    return CodedColumn(feature, read_cuts(column, labels if feature < 0 else LARGEST_FEATURE * FEATURE_UNIT), [])


def read_cuts(column: Members, most: int) -> list[int]:
    """Reads the cuts of a column of codes, ascending integers of at most this size."""
    cuts = column["cuts"]
    if not isinstance(cuts, list) or len(cuts) >= CODES:
        raise RefusedDocument(f"{column.name}.cuts are not at most {CODES - 1} integers")
    column.integers("cuts", len(cuts), -most, most)
    if any(first >= second for first, second in itertools.pairwise(cuts)):
        raise RefusedDocument(f"{column.name}.cuts are not ascending")
    return cuts


def read_codes(cells: Members, columns: int, most: int = MOST_SAMPLE) -> list[bytes]:
    """Reads the codes of a sample of at most so many records, by column."""
    texts, name = cells.read("codes", list), cells.path("codes")
    if len(texts) != columns or not all(isinstance(text, str) and text.isascii() for text in texts):
        raise RefusedDocument(f"{name} are not one text of ASCII for each column")
    encoded = [text.encode() for text in texts]
    if len(set(map(len, encoded))) != 1 or not 1 <= len(encoded[0]) <= most:
        raise RefusedDocument(f"{name} are not texts of one length from 1 to {most}")
    if any(text.translate(None, _ALPHABET) for text in encoded):
        raise RefusedDocument(f"{name} have characters that are not of base64")
    return [text.translate(_TO_CODES) for text in encoded]


def read_nodes(cells: Members, columns: int, least: int = 1) -> list[tuple[int, int, int]]:
    """Reads nodes that are a binary tree of at least so many leaves: its root comes first, pairs of children later."""
    tree = cells.exactly("tree", "columns", "cuts", "children")
    size = len(tree["children"]) if isinstance(tree["children"], list) else 0
    if not 2 * least <= size + 1 <= 2 * MOST_CELLS:
        raise RefusedDocument(f"{tree.name} does not have {least} to {MOST_CELLS} cells")
    bounds = {"columns": (0, columns - 1), "cuts": (1, CODES), "children": (0, size - 1)}
    nodes = list(zip(*(tree.integers(key, size, *ends) for key, ends in bounds.items()), strict=True))
    parents = [0] * size
    for node, (column, cut, child) in enumerate(nodes):
        if (child == node) != (cut == CODES) or (child == node and column) or child < node:
            raise RefusedDocument(f"{tree.name} has a node before its parent, or a leaf that is split")
        if child > node:
            if child % 2 == 0:
                raise RefusedDocument(f"{tree.name} has children that are not a pair")
            parents[child] += 1
    # Pairs begin at odd nodes, and each has one parent.
    if size % 2 == 0 or parents[1::2] != [1] * (size // 2):
        raise RefusedDocument(f"{tree.name} has nodes without exactly one parent")
    return nodes


def read_splits(cells: Members, columns: int) -> tuple[list[tuple[list[int], list[int]]], list[Any]]:
    """Reads columns and cuts of the levels of each tree, and takes its leaves as they are."""
    trees = cells.exactly("trees", "columns", "cuts", "leaves")
    lists = [trees[key] for key in ("columns", "cuts", "leaves")]
    listed = all(isinstance(values, list) and len(values) <= _MOST_TREES for values in lists)
    if not listed or len(set(map(len, lists))) > 1:
        raise RefusedDocument(f"{trees.name} are not lists of one length, of at most {_MOST_TREES} trees")
    splits = [
        (
            read_integers(split, trees.path("columns"), DEPTH, 0, columns - 1),
            read_integers(cuts, trees.path("cuts"), DEPTH, 1, CODES),
        )
        for split, cuts, _ in zip(*lists, strict=True)
    ]
    return splits, lists[2]
