"""Randomized response on bins: the optimal epsilon-DP randomizer for a prior and a loss.

Source: Ghazi et al. 2022, Algorithms 1 and 2; optimal among all epsilon-DP mechanisms by Theorem 5, for losses that
increase away from the label.

The cost of an interval [r, i] of labels is the least loss of one output t when the labels inside weigh E = exp(epsilon)
times their prior and those outside weigh their prior. For squared and Poisson loss, costs are merged from parts (means
and Bregman information), which never subtracts two large numbers; for absolute loss the weighted median is found in the
prior's prefix sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.budget import check_epsilon
from ..core.losses import SQUARED, Loss
from ..core.prior import Prior
from ..core.randomizer import Randomizer
from ..core.reproducible import dot, exp
from .randomized_response import randomized_response

MAX_LABELS = 1 << 14
"""Largest number of labels: the interval costs of more would take over 2 GB."""
# Rows of the interval costs that are compared at once.
_CHUNK = 256
# Interval costs that are computed at once: their arrays stay in the processor's caches.
_BLOCK_CELLS = 1 << 14


@dataclass(frozen=True)
class RROnBins:
    """Maps labels to bins, then runs randomized response over the outputs of the bins.

    Attributes:
      name: Name on the command line and in mechanism files.
      loss: Squared, absolute or Poisson log loss.
    """

    name: ClassVar[str] = "rr_on_bins"
    loss: Loss = SQUARED

    def solve(self, prior: Prior, epsilon: float) -> Randomizer:
        """Solves for the randomizer of least expected loss under the prior. Time O(k^2 d) for d bins, memory O(k^2).

        Raises ValueError if epsilon is out of range, the loss is not defined for the labels, or there are more than
        16,384 of them.
        """
        check_epsilon(epsilon)
        self.loss.check(prior.labels)
        if len(prior.labels) > MAX_LABELS:
            raise ValueError(f"{len(prior.labels)} labels; at most {MAX_LABELS}: use a larger label step")
        starts = best_partition(interval_costs(prior, epsilon, self.loss), epsilon)
        ratio = float(exp(epsilon))
        outputs = np.array([_best_output(prior, ratio, self.loss, r, i) for r, i in _intervals(starts, prior)])
        bin_of_label = np.searchsorted(starts, np.arange(len(prior.labels)), side="right") - 1
        return randomized_response(prior.labels, outputs, bin_of_label, epsilon, self.name, {"loss": self.loss.name})


def _intervals(starts: np.ndarray, prior: Prior) -> list[tuple[int, int]]:
    ends = np.append(starts[1:], len(prior.labels)) - 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def interval_costs(prior: Prior, epsilon: float, loss: Loss) -> np.ndarray:
    """Computes costs[i, r] = min over t of the weighted divergence of t from the labels, E times heavier inside [r, i].

    E is exp(epsilon). The divergence is the loss above its least value for each label, so costs are never negative.
    Labels are scaled to [0, 1] for squared and absolute loss, since only comparisons of costs matter. Costs have shape
    (k, k), float64, and are infinite for r > i.
    """
    labels = prior.labels
    if not loss.nonnegative:
        labels = (labels - labels[0]) / max(labels[-1] - labels[0], np.finfo(float).tiny)
    return (_mean_costs if loss.mean_optimal else _median_costs)(labels, prior.weights, float(exp(epsilon)), loss)


@dataclass
class _Cluster:
    """Weighted labels, summarized by mass, mean and total divergence from the mean. Arrays merge elementwise."""

    mass: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    def scaled(self, factor: float) -> _Cluster:
        """Multiplies all weights by a factor."""
        return _Cluster(self.mass * factor, self.mean, self.spread * factor)

    def merged(self, other: _Cluster, loss: Loss) -> _Cluster:
        """Merges two clusters.

        Divergences from a mean add up with the divergence of the means (Banerjee et al. 2005).
        """
        mass = self.mass + other.mass
        share = other.mass / np.where(mass > 0, mass, 1.0)
        mean = self.mean + (other.mean - self.mean) * share
        means = np.empty((2, *mean.shape))
        means[0], means[1] = self.mean, other.mean
        apart = loss.divergence(mean, means)
        moved = _weighted(self.mass, apart[0]) + _weighted(other.mass, apart[1])
        return _Cluster(mass, mean, self.spread + other.spread + moved)

    def __getitem__(self, index: slice | tuple[slice, ...] | np.ndarray) -> _Cluster:
        return _Cluster(self.mass[index], self.mean[index], self.spread[index])

    def __setitem__(self, index: slice | tuple[slice | int, ...], other: _Cluster) -> None:
        self.mass[index], self.mean[index], self.spread[index] = other.mass, other.mean, other.spread


def _weighted(mass: np.ndarray, divergence: np.ndarray) -> np.ndarray:
    """mass * divergence, and 0 where there is no mass, even if the divergence is infinite there."""
    return mass * np.where(mass > 0, divergence, 0.0)


def _empty(shape: tuple[int, ...]) -> _Cluster:
    return _Cluster(np.zeros(shape), np.zeros(shape), np.zeros(shape))


def _prefix_clusters(labels: np.ndarray, weights: np.ndarray, loss: Loss) -> _Cluster:
    """Clusters of the first j labels and of the last j labels, j = 0..k; shape (2, k + 1) each."""
    k = len(labels)
    result, none = _empty((2, k + 1)), np.zeros((2, 1))
    ends = np.stack([labels, labels[::-1]]), np.stack([weights, weights[::-1]])
    for j in range(k):
        label, weight = (each[:, j : j + 1] for each in ends)
        result[:, j + 1 : j + 2] = result[:, j : j + 1].merged(_Cluster(weight, label, none), loss)
    return result


def _mean_costs(labels: np.ndarray, weights: np.ndarray, ratio: float, loss: Loss) -> np.ndarray:
    k = len(labels)
    prefixes = _prefix_clusters(labels, weights, loss)
    before, after = prefixes[:1, :k], prefixes[1:, k - 1 :: -1]
    costs = np.full((k, k), np.inf)
    # Labels r..i for a fixed i, and for the rows i of a block.
    inside, none = _Cluster(np.zeros(k), labels.copy(), np.zeros(k)), np.zeros(1)
    rows = max(_BLOCK_CELLS // k, 1)
    for start in range(0, k, rows):
        stop = min(start + rows, k)
        block = _empty((stop - start, stop))
        for i in range(start, stop):
            # Scalars broadcast: all intervals gain the same label.
            grown = inside[: i + 1].merged(_Cluster(weights[i], labels[i], none), loss)
            inside[: i + 1] = grown
            block[i - start, : i + 1] = grown
        right = after[:, start:stop]
        outside = before[:, :stop].merged(_Cluster(right.mass.T, right.mean.T, right.spread.T), loss)
        possible = np.arange(stop) <= np.arange(start, stop)[:, None]
        costs[start:stop, :stop][possible] = block.scaled(ratio).merged(outside, loss).spread[possible]
    return costs


def _median_costs(labels: np.ndarray, weights: np.ndarray, ratio: float, loss: Loss) -> np.ndarray:
    k = len(labels)
    mass = np.append(0.0, np.cumsum(weights))
    moment = np.append(0.0, np.cumsum(weights * labels))
    costs = np.full((k, k), np.inf)
    for i in range(k):
        r = np.arange(i + 1)
        median = _median_indices(mass, ratio, r, i)
        t = labels[median]
        below = t * mass[median + 1] - moment[median + 1]
        above = (moment[-1] - moment[median + 1]) - t * (mass[-1] - mass[median + 1])
        inside = _distance_inside(labels[: i + 1], weights[: i + 1], t, np.clip(median + 1, r, i + 1))
        costs[i, : i + 1] = below + above + (ratio - 1) * inside
    return np.maximum(costs, 0.0)


def _distance_inside(labels: np.ndarray, weights: np.ndarray, t: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Sum of p_y |t_r - y| over the labels from each r to the last one. cut: (j,), the first label above t_r.

    Sums run from the last label and are relative to it, so that short intervals, whose weight is multiplied by E, keep
    their significant digits.
    """
    back = labels[-1] - labels
    mass = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    moment = np.append(np.cumsum((weights * back)[::-1])[::-1], 0.0)
    from_t = labels[-1] - t
    above = mass[cut] * from_t - moment[cut]
    below = (moment[:-1] - moment[cut]) - from_t * (mass[:-1] - mass[cut])
    return above + below


