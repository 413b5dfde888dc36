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

True classes in place of some draws move these sums little. So there is evidence of parts of the records, too
(`part_scan`). Its alternatives are probabilities that are tilted: towards a class, where there are few classes; towards
the likeliest one; to a power of themselves; and in runs of records, towards the noised counts of the cells. The factor
a_i(c) of a class c gets it the probability p_i(c) exp(t a_i(c)) / z_i, where z_i is the sum over the classes. By
Jensen's inequality, the sum of log z_i over the records of a block in a cell is at most that for the mean
probabilities, so the sums of the probabilities by block and cell are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from .class_center_document import ClassCenter, sum_zero_variance
from .class_columns import PROBABILITY_UNIT
from .part_scan import Blocks, Evidence, PartScan, evidence_of_runs, tilted
from .shard_columns import Column

FALSE_ALARM = 1e-6
"""A correct release fails with a probability of at most this."""

_PART_ALARM = FALSE_ALARM / 4
_ALARM = f"a correct release fails this with a probability of at most {FALSE_ALARM:g}"
_GROUPS = 10
# Probabilities of one bin have the same number of bits, and the same two bits after the first.
_BINS = 4 * 17
# Classes that are scanned one by one, if there are no more; and numbers of all blocks, classes and cells together.
_MOST_CLASSES, _MOST_SUMS = 32, 1 << 22
_TILTS, _POWERS = (-0.8, -0.3, 0.3, 0.8, 2.0), (0.6, 0.8, 1.25, 1.6)
# Of the factors of the cells; no exponent is larger than the bound.
_CELL_TILTS, _MOST_TILTED = (0.25, 0.5, 0.75, 1.0), 3.0
_NO_COLUMNS: Mapping[str, Column] = {}


