"""Checks of every sampler: its channel from labels to released labels, its histogram, the independence of its noise.

Channel and histogram give an empirical lower bound on epsilon. The noise of two releases, or of two records, must be
independent: each check of it looks at pairs of released labels. With independent noise, one label of a pair changes the
joint distribution of both outputs by at most epsilon. If both are drawn with the same random word, equal labels always
have equal outputs and different labels do not, so no epsilon holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from labeldp.mechanisms.core.randomizer import Randomizer

from tests.privacy.findings import Claim, Finding, Setting, output_codes
from tests.privacy.release_function import BlackBox
from tests.privacy.sampling_bounds import Event, epsilon_at_least, misfits, select_event

# Records of one call of the sampler, which bounds memory.
_MOST_RECORDS = 1 << 20

# Records of a release in the checks of histograms.
_RECORDS = 200
_BINS = 64
# A run takes as long as so many draws from the channel, and as so many more for each cell of the histogram.
_DRAWS_PER_RUN, _DRAWS_PER_CELL = 500, 5
_LEAST_RUNS, _MOST_RUNS = 200, 20_000

# Outputs are put into at most this many groups; whether two outputs are equal is kept as well.
_GROUPS = 8
# Largest number of pairs of released labels in a check.
_MOST_PAIRS = 1 << 18
# The labels of a pair, as indices of two labels a and b: (a, a), (a, b), (b, a), (b, b). Neighbors differ in one label.
_FIRST, _SECOND = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
_NEIGHBORS = [(kind, other) for kind in range(4) for other in range(4) if kind ^ other in (1, 2)]


def check_channel(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Compares sampled frequencies with the claimed probabilities, and bounds epsilon from below.

    The first half of the draws is spread over all labels. It tests the probabilities, and selects two labels and a set
    of outputs. The second half draws these two labels only, and gives the bound.

    Yields the findings "probabilities" and "channel".
    """
    randomizer = claim.randomizer
    labels, outputs = len(randomizer.labels), len(randomizer.outputs)
    counts = _count_outputs(box, claim, np.arange(labels), setting, "select")
    wrong = misfits(counts, np.pad(randomizer.probabilities(), ((0, 0), (0, 1))), setting.alpha)
    tested = f"{counts.size - labels:,} probabilities, {setting.draws:,} draws"
    if unlisted := int(counts[:, outputs].sum()):
        yield Finding(
            "probabilities", False, f"{unlisted:,} released labels are not outputs of the mechanism; {tested}"
        )
    elif len(wrong):
        label, output = randomizer.labels[wrong[0, 0]], randomizer.outputs[wrong[0, 1]]
        first = f"first label {label:g} to {output:g}"
        yield Finding("probabilities", False, f"{len(wrong):,} differ from the file's, {first}; {tested}")
    else:
        yield Finding("probabilities", True, f"as in the file; {tested}")
    if labels == 1:
        yield Finding("channel", True, "epsilon at least 0: there is only one label", 0.0)
        return
    event = select_event(counts, setting.draws // 2, setting.alpha, claim.delta)
    pair = np.array([event.first, event.second])
    yield _bound_finding(
        "channel",
        event,
        _count_outputs(box, claim, pair, setting, "bound"),
        claim.epsilon,
        claim.delta,
        setting.alpha,
        f"label {randomizer.labels[event.first]:g} against {randomizer.labels[event.second]:g}, "
        f"{int(event.outcomes[:outputs].sum())} of {outputs} outputs",
    )


def _bound_finding(
    check: str, event: Event, counts: np.ndarray, epsilon: float, delta: float, alpha: float, about: str
) -> Finding:
    """Bounds epsilon by fresh draws and compares the bound with the claim.

    The event was selected on other draws. `counts`, shape (2, m), are those of the outcomes under its first and second
    input. `alpha` is the probability of a false alarm, `about` a description of the event.
    """
    inside, draws = counts[:, event.outcomes].sum(axis=1).tolist(), counts.sum(axis=1).tolist()
    bound = epsilon_at_least((inside[0], draws[0]), (inside[1], draws[1]), alpha, delta)
    claimed = f"claimed {epsilon:.6g}" + (f" with delta {delta:.3g}" if delta else "")
    return Finding(check, bound <= epsilon, f"epsilon at least {bound:.6g}, {claimed}; {about}", bound)


def _count_outputs(box: BlackBox, claim: Claim, inputs: np.ndarray, setting: Setting, purpose: str) -> np.ndarray:
    """Counts released labels, one row for each input label; the last column counts values that are not outputs."""
    outputs = claim.randomizer.outputs
    counts = np.zeros((len(inputs), len(outputs) + 1), np.int64)
    keys = setting.keys(purpose)
    for start in range(0, setting.draws, _MOST_RECORDS):
        ids = np.arange(start, min(start + _MOST_RECORDS, setting.draws))
        rows = ids % len(inputs)
        released = box.release(inputs[rows], ids, next(keys))[0]
        cells = rows * counts.shape[1] + output_codes(outputs, released)
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    return counts


def check_histogram(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Releases neighboring inputs under many keys and bounds the epsilon of the released prior.

    Under each key there are three releases. Half of the records of `base` have the first label of the domain, half the
    last. `swapped` has the same histogram: two records swapped their labels. `neighbor` differs from it in one label.
    The priors of `swapped` and `neighbor` bound epsilon. So do their differences from the prior of `base`, which the
    observer of both releases sees: with the same noise for changed data, they are those of the raw histograms.

    Yields the findings "histogram" and "changed histogram"; none if no prior is released, or the domain has one label.
    """
    labels = len(claim.randomizer.labels)
    if labels == 1 or box.release(np.zeros(1, np.int64), np.arange(1), next(setting.keys("probe")))[1] is None:
        return
    runs = _histogram_runs(labels, setting)
    base = np.repeat([0, labels - 1], _RECORDS // 2)
    swapped = base.copy()
    swapped[[0, -1]] = base[[-1, 0]]
    neighbor = base.copy()
    neighbor[0] = base[-1]
    keys = setting.keys("histogram")
    shares = np.empty((runs, 3))
    for run in range(runs):
        key = next(keys)
        shares[run] = [_difference(box, indices, key) for indices in (base, swapped, neighbor)]
    yield _bound_epsilon("histogram", shares[:, 1:], claim, setting)
    yield _bound_epsilon("changed histogram", shares[:, 1:] - shares[:, :1], claim, setting)


def _histogram_runs(labels: int, setting: Setting) -> int:
    """Number of runs, each under a key of its own, in which the histogram of a sampler's labels is released."""
    return min(max(setting.draws // (_DRAWS_PER_RUN + _DRAWS_PER_CELL * labels), _LEAST_RUNS), _MOST_RUNS)


def _difference(box: BlackBox, indices: np.ndarray, key: bytes) -> float:
    """The released weight of the first label, minus that of the last."""
    _, prior = box.release(indices, np.arange(_RECORDS), key)
    assert prior is not None
    return float(prior[0] - prior[-1])


def _bound_epsilon(check: str, values: np.ndarray, claim: Claim, setting: Setting) -> Finding:
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
    return _bound_finding(check, event, bound[[event.first, event.second]], epsilon, delta, alpha, about)


class _Pairs(NamedTuple):
    """Pairs of released labels, each with the labels that it was released for, as an index into _FIRST and _SECOND."""

    kinds: np.ndarray
    first: np.ndarray
    second: np.ndarray


_Source = Callable[[BlackBox, np.ndarray, int, Iterator[bytes]], _Pairs]


def check_independence(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Checks releases of changed data, releases under another key, and records with the same id.

    The domain has at least two labels. Yields the findings "changed data", "other key" and "duplicate ids".
    """
    yield _check_pairs("changed data", _changed_data, box, claim, setting)
    yield _check_pairs("other key", _other_key, box, claim, setting)
    try:
        yield _check_pairs("duplicate ids", _duplicate_ids, box, claim, setting)
    except _RefusedIds:
        yield Finding("duplicate ids", True, "two records with the same id are refused")


class _RefusedIds(Exception):
    """The sampler refused records with the same id."""


def _changed_data(box: BlackBox, ends: np.ndarray, count: int, keys: Iterator[bytes]) -> _Pairs:
    """Two releases under one key. Half of the labels change; their histogram does not."""
    ids, key = np.arange(count), next(keys)
    kinds = ids % 4
    first, second = (box.release(ends[side[kinds]], ids, key)[0] for side in (_FIRST, _SECOND))
    return _Pairs(kinds, first, second)


def _other_key(box: BlackBox, ends: np.ndarray, count: int, keys: Iterator[bytes]) -> _Pairs:
    """A release, and one that an adversary computes under another key for guessed labels.

    All records have one label, so that the guess a for a release of a is the whole input: noise that is bound to the
    input and not to the key is then the same.
    """
    ids = np.arange(count // 4)
    released, guessed = next(keys), next(keys)
    first = [box.release(np.full(len(ids), end), ids, released)[0] for end in ends]
    second = [box.release(np.full(len(ids), end), ids, guessed)[0] for end in ends]
    return _Pairs(
        np.repeat(np.arange(4), len(ids)),
        np.concatenate([first[end] for end in _FIRST]),
        np.concatenate([second[end] for end in _SECOND]),
    )


def _duplicate_ids(box: BlackBox, ends: np.ndarray, count: int, keys: Iterator[bytes]) -> _Pairs:
    """One release in which each id occurs twice."""
    kinds = np.arange(count) % 4
    labels = np.stack([ends[_FIRST[kinds]], ends[_SECOND[kinds]]], axis=1).ravel()
    try:
        released = box.release(labels, np.repeat(np.arange(count), 2), next(keys))[0]
    except ValueError:
        raise _RefusedIds from None
    return _Pairs(kinds, released[0::2], released[1::2])


def _check_pairs(check: str, source: _Source, box: BlackBox, claim: Claim, setting: Setting) -> Finding:
    """Selects an event on the pairs of one run, and bounds epsilon on those of another."""
    outputs, count = claim.randomizer.outputs, min(setting.draws // 4, _MOST_PAIRS)
    ends, keys = _two_labels(claim.randomizer), setting.keys(check)
    select, bound = (_count_pairs(source(box, ends, count, keys), outputs) for _ in range(2))
    event = select_event(select, count // 4, setting.alpha, claim.delta, _NEIGHBORS)
    counts = bound[[event.first, event.second]]
    about = f"pairs of released labels, {2 * count:,} drawn"
    return _bound_finding(check, event, counts, claim.epsilon, claim.delta, setting.alpha, about)


def _two_labels(randomizer: Randomizer) -> np.ndarray:
    """Indices of the two labels whose output distributions differ the most from each other, in total variation.

    The randomizer has at least two labels; the result has shape (2,).
    """
    probabilities = randomizer.probabilities()
    # From the first label, then from the one that is farthest from it.
    far = int(np.abs(probabilities - probabilities[0]).sum(axis=1).argmax())
    farthest = int(np.abs(probabilities - probabilities[far]).sum(axis=1).argmax())
    return np.array([far, farthest]) if far != farthest else np.array([0, len(probabilities) - 1])


def _count_pairs(pairs: _Pairs, outputs: np.ndarray) -> np.ndarray:
    """Counts pairs of output groups by kind: shape (4, cells)."""
    groups = min(_GROUPS, len(outputs) + 1)
    one, two = (output_codes(outputs, values) * groups // (len(outputs) + 1) for values in (pairs.first, pairs.second))
    cells = ((pairs.kinds * groups + one) * groups + two) * 2 + (pairs.first == pairs.second)
    return np.bincount(cells, minlength=8 * groups**2).reshape(4, -1)
