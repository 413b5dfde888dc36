"""Checks of the released histogram: its noise, and that the noise is fresh for changed data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...mechanisms.analysis.privacy_attacks import select_event
from .channel_checks import bound_finding
from .findings import Claim, Finding, Setting
from .release_function import BlackBox, SamplerError

RECORDS = 200
"""Number of records of a release in the checks of histograms."""

_BINS = 64
# A run takes as long as so many draws from the channel, and as so many more for each cell of the histogram.
_DRAWS_PER_RUN, _DRAWS_PER_CELL = 500, 5
_LEAST_RUNS, _MOST_RUNS = 200, 20_000


def check_histogram(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Releases neighboring inputs under many keys and bounds the epsilon of the released prior.

    Under each key there are three releases. Half of the records of `base` have the first label of the domain, half the
    last. `swapped` has the same histogram: two records swapped their labels. `neighbor` differs from it in one label.
    The priors of `swapped` and `neighbor` bound epsilon. So do their differences from the prior of `base`, which the
    observer of both releases sees: with the same noise for changed data, they are those of the raw histograms.

    Yields the findings "histogram" and "changed histogram"; none if no prior is released, or the domain has one label.
    Raises SamplerError if only some releases have a prior.
    """
    labels = len(claim.randomizer.labels)
    if labels == 1 or box.release(np.zeros(1, np.int64), np.arange(1), next(setting.keys("probe"))).prior is None:
        return
    runs = histogram_runs(labels, setting)
    base = np.repeat([0, labels - 1], RECORDS // 2)
    swapped = base.copy()
    swapped[[0, -1]] = base[[-1, 0]]
    neighbor = base.copy()
    neighbor[0] = base[-1]
    keys = setting.keys("histogram")
    shares = np.empty((runs, 3))
    for run in range(runs):
        key = next(keys)
        shares[run] = [_difference(box, indices, key) for indices in (base, swapped, neighbor)]
    yield bound_epsilon("histogram", shares[:, 1:], claim, setting)
    yield bound_epsilon("changed histogram", shares[:, 1:] - shares[:, :1], claim, setting)


def histogram_runs(labels: int, setting: Setting) -> int:
    """Number of runs, each under a key of its own, in which the histogram of a sampler's labels is released."""
    return min(max(setting.draws // (_DRAWS_PER_RUN + _DRAWS_PER_CELL * labels), _LEAST_RUNS), _MOST_RUNS)


def _difference(box: BlackBox, indices: np.ndarray, key: bytes) -> float:
    """The released weight of the first label, minus that of the last."""
    prior = box.release(indices, np.arange(RECORDS), key).prior
    if prior is None or not np.all(np.isfinite(prior)):
        raise SamplerError("the sampler must release a prior of finite weights in each run, or in none")
    first, last = box.ends
    return float(prior[first] - prior[last])


def bound_epsilon(check: str, values: np.ndarray, claim: Claim, setting: Setting) -> Finding:
    """Bounds epsilon from a statistic of two neighboring inputs; a quarter of the runs selects.

    `values` are the statistic of each input in each run, shape (runs, 2), float64.
    """
    about = f"difference of two weights of the prior, {len(values):,} runs"
    return bound_statistic(check, values, claim.prior_epsilon, 0.0, setting.alpha, about)


def bound_statistic(check: str, values: np.ndarray, epsilon: float, delta: float, alpha: float, about: str) -> Finding:
    """Bounds epsilon from a statistic of two inputs; a quarter of the runs selects an event.

    `values` are the statistic of each input in each run, shape (runs, 2), float64; `epsilon` and `delta` are claimed.
    `alpha` is the probability of a false alarm, `about` a description of the statistic.
    """
    selecting = len(values) // 4
    edges = np.unique(np.quantile(values[:selecting], np.linspace(0, 1, _BINS), method="nearest"))
    # Odd cells are the edges themselves, so that values without noise are kept apart.
    cells = np.searchsorted(edges, values, side="left") + np.searchsorted(edges, values, side="right")
    size = 2 * len(edges) + 1
    select, bound = (
        np.stack([np.bincount(part[:, side], minlength=size) for side in range(2)])
        for part in (cells[:selecting], cells[selecting:])
    )
    event = select_event(select, len(values) - selecting, alpha, delta)
    return bound_finding(check, event, bound[[event.first, event.second]], epsilon, delta, alpha, about)
