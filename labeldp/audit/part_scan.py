"""Scan of parts of the records: does any run of them, any shard or any value of a feature deviate from its expectation?

Each record has some numbers. Given what is public, they are independent of those of other records, have an expectation
of 0 or less and a variance below a bound, and are at most M above their expectation. By Bernstein's inequality, the sum
over a part exceeds x with a probability of at most exp(-x^2 / (2 (V + M x / 3))), where V is the sum of the variances.
Parts are chosen by features and places alone, so a union bound over all of them holds.

Runs of records are those of consecutive blocks, 64 to 128 of equal length. Values are those of columns that have at
most 64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from .shard_columns import Column

_BLOCKS = 128
_MOST_VALUES = 64
_LOOKED_AT = 1 << 10


class Blocks:
    """Sums over blocks of consecutive records; pairs of blocks become one when there are 128."""

    def __init__(self, shape: tuple[int, ...], first: int = 64):
        """Prepares sums of a shape; the first blocks have `first` records."""
        self._sums = np.zeros((_BLOCKS, *shape))
        self._width, self._records = first, 0

    def places(self, rows: int) -> np.ndarray:
        """Numbers of the blocks of the next records, shape (rows,)."""
        while self._records + rows > self._width * _BLOCKS:
            merged = self._sums.reshape(_BLOCKS // 2, 2, *self._sums.shape[1:]).sum(axis=1)
            self._sums = np.concatenate([merged, np.zeros_like(merged)])
            self._width *= 2
        places = (self._records + np.arange(rows)) // self._width
        self._records += rows
        return places

    @property
    def sums(self) -> np.ndarray:
        """Sums of all blocks so far, shape (blocks, ...); to be added to in place."""
        return self._sums

    def runs(self) -> Iterator[np.ndarray]:
        """Sums of all runs of blocks: for each length, of those that start at each block."""
        used = -(-self._records // self._width)
        sums = np.concatenate([np.zeros_like(self._sums[:1]), np.cumsum(self._sums[:used], axis=0)])
        yield from (sums[length:] - sums[:-length] for length in range(1, used + 1))


class PartScan:
    """Sums of s numbers of each record over runs, shards and values of columns."""

    def __init__(self, largest: np.ndarray):
        """Starts without records; `largest` are the bounds M of the numbers above their expectation, shape (s,)."""
        self._largest = largest
        self._runs = Blocks((2, len(largest)))
        self._shards: list[np.ndarray] = []
        self._values: dict[str, dict[object, np.ndarray] | None] = {}

    def next_shard(self) -> None:
        """Begins another shard."""
        self._shards.append(np.zeros((2, len(self._largest))))

    def add(self, deviations: np.ndarray, variances: np.ndarray, columns: Mapping[str, Column]) -> None:
        """Adds n records: their numbers and bounds on the variances, shape (n, s), and columns with few values."""
        both = np.stack([deviations, np.broadcast_to(variances, deviations.shape)], axis=1)
        if not len(both):
            return
        blocks, sums = _by_place(self._runs.places(len(both)), both)
        self._runs.sums[blocks] += sums
        if not self._shards:
            self.next_shard()
        self._shards[-1] += both.sum(axis=0)
        for name, column in columns.items():
            known = self._values.setdefault(name, {})
            if known is None:
                continue
            keys, codes = _codes(column)
            if len(keys) > _MOST_VALUES or len(known.keys() | set(keys)) > _MOST_VALUES:
                self._values[name] = None
                continue
            for place, total in zip(*_by_place(codes, both), strict=True):
                key = keys[place]
                known[key] = known.get(key, 0) + total

    def largest(self, false_alarm: float) -> tuple[float, int, int]:
        """Largest quotient of a sum and its bound, the number of its kind, and the number of bounds.

        All bounds hold together with a probability of at least 1 - `false_alarm`.
        """
        parts = [*self._runs.runs(), np.array(self._shards).reshape(-1, 2, len(self._largest))]
        parts += [np.array([*known.values()]) for known in self._values.values() if known]
        return largest_quotient(parts, self._largest, false_alarm)


def largest_quotient(parts: list[np.ndarray], largest: np.ndarray, false_alarm: float) -> tuple[float, int, int]:
    """As `PartScan.largest`, for arrays of sums and variances, shape (parts, 2, s)."""
    number = sum(part.shape[0] for part in parts) * len(largest)
    limit = math.log(max(number, 1) / false_alarm)
    found, kind = 0.0, 0
    for part in parts:
        if part.size:
            third = largest * limit / 3
            bounds = third + np.sqrt(third**2 + 2 * np.maximum(part[:, 1], 0) * limit)
            quotients = (part[:, 0] / np.maximum(bounds, np.finfo(float).tiny)).max(axis=0)
            if quotients.max() > found:
                found, kind = float(quotients.max()), int(quotients.argmax())
    return found, kind, number


def _by_place(places: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of values of one place, shape (n, ...), by the places that there are."""
    order = np.argsort(places, kind="stable")
    kept, starts = np.unique(places[order], return_index=True)
    return kept, np.add.reduceat(values[order], starts, axis=0) if len(kept) else values


def _codes(column: Column) -> tuple[list[object], np.ndarray]:
    """Values of a column, and for each record the number of its value; more values than are used if there are many."""
    if len(column.codes):
        return [*map(str, column.values), None], np.where(column.codes < 0, len(column.values), column.codes)
    if len(np.unique(column.numbers[:_LOOKED_AT])) > _MOST_VALUES:
        return [None] * (_MOST_VALUES + 1), np.zeros(0, np.intp)
    keys, codes = np.unique(column.numbers, return_inverse=True)
    return [repr(key) for key in keys.tolist()], codes
