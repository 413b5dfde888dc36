"""Reader of a center of classes in mechanism files, for the auditor: what each member may be.

The member `class_center` has the name of the column of probabilities and the center: parts of the budget, noised counts
of the classes, a linear part with noised class sums, and cells with noised counts, from which coefficients and trees
follow. Cells are a partition of the records by codes of features, of components of their rows, and of linear logits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .cell_document import (
    DEPTH,
    MOST_CELLS,
    MOST_LEAF,
    CodedColumn,
    read_coded_column,
    read_codes,
    read_cuts,
    read_epsilon,
    read_integers,
    read_members,
    read_nodes,
    read_splits,
)
from .documents import RefusedDocument, read_count, read_member
from .row_map_document import ROW_UNIT, read_row_map

COARSE = 1 << 4
"""Rows of samples are multiples of this."""

_MOST_CLASSES, _MOST_COMPONENTS, _MOST_SAMPLE, _MOST_LOGIT_ROWS = 128, 48, 1 << 16, 1 << 12
_MOST_FEATURE_COLUMNS, _MOST_OTHER_COLUMNS = 32, 18
_MOST_COUNT, _MOST_SUM, _MOST_COEFFICIENT, _MOST_VALUE = 1 << 62, 1 << 128, 1 << 24, 1 << 52
_LEAST_SIGNAL, _MOST_SIGNAL = 1e-30, 1e3
_OWNER = "class_center"
_NAME = f"{_OWNER}.center"
_LINEAR, _CELLS = f"{_NAME}.linear", f"{_NAME}.cells"
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
      nodes: Tree over the codes, as of `cell_document.Cells`.
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
        found = [max(count / self.records, floor) for count in self.counts]
        return [each / math.fsum(found) for each in found]


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


def read_class_center(mechanism: dict[str, Any]) -> ClassCenter | None:
    """Reads the center of classes of a mechanism file; None without one.

    Raises RefusedDocument, which names the member, if it is missing, has the wrong type or length, or is out of bounds.
    """
    if _OWNER not in mechanism:
        return None
    column, center = read_members(mechanism[_OWNER], ("column", "center"), _OWNER)
    if not isinstance(column, str) or not column:
        raise RefusedDocument(f"{_OWNER}.column is not a name")
    budget, counts, stated, cells = read_members(center, ("budget", "counts", "linear", "cells"), _NAME)
    if not isinstance(counts, list) or not 2 <= len(counts) <= _MOST_CLASSES:
        raise RefusedDocument(f"{_NAME}.counts are not those of 2 to {_MOST_CLASSES} classes")
    read_integers(counts, f"{_NAME}.counts", len(counts), -_MOST_COUNT, _MOST_COUNT)
    found = _named(stated, _LINEAR_KEYS, _LINEAR)
    size, features = read_row_map(found, _LINEAR)
    if not size:
        raise RefusedDocument(f"{_LINEAR}.weights have no component")
    if not read_count(found, f"{_LINEAR}.records"):
        raise RefusedDocument(f"{_LINEAR}.records is 0")
    epsilon = _epsilon(found, f"{_LINEAR}.epsilon")
    sums, signal = (read_member(found, f"{_LINEAR}.{key}", list) for key in ("sums", "signal"))
    if len(signal) != size or not all(
        isinstance(each, float) and _LEAST_SIGNAL <= each <= _MOST_SIGNAL for each in signal
    ):
        raise RefusedDocument(f"{_LINEAR}.signal is not one float from {_LEAST_SIGNAL:g} to {_MOST_SIGNAL:g} each")
    shape = size + 1, len(counts)
    coefficients = _matrix(found[f"{_LINEAR}.coefficients"], f"{_LINEAR}.coefficients", *shape, _MOST_COEFFICIENT)
    return ClassCenter(
        column=column,
        budget=_budget(budget),
        counts=counts,
        encoders=found[f"{_LINEAR}.encoders"],
        weights=found[f"{_LINEAR}.weights"],
        norm=found[f"{_LINEAR}.norm"],
        features=features,
        records=found[f"{_LINEAR}.records"],
        sums_epsilon=epsilon,
        rows=_rows(found[f"{_LINEAR}.rows"], f"{_LINEAR}.rows", size + 1, _MOST_LOGIT_ROWS),
        signal=signal,
        sums=_matrix(sums, f"{_LINEAR}.sums", size + 1 if epsilon else 0, len(counts), _MOST_SUM),
        coefficients=coefficients,
        cells=None if cells is None else _cells(cells, found, *shape),
        fingerprint=_fingerprint(center),
    )


def _fingerprint(center: dict[str, Any]) -> str:
    try:
        text = json.dumps(center, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise RefusedDocument(f"{_NAME} has a number that is not finite") from None
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _named(stated: Any, keys: tuple[str, ...], name: str) -> dict[str, Any]:
    """The members of an object that has exactly these, with its name before each key."""
    return {f"{name}.{key}": value for key, value in zip(keys, read_members(stated, keys, name), strict=True)}


def _budget(document: Any) -> tuple[Fraction, Fraction, Fraction]:
    found = _named(document, ("counts", "sums", "cells"), f"{_NAME}.budget")
    counts, sums, cells = (_epsilon(found, key) for key in found)
    if not counts:
        raise RefusedDocument(f"{_NAME}.budget.counts is 0")
    return counts, sums, cells


def _epsilon(found: dict[str, Any], key: str) -> Fraction:
    """An epsilon, or 0, as a float: 1 and 1.0 would be one number with two fingerprints."""
    value = read_member(found, key, object)
    if not isinstance(value, float):
        raise RefusedDocument(f"{key} is not a float")
    # 0.0 and -0.0 are equal numbers.
    return Fraction(0) if value == 0 and math.copysign(1.0, value) > 0 else read_epsilon(found, key)


def _matrix(rows: Any, name: str, size: int, width: int, most: int) -> list[list[int]]:
    if not isinstance(rows, list) or len(rows) != size:
        raise RefusedDocument(f"{name} do not have {size} rows")
    return [read_integers(row, name, width, -most, most) for row in rows]


def _rows(texts: Any, name: str, size: int, most: int) -> list[bytes]:
    """Coarse rows, by column; the constant of a row is from 0 to 1."""
    if not isinstance(texts, list) or len(texts) != size or not all(isinstance(each, str) for each in texts):
        raise RefusedDocument(f"{name} are not {size} texts")
    try:
        found = [base64.b64decode(each, validate=True) for each in texts]
    except (binascii.Error, ValueError):
        raise RefusedDocument(f"{name} are not base64") from None
    if [base64.b64encode(each).decode() for each in found] != texts:
        raise RefusedDocument(f"{name} have another spelling than that of base64")
    if len(set(map(len, found))) != 1 or not 1 <= len(found[0]) <= most:
        raise RefusedDocument(f"{name} are not of one length from 1 to {most}")
    if any(0x80 in each for each in found) or max(found[0]) > ROW_UNIT // COARSE:
        raise RefusedDocument(f"{name} are out of range")
    return found


def _cells(document: Any, linear: dict[str, Any], size: int, classes: int) -> ClassCells:
    found = _named(document, _CELL_KEYS, _CELLS)
    features, others = (read_member(found, f"{_CELLS}.{key}", list) for key in ("features", "others"))
    if len(features) > _MOST_FEATURE_COLUMNS or len(others) > _MOST_OTHER_COLUMNS:
        raise RefusedDocument(f"{_CELLS} have too many columns")
    columns, encoders = len(features) + len(others), linear[f"{_LINEAR}.encoders"]
    coded = read_member(found, f"{_CELLS}.codes", list)
    codes = read_codes(coded, columns, f"{_CELLS}.codes", _MOST_SAMPLE) if columns else [b""]
    rows = _rows(found[f"{_CELLS}.rows"], f"{_CELLS}.rows", size, _MOST_SAMPLE)
    if len(codes[0]) != len(rows[0]):
        raise RefusedDocument(f"{_CELLS} have other numbers of codes and of rows, or no column")
    nodes = read_nodes(found[f"{_CELLS}.tree"], columns, f"{_CELLS}.tree")
    splits, leaves = read_splits(found[f"{_CELLS}.trees"], columns, f"{_CELLS}.trees")
    name, most = f"{_CELLS}.counts", _MOST_COUNT // MOST_CELLS
    epsilon = _epsilon(found, f"{_CELLS}.epsilon")
    if not epsilon:
        raise RefusedDocument(f"{_CELLS}.epsilon is 0")
    return ClassCells(
        [read_coded_column(each, encoders, 0, f"{_CELLS}.features") for each in features],
        [_row_column(each, size, classes) for each in others],
        codes,
        rows,
        nodes,
        epsilon,
        _matrix(found[name], name, (len(nodes) + 1) // 2, classes, most),
        _matrix(found[f"{_CELLS}.coefficients"], f"{_CELLS}.coefficients", size, classes, _MOST_COEFFICIENT),
        splits,
        [_matrix(each, f"{_CELLS}.trees.leaves", 1 << DEPTH, classes, MOST_LEAF) for each in leaves],
    )


def _row_column(document: Any, size: int, classes: int) -> RowColumn:
    name = f"{_CELLS}.others"
    logit, place, cuts = read_members(document, ("logit", "place", "cuts"), name)
    if not isinstance(logit, bool):
        raise RefusedDocument(f"{name}.logit is not true or false")
    bounds = (0, classes - 1) if logit else (1, size - 1)
    (place,) = read_integers([place], f"{name}.place", 1, *bounds)
    return RowColumn(logit, place, read_cuts(cuts, _MOST_VALUE, name))
