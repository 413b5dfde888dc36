"""MVU, the minimum variance unbiased mechanism: round to a few inputs without bias, then the best table.

Source: Chaudhuri, Guo, Rabbat 2022, "Privacy-Aware Compression for Federated Data Analysis"; the baseline of Cai et
al. The label is first rounded at random to one of its two neighbours on an even grid of n inputs, which is unbiased;
then a table of probabilities (n, m) and an alphabet (m,) of least mean variance over the grid, unbiased under epsilon,
give the output. Rounding is a mixture of the table's rows, so it keeps epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.label_rounding import RANDOMIZED
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .input_scale import Inputs, check, solved
from .quantizer import finished_table, searched_outputs


@dataclass(frozen=True)
class MVU:
    """The table and the alphabet of least mean loss over n inputs; the prior's weights play no part.

    outputs: m, the size of the alphabet. inputs: n >= 2, of the grid that labels are rounded to. reach: as for
    `Quantizer`. loss: squared, the variance, as published; or absolute.
    """

    name: ClassVar[str] = "mvu"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    inputs: int = 8
    reach: float = 2.0
    loss: Loss = SQUARED

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """About a second. Raises ValueError for a parameter out of range."""
        check(epsilon, self.outputs, self.loss)
        if not 2 <= self.inputs <= 256:
            raise ValueError(f"inputs must be between 2 and 256, not {self.inputs}")
        if not 1 <= self.reach < np.inf:
            raise ValueError(f"reach must be at least 1 and finite, not {self.reach:g}")
        parameters = {"outputs": self.outputs, "inputs": self.inputs}

        def scaled(labels: Inputs) -> tuple[np.ndarray, np.ndarray]:
            grid = Inputs(np.linspace(-1, 1, self.inputs), np.full(self.inputs, 1 / self.inputs))
            outputs = searched_outputs(grid, self.outputs, epsilon, self.loss, True, self.reach)
            table = finished_table(grid, outputs, epsilon, self.loss)
            if table is None:
                raise ValueError(f"mvu found no table that keeps epsilon {epsilon:g}")
            return outputs, rounding(grid.values, labels.values) @ table

        return solved(prior, epsilon, self.name, parameters, scaled)


def rounding(grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(k, n): how likely each value is rounded to each point of the grid, without bias, to its two neighbours only.

    grid: (n,) ascending. values: (k,) within the grid.
    """
    below = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = (values - grid[below]) / (grid[below + 1] - grid[below])
    chances = np.zeros((len(values), len(grid)))
    chances[np.arange(len(values)), below] = 1 - share
    chances[np.arange(len(values)), below + 1] += share
    return chances
