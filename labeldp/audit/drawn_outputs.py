"""Test of drawn outputs over parts of the records: no part has an output more often than the channel allows.

True labels are not known. But whatever they are, an output has a probability of at most the largest of its column in
the channel. So the number of records with an output of a set, over any part, is not above a binomial draw of that
probability, but for chance. True labels in place of outputs exceed it where one of them is common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .output_distribution import FALSE_ALARM
from .part_scan import PartScan
from .shard_columns import Column
from .weight_runs import dense_weights

_MOST_CELLS = 16


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
        sets = [numbers == each for each in range(most)]
        sets += [numbers < bound for bound in range(2, most)] + [numbers >= bound for bound in range(1, most - 1)]
        largest = np.array([sums[each].sum(axis=0).max() for each in sets])
        # Rounding of the sums; a set that some label has for certain is not bounded.
        self._largest = np.minimum(largest * (1 + 1e-9), 1.0)
        self._sets = np.array(sets)[:, groups] & (self._largest < 1)[:, None]
        self.parts = PartScan(np.ones(len(sets)))

    def add(self, drawn: np.ndarray, columns: Mapping[str, Column]) -> None:
        """Adds n records: the output of each, shape (n,), -1 for none, and columns."""
        found = self._sets.T[drawn] & (drawn >= 0)[:, None]
        self.parts.add(found - self._largest, self._largest * (1 - self._largest), columns)

    def problems(self) -> Iterator[str]:
        """One line if a part has an output too often."""
        found, _, number = self.parts.largest(FALSE_ALARM / 2)
        if found > 1:
            yield (
                f"the labels of a part of the records were not drawn from the channel: of {number} counts over runs, "
                f"shards and values of features, one is {found:.2f} times its bound for any true labels; a correct "
                f"release fails this with a probability of at most {FALSE_ALARM:g}"
            )

    def lines(self) -> Iterator[str]:
        """Line of the report."""
        found, _, number = self.parts.largest(FALSE_ALARM / 2)
        yield (
            f"parts        {number} counts of outputs over runs of records, shards and values of features are within "
            f"{max(found, 0):.2f} times the bounds that hold for any true labels"
        )
