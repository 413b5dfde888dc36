"""Attack on a mechanism of residuals around a center: the channel from labels, and checks of changed centers.

Residuals of one record around one center are differences of labels. So the checks of labels attack the channel from the
labels of the domain to released labels, for records that all have one center. Further checks change the centers alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.release.unit_bound import SINGLE

from tests.privacy.findings import Finding, Setting, output_codes
from tests.privacy.release_function import BlackBox, ReleaseFunction, SamplerError
from tests.privacy.sampler_checks import MOST_PAIRS, RECORDS, bound_epsilon, bound_finding, histogram_runs, two_labels
from tests.privacy.sampling_bounds import select_event

from .claims import Claim

# Outputs are put into at most this many groups; whether two outputs are equal is kept as well.
_GROUPS = 16


def around_center(claim: Claim, function: ReleaseFunction, residuals: ResidualDomain) -> tuple[BlackBox, Claim]:
    """Makes the sampler of labels around one center, and the claims about it, for a mechanism of residuals.

    Its labels are those with a residual in the range, and one more on each side, which is clipped. `residuals` are
    those of the public label domain.
    """
    first = residuals.place(claim.randomizer.labels) - residuals.most
    last = first + len(claim.randomizer.labels) - 1
    low, high = max(0, -first), min(residuals.most, residuals.most - last)
    center = (low + high) // 2 if low <= high else residuals.most // 2
    reached = np.arange(max(center + first - 1, 0), min(center + last + 1, residuals.most) + 1)
    box = BlackBox(function, residuals.labels[reached], residuals, center, claim.unit != SINGLE)
    randomizer = _channel(claim.randomizer, residuals, box.domain, center)
    return box, Claim(randomizer, Prior(box.domain, np.ones(len(reached))), claim.prior_epsilon, None, claim.unit)


def _channel(randomizer: Randomizer, residuals: ResidualDomain, labels: np.ndarray, center: int) -> Randomizer:
    """Randomizer of some labels of the domain around the center of an index."""
    first = residuals.place(randomizer.labels) - residuals.most
    steps = np.searchsorted(residuals.labels, labels) - center
    rows = randomizer.weights[np.clip(steps - first, 0, len(randomizer.labels) - 1)]
    outputs = residuals.labels[center] + randomizer.outputs
    return Randomizer(labels, outputs, rows, randomizer.epsilon, randomizer.mechanism, delta=randomizer.delta)


def check_changed_centers(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Releases the same labels around two centers under one key, and bounds the epsilon of both releases together.

    Their noise must be independent. The two releases together then have twice the epsilon of one; with the same noise,
    an observer sees two outputs of one draw, and the exact difference of two histograms.

    Yields the findings "changed centers" and, only if a prior is released, "their histogram". The sampler is made by
    `around_center`. Raises SamplerError if it fails.
    """
    yield _check_labels(box, claim, setting)
    if box.release(np.zeros(1, np.int64), np.arange(1), next(setting.keys("probe"))).prior is not None:
        yield _check_histogram(box, claim, setting)


def _check_labels(box: BlackBox, claim: Claim, setting: Setting) -> Finding:
    """Half of the records have one label, half another, in both releases."""
    check, residuals = "changed centers", box.residuals
    assert residuals is not None
    # A neighboring center moves each residual by a step: another row of the mechanism, if there is one.
    centers = box.center, box.center + 1 if box.center < residuals.most else box.center - 1
    count, keys = min(setting.draws // 4, MOST_PAIRS), setting.keys(check)
    ends = two_labels(_channel(claim.randomizer, residuals, box.domain, box.center))
    outputs = claim.randomizer.outputs
    groups = min(_GROUPS, len(outputs) + 1)
    kinds = np.arange(count) % 2

    def counts() -> np.ndarray:
        key, codes = next(keys), []
        for center in centers:
            released = box.release(ends[kinds], np.arange(count), key, center).labels
            # The sums as a release computes them: two outputs may become one.
            codes.append(output_codes(residuals.labels[center] + outputs, released))
        one, two = (code * groups // (len(outputs) + 1) for code in codes)
        cells = ((kinds * groups + one) * groups + two) * 2 + (codes[0] == codes[1])
        return np.bincount(cells, minlength=4 * groups**2).reshape(2, -1)

    select, bound = counts(), counts()
    delta = min(2 * claim.delta, 1.0)
    event = select_event(select, count // 2, setting.alpha, delta)
    about = f"pairs of labels released around two centers, {2 * count:,} drawn"
    fresh = bound[[event.first, event.second]]
    return bound_finding(check, event, fresh, 2 * claim.epsilon, delta, setting.alpha, about)


def _check_histogram(box: BlackBox, claim: Claim, setting: Setting) -> Finding:
    """The released counts around one center, minus those around another, in two neighboring inputs."""
    center = _telling_center(box)
    base = np.repeat([0, len(box.domain) - 1], RECORDS // 2)
    neighbor = base.copy()
    neighbor[0] = base[-1]
    keys, ids = setting.keys("their histogram"), np.arange(RECORDS)

    def difference(indices: np.ndarray, key: bytes) -> float:
        one, two = (box.release(indices, ids, key, around).prior for around in (None, center))
        if one is None or two is None or not np.all(np.isfinite(one - two)):
            raise SamplerError("the sampler must release a prior of finite weights in each run, or in none")
        return float(((one - two) * _marks(len(one))).sum())

    runs = histogram_runs(len(box.domain), setting)
    used = [next(keys) for _ in range(runs)]
    values = np.array([[difference(indices, key) for indices in (base, neighbor)] for key in used])
    doubled = dataclasses.replace(claim, prior_epsilon=2 * claim.prior_epsilon)
    return bound_epsilon("their histogram", values, doubled, setting)


def _marks(cells: int) -> np.ndarray:
    """A weight for each cell, by which differences of histograms are told apart; shape (cells,), integers."""
    return np.arange(cells) ** 2


def _telling_center(box: BlackBox) -> int:
    """Another center, around which a change of one label does not move the same marks."""
    residuals = box.residuals
    assert residuals is not None
    ends = np.searchsorted(residuals.labels, box.domain[[0, -1]])
    marks = _marks(residuals.cells)

    def moved(center: int) -> int:
        return int(np.diff(marks[residuals.cells_of(ends - center)])[0])

    others = [center for center in range(residuals.most + 1) if moved(center) != moved(box.center)]
    return min(others, key=lambda center: abs(center - box.center))
