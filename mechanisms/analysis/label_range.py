"""Label domain from a noised histogram over log-spaced cells: where the labels are, and what a domain would clamp.

The cells are public and fixed, so the histogram has the same sensitivity as one over a label domain. What follows from
the noised counts is post-processing and costs nothing. A cell that is empty has noise as well. So only counts that are
too large for noise say where labels are: with a probability of at least 1 - `FALSE_ALARM`, no empty cell has one.

Each cell ends at a round number, which belongs to it, and 0 is a cell of its own. So labels that end at a round number,
such as clicks of 0 and 1 or percentages, get a domain that ends there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from ..noise.noisy_histogram import HISTOGRAM_SENSITIVITY

FALSE_ALARM = 0.01
"""Largest probability that noise extends the range beyond the cells that have labels."""

_MANTISSAS = ("1", "1.2", "1.5", "2", "2.5", "3", "4", "5", "6", "8")
_EXPONENTS = range(-6, 13)
_FEWEST_STEPS = 50
# A lower end this close to 0, relative to the upper one, is moved to 0, where most labels have their natural end.
_CLOSE_TO_ZERO = 0.25
# An end this close to 0, relative to the other one, is moved to 0.
_ZERO = 1e-3
# From this ratio of the upper end to the median on, most labels are within a few steps of the lower end.
_SKEWED = 50


def log_spaced_labels() -> np.ndarray:
    """Lists the labels to which every label is rounded, away from 0: the outer end of each cell.

    0, and the numbers of both signs from 1e-6 to 8e12, ten to a decade; ascending, shape (381,), float64.
    """
    positive = [float(f"{mantissa}e{exponent}") for exponent in _EXPONENTS for mantissa in _MANTISSAS]
    return np.array([*(-value for value in reversed(positive)), 0.0, *positive])


@dataclass(frozen=True)
class DomainProposal:
    """Proposed label domain: an even grid. All numbers are from the noised histogram.

    Attributes:
      low: Smallest label.
      high: Largest label.
      step: Spacing.
      below: Estimated share of the labels below `low`; if `low` is above 0, of those at it, too.
      above: Estimated share of the labels above `high`; if `high` is below 0, of those at it, too.
      error: Largest standard deviation of these two shares, from the noise of the histogram.
      median: Outer end of the cell in which half of the labels are reached; 0 if it is within half a step of 0.
      skewed: Whether most labels are within a small part of the domain, so that their logarithm has a better one.
    """

    low: Decimal
    high: Decimal
    step: Decimal
    below: float
    above: float
    error: float
    median: float
    skewed: bool

    @property
    def labels(self) -> int:
        """Number of labels of the domain."""
        return int((self.high - self.low) / self.step) + 1

    @property
    def flags(self) -> str:
        """The domain as flags of the command line."""
        return f"--label_min {self.low:f} --label_max {self.high:f} --label_step {self.step:f}"


def propose_domain(noised: np.ndarray, records: int, epsilon: float, clamped: float) -> DomainProposal:
    """Proposes the shortest domain of cells that leaves at most half of the share `clamped` outside at each end.

    This holds as far as the counts tell; the ends are rounded outwards to round numbers. `noised` has the counts of the
    cells of `log_spaced_labels`, shape (381,), integers, which have spent epsilon > 0. The number of records, >= 1, is
    public, and `clamped` is in [0, 1). Raises ValueError if no cell has more labels than noise, or only the cell of 0
    has.
    """
    labels, scale = log_spaced_labels(), HISTOGRAM_SENSITIVITY / epsilon
    counts = np.clip(np.asarray(noised, np.int64), 0, records)
    # P(noise > t) <= exp(-t / scale) / 2 for each of the cells.
    found = np.flatnonzero(counts > scale * math.log(len(labels) / (2 * FALSE_ALARM)))
    if not len(found):
        raise ValueError(
            "no range of the labels can be told from noise: use a larger epsilon or more records, or declare the "
            "label domain from what is known"
        )
    first, last = int(found[0]), int(found[-1])
    spare = clamped / 2 * records
    while first < last and counts[last : found[-1] + 1].sum() <= spare:
        last -= 1
    while first < last and counts[found[0] : first + 1].sum() <= spare:
        first += 1
    # A cell above 0 begins after the end of the one below it, and reversed below 0.
    lower, upper = np.minimum(labels, 0), np.maximum(labels, 0)
    lower[labels > 0], upper[labels < 0] = upper[:-1][labels[1:] > 0], lower[1:][labels[:-1] < 0]
    if lower[first] == upper[last]:
        raise ValueError(
            "all labels that can be told from noise are 0: use a larger epsilon or more records, or declare the label "
            "domain from what is known"
        )
    low, high, step = _round_domain(float(lower[first]), float(upper[last]))
    outside = [
        np.asarray(noised)[(upper <= float(low)) & (lower < float(low))],
        np.asarray(noised)[(lower >= float(high)) & (upper > float(high))],
    ]
    below, above = (max(float(part.sum()), 0.0) / records for part in outside)
    error = math.sqrt(2 * max(map(len, outside))) * scale / records
    inside = np.cumsum(counts[first : last + 1])
    median = float(labels[first + int(np.searchsorted(inside, inside[-1] / 2))])
    skewed = low >= 0 and median > 0 and float(high) > _SKEWED * median
    shown = median if abs(median) >= float(step) / 2 else 0.0
    return DomainProposal(low, high, step, min(below, 1.0), min(above, 1.0), error, shown, skewed)


def _round_domain(low: float, high: float) -> tuple[Decimal, Decimal, Decimal]:
    """The ends as multiples of a round step, at least `_FEWEST_STEPS` of which are between them."""
    if abs(low) <= _ZERO * high or 0 < low <= _CLOSE_TO_ZERO * high:
        low = 0.0
    if abs(high) <= _ZERO * -low or 0 < -high <= _CLOSE_TO_ZERO * -low:
        high = 0.0
    # The ends of cells are round decimals.
    first, last = Decimal(repr(low)), Decimal(repr(high))
    exponent = ((last - first) / _FEWEST_STEPS).adjusted()
    steps = [Decimal(digit).scaleb(exponent) for digit in (1, 2, 5)]
    step = max(each for each in steps if each * _FEWEST_STEPS <= last - first)
    return step * math.floor(first / step), step * math.ceil(last / step), step
