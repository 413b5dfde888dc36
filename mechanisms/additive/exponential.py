"""Exponential mechanism over the label range.

Sources: McSherry, Talwar 2007; Ghazi et al. 2022, Appendix D, as a baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import EPSILON_MARGIN, integer_weights
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import exp
from .output_grid import make_output_grid, single_label_randomizer


@dataclass(frozen=True)
class Exponential:
    """Reports a point of the label range with probability proportional to exp(-epsilon |point - label| / (2 range)).

    Attributes:
      name: Name on the command line and in mechanism files.
      step: Largest distance of neighboring outputs, in units of the label; None as for `make_output_grid`.
    """

    name: ClassVar[str] = "exponential"
    step: float | None = None

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Builds the randomizer. It ignores the prior's weights. Cost O(k m) for m outputs.

        Raises ValueError if epsilon or the step is out of range, or there are too many outputs.
        """
        check_epsilon(epsilon)
        if len(prior.labels) == 1:
            return single_label_randomizer(self.name, prior, epsilon, {})
        grid = make_output_grid(prior.labels, self.step, 0.0)
        span = prior.labels[-1] - prior.labels[0]
        distances = np.abs(grid.points - prior.labels[:, None]) / span
        rows = exp(-(epsilon - EPSILON_MARGIN) / 2 * distances)
        weights = integer_weights(rows, epsilon)
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, {"step": grid.step})
