"""Finite output grid of the additive mechanisms: equal steps over the label range and, unclipped, beyond it.

Noise is a distribution over whole numbers of steps, so the sensitivity is a whole number too, and nothing is drawn from
a continuous distribution. Probability beyond the grid moves to its outermost points, which is post-processing.

A label between two points first moves to one of them at random, with its mean kept. Both ends of the label range are
points. So no two labels are ever further apart than the range, and an unbiased mechanism stays unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, log
from typing import Any

import numpy as np

from ..core.integer_weights import MAX_CELLS, TOTAL
from ..core.prior import Prior
from ..core.randomizer import Randomizer

FOLDED_TAIL = 40 * log(2)
"""An unclipped grid ends where at most exp(-FOLDED_TAIL) of a label's probability lies further out on that side."""

# A label within this many steps of a point replaces the point: the output is then the label itself.
_SNAP = 1e-3
# Largest number of steps for labels that are not evenly spaced, if no step is given and there are fewer labels.
_DEFAULT_STEPS = 1023
# Largest number of labels times outputs for a grid that extends beyond the label range, if no step is given.
_DEFAULT_CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class OutputGrid:
    """Output points, and the position of every label among them.

    Attributes:
      points: The outputs, shape (m,), float64, ascending.
      steps: Steps from the smallest to the largest label, >= 1; the sensitivity.
      margin: Steps beyond the label range on either side; 0 where outputs are clipped.
      lower: Index of the point at or below each label, shape (k,).
      share: Probability that the label moves to the point above instead, shape (k,), in [0, 1).
    """

    points: np.ndarray
    steps: int
    margin: int
    lower: np.ndarray
    share: np.ndarray

    @property
    def step(self) -> float:
        """Distance of neighboring points, in units of the label."""
        return float((self.points[-1] - self.points[0]) / (len(self.points) - 1))

    @property
    def reach(self) -> int:
        """Largest distance of a point from a label's point, in steps."""
        return self.steps + self.margin

    def rows(self, noise: np.ndarray, beyond: float) -> np.ndarray:
        """Probabilities of every label's outputs under symmetric noise, shape (k, m).

        `noise` has the probability of +z steps, equal to that of -z, shape (n,) with n > reach, and `beyond` is the
        probability of n or more steps up.
        """
        tails = _tails(noise, beyond)
        rows = self._rows_from(self.lower, noise, tails)
        between = np.flatnonzero(self.share)
        if len(between):
            share = self.share[between, None]
            above = self._rows_from(self.lower[between] + 1, noise, tails)
            rows[between] = (1 - share) * rows[between] + share * above
        return rows

    def end_rows(self, noise: np.ndarray, beyond: float) -> np.ndarray:
        """Computes `rows` for the smallest and the largest label only; shape (2, m)."""
        return self._rows_from(self.lower[[0, -1]], noise, _tails(noise, beyond))

    def _rows_from(self, places: np.ndarray, noise: np.ndarray, tails: np.ndarray) -> np.ndarray:
        last = len(self.points) - 1
        rows = noise[np.abs(np.arange(last + 1) - places[:, None])]
        rows[:, 0] = tails[places]
        rows[:, -1] = tails[last - places]
        return rows


def _tails(noise: np.ndarray, beyond: float) -> np.ndarray:
    """Probability of z or more steps up, for z = 0..n."""
    return np.cumsum(np.append(noise, beyond)[::-1])[::-1]


def make_output_grid(labels: np.ndarray, step: float | None, margin: float) -> OutputGrid:
    """Builds the output grid for labels of shape (k,), ascending, k >= 2.

    `step` is the largest distance of neighboring points, in units of the label; the range is cut into equal steps, no
    larger. None takes the labels themselves where they are evenly spaced, else their smallest distance, within a bound
    on the number of points. `margin` is the extent beyond the label range on either side, in label ranges. Raises
    ValueError if the step is not a positive number, or there are too many points.
    """
    k, span = len(labels), float(labels[-1]) - float(labels[0])
    if step is None:
        steps = _default_steps(labels, span, margin)
    elif step > 0 and isfinite(step):
        steps = ceil(min(max(span / step * (1 - 1e-9), 1.0), 1e18))
    else:
        raise ValueError(f"step must be a positive number, not {step!r}")
    beyond = ceil(min(margin * steps, 1e18))
    count = steps + 1 + 2 * beyond
    if k * count > MAX_CELLS:
        advice = "a larger step" if step is not None else "a larger epsilon"
        advice += ", or clip the outputs to the label range (clip)" if margin else ""
        raise ValueError(f"{k} labels times {count} outputs is more than {MAX_CELLS}: use {advice}")
    points = labels[0] + np.arange(-beyond, steps + beyond + 1) * (span / steps)
    places = (labels - labels[0]) / span * steps
    nearest = np.rint(places)
    on = np.abs(places - nearest) <= _SNAP
    places[on] = nearest[on]
    points[nearest[on].astype(np.intp) + beyond] = labels[on]
    lower = np.floor(places)
    return OutputGrid(points, steps, beyond, lower.astype(np.intp) + beyond, places - lower)


def _default_steps(labels: np.ndarray, span: float, margin: float) -> int:
    k = len(labels)
    even = np.abs((labels - labels[0]) / span * (k - 1) - np.arange(k)) <= _SNAP
    if even.all():
        steps = k - 1
    else:
        finest = min(span / float(np.diff(labels).min()), 1e18)
        steps = min(ceil(finest * (1 - 1e-9)), max(k, _DEFAULT_STEPS))
    most = MAX_CELLS // k - 1
    if margin:
        most = int((_DEFAULT_CELLS // k - 3) / (1 + 2 * margin))
    return max(min(steps, most), 1)


def single_label_randomizer(
    name: str, prior: Prior, epsilon: float, parameters: dict[str, Any], delta: float = 0.0
) -> Randomizer:
    """Builds the randomizer of a domain with one label, which always reports that label."""
    weights = np.full((1, 1), TOTAL, np.uint64)
    return Randomizer(prior.labels, prior.labels, weights, epsilon, name, parameters, delta=delta)