def _median_indices(mass: np.ndarray, ratio: float, r: np.ndarray, i: int) -> np.ndarray:
    """Index of the weighted median when labels r..i weigh ratio times their prior. r: (j,); returns (j,)."""
    extra = ratio - 1
    half = (mass[-1] + extra * (mass[i + 1] - mass[r])) / 2
    left = half
    within = (half + extra * mass[r]) / ratio
    right = half - extra * (mass[i + 1] - mass[r])
    target = np.where(mass[r] >= left, left, np.where(mass[i + 1] >= within, within, right))
    # The first label at which the cumulative weight reaches half.
    return np.clip(np.searchsorted(mass[1:], target, side="left"), 0, len(mass) - 2)


def _best_output(prior: Prior, ratio: float, loss: Loss, r: int, i: int) -> float:
    weights = prior.weights.copy()
    weights[r : i + 1] *= ratio
    if not loss.mean_optimal:
        cumulative = np.cumsum(weights)
        return float(prior.labels[np.searchsorted(cumulative, cumulative[-1] / 2)])
    # Rounding must not move the mean of the first or last labels out of the label range.
    low, high = prior.labels[0], prior.labels[-1]
    return float(min(max(dot(weights / weights.sum(), prior.labels), low), high))


def best_partition(costs: np.ndarray, epsilon: float) -> np.ndarray:
    """Finds the bins that minimize (sum of interval costs) / (d - 1 + E), over every number d of bins.

    The loop over d stops early. The cost of an interval is at least that of any label in it, so d bins cost at least
    the sum of the d smallest costs of single labels. That bound, divided by d - 1 + E, increases with d; once it is
    above the best value, more bins cannot help. (It sharpens d <= best (E - 1) / (B - best), where B is the least loss
    of one output: every single label costs B.)

    The costs are those of `interval_costs`, and E is exp(epsilon). The result has the first labels of the d bins, shape
    (d,), ascending integers, the first 0.
    """
    k = len(costs)
    ratio = float(exp(epsilon))
    at_least = np.cumsum(np.sort(np.diagonal(costs))) / (np.arange(k) + ratio)
    # sums[j][i]: the least cost of covering labels 0..i with j + 1 bins.
    sums = [costs[:, 0].copy()]
    best, bins = sums[0][-1] / ratio, 1
    for d in range(2, k + 1):
        if at_least[d - 1] >= best:
            break
        sums.append(_one_more_bin(costs, sums[-1]))
        value = sums[-1][-1] / (d - 1 + ratio)
        if value < best:
            best, bins = value, d
    return _backtrack(costs, sums[:bins])


def _one_more_bin(costs: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """min over r of previous[r - 1] + costs[i, r] for every i; in chunks, to keep the memory of one cost matrix."""
    shifted = np.append(np.inf, previous[:-1])
    result = np.empty_like(previous)
    for start in range(0, len(costs), _CHUNK):
        stop = min(start + _CHUNK, len(costs))
        result[start:stop] = (costs[start:stop, :stop] + shifted[:stop]).min(axis=1)
    return result


def _backtrack(costs: np.ndarray, sums: list[np.ndarray]) -> np.ndarray:
    """Recovers the first labels of the bins from the least costs of every number of bins."""
    starts = []
    i = len(costs) - 1
    for previous in reversed(sums[:-1]):
        r = int(np.argmin(np.append(np.inf, previous[:i]) + costs[i, : i + 1]))
        starts.append(r)
        i = r - 1
    return np.array([0, *reversed(starts)])
