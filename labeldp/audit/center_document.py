"""Reader of a linear center and its cells in mechanism files, for the auditor: what each member may be.

The map of a center goes from features to rows: a number is standardized, a category has one indicator for each of its
places. Components are weighted sums of these, in integers, and a row is a constant and the components, shortened to an
L1 norm of at most A.

Cells are a partition of the records by codes of their features. The member `cells` has the columns of codes, a binary
tree over them whose leaves are the cells, the codes of a sample of records, a noised histogram of the residuals around
the linear center, a noised sum of the residuals of each cell, and trees that follow from them.

Types of members and bounds of numbers are those of the form, which was checked before. The functions raise
RefusedDocument, which names the member, if one does not fit to others.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .documents import RefusedDocument, ascending, read_center, residual_cells, shaped, sized
from .marginal_sums import Marginals, read_marginals

ROW_UNIT, FEATURE_UNIT, WEIGHT_UNIT = 1 << 8, 1 << 10, 1 << 14
COEFFICIENT_UNIT = 1 << 16
"""Coefficients are integer multiples of 1 / COEFFICIENT_UNIT."""
LARGEST_FEATURE = 4
"""Standardized numbers are clipped here."""

CODES, DEPTH = 64, 3
"""Number of codes of a column, and of levels of a tree."""
LEAST_CELLS, MOST_CELLS = 30, 1 << 12
"""Bounds on the number of cells."""
MOST_SAMPLE = 1 << 14
"""Largest number of records of a sample."""

_MOST_ENCODED, _MOST_TERM = 1 << 12, 1 << 53
_ALPHABET = (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode()
_TO_CODES = bytes(max(_ALPHABET.find(octet), 0) for octet in range(256))


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
      marginals: Marginal sums, of a center without components; None if there are none.
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
    marginals: Marginals | None

    @property
    def further(self) -> Cells | Marginals | None:
        """Noised numbers of the center besides its own sums."""
        return self.cells or self.marginals


def read_linear_center(mechanism: Mapping[str, Any]) -> LinearCenter | None:
    """Reads the linear center of a mechanism file; None without a center, or with one that is a column of the input."""
    linear = mechanism.get("center", {}).get("linear")
    if linear is None:
        return None
    size, features = read_row_map(linear, "center.linear")
    if linear["labels"] != len(read_center(mechanism).domain):
        raise RefusedDocument("center.linear.labels is not the number of labels of center.domain")
    if (size > 0) != (linear["epsilon"] > 0):
        raise RefusedDocument("center.linear has components without an epsilon, or an epsilon without components")
    sized(linear["signal"], "center.linear.signal", size)
    _check_gram(linear, size + 1)
    sums = sized(linear["sums"], "center.linear.sums", size + 1 if size else 0)
    if "cells" in linear and not sums:
        raise RefusedDocument("center.linear has cells, but no sums that they were made from")
    sized(linear["coefficients"], "center.linear.coefficients", size + 1)
    if features and not size and "marginals" not in linear:
        raise RefusedDocument("center.linear has features without a component")
    cells = _read_cells(linear) if "cells" in linear else None
    marginals = read_marginals(linear) if "marginals" in linear else None
    keys = ("encoders", "weights", "norm", "epsilon", "records", "labels", "sums", "coefficients")
    return LinearCenter(**{key: linear[key] for key in keys}, features=features, cells=cells, marginals=marginals)


def read_row_map(owner: Mapping[str, Any], name: str) -> tuple[int, list[str]]:
    """Checks the `encoders`, `weights` and `norm` of a center; gives the number of components, names of features."""
    encoders, weights = owner["encoders"], owner["weights"]
    features = [_feature(encoder, name) for encoder in encoders]
    if len(set(features)) < len(encoders):
        raise RefusedDocument(f"{name}.encoders have one name twice")
    width = sum(map(_width, encoders))
    if width > _MOST_ENCODED:
        raise RefusedDocument(f"{name}.encoders have more than {_MOST_ENCODED} places")
    size = len(weights[0]) if weights else 0
    shaped(weights, f"{name}.weights", width, size)
    _check_terms(encoders, weights, size, name)
    return size, features


def category_steps(encoder: dict[str, Any]) -> tuple[int, list[int]]:
    """Computes what an indicator of a category adds to its place, and the mean of each indicator in the same units.

    Both are in units of 1 / FEATURE_UNIT. The encoder has shares.
    """
    spread = encoder["spread"]
    return round(FEATURE_UNIT / spread), [round(FEATURE_UNIT * share / spread) for share in encoder["shares"]]


def _feature(encoder: dict[str, Any], name: str) -> str:
    """Checks one encoder; returns the name of its feature."""
    if "shares" in encoder:
        spread, values, shares = encoder["spread"], encoder["values"], encoder["shares"]
        if len(set(values)) < len(values) or len(values) not in (0, len(shares)):
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


def _check_gram(linear: Mapping[str, Any], size: int) -> None:
    gram = shaped(linear["gram"], "center.linear.gram", size, size)
    if max(abs(value) for row in gram for value in row) > linear["sampled"] * linear["norm"] ** 2:
        raise RefusedDocument("center.linear.gram is not that of so many rows")
    if gram[0][0] < 1 or any(gram[i][i] < 0 for i in range(size)):
        raise RefusedDocument("center.linear.gram has a diagonal that no rows have")
    if any(
        gram[i][j] != gram[j][i] or gram[i][j] ** 2 > gram[i][i] * gram[j][j]
        for i, j in itertools.combinations(range(size), 2)
    ):
        raise RefusedDocument("center.linear.gram is not a matrix of inner products")


def _read_cells(linear: Mapping[str, Any]) -> Cells:
    name, encoders, labels, cells = "center.linear.cells", linear["encoders"], linear["labels"], linear["cells"]
    columns, records, sums, ends = (cells[key] for key in ("columns", "records", "sums", "range"))
    nodes = read_nodes(cells, name, len(columns), LEAST_CELLS)
    size = len(nodes) // 2 + 1
    if not any(sized(records, f"{name}.records", size)):
        raise RefusedDocument(f"{name}.records are all 0")
    splits, leaves = read_splits(cells, name, len(columns))
    return Cells(
        columns=[read_coded_column(column, encoders, labels, f"{name}.columns") for column in columns],
        codes=read_codes(cells, name, len(columns)),
        nodes=nodes,
        histogram_epsilon=Fraction(cells["histogram_epsilon"]),
        sums_epsilon=Fraction(cells["sums_epsilon"]),
        records=records,
        counts=sized(cells["counts"], f"{name}.counts", len(residual_cells(labels))),
        ends=sized(ends, f"{name}.range", 2 if sums else 0),
        sums=sized(sums, f"{name}.sums", size if sums else 0),
        splits=splits,
        leaves=leaves,
    )


def read_coded_column(column: dict[str, Any], encoders: list[dict[str, Any]], labels: int, name: str) -> CodedColumn:
    """Reads a column of codes; without labels it is one of a feature."""
    feature = column["feature"]
    if not (-1 if labels else 0) <= feature < len(encoders):
        raise RefusedDocument(f"{name} has a column of no feature")
    encoder = encoders[feature] if feature >= 0 else {}
    if ("shares" in encoder) != ("places" in column):
        raise RefusedDocument(f"{name} has places of a feature that is no category, or cuts of one that is")
    if "places" in column:
        return CodedColumn(feature, [], sized(column["places"], f"{name}.places", len(encoder["shares"]) + 1))
    return CodedColumn(feature, read_cuts(column, name, labels if feature < 0 else LARGEST_FEATURE * FEATURE_UNIT), [])


def read_cuts(column: Mapping[str, Any], name: str, most: int) -> list[int]:
    """Reads the cuts of a column of codes, ascending integers of at most this size."""
    cuts = ascending(column["cuts"], f"{name}.cuts")
    if max(map(abs, cuts), default=0) > most:
        raise RefusedDocument(f"{name}.cuts are not from {-most} to {most}")
    return cuts


def read_codes(cells: Mapping[str, Any], name: str, columns: int, most: int = MOST_SAMPLE) -> list[bytes]:
    """Reads the codes of a sample of at most so many records, by column."""
    encoded = [text.encode() for text in sized(cells["codes"], f"{name}.codes", columns)]
    if len(set(map(len, encoded))) != 1 or len(encoded[0]) > most:
        raise RefusedDocument(f"{name}.codes are not texts of one length from 1 to {most}")
    return [text.translate(_TO_CODES) for text in encoded]


def read_nodes(cells: Mapping[str, Any], name: str, columns: int, least: int = 1) -> list[tuple[int, int, int]]:
    """Reads nodes that are a binary tree of at least so many leaves: its root comes first, pairs of children later."""
    tree, name = cells["tree"], f"{name}.tree"
    size = len(tree["children"])
    if size < 2 * least - 1:
        raise RefusedDocument(f"{name} has fewer than {least} cells")
    nodes = list(zip(*(sized(tree[key], name, size) for key in ("columns", "cuts", "children")), strict=True))
    parents = [0] * size
    for node, (column, cut, child) in enumerate(nodes):
        if (child == node) != (cut == CODES) or (child == node and column) or child < node:
            raise RefusedDocument(f"{name} has a node before its parent, or a leaf that is split")
        if column >= columns or child >= size:
            raise RefusedDocument(f"{name} has a column or a child that is not there")
        if child > node:
            if child % 2 == 0:
                raise RefusedDocument(f"{name} has children that are not a pair")
            parents[child] += 1
    # Pairs begin at odd nodes, and each has one parent.
    if size % 2 == 0 or parents[1::2] != [1] * (size // 2):
        raise RefusedDocument(f"{name} has nodes without exactly one parent")
    return nodes


def read_splits(
    cells: Mapping[str, Any], name: str, columns: int
) -> tuple[list[tuple[list[int], list[int]]], list[Any]]:
    """Reads columns and cuts of the levels of each tree, and its leaves."""
    splits, cuts, leaves = (cells["trees"][key] for key in ("columns", "cuts", "leaves"))
    if len({len(splits), len(cuts), len(leaves)}) > 1 or any(max(split) >= columns for split in splits):
        raise RefusedDocument(f"{name}.trees are not lists of one length, or have a column that is not there")
    return list(zip(splits, cuts, strict=True)), leaves
