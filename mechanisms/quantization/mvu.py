"""MVU, the minimum variance unbiased mechanism: rounds to a few inputs without bias, then applies the best table.

Source: Chaudhuri, Guo, Rabbat 2022, "Privacy-Aware Compression for Federated Data Analysis"; the baseline of Cai et
al. 2024. The label is first rounded at random to one of its two neighbors on an even grid of n inputs, which is
unbiased. Then a table of probabilities (n, m) and an alphabet (m,) of least mean variance over the grid, unbiased under
epsilon, give the output. Rounding mixes rows of the table, so the result satisfies epsilon as well.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core import reproducible
from ..core.label_grid import RANDOMIZED
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .input_scale import Inputs, check, solve_scaled
from .linear_program import feasible_table
from .quantizer import search_outputs


@dataclass(frozen=True)
class MVU:
    """Table and alphabet of least mean loss over n inputs. It ignores the prior's weights.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      outputs: Size m of the alphabet.
      inputs: Points n of the grid that labels are rounded to, from 2 to 256.
      reach: As for `Quantizer`.
      loss: Squared loss, the variance, as published; or absolute loss.
    """

    name: ClassVar[str] = "mvu"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    inputs: int = 8
    reach: float = 2.0
    loss: Loss = SQUARED

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Searches for the alphabet and solves for the table, in about half a second.

        Neither depends on the prior: both are kept in memory, for other priors and other labels.

        Raises ValueError if a parameter is out of range, or no table satisfies epsilon.
        """
        check(epsilon, self.outputs, self.loss)
        if not 2 <= self.inputs <= 256:
            raise ValueError(f"inputs must be between 2 and 256, not {self.inputs}")
        if not 1 <= self.reach < np.inf:
            raise ValueError(f"reach must be at least 1 and finite, not {self.reach:g}")
        parameters = {"outputs": self.outputs, "inputs": self.inputs}

        def scaled(labels: Inputs) -> tuple[np.ndarray, np.ndarray]:
            found = _alphabet_and_table(self, epsilon)
            if found is None:
                raise ValueError(f"mvu found no table that satisfies epsilon {epsilon:g}")
            outputs, table = found
            return outputs, reproducible.stacked_matmul(rounding_matrix(_grid(self.inputs), labels.values), table)

        return solve_scaled(prior, epsilon, self.name, parameters, scaled)


def _grid(count: int) -> np.ndarray:
    return np.linspace(-1, 1, count)


@functools.lru_cache(maxsize=64)
def _alphabet_and_table(mechanism: MVU, epsilon: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Searches for the alphabet and solves for the table, which do not depend on the labels: they are kept."""
    n = mechanism.inputs
    grid = Inputs(_grid(n), np.full(n, 1 / n))
    outputs = search_outputs(grid, mechanism.outputs, epsilon, mechanism.loss, True, mechanism.reach)
    table = feasible_table(grid, outputs, epsilon, mechanism.loss)
    if table is None:
        return None
    outputs.flags.writeable = table.flags.writeable = False
    return outputs, table


def rounding_matrix(grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Probabilities of unbiased rounding of each value to its two neighbors on a grid; shape (k, n).

    The grid of n points ascends, and the k values lie within it.
    """
    below = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = (values - grid[below]) / (grid[below + 1] - grid[below])
    chances = np.zeros((len(values), len(grid)))
    chances[np.arange(len(values)), below] = 1 - share
    chances[np.arange(len(values)), below + 1] += share
    return chances
