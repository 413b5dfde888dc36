"""Best unbiased mechanism with m outputs: searches the outputs, and solves a linear program for the probabilities.

Source: Badanidiyuru et al. 2023, Algorithm 1, with few outputs instead of a fine grid. The selection mechanisms of Cai
et al. 2024 and MVU are among the tables that the program chooses from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core import reproducible
from ..core.label_grid import RANDOMIZED
from ..core.losses import ABSOLUTE, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .input_scale import Inputs, check, least_half_width, solve_scaled
from .linear_program import LARGEST_EPSILON, best_table, feasible_table
from .local_search import nelder_mead, quasi_newton

# Largest number of inputs in the search for outputs.
_COARSE = 41
# Loss of outputs that allow no table.
_INFEASIBLE = 1e30
# Up to this many parameters, the search is repeated without derivatives.
_FEW = 6
# Starting points of the search: distance of the outermost inner output from the center.
_INNER = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
# The same for one more start, as a share of the least distance of the outermost outputs.
_FAR_INNER = 0.93


def coarsen(inputs: Inputs, count: int) -> Inputs:
    """Selects at most `count` inputs, evenly and with both ends, each with the weight of the inputs nearest to it."""
    k = len(inputs.values)
    if k <= count:
        return inputs
    chosen = inputs.values[np.unique(np.linspace(0, k - 1, count).round().astype(int))]
    middles = (chosen[1:] + chosen[:-1]) / 2
    return Inputs(chosen, np.bincount(np.searchsorted(middles, inputs.values), inputs.weights, len(chosen)))


def search_outputs(inputs: Inputs, m: int, epsilon: float, loss: Loss, symmetric: bool, reach: float) -> np.ndarray:
    """Searches for the outputs of least expected loss within reach, on a coarse grid of the inputs.

    Symmetric outputs are searched first; then, unless `symmetric`, every output by itself. The prices of the program
    give the derivative of its optimum by every output (the envelope theorem).

    The result has shape (m,), ascending where symmetric.
    """
    target, least = min(epsilon, LARGEST_EPSILON), least_half_width(epsilon)
    # Slightly further than the nearest possible position, where the program has a single solution.
    nearest, farthest = least * (1 + 1e-6), least * max(reach, 1 + 1e-6)
    grid = coarsen(inputs, _COARSE)
    half = m // 2
    solved: dict[bytes, tuple[float, np.ndarray]] = {}

    def mirrored(distances: np.ndarray) -> np.ndarray:
        return np.concatenate([-distances[::-1], np.zeros(m % 2), distances])

    def mirrored_value(distances: np.ndarray) -> tuple[float, np.ndarray]:
        loss_there, slopes = free_value(mirrored(distances))
        return loss_there, slopes[-half:] - slopes[:half][::-1]

    def free_value(outputs: np.ndarray) -> tuple[float, np.ndarray]:
        # Searches within bounds come back to the same points: up to half of them.
        key = outputs.tobytes()
        if key not in solved:
            table = best_table(grid, outputs, target, loss)
            solved[key] = (_INFEASIBLE, np.zeros(m)) if table is None else (table.loss, table.slopes)
        return solved[key]

    def start_at(inner: float, outer: float) -> np.ndarray:
        start = np.append(np.linspace(inner / max(half - 1, 1), inner, half - 1), outer * least)
        start[-1] = np.clip(start[-1], nearest, farthest)
        return start

    starts, best_of_outer = [], []
    for outer in sorted({1.0, min(1.25, reach), min(1.6, reach), reach}):
        tried = []
        for inner in _INNER:
            start = start_at(inner, outer)
            tried.append((mirrored_value(start)[0], len(starts) + len(tried), start))
        starts += tried
        best_of_outer.append(min(tried, key=lambda start: start[0])[:2])
    # The best starts, and the best one for every outer position: the loss has several local minima.
    chosen = {place for _, place in best_of_outer} | {
        place for _, place, _ in sorted(starts, key=lambda start: start[0])[:4]
    }
    bounds = np.array([(0.0, farthest)] * (half - 1) + [(nearest, farthest)])
    promising = [starts[place][2] for place in sorted(chosen)]
    if half > 1 and _FAR_INNER * least > 1:
        # For a small epsilon, all outputs may be far from the labels.
        promising.append(start_at(_FAR_INNER * least, 1.0))
    best = _minimize_loss(mirrored_value, promising, bounds)
    outputs = mirrored(best)
    if symmetric or m == 2:
        return outputs
    center = reproducible.dot(grid.weights, grid.values)
    shifted = outputs + np.where(np.arange(m) % (m - 1) > 0, center, 0.0)
    bounds = np.array([(-farthest, farthest)] * m)
    both = [outputs] if center == 0 else [outputs, shifted]
    return _minimize_loss(free_value, both, bounds)


def _minimize_loss(
    value: Callable[[np.ndarray], tuple[float, np.ndarray]], starts: list[np.ndarray], bounds: np.ndarray
) -> np.ndarray:
    """Searches along the derivatives from every start, then without them from the best two, as the loss is not smooth.

    value: a point's loss and its derivatives. bounds: (d, 2).
    """
    seen: list[tuple[float, np.ndarray]] = []

    def remembered(point: np.ndarray) -> tuple[float, np.ndarray]:
        found = value(point)
        seen.append((found[0], point.copy()))
        return found

    bests = []
    for start in starts:
        seen.clear()
        quasi_newton(remembered, start, bounds, 50)
        bests.append(min(seen, key=lambda one: one[0]))
    bests.sort(key=lambda one: one[0])
    if bounds.shape[0] <= _FEW:
        for _, start in bests[:2]:
            seen.clear()
            simplex = np.clip(np.vstack([start, start - 0.03 * np.eye(len(start))]), *bounds.T)
            nelder_mead(lambda point: remembered(point)[0], simplex, 30 * len(start), bounds)
            bests.append(min(seen, key=lambda one: one[0]))
    return min(bests, key=lambda one: one[0])[1]


@dataclass(frozen=True)
class Quantizer:
    """Unbiased epsilon-DP mechanism of least expected loss with m outputs.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      outputs: Number m of outputs.
      values: The outputs themselves, ascending, in units of the label; searched where empty.
      symmetric: Whether the searched outputs are symmetric around the middle of the label range.
      reach: The searched outputs lie within reach * coth(epsilon / 2) halves of the label range from its middle, >= 1.
        Less than 1 is impossible, and without a limit the absolute loss would move two of them to infinity.
      loss: Absolute or squared loss.
    """

    name: ClassVar[str] = "quantizer"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    values: tuple[float, ...] = ()
    symmetric: bool = False
    reach: float = 2.0
    loss: Loss = ABSOLUTE

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Searches for the outputs, unless given, and solves for the table, which is optimal to a relative 1e-7.

        About a second for m = 4 and some hundreds of labels. Raises ValueError if a parameter is out of range, or the
        outputs allow no unbiased mechanism under epsilon.
        """
        given = np.array(self.values, float)
        check(epsilon, len(given) if len(given) else self.outputs, self.loss)
        if not np.all(np.isfinite(given)) or np.any(np.diff(given) <= 0):
            raise ValueError("values must be finite and ascending")
        if not 1 <= self.reach < np.inf:
            raise ValueError(f"reach must be at least 1 and finite, not {self.reach:g}")
        parameters: dict[str, object] = {"outputs": len(given) if len(given) else self.outputs}
        labels = prior.labels

        def scaled(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
            if len(given):
                outputs = (given - (labels[0] / 2 + labels[-1] / 2)) / (labels[-1] / 2 - labels[0] / 2)
            else:
                outputs = search_outputs(inputs, self.outputs, epsilon, self.loss, self.symmetric, self.reach)
            table = feasible_table(inputs, outputs, epsilon, self.loss)
            if table is None:
                raise ValueError(f"no unbiased mechanism with these outputs satisfies epsilon {epsilon:g}")
            return outputs, table

        return solve_scaled(prior, epsilon, self.name, parameters, scaled)
