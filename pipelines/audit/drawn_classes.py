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
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .class_center_document import ClassCenter
from .class_logits import sum_zero_variance
from .class_probabilities import PROBABILITY_UNIT

FALSE_ALARM = 1e-6
"""A correct release fails with a probability of at most this."""

_ALARM = f"a correct release fails this with a probability of at most {FALSE_ALARM:g}"
_GROUPS = 10
# Probabilities of one bin have the same number of bits, and the same two bits after the first.
_BINS = 4 * 17


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

    def add(self, probabilities: np.ndarray, labels: np.ndarray, cells: np.ndarray) -> None:
        """Adds n records: probabilities of shape (n, K), classes and cells of shape (n,); NaN is no class."""
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

    def lines(self, with_cells: bool) -> Iterator[str]:
        """Lines of the report on what was shown, and what was not."""
        sets = len(list(self._sets()))
        yield f"draws        classes agree with their probabilities in {sets} sets by class and probability; {_ALARM}"
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
        scales = self._expected + noise
        factors = (counts - self._expected) / scales
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
        return math.log(2 * tests / FALSE_ALARM)

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
