"""Attack on a center of classes: its noised parts as black boxes, their whole, and the draws of classes.

Two datasets differ in g records, which move from one class to another: within g times epsilon, by group privacy. g is
chosen so that this is about 2, where an event tells the most about epsilon. The observer adds up the log-likelihood
ratio of what was released, under the noise as it is stated: for raw vectors s and s' and the scale t of their noise, of
an output o

    (|o - s'|_1 - |o - s|_1) / (2 t).

An event of it is selected on a part of the runs, and its probabilities are bounded on the rest (`bound_statistic`). The
two classes are those with the least noise in some runs of their own. Of sums and cells, two rows are drawn under one
key, one of which records move as much as any row may; their difference is attacked as well, because noise that rows
share cancels out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from labeldp.mechanisms.center.class_center import PROBABILITY_UNIT, draw_classes
from labeldp.mechanisms.center.class_model import center_fingerprint
from labeldp.mechanisms.noise.keyed_words import integer_identities, words
from labeldp.mechanisms.noise.noised_part import NoisedPart

from tests.privacy.findings import Finding, Setting
from tests.privacy.release_function import ID_COLUMN
from tests.privacy.sampler_checks import bound_statistic
from tests.privacy.sampling_bounds import misfits

from .claims import Claim

CENTER_CHECKS = 7
"""Largest number of checks of a center."""

_BASE = 100  # records of each class in the raw vectors
_GROUP_EPSILON = 2.0
# A run takes as long as so many draws of labels for each number that it releases.
_DRAWS_PER_NUMBER = 20
_LEAST_RUNS, _MOST_RUNS = 400, 100_000
_PROBES = 100
_STEPS, _ROUNDING = 4, 1e-9
_RECORDS = 16  # records of the sample whose draws are compared with their probabilities
_MOST_NUMBERS = 1 << 22


@dataclass(frozen=True)
class _Target:
    """A row and two classes of a part, between which records move."""

    row: int
    first: int
    second: int

    def moved(self, raw: np.ndarray, size: int) -> np.ndarray:
        """Moves a number from the first class to the second."""
        changed = raw.copy()
        changed[self.row, self.first] -= size
        changed[self.row, self.second] += size
        return changed


def check_center(
    claim: Claim,
    setting: Setting,
    parts: Sequence[NoisedPart] | None = None,
    draws: Callable[[np.ndarray, np.ndarray], np.ndarray] = draw_classes,
) -> Iterator[Finding]:
    """Attacks the center of a claim, which has one: its parts, or others in their place, and its draws.

    Yields the findings "probabilities" and one of the name of each part; for a part of several rows, "two" of them; if
    there are several parts, "whole center".
    """
    assert claim.center is not None
    yield _check_draws(claim.center, setting, draws)
    parts = parts or claim.center.parts
    targets = [_least_noise(part, setting) for part in parts]
    for part, target in zip(parts, targets, strict=True):
        yield from _check_part(part, target, setting)
    if len(parts) > 1:
        yield _check_whole(parts, targets, setting)


def _raw(part: NoisedPart) -> np.ndarray:
    """Raw vectors with as much of each class, shape (1 or 2, K): the rows that are attacked together."""
    return np.full((min(part.rows, 2), part.width), _BASE * int(part.moved))


def _draw(part: NoisedPart, raw: np.ndarray, runs: int, keys: Iterator[bytes]) -> np.ndarray:
    """Noised vectors under so many keys, shape (runs, rows, K), float64."""
    return np.array([part.add(raw, part.epsilon, next(keys)) for _ in range(runs)], np.float64)


def _scores(part: NoisedPart, noised: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Log-likelihood ratios of noised vectors for two raw ones; arrays of shape (..., K) give shape (...)."""
    distances = np.abs(noised - second).sum(axis=-1) - np.abs(noised - first).sum(axis=-1)
    return distances * (part.epsilon / (2 * int(part.moved)))


def _records(epsilon: float) -> int:
    """Number g of records that two datasets differ in."""
    return max(round(_GROUP_EPSILON / epsilon), 1)


