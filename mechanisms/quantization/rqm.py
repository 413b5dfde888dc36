"""RQM, the randomized quantization mechanism: uniform bins, the nearest selected bin on each side.

Source: Youn et al. 2023; Cai et al., section 3.3: every inner bin is selected with probability q by itself, the two
outermost always, and the input is rounded to its neighbours among the selected bins. Seen from the input that is a
geometric selection distribution on each side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.integer_weights import EPSILON_MARGIN
from ..core.label_rounding import RANDOMIZED
from ..core.losses import ABSOLUTE, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .bin_selection import Selection, channel, expected_loss, privacy_loss
from .input_scale import Inputs, check, nearest_outer, solved
from .parameter_search import zoom


def geometric_selection(bins: np.ndarray, q: np.ndarray) -> Selection:
    """Bin i <= j with probability q (1 - q)^(j - i), the first one with what is left. bins: (..., m). q: (...)."""
    m = bins.shape[-1]
    steps = np.arange(m - 1)[:, None] - np.arange(m)
    miss = 1 - np.asarray(q, float)[..., None, None]
    left = np.where(np.arange(m) == 0, 1.0, 1 - miss) * miss ** np.maximum(steps, 0)
    return Selection.symmetric(bins, np.where(steps >= 0, left, 0.0))


def uniform_bins(outer: np.ndarray, m: int) -> np.ndarray:
    """(..., m): from -outer to outer, evenly. outer: (...)."""
    return np.asarray(outer, float)[..., None] * np.linspace(-1, 1, m)


@dataclass(frozen=True)
class RQM:
    """Uniform bins and geometric selection, the bins' extent and q searched for the least expected loss.

    outputs: m, the number of bins. distance: D >= 0, how far the outermost bins lie beyond the labels, in halves of
    the label range; q: in (0, 1]; each is searched where it is None. loss: absolute or squared.
    """

    name: ClassVar[str] = "rqm"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    distance: float | None = None
    q: float | None = None
    loss: Loss = ABSOLUTE

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """The best parameters whose privacy loss is at most epsilon for every input between the outermost labels.

        Raises ValueError for a parameter out of range, or where the parameters given cannot keep epsilon.
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

        return solved(prior, epsilon, self.name, parameters, scaled)

    def search(self, inputs: Inputs, epsilon: float) -> tuple[Selection, dict[str, float]]:
        """The selection on the scale of [-1, 1] and its parameters. Raises as `solve`."""
        least, m = nearest_outer(epsilon), self.outputs

        def selections(points: np.ndarray) -> Selection:
            outer = least * np.exp(points[:, 0]) if self.distance is None else np.full(len(points), 1 + self.distance)
            q = 1 / (1 + np.exp(-points[:, 1])) if self.q is None else np.full(len(points), self.q)
            return geometric_selection(uniform_bins(outer, m), q)

        def losses(points: np.ndarray) -> np.ndarray:
            made = selections(points)
            return np.where(
                privacy_loss(made) <= epsilon - EPSILON_MARGIN, expected_loss(made, inputs, self.loss), np.inf
            )

        fine = max(1.0, m / 8)
        counts = (1 if self.distance is not None else int(240 / fine), 1 if self.q is not None else int(120 / fine))
        # At q = 1 the two innermost bins alone are left, and they keep epsilon once they are as far as coth.
        point = zoom(losses, (1e-12, -7.0), (np.log(2 * m), 40.0), counts, 4 * m**3)
        if point is None:
            raise ValueError(
                f"rqm with these parameters does not keep epsilon {epsilon:g}: leave distance to the search"
            )
        made = selections(point[None])[0]
        q = self.q if self.q is not None else float(1 / (1 + np.exp(-point[1])))
        return made, {"outputs": m, "distance": float(made.bins[-1] - 1), "q": q}
