"""Second implementation of what must follow from the noised numbers of a center of classes, and from its samples.

A dishonest party could encode labels in whatever else is published. So coefficients and trees must follow from the
noised counts and sums, the prior from the counts, and the number of cells from the budget. Samples are in ascending
order, and the codes of components and of logits are those of their rows. Decisions that rounding could change pass
either way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .cell_document import LEAST_CELLS, MOST_CELLS
from .class_center_document import COARSE, ClassCells, ClassCenter, read_class_center
from .class_logits import (
    LOGIT_UNIT,
    CellTargets,
    ClassMoments,
    WholeMatrix,
    class_moments,
    decoded_rows,
    floored_shares,
    linear_coefficients,
    refits,
    released_shares,
    rounds_to,
    sum_noise,
    sum_zero_variance,
)
from .class_partition_audit import partition_problems
from .class_tree_audit import FOLDS, CodedSample, class_tree_problems, held_out, refits_are_better
from .interval_products import dot_bounds
from .row_map_document import ROW_UNIT
from .tree_audit import cells_of

_NAME = "class_center.center"
_UNEXPLAINED = f"{_NAME}.cells.coefficients do not follow from its counts and the class sums: they could hold labels"
# Noise beyond this multiple of twice its scale has a probability of about e^-40 for each number: given the sum, the
# others add up to a symmetric log-concave number, so that a density falls at least as exp(-|v| / (2 scale)).
_MOST_NOISE = 40
_CLOSE = 1e-9
# Records of the sample for a cell, and about the records of a cell that noise allows.
_SAMPLED_IN_CELL, _CELL = 3, 1.3
# A-priori variance of the linear part, and its largest share that sums may leave unknown.
_SIGNAL, _USELESS = 3.0, 0.8
_SHORTENED, _CLIPPED = 0.02, 127 * COARSE


def class_cell_problems(mechanism: dict[str, Any]) -> Iterator[str]:
    """Checks a center of classes that passed the checks of `class_center_audit`.

    Yields one line for each failed check.
    """
    center = read_class_center(mechanism)
    assert center is not None
    shares = released_shares(center)
    if np.abs(np.array(mechanism["prior"]["weights"]) - shares).max() > _CLOSE:
        yield f"prior.weights are not the shares that follow from {_NAME}.counts"
    yield from _noise_problems(center)
    yield from _sample_problems(center)
    moments: Sequence[ClassMoments | None] = [None]
    with np.errstate(all="ignore"):
        yield from _usefulness_problems(center, shares)
        if center.sums:
            moments = [each for each in class_moments(center) if _explains(center, each)]
        elif any(map(any, center.coefficients)):
            moments = []
        if not moments:
            yield f"{_NAME}.linear.coefficients do not follow from its sums: they could hold labels"
        elif center.cells is not None:
            sizes = _sizes(center, center.cells, shares)
            if len(center.cells.counts) > max(sizes):
                yield f"{_NAME}.cells are more than the budget and the sample allow"
            yield from _fit_problems(center, center.cells, moments, min(sizes))


def _explains(center: ClassCenter, moments: ClassMoments) -> bool:
    stated = np.array(center.coefficients)
    return any(rounds_to(found, stated) for found in linear_coefficients(center, moments))


def _noise_problems(center: ClassCenter) -> Iterator[str]:
    """Checks that noised numbers are within those of any labels with their noise."""
    limit = _noise_limit(1 / center.budget[0], len(center.counts))
    if min(center.counts) < -limit or max(center.counts) > center.records + limit:
        yield f"{_NAME}.counts are not those of any labels with their noise"
    if center.sums:
        limit = _noise_limit(center.norm / center.sums_epsilon, len(center.sums) * len(center.counts))
        size, most = len(center.sums) * len(center.counts), center.records * center.norm
        constants, totals = center.sums[0], [abs(sum(each)) for each in center.sums]
        if (
            min(constants) < -limit
            or max(constants) > ROW_UNIT * center.records + limit
            or sum(abs(each) for sums in center.sums for each in sums) > most + size * limit
            or sum(totals) > most
        ):
            yield f"{_NAME}.linear.sums are larger than those of any labels with their noise"
    if center.cells is not None:
        counts = np.array(center.cells.counts)
        limit = _noise_limit(1 / center.cells.epsilon, counts.size)
        if counts.min() < -limit or (counts > counts.sum(axis=1, keepdims=True) + limit).any():
            yield f"{_NAME}.cells.counts are not those of any labels with their noise"


def _noise_limit(scale: Fraction, numbers: int) -> float:
    return float(2 * scale) * (_MOST_NOISE + numbers.bit_length())


def _sample_problems(center: ClassCenter) -> Iterator[str]:
    """Checks the order of the samples, and what follows from their rows: nothing else is in them than features."""
    rows = list(zip(*(np.frombuffer(each, np.int8).tolist() for each in center.rows), strict=True))
    if rows != sorted(rows):
        yield f"{_NAME}.linear.rows are not in ascending order: their order could hold labels"
    if center.cells is None:
        return
    parts = [np.frombuffer(each, np.uint8).tolist() for each in center.cells.codes]
    own = [np.frombuffer(each, np.int8).tolist() for each in center.cells.rows]
    coded = list(zip(*parts, *own, strict=True))
    if coded != sorted(coded):
        yield f"{_NAME}.cells.codes are not in ascending order: their order could hold labels"
    if not _is_part(rows, list(zip(*own, strict=True))):
        yield f"{_NAME}.linear.rows are not those of a part of the sample of the cells"
    if not _codes_fit(center, center.cells):
        yield f"{_NAME}.cells.codes of components and of logits are not those of its rows"


def _is_part(some: list[tuple[int, ...]], all_of_them: list[tuple[int, ...]]) -> bool:
    """True if each row is among others as often as among some; of a smaller sample, they are the same."""
    others = sorted(all_of_them)
    if len(some) == len(others):
        return sorted(some) == others
    counts: dict[tuple[int, ...], int] = {}
    for each in others:
        counts[each] = counts.get(each, 0) + 1
    for each in some:
        counts[each] = counts.get(each, 0) - 1
    return min(counts.values()) >= 0


def _codes_fit(center: ClassCenter, cells: ClassCells) -> bool:
    """True if the codes of columns that are none of features lie between those of the bounds on the rows."""
    rows = decoded_rows(cells.rows).astype(np.int64)
    half = COARSE // 2
    low = np.where(rows <= -_CLIPPED, -center.norm, rows - half)
    high = np.where(rows >= _CLIPPED, center.norm, rows + half - 1)
    for column, codes in zip(cells.others, cells.codes[len(cells.features) :], strict=True):
        if column.logit:
            coefficients = np.array([each[column.place] for each in center.coefficients])
            ends = tuple(each // ROW_UNIT for each in dot_bounds(low, high, coefficients))
        else:
            ends = low[:, column.place], high[:, column.place]
        least, most = (np.searchsorted(np.array(column.cuts, np.int64), each, side="right") for each in ends)
        found = np.frombuffer(codes, np.uint8)
        if (found < least).any() or (found > most).any():
            return False
    return True


def _usefulness_problems(center: ClassCenter, shares: np.ndarray) -> Iterator[str]:
    """Checks whether class sums are there where they say enough of the signal, and only there.

    Norms of fewer components than those that are published are at most that of all.
    """
    epsilon = float(center.budget[1])
    if not epsilon:
        return
    limit, size = _USELESS * _SIGNAL, len(center.signal)
    if center.sums:
        if _unknown(center, shares, size, center.norm / ROW_UNIT, epsilon) > limit * (1 + _CLOSE):
            yield f"{_NAME}.linear.sums were released, though noise leaves too much unknown"
        return
    norms = _largest_norms(center)
    if any(_unknown(center, shares, each, norms[each], epsilon) < limit * (1 - _CLOSE) for each in range(1, size + 1)):
        yield f"{_NAME}.linear.sums are missing, though they would say enough"


def _unknown(center: ClassCenter, shares: np.ndarray, size: int, norm: float, epsilon: float) -> float:
    """Variance of the linear part that sums of so many components, of rows of this norm, leave unknown."""
    curvature = center.records * shares * (1 - shares)
    noise = sum_zero_variance(Fraction(1 << 20), len(shares)) / (1 << 40) * (norm / epsilon) ** 2
    error, known = (noise / curvature + 1) / curvature, np.array(center.signal[:size])[:, None]
    lost = (known * error / (known + error)).sum(axis=0)
    return float((curvature / curvature.sum() * lost).sum() + _SIGNAL - known.sum())


def _largest_norms(center: ClassCenter) -> list[float]:
    """Upper bounds on the norms of rows for each number of components, from the coarse rows of the whole sample."""
    published = center.norm / ROW_UNIT
    if center.cells is None:
        return [published] * len(center.rows)
    rows = np.abs(decoded_rows(center.cells.rows))
    bounds = np.where(rows >= _CLIPPED, center.norm, rows + COARSE // 2)
    lengths = np.sort(np.cumsum(bounds, axis=1), axis=0)[math.ceil((1 - _SHORTENED) * len(rows)) - 1]
    # A row that was shortened had more.
    return np.where(lengths < center.norm, lengths / ROW_UNIT, published).tolist()


def _sizes(center: ClassCenter, cells: ClassCells, shares: np.ndarray) -> list[int]:
    """Numbers of cells that the budget and the sample allow, up to rounding."""
    if center.sums:
        counts = np.array(center.sums[0], np.float64) / ROW_UNIT
        shares = floored_shares(counts, center.records, sum_noise(center))
    spread = float((shares * (1 - shares)).sum()) / len(shares)
    most = center.records * spread * float(cells.epsilon) / _CELL
    limit = min(MOST_CELLS, len(cells.codes[0]) // _SAMPLED_IN_CELL)
    return [max(1, min(int(most * (1 + error)), limit)) for error in (-_CLOSE, _CLOSE)]


def _fit_problems(
    center: ClassCenter, cells: ClassCells, moments: Sequence[ClassMoments | None], least: int
) -> Iterator[str]:
    """Checks the partition into at least so many cells, if codes differ, and coefficients and trees.

    Of several results that rounding allows, one must be right.
    """
    codes = np.array([np.frombuffer(each, np.uint8) for each in cells.codes])
    places, classes = cells_of(cells.nodes, codes), len(center.counts)
    if len(np.unique(places)) < len(cells.counts):
        yield f"{_NAME}.cells.tree has a cell without a record of the sample"
        return
    yield from partition_problems(center, cells, codes, least)
    counts, noise = np.array(cells.counts, np.float64), sum_zero_variance(1 / cells.epsilon, classes)
    sample = CodedSample(codes, CellTargets(decoded_rows(cells.rows), places, counts, noise))
    base = np.zeros(classes)
    if not center.sums:
        base = np.log(floored_shares(counts.sum(axis=0), center.records, noise * len(counts)))
    few = len(counts) < LEAST_CELLS
    # Of few cells, none is held out, and there are no trees.
    folds = [np.zeros(len(counts), bool)] if few else [held_out(len(counts), fold) for fold in range(FOLDS)]
    candidates = itertools.chain.from_iterable(
        itertools.product(*(refits(center, sample.targets, held, base, each) for held in folds)) for each in moments
    )
    first: list[str] | None = None
    for candidate in candidates:
        if few:
            follows = rounds_to(candidate[0], np.array(cells.coefficients)) and not cells.leaves
            problems = [] if follows else [_UNEXPLAINED]
        else:
            problems = list(_candidate_problems(center, cells, sample, base, candidate))
        if not problems:
            return
        first = problems if first is None else first
    yield from first or ()


def _candidate_problems(
    center: ClassCenter, cells: ClassCells, sample: CodedSample, base: np.ndarray, found: Sequence[np.ndarray]
) -> Iterator[str]:
    """Compares coefficients and trees with those that follow from the coefficients of each fold."""
    start, stated = np.array(center.coefficients) / LOGIT_UNIT, np.array(cells.coefficients)
    start[0] += base
    rows = WholeMatrix(sample.targets.rows)
    given, *refitted = (rows.times(each) / ROW_UNIT for each in (start, *found))
    better = refits_are_better(sample, given, refitted)
    mean = np.add.reduce(np.stack(found), axis=0) / FOLDS
    if better is not False and rounds_to(mean, stated):
        yield from class_tree_problems(cells, sample, given, refitted)
    elif better is not True and rounds_to(start, stated):
        yield from class_tree_problems(cells, sample, given, [given] * FOLDS)
    else:
        yield _UNEXPLAINED
