"""Partition of records into cells of similar features, for a center of classes.

As in `cell_partition`, features become columns of codes from 0 to 63, and a k-d tree splits the widest column at its
median, in the metric of what the linear center says. There are three kinds of columns: features, components of the rows
of the linear center, and its logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .cell_partition import (
    MOST_COLUMNS,
    CellTree,
    CodedColumn,
    code_ranks,
    deviation,
    even_cuts,
    feature_codes,
    ranked_codes,
    split_cells,
)
from .class_logit import LOGIT_UNIT, LinearClasses, coarse
from .feature_rows import Columns, MappedColumns, Number

MOST_COMPONENT_COLUMNS, MOST_LOGIT_COLUMNS = 12, 6
LEAST_SCALE = 0.1
"""Added to the scale of each feature, whose largest is then 1 + LEAST_SCALE."""
MOST_CLASS_SAMPLE = 1 << 16
"""Largest number of records of the sample of a center of classes, more than of others: those of a cell stand for all of
it, and with few of them, trees learn how they differ from the rest."""
# Largest distance of the first cut from the last one for which codes are looked up in a table.
_MOST_TABLE = 1 << 14


@dataclass(frozen=True)
class RowColumn:
    """Column of codes of a component of the rows, or of the logit of a class.

    Attributes:
      logit: True for a logit.
      place: Index of the component in the row, or of the class.
      cuts: Ascending integers; the code is the number of cuts that are at most the value.
    """

    logit: bool
    place: int
    cuts: tuple[int, ...]

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Codes of integers, shape (n,)."""
        cuts = np.array(self.cuts, np.int64)
        if not len(cuts) or cuts[-1] - cuts[0] > _MOST_TABLE:
            return np.searchsorted(cuts, values, side="right")
        # A table takes an eighth of the time of binary search.
        low = cuts[0] - 1
        table = np.searchsorted(cuts, np.arange(low, cuts[-1] + 1), side="right").astype(np.uint8)
        return table[np.clip(values, low, cuts[-1]) - low]


