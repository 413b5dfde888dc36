"""Replay of a center with the program's own code: what must follow from its noised numbers and public samples does so.

The labels enter a center through noised numbers alone; a dishonest party could encode labels in whatever else is
published. Scales, epsilons and bounds of the noised numbers are checked by the auditor's own code. That coefficients,
ranges, partitions and trees follow from them is checked here, by the functions of `mechanisms.center` that a release is
made with: they give the same numbers on every machine. So this shows that nothing else was put in, not that these
functions are right; a mistake of theirs makes a center worse, but adds nothing to what the noised numbers say.

No other module of the auditor imports code of the project.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..mechanisms.center.cell_partition import CellTree, code_ranks, split_cells, split_columns, squared_spreads
from ..mechanisms.center.center_model import read_center
from ..mechanisms.center.class_center import ClassCenter, most_class_cells
from ..mechanisms.center.class_document import read_class_center
from ..mechanisms.center.class_logit import COARSE, best_size
from ..mechanisms.center.class_partition import LEAST_SCALE, ClassSample
from ..mechanisms.center.feature_rows import ROW_UNIT
from ..mechanisms.center.linear_center import norms_of
from ..mechanisms.center.residuals import ResidualDomain, clipped_prior, clipping_error
from .documents import as_text, printable
from .interval_products import dot_bounds

_CLIPPED = 127 * COARSE
# Results of floating-point arithmetic that are this close are equal.
_CLOSE = 1e-9


def linear_replay_problems(linear: dict[str, Any]) -> Iterator[str]:
    """Replays a linear center, and its cells if it has any; yields one line if something does not follow.

    The member `linear` of a mechanism file passed all other checks.
    """
    try:
        read_center(linear)
    except (ValueError, ArithmeticError) as error:
        yield f"center.linear cannot be replayed: {printable(str(error))}"


def residual_replay_problems(mechanism: Mapping[str, Any], clipping: Mapping[str, Any]) -> Iterator[str]:
    """Replays what follows from the noised counts of residuals: the prior of a mechanism file, and the clipping stated.

    The mechanism file passed its audit.
    """
    center, labels = mechanism["center"], np.array(mechanism["labels"])
    try:
        domain = ResidualDomain(np.array(center["domain"]))
        prior = domain.prior(np.array(center["counts"], np.int64), mechanism["prior"]["epsilon"])
        error = clipping_error(prior, labels[0], labels[-1])
        first = int(np.searchsorted(prior.labels, labels[0]))
        weights = clipped_prior(prior, first, first + len(labels) - 1).weights
    except (ValueError, ArithmeticError) as problem:
        yield f"center.counts cannot be replayed: {printable(str(problem))}"
        return
    if mechanism["prior"]["weights"] != weights.tolist():
        yield "prior.weights do not follow from center.counts"
    if as_text(clipping) != as_text({"share": error.share, "bias": error.bias, "squared_error": error.squared}):
        yield "release.center.clipping does not follow from center.counts of mechanism.json"


def class_replay_problems(document: dict[str, Any]) -> Iterator[str]:
    """Replays a center of classes; yields one line for each thing that does not follow.

    The member `class_center.center` of a mechanism file passed all other checks.
    """
    try:
        center = read_class_center(document)
    except (ValueError, ArithmeticError) as error:
        yield f"class_center.center cannot be replayed: {printable(str(error))}"
        return
    with np.errstate(all="ignore"):
        problems = [*_sums_problems(center), *_sample_problems(center)]
        if center.cells is not None:
            problems += _partition_problems(center, center.cells.design.sample)
    yield from (f"class_center.center cannot be replayed: {problem}" for problem in problems)


def _sums_problems(center: ClassCenter) -> Iterator[str]:
    """Checks that class sums are there where they say enough of the signal, and only there.

    Norms of fewer components than those that are published are at most that of all.
    """
    linear = center.linear
    signal, records, norm = np.array(linear.design.signal), linear.design.records, linear.design.map.norm
    norms = np.full(len(signal) + 1, norm)
    if not linear.sums and center.cells is not None:
        rows = np.abs(center.cells.design.sample.rows)
        norms = np.minimum(norms_of(np.where(rows >= _CLIPPED, norm, rows + COARSE // 2)), norm)
    useful = best_size(signal, norms / ROW_UNIT, records, center.shares, center.budget.sums)
    if linear.sums and useful != len(signal):
        yield "class sums were released, though noise leaves too much unknown"
    if useful and not linear.sums:
        yield "class sums are missing, though they would say enough"


def _sample_problems(center: ClassCenter) -> Iterator[str]:
    """Checks the order of the samples, and that one is a part of the other: nothing else is in them than features."""
    rows = center.linear.design.rows
    if not _ascend(rows):
        yield "rows of the linear part are not in ascending order: their order could hold labels"
    if center.cells is None:
        return
    sample = center.cells.design.sample
    if not _ascend(np.hstack([sample.codes, sample.rows])):
        yield "codes of the cells are not in ascending order: their order could hold labels"
    if not Counter(row.tobytes() for row in rows) <= Counter(row.tobytes() for row in sample.rows):
        yield "rows of the linear part are not those of a part of the sample of the cells"
    if not _codes_fit(center, sample):
        yield "codes of components and of logits are not those of the rows of the sample"


def _ascend(rows: np.ndarray) -> bool:
    return bool((np.lexsort(rows.T[::-1]) == np.arange(len(rows))).all())


def _codes_fit(center: ClassCenter, sample: ClassSample) -> bool:
    """True if the codes of columns that are none of features lie between those of the bounds on the rows."""
    rows, norm = sample.rows, center.linear.design.map.norm
    low = np.where(rows <= -_CLIPPED, -norm, rows - COARSE // 2)
    high = np.where(rows >= _CLIPPED, norm, rows + COARSE // 2 - 1)
    for number, column in enumerate(sample.partition.others, len(sample.partition.features)):
        if column.logit:
            least, most = dot_bounds(low, high, center.linear.coefficients[:, column.place])
            ends = least // ROW_UNIT, most // ROW_UNIT
        else:
            ends = low[:, column.place], high[:, column.place]
        first, last = (np.searchsorted(np.array(column.cuts, np.int64), end, side="right") for end in ends)
        codes = sample.codes[:, number]
        if (codes < first).any() or (codes > last).any():
            return False
    return True


def _partition_problems(center: ClassCenter, sample: ClassSample) -> Iterator[str]:
    """Splits the codes of the sample into as many cells as the budget allows, and compares the tree.

    Without class sums, columns have public scales. With sums, those of features are spreads of their values, which are
    not published; so the splits follow the published columns, which some scales must make the widest.
    """
    partition, most = sample.partition, most_class_cells(center, len(sample.codes))
    features = len(partition.features)
    if not center.linear.sums:
        signal = center.linear.design.signal
        scales = [0.0 if column.logit else math.sqrt(signal[column.place - 1]) for column in partition.others]
        tree, widest = split_cells(sample.codes, code_ranks(sample.codes) * [*[0.0] * features, *scales], most), True
    else:
        splits = PublishedSplits(partition.tree, code_ranks(sample.codes), features)
        tree = split_columns(sample.codes, most, splits.column)
        widest = splits.widest_under_some_scales()
    names = ("columns", "cuts", "children")
    if not all(np.array_equal(getattr(tree, name), getattr(partition.tree, name)) for name in names):
        yield "the tree of the cells does not follow from the codes of its sample: it could hold labels"
    elif not widest:
        yield "the tree has splits of columns that are the widest under no scales: they could hold labels"


class PublishedSplits:
    """Columns that a tree splits, and what they say of scales that are not published.

    The scales of features are the same for all nodes, from LEAST_SCALE to 1 + LEAST_SCALE, and do not rise from column
    to column; those of all other columns are 0. Every split compares scales: for their logarithms x, it says that
    x_c - x_j >= w_cj for the column c and each j.
    """

    def __init__(self, tree: CellTree, ranks: np.ndarray, features: int):
        """Takes the tree, the ranks of the codes of its sample, and the number of columns that are of features."""
        self._tree, self._ranks, self._features = tree, ranks, features
        self._least = np.full((features, features), -math.inf)
        if features:
            self._least[np.arange(features - 1), np.arange(1, features)] = 0.0
            self._least[features - 1, 0] = math.log(LEAST_SCALE / (1 + LEAST_SCALE))

    def column(self, node: int, members: np.ndarray, varied: np.ndarray) -> int:
        """Published column of a node with these records, if it may be the widest of those that vary."""
        candidates = np.flatnonzero(varied[: self._features])
        column = int(self._tree.columns[node]) if node < len(self._tree.columns) else 0
        if not len(candidates) or column not in candidates:
            # The first one is the widest of equals; another than the published one makes another tree.
            return int(np.argmax(varied))
        logarithms = np.log(squared_spreads(self._ranks[members][:, : self._features])) / 2
        differences = logarithms[candidates] - logarithms[column]
        self._least[column, candidates] = np.maximum(self._least[column, candidates], differences)
        return column

    def widest_under_some_scales(self) -> bool:
        """True if some scales satisfy all comparisons: no cycle of them adds up to more than 0."""
        longest = self._least.copy()
        for column in range(len(longest)):
            longest = np.maximum(longest, longest[:, [column]] + longest[[column]])
        return bool((longest.diagonal() <= _CLOSE).all())
