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
    ROW_UNIT,
    CodedColumn,
    read_coded_column,
    read_codes,
    read_cuts,
    read_nodes,
    read_row_map,
    read_splits,
)
from .documents import RefusedDocument, shaped, sized

COARSE = 1 << 4
"""Rows of samples are multiples of this."""

_MOST_SAMPLE, _MOST_LOGIT_ROWS = 1 << 16, 1 << 12
_MOST_VALUE = 1 << 52
_LEAST_EPSILON = 1e-9
CLASS_CENTER = "class_center"
"""Member of a mechanism file that has a center of classes."""


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

    Raises RefusedDocument, which names the member, if it does not fit to others.
    """
    if CLASS_CENTER not in mechanism:
        return None
    owner, name = mechanism[CLASS_CENTER], f"{CLASS_CENTER}.center"
    center = owner["center"]
    counts, linear, cells = center["counts"], center["linear"], center["cells"]
    size, features = read_row_map(linear, f"{name}.linear")
    if not size:
        raise RefusedDocument(f"{name}.linear.weights have no component")
    epsilon, shape = _epsilon(linear, f"{name}.linear", "epsilon"), (size + 1, len(counts))
    budget = [_epsilon(center["budget"], f"{name}.budget", key) for key in ("counts", "sums", "cells")]
    return ClassCenter(
        column=owner["column"],
        budget=(budget[0], budget[1], budget[2]),
        counts=counts,
        encoders=linear["encoders"],
        weights=linear["weights"],
        norm=linear["norm"],
        features=features,
        records=linear["records"],
        sums_epsilon=epsilon,
        rows=_rows(linear, f"{name}.linear", size + 1, _MOST_LOGIT_ROWS),
        signal=sized(linear["signal"], f"{name}.linear.signal", size),
        sums=shaped(linear["sums"], f"{name}.linear.sums", size + 1 if epsilon else 0, len(counts)),
        coefficients=shaped(linear["coefficients"], f"{name}.linear.coefficients", *shape),
        cells=None if cells is None else _cells(cells, f"{name}.cells", linear["encoders"], *shape),
        fingerprint=_fingerprint(center),
    )


def _fingerprint(center: Mapping[str, Any]) -> str:
    text = json.dumps(center, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _epsilon(owner: Mapping[str, Any], name: str, key: str) -> Fraction:
    # 0.0 and -0.0 are equal numbers.
    value = owner[key]
    if 0 < value < _LEAST_EPSILON or math.copysign(1.0, value) < 0:
        raise RefusedDocument(f"{name}.{key} is neither 0 nor at least {_LEAST_EPSILON:g}")
    return Fraction(value)


def _rows(owner: Mapping[str, Any], name: str, size: int, most: int) -> list[bytes]:
    """Coarse rows, by column; the constant of a row is from 0 to 1."""
    name, texts = f"{name}.rows", owner["rows"]
    try:
        rows = [base64.b64decode(text, validate=True) for text in sized(texts, name, size)]
    except ValueError:
        raise RefusedDocument(f"{name} are not base64") from None
    if [base64.b64encode(column).decode() for column in rows] != texts:
        raise RefusedDocument(f"{name} have another spelling than that of base64")
    if len(set(map(len, rows))) != 1 or not 1 <= len(rows[0]) <= most:
        raise RefusedDocument(f"{name} are not of one length from 1 to {most}")
    if any(0x80 in column for column in rows) or max(rows[0]) > ROW_UNIT // COARSE:
        raise RefusedDocument(f"{name} are out of range")
    return rows


def _cells(cells: Mapping[str, Any], name: str, encoders: list[dict[str, Any]], size: int, classes: int) -> ClassCells:
    features, others = cells["features"], cells["others"]
    columns = len(features) + len(others)
    codes = read_codes(cells, name, columns, _MOST_SAMPLE) if columns else [b""]
    rows = _rows(cells, name, size, _MOST_SAMPLE)
    if len(codes[0]) != len(rows[0]):
        raise RefusedDocument(f"{name} have other numbers of codes and of rows, or no column")
    nodes = read_nodes(cells, name, columns)
    splits, leaves = read_splits(cells, name, columns)
    return ClassCells(
        features=[read_coded_column(column, encoders, 0, f"{name}.features") for column in features],
        others=[_row_column(column, f"{name}.others", size, classes) for column in others],
        codes=codes,
        rows=rows,
        nodes=nodes,
        epsilon=Fraction(cells["epsilon"]),
        counts=shaped(cells["counts"], f"{name}.counts", len(nodes) // 2 + 1, classes),
        coefficients=shaped(cells["coefficients"], f"{name}.coefficients", size, classes),
        splits=splits,
        leaves=[shaped(leaf, f"{name}.trees.leaves", 1 << DEPTH, classes) for leaf in leaves],
    )


def _row_column(column: Mapping[str, Any], name: str, size: int, classes: int) -> RowColumn:
    logit, place = column["logit"], column["place"]
    if not (0 if logit else 1) <= place < (classes if logit else size):
        raise RefusedDocument(f"{name} has a column of no component or class")
    return RowColumn(logit, place, read_cuts(column, name, _MOST_VALUE))
