"""Integer alias table: draws an output from one 64-bit word, without rejection and without floats."""

from __future__ import annotations

import numpy as np

BITS = 62
TOTAL = 1 << BITS
"""Sum of the integer weights of a label."""
MAX_CELLS = 1 << 26
"""Labels times outputs: more would not fit a worker's memory as an alias table."""
_WORD_BITS = 64


class AliasTable:
    """Vose's alias table over integers: column by the word's high bits, then one comparison of the rest.

    m outputs are padded to a power of two, width; each column holds 2^64 / width of the word's range. thresholds
    and aliases: (k * width,): a word whose low part is below the threshold takes its own column, else the alias.
    """

    def __init__(self, weights: np.ndarray):
        labels, outputs = weights.shape
        # At least two columns: a single one would hold 2^64, one more than a word can say.
        exponent = max(1, (outputs - 1).bit_length())
        self.width = 1 << exponent
        self.shift = np.uint64(_WORD_BITS - exponent)
        capacity = 1 << (_WORD_BITS - exponent)
        self.mask = np.uint64(capacity - 1)
        thresholds = np.empty((labels, self.width), np.uint64)
        aliases = np.empty((labels, self.width), np.int32)
        known: dict[bytes, int] = {}
        for label, row in enumerate(weights):
            same = known.setdefault(row.tobytes(), label)
            if same == label:
                thresholds[label], aliases[label] = self._fill(row, capacity)
            else:
                thresholds[label], aliases[label] = thresholds[same], aliases[same]
        self.thresholds, self.aliases = thresholds.ravel(), aliases.ravel()

    def _fill(self, row: np.ndarray, capacity: int) -> tuple[list[int], list[int]]:
        # Python integers: a weight of 2^62 becomes 2^64 here.
        mass = [weight << (_WORD_BITS - BITS) for weight in row.tolist()] + [0] * (self.width - len(row))
        alias = list(range(self.width))
        small = [column for column in range(self.width) if mass[column] < capacity]
        large = [column for column in range(self.width) if mass[column] > capacity]
        while small:
            under, over = small.pop(), large[-1]
            alias[under] = over
            mass[over] -= capacity - mass[under]
            if mass[over] <= capacity:
                large.pop()
                if mass[over] < capacity:
                    small.append(over)
        return mass, alias
