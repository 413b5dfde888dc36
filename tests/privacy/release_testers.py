"""Testers by discriminators: a classifier learns to tell the releases of two neighbors apart, and bounds epsilon.

The families of DP-Auditorium (Kong, Munoz Medina, Ribero, Syed 2024): a search over neighboring data sets, a trained
discriminator, and two statistics of its scores on releases that it has not seen.

- Hockey stick: P(S) <= exp(epsilon) Q(S) for the set S of releases that score above a threshold. Threshold and
  direction are selected on a part of the releases, and Clopper-Pearson intervals on the others bound epsilon.
- Renyi: the variational bound with the scores as log-ratios (`divergence_bounds`).

Each release has a fresh test key. The discriminator sees what an observer sees: noised numbers and released labels of
the records that changed; besides the whole release, each part by itself, of which a break is easier to tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from labeldp.mechanisms.center.linear_center import LinearCenter
from labeldp.pipelines.spec.machine import one_thread_for_fits

from tests.privacy.divergence_bounds import LogRatios, epsilon_of_renyi
from tests.privacy.findings import Finding, Setting
from tests.privacy.sampler_checks import bound_statistic
from tests.privacy.whole_releases import LABELS, Case, Column, Records, WholeRelease, ledger_folder

WHOLE = "whole"
"""All parts of a release together."""
Mapper = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]
# Share of the releases that train the discriminator, their largest number, and of the others those that select.
_TRAINED, _MOST_TRAINED, _SELECTED = 0.4, 4000, 0.25
_ORDERS = (1.5, 2.0, 4.0, 8.0)
# Bins of scores.
_BINS = 8
# Neighbors that are compared, and the share of the releases for each of them.
_CANDIDATES, _PILOT = 3, 0.05
_LEAST_PILOT = 40
# Releases of one piece of work.
_PIECE = 50
_FLU = ("none", "flu")
_RR = {"mechanism": "rr", "center": "linear", "center_features": ["a"], "epsilon": 2}
TESTED_PARTS = 10
"""Findings of `TESTED`: the whole and its parts of each kind."""
TESTED = (
    Case("linear center", (Column("weeks", 4, _RR),), 120),
    Case("classes", (Column("illness", 1, {"epsilon": 2}, _FLU),), 60, has_features=False),
    Case("units", (Column("illness", 1, {"epsilon": 3}, _FLU),), 80, has_features=False, most_of_unit=2),
)
"""Small releases of which many can be made."""


@dataclass(frozen=True)
class _Piece:
    """Releases of one data set, to be made with the keys given, and the records whose labels an observer looks at."""

    case: Case
    records: Records
    rows: np.ndarray
    keys: tuple[bytes, ...]


@dataclass(frozen=True)
class Samples:
    """Numbers of releases of two neighbors by part, shape (releases, numbers) each, and the claims of the parts."""

    parts: dict[str, tuple[np.ndarray, np.ndarray]]
    claims: dict[str, float]


def check_testers(
    cases: tuple[Case, ...], releases: int, setting: Setting, mapper: Mapper, progress: Callable[[str], None]
) -> Iterator[Finding]:
    """Attacks each kind of release by discriminators; needs scikit-learn.

    `releases` is the number of releases of each of two neighbors; `mapper` maps a function over a list, in its order.
    Yields a finding for the whole of each kind, and for each part.
    """
    for case in cases:
        progress(f"searching neighbors: {case.name}")
        rng = np.random.default_rng(setting.seed)
        base, neighbors = case.pairs(case.make(rng), rng)
        keys = setting.keys(f"testers {case.name}")
        pilot = max(int(_PILOT * releases), _LEAST_PILOT)
        candidates = list(islice(neighbors, _CANDIDATES))
        found = [_separation(draw_samples(case, base, each, pilot, keys, mapper)) for each in candidates]
        neighbor = candidates[int(np.argmax(found))]
        progress(f"making {2 * releases:,} releases: {case.name}")
        samples = draw_samples(case, base, neighbor, releases, keys, mapper)
        for part in samples.parts:
            yield bound_part(case.name, part, *samples.parts[part], samples.claims[part], setting)


def draw_samples(
    case: Case, base: Records, neighbor: Records, releases: int, keys: Iterator[bytes], mapper: Mapper
) -> Samples:
    """Makes releases of two neighbors, each under a key of its own."""
    rows = case.rows_of(base, int(np.flatnonzero(base.labels[0] != neighbor.labels[0])[0]))
    pieces = [
        _Piece(case, records, rows, tuple(islice(keys, min(_PIECE, releases - start))))
        for records in (base, neighbor)
        for start in range(0, releases, _PIECE)
    ]
    made = list(mapper(_release_piece, pieces))
    claims = made[0][1]
    half = len(made) // 2
    sides = made[:half], made[half:]

    def numbers(part: str) -> tuple[np.ndarray, np.ndarray]:
        return _both(lambda side: np.concatenate([found[part] for found, _ in sides[side]]))

    parts = {part: numbers(part) for part in made[0][0]}
    whole = _both(lambda side: np.concatenate([both[side] for both in parts.values()], axis=1))
    return Samples({WHOLE: whole, **parts}, claims)


def _both(of_side: Callable[[int], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return of_side(0), of_side(1)


def _release_piece(piece: _Piece) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Numbers of releases by part, shape (releases, numbers) each, and the claimed epsilon of each part."""
    found: dict[str, list[np.ndarray]] = {}
    claims: dict[str, float] = {}
    with ledger_folder() as folder:
        for key in piece.keys:
            release = piece.case.release(piece.records, key, folder)
            for part, numbers in observed(release, piece.rows).items():
                found.setdefault(part, []).append(numbers)
            claims = {WHOLE: float(release.claim)} | {part: float(each) for part, each in release.parts(0).items()}
    return {part: np.stack(numbers) for part, numbers in found.items()}, claims


