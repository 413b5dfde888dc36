"""Second implementation of marginal sums: predictions for records, and the records that any two parts have in common.

Where features were rounded, a part lies between the parts of both ends, and its effect between the least and the
largest one of these. How many records two parts have in common is public, and compared with the records: it could hold
labels otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .center_document import CodedColumn
from .center_rows import CenterRows, Ends
from .marginal_sums import Marginals
from .shard_columns import Column


class MarginalRecords:
    """Predictions for the records of a release, which are counted."""

    def __init__(self, marginals: Marginals, rows: CenterRows):
        """Takes the marginal sums and the features."""
        coded = [CodedColumn(0, part.cuts, part.places) for part in marginals.parts]
        self._features = list(zip(rows.features.items(), coded, strict=True))
        self._constant, effects = marginals.constant, np.array(marginals.effects, np.int64)
        self._effects = [effects[part] for part in marginals.slices]
        self._missing, self._uncertain = np.array(marginals.common, np.int64), 0
        self._slices = marginals.slices

    def _codes(self, columns: Mapping[str, Column], rows: np.ndarray | None) -> Iterator[Ends]:
        """Least and largest part of each feature for some records, whose features may be rounded; or exact ones."""
        for (name, feature), coded in self._features:
            if rows is None:
                exact = feature.codes(columns[name], coded)
                yield exact, exact
            else:
                yield feature.code_bounds(columns[name], rows, coded)

    def sums(self, columns: Mapping[str, Column], records: int, rows: np.ndarray | None) -> Ends:
        """Bounds on the predictions of n records, or of some rows, in units of 2^-16 steps from the middle."""
        low, high = (np.full(records if rows is None else len(rows), self._constant) for _ in range(2))
        for effects, (first, last) in zip(self._effects, self._codes(columns, rows), strict=True):
            least, most = effects[first], effects[first]
            for offset in range(1, int((last - first).max(initial=0)) + 1):
                further = effects[np.minimum(first + offset, last)]
                least, most = np.minimum(least, further), np.maximum(most, further)
            low, high = low + least, high + most
        return low, high

    def count(self, columns: Mapping[str, Column], records: int, rounded: bool) -> None:
        """Counts n records by any two parts; those that features before rounding may move are uncertain."""
        exact, uncertain = [first for first, _ in self._codes(columns, None)], np.zeros(records, bool)
        for low, high in self._codes(columns, np.arange(records)) if rounded else ():
            uncertain |= low != high
        self._uncertain += int(uncertain.sum())
        exact = [parts[~uncertain] for parts in exact]
        for first, own in zip(self._slices, exact, strict=True):
            for second, other in zip(self._slices, exact, strict=True):
                shape = self._missing[first, second].shape
                counts = np.bincount(own * shape[1] + other, minlength=shape[0] * shape[1])
                self._missing[first, second] -= counts.reshape(shape)

    def problems(self, removed: int = 0) -> Iterator[str]:
        """Compares the records in common with those that were counted, after so many were removed from the release."""
        missing = int(self._missing.diagonal()[self._slices[0]].sum())
        if (self._missing < 0).any() or missing != self._uncertain + removed:
            yield "center.linear.marginals.common is not the number of records that two parts have in common"
