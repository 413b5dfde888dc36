"""RPWithPrior: a uniform draw from the label's neighborhood, or from the rest of an interval chosen by the prior.

Source: Liu and Huang, "RPWithPrior: Label Differential Privacy in Regression", Lemmas 3.3 and 3.5, Remark 3.4 and
Algorithms 1 and 2. The paper's outputs are continuous. Here they are the midpoints of equal cells, and a neighborhood
is a whole number of cells, the same for every label, so that the privacy proof is exact in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isfinite
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon, exp_below
from ..core.integer_weights import MAX_CELLS, TOTAL
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, exp, geomspace

_DEFAULT_OUTPUTS = 512
"""Approximate number of outputs where no step is given."""
# Largest number of losses that are evaluated at once.
_CHUNK = 1 << 20
# Search for z: _COARSE values over _DECADES decades below the label range, then two rounds of _FINE values between the
# neighbors of the best one. The loss jumps where the interval does, so the result is within about 1 % of the best.
_DECADES, _COARSE, _FINE = 3, 49, 7
# A distance within this many steps of a whole number of steps counts as that number.
_SNAP = 1e-9


@dataclass(frozen=True)
class RPWithPrior:
    """Moves the label into the best interval I, then reports any output within z of it E times as likely as any other.

    E is exp(epsilon).

    Attributes:
      name: Name on the command line and in mechanism files.
      z: Half the width of the neighborhood, in units of the label, > 0; None searches for the least expected loss.
      loss: Loss that the search for z minimizes; with Poisson loss, all outputs are positive.
      outside: Treatment of labels outside I: "clamp" moves them to the nearest end of I (3.12), "uniform" reports a
        uniform output (3.17).
      step: Distance of neighboring outputs, in units of the label; 2 z is rounded to a multiple of it. None makes at
        most about 500 outputs.
    """

    name: ClassVar[str] = "rp_with_prior"
    z: float | None = None
    loss: Loss = SQUARED
    outside: str = "clamp"
    step: float | None = None

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves for the interval and, where it is not given, z; the parameters of the randomizer state z and the step.

        Cost O(k m) for k labels and m outputs, for each z tried: about 60 where none is given. Raises ValueError if
        epsilon, z, the step or `outside` is out of range, there are too many outputs, labels are too close together for
        floats, or the loss is not defined for them.
        """
        check_epsilon(epsilon)
        self.loss.check(prior.labels)
        if self.outside not in ("clamp", "uniform"):
            raise ValueError(f"outside must be 'clamp' or 'uniform', not {self.outside!r}")
        for name, value in (("z", self.z), ("step", self.step)):
            if value is not None and not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        labels = prior.labels
        parameters = {"loss": self.loss.name, "outside": self.outside}
        if len(labels) == 1:
            return Randomizer(labels, labels, np.full((1, 1), TOTAL, np.uint64), epsilon, self.name, parameters)
        windows = self._best_windows(prior, epsilon) if self.z is None else self._windows(prior, epsilon, self.z)
        parameters |= {"z": windows.inside * windows.step / 2, "step": windows.step}
        weights = windows.weights(epsilon)
        return Randomizer(labels, windows.outputs, weights, epsilon, self.name, parameters)

    def _windows(self, prior: Prior, epsilon: float, z: float) -> _Windows:
        """Places the windows of one z."""
        edges, densities = label_cells(prior)
        if self.loss.nonnegative:
            edges, densities = _truncated(edges, densities, z)
        low, high, _ = best_interval(edges, densities, z, epsilon)
        return _place_windows(prior.labels, low, high, z, self.step, self.outside == "uniform")

    def _best_windows(self, prior: Prior, epsilon: float) -> _Windows:
        """Finds the windows of least expected loss over a geometric grid of z, refined twice around the best one."""
        span = float(prior.labels[-1] - prior.labels[0])
        largest = span
        if self.loss.nonnegative:
            # Outputs start at A1 - z, and A1 is at most the largest label: a larger z has no interval.
            largest = min(span, float(prior.labels[-1]) * 0.999)
        smallest = largest / 10**_DECADES
        if self.step is not None:
            # All z below half a step give the same neighborhood.
            smallest = min(max(smallest, self.step / 2), largest)
        tried: dict[float, tuple[float, _Windows]] = {}
        candidates = geomspace(smallest, largest, _COARSE)
        for _ in range(3):
            for z in candidates.tolist():
                if z not in tried:
                    windows = self._windows(prior, epsilon, z)
                    tried[z] = windows.expected_loss(prior, epsilon, self.loss), windows
            order = sorted(tried)
            best = min(order, key=lambda z: tried[z][0])
            place = order.index(best)
            candidates = geomspace(order[max(place - 1, 0)], order[min(place + 1, len(order) - 1)], _FINE)
        return tried[best][1]


