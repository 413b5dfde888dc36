"""OPTM, the optimal randomized quantization mechanism: bins and selection distributions of least expected loss.

Source: Cai et al. 2024, section 4 and Algorithm 2. Algorithm 2 searches a grid of bounds on the probabilities, because
its linear programs need them; the bounds cost accuracy. With constraints "exact" the bilinear program itself is solved
instead, under the privacy loss at the one-sided limits; "theorem5" and "theorem6" are the paper's programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..core import reproducible
from ..core.integer_weights import EPSILON_MARGIN
from ..core.label_grid import RANDOMIZED
from ..core.losses import ABSOLUTE, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from .bin_selection import (
    Layout,
    Selection,
    channel,
    coupled_selection,
    expected_loss,
    privacy_loss,
    theorem5_selection,
    theorem6_selection,
)
from .erm import two_scale_bins
from .exact_selection import exact_selection
from .input_scale import Inputs, check, least_half_width, solve_scaled
from .local_search import nelder_mead
from .rqm import RQM, geometric_selection

_CONSTRAINTS = ("exact", "theorem5", "theorem6")
# With more bins than this, the exact program searches the bins in fewer steps.
_SMALL = 4
# Relative distance of Theorem 5's bounds from a reference solution, in units of epsilon.
_BANDS = (0.003, 0.01, 0.03, 0.1)
# Grid of the bounds of Theorem 6.
_UPPER_BOUNDS = (0.5, 0.75, 1.0)
_LOWER_BOUNDS = np.linspace(0.05, 0.95, 10)


@dataclass(frozen=True)
class OPTM:
    """Best selection mechanism found, unbiased for every input in the label range.

    Attributes:
      name: Name on the command line and in mechanism files.
      rounding: Default rounding of labels that are not in the domain.
      outputs: Number m of bins.
      distance: Distance D >= 0 of the outermost bins beyond the labels, in halves of the label range; None searches.
      inner: Largest distance of the other m - 2 bins, which are even, from their center, in halves of the label range;
        None searches.
      symmetric: Whether bins and selection are symmetric; otherwise both ends of the inner and of the outer bins are
        searched.
      reach: The outermost bins are searched up to reach * coth(epsilon / 2) halves of the label range, >= 1; see
        `Quantizer`.
      constraints: "exact", "theorem5" or "theorem6" (symmetric only).
      loss: Absolute or squared loss.
    """

    name: ClassVar[str] = "optm"
    rounding: ClassVar[str] = RANDOMIZED
    outputs: int = 4
    distance: float | None = None
    inner: float | None = None
    symmetric: bool = True
    reach: float = 2.0
    constraints: str = "exact"
    loss: Loss = ABSOLUTE

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Searches for bins and selection distributions.

        A few seconds for m = 4, for any number of labels; about ten for theorem6 or asymmetric bins. The parameters of
        the randomizer state the bins. Raises ValueError if a parameter is out of range, or the given parameters cannot
        satisfy epsilon.
        """
        check(epsilon, self.outputs, self.loss)
        if self.constraints not in _CONSTRAINTS:
            raise ValueError(f"constraints must be one of {', '.join(_CONSTRAINTS)}, not {self.constraints!r}")
        if not 1 <= self.reach < np.inf:
            raise ValueError(f"reach must be at least 1 and finite, not {self.reach:g}")
        if self.constraints == "theorem6" and not self.symmetric:
            raise ValueError("theorem6 is for symmetric bins")
        if self.distance is not None and not self.distance >= 0:
            raise ValueError(f"distance must be at least 0, not {self.distance:g}")
        if self.inner is not None and not (
            self.inner > 0 and (self.distance is None or self.inner < 1 + self.distance)
        ):
            raise ValueError(f"inner must lie between 0 and the outermost bins, not be {self.inner:g}")
        parameters: dict[str, object] = {"outputs": self.outputs}

        def scaled(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
            selection, program = self._search(_Problem(inputs, epsilon - EPSILON_MARGIN, self.loss, self.constraints))
            parameters["constraints"] = program
            parameters["bins"] = selection.bins.tolist()
            return selection.bins, channel(selection, inputs.values)

        return solve_scaled(prior, epsilon, self.name, parameters, scaled)

    def _search(self, problem: _Problem) -> tuple[Selection, str]:
        """Returns the best selection and the program that found it: "rqm" where none found a better one than RQM."""
        least = least_half_width(problem.epsilon)
        points = self._grid(least)
        bounds = np.array([problem.coupled(self._bins(point, least)) for point in points])
        order = np.argsort(bounds, kind="stable")
        starts = [points[place] for place in order[:4] if np.isfinite(bounds[place])]
        if self.symmetric:
            fixed = [self.distance is not None, self.inner is not None or self.outputs <= 3]
        else:
            fixed = [self.distance is not None] * 2 + [self.inner is not None or self.outputs <= 3, self.outputs <= 2]
        best: tuple[float, Selection | None, str] = (np.inf, None, "")
        if not self.symmetric:
            with contextlib.suppress(ValueError):
                mirrored, program = replace(self, symmetric=True)._search(problem)
                best = (float(expected_loss(mirrored, problem.inputs, self.loss)), mirrored, program)
        elif self.distance is None and self.inner is None:
            fallback, _ = RQM(self.outputs, loss=self.loss).search(problem.inputs, problem.epsilon)
            best = (float(expected_loss(fallback, problem.inputs, self.loss)), fallback, "rqm")

        def value(point: np.ndarray) -> float:
            nonlocal best
            found = problem.best(self._bins(point, least), self.symmetric)
            if found is None:
                return np.inf
            loss = float(expected_loss(found, problem.inputs, self.loss))
            if loss < best[0]:
                best = (loss, found, self.constraints)
            return loss

        exact = problem.constraints == "exact"
        steps = (100 if self.outputs <= _SMALL else 40) if exact else 15
        refined = [
            _search_free(lambda p: problem.coupled(self._bins(p, least)), start, fixed, 120) for start in starts[:3]
        ]
        candidates = sorted(starts + refined, key=value)[: 2 if exact else 1]
        for start in candidates:
            _search_free(value, start, fixed, steps)
        if best[1] is None:
            raise ValueError(f"optm with these parameters does not satisfy epsilon {problem.epsilon:g}: omit them")
        return best[1], best[2]

    def _grid(self, least: float) -> list[np.ndarray]:
        """Returns starting points: ln(outer / least) of one or both ends; extent and center of the inner bins."""
        farthest = float(reproducible.log(self.reach))
        outers = [0.0 if self.outputs == 2 else min(1e-4, farthest)]
        outers += [x for x in (0.03, 0.1, 0.2, 0.35, 0.5, 0.8) if x <= farthest] + [farthest]
        if self.distance is not None:
            outers = [float(reproducible.log((1 + self.distance) / least))]
        inners = [self.inner] if self.inner is not None else [0.05, 0.2, 0.35, 0.5, 0.7, 0.95, 1.3 * least]
        if self.outputs <= 3:
            inners = inners[:1]
        if self.symmetric:
            return [np.array([a, b]) for a in outers for b in inners]
        return [np.array([a, a, b, c]) for a in outers for b in inners for c in (-0.6, -0.3, 0.0, 0.3, 0.6)]

    def _bins(self, point: np.ndarray, least: float) -> np.ndarray | None:
        """Returns the bins of a point of the search; None where they are not in order."""
        logs = point[:-2] if not self.symmetric else point[:1]
        if self.distance is None and np.max(logs) > float(reproducible.log(self.reach)) + 1e-12:
            return None
        outer = least * reproducible.exp(logs)
        inner, center = (point[1], 0.0) if self.symmetric else point[2:]
        bins = two_scale_bins(np.array(outer[-1]), np.array(inner), self.outputs)
        bins[0] = -outer[0]
        bins[1:-1] += center
        ordered = np.all(np.diff(bins) > 1e-6) and bins[0] <= -1 and bins[-1] >= 1
        return bins if ordered and (inner > 0 or self.outputs <= 3) else None


@dataclass(frozen=True, eq=False)
class _Problem:
    """Objective of the search, and the program that it uses."""

    inputs: Inputs
    epsilon: float
    loss: Loss
    constraints: str

    def coupled(self, bins: np.ndarray | None) -> float:
        """Returns a lower bound on the loss of any selection over these bins; infinite where there is none."""
        found = None if bins is None else coupled_selection(bins, self.inputs, self.epsilon, self.loss)
        return np.inf if found is None else found[0]

    def best(self, bins: np.ndarray | None, symmetric: bool) -> Selection | None:
        """Returns the best selection over these bins that satisfies epsilon; None where none was found."""
        if bins is None:
            return None
        layout = Layout(bins, symmetric)
        programs: dict[str, Callable[[Layout], list[Selection | None]]] = {
            "exact": lambda layout: [self._exact(layout, self.epsilon)],
            "theorem5": self._theorem5,
            "theorem6": self._theorem6,
        }
        found = [one for one in programs[self.constraints](layout) if one is not None]
        # The theorems imply this up to the solver's tolerance; the exact privacy loss decides.
        found = [one for one in found if privacy_loss(one) <= self.epsilon]
        return min(found, key=lambda one: float(expected_loss(one, self.inputs, self.loss)), default=None)

    def _exact(self, layout: Layout, epsilon: float) -> Selection | None:
        coupled = coupled_selection(layout.bins, self.inputs, epsilon, self.loss)
        if coupled is None:
            return None
        found = exact_selection(layout, self.inputs, epsilon, self.loss, coupled[1])
        if found is not None:
            return found
        # This start selects the outermost two bins nearly always. It satisfies epsilon strictly, unless these bins are
        # at their smallest possible distance.
        start = geometric_selection(layout.bins, np.array(1e-3))
        found = exact_selection(layout, self.inputs, epsilon, self.loss, start)
        if found is None and privacy_loss(start) <= epsilon:
            return start
        return found

    def _theorem5(self, layout: Layout) -> list[Selection | None]:
        """Sets the bounds around the optimum for a smaller epsilon, which the program can then reach."""
        found = []
        for band in _BANDS:
            width = band * self.epsilon
            reference = self._exact(layout, self.epsilon - 2.01 * width)
            if reference is not None:
                center = layout.variables(reference)
                lower, upper = center * (1 - width), np.minimum(center * (1 + width), 1.0)
                found.append(theorem5_selection(layout, self.inputs, self.epsilon, lower, upper))
        return found

    def _theorem6(self, layout: Layout) -> list[Selection | None]:
        """Tries a grid of the three bounds; the upper one is 1 where the first cell has a single bin to its left."""
        uppers = _UPPER_BOUNDS if layout.cells[0] else (1.0,)
        return [
            theorem6_selection(layout, self.inputs, self.epsilon, upper, (first, second))
            for upper in uppers
            for first in _LOWER_BOUNDS
            for second in _LOWER_BOUNDS[first >= _LOWER_BOUNDS]
        ]


def _search_free(value: Callable[[np.ndarray], float], start: np.ndarray, fixed: list[bool], steps: int) -> np.ndarray:
    """Searches by Nelder and Mead's method over the coordinates that are not fixed."""
    free = ~np.array(fixed)
    if not free.any():
        value(start)
        return start

    def finite(part: np.ndarray) -> float:
        # The search subtracts values: infinite ones would make it compare with NaN.
        return min(value(whole(part)), 1e30)

    def whole(part: np.ndarray) -> np.ndarray:
        point = start.copy()
        point[free] = part
        return point

    simplex = np.vstack([start[free], start[free] + np.diag(np.where(np.abs(start[free]) > 0.3, 0.1, 0.05))])
    return whole(nelder_mead(finite, simplex, steps))