def _runs(part: NoisedPart, setting: Setting) -> int:
    return min(max(setting.draws // (_DRAWS_PER_NUMBER * _raw(part).size), _LEAST_RUNS), _MOST_RUNS)


def _least_noise(part: NoisedPart, setting: Setting) -> _Target:
    """The row and its two classes with the least noise in some runs."""
    raw = _raw(part)
    sizes = np.abs(_draw(part, raw, _PROBES, setting.keys(f"noise of {part.name}")) - raw).mean(axis=0)
    row = int(np.sort(sizes, axis=1)[:, :2].sum(axis=1).argmin())
    first, second = np.argsort(sizes[row], kind="stable")[:2].tolist()
    return _Target(row, first, second)


def _check_part(part: NoisedPart, target: _Target, setting: Setting) -> Iterator[Finding]:
    """Draws a part for two datasets; with several rows, looks at the difference of two of them as well."""
    records, keys, raw = _records(part.epsilon), setting.keys(part.name), _raw(part)
    sides = (raw, target.moved(raw, records * int(part.moved)))
    runs = _runs(part, setting)
    noised = [_draw(part, side, runs, keys) for side in sides]
    scores = np.stack([_scores(part, each, *sides).sum(axis=1) for each in noised], axis=1)
    yield _finding(part.name, scores, part.epsilon, records, setting)
    if len(raw) > 1:
        other = 1 - target.row
        apart = [each[:, target.row] - each[:, other] + raw[other] for each in noised]
        own = (sides[0][target.row], sides[1][target.row])
        scores = np.stack([_scores(part, each, *own) for each in apart], axis=1)
        yield _finding(f"two {part.name.split()[-1]}", scores, part.epsilon, records, setting)


def _check_whole(parts: Sequence[NoisedPart], targets: list[_Target], setting: Setting) -> Finding:
    """Draws all parts for two datasets, and adds up the log-likelihood ratios of what an observer sees."""
    whole = sum(part.epsilon for part in parts)
    runs, records = min(_runs(part, setting) for part in parts), _records(whole)
    scores = np.zeros((runs, 2))
    for part, own in zip(parts, targets, strict=True):
        # A record has one class in all parts: that of the cells, or of the last part that there is.
        target = _Target(own.row, targets[-1].first, targets[-1].second)
        keys, raw = setting.keys(f"whole {part.name}"), _raw(part)
        sides = (raw, target.moved(raw, records * int(part.moved)))
        drawn = [_scores(part, _draw(part, side, runs, keys), *sides).sum(axis=1) for side in sides]
        scores += np.stack(drawn, axis=1)
    return _finding("whole center", scores, whole, records, setting)


def _finding(check: str, scores: np.ndarray, epsilon: float, records: int, setting: Setting) -> Finding:
    """Bounds epsilon of one record from log-likelihood ratios, shape (runs, 2), of datasets that differ in several."""
    # Few distinct values, of which the largest and the smallest ratio are values of their own.
    steps = np.trunc(scores * (_STEPS * (1 + _ROUNDING) / (records * epsilon)))
    found = bound_statistic(check, steps, records * epsilon, 0.0, setting.alpha, "")
    bound = (found.epsilon or 0.0) / records
    moved = "one record moved" if records == 1 else f"{records:,} records moved"
    text = f"epsilon at least {bound:.6g}, claimed {epsilon:.6g}; {moved} to another class, {len(scores):,} runs"
    return Finding(check, found.passed, text, bound)


def _check_draws(center: Any, setting: Setting, draws: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Finding:
    """Compares the frequencies of drawn classes with the probabilities of some records of the sample."""
    probabilities = center.sample_probabilities()
    order = np.lexsort(probabilities.T)
    rows = probabilities[order[np.linspace(0, len(order) - 1, min(_RECORDS, len(order))).astype(np.intp)]]
    classes, purpose, keys = rows.shape[1], center_fingerprint(center).encode(), setting.keys("draws of classes")
    counts = np.zeros(rows.shape, np.int64)
    step = max(_MOST_NUMBERS // classes, 1)
    for start in range(0, setting.draws, step):
        ids = np.arange(start, min(start + step, setting.draws))
        places = ids % len(rows)
        drawn = draws(rows[places], words(next(keys), purpose, integer_identities(ID_COLUMN, ids)))
        counts += np.bincount(places * classes + drawn, minlength=counts.size).reshape(counts.shape)
    wrong = misfits(counts, rows / PROBABILITY_UNIT, setting.alpha)
    tested = f"{counts.size:,} probabilities of {len(rows)} records, {setting.draws:,} draws"
    if len(wrong):
        return Finding("probabilities", False, f"{len(wrong):,} differ from those of the center; {tested}")
    return Finding("probabilities", True, f"draws are as those of the center; {tested}")
