"""ERM, the exponential randomized mechanism: selects a bin on each side by the exponential mechanism.

Source: Cai et al. 2024, section 3.3, equation 2. The paper's Theorem 1 bounds the privacy loss; here it is exact.
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


def exponential_selection(bins: np.ndarray, gamma: np.ndarray) -> Selection:
    """Builds the selection with bin i <= j in proportion to exp(gamma (B_i - B_j) / (2 (B_j - B_1))).

    The bins, shape (..., m), are symmetric; gamma, shape (...), is >= 0.
    """
    m = bins.shape[-1]
    reach = bins[..., :-1, None] - bins[..., None, :]
    span = bins[..., :-1] - bins[..., :1]
    span = np.where(span > 0, span, 1.0)[..., None]
    possible = np.arange(m - 1)[:, None] >= np.arange(m)
    exponent = -np.asarray(gamma, float)[..., None, None] * np.where(possible, reach, 0.0) / (2 * span)
    left = np.where(possible, reproducible.exp(exponent), 0.0)
    return Selection.symmetric(bins, left / left.sum(axis=-1, keepdims=True))


def two_scale_bins(outer: np.ndarray, inner: np.ndarray, m: int) -> np.ndarray:
    """Builds bins at -outer, then m - 2 bins evenly from -inner to inner, then outer; shape (..., m).

    `outer` and `inner`, which is below it, have shape (...).
    """
    outer, inner = np.asarray(outer, float)[..., None], np.asarray(inner, float)[..., None]
    middle = np.linspace(-1, 1, m - 2) if m > 3 else np.zeros(m - 2)
    return np.concatenate([-outer, inner * middle, outer], axis=-1)


@dataclass(frozen=True)
class ERM:
    """Symmetric bins and exponential selection; parameters that are None are searched for the least expected loss.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      outputs: Number m of bins.
      distance: Distance D >= 0 of the outermost bins beyond the labels, in halves of the label range.
      inner: Largest distance of the other m - 2 bins, which are even, from the center, in halves of the label range.
      gamma: Parameter of the exponential mechanism, >= 0.
      loss: Absolute or squared loss.
    """

    name: ClassVar[str] = "erm"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    distance: float | None = None
    inner: float | None = None
    gamma: float | None = None
    loss: Loss = ABSOLUTE

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Searches for the best parameters whose privacy loss is at most epsilon for every input in the label range.

        The parameters of the randomizer state what was found. Raises ValueError if a parameter is out of range, or the
        given parameters cannot satisfy epsilon.
        """
        check(epsilon, self.outputs, self.loss)
        for name in ("distance", "inner", "gamma"):
            given = getattr(self, name)
            if given is not None and not given >= 0:
                raise ValueError(f"{name} must be at least 0, not {given:g}")
        parameters: dict[str, float] = {}

        def scaled(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
            selection, found = self._search(inputs, epsilon)
            parameters.update(found)
            return selection.bins, channel(selection, inputs.values)

        return solve_scaled(prior, epsilon, self.name, parameters, scaled)

    def _search(self, inputs: Inputs, epsilon: float) -> tuple[Selection, dict[str, float]]:
        least, m = least_half_width(epsilon), self.outputs

        def unpacked(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            far, many = reproducible.exp(points[:, 0]), len(points)
            outer = least * far if self.distance is None else np.full(many, 1 + self.distance)
            inner = outer * points[:, 1] if self.inner is None else np.full(many, self.inner)
            gamma = reproducible.exp(points[:, 2]) if self.gamma is None else np.full(many, self.gamma)
            return outer, inner, gamma

        def losses(points: np.ndarray) -> np.ndarray:
            outer, inner, gamma = unpacked(points)
            possible = inner < outer if m > 2 else outer > 0
            if m > 3:
                possible &= inner > 0
            made = exponential_selection(two_scale_bins(outer, np.where(possible, inner, outer / 2), m), gamma)
            found = private_losses(made, epsilon - EPSILON_MARGIN, inputs, self.loss)
            return np.where(possible, found, np.inf)

        fine = max(1.0, m / 6)
        free = (self.distance is None, self.inner is None and m > 3, self.gamma is None and m > 2)
        counts = tuple(int(n / fine) if searched else 1 for n, searched in zip((60, 40, 30), free, strict=True))
        # A point that satisfies epsilon exists: a large gamma, and all bins but two far outside the labels.
        point = minimize_over_box(losses, (1e-12, 0.02, -7.0), (2.5, 0.98, 7.0), counts, 4 * m**3)
        if point is None:
            raise ValueError(f"erm with these parameters does not satisfy epsilon {epsilon:g}: omit them")
        outer, inner, gamma = (float(part[0]) for part in unpacked(point[None]))
        made = exponential_selection(two_scale_bins(np.array(outer), np.array(inner), m), np.array(gamma))
        return made, {"outputs": m, "distance": outer - 1, "inner": inner, "gamma": gamma}
