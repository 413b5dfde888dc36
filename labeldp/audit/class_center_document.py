"""Reader of a center of classes in mechanism files, for the auditor: what each member may be.

The member `class_center` has the name of the column of probabilities and the center: parts of the budget, noised counts
of the classes, a linear part with noised class sums, and cells with noised counts, from which coefficients and trees
follow. Cells are a partition of the records by codes of features, of components of their rows, and of linear logits.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .center_document import (
    DEPTH,
    MOST_CELLS,
    MOST_LEAF,
    ROW_UNIT,
    CodedColumn,
    read_coded_column,
    read_codes,
    read_cuts,
    read_epsilon,
    read_nodes,
    read_row_map,
    read_signal,
    read_splits,
)
from .documents import Members, RefusedDocument, exact_members, read_matrix

COARSE = 1 << 4
"""Rows of samples are multiples of this."""

_MOST_CLASSES, _MOST_SAMPLE, _MOST_LOGIT_ROWS = 128, 1 << 16, 1 << 12
_MOST_FEATURE_COLUMNS, _MOST_OTHER_COLUMNS = 32, 18
_MOST_COUNT, _MOST_SUM, _MOST_COEFFICIENT, _MOST_VALUE = 1 << 62, 1 << 128, 1 << 24, 1 << 52
_MOST_SIGNAL = 1e3
CLASS_CENTER = "class_center"
"""Member of a mechanism file that has a center of classes."""

_LINEAR_KEYS = ("encoders", "weights", "norm", "records", "epsilon", "rows", "signal", "sums", "coefficients")
_CELL_KEYS = ("features", "others", "codes", "rows", "tree", "epsilon", "counts", "coefficients", "trees")


@dataclass(frozen=True)
class RowColumn:
    """Column of codes of a component of the rows, or of the linear logit of a class.

    Attributes:
      logit: True for a logit.
      place: Index of the component in the row, or of the class.
      cuts: The code is the number of cuts that are at most the value; ascending.
    """

    logit: bool
    place: int
    cuts: list[int]


@dataclass(frozen=True)
class ClassCells:
    """Cells of a center of classes, with all members within their bounds.

    Attributes:
      features, others: Columns of codes, first those of features.
      codes, rows: Codes and coarse rows of a sample, by column; the latter are signed bytes, in multiples of COARSE.
      nodes: Tree over the codes, as of `center_document.Cells`.
      epsilon: Budget of the counts.
      counts: Noised counts of the classes in each cell.
      coefficients: Coefficients in place of the linear ones, m + 1 rows of one for each class.
      splits, leaves: Trees; each leaf has an integer for each class.
    """

    features: list[CodedColumn]
    others: list[RowColumn]
    codes: list[bytes]
    rows: list[bytes]
    nodes: list[tuple[int, int, int]]
    epsilon: Fraction
    counts: list[list[int]]
    coefficients: list[list[int]]
    splits: list[tuple[list[int], list[int]]]
    leaves: list[list[list[int]]]


@dataclass(frozen=True)
class ClassCenter:
    """Center of K classes, with all members within their bounds.

    Attributes:
      column: Column of the probabilities.
      budget: Parts of epsilon for counts, sums and cells.
      counts: Noised counts of the classes.
      encoders, weights, norm: Map from features to rows of m + 1 integers.
      features: Names of the features.
      records: Number of records.
      sums_epsilon: Budget of the class sums; 0 without any.
      rows: Coarse rows of a sample, as of `ClassCells`.
      signal: A-priori variances of the coefficients of the m components.
      sums: Noised class sums, m + 1 rows of K; empty without any.
      coefficients: Those of the linear part, m + 1 rows of K.
      cells: None if there are none.
      fingerprint: BLAKE2b of the center's canonical JSON, 64 hexadecimal digits.
    """

    column: str
    budget: tuple[Fraction, Fraction, Fraction]
    counts: list[int]
    encoders: list[dict[str, Any]]
    weights: list[list[int]]
    norm: int
    features: list[str]
    records: int
    sums_epsilon: Fraction
    rows: list[bytes]
    signal: list[float]
    sums: list[list[int]]
    coefficients: list[list[int]]
    cells: ClassCells | None
    fingerprint: str

    @property
    def epsilon(self) -> Fraction:
        """Budget that was spent."""
        return self.budget[0] + self.sums_epsilon + (0 if self.cells is None else self.cells.epsilon)

    @property
    def shares(self) -> list[float]:
        """Shares of the classes from their noised counts, at least about one standard deviation of the noise."""
        floor = min((1 + math.sqrt(8) / float(self.budget[0])) / self.records, 1 / len(self.counts))
        shares = [max(count / self.records, floor) for count in self.counts]
        total = math.fsum(shares)
        return [share / total for share in shares]


def sum_zero_variance(scale: Fraction, classes: int) -> float:
    """Variance of one of the integers v of sum 0 with P(v) proportional to exp(-|v|_1 / (2 scale)).

    v is the difference of two uniform compositions of m, where m is k plus 2 K - 1 geometric numbers of ratio
    x = exp(-1 / scale), and P(k) is proportional to C(K - 1, k)^2 x^k.
    """
    x, failure = math.exp(-float(1 / scale)), -math.expm1(-float(1 / scale))
    weights = [float(math.comb(classes - 1, k)) ** 2 * x**k for k in range(classes)]
    total, size = math.fsum(weights), 2 * classes - 1
    first = math.fsum(k * weight for k, weight in enumerate(weights)) / total
    spread = math.fsum((k - first) ** 2 * weight for k, weight in enumerate(weights)) / total
    mean = first + size * x / failure
    square = spread + size * x / failure**2 + mean**2
    return 2 * (classes - 1) / (classes**2 * (classes + 1)) * (square + classes * mean)


def read_class_center(mechanism: Mapping[str, Any]) -> ClassCenter | None:
    """Reads the center of classes of a mechanism file; None without one.

    Raises RefusedDocument, which names the member, if it is missing, has the wrong type or length, or is out of bounds.
    """
    if CLASS_CENTER not in mechanism:
        return None
    owner = exact_members(mechanism[CLASS_CENTER], ("column", "center"), CLASS_CENTER)
    if not isinstance(owner["column"], str) or not owner["column"]:
        raise RefusedDocument(f"{CLASS_CENTER}.column is not a name")
    center = owner.exactly("center", "budget", "counts", "linear", "cells")
    counts = center["counts"]
    if not isinstance(counts, list) or not 2 <= len(counts) <= _MOST_CLASSES:
        raise RefusedDocument(f"{center.name}.counts are not those of 2 to {_MOST_CLASSES} classes")
    center.integers("counts", len(counts), -_MOST_COUNT, _MOST_COUNT)
    linear = center.exactly("linear", *_LINEAR_KEYS)
    size, features = read_row_map(linear)
    if not size:
        raise RefusedDocument(f"{linear.name}.weights have no component")
    epsilon, shape = _epsilon(linear, "epsilon"), (size + 1, len(counts))
    return ClassCenter(
        column=owner["column"],
        budget=_budget(center),
        counts=counts,
        encoders=linear["encoders"],
        weights=linear["weights"],
        norm=linear["norm"],
        features=features,
        records=linear.positive("records"),
        sums_epsilon=epsilon,
        rows=_rows(linear, size + 1, _MOST_LOGIT_ROWS),
        signal=read_signal(linear, size, _MOST_SIGNAL),
        sums=linear.matrix("sums", size + 1 if epsilon else 0, len(counts), _MOST_SUM),
        coefficients=linear.matrix("coefficients", *shape, _MOST_COEFFICIENT),
        cells=None if center["cells"] is None else _cells(center, linear["encoders"], *shape),
        fingerprint=_fingerprint(center),
    )


def _fingerprint(center: Members) -> str:
    try:
        text = json.dumps(center, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise RefusedDocument(f"{center.name} has a number that is not finite") from None
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _budget(center: Members) -> tuple[Fraction, Fraction, Fraction]:
    budget = center.exactly("budget", "counts", "sums", "cells")
    counts, sums, cells = (_epsilon(budget, key) for key in ("counts", "sums", "cells"))
    if not counts:
        raise RefusedDocument(f"{budget.name}.counts is 0")
    return counts, sums, cells


def _epsilon(owner: Members, key: str) -> Fraction:
    """An epsilon, or 0, as a float: 1 and 1.0 would be one number with two fingerprints."""
    value = owner.read(key, object)
    if not isinstance(value, float):
        raise RefusedDocument(f"{owner.path(key)} is not a float")
    # 0.0 and -0.0 are equal numbers.
    return Fraction(0) if value == 0 and math.copysign(1.0, value) > 0 else read_epsilon(owner, key)


def _rows(owner: Members, size: int, most: int) -> list[bytes]:
    """Coarse rows, by column; the constant of a row is from 0 to 1."""
    name, texts = owner.path("rows"), owner["rows"]
    if not isinstance(texts, list) or len(texts) != size or not all(isinstance(text, str) for text in texts):
        raise RefusedDocument(f"{name} are not {size} texts")
    try:
        rows = [base64.b64decode(text, validate=True) for text in texts]
    except ValueError:
        raise RefusedDocument(f"{name} are not base64") from None
    if [base64.b64encode(column).decode() for column in rows] != texts:
        raise RefusedDocument(f"{name} have another spelling than that of base64")
    if len(set(map(len, rows))) != 1 or not 1 <= len(rows[0]) <= most:
        raise RefusedDocument(f"{name} are not of one length from 1 to {most}")
    if any(0x80 in column for column in rows) or max(rows[0]) > ROW_UNIT // COARSE:
        raise RefusedDocument(f"{name} are out of range")
    return rows


def _cells(center: Members, encoders: list[dict[str, Any]], size: int, classes: int) -> ClassCells:
    cells = center.exactly("cells", *_CELL_KEYS)
    features, others = cells.read("features", list), cells.read("others", list)
    if len(features) > _MOST_FEATURE_COLUMNS or len(others) > _MOST_OTHER_COLUMNS:
        raise RefusedDocument(f"{cells.name} have too many columns")
    columns = len(features) + len(others)
    cells.read("codes", list)
    codes = read_codes(cells, columns, _MOST_SAMPLE) if columns else [b""]
    rows = _rows(cells, size, _MOST_SAMPLE)
    if len(codes[0]) != len(rows[0]):
        raise RefusedDocument(f"{cells.name} have other numbers of codes and of rows, or no column")
    nodes = read_nodes(cells, columns)
    splits, leaves = read_splits(cells, columns)
    epsilon = _epsilon(cells, "epsilon")
    if not epsilon:
        raise RefusedDocument(f"{cells.name}.epsilon is 0")
    return ClassCells(
        features=[read_coded_column(column, encoders, 0, f"{cells.name}.features") for column in features],
        others=[_row_column(column, f"{cells.name}.others", size, classes) for column in others],
        codes=codes,
        rows=rows,
        nodes=nodes,
        epsilon=epsilon,
        counts=cells.matrix("counts", len(nodes) // 2 + 1, classes, _MOST_COUNT // MOST_CELLS),
        coefficients=cells.matrix("coefficients", size, classes, _MOST_COEFFICIENT),
        splits=splits,
        leaves=[read_matrix(leaf, f"{cells.name}.trees.leaves", 1 << DEPTH, classes, MOST_LEAF) for leaf in leaves],
    )


def _row_column(document: Any, name: str, size: int, classes: int) -> RowColumn:
    column = exact_members(document, ("logit", "place", "cuts"), name)
    if not isinstance(column["logit"], bool):
        raise RefusedDocument(f"{name}.logit is not true or false")
    ends = (0, classes - 1) if column["logit"] else (1, size - 1)
    return RowColumn(column["logit"], column.integer("place", *ends), read_cuts(column, _MOST_VALUE))
