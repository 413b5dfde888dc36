"""Attack on a privacy unit: all labels of a unit are changed at once, and the bound on its records is tried.

`check_sampler` runs the checks of all modules that apply to a mechanism of labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from labeldp.mechanisms.core.budget import round_up
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.release.unit_bound import SINGLE, UnitBound

from tests.privacy.center_checks import around_center, check_changed_centers
from tests.privacy.findings import Finding, Setting, output_codes
from tests.privacy.release_function import BlackBox, KeyedRelease, ReleaseFunction, SamplerError
from tests.privacy.sampler_checks import (
    RECORDS,
    bound_statistic,
    check_channel,
    check_histogram,
    check_independence,
    histogram_runs,
    two_labels,
)

from .claims import Claim

# Attacked units have this many times as many records as are allowed.
_TIMES = 3
# Records of one call of the sampler, which bounds memory.
_MOST_RECORDS = 1 << 20
# With fewer pairs of units, a statistic says nothing; with more, no more.
_LEAST_PAIRS, _MOST_PAIRS = 200, 1 << 18
_KEYS, _UNITS, _RECORDS_OF_UNITS = 4, 50, 20_000
_STEPS = 6
# Largest log-ratio of one output, for mechanisms of approximate DP, where it may be infinite.
_MOST_SCORE = 50.0


def check_units(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Attacks units with three times as many records as are allowed.

    The claims have a unit, and at least two labels. Yields the findings "bound of units", "labels of a unit" and, if a
    prior is released, "whole unit". Raises SamplerError if the sampler fails.
    """
    unit = claim.unit
    assert isinstance(unit, UnitBound)
    yield _check_bound(box, unit, setting)
    pairs = min(setting.draws // (2 * _TIMES * unit.max_records), _MOST_PAIRS)
    if pairs < _LEAST_PAIRS:
        least = 2 * _TIMES * unit.max_records * _LEAST_PAIRS
        yield Finding("labels of a unit", True, f"not attacked: give --draws of at least {least:,} for such units")
        return
    yield _check_labels(box, claim, unit, pairs, setting)
    if box.release(np.zeros(1, np.int64), np.arange(1), next(setting.keys("probe"))).prior is not None:
        yield _check_whole(box, claim, unit, setting)


def _check_bound(box: BlackBox, unit: UnitBound, setting: Setting) -> Finding:
    """Counts the released records of units, and changes all labels, which must not change the records."""
    size, keys, labels = _TIMES * unit.max_records, setting.keys("bound"), len(box.domain)
    number = max(min(_UNITS, _RECORDS_OF_UNITS // size), 2)
    owners = np.arange(number * size) % number
    ids = np.arange(len(owners))
    # Labels of all sizes in each unit.
    indices = ids // number % labels
    for _ in range(_KEYS):
        key = next(keys)
        released = ~np.isnan(box.release(indices, ids, key, units=owners).labels)
        changed = ~np.isnan(box.release(labels - 1 - indices, ids, key, units=owners).labels)
        most = int(np.bincount(owners[released], minlength=number).max())
        if most > unit.max_records:
            text = f"{most:,} of {size:,} records of a unit are released, {unit.max_records:,} are allowed"
            return Finding("bound of units", False, text)
        if not np.array_equal(released, changed):
            return Finding("bound of units", False, "which records of a unit are released depends on their labels")
    text = f"at most {unit.max_records:,} of {size:,} records of a unit are released, the same ones for changed labels"
    return Finding("bound of units", True, text)


def _check_labels(box: BlackBox, claim: Claim, unit: UnitBound, pairs: int, setting: Setting) -> Finding:
    """All labels of a unit are one label or another; the observer adds up the log-ratios of its released labels."""
    ends, size, keys = two_labels(claim.randomizer), _TIMES * unit.max_records, setting.keys("labels of a unit")
    scores = _scores(claim.randomizer, ends)
    chunk = max(_MOST_RECORDS // (2 * size), 1)
    values = []
    for start in range(0, pairs, chunk):
        units = 2 * min(chunk, pairs - start)
        owners = np.arange(units * size) % units
        released = box.release(ends[owners % 2], np.arange(len(owners)), next(keys), units=owners).labels
        found = scores[output_codes(claim.randomizer.outputs, released)]
        values.append(np.bincount(owners, found, units).reshape(-1, 2))
    about = f"all labels of a unit of {size:,} records changed, {pairs:,} pairs of units"
    epsilon, delta = claim.of_unit
    steps = _steps(np.concatenate(values), epsilon)
    return bound_statistic("labels of a unit", steps, epsilon, delta, setting.alpha, about)


def _check_whole(box: BlackBox, claim: Claim, unit: UnitBound, setting: Setting) -> Finding:
    """As `_check_labels`, with the histogram: the observer adds the log-ratio of two of its counts."""
    labels, size, keys = len(claim.randomizer.labels), _TIMES * unit.max_records, setting.keys("whole unit")
    runs = max(histogram_runs(labels, setting) * RECORDS // (RECORDS + size), _LEAST_PAIRS)
    ends = np.array([0, labels - 1])
    scores = _scores(claim.randomizer, ends)
    others = np.repeat(ends, RECORDS // 2)
    owners = np.concatenate([np.zeros(size, np.int64), np.arange(1, RECORDS + 1)])
    values = np.empty((runs, 2))
    for run in range(runs):
        key = next(keys)
        for side, end in enumerate(ends):
            indices = np.concatenate([np.full(size, end), others])
            released = box.release(indices, np.arange(len(indices)), key, units=owners)
            codes = output_codes(claim.randomizer.outputs, released.labels[:size])
            prior = released.prior
            if prior is None or not np.all(np.isfinite(prior)):
                raise SamplerError("the sampler must release a prior of finite weights in each run, or in none")
            counts = prior[list(box.ends)]
            if box.residuals is None:
                counts = counts * (RECORDS + unit.max_records)
            values[run, side] = scores[codes].sum() + _histogram_score(counts, size, claim.prior_epsilon)
    about = f"all labels of a unit of {size:,} records changed, with the histogram, {runs:,} runs"
    epsilon, delta = claim.of_unit
    epsilon = round_up(Fraction(epsilon) + unit.total(claim.prior_epsilon))
    return bound_statistic("whole unit", _steps(values, epsilon), epsilon, delta, setting.alpha, about)


def _steps(scores: np.ndarray, epsilon: float) -> np.ndarray:
    """Rounds log-ratios to steps of a part of the claim: an event of few distinct values is selected more reliably."""
    return np.rint(scores * (_STEPS / epsilon))


def _scores(randomizer: Randomizer, ends: np.ndarray) -> np.ndarray:
    """Log-ratio of the probabilities of each output for two labels, and 0 for all other values, shape (m + 1,)."""
    with np.errstate(divide="ignore"):
        first, second = np.log(randomizer.probabilities()[ends])
    ratios = np.nan_to_num(first - second, nan=0.0, posinf=_MOST_SCORE, neginf=-_MOST_SCORE)
    return np.append(np.clip(ratios, -_MOST_SCORE, _MOST_SCORE), 0.0)


def _histogram_score(counts: np.ndarray, size: int, epsilon: float) -> float:
    """Log-ratio of two counts with Laplace noise of scale 2 / epsilon: `size` records are in the first, or the last."""
    low, high = RECORDS // 2, RECORDS // 2 + size
    first, last = (abs(count - low) - abs(count - high) for count in counts.tolist())
    return epsilon / 2 * (first - last)


def check_sampler(claim: Claim, setting: Setting, function: ReleaseFunction | None = None) -> dict[str, Finding]:
    """Attacks a sampler of labels, by default the keyed path, with all checks that apply to its claims, by name."""
    keyed = KeyedRelease(claim.randomizer, claim.prior_epsilon, claim.residuals, claim.unit, claim.classes)
    function = function or keyed
    box, attacked = BlackBox(function, claim.randomizer.labels, has_units=claim.unit != SINGLE), claim
    if claim.residuals is not None:
        box, attacked = around_center(claim, function, claim.residuals)
    found = [*check_channel(box, attacked, setting), *check_independence(box, attacked, setting)]
    found += check_histogram(box, attacked, setting)
    if claim.unit != SINGLE:
        found += check_units(box, attacked, setting)
    if claim.residuals is not None:
        found += check_changed_centers(box, claim, setting)
    return {finding.check: finding for finding in found}