class CellDraws(NamedTuple):
    """Sum over the cells of a center, the bound of its size for draws, and an estimate of it for true classes."""

    deviation: float
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
        self.parts = PartScan(np.eye((self._single + 1) * len(_TILTS) + len(_POWERS)))
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
        for k, chance in enumerate(chances.T):
            bins, shares = _bins(chance), chance / PROBABILITY_UNIT
            for total, weights in zip(self._bins, (None, shares, shares**2, places == k), strict=True):
                total[k] += np.bincount(bins, weights, _BINS)
            self._expected[:, k] += np.bincount(cells, shares, len(self._expected))
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
        chances = np.hstack([shares[:, : self._single], shares[rows, likeliest][:, None]])
        events = np.hstack([places[:, None] == np.arange(self._single), (places == likeliest)[:, None]])
        logarithms = np.log(np.maximum(shares, 1 / PROBABILITY_UNIT))
        powers = [np.exp((power - 1) * logarithms) for power in _POWERS]
        powers = [np.log(power[rows, places] / np.maximum((shares * power).sum(axis=1), 1e-300)) for power in powers]
        numbers = np.hstack([tilted(events, chances, _TILTS), np.stack(powers, axis=1)])
        self.parts.add(numbers * known[:, None], columns)
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
        evidence = self.parts.evidence()
        if evidence.exceeds(_PART_ALARM):
            yield (
                "the classes of a part of the records were not drawn from their probabilities: the evidence of "
                f"{evidence.number} sums over runs, shards and values of features is {evidence}; {_ALARM}"
            )
        evidence = self.evidence_of_cells() if with_cells else Evidence(0.0, 0)
        if evidence.exceeds(_PART_ALARM):
            yield (
                "the classes of a run of records follow the noised counts of the cells, as true classes do: the "
                f"evidence of {evidence.number} sums is {evidence}; {_ALARM}"
            )

    def evidence_of_cells(self) -> Evidence:
        """Evidence that the classes of a run of records were drawn towards the noised counts of the cells."""
        if self._cell_blocks is None or not len(self._cell_blocks.sums):
            return Evidence(0.0, 0)
        factors, *_ = self._factors()
        drawn, expected = self._cell_blocks.sums[:, 0], self._cell_blocks.sums[:, 1]
        records = expected.sum(axis=2)
        numbers = []
        for tilt in _CELL_TILTS:
            exponents = np.clip(tilt * factors, -_MOST_TILTED, _MOST_TILTED)
            means = np.einsum("bgk,gk->bg", expected, np.exp(exponents)) / np.where(records > 0, records, 1)
            sizes = np.log(np.where(records > 0, means, 1))
            numbers.append(np.einsum("bgk,gk->b", drawn, exponents) - (records * sizes).sum(axis=1))
        return evidence_of_runs(np.stack(numbers, axis=1))

    def _factors(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Factor of each class in each cell, about the variance of the noised count around expected records; noise."""
        assert self._cells is not None
        counts, classes = np.array(self._cells.counts, np.float64), self._drawn.shape[1]
        noise = sum_zero_variance(1 / self._cells.epsilon, classes)
        return (counts - self._expected) / (self._expected + noise), self._expected + noise, noise

    def problems(self, with_cells: bool) -> Iterator[str]:
        """Compares draws with probabilities, and with the cells if they are those of these records."""
        sets, limit = list(self._sets()), self._limit()
        wrong = [one for one, deviation, variance in sets if abs(deviation) > _bound(variance, 1.0, limit)]
        if wrong:
            yield (
                f"the classes were not drawn from their probabilities: {len(wrong)} of {len(sets)} sets deviate, first "
                f"of class number {wrong[0]}; {_ALARM}"
            )
        draws = self.cell_draws() if with_cells else None
        if draws is not None and abs(draws.deviation) > draws.bound:
            yield f"the classes follow the noised counts of the cells, as true classes do and draws do not; {_ALARM}"
        if not wrong:
            yield from self._part_problems(with_cells)

    def lines(self, with_cells: bool) -> Iterator[str]:
        """Lines of the report on what was shown, and what was not."""
        sets = len(list(self._sets()))
        yield f"draws        classes agree with their probabilities in {sets} sets by class and probability; {_ALARM}"
        evidence = self.parts.evidence()
        yield (
            f"             and in {evidence.number} sums over runs, shards and values: evidence {evidence}, bound "
            f"10^{-math.log10(_PART_ALARM):.1f}"
        )
        draws = self.cell_draws() if with_cells else None
        if draws is None:
            yield "not shown    that draws are independent of true classes: where the center is right, these agree, too"
            return
        deviation, times = abs(draws.deviation) / draws.bound, draws.expected / draws.bound
        true = f"would have about {times:.1f} times the bound" if times > 1 else "would pass, too"
        yield (
            f"             and do not follow the noised counts of {len(self._drawn)} cells: {deviation:.2f} times the "
            f"bound; true classes in place of all draws {true}"
        )
        yield "not shown    that draws depend on nothing else, such as some true classes: this takes the secret key"

    def cell_draws(self) -> CellDraws | None:
        """Computes the sum over the cells; None without cells."""
        if self._cells is None:
            return None
        factors, scales, noise = self._factors()
        records = np.maximum(self._expected.sum(axis=1, keepdims=True), 1)
        means = (factors * self._expected).sum(axis=1, keepdims=True) / records
        variance = float((self._expected * (factors - means) ** 2).sum())
        ranges = (factors.max(axis=1) - factors.min(axis=1))[self._expected.any(axis=1)]
        deviation = float((factors * (self._drawn - self._expected)).sum())
        # The variance of true classes around right probabilities; fewer if trees have fitted the noise of the counts.
        likely = float((self._expected * (1 - self._expected / records) / scales).sum())
        expected = min(float((factors**2 * scales - noise / scales).sum()), likely)
        return CellDraws(deviation, _bound(variance, float(ranges.max(initial=0.0)), self._limit()), expected)

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
                deviation = np.bincount(places, drawn - shares, _GROUPS)
                variances = np.bincount(places, shares - squares, _GROUPS)
                yield from (
                    (one, float(deviation[group]), float(variances[group])) for group in np.flatnonzero(size).tolist()
                )


def _bins(chances: np.ndarray) -> np.ndarray:
    """Bins of probabilities in whole units, shape (n,): they depend on nothing else."""
    exponents = np.frexp(chances.astype(np.float64))
    return np.where(chances > 0, 4 * (exponents[1] - 1) + ((exponents[0] - 0.5) * 8).astype(np.intp), 0)


def _bound(variance: float, largest: float, limit: float) -> float:
    """Number that a sum of independent terms exceeds with a probability of exp(-limit) at most."""
    third = largest * limit / 3
    return third + math.sqrt(third**2 + 2 * max(variance, 0.0) * limit)
