"""Staircase mechanism: noise whose density falls in steps.

Sources: Geng, Viswanath 2014, "The Optimal Noise-Adding Mechanism in Differential Privacy"; Ghazi et al. 2022,
Appendices D and F, as a baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.integer_weights import EPSILON_MARGIN, integer_weights
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import exp, expm1, vecmat
from .output_grid import FOLDED_TAIL, OutputGrid, make_output_grid, single_label_randomizer


@dataclass(frozen=True)
class Staircase:
    """Adds staircase noise, whose density falls in steps.

    Let Delta be the label range in grid steps. Noise of t + i Delta steps in either direction, 0 <= t < Delta, has a
    probability proportional to exp(-i epsilon) if t < r, and to exp(-(i + 1) epsilon) otherwise.

    Attributes:
      name: Name on the command line and in mechanism files.
      loss: Loss that the choice of r minimizes.
      gamma: Share (r - 1/2) / Delta of the higher part of a stair, in [0, 1]; None takes the r in 1..Delta of least
        expected loss under the prior.
      step: As for `Laplace`.
      clip: As for `Laplace`.
    """

    name: ClassVar[str] = "staircase"
    loss: Loss = SQUARED
    gamma: float | None = None
    step: float | None = None
    clip: bool = True

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Chooses r and builds the randomizer, whose parameters state r and gamma. Cost O(k m) for m outputs.

        All r are compared from shared sums. Where the loss is infinite for every r, as Poisson log loss is for outputs
        of 0, the squared loss decides. Raises ValueError if epsilon, gamma or the step is out of range, there are too
        many outputs, or the loss is not defined on the outputs.
        """
        check_epsilon(epsilon)
        if self.gamma is not None and not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be between 0 and 1, not {self.gamma:g}")
        self.loss.check(prior.labels)
        if self.loss.nonnegative and not self.clip:
            raise ValueError(f"the {self.loss.name} loss needs outputs >= 0: clip them to the label range (clip)")
        if len(prior.labels) == 1:
            return single_label_randomizer(self.name, prior, epsilon, {"clip": self.clip})
        target = epsilon - EPSILON_MARGIN
        # A stair is as wide as the label range, so the noise may exceed Laplace noise by up to one range.
        grid = make_output_grid(prior.labels, self.step, 0.0 if self.clip else FOLDED_TAIL / target + 1)
        if self.gamma is None:
            losses = _staircase_losses(grid, prior, target, self.loss)
            if not np.all(np.isfinite(losses)):
                losses = _staircase_losses(grid, prior, target, SQUARED)
            r = int(np.argmin(losses)) + 1
        else:
            r = min(max(round(self.gamma * grid.steps + 0.5), 1), grid.steps)
        stairs = grid.reach // grid.steps + 1
        height, drop = _staircase_height(grid.steps, target)[r - 1], exp(-target)
        stair = np.where(np.arange(grid.steps) < r, 1.0, drop)
        noise = height * np.outer(exp(-target * np.arange(stairs)), stair).ravel()
        rows = grid.rows(noise, height * exp(-target * stairs) * stair.sum() / -expm1(-target))
        weights = integer_weights(rows, epsilon)
        parameters = {"step": grid.step, "clip": self.clip, "r": r, "gamma": (r - 0.5) / grid.steps}
        return Randomizer(prior.labels, grid.points, weights, epsilon, self.name, parameters)


def _staircase_height(steps: int, epsilon: float) -> np.ndarray:
    """Probability of no noise for r = 1..steps, shape (steps,)."""
    r, fall = np.arange(1, steps + 1), -expm1(-epsilon)
    return fall / (2 * (r + exp(-epsilon) * (steps - r)) - fall)


def _staircase_losses(grid: OutputGrid, prior: Prior, epsilon: float, loss: Loss) -> np.ndarray:
    """Expected loss for r = 1..steps, above the least one that any output could have, shape (steps,).

    Noise of t + i Delta steps, 0 <= t < Delta, has probability height(r) e^(-i epsilon) (1 if t < r else e^-epsilon);
    so with the loss of each t summed over i, all r need only one cumulated sum over t.
    """
    last, stairs = len(grid.points) - 1, grid.reach // grid.steps + 1
    distances = np.arange(stairs * grid.steps)
    per_distance, far = np.zeros(len(distances)), 0.0
    for label, mass, lower, share in zip(prior.labels, prior.weights, grid.lower, grid.share, strict=True):
        if mass == 0:
            continue
        losses = loss.divergence(grid.points, label)
        far += mass * (losses[0] + losses[last])
        for place, part in ((lower, mass * (1 - share)), (lower + 1, mass * share)):
            if part > 0:
                up, down = np.minimum(place + distances, last), np.maximum(place - distances, 0)
                per_distance += part * (losses[up] + losses[down])
    per_distance[0] /= 2
    stair = vecmat(exp(-epsilon * np.arange(stairs)), per_distance.reshape(stairs, grid.steps))
    # Noise beyond the last stair always ends at an end of the grid.
    stair += far * exp(-epsilon * stairs) / -expm1(-epsilon)
    sums = exp(-epsilon) * stair.sum() - expm1(-epsilon) * np.cumsum(stair)
    return _staircase_height(grid.steps, epsilon) * sums