@dataclass(frozen=True, eq=False)
class ClassPartition:
    """Columns of codes, first those of features, and the tree over them."""

    features: tuple[CodedColumn, ...]
    others: tuple[RowColumn, ...]
    tree: CellTree

    def codes(self, columns: MappedColumns, linear: LinearClasses, rows: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Codes of n records with these features, rows and logits, shape (n, d), uint8."""
        return all_codes(self.features, self.others, columns, linear, rows, logits)


@dataclass(frozen=True, eq=False)
class ClassSample:
    """A partition and the sample that it was chosen from, in ascending order of its codes.

    Attributes:
      partition: The partition.
      codes: Codes of the records, shape (s, d), uint8.
      rows: Their coarse rows, shape (s, m + 1), int64.
    """

    partition: ClassPartition
    codes: np.ndarray
    rows: np.ndarray


def all_codes(
    features: tuple[CodedColumn, ...],
    others: tuple[RowColumn, ...],
    columns: MappedColumns,
    linear: LinearClasses,
    rows: np.ndarray,
    logits: np.ndarray,
) -> np.ndarray:
    """Codes of n records, shape (n, d), uint8, as of `ClassPartition.codes`."""
    found = np.empty((len(rows), len(features) + len(others)), np.uint8)
    found[:, : len(features)] = feature_codes(features, linear.design.map.encoders, columns)
    for place, column in enumerate(others, len(features)):
        values = logits[:, column.place] if column.logit else rows[:, column.place]
        found[:, place] = column.codes(values)
    return found


def choose_class_partition(sample: Columns, linear: LinearClasses, cells: int) -> ClassSample:
    """Chooses a partition into at most `cells` cells from a public sample of features.

    With class sums, cells are cut along features, whose spreads count by what they add to the logits, with a tenth of
    the largest for all; without, along components, by their spread among the features.
    """
    rows = linear.rows(sample)
    logits = linear.logits(rows)
    features, feature_scales = _feature_columns(sample, linear)
    others, other_scales = _row_columns(linear, rows, logits)
    if linear.sums:
        largest = max(feature_scales, default=0.0) or 1.0
        scales = [*(scale / largest + LEAST_SCALE for scale in feature_scales), *(0.0 for _ in others)]
    else:
        scales = [*(0.0 for _ in features), *other_scales]
    codes, rows = all_codes(features, others, sample, linear, rows, logits), coarse(rows)
    # The order of a sample follows from the secret key. Sums of floats, and what is published, must not depend on it.
    order = np.lexsort((*rows.T[::-1], *codes.T[::-1]))
    codes, rows = codes[order], rows[order]
    tree = split_cells(codes, code_ranks(codes) * scales, cells)
    return ClassSample(ClassPartition(features, others, tree), codes, rows)


def _feature_columns(sample: Columns, linear: LinearClasses) -> tuple[tuple[CodedColumn, ...], list[float]]:
    """Columns of the features that add most to the logits, and what they add, as standard deviations."""
    row_map, records, shares = linear.design.map, len(next(iter(sample.values()))), linear.shares
    coefficients = linear.coefficients[1:].astype(np.float64)
    slopes = np.stack([(row_map.weights * each).sum(axis=1) for each in coefficients.T], axis=1) / LOGIT_UNIT
    found: list[tuple[float, CodedColumn]] = []
    place = 0
    for feature, encoder in enumerate(row_map.encoders):
        own = slopes[place : place + encoder.width]
        place += encoder.width
        if isinstance(encoder, Number):
            values = encoder.encode(np.array(sample[encoder.name], np.float64))
            effect = deviation(values) * math.sqrt(np.add.reduce(shares * own[0] ** 2))
            found.append((effect, CodedColumn(feature, even_cuts(values))))
            continue
        steps, places = encoder.steps(own), encoder.places(sample[encoder.name])
        parts = np.bincount(places, minlength=len(steps)) / records
        squares = (steps - np.add.reduce(parts[:, None] * steps, axis=0)) ** 2
        variances = shares * np.add.reduce(parts[:, None] * squares, axis=0)
        # Values are ranked for the class that they matter most for.
        ranks = ranked_codes(steps[:, int(np.argmax(variances))])
        found.append((math.sqrt(np.add.reduce(variances)), CodedColumn(feature, places=ranks)))
        for value in np.flatnonzero(parts[:-1]).tolist() if encoder.width > 2 else ():
            effect = math.sqrt(np.add.reduce(shares * squares[value]) * parts[value] * (1 - parts[value]))
            indicator = tuple(int(each == value) for each in range(len(steps)))
            found.append((effect, CodedColumn(feature, places=indicator)))
    found.sort(key=lambda each: -each[0])
    return tuple(column for _, column in found[:MOST_COLUMNS]), [effect for effect, _ in found[:MOST_COLUMNS]]


def _row_columns(
    linear: LinearClasses, rows: np.ndarray, logits: np.ndarray
) -> tuple[tuple[RowColumn, ...], list[float]]:
    """Columns of the components and logits that say most, and what they say."""
    shares = linear.shares
    effects = np.sqrt(np.array(linear.design.signal))
    if linear.sums:
        effects = np.sqrt(np.add.reduce((linear.coefficients[1:] / LOGIT_UNIT) ** 2 * shares, axis=1))
    places = np.argsort(-effects, kind="stable")[:MOST_COMPONENT_COLUMNS].tolist()
    columns = [RowColumn(False, place + 1, even_cuts(rows[:, place + 1])) for place in places]
    scales = [float(effects[place]) for place in places]
    if linear.sums:
        centered = logits - np.add.reduce(logits * shares, axis=1)[:, None]
        spreads = np.array([deviation(each) for each in centered.T]) * np.sqrt(shares)
        most = MOST_LOGIT_COLUMNS if len(shares) > 2 else 1
        places = np.argsort(-spreads, kind="stable")[:most].tolist()
        columns += [RowColumn(True, place, even_cuts(logits[:, place])) for place in places]
        scales += [float(spreads[place]) for place in places]
    return tuple(columns), scales
