"""Test of drawn outputs over parts of the records: no part has an output more often than the channel allows.

True labels are not known. But whatever they are, an output has a probability of at most the largest of its column in
the channel. So the number of records with an output of a set, over any part, is not above a binomial draw of that
probability, but for chance. True labels in place of outputs exceed it where one of them is common.
`part_scan` says how the evidence for an excess is added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .output_distribution import FALSE_ALARM
from .part_scan import PartScan, tilted
from .shard_columns import Column
from .weight_runs import dense_weights

_MOST_CELLS = 16
_TILTS = (0.3, 0.8, 2.0)
# The other half is for the distribution of all outputs.
_FALSE_ALARM = FALSE_ALARM / 2


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
        bounded = largest * (1 + 1e-9) < 1
        self._sets = np.array(sets)[bounded][:, groups]
        # Numbers of records of each set, and of all.
        chances = largest[bounded][None] * (1 + 1e-9)
        none, each = tilted(np.zeros_like(chances), chances, _TILTS), np.eye(len(self._sets))
        self.parts = PartScan(np.concatenate([np.tile(each, len(_TILTS)) * np.repeat(_TILTS, len(each)), none]))

    def add(self, drawn: np.ndarray, columns: Mapping[str, Column]) -> None:
        """Adds n records: the output of each, shape (n,), -1 for none, and columns."""
        found = np.append(self._sets.T[drawn], np.ones((len(drawn), 1), bool), axis=1) & (drawn >= 0)[:, None]
        self.parts.add(found.astype(float), columns)

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
