"""RPWithPrior: a uniform draw from the label's neighbourhood, or from the rest of an interval that the prior chooses.

Source: Liu and Huang, "RPWithPrior: Label Differential Privacy in Regression", Lemmas 3.3 and 3.5, Remark 3.4 and
Algorithms 1 to 3. There the outputs are continuous; here they are the midpoints of equal cells, and a neighbourhood is
a whole number of cells, the same for every label, so that the privacy is exact in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, floor, isfinite
from typing import ClassVar

import numpy as np

from ..core.alias_table import MAX_CELLS, TOTAL
from ..core.budget import check_epsilon
from ..core.exact_bounds import exp_below
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..noise.discrete_laplace import ByteStream, discrete_laplace

_POINTS = 512
"""About so many outputs where no step is given."""


_CHUNK = 1 << 20


# The search for z: over three decades below the label range, then twice more finely around the best one. The loss
# jumps where the interval does, so what is found is within a percent or so of the best.
_DECADES = 3


_COARSE = 49


_FINE = 7


# A distance this near to a whole number of steps, in steps, is one.
_SNAP = 1e-9


_LOCAL_STEPS = 1 << 12


@dataclass(frozen=True)
class RPWithPrior:
    """Reports an output within z of the label, moved into the best interval I, E times as likely as any other output.

    z: half the width of the neighbourhood; None takes the one of least expected loss under the prior. loss: what that
    minimises; for Poisson loss, all outputs are positive. outside: what labels outside I do: "clamp" treats them as
    I's nearest end (3.12), "uniform" reports a uniform output (3.17). step: the distance of neighbouring outputs, of
    which 2 z is then the nearest multiple; None makes at most some 500 outputs.
    """

    name: ClassVar[str] = "rp_with_prior"
    z: float | None = None
    loss: Loss = SQUARED
    outside: str = "clamp"
    step: float | None = None

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Cost O(k m) for k labels and m outputs, for each of the some 60 z tried where none is given.

        Raises ValueError for an epsilon out of range, a z or step that is not a positive number or makes too many
        outputs, an unknown outside, labels too close together for floats, or labels that the loss is not defined for.
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
        edges, densities = label_cells(prior)
        if self.loss.nonnegative:
            edges, densities = _cut(edges, densities, z)
        low, high, _ = best_interval(edges, densities, z, epsilon)
        return _placed(prior.labels, low, high, z, self.step, self.outside == "uniform")

    def _best_windows(self, prior: Prior, epsilon: float) -> _Windows:
        """The windows of least expected loss over a geometric grid of z, refined twice around the best one."""
        span = float(prior.labels[-1] - prior.labels[0])
        largest = span
        if self.loss.nonnegative:
            # Outputs start at A1 - z, and A1 is a label's: a larger z has no interval.
            largest = min(span, float(prior.labels[-1]) * 0.999)
        smallest = largest * 10.0**-_DECADES
        if self.step is not None:
            # Below half a step all z are one.
            smallest = min(max(smallest, self.step / 2), largest)
        tried: dict[float, tuple[float, _Windows]] = {}
        candidates = np.geomspace(smallest, largest, _COARSE)
        for _ in range(3):
            for z in candidates.tolist():
                if z not in tried:
                    windows = self._windows(prior, epsilon, z)
                    tried[z] = windows.expected_loss(prior, epsilon, self.loss), windows
            order = sorted(tried)
            best = min(order, key=lambda z: tried[z][0])
            place = order.index(best)
            candidates = np.geomspace(order[max(place - 1, 0)], order[min(place + 1, len(order) - 1)], _FINE)
        return tried[best][1]


@dataclass(frozen=True, eq=False)
class _Windows:
    """Equal cells, and every label's neighbourhood among them.

    outputs: (m,) ascending, the cells' midpoints. step: a cell's width. inside: the cells in a neighbourhood.
    first: (k,) the first cell of each label's neighbourhood; -1 for a label that reports a uniform output.
    """

    outputs: np.ndarray
    step: float
    inside: int
    first: np.ndarray

    def weights(self, epsilon: float) -> np.ndarray:
        """(k, m) uint64: rows sum to 2^62 exactly, columns are within exp(epsilon).

        A cell outside a neighbourhood gets 2^62 / (E n + m - n), n the cells inside, rounded up; the cells inside share
        the rest evenly, to within a unit. Raises ValueError where 2^62 is too small for epsilon and m.
        """
        n, m = self.inside, len(self.outputs)
        ratio = exp_below(Fraction(epsilon))
        other = ceil(Fraction(TOTAL) / (n * ratio + m - n))
        # The cells inside are within E of this on average; where rounding some of them up would be too much, one unit
        # more outside is enough.
        if m > n and -(-(TOTAL - (m - n) * other) // n) > ratio * other:
            other += 1
        own = _shared(TOTAL - (m - n) * other, n)
        if int(own[-1]) < other:
            raise ValueError(f"epsilon {epsilon:g} is too small for {m} outputs and weights of 2^62")
        weights = np.full((len(self.first), m), other, np.uint64)
        uniform = _shared(TOTAL, m)
        for row, first in zip(weights, self.first.tolist(), strict=True):
            if first < 0:
                row[:] = uniform
            else:
                row[first : first + n] = own
        return weights

    def expected_loss(self, prior: Prior, epsilon: float, loss: Loss) -> float:
        """The mean loss under the prior of the weights, before they are rounded to integers."""
        n, m = self.inside, len(self.outputs)
        likely = np.flatnonzero(prior.weights)
        total = 0.0
        for part in np.array_split(likely, ceil(len(likely) * m / _CHUNK)):
            losses = loss.value(self.outputs[None, :], prior.labels[part, None])
            running = np.concatenate([np.zeros((len(part), 1)), np.cumsum(losses, axis=1)], axis=1)
            first, place = np.maximum(self.first[part], 0), np.arange(len(part))
            own = running[place, first + n] - running[place, first]
            decay = exp(-epsilon)
            means = (own + decay * (running[:, -1] - own)) / (n + decay * (m - n))
            total += float(prior.weights[part] @ np.where(self.first[part] < 0, running[:, -1] / m, means))
        return total


def _shared(total: int, count: int) -> np.ndarray:
    """total in count parts that differ by one at most, the larger ones first. Returns (count,) uint64."""
    part, rest = divmod(total, count)
    parts = np.full(count, part, np.uint64)
    parts[:rest] += np.uint64(1)
    return parts


def _placed(labels: np.ndarray, low: float, high: float, z: float, step: float | None, uniform: bool) -> _Windows:
    """The cells for the interval [low, high], cut inwards to whole steps from one of its labels."""
    if step is None:
        finest = (high - low + 2 * z) / max(min(_POINTS, MAX_CELLS // len(labels)), 1)
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
    # Place s is the neighbourhood of the point anchor + (s - before) step.
    outputs = anchor + (np.arange(count) - before - (inside - 1) / 2) * step
    first = np.clip(np.rint((labels - anchor) / step) + before, 0, before + after).astype(np.intp)
    if uniform:
        first[(labels < low) | (labels > high)] = -1
    return _Windows(outputs, step, inside, first)


def label_cells(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """The prior as a density: constant between the midpoints of neighbouring labels, and 0 beyond the domain.

    Returns edges (k + 1,) and densities (k,), in units of 1 / label, for k >= 2 labels. Raises ValueError where two
    labels are too close together for a midpoint.
    """
    labels = prior.labels
    edges = np.concatenate([labels[:1], labels[:-1] + (labels[1:] - labels[:-1]) / 2, labels[-1:]])
    if len(labels) < 2 or np.any(edges[1:] <= edges[:-1]):
        raise ValueError("labels are too close together for rp_with_prior: there is no number between two of them")
    return edges, prior.weights / np.diff(edges)


def _cut(edges: np.ndarray, densities: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """The density from `least` on. Raises ValueError when nothing of its range is left."""
    if edges[-1] <= least:
        raise ValueError(f"z {least:g} is too large for a loss that needs outputs >= 0: they start at A1 - z")
    kept = edges[1:] > least
    return np.append(np.maximum(edges[:-1][kept], least), edges[-1]), densities[kept]


def best_interval(edges: np.ndarray, densities: np.ndarray, z: float, epsilon: float) -> tuple[float, float, float]:
    """The interval [A1, A2] that maximises F = 2 z mass / G, G = 2 z + (A2 - A1) / E: Lemma 3.5 and Algorithm 1.

    F is the probability, under the density, that the label is in the interval and its output within z of it. For the
    best ratio f of mass to G, mass - f G is at most 0 everywhere; it is linear in A1 and in A2 within cells, so
    it is also 0 at edges: the stationary points of Lemma 3.5 never beat them. Dinkelbach's iteration (1967) finds
    f: the best pair of edges for a guess, in O(k), is the next guess. It grows until it is exact, in a few rounds.

    edges: (k + 1,) strictly ascending. densities: (k,) >= 0, mass per width. z > 0.
    Returns (A1, A2, F), edges both; the first edge twice and 0 when there is no mass.
    Raises ValueError for edges that do not ascend, or an epsilon out of range.
    """
    check_epsilon(epsilon)
    if np.any(np.diff(edges) <= 0):
        raise ValueError("edges must be strictly ascending")
    mass = np.append(0.0, np.cumsum(densities * np.diff(edges)))
    lengths = (edges - edges[0]) * exp(-epsilon)
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


def local_laplace_histogram(
    labels: np.ndarray, label_indices: np.ndarray, epsilon: float, noise_key: bytes, width: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A density from labels that each got its own noise: Algorithm 3, under local DP with epsilon.

    Each label is rounded to one of 4,097 points over the domain and gets exact discrete Laplace noise there. For the
    same epsilon this is far less accurate than a noisy histogram (`noisy_prior`), which adds noise to the counts of
    many labels: it is for a prior that nobody may be trusted to count. Its epsilon adds to the randomizer's.

    labels: (k,) the public domain, k >= 2. label_indices: (n,) which label each record carries, n >= 1. noise_key: 32
    bytes; the same key and records give the same noise. width: of the bins; None is the noisy labels' standard
    deviation. Returns edges (b + 1,) and densities (b,), count / (n width) for each bin, for `best_interval` and
    `histogram_prior`. Raises ValueError for no records, one label, or a bad epsilon or width.
    """
    check_epsilon(epsilon)
    if len(labels) < 2 or len(label_indices) < 1:
        raise ValueError("a local histogram needs at least two labels and one record")
    if width is not None and not (width > 0 and isfinite(width)):
        raise ValueError(f"width must be a positive number, not {width!r}")
    span = float(labels[-1] - labels[0])
    places = np.rint((labels - labels[0]) / span * _LOCAL_STEPS).astype(np.int64)
    stream = ByteStream(noise_key, b"local prior")
    noise = discrete_laplace(stream, _LOCAL_STEPS / Fraction(epsilon), len(label_indices))
    noisy = labels[0] + (places[label_indices] + noise) * (span / _LOCAL_STEPS)
    # From here on it is post-processing of what each label has already released.
    low, high, mean = float(noisy.min()), float(noisy.max()), float(noisy.mean())
    if low == high:
        low, high = low - span / _LOCAL_STEPS, high + span / _LOCAL_STEPS
    width = width or float(noisy.std()) or span
    nodes = mean + np.arange(floor((low - mean) / width) + 1, ceil((high - mean) / width)) * width
    edges = np.concatenate([[low], nodes[(low < nodes) & (nodes < high)], [high]])
    return edges, np.histogram(noisy, edges)[0] / len(noisy) / np.diff(edges)


def histogram_prior(labels: np.ndarray, edges: np.ndarray, densities: np.ndarray) -> Prior:
    """The prior of a density: each label gets the mass that is nearer to it than to any other label.

    labels: (k,). edges, densities: as from `local_laplace_histogram`. Returns a prior over the labels.
    """
    mass = np.append(0.0, np.cumsum(densities * np.diff(edges)))
    middles = labels[:-1] + (labels[1:] - labels[:-1]) / 2
    below = np.interp(middles, edges, mass)
    return Prior(labels, np.maximum(np.diff(np.concatenate([[0.0], below, mass[-1:]])), 0.0))
