"""Center of classes: probabilities of K classes from features, learned from exactly noised numbers.

The labels enter three times, the last two with noise of sum 0 over the classes (see `sum_zero_laplace`):

1. histogram of the classes, with independent noise of scale 2 / epsilon_0, as of every release;
2. class sums of the rows of a linear center (`class_logit`), a changed label moves a row of norm A: scale A /
   epsilon_1. They are left out where noise would exceed what they say;
3. counts of the classes in each cell of a partition of the features, a changed label moves 1 within one cell, which
   features alone decide: scale 1 / epsilon_2, whatever the number of cells. All cells are released, empty ones too.

Each is epsilon_i-label DP for any outcome of those before it, so all together satisfy (epsilon_0 + epsilon_1 +
epsilon_2)-label DP. Everything else follows from the noised numbers and from features: the partition, coefficients that
sums and counts agree with, trees (`class_trees`), probabilities, and classes drawn from them by words
that do not depend on labels. Labels of records are not looked at again, and cost nothing more.

Cells have about 1.3 / (p (1 - p) epsilon_2) records for classes of the share p: with fewer, noise exceeds what differs
between records of a cell.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..core.budget import MIN_EPSILON, BudgetSplit, check_epsilon, round_up
from ..core.reproducible import log, one_blas_thread
from ..noise.discrete_laplace import ByteStream
from ..noise.noised_part import NoisedPart
from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from ..noise.sum_zero_laplace import sum_zero_laplace, sum_zero_variance
from .boosting import FOLDS, ObliviousTrees, held_out
from .cell_partition import LEAST_CELLS, MOST_CELLS
from .class_logit import (
    LOGIT_UNIT,
    MOST_CLASSES,
    LinearClasses,
    LogitDesign,
    design_logit,
    floored_shares,
    moments_of,
    noised_class_sums,
    precisions,
    whole_coefficients,
)
from .class_partition import ClassSample, choose_class_partition
from .class_trees import CellCounts, boost_classes
from .feature_rows import ROW_UNIT, Columns, MappedColumns, RowMap
from .latest_fit import keep_latest
from .logit_fit import exact_product, minimized, row_sums, softmax

PROBABILITY_UNIT = 1 << 16
"""Probabilities are integer multiples of 1 / PROBABILITY_UNIT."""
# Part of what the histogram leaves of epsilon, for the class sums.
_SUMS = Fraction(1, 4)
_CELL = 1.3
# Smaller cells than this are not worth their price.
_LEAST_CELL = 5.0
# Records of the sample for a cell.
_SAMPLED_IN_CELL = 3
# After these, logits are those of the shares.
_MOST_HALVINGS = 8
_GRAIN = Fraction(1, 1 << 24)
_WORD_SHIFT = 64 - (PROBABILITY_UNIT.bit_length() - 1)


def center_pays(shares: np.ndarray, epsilon: float) -> bool:
    """Decides whether a center teaches a model more than classes of randomized response do; `shares` of the classes.

    If cells have few records, classes are frequent and noise is small: then classes one by one, trained on with the
    forward correction, say more than the counts of cells, which blur what they say. For equally many records of each
    class, that is above an epsilon of 1.04 for 2 classes, 1.6 for 5 and 2.9 for 10; for 2 % conversions, above 13. The
    shares are public, or those of the noised counts (`released_shares`).
    """
    return cell_size(shares, epsilon) >= _LEAST_CELL


def cell_size(shares: np.ndarray, epsilon: float) -> float:
    """Number of records of a cell, on average over the classes, at an epsilon of the counts."""
    return _CELL * len(shares) / (float(np.add.reduce(shares * (1 - shares))) * epsilon)


@dataclass(frozen=True)
class ClassBudget:
    """Parts of epsilon: histogram of the classes, class sums, counts of the cells.

    What the sums do not take, where they are left out, goes to the cells.
    """

    counts: float
    sums: float
    cells: float

    @property
    def total(self) -> float:
        """The whole, rounded up."""
        return round_up(sum((Fraction(each) for each in (self.counts, self.sums, self.cells)), Fraction(0)))


def split_class_budget(budget: BudgetSplit) -> ClassBudget:
    """Splits what the histogram of the classes leaves of a budget; small fractions, from which sampling is fast."""
    sums = _SUMS * Fraction(budget.labels) // _GRAIN * _GRAIN
    return ClassBudget(budget.prior, float(sums), float(Fraction(budget.labels) - sums))


def noised_class_counts(counts: np.ndarray, epsilon: float, noise_key: bytes) -> np.ndarray:
    """Releases counts of classes, shape (c, K), int64, under label DP: adds noise of sum 0 and scale 1 / epsilon.

    A changed label moves 1 from one class to another within one row; rows keep their sums. The noise key, 32 bytes, is
    bound to the raw counts and to everything that they depend on.
    """
    check_epsilon(epsilon)
    stream = ByteStream(noise_key, b"class counts")
    return counts + sum_zero_laplace(stream, 1 / Fraction(epsilon), counts.shape[1], len(counts))


def released_shares(counts: np.ndarray, records: int, epsilon: float) -> np.ndarray:
    """Shares of the classes, shape (K,), float64 > 0, from the noised counts of the histogram and the records."""
    noise = 2 * (HISTOGRAM_SENSITIVITY / epsilon) ** 2
    return floored_shares(counts.astype(np.float64), records, noise)


def design_classes(sample: Columns, shares: np.ndarray, records: int, epsilon: float) -> LogitDesign | None:
    """Chooses the linear part from a public sample of features and the released shares of the classes, shape (K,).

    `epsilon` is the budget of the class sums. None if there is no feature, or one class alone. Raises ValueError if
    there are too many classes.
    """
    if len(shares) > MOST_CLASSES:
        raise ValueError(f"there are {len(shares)} classes; at most {MOST_CLASSES} are allowed")
    if len(shares) < 2:
        return None
    return design_logit(sample, records, shares, epsilon)


@dataclass(frozen=True, eq=False)
class ClassCellDesign:
    """Public part of the cells: partition with its sample, and the budget of their counts."""

    sample: ClassSample
    epsilon: float

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.sample.partition.tree.leaves)

    @cached_property
    def noise(self) -> Fraction:
        """Scale of the noise of the counts."""
        return 1 / Fraction(self.epsilon)


def cells_epsilon(linear: LinearClasses, budget: ClassBudget) -> float:
    """Budget of the counts of the cells: their part, and that of the class sums where they are left out."""
    return float(Fraction(budget.cells) + (0 if linear.sums else Fraction(budget.sums)))


def design_class_cells(sample: Columns, center: ClassCenter) -> ClassCellDesign | None:
    """Chooses the partition from a public sample of features and a center without cells; None without a budget.

    It may be of few cells, down to one of all records, where features or records are: else their epsilon would be
    lost.
    """
    most = most_class_cells(center, len(next(iter(sample.values()))))
    if not most:
        return None
    spent = cells_epsilon(center.linear, center.budget)
    return ClassCellDesign(choose_class_partition(sample, center.linear, most), spent)


def most_class_cells(center: ClassCenter, sampled: int) -> int:
    """Largest number of cells for the budget of a center and a sample of so many records; 0 without a budget."""
    spent = cells_epsilon(center.linear, center.budget)
    if spent < MIN_EPSILON:
        return 0
    shares = center.linear.shares if center.linear.sums else center.shares
    records = int(center.linear.design.records / cell_size(shares, spent))
    return max(min(records, MOST_CELLS, sampled // _SAMPLED_IN_CELL), 1)


@dataclass(frozen=True, eq=False)
class ReleasedClassCells:
    """Released counts of cells, and what follows from them.

    Attributes:
      design: Public part.
      counts: Noised counts of the classes in each cell, shape (c, K), int64; rows add up to the records of the cell.
      coefficients: Coefficients that take the place of those of the linear part, shape (m + 1, K), int64.
      trees: Trees on top of them.
    """

    design: ClassCellDesign
    counts: np.ndarray
    coefficients: np.ndarray
    trees: ObliviousTrees

    @classmethod
    def fit(cls, design: ClassCellDesign, linear: LinearClasses, counts: np.ndarray) -> ReleasedClassCells:
        """Computes coefficients and trees from the noised counts."""
        sample, classes = design.sample, linear.design.classes
        noise = sum_zero_variance(design.noise, classes)
        cells = sample.partition.tree.cells(sample.codes)
        targets = CellCounts(cells, counts.astype(np.float64), noise)
        base = np.zeros(classes)
        if not linear.sums:
            totals = np.add.reduce(targets.counts, axis=0)
            base = log(floored_shares(totals, linear.design.records, noise * len(counts)))
        start = linear.coefficients / LOGIT_UNIT
        start[0] += base
        whole = sample.rows.astype(np.float64)
        if len(counts) < LEAST_CELLS:
            # Too few to hold some out: all of them decide the coefficients.
            with one_blas_thread():
                chosen = refitted(linear, sample.rows, targets, np.zeros(len(counts), bool), base)
            trees = ObliviousTrees.none(classes)
            return cls(design, counts, *not_refuted(linear, sample, targets, whole_coefficients(chosen), trees))
        with one_blas_thread():
            refits = refitted_by_fold(linear, sample.rows, targets, base)
            given, *logits = (exact_product(whole, each) / ROW_UNIT for each in (start, *refits))
        trees, better = boost_classes(sample.codes, targets, given, logits)
        chosen = np.add.reduce(np.stack(refits), axis=0) / FOLDS if better else start
        return cls(design, counts, *not_refuted(linear, sample, targets, whole_coefficients(chosen), trees))


def not_refuted(
    linear: LinearClasses, sample: ClassSample, targets: CellCounts, coefficients: np.ndarray, trees: ObliviousTrees
) -> tuple[np.ndarray, ObliviousTrees]:
    """Halves the distance of logits from those of the shares while counts say that the shares are better.

    They say so where the likelihood of the released probabilities is less by more than a standard deviation of the
    noise in the difference. So nothing is released that is worse than the shares by more than noise explains.
    """
    totals = np.add.reduce(targets.counts, axis=0)
    shares = log(floored_shares(totals, linear.design.records, targets.noise * len(targets.counts)))
    constant = np.zeros(coefficients.shape)
    constant[0] = shares
    for _ in range(_MOST_HALVINGS):
        logits = dataclasses.replace(linear, coefficients=coefficients).logits(sample.rows)
        chances = coded_probabilities(logits + trees.predict(sample.codes)) / PROBABILITY_UNIT
        change = targets.means(log(chances)) - shares
        gain = float((targets.counts * change).sum())
        change -= row_sums(change)[:, None] / len(shares)
        if gain >= -math.sqrt(targets.spread * float((change * change).sum())):
            return coefficients, trees
        coefficients = (coefficients + whole_coefficients(constant)) // 2
        trees = dataclasses.replace(trees, leaves=trees.leaves // 2)
    return whole_coefficients(constant), ObliviousTrees.none(len(shares))


@dataclass(frozen=True, eq=False)
class ClassCenter:
    """Released center of classes.

    Attributes:
      budget: Parts of epsilon.
      counts: Noised counts of the histogram of the classes, shape (K,), int64.
      linear: Linear part.
      cells: Cells; None if there are none.
    """

    budget: ClassBudget
    counts: np.ndarray
    linear: LinearClasses
    cells: ReleasedClassCells | None

    @property
    def parts(self) -> tuple[NoisedPart, ...]:
        """Everything that was released with noise, in its order."""
        design, classes, cells = self.linear.design, len(self.counts), self.cells
        parts = [NoisedPart.histogram("the classes", self.budget.counts, classes)]
        if design.epsilon:
            what, size, norm = "sums of features by class", design.map.size, design.map.norm
            add = functools.partial(_noised_sums, norm)
            parts.append(
                NoisedPart("class sums", what, design.epsilon, Fraction(norm), size, classes, add, True, ROW_UNIT)
            )
        if cells is not None:
            what, size = "counts of the classes by cells of the features", cells.design.cells
            add = noised_class_counts
            parts.append(NoisedPart("class cells", what, cells.design.epsilon, Fraction(1), size, classes, add, True))
        return tuple(parts)

    @property
    def epsilon(self) -> float:
        """Budget that was spent, rounded up."""
        return round_up(sum((Fraction(part.epsilon) for part in self.parts), Fraction(0)))

    @property
    def map(self) -> RowMap:
        """Map of the features that it predicts from."""
        return self.linear.design.map

    @property
    def shares(self) -> np.ndarray:
        """Shares of the classes by the histogram, shape (K,), float64 > 0."""
        return released_shares(self.counts, self.linear.design.records, self.budget.counts)

    def probabilities(self, columns: MappedColumns) -> np.ndarray:
        """Predicts the probabilities of the classes of n records.

        The columns are features of the records: all of the map's, and at least one column. Probabilities are multiples
        of 1 / PROBABILITY_UNIT, at least 1 of them, and add up to 1 exactly; shape (n, K), int64.
        """
        rows = self.linear.rows(columns)
        if self.cells is None:
            return self._of_rows(rows)
        codes = self.cells.design.sample.partition.codes(columns, self.linear, rows, self.linear.logits(rows))
        return self._of_codes(self.cells, rows, codes)

    def sample_probabilities(self) -> np.ndarray:
        """Predicts the probabilities of the records of the released sample, as `probabilities`, from coarse rows."""
        if self.cells is None:
            return self._of_rows(self.linear.design.rows)
        sample = self.cells.design.sample
        return self._of_codes(self.cells, sample.rows, sample.codes)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        logits = self.linear.logits(rows)
        if not self.linear.sums:
            base = log(self.shares)
            logits = logits + np.rint(base * LOGIT_UNIT).astype(np.int64)
        return coded_probabilities(logits)

    def _of_codes(self, cells: ReleasedClassCells, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        own = dataclasses.replace(self.linear, coefficients=cells.coefficients).logits(rows)
        return coded_probabilities(own + cells.trees.predict(codes))


def _noised_sums(norm: int, raw: np.ndarray, epsilon: float, noise_key: bytes) -> np.ndarray:
    return np.array(noised_class_sums(raw, norm, epsilon, noise_key))


def coded_probabilities(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits in multiples of 1 / LOGIT_UNIT, as of `ClassCenter.probabilities`; shape (n, K), int64.

    What rounding leaves goes to the likeliest class.
    """
    classes = logits.shape[1]
    whole = np.floor(softmax(logits / LOGIT_UNIT) * (PROBABILITY_UNIT - classes)).astype(np.int64) + 1
    whole[np.arange(len(whole)), whole.argmax(axis=1)] += PROBABILITY_UNIT - whole.sum(axis=1)
    return whole


