"""Checks that the noise of two releases, or of two records, is independent where it must be.

Each check looks at pairs of released labels. With independent noise, one label of a pair changes the joint distribution
of both outputs by at most epsilon. If both are drawn with the same random word, equal labels always have equal outputs
and different labels do not, so no epsilon holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...mechanisms.analysis.privacy_attacks import select_event
from ...mechanisms.core.randomizer import Randomizer
from .channel_checks import bound_finding
from .findings import Claim, Finding, Setting, output_codes
from .release_function import BlackBox

# Outputs are put into at most this many groups; whether two outputs are equal is kept as well.
_GROUPS = 8
MOST_PAIRS = 1 << 18
"""Largest number of pairs of released labels in a check."""
# The labels of a pair, as indices of two labels a and b: (a, a), (a, b), (b, a), (b, b). Neighbors differ in one label.
_FIRST, _SECOND = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
_NEIGHBORS = [(kind, other) for kind in range(4) for other in range(4) if kind ^ other in (1, 2)]


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
    first, second = (box.release(ends[side[kinds]], ids, key).labels for side in (_FIRST, _SECOND))
    return _Pairs(kinds, first, second)


def _other_key(box: BlackBox, ends: np.ndarray, count: int, keys: Iterator[bytes]) -> _Pairs:
    """A release, and one that an adversary computes under another key for guessed labels.

    All records have one label, so that the guess a for a release of a is the whole input: noise that is bound to the
    input and not to the key is then the same.
    """
    ids = np.arange(count // 4)
    released, guessed = next(keys), next(keys)
    first = [box.release(np.full(len(ids), end), ids, released).labels for end in ends]
    second = [box.release(np.full(len(ids), end), ids, guessed).labels for end in ends]
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
        released = box.try_release(labels, np.repeat(np.arange(count), 2), next(keys)).labels
    except ValueError:
        raise _RefusedIds from None
    return _Pairs(kinds, released[0::2], released[1::2])


def _check_pairs(check: str, source: _Source, box: BlackBox, claim: Claim, setting: Setting) -> Finding:
    """Selects an event on the pairs of one run, and bounds epsilon on those of another."""
    outputs, count = claim.randomizer.outputs, min(setting.draws // 4, MOST_PAIRS)
    ends, keys = two_labels(claim.randomizer), setting.keys(check)
    select, bound = (_count_pairs(source(box, ends, count, keys), outputs) for _ in range(2))
    event = select_event(select, count // 4, setting.alpha, claim.delta, _NEIGHBORS)
    counts = bound[[event.first, event.second]]
    about = f"pairs of released labels, {2 * count:,} drawn"
    return bound_finding(check, event, counts, claim.epsilon, claim.delta, setting.alpha, about)


def two_labels(randomizer: Randomizer) -> np.ndarray:
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
