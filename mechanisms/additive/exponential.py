"""Exponential mechanism over the label domain.

Source: Ghazi et al. 2022, Appendix F.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import EPSILON_MARGIN, integer_weights
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .additive_noise import single_label_randomizer
from .output_grid import lattice


@dataclass(frozen=True)
class Exponential:
    """Reports a point of the label range with probability proportional to exp(-epsilon |point - label| / (2 range)).

    step: the largest distance of two points, in units of the label; None is the label spacing.
    """

    name: ClassVar[str] = "exponential"
    step: float | None = None

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The prior's weights play no part. Cost O(k m). Raises ValueError for a bad step or too many outputs."""
        check_epsilon(epsilon)
        if len(prior.labels) == 1:
            return single_label_randomizer(self.name, prior, epsilon, {})
        grid = lattice(prior.labels, self.step, 0.0)
        span = prior.labels[-1] - prior.labels[0]
        distances = np.abs(grid.points - prior.labels[:, None]) / span
        rows = np.exp(-(epsilon - EPSILON_MARGIN) / 2 * distances)
        weights = integer_weights(rows, epsilon)
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, {"step": grid.step})