def observed(release: WholeRelease, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Numbers of a release of one column that an observer looks at, by part; labels are those of the given rows.

    A label that is randomized around a center is observed as its difference from the center.
    """
    mechanism, found = release.privatizers[0].mechanism_, {}
    drawing = mechanism.drawing
    linear = drawing.made
    if isinstance(linear, LinearCenter) and linear.sums:
        found["center sums"] = np.array(linear.sums, np.float64)
    noised = drawing.histogram
    assert noised is not None
    found["histogram"] = np.array(noised.counts, np.float64)
    labels, center = release.labels[0][rows], release.privatizers[0].center_
    labels = labels if center is None else labels - center[rows]
    # Records beyond the bound of their unit have no released label, and all units have as many that have one.
    found[LABELS] = labels[~np.isnan(labels)]
    return found


def _separation(samples: Samples) -> float:
    """Distance of the numbers of the whole releases of two neighbors: squared differences, in variances."""
    first, second = samples.parts[WHOLE]
    variances = first.var(axis=0) + second.var(axis=0)
    squares = (first.mean(axis=0) - second.mean(axis=0)) ** 2
    # A number that never changes tells most if it differs.
    return float(np.divide(squares, variances, out=np.where(squares > 0, np.inf, 0.0), where=variances > 0).sum())


@one_thread_for_fits()
def _scores(train: np.ndarray, other: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
    """Trains a discriminator on two samples; gives its log-ratios for the rest."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=4, learning_rate=0.1, min_samples_leaf=20, early_stopping=False, random_state=0
    )
    model.fit(np.concatenate([train, other]), np.repeat([1, 0], [len(train), len(other)]))
    return [model.decision_function(each) for each in rest]


def bound_part(case: str, part: str, first: np.ndarray, second: np.ndarray, claim: float, setting: Setting) -> Finding:
    """Bounds the epsilon of a part from samples of two neighbors, shape (releases, numbers) each."""
    cut = min(int(_TRAINED * len(first)), _MOST_TRAINED)
    one, two = _scores(first[:cut], second[:cut], first[cut:], second[cut:])
    values, alpha = np.stack([one, two], axis=1), setting.alpha / 2
    stick = bound_statistic(part, values, claim, 0.0, alpha, "").epsilon or 0.0
    renyi = renyi_epsilon(one, two, claim, alpha)
    text = f"epsilon at least {stick:.6g} by the hockey stick, {renyi:.6g} by Renyi; claimed {claim:.6g}"
    return Finding(f"{case}, {part}", max(stick, renyi) <= claim, text, max(stick, renyi))


def renyi_epsilon(first: np.ndarray, second: np.ndarray, claim: float, alpha: float) -> float:
    """Lower bound on epsilon from scores of releases of two neighbors, shape (n,) each.

    A part of them selects bins of scores, their log-ratios, the order and which neighbor is P. Log-ratios are clipped
    to twice the claim, so that a larger epsilon can still be told.
    """
    cut = int(_SELECTED * len(first))
    edges = np.unique(np.quantile(np.concatenate([first[:cut], second[:cut]]), np.linspace(0, 1, _BINS + 1)[1:-1]))
    select, bound = (
        [np.bincount(np.searchsorted(edges, side, side="right"), minlength=len(edges) + 1) for side in part]
        for part in ((first[:cut], second[:cut]), (first[cut:], second[cut:]))
    )
    best, chosen = -1.0, None
    for (p, q), order in itertools.product(((0, 1), (1, 0)), _ORDERS):
        ratios, bins = LogRatios.of_counts(select[p], select[q], 2 * claim)
        # Selected as if there were as many draws as for the bound.
        scale = len(first) // max(cut, 1)
        found = epsilon_of_renyi(
            order, ratios.renyi_at_least(scale * select[p][bins], scale * select[q][bins], order, alpha)
        )
        if found > best:
            best, chosen = found, (p, q, order, ratios, bins)
    assert chosen is not None
    p, q, order, ratios, bins = chosen
    return epsilon_of_renyi(order, ratios.renyi_at_least(bound[p][bins], bound[q][bins], order, alpha))