@dataclass(frozen=True, eq=False)
class _Windows:
    """Equal cells, and every label's neighborhood among them.

    Attributes:
      outputs: Midpoints of the cells, shape (m,), ascending.
      step: Width of a cell.
      inside: Number of cells in a neighborhood.
      first: First cell of each label's neighborhood, shape (k,); -1 for a label that reports a uniform output.
    """

    outputs: np.ndarray
    step: float
    inside: int
    first: np.ndarray

    def weights(self, epsilon: float) -> np.ndarray:
        """Computes the integer weights, shape (k, m) uint64: rows sum to 2^62 exactly, columns are within exp(epsilon).

        A cell outside a neighborhood gets 2^62 / (E n + m - n), n the number of cells inside, rounded up; the cells
        inside share the rest evenly, to within a unit. Raises ValueError where 2^62 is too small for epsilon and m.
        """
        n, m = self.inside, len(self.outputs)
        ratio = exp_below(Fraction(epsilon))
        other = ceil(Fraction(TOTAL) / (n * ratio + m - n))
        # The average of the cells inside is within E times this weight. Where rounding up exceeds that, one more unit
        # outside suffices.
        if m > n and -(-(TOTAL - (m - n) * other) // n) > ratio * other:
            other += 1
        own = _split_evenly(TOTAL - (m - n) * other, n)
        if int(own[-1]) < other:
            raise ValueError(f"epsilon {epsilon:g} is too small for {m} outputs and weights of 2^62")
        weights = np.full((len(self.first), m), other, np.uint64)
        uniform = _split_evenly(TOTAL, m)
        for row, first in zip(weights, self.first.tolist(), strict=True):
            if first < 0:
                row[:] = uniform
            else:
                row[first : first + n] = own
        return weights

    def expected_loss(self, prior: Prior, epsilon: float, loss: Loss) -> float:
        """Computes the expected loss under the prior, before probabilities are rounded to integers."""
        n, m = self.inside, len(self.outputs)
        likely = np.flatnonzero(prior.weights)
        total = 0.0
        for part in np.array_split(likely, ceil(len(likely) * m / _CHUNK)):
            losses = loss.value(self.outputs[None, :], prior.labels[part, None])
            running = np.concatenate([np.zeros((len(part), 1)), np.cumsum(losses, axis=1)], axis=1)
            first, place = np.maximum(self.first[part], 0), np.arange(len(part))
            own = running[place, first + n] - running[place, first]
            decay = float(exp(-epsilon))
            means = (own + decay * (running[:, -1] - own)) / (n + decay * (m - n))
            total += dot(prior.weights[part], np.where(self.first[part] < 0, running[:, -1] / m, means))
        return total


def _split_evenly(total: int, count: int) -> np.ndarray:
    """Splits a total into parts that differ by at most one, the larger ones first; shape (count,) uint64."""
    part, rest = divmod(total, count)
    parts = np.full(count, part, np.uint64)
    parts[:rest] += np.uint64(1)
    return parts


def _place_windows(
    labels: np.ndarray, low: float, high: float, z: float, step: float | None, uniform: bool
) -> _Windows:
    """Places the cells for the interval [low, high], cut inwards to whole steps from one of its labels."""
    if step is None:
        finest = (high - low + 2 * z) / max(min(_DEFAULT_OUTPUTS, MAX_CELLS // len(labels)), 1)
        inside = max(floor(2 * z / finest + _SNAP), 1)
        step = 2 * z / inside
    else:
        inside = max(round(min(2 * z / step, 1e18)), 1)
    within = labels[(low <= labels) & (labels <= high)]
    anchor = float(within[len(within) // 2]) if len(within) else low
    before, after = (floor(min(length / step, 1e18) + _SNAP) for length in (anchor - low, high - anchor))
    count = before + after + inside
    if len(labels) * count > MAX_CELLS:
        raise ValueError(
            f"{len(labels)} labels times {count} outputs is more than {MAX_CELLS}: use a larger step, or a larger z"
        )
    # Neighborhood s is that of the point anchor + (s - before) step; its first cell is s.
    outputs = anchor + (np.arange(count) - before - (inside - 1) / 2) * step
    first = np.clip(np.rint((labels - anchor) / step) + before, 0, before + after).astype(np.intp)
    if uniform:
        first[(labels < low) | (labels > high)] = -1
    return _Windows(outputs, step, inside, first)


def label_cells(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Spreads the prior to a density, constant between midpoints of neighboring labels and 0 beyond the label range.

    The result is edges, shape (k + 1,), and densities, shape (k,), per unit of the label, for k >= 2 labels. Raises
    ValueError if two labels are too close together for a midpoint.
    """
    labels = prior.labels
    edges = np.concatenate([labels[:1], labels[:-1] + (labels[1:] - labels[:-1]) / 2, labels[-1:]])
    if len(labels) < 2 or np.any(edges[1:] <= edges[:-1]):
        raise ValueError("labels are too close together for rp_with_prior: there is no number between two of them")
    return edges, prior.weights / np.diff(edges)


def _truncated(edges: np.ndarray, densities: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """The density from `least` on. Raises ValueError when nothing of its range is left."""
    if edges[-1] <= least:
        raise ValueError(f"z {least:g} is too large for a loss that needs outputs >= 0: they start at A1 - z")
    kept = edges[1:] > least
    return np.append(np.maximum(edges[:-1][kept], least), edges[-1]), densities[kept]


def best_interval(edges: np.ndarray, densities: np.ndarray, z: float, epsilon: float) -> tuple[float, float, float]:
    """Finds the interval [A1, A2] of the largest probability that the label is inside and its output within z of it.

    That is (2 z / G) times the mass of [A1, A2], G = 2 z + (A2 - A1) / E, E = exp(epsilon) (Remark 3.4). Both ends are
    edges: for the largest ratio f of mass to G, mass - f G is linear within a cell and at most 0. Dinkelbach's
    iteration finds f in a few rounds of O(k).

    Edges, the ends of the cells, have shape (k + 1,), strictly ascending; densities have shape (k,), >= 0; z, half the
    width of the neighborhood, is > 0. The result is A1, A2 and the probability. Raises ValueError if epsilon is out of
    range or edges are not ascending.
    """
    check_epsilon(epsilon)
    if np.any(np.diff(edges) <= 0):
        raise ValueError("edges must be strictly ascending")
    mass = np.append(0.0, np.cumsum(densities * np.diff(edges)))
    lengths = (edges - edges[0]) * float(exp(-epsilon))
    low, high, best = 0, 0, 0.0
    while True:
        # The best start for each end: the sums are prefix sums less a constant cost per length.
        sums = mass - best * lengths
        lowest = np.minimum.accumulate(sums)
        end = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: end + 1]))
        ratio = (mass[end] - mass[start]) / (2 * z + lengths[end] - lengths[start])
        if not ratio > best:
            return float(edges[low]), float(edges[high]), float(2 * z * best)
        low, high, best = start, end, ratio
