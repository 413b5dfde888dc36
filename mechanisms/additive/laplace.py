"""Laplace mechanism: discrete Laplace noise on an output grid.

Sources: Ghosh, Roughgarden, Sundararajan 2009; Ghazi et al. 2022, Appendices D and F, as a baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import EPSILON_MARGIN, integer_weights
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import exp, expm1
from .output_grid import FOLDED_TAIL, make_output_grid, single_label_randomizer


@dataclass(frozen=True)
class Laplace:
    """Adds discrete Laplace noise: z steps with probability proportional to exp(-epsilon |z| / Delta).

    Delta is the label range in steps.

    Attributes:
      name: Name on the command line and in mechanism files.
      step: Largest distance of neighboring outputs, in units of the label; None as for `make_output_grid`. A small step
        approximates the continuous mechanism.
      clip: Whether outputs beyond the label range are moved to its nearest end.
    """

    name: ClassVar[str] = "laplace"
    step: float | None = None
    clip: bool = True

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Builds the randomizer. It ignores the prior's weights. Cost O(k m) for m outputs.

        Raises ValueError if epsilon or the step is out of range, or there are too many outputs, which happens at a
        small epsilon without clipping.
        """
        check_epsilon(epsilon)
        if len(prior.labels) == 1:
            return single_label_randomizer(self.name, prior, epsilon, {"clip": self.clip})
        target = epsilon - EPSILON_MARGIN
        grid = make_output_grid(prior.labels, self.step, 0.0 if self.clip else FOLDED_TAIL / target)
        decay = target / grid.steps
        distances = np.arange(grid.reach + 1)
        noise = exp(-decay * distances) * (-expm1(-decay) / (1 + exp(-decay)))
        rows = grid.rows(noise, float(exp(-decay * len(distances)) / (1 + exp(-decay))))
        weights = integer_weights(rows, epsilon)
        parameters = {"step": grid.step, "clip": self.clip}
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, parameters)
