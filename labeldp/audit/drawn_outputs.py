"""Outputs of the released records, and a test of parts of them: none has an output more often than the channel allows.

True labels are not known. But whatever they are, an output has a probability of at most the largest of its column in
the channel. So the number of records with an output of a set, over any part, is not above a binomial draw of that
probability, but for chance. True labels in place of outputs exceed it where one of them is common.
`part_scan` says how the evidence for an excess is added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from .output_distribution import FALSE_ALARM
from .part_scan import PartScan, tilted
from .shard_columns import Column
from .weight_runs import dense_weights

# Outputs this close, as a share of the largest label, may be one in float32.
_FLOAT32_ROUNDING = 2.0**-22
_MOST_CELLS = 16
_TILTS = (0.3, 0.8, 2.0)
# The other half is for the distribution of all outputs.
_FALSE_ALARM = FALSE_ALARM / 2


class Outputs:
    """The outputs of the mechanism, and how many records have each. Labels are compared bit by bit."""

    def __init__(self, values: np.ndarray):
        """values: shape (m,), float64, ascending."""
        self._values, self._counts, self._rounded = values, np.zeros(len(values), np.int64), False
        # By label type: the distinct outputs, and for each output the first one that is equal to it in that type.
        self._known: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for kind in (np.float32, np.float64):
            with np.errstate(over="ignore"):  # as the writer casts
                distinct, first, number = np.unique(values.astype(kind), return_index=True, return_inverse=True)
            self._known[np.dtype(kind)] = distinct, first, first[number]

    def add(self, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Counts labels, shape (n,), float32 or float64; returns the output of each, shape (n,), -1 for none."""
        distinct, first, _ = self._known[labels.dtype]
        number = np.minimum(np.searchsorted(distinct, labels), len(distinct) - 1)
        unsigned = f"u{labels.dtype.itemsize}"
        wrong = distinct[number].view(unsigned) != np.ascontiguousarray(labels).view(unsigned)
        self._counts += np.bincount(first[number[~wrong]], minlength=len(self._counts))
        self._rounded |= labels.dtype == np.float32
        return np.where(wrong, -1, first[number])

    def groups(self, rounded: bool = True) -> np.ndarray:
        """For each output, the number of its group of outputs that records may not distinguish, ascending from 0."""
        first = self._known[np.dtype(np.float32 if rounded else np.float64)][2]
        return np.cumsum(first == np.arange(len(first))) - 1

    def merged(self, channel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts and channel, shape (k, m), with outputs that the records do not distinguish as one."""
        groups = self.groups(self._rounded)
        counts, merged = np.zeros(groups[-1] + 1, np.int64), np.zeros((len(channel), groups[-1] + 1))
        np.add.at(counts, groups, self._counts)
        np.add.at(merged.T, groups, channel.T)
        return counts, merged


class CenteredOutputs(Outputs):
    """The outputs of a mechanism of residuals, and how many records have each, as label minus center."""

    def __init__(self, values: np.ndarray, domain: list[float]):
        """values: shape (m,), float64, ascending. domain: the k public labels, ascending."""
        super().__init__(values)
        self._domain = np.array(domain)
        self._middles = np.array([_least_float((Fraction(a) + Fraction(b)) / 2) for a, b in pairwise(domain)])

    def add(self, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Counts labels, shape (n,), around centers, shape (n,), float64; returns the output of each, -1 for none."""
        with np.errstate(over="ignore"):
            rounded = centers.astype(np.float32).astype(np.float64)
        nearest = np.searchsorted(self._middles, np.nan_to_num(rounded), side="right")
        bases = self._domain[np.where(np.isfinite(rounded), nearest, (len(self._domain) - 1) // 2)]
        values = self._values
        number = np.searchsorted(values, labels.astype(np.float64) - bases)
        drawn, unsigned = np.full(len(labels), -1), f"u{labels.dtype.itemsize}"
        for shift in (-2, -1, 0, 1):  # the difference is rounded, and two outputs may be equal up to rounding
            output = np.clip(number + shift, 0, len(values) - 1)
            with np.errstate(over="ignore"):
                expected = (bases + values[output]).astype(labels.dtype)
            hit = (drawn < 0) & (expected.view(unsigned) == np.ascontiguousarray(labels).view(unsigned))
            self._counts += np.bincount(output[hit], minlength=len(self._counts))
            drawn[hit] = output[hit]
        return drawn

    def groups(self, rounded: bool = True) -> np.ndarray:
        """As `Outputs.groups`, whether or not labels are rounded."""
        largest = np.abs(self._domain).max() + np.abs(self._values).max()
        return np.cumsum(np.append(False, np.diff(self._values) > largest * _FLOAT32_ROUNDING))


def _least_float(bound: Fraction) -> float:
    """The least float that is not below the bound."""
    value = float(bound)
    return value if Fraction(value) >= bound else float(np.nextafter(value, np.inf))


class DrawnOutputs:
    """Numbers of records of sets of outputs, over parts of the records."""

    def __init__(self, mechanism: dict[str, Any], groups: np.ndarray):
        """Starts without records.

        `groups` has for each of m outputs the number of its group of outputs that records may not distinguish.
        """
        weights = dense_weights(mechanism["columns"], len(mechanism["labels"]), mechanism["bits"])
        channel = np.array(weights)
        sums = np.zeros((groups[-1] + 1, channel.shape[1]))
        np.add.at(sums, groups, channel)
        # Cells of about equal probability, in order of the outputs; all up to each cell, and all from it on.
        cells = np.floor(np.append(0, np.cumsum(sums.mean(axis=1)))[:-1].clip(0, 1 - 1e-9) * _MOST_CELLS)
        if len(sums) <= _MOST_CELLS:
            cells = np.arange(len(sums), dtype=float)
        numbers = np.unique(cells, return_inverse=True)[1]
        most = int(numbers.max()) + 1
        sets = [numbers == number for number in range(most)]
        sets += [numbers < bound for bound in range(2, most)] + [numbers >= bound for bound in range(1, most - 1)]
        largest = np.array([sums[members].sum(axis=0).max() for members in sets])
        # Rounding of the sums; a set that some label has for certain is not bounded.
        bounded = largest * (1 + 1e-9) < 1
        self._sets = np.array(sets)[bounded][:, groups]
        # Numbers of records of each set, and of all.
        chances = largest[bounded][None] * (1 + 1e-9)
        none, single = tilted(np.zeros_like(chances), chances, _TILTS), np.eye(len(self._sets))
        self.parts = PartScan(np.concatenate([np.tile(single, len(_TILTS)) * np.repeat(_TILTS, len(single)), none]))

    def add(self, drawn: np.ndarray, columns: Mapping[str, Column]) -> None:
        """Adds n records: the output of each, shape (n,), -1 for none, and columns."""
        events = np.append(self._sets.T[drawn], np.ones((len(drawn), 1), bool), axis=1) & (drawn >= 0)[:, None]
        self.parts.add(events.astype(float), columns)

    def problems(self) -> Iterator[str]:
        """One line if a part has an output too often."""
        evidence = self.parts.evidence()
        if evidence.exceeds(_FALSE_ALARM):
            yield (
                "the labels of a part of the records were not drawn from the channel, whatever the true ones are: the "
                f"evidence of {evidence.number} counts over runs, shards and values of features is {evidence}; a "
                f"correct release fails this with a probability of at most {FALSE_ALARM:g}"
            )

    def lines(self) -> Iterator[str]:
        """Line of the report."""
        evidence = self.parts.evidence()
        yield (
            f"parts        {evidence.number} counts of outputs over runs of records, shards and values of features "
            f"agree with draws of some labels: evidence {evidence}, bound 10^{-math.log10(_FALSE_ALARM):.1f}"
        )
