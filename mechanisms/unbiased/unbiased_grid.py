"""Optimal unbiased randomizer on a fixed grid of outputs, as published: one linear program.

Source: Badanidiyuru et al. 2023, Algorithm 1, with the ends of the grid from Algorithm 2. The privacy constraints use
the least probability q_c of each output, q_c <= M[y, c] <= E q_c: 2 k n constraints instead of k^2 n. It serves as a
comparison: `unbiased` needs no grid, has a smaller loss and is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from ..core import reproducible
from ..core.budget import check_epsilon
from ..core.integer_weights import integer_weights
from ..core.label_grid import RANDOMIZED
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..quantization.linear_program import repair_rows

# HiGHS satisfies constraints to 1e-7: the program is solved for this much less than the requested epsilon.
_MARGIN = 1e-7
# Largest bias accepted, relative to the label range.
_LARGEST_BIAS = 1e-9


@dataclass(frozen=True)
class UnbiasedGrid:
    """Randomizer of least squared loss among unbiased ones whose outputs lie on an even grid.

    This is the published linear program, for comparison with `unbiased`, which is never worse.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      mesh: Number of outputs on the grid, an integer >= 2.
    """

    name: ClassVar[str] = "unbiased_grid"
    rounding: ClassVar[str] = RANDOMIZED
    mesh: int = 104

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves the linear program. 52 labels and 416 outputs take seconds; time grows fast with both.

        Raises ValueError if epsilon or the mesh is out of range, or HiGHS finds no unbiased solution, which happens
        from some epsilon between 8 and 16 on.
        """
        check_epsilon(epsilon)
        if self.mesh != int(self.mesh) or self.mesh < 2:
            raise ValueError(f"mesh must be an integer of at least 2, not {self.mesh}")
        labels, k = prior.labels, len(prior.labels)
        if k == 1:
            weights = integer_weights(np.ones((1, 1)), epsilon)
            return Randomizer(labels, labels, weights, epsilon, self.name, {"mesh": self.mesh})
        middle, half = (labels[0] + labels[-1]) / 2, (labels[-1] - labels[0]) / 2
        scaled = (labels - middle) / half
        step = float(reproducible.expm1(epsilon - min(_MARGIN, epsilon / 2)))
        ends = scaled[[0, -1]] + (k * scaled[[0, -1]] - scaled.sum()) / step
        grid = np.linspace(ends[0], ends[1], int(self.mesh))
        try:
            weights = integer_weights(_optimum(scaled, prior.weights, grid, step + 1), epsilon)
        except ValueError:
            raise self._failure(epsilon) from None
        randomizer = Randomizer(labels, grid * half + middle, weights, epsilon, self.name, {"mesh": self.mesh})
        if randomizer.certificate().max_bias > _LARGEST_BIAS * 2 * half:
            raise self._failure(epsilon)
        return randomizer

    def _failure(self, epsilon: float) -> ValueError:
        return ValueError(
            f"HiGHS finds no solution without bias at epsilon {epsilon:g} and mesh {self.mesh}: use unbiased"
        )


def _optimum(labels: np.ndarray, prior: np.ndarray, grid: np.ndarray, ratio: float) -> np.ndarray:
    """Solves for the probabilities M, shape (k, n), over the variables M and E q, which are of similar size."""
    k, n = len(labels), len(grid)
    costs = np.append((prior[:, None] * (grid - labels[:, None]) ** 2).ravel(), np.zeros(n))
    sums = kron(eye_array(k), csr_array(np.stack([np.ones(n), grid])))
    equal = hstack([sums, csr_array((2 * k, n))], format="csr")
    least = kron(csr_array(np.ones((k, 1))), eye_array(n))
    above = hstack([-eye_array(k * n), least / ratio])
    below = hstack([eye_array(k * n), -least])
    found = linprog(
        costs,
        A_ub=vstack([above, below], format="csr"),
        b_ub=np.zeros(2 * k * n),
        A_eq=equal,
        b_eq=np.stack([np.ones(k), labels], axis=1).ravel(),
        method="highs",
    )
    if found.x is None:
        raise ValueError(found.message)
    return np.maximum(repair_rows(found.x[: k * n].reshape(k, n), grid, labels), 0.0)
