"""The finite lattice that additive noise lives on: equal steps over the label range and, unclipped, beyond it.

Noise is a distribution over whole numbers of steps, so the sensitivity is a whole number too and nothing continuous is
ever drawn. What falls outside the lattice is moved to its outermost points, which is post-processing.

A label between two points is first moved to one of them at random, with the mean kept. Both ends of the label range
are points; so no two labels are ever further apart than the range, and an unbiased mechanism stays unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

import numpy as np

from ..core.alias_table import MAX_CELLS

# A label this near to a point, in steps, takes the point over: the output is then the label itself.
_SNAP = 1e-3


# Without a step given, labels that are not evenly spaced get at most so many steps,
_DEFAULT_STEPS = 1023


# and a lattice that goes beyond the range at most so many labels times outputs.
_DEFAULT_CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class OutputGrid:
    """points: (m,) float64 ascending, the outputs. steps: from the least label to the largest, >= 1; the sensitivity.

    margin: the steps beyond the label range, on either side; 0 is clipped. lower: (k,) the point at or below each
    label. share: (k,) the probability that the label moves to the point above instead, in [0, 1).
    """

    points: np.ndarray
    steps: int
    margin: int
    lower: np.ndarray
    share: np.ndarray

    @property
    def step(self) -> float:
        """The distance of two neighbouring points, in units of the label."""
        return float((self.points[-1] - self.points[0]) / (len(self.points) - 1))

    @property
    def reach(self) -> int:
        """The largest distance of a point from a label's, in steps."""
        return self.steps + self.margin

    def rows(self, noise: np.ndarray, beyond: float) -> np.ndarray:
        """(k, m) probabilities of every label's outputs under symmetric noise.

        noise: (n,), n > reach, the probability of +z steps, which is that of -z. beyond: that of n steps up or more.
        """
        tails = _tails(noise, beyond)
        rows = self._rows_from(self.lower, noise, tails)
        between = np.flatnonzero(self.share)
        if len(between):
            share = self.share[between, None]
            above = self._rows_from(self.lower[between] + 1, noise, tails)
            rows[between] = (1 - share) * rows[between] + share * above
        return rows

    def ends_rows(self, noise: np.ndarray, beyond: float) -> np.ndarray:
        """(2, m): as `rows`, of the least and the largest label alone."""
        return self._rows_from(self.lower[[0, -1]], noise, _tails(noise, beyond))

    def _rows_from(self, places: np.ndarray, noise: np.ndarray, tails: np.ndarray) -> np.ndarray:
        last = len(self.points) - 1
        rows = noise[np.abs(np.arange(last + 1) - places[:, None])]
        rows[:, 0] = tails[places]
        rows[:, -1] = tails[last - places]
        return rows


def _tails(noise: np.ndarray, beyond: float) -> np.ndarray:
    """The probability of z steps up or more, for z = 0..n."""
    return np.cumsum(np.append(noise, beyond)[::-1])[::-1]


def lattice(labels: np.ndarray, step: float | None, margin: float) -> OutputGrid:
    """The lattice for labels.

    labels: (k,) ascending, k >= 2. step: the largest distance of two points, in units of the label; the range is cut
    into equal steps that are no larger. None: the labels themselves where they are evenly spaced, else their smallest
    distance, within a bound on the number of points. margin: how far beyond the range, in ranges.
    Raises ValueError for a step that is not a positive number, or that makes too many points.
    """
    k, span = len(labels), float(labels[-1]) - float(labels[0])
    if not isfinite(span):
        raise ValueError("the label range is too large for noise: scale the labels down")
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
