"""Residuals of groups of records, each with a range of its own, as labels of one randomizer.

Records belong to groups by a public column. The residuals of group g are clipped to a range of their own, [a_g, b_g] in
steps of the label grid. One randomizer M takes K evenly spaced labels, the positions 0, ..., K - 1 in a range. A
residual r of group g has the position

    (clip(r) - a_g) (K - 1) / (b_g - a_g),

a rational number. If it is not an integer, one of its two neighbors is drawn with the probabilities that keep its mean.
An output of M is mapped back by the inverse line of the group, so labels are as unbiased as M is, and the noise of a
group is proportional to the length of its range.

Privacy. The random bits that decide between two neighbors may be any fixed function of a record's identity and a secret
key, by the proof in `label_rounding`: for every value of the bits, the position is a function of the record's own
label, and M satisfies its epsilon for any two positions. The way back depends on the group alone, which is public.

The labels of M are stated in units of the label. Their distance from the first to the last is the root mean square
length L of the ranges, over the records, and the residual 0 is where it is in the ranges on average. For a prior of the
positions in which a record of group g has a weight proportional to the square of its length L_g, the expected squared
loss of M is then the mean squared error of all records, sum_g w_g (L_g / L)^2 E_g[error^2] for the share w_g of the
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.randomizer import Randomizer
from .residuals import ResidualDomain

MOST_POSITIONS = 129
"""Largest number K of positions. The variance of drawing a neighbor is at most (L_g / 256)^2, L_g^2 / 98,304 for
residuals that are spread over a whole range."""


@dataclass(frozen=True)
class GroupRanges:
    """Ranges of the residuals of groups: the first and last residual of each group, in steps of the label grid."""

    ends: tuple[tuple[int, int], ...]

    def check(self, residuals: ResidualDomain) -> None:
        """Raises ValueError unless there are ranges, of at least two residuals each, and all within the domain."""
        if not self.ends or not all(-residuals.most <= low < high <= residuals.most for low, high in self.ends):
            raise ValueError("the ranges of the groups are not ranges of at least two residuals of the label domain")

    @property
    def lengths(self) -> np.ndarray:
        """Length of each range in steps, shape (groups,), int64."""
        return np.array([high - low for low, high in self.ends], np.int64)

    @property
    def positions(self) -> int:
        """Number of positions K: as many as the longest range has residuals, at most `MOST_POSITIONS`."""
        return int(min(self.lengths.max() + 1, MOST_POSITIONS))

    def find(self, steps: np.ndarray, groups: np.ndarray, positions: int, words: np.ndarray) -> np.ndarray:
        """Finds the positions of residuals, shape (n,), integers in [0, K).

        `steps` and `groups`, the residuals in steps and the group of each, have shape (n,), integers; `positions` is K,
        >= 2. `words` has one uniform random word for each residual, shape (n,), uint64. A residual between two
        positions goes to the upper one with a probability equal to its distance from the lower one, up to 2^-32.
        """
        whole, rest, length = self._divided(steps, groups, positions)
        return whole + (words % length.astype(np.uint64) < rest.astype(np.uint64))

    def spread(self, steps: np.ndarray, group: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Finds the two positions that each residual of a group may get.

        `steps`, the residuals in steps, has shape (m,), integers; `positions` is K, >= 2. The result is the lower
        position of each, shape (m,), integers, and the probability of the one above it, shape (m,).
        """
        whole, rest, length = self._divided(steps, np.full(len(steps), group), positions)
        return whole, rest / length

    def _divided(
        self, steps: np.ndarray, groups: np.ndarray, positions: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Quotients and remainders of positions, and their divisors."""
        low, high = np.array(self.ends, np.int64).T
        first, length = low[groups], (high - low)[groups]
        inside = np.minimum(np.maximum(np.asarray(steps, np.int64) - first, 0), length)
        whole, rest = np.divmod(inside * (positions - 1), length)
        return whole, rest, length

    def outputs(self, randomizer: Randomizer, residuals: ResidualDomain) -> np.ndarray:
        """Maps the outputs of a randomizer, whose labels are positions, back to the residuals of each group.

        The result has shape (groups, m), float64, in units of the label, and the same bits on every machine.
        """
        ends = residuals.grid[np.array(self.ends) + residuals.most]
        first, last = randomizer.labels[0], randomizer.labels[-1]
        scale = (ends[:, 1] - ends[:, 0]) / (last - first)
        return ends[:, :1] + (randomizer.outputs - first)[None, :] * scale[:, None]

    def labels(self, records: Sequence[int], residuals: ResidualDomain) -> np.ndarray:
        """Labels of a randomizer of positions, shape (K,), float64, ascending and evenly spaced, in units of the label.

        `records` has the number of records of each group; ranges count the same if there are none.
        """
        counts = [int(count) for count in records] if any(records) else [1] * len(self.ends)
        # In exact integers, so that only the last operations are rounded.
        squares = sum(count * (high - low) ** 2 for count, (low, high) in zip(counts, self.ends, strict=True))
        starts = sum(count * (high - low) * low for count, (low, high) in zip(counts, self.ends, strict=True))
        step = (residuals.labels[-1] - residuals.labels[0]) / residuals.most
        length = np.sqrt(squares / sum(counts)) * step
        start = length * (starts / squares)
        return start + length * (np.arange(self.positions) / (self.positions - 1))
