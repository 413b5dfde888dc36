"""Tail bounds of sums of discrete Laplace noise and of independent draws, by Chernoff's method.

P(z) of the noise is proportional to exp(-|z| / scale) on the integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

# Multiple of the scale that few draws of noise reach.
_LARGE = 5

# Values of t * scale at which the bound is evaluated. It holds for each of them; more of them make it tighter.
_GRID = np.geomspace(1e-3, 0.999, 400)


@dataclass(frozen=True)
class NoiseTails:
    """Bounds on sums of discrete Laplace noise, each of which fails with a small probability.

    Attributes:
      scale: Scale of the noise, > 0.
      failure: Probability with which a single bound may fail.
    """

    scale: float
    failure: float

    def single(self, count: int) -> float:
        """Bounds the largest absolute value of `count` >= 1 draws, except with probability `failure`."""
        # P(|z| >= b) = 2 p^b / (1 + p) <= 2 p^b for p = exp(-1 / scale) and integers b >= 1.
        return math.ceil(self.scale * math.log(2 * count / self.failure))

    def exceeding(self, count: int) -> int:
        """Bounds how many of `count` draws are as large as `large`, except with probability `failure`."""
        # P(z >= b) = p^b / (1 + p).
        chance = math.exp(-self.large / self.scale) / (1 + math.exp(-1 / self.scale))
        likely = math.ceil(count * chance)
        return next(
            (
                number
                for number in range(likely, count)
                if count * divergence((number + 1) / count, chance) > -math.log(self.failure)
            ),
            count,
        )

    def above(self, count: int, clipped: int = 0, floor: int | None = None) -> float:
        """Bounds the sum of independent draws from above; by symmetry its negative bounds it from below.

        The bound fails with probability `failure`. `clipped` draws among them count as 0 if they are negative; the
        others count as -floor if they are below that, or as they are without `floor`.
        """
        if count == 0:
            return 0.0
        others = self._growth if floor is None else self._clipped_growth(floor)
        growth = (count - clipped) * others + clipped * self._clipped_growth(0)
        return float(((growth - math.log(self.failure)) / (_GRID / self.scale)).min())

    @property
    def large(self) -> int:
        """A noise that few draws reach."""
        return math.ceil(_LARGE * self.scale)

    @cached_property
    def _growth(self) -> np.ndarray:
        """ln E exp(t z) at each t of the grid, with p = exp(-1 / scale): (1-p)^2 / ((1 - p e^t) (1 - p e^-t))."""
        rate = 1 / self.scale
        t = _GRID * rate
        return 2 * np.log(-np.expm1(-rate)) - np.log(-np.expm1(t - rate)) - np.log(-np.expm1(-t - rate))

    @cache  # noqa: B019
    def _clipped_growth(self, floor: int) -> np.ndarray:
        """ln E exp(t max(z, -floor)) at each t: z = j has p^|j| (1 - p) / (1 + p), all z <= -j have p^j / (1 + p)."""
        rate = 1 / self.scale
        t, p, rest = _GRID * rate, math.exp(-rate), -math.expm1(-rate)
        zero_and_above = rest / -np.expm1(t - rate)
        # Powers j = 1 to floor - 1 of p e^-t; for a floor of 0 this takes the term of z = 0 away again.
        below = rest * (np.exp(-t - rate) - np.exp(-(t + rate) * floor)) / -np.expm1(-t - rate)
        return np.log((zero_and_above + below + np.exp(-(t + rate) * floor)) / (1 + p))


def divergence(share: float, mean: float) -> float:
    """Computes the relative entropy of two coins with the given probabilities of heads, in nats.

    The mean of n independent draws in [0, 1] with expectation `mean` is at least `share` > mean, or at most
    `share` < mean, with a probability of at most exp(-n * divergence) (Hoeffding 1963, Theorem 1).

    It is infinite if the other coin cannot show what the first one does. Both arguments are in [0, 1].
    """
    total = 0.0
    for p, q in ((share, mean), (1 - share, 1 - mean)):
        if p > 0:
            total += p * math.log(p / q) if q > 0 else math.inf
    return total
