"""Test of drawn classes: do they agree with the probabilities of their records, and with nothing else that is known?

Given the probabilities, the class of each record is an independent draw from them. For numbers a_i(c) that do not
depend on the draws, the sum of a_i(drawn class) less its expectation has the variance V = sum of Var a_i, and no term
exceeds M, the largest range of any a_i. By Bernstein's inequality, it is above x with a probability of at most
exp(-x^2 / (2 (V + M x / 3))), and as much below -x.

There are two kinds of sums. For each class and for groups of records of similar probability, a_i is 1 for the class.
And for the cells of a center, a_i(c) is the noised count of class c in the record's cell less the sum of the
probabilities there, divided by about its variance. Draws know nothing of the noised counts; true classes do, so that
the second sum tells true classes from draws, whether or not the probabilities are right. What it would be for true
classes is estimated.

True classes in place of some draws move these sums little. So further sums are compared over parts of the records
(`part_scan`): records of each class, where there are few classes; those whose class is the likeliest one; the
logarithms of the probabilities of the classes; and in runs of records, the sum over the cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from .class_center_document import ClassCenter, sum_zero_variance
from .class_probabilities import PROBABILITY_UNIT
from .part_scan import Blocks, PartScan, largest_quotient
from .shard_columns import Column

FALSE_ALARM = 1e-6
"""A correct release fails with a probability of at most this."""

_ALARM = f"a correct release fails this with a probability of at most {FALSE_ALARM:g}"
_GROUPS = 10
# Probabilities of one bin have the same number of bits, and the same two bits after the first.
_BINS = 4 * 17
# Classes that are scanned one by one, if there are no more; and numbers of all blocks, classes and cells together.
_MOST_CLASSES, _MOST_SUMS = 32, 1 << 22
_LEAST_LOGARITHM = -math.log(PROBABILITY_UNIT)
_NO_COLUMNS: Mapping[str, Column] = {}


class CellDraws(NamedTuple):
    """Sum over the cells of a center, the bound of its size for draws, and an estimate of it for true classes."""

    found: float
    bound: float
    expected: float


class DrawnClasses:
    """Numbers of records of each class, by probability and by cell."""

    def __init__(self, center: ClassCenter):
        """Starts without records."""
        classes, cells = len(center.counts), 1 if center.cells is None else len(center.cells.counts)
        self._cells = center.cells
        # Records, probabilities, their squares, and records of the class, by class and bin.
        self._bins = np.zeros((4, classes, _BINS))
        self._drawn, self._expected = np.zeros((cells, classes)), np.zeros((cells, classes))
        self._single = classes if classes <= _MOST_CLASSES else 0
        both = [1.0] * (2 * self._single + 2) + [-_LEAST_LOGARITHM] * 2
        self.parts = PartScan(np.array(both))
        few = classes <= _MOST_CLASSES and 256 * cells * classes <= _MOST_SUMS
        self._cell_blocks = Blocks((2, cells, classes)) if few and self._cells is not None else None

    def add(
        self,
        probabilities: np.ndarray,
        labels: np.ndarray,
        cells: np.ndarray,
        columns: Mapping[str, Column] = _NO_COLUMNS,
    ) -> None:
        """Adds n records: probabilities of shape (n, K), classes and cells of shape (n,); NaN is no class.

        `columns` are their features.
        """
        self._scan(probabilities, labels, cells, columns)
        known = np.isfinite(labels)
        chances = np.clip(probabilities[known], 0, PROBABILITY_UNIT)
        places, cells = labels[known].astype(np.intp), cells[known]
        classes = chances.shape[1]
        for one, own in enumerate(chances.T):
            bins, shares = _bins(own), own / PROBABILITY_UNIT
            for total, weights in zip(self._bins, (None, shares, shares**2, places == one), strict=True):
                total[one] += np.bincount(bins, weights, _BINS)
            self._expected[:, one] += np.bincount(cells, shares, len(self._expected))
        size = self._drawn.size
        self._drawn += np.bincount(cells * classes + places, minlength=size).reshape(-1, classes)

    def _scan(
        self, probabilities: np.ndarray, labels: np.ndarray, cells: np.ndarray, columns: Mapping[str, Column]
    ) -> None:
        """Adds records to the sums over parts; a record without a class adds nothing."""
        known = np.isfinite(labels)
        shares = np.clip(probabilities, 0, PROBABILITY_UNIT) / PROBABILITY_UNIT
        rows, places = np.arange(len(labels)), np.where(known, labels, 0).astype(np.intp)
        likeliest = shares.argmax(axis=1)
        logarithms = np.log(np.maximum(shares, 1 / PROBABILITY_UNIT))
        means = (shares * logarithms).sum(axis=1)
        expected = [shares[:, : self._single], shares[rows, likeliest][:, None]]
        found = [places[:, None] == np.arange(self._single), (places == likeliest)[:, None]]
        deviations = np.hstack([*(a - b for a, b in zip(found, expected, strict=True)),
                                (logarithms[rows, places] - means)[:, None]])  # fmt: skip
        squares = (shares * logarithms**2).sum(axis=1) - means**2
        variances = np.hstack([*(each * (1 - each) for each in expected), squares[:, None]])
        # Both sides of each: the largest values of the logarithms come last.
        deviations, variances = (each * known[:, None] for each in (deviations, variances))
        order = [*range(self._single + 1)]
        last = self._single + 1
        signed = [deviations[:, order], -deviations[:, order], deviations[:, [last]], -deviations[:, [last]]]
        self.parts.add(np.hstack(signed), variances[:, [*order, *order, last, last]], columns)
        if self._cell_blocks is not None and known.any():
            blocks, sums = self._cell_blocks.places(len(labels)), self._cell_blocks.sums
            first, size, classes = int(blocks[0]), sums[0, 0].size, shares.shape[1]
            of_cell = ((blocks - first) * 2 * size + cells * classes)[known]
            of_class = (of_cell[:, None] + size + np.arange(classes)).ravel()
            places, weights = np.append(of_cell + places[known], of_class), np.append(known[known], shares[known])
            length = (int(blocks[-1]) - first + 1) * 2 * size
            of_blocks = np.bincount(places, weights, length).reshape(-1, *sums.shape[1:])
            sums[first : int(blocks[-1]) + 1] += of_blocks

    def _part_problems(self, with_cells: bool) -> Iterator[str]:
        found, _, parts = self.parts.largest(FALSE_ALARM / 4)
        if found > 1:
            yield (
                f"the classes of a part of the records were not drawn from their probabilities: of {parts} sums over "
                f"runs, shards and values of features, one is {found:.2f} times its bound; {_ALARM}"
            )
        found, parts = self._run_of_cells() if with_cells else (0.0, 0)
        if found > 1:
            yield (
                "the classes of a run of records follow the noised counts of the cells, as true classes do: of "
                f"{parts} runs, one is {found:.2f} times its bound; {_ALARM}"
            )

    def _run_of_cells(self) -> tuple[float, int]:
        """Largest quotient of the sum over the cells and its bound, of all runs of records, and their number."""
        if self._cells is None or self._cell_blocks is None:
            return 0.0, 0
        factors, _ = self._factors()
        rows = []
        for sums in self._cell_blocks.runs():
            drawn, expected = sums[:, 0], sums[:, 1]
            totals = np.maximum(expected.sum(axis=2, keepdims=True), 1e-300)
            means = (factors * expected).sum(axis=2, keepdims=True) / totals
            variances = (expected * (factors - means) ** 2).sum(axis=(1, 2))
            found = (factors * (drawn - expected)).sum(axis=(1, 2))
            rows.append(np.stack([np.stack([found, -found], axis=1), np.stack([variances] * 2, axis=1)], axis=1))
        largest = float((factors.max(axis=1) - factors.min(axis=1))[self._expected.any(axis=1)].max(initial=0.0))
        found, _, number = largest_quotient(rows, np.array([largest] * 2), FALSE_ALARM / 4)
        return found, number // 2

    def _factors(self) -> tuple[np.ndarray, np.ndarray]:
        """Factor of each class in each cell, and about the variance of the noised count around expected records."""
        assert self._cells is not None
        counts, classes = np.array(self._cells.counts, np.float64), self._drawn.shape[1]
        noise = sum_zero_variance(1 / self._cells.epsilon, classes)
        return (counts - self._expected) / (self._expected + noise), self._expected + noise

    def problems(self, with_cells: bool) -> Iterator[str]:
        """Compares draws with probabilities, and with the cells if they are those of these records."""
        sets, limit = list(self._sets()), self._limit()
        wrong = [one for one, found, variance in sets if abs(found) > _bound(variance, 1.0, limit)]
        if wrong:
            yield (
                f"the classes were not drawn from their probabilities: {len(wrong)} of {len(sets)} sets deviate, first "
                f"of class number {wrong[0]}; {_ALARM}"
            )
        draws = self.cell_draws() if with_cells else None
        if draws is not None and abs(draws.found) > draws.bound:
            yield f"the classes follow the noised counts of the cells, as true classes do and draws do not; {_ALARM}"
        if not wrong:
            yield from self._part_problems(with_cells)

    def lines(self, with_cells: bool) -> Iterator[str]:
        """Lines of the report on what was shown, and what was not."""
        sets = len(list(self._sets()))
        yield f"draws        classes agree with their probabilities in {sets} sets by class and probability; {_ALARM}"
        found, _, parts = self.parts.largest(FALSE_ALARM / 4)
        yield f"             and in {parts} sums over runs, shards and values: at most {found:.2f} times the bound"
        draws = self.cell_draws() if with_cells else None
        if draws is None:
            yield "not shown    that draws are independent of true classes: where the center is right, these agree, too"
            return
        found, times = abs(draws.found) / draws.bound, draws.expected / draws.bound
        true = f"would have about {times:.1f} times the bound" if times > 1 else "would pass, too"
        yield (
            f"             and do not follow the noised counts of {len(self._drawn)} cells: {found:.2f} times the "
            f"bound; true classes in place of all draws {true}"
        )
        yield "not shown    that draws depend on nothing else, such as some true classes: this takes the secret key"

    def cell_draws(self) -> CellDraws | None:
        """Computes the sum over the cells; None without cells."""
        if self._cells is None:
            return None
        counts, classes = np.array(self._cells.counts, np.float64), self._drawn.shape[1]
        noise = sum_zero_variance(1 / self._cells.epsilon, classes)
        factors, scales = self._factors()
        records = np.maximum(self._expected.sum(axis=1, keepdims=True), 1)
        means = (factors * self._expected).sum(axis=1, keepdims=True) / records
        variance = float((self._expected * (factors - means) ** 2).sum())
        ranges = (factors.max(axis=1) - factors.min(axis=1))[self._expected.any(axis=1)]
        found = float((factors * (self._drawn - self._expected)).sum())
        # The variance of true classes around right probabilities; fewer if trees have fitted the noise of the counts.
        likely = float((self._expected * (1 - self._expected / records) / scales).sum())
        expected = min(float((factors * (counts - self._expected) - noise / scales).sum()), likely)
        return CellDraws(found, _bound(variance, float(ranges.max(initial=0.0)), self._limit()), expected)

    def _limit(self) -> float:
        """Logarithm of the inverse of the probability that one side of one test may fail with."""
        tests = len(self._bins[0]) * (_GROUPS + 1) + 1
        # The other half is for parts of the records.
        return math.log(2 * tests / (FALSE_ALARM / 2))

    def _sets(self) -> Iterator[tuple[int, float, float]]:
        """Class, records of it less those expected, and variance, of each class and of groups by its probability."""
        for one in range(self._bins.shape[1]):
            records, shares, squares, drawn = self._bins[:, one]
            whole = np.zeros(_BINS, np.intp)
            ranks = np.cumsum(records) - records / 2
            groups = np.minimum((ranks * _GROUPS / max(records.sum(), 1)).astype(np.intp), _GROUPS - 1)
            for places in (whole, groups) if len(np.unique(groups[records > 0])) > 1 else (whole,):
                size = np.bincount(places, records, _GROUPS)
                found = np.bincount(places, drawn - shares, _GROUPS)
                variances = np.bincount(places, shares - squares, _GROUPS)
                yield from (
                    (one, float(found[group]), float(variances[group])) for group in np.flatnonzero(size).tolist()
                )


def _bins(chances: np.ndarray) -> np.ndarray:
    """Bins of probabilities in whole units, shape (n,): they depend on nothing else."""
    exponents = np.frexp(chances.astype(np.float64))
    return np.where(chances > 0, 4 * (exponents[1] - 1) + ((exponents[0] - 0.5) * 8).astype(np.intp), 0)


def _bound(variance: float, largest: float, limit: float) -> float:
    """Number that a sum of independent terms exceeds with a probability of exp(-limit) at most."""
    third = largest * limit / 3
    return third + math.sqrt(third**2 + 2 * max(variance, 0.0) * limit)
