"""Scan of parts of the records: evidence that a run of them, a shard or a value of a feature was not drawn as stated.

Each record has some numbers, logarithms of e-values: given what is public, the expectation of their exponentials is 1
or less, whatever other records drew. For an event of a probability of at most p and a tilt t > 0, t - log(1 + p (e^t -
1)) if it happens, and - log(1 + p (e^t - 1)) else, is such a number; if p is exact, t may be negative. The numbers of
one alternative are added over a part. Parts are chosen by features and places alone, so the exponentials of these sums
have an expectation of 1 or less, and so has their weighted mean over all parts and alternatives, the evidence. By
Markov's inequality it exceeds x with a probability of at most 1 / x. Overlapping parts add up: unlike a union bound,
the mean does not pay for each of them.

Runs of records are those of consecutive blocks, 64 to 128 of equal length; the weight of a length is proportional to
its inverse, and shared by its runs. Values are those of columns that have at most 64. Runs, shards and values have the
same weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .shard_columns import Column

BLOCKS = 128
"""Blocks of a release; where it has more, two are merged."""
FIRST_BLOCK = 64
"""Records of a block of a short release."""
_MOST_VALUES = 64
_LOOKED_AT = 1 << 10


class Blocks:
    """Sums over blocks of consecutive records; pairs of blocks become one when there are 128."""

    def __init__(self, shape: tuple[int, ...]):
        """Prepares sums of a shape."""
        self._sums = np.zeros((BLOCKS, *shape))
        self._width, self._records = FIRST_BLOCK, 0

    def places(self, rows: int) -> np.ndarray:
        """Numbers of the blocks of the next records, shape (rows,)."""
        while self._records + rows > self._width * BLOCKS:
            merged = self._sums.reshape(BLOCKS // 2, 2, *self._sums.shape[1:]).sum(axis=1)
            self._sums = np.concatenate([merged, np.zeros_like(merged)])
            self._width *= 2
        places = (self._records + np.arange(rows)) // self._width
        self._records += rows
        return places

    @property
    def sums(self) -> np.ndarray:
        """Sums of the blocks that have records so far, shape (blocks, ...); to be added to in place."""
        return self._sums[: -(-self._records // self._width)]


class Evidence(NamedTuple):
    """Logarithm of the evidence, and the number of parts and alternatives that it is a mean of."""

    logarithm: float
    number: int

    def exceeds(self, false_alarm: float) -> bool:
        """Whether correct draws have evidence as large with a probability of at most `false_alarm`."""
        return self.logarithm >= -math.log(false_alarm)

    def __str__(self) -> str:
        return f"10^{self.logarithm / math.log(10):.1f}"


def evidence_of_runs(blocks: np.ndarray) -> Evidence:
    """Evidence of runs of blocks from the numbers of each block, shape (blocks, alternatives)."""
    sums = np.concatenate([np.zeros_like(blocks[:1]), np.cumsum(blocks, axis=0)])
    lengths = range(1, len(blocks) + 1)
    total = math.log(sum(1 / length for length in lengths))
    logarithms = [_log_mean(sums[length:] - sums[:-length]) - math.log(length) - total for length in lengths]
    return Evidence(_log_sum(np.array(logarithms)), blocks.shape[1] * len(blocks) * (len(blocks) + 1) // 2)


def _log_sum(logarithms: np.ndarray) -> float:
    largest = float(logarithms.max())
    return largest + math.log(np.exp(logarithms - largest).sum())


def _log_mean(logarithms: np.ndarray) -> float:
    return _log_sum(logarithms) - math.log(logarithms.size)


class PartScan:
    """Sums of s numbers of each record over runs, shards and values of columns."""

    def __init__(self, alternatives: np.ndarray):
        """Starts without records. The sums of a part times `alternatives`, shape (s, a), are logarithms of e-values."""
        self._alternatives = alternatives
        self._runs = Blocks(alternatives.shape[:1])
        self._shards: list[np.ndarray] = []
        self._values: dict[str, dict[object, np.ndarray] | None] = {}

    def next_shard(self) -> None:
        """Begins another shard."""
        self._shards.append(np.zeros(len(self._alternatives)))

    def add(self, numbers: np.ndarray, columns: Mapping[str, Column]) -> None:
        """Adds n records: their numbers, shape (n, s), and columns with few values."""
        if not len(numbers):
            return
        blocks, sums = _by_place(self._runs.places(len(numbers)), numbers)
        self._runs.sums[blocks] += sums
        if not self._shards:
            self.next_shard()
        self._shards[-1] += numbers.sum(axis=0)
        for name, column in columns.items():
            known = self._values.setdefault(name, {})
            if known is None:
                continue
            keys, codes = _codes(column)
            if len(keys) > _MOST_VALUES or len(known.keys() | set(keys)) > _MOST_VALUES:
                self._values[name] = None
                continue
            for code, total in zip(*_by_place(codes, numbers), strict=True):
                key = keys[code]
                known[key] = known.get(key, 0) + total

    def evidence(self) -> Evidence:
        """Evidence of all parts."""
        if not len(self._runs.sums) or not self._alternatives.size:
            return Evidence(0.0, 0)
        runs = evidence_of_runs(self._runs.sums @ self._alternatives)
        values = [np.array([*known.values()]) for known in self._values.values() if known]
        others = [np.concatenate(parts) @ self._alternatives for parts in ([np.array(self._shards)], values) if parts]
        logarithms = np.array([runs.logarithm, *map(_log_mean, others)])
        return Evidence(_log_mean(logarithms), runs.number + sum(part.size for part in others))


def tilted(events: np.ndarray, chances: np.ndarray, tilts: tuple[float, ...]) -> np.ndarray:
    """Logarithms of the e-values of events, shape (n, e), of these chances, by event and tilt: shape (n, e * tilts)."""
    numbers = [tilt * events - np.log1p(chances * math.expm1(tilt)) for tilt in tilts]
    return np.concatenate(numbers, axis=1)


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
