"""Labels scaled to inputs in [-1, 1], and back: the shared part of the quantization mechanisms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core import reproducible
from ..core.budget import check_epsilon
from ..core.integer_weights import MAX_CELLS, integer_weights
from ..core.losses import Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer

MAX_OUTPUTS = 64
"""Largest number of outputs of a quantization mechanism."""
SMALLEST_EPSILON = 1e-4
"""Outputs lie about 2 / epsilon half-ranges away: below this epsilon, linear programs lose the significant digits."""

ScaledSolver = Callable[["Inputs"], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Labels scaled to [-1, 1], and their weights.

    Attributes:
      values: Shape (k,), ascending, from -1 to 1.
      weights: Shape (k,), summing to 1.
    """

    values: np.ndarray
    weights: np.ndarray

    @cached_property
    def _cumulated(self) -> np.ndarray:
        powers = np.stack([np.ones_like(self.values), self.values, self.values**2], axis=1)
        return np.concatenate([np.zeros((1, 3)), np.cumsum(self.weights[:, None] * powers, axis=0)])

    def moments(self, bins: np.ndarray) -> np.ndarray:
        """Sums the weights, weights times inputs and weights times squared inputs in every cell; shape (..., m - 1, 3).

        Outer cells include the inputs beyond the outermost bins.
        """
        first = np.searchsorted(self.values, bins)
        first[..., 0], first[..., -1] = 0, len(self.values)
        return np.diff(self._cumulated[first], axis=-2)


def check(epsilon: float, outputs: int, loss: Loss | None = None) -> None:
    """Raises ValueError for arguments that the quantization mechanisms do not support.

    They take an epsilon from 1e-4 to 30, 2 to 64 outputs, and the absolute or squared loss; None where the mechanism
    has no loss.
    """
    check_epsilon(epsilon)
    if epsilon < SMALLEST_EPSILON:
        raise ValueError(f"quantization needs an epsilon of at least {SMALLEST_EPSILON:g}, not {epsilon:g}")
    if not 2 <= outputs <= MAX_OUTPUTS:
        raise ValueError(f"outputs must be between 2 and {MAX_OUTPUTS}, not {outputs}")
    if loss is not None and loss.name not in ("absolute", "squared"):
        raise ValueError(f"quantization minimizes the absolute or the squared loss, not the {loss.name} loss")


def least_half_width(epsilon: float) -> float:
    """Computes coth(epsilon / 2): unbiased mechanisms on [-1, 1] need outputs at least this far from 0.

    If all outputs lie in [-b, b], the means at 1 and -1 differ by at most 2 b tanh(epsilon / 2).
    """
    return 1 + 2 / float(reproducible.expm1(epsilon))


def solve_scaled(
    prior: Prior, epsilon: float, mechanism: str, parameters: Mapping[str, Any], solve: ScaledSolver
) -> Randomizer:
    """Builds the randomizer from a solver on the scale of [-1, 1]. A domain of one label reports that label.

    `solve` takes inputs, and returns outputs (m,) and probabilities (k, m). `parameters` are for the mechanism file.
    Raises ValueError if there are too many labels times outputs.
    """
    labels = prior.labels
    if len(labels) == 1:
        outputs, probabilities, middle, half = labels, np.ones((1, 1)), 0.0, 1.0
    else:
        middle, half = labels[0] / 2 + labels[-1] / 2, labels[-1] / 2 - labels[0] / 2
        values = np.clip((labels - middle) / half, -1.0, 1.0)
        values[0], values[-1] = -1.0, 1.0
        outputs, probabilities = solve(Inputs(values, prior.weights))
        if probabilities.size > MAX_CELLS:
            raise ValueError(f"{len(labels)} labels times {len(outputs)} outputs is more than {MAX_CELLS}")
    weights = integer_weights(probabilities, epsilon)
    return Randomizer(labels, outputs * half + middle, weights, epsilon, mechanism, parameters)
