"""Second implementation of the composition over the records of a privacy unit, from the integer weights.

It imports the standard library and the auditor's own modules only, and decides in integers and rationals that are
rounded outwards. The bound is the smaller of two:

- whatever the randomizer, M records with a largest ratio r of probabilities have at most the divergence of M binary
  randomized responses of that ratio (Kairouz, Oh, Viswanath 2015, Theorem 3.3);
- the divergence of M copies of a pair of distributions that is at least as bad as every pair of labels (Zhu, Dong, Wang
  2022, Theorem 10). Its curve joins, by straight lines, the largest divergences over pairs of labels at the ratios g^j;
  g is a 64th root of r, rounded up. So all its ratios are powers of the rational g, and no logarithm is needed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from typing import Any

from .documents import RefusedDocument
from .weight_runs import exp_lower_bound, largest_ratio, read_spans

_HALVINGS = 6
_STEPS = 1 << _HALVINGS
_SHIFT = 160  # binary digits of ratios
_MASS_BITS = 100  # binary digits of probabilities
_BYTES = 26  # a coefficient of a product: twice _MASS_BITS, and 8 bits more
_PAIR_BITS = 72  # a sum of weights, at most 2^63, and some bits more
_MOST_EPSILON = 64
_MOST_RECORDS = 1000
# Beyond these, only the first bound is computed: the second takes minutes.
_MOST_SEGMENTS = 512
_MOST_PAIRS_OF_RUNS = 1 << 22


def unit_divergence(
    columns: list[Any], labels: int, bits: int, records: int, epsilon: Fraction, enough: Fraction = Fraction(0)
) -> Fraction:
    """Bounds the least delta for which all labels of a unit are (epsilon, delta)-DP from above.

    Each of `records` labels is randomized with independent noise, and all of them may change. Rows must sum to 2^bits,
    bits at most 63, and `columns` are run-length encoded as in a mechanism file. `enough` is the claimed delta: the
    second bound is computed only if the first is above it. The bound is in [0, 1]; it is 1 if some output is impossible
    for some labels only.

    Raises RefusedDocument if a column is not an array of runs over the labels, there are more than 1000 records or
    none, or epsilon, >= 0, is above 64.
    """
    if not 1 <= records <= _MOST_RECORDS or epsilon > _MOST_EPSILON:
        raise RefusedDocument(
            f"an audit of units takes 1 to {_MOST_RECORDS} records of a unit, and epsilon at most {_MOST_EPSILON}"
        )
    spans = [list(read_spans(column, labels)) for column in columns]
    extremes = [(min(w for _, w, _ in runs), max(w for _, w, _ in runs)) for runs in spans]
    extremes = [(least, most) for least, most in extremes if most]
    if any(least == 0 for least, _ in extremes):
        return Fraction(1)
    ratio = largest_ratio(extremes)
    factor = math.floor(exp_lower_bound(epsilon) * (1 << _SHIFT))
    first = _response_divergence(ratio, records, Fraction(factor, 1 << _SHIFT))
    large = len(_segments(spans)) > _MOST_SEGMENTS or sum(len(runs) ** 2 for runs in spans) > _MOST_PAIRS_OF_RUNS
    if first <= enough or large:
        return first
    root = _root(ratio)
    masses = _power(_masses(_largest_divergences(spans, bits, root), root), records)
    return min(first, _divergence(masses, root, factor))


def _response_divergence(ratio: Fraction, records: int, factor: Fraction) -> Fraction:
    """Divergence of some randomized responses whose two answers have probabilities in this ratio."""
    high, low, total = ratio.numerator, ratio.denominator, 0
    for flips in range(records + 1):
        likely, unlikely = high ** (records - flips) * low**flips, high**flips * low ** (records - flips)
        above = factor.denominator * likely - factor.numerator * unlikely
        if above <= 0:
            break
        total += math.comb(records, flips) * above
    return Fraction(total, factor.denominator * (high + low) ** records)


def _root(ratio: Fraction) -> int:
    """The 64th root of a ratio, rounded up, in units of 2^-_SHIFT."""
    root = -(-(ratio.numerator << _SHIFT) // ratio.denominator)
    for _ in range(_HALVINGS):
        root = math.isqrt((root << _SHIFT) - 1) + 1
    return root


def _segments(spans: list[list[tuple[int, int, int]]]) -> dict[int, int]:
    """First labels of the segments within which all labels have the same weights, with the number of the segment."""
    starts = {start for runs in spans for start, _, _ in runs}
    return {start: number for number, start in enumerate(sorted(starts))}


def _powers(root: int) -> list[int]:
    """Powers 0 to 63 of the root, rounded down, in units of 2^-_SHIFT."""
    return list(accumulate(range(_STEPS - 1), lambda power, _: power * root >> _SHIFT, initial=1 << _SHIFT))


def _largest_divergences(spans: list[list[tuple[int, int, int]]], bits: int, root: int) -> list[Fraction]:
    """The largest divergence over ordered pairs of labels at each power of the root, from 0 to 64.

    The pairs of labels for which an output has the weights p and q form a rectangle. So the sums of p and of q over
    outputs with a ratio of at least a power are two-dimensional sums of changes at the corners of rectangles. Both sums
    are kept in one integer, p 2^72 + q.
    """
    place = _segments(spans)
    size, powers = len(place), _powers(root)
    cells: list[dict[tuple[int, int], int]] = [{} for _ in powers]
    for runs in spans:
        blocks = [(place[start], place.get(start + length, size), weight) for start, weight, length in runs]
        for top, bottom, p in blocks:
            for left, right, q in blocks:
                if p > q:
                    below = bisect_right(powers, p << _SHIFT, key=lambda power, q=q: power * q)
                    changes, both = cells[below - 1], (p << _PAIR_BITS) + q
                    for row, column, change in (
                        (top, left, both), (bottom, left, -both), (top, right, -both), (bottom, right, both),
                    ):  # fmt: skip
                        changes[row, column] = changes.get((row, column), 0) + change
    grid = [[0] * (size + 1) for _ in range(size + 1)]
    found, mask = [Fraction(0)], (1 << _PAIR_BITS) - 1
    for power, changes in zip(reversed(powers), reversed(cells), strict=True):
        for (row, column), change in changes.items():
            grid[row][column] += change
        sums: set[int] = set()
        above = [0] * (size + 1)
        for row in grid[:size]:
            above = [old + new for old, new in zip(above, row, strict=True)]
            sums.update(accumulate(above[:size]))
        most = max(((both >> _PAIR_BITS) << _SHIFT) - power * (both & mask) for both in sums)
        found.append(Fraction(most, 1 << (_SHIFT + bits)))
    return found[::-1]


def _masses(divergences: list[Fraction], root: int) -> list[int]:
    """Probabilities of the ratios g^-64, ..., g^64 under the pair whose curve joins these points, rounded up.

    The curve is a sum of q max(0, ratio - E) over ratios: the q of a ratio is the change of slope there. At ratios
    below 1 it is that of the reversed pair, 1 - (1 - d) E for the point d of 1 / E, and below the least ratio its slope
    is -1. Let d be the divergences, the last of which is 0, and d[65] = 0. The slope from g^j to g^(j + 1) is
    (d[j + 1] - d[j]) / (g^j (g - 1)), and that from g^-(j + 1) to g^-j is ((1 - d[j + 1]) - (1 - d[j]) g) / (g - 1). So
    the probability of g^j, which is g^j times the change of slope, is (d[j + 1] - d[j] - (d[j] - d[j - 1]) g) / (g - 1)
    for j > 0, and that of g^-j is the same divided by g^j.
    """
    # Denominators of divergences are powers of 2, so the largest is a common one.
    one, unit = 1 << _SHIFT, max(divergence.denominator for divergence in divergences)
    points = [divergence.numerator * (unit // divergence.denominator) for divergence in [*divergences, Fraction(0)]]
    # Probabilities times (g - 1) * unit * one, without a fraction.
    changes = [
        (after - point) * one - (point - before) * root
        for before, point, after in zip(points, points[1:], points[2:], strict=False)
    ]
    middle = (2 * points[1] - points[0] - unit) * one + (unit - points[0]) * root
    scale = (root - one) * unit
    lower = [(change << _SHIFT * j, scale * root**j) for j, change in enumerate(changes, start=1)]
    exact = [*reversed(lower), (middle, scale), *((change, scale) for change in changes)]
    return [max(-(-(mass << _MASS_BITS) // among), 0) for mass, among in exact]


def _power(masses: list[int], records: int) -> list[int]:
    """Probabilities of products of independent ratios, rounded up."""
    result, square = [1 << _MASS_BITS], masses
    while records:
        if records & 1:
            result = _multiplied(result, square)
        records >>= 1
        if records:
            square = _multiplied(square, square)
    return result


def _multiplied(first: list[int], second: list[int]) -> list[int]:
    """Product of two polynomials, as one product of long integers."""
    size = len(first) + len(second) - 1
    factor = _joined(first)
    # Python squares a number in less time than it multiplies two.
    whole = (factor * (factor if second is first else _joined(second))).to_bytes(size * _BYTES, "little")
    parts = (int.from_bytes(whole[start : start + _BYTES], "little") for start in range(0, size * _BYTES, _BYTES))
    return [-(-part >> _MASS_BITS) for part in parts]


def _joined(coefficients: list[int]) -> int:
    return int.from_bytes(b"".join(value.to_bytes(_BYTES, "little") for value in coefficients), "little")


def _divergence(masses: list[int], root: int, factor: int) -> Fraction:
    """Sum of P(ratio) (1 - factor / ratio) over the ratios above the factor, at most 1."""
    total, one = 0, 1 << _SHIFT
    share = factor
    for mass in masses[len(masses) // 2 :]:
        if share < one:
            total += mass * (one - share)
        share = (share << _SHIFT) // root
    return min(Fraction(total, 1 << (_SHIFT + _MASS_BITS)), Fraction(1))
