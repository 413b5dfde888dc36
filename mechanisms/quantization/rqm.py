"""RQM, the randomized quantization mechanism: uniform bins, and the nearest selected bin on each side.

Source: Youn et al. 2023; Cai et al. 2024, section 3.3. Every inner bin is selected independently with probability q,
the two outermost always, and the input is rounded to its neighbors among the selected bins. For one input this is a
geometric selection distribution on each side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core import reproducible
from ..core.integer_weights import EPSILON_MARGIN
from ..core.label_grid import RANDOMIZED
from ..core.losses import ABSOLUTE, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .bin_selection import Selection, channel, private_losses
from .input_scale import Inputs, check, least_half_width, solve_scaled
from .local_search import minimize_over_box


def geometric_selection(bins: np.ndarray, q: np.ndarray) -> Selection:
    """Builds the selection with bin i <= j at probability q (1 - q)^(j - i), and the rest at the first bin.

    The bins have shape (..., m); q, shape (...), is in (0, 1].
    """
    m = bins.shape[-1]
    steps = np.arange(m - 1)[:, None] - np.arange(m)
    miss = 1 - np.asarray(q, float)[..., None, None]
    left = np.where(np.arange(m) == 0, 1.0, 1 - miss) * reproducible.power(miss, np.maximum(steps, 0))
    return Selection.symmetric(bins, np.where(steps >= 0, left, 0.0))


def uniform_bins(outer: np.ndarray, m: int) -> np.ndarray:
    """Builds even bins from -outer to outer; shape (..., m)."""
    return np.asarray(outer, float)[..., None] * np.linspace(-1, 1, m)


@dataclass(frozen=True)
class RQM:
    """Uniform bins and geometric selection; parameters that are None are searched for the least expected loss.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      outputs: Number m of bins.
      distance: Distance D >= 0 of the outermost bins beyond the labels, in halves of the label range.
      q: Probability of selecting an inner bin, in (0, 1].
      loss: Absolute or squared loss.
    """

    name: ClassVar[str] = "rqm"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    distance: float | None = None
    q: float | None = None
    loss: Loss = ABSOLUTE

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Searches for the best parameters whose privacy loss is at most epsilon for every input in the label range.

        The parameters of the randomizer state what was found. Raises ValueError if a parameter is out of range, or the
        given parameters cannot satisfy epsilon.
        """
        check(epsilon, self.outputs, self.loss)
        if self.distance is not None and not self.distance >= 0:
            raise ValueError(f"distance must be at least 0, not {self.distance:g}")
        if self.q is not None and not 0 < self.q <= 1:
            raise ValueError(f"q must be above 0 and at most 1, not {self.q:g}")

        parameters: dict[str, float] = {}

        def scaled(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
            selection, found = self.search(inputs, epsilon)
            parameters.update(found)
            return selection.bins, channel(selection, inputs.values)

        return solve_scaled(prior, epsilon, self.name, parameters, scaled)

    def search(self, inputs: Inputs, epsilon: float) -> tuple[Selection, dict[str, float]]:
        """Searches on the scale of [-1, 1] for the selection and its parameters.

        Raises ValueError if the given parameters cannot satisfy epsilon.
        """
        least, m = least_half_width(epsilon), self.outputs

        def selections(points: np.ndarray) -> Selection:
            far, many = reproducible.exp(points[:, 0]), len(points)
            outer = least * far if self.distance is None else np.full(many, 1 + self.distance)
            q = 1 / (1 + reproducible.exp(-points[:, 1])) if self.q is None else np.full(many, self.q)
            return geometric_selection(uniform_bins(outer, m), q)

        def losses(points: np.ndarray) -> np.ndarray:
            return private_losses(selections(points), epsilon - EPSILON_MARGIN, inputs, self.loss)

        fine = max(1.0, m / 8)
        counts = (1 if self.distance is not None else int(240 / fine), 1 if self.q is not None else int(120 / fine))
        # A point that satisfies epsilon exists: at q = 1 only the two innermost bins are left, and their distance from
        # the center suffices once it is coth(epsilon / 2).
        point = minimize_over_box(losses, (1e-12, -7.0), (float(reproducible.log(2 * m)), 40.0), counts, 4 * m**3)
        if point is None:
            raise ValueError(f"rqm with these parameters does not satisfy epsilon {epsilon:g}: omit distance")
        made = selections(point[None])[0]
        q = self.q if self.q is not None else float(1 / (1 + reproducible.exp(-point[1])))
        return made, {"outputs": m, "distance": float(made.bins[-1] - 1), "q": q}
