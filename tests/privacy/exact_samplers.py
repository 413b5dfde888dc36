"""Samplers of noise as black boxes: exact probabilities of a row of a randomizer, and fit of the noise of sums.

A sampler of labels is a function of a row and a word of 64 bits, so its probabilities can be counted instead of
estimated. Words are divided by their upper bits into blocks; within a block the output changes at most once, from the
one of its first word to the one of its last, at a word that bisection finds. Random words then test that description.

Noise of sums takes any number of words, so its distribution is tested by draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise import discrete_laplace, sum_zero_laplace
from labeldp.mechanisms.noise.discrete_laplace import ByteStream
from scipy.special import binom

from tests.privacy.noise_recorder import LAPLACE
from tests.privacy.sampling_bounds import misfits

_WORD_BITS = 64
# Random words that test the description of a row.
_PROBES = 20_000
# Edges reach to this multiple of the scale.
_TAIL = 4
# Number of edges, about.
_EDGES = 32
# Half norms of sum-zero noise above this multiple of classes and scale have a probability below 1e-12.
_LARGEST_NORM = 30
DRAWS = 10_000
"""Numbers of noise that are drawn to test a scale."""


class UnknownSampler(Exception):
    """A sampler of labels whose output changes more than once in a block of words: it cannot be measured exactly."""


def exact_row(draw: Callable[[Randomizer, np.ndarray, np.ndarray], np.ndarray], of: Randomizer, row: int) -> list[int]:
    """Counts the words that give each output of a row of a randomizer: m integers that add up to 2^64.

    `draw` takes the randomizer, rows and words, and returns places of outputs. Raises UnknownSampler if it does not
    map words to outputs in blocks.
    """
    bits = max(1, (len(of.outputs) - 1).bit_length())
    size = 1 << (_WORD_BITS - bits)
    starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(_WORD_BITS - bits)

    def outputs(words: np.ndarray) -> np.ndarray:
        return draw(of, np.full(len(words), row), words)

    first, last = outputs(starts), outputs(starts + np.uint64(size - 1))
    # The last word with the first output, and the first one with the last.
    low, high = np.zeros(len(starts), np.uint64), np.full(len(starts), size - 1, np.uint64)
    for _ in range(_WORD_BITS - bits):
        middle = low + ((high - low) >> np.uint64(1))
        same = outputs(starts + middle) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    probes = np.random.default_rng(0).integers(0, 1 << _WORD_BITS, _PROBES, dtype=np.uint64, endpoint=False)
    block, offset = (probes >> np.uint64(_WORD_BITS - bits)).astype(np.intp), probes & np.uint64(size - 1)
    same = first == last
    if not np.array_equal(outputs(probes), np.where(same[block] | (offset <= low[block]), first[block], last[block])):
        raise UnknownSampler
    counts = [0] * len(of.outputs)
    for one, other, lowest, whole in zip(first.tolist(), last.tolist(), low.tolist(), same.tolist(), strict=True):
        counts[one] += size if whole else lowest + 1
        counts[other] += 0 if whole else size - lowest - 1
    return counts


def largest_log_ratio(row: list[int], other: list[int]) -> float:
    """Largest log-ratio of the probability of an output in one row to that in another; infinite if one has it alone."""
    found = -math.inf
    for count, against in zip(row, other, strict=True):
        if count:
            found = max(found, math.log(count) - math.log(against) if against else math.inf)
    return found


def noise_fits(sampler: str, scale: Fraction, classes: int, key: bytes, alpha: float) -> bool:
    """Tests whether noise of a scale has its stated distribution; false with probability <= alpha if it has.

    Of discrete Laplace noise the numbers are tested, of sum-zero noise over so many classes half the L1 norms.
    """
    stream = ByteStream(key, b"attack on a sampler")
    if sampler == LAPLACE:
        values = np.array(discrete_laplace.discrete_laplace_integers(stream, scale, DRAWS))
        edges, shares = _laplace_edges(scale)
    else:
        vectors = np.array(sum_zero_laplace.sum_zero_laplace_integers(stream, scale, classes, DRAWS))
        values = np.abs(vectors).sum(axis=1) // 2
        edges, shares = _norm_edges(scale, classes)
    # Numbers below each edge and above: a wrong scale moves many of them past an edge, and few into a cell.
    below = np.searchsorted(np.sort(values), edges)
    counts = np.stack([below, len(values) - below], axis=1)
    return not len(misfits(counts, np.stack([shares, 1 - shares], axis=1), alpha))


def _laplace_edges(scale: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """Edges, shape (e,), and the probability of discrete Laplace noise below each of them, shape (e,)."""
    reach = max(1, math.ceil(_TAIL * scale))
    edges = np.arange(-reach, reach + 1, max(1, 2 * reach // _EDGES))
    rate = float(1 / scale)
    decay = math.exp(-rate)
    # P(Z <= -m) = exp(-rate m) / (1 + exp(-rate)) for m >= 1, and the same on the other side.
    tails = np.exp(-rate * np.where(edges > 0, edges, 1 - edges)) / (1 + decay)
    return edges, np.where(edges > 0, 1 - tails, tails)


def _norm_edges(scale: Fraction, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """As `_laplace_edges`, for half the L1 norm of sum-zero noise.

    Vectors of half norm s >= 1 with j positive entries: C(K, j) choices of these, C(s - 1, j - 1) of their values, and
    C(s + K - j - 1, K - j - 1) of the others, which are not positive. Each has a probability proportional to
    exp(-s / scale).
    """
    sizes = np.arange(1, math.ceil(_LARGEST_NORM * classes * scale) + 2, dtype=np.float64)
    vectors = sum(
        binom(classes, j) * binom(sizes - 1, j - 1) * binom(sizes + classes - j - 1, classes - j - 1)
        for j in range(1, classes)
    )
    weights = np.append(1.0, vectors * np.exp(-sizes / float(scale)))
    shares = np.cumsum(weights / weights.sum())
    places = np.searchsorted(shares, np.arange(1, _EDGES) / _EDGES)
    edges = np.unique(places) + 1
    return edges, shares[edges - 1]