def draw_classes(probabilities: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Draws a class for each record from its coded probabilities, shape (n, K), by one word each.

    The upper 16 bits of a uniform word, shape (n,), uint64, are a uniform multiple of 1 / PROBABILITY_UNIT, so the
    draw has exactly these probabilities. The result has shape (n,), int64.
    """
    places = (words >> np.uint64(_WORD_SHIFT)).astype(np.int64)
    return (np.cumsum(probabilities, axis=1) <= places[:, None]).sum(axis=1)


_ROUNDS, _STEPS = 2, 30


def refitted(
    linear: LinearClasses, rows: np.ndarray, targets: CellCounts, held: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Computes coefficients, shape (m + 1, K), float64, from class sums and the cells that are not held out.

    The counts of cells say about the linear part of the logits, too, along the features that cells are cut by; for rare
    classes they say more than the class sums. The coefficients minimize the squared distances of sums and counts from
    those expected, each in the metric of its covariance, and of the coefficients from 0 in that of their a-priori
    variance (generalized method of moments, Hansen 1982).

    `rows` are coarse rows of the sample, shape (s, m + 1), int64; `held`, shape (c,), bool; `base` are logits that
    constants start from, shape (K,).
    """
    design, size = linear.design, len(rows)
    records, classes = design.records, design.classes
    whole = rows.astype(np.float64)
    across = np.ascontiguousarray(whole.T)
    start = linear.coefficients / LOGIT_UNIT
    start[0] += base
    shares = softmax(base[None])[0]
    precision = precisions(np.array(design.signal), classes)
    target = inverse = None
    if linear.sums:
        moments, shares = moments_of(design, np.array(linear.sums, np.float64) / ROW_UNIT), linear.shares
        means, own = (np.add.reduce(each, axis=0) / (ROW_UNIT * len(each)) for each in (design.rows, rows))
        target, precision = moments.target + shares * (own - means)[:, None], moments.precision
        inverse = (classes - 1) / classes / moments.variances
    curvature = shares * (1 - shares)
    scale = precision + records * curvature**2 / (curvature + targets.noise * len(targets.counts) / records)
    if inverse is not None:
        scale = scale + (records * curvature) ** 2 * inverse
    seen = np.where(held, 0.0, 1.0)[:, None]

    def value(weights: np.ndarray) -> tuple[float, np.ndarray]:
        chances = softmax(exact_product(whole, weights) / ROW_UNIT)
        residuals = targets.residuals(targets.means(chances))
        white = targets.whitened(residuals, typical) * seen
        loss = float((residuals * white).sum()) / 2 + float((precision * weights * weights).sum()) / 2
        pull = white[targets.cells] * targets.weights
        if target is not None and inverse is not None:
            missed = records * (target - exact_product(across, chances) / (ROW_UNIT * size))
            scaled = missed * inverse
            loss += float((missed * scaled).sum()) / 2
            pull = pull + exact_product(whole, scaled) * (records / (ROW_UNIT * size))
        gradient = chances * (pull - row_sums(chances * pull)[:, None])
        return loss, precision * weights - exact_product(across, gradient) / ROW_UNIT

    for _ in range(_ROUNDS):
        typical = targets.means(softmax(exact_product(whole, start) / ROW_UNIT))
        start = minimized(value, start, scale, _STEPS)
    return start


@keep_latest
def refitted_by_fold(
    linear: LinearClasses, rows: np.ndarray, targets: CellCounts, base: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Computes the coefficients of each fold, from the cells that it does not hold out."""
    size = len(targets.counts)
    return tuple(refitted(linear, rows, targets, held_out(size, fold), base) for fold in range(FOLDS))
