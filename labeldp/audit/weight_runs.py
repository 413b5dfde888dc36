"""Run-length encoded integer weights: their sums and divergence, with exact bounds on logarithms.

A mechanism file has a column for each output. A column is an array of runs, a weight and a number of labels each.

The parameter `columns` has the run-length encoded weights of each output, as the file has them; rows must sum to
2^bits. RefusedDocument is raised if a column is not an array of runs over the labels.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import sub
from typing import Any

from .documents import RefusedDocument, read_decimals

# Limits of an audit of delta, which expands runs.
_MAX_DENSE_CELLS = 1 << 24  # labels times outputs
_MAX_DENSE_EPSILON = 64


def _read_runs(column: Any, name: str, labels: int) -> tuple[list[int], list[int]]:
    """Checks the runs of a column; gives the first labels and the weights of them."""
    if not isinstance(column, list):
        raise RefusedDocument(f"{name} is not an array of runs")
    well_formed = set(map(type, column)) <= {list} and set(map(len, column)) <= {2}
    texts = [run[0] for run in column] if well_formed else []
    lengths = [run[1] for run in column] if well_formed else []
    if not (well_formed and set(map(type, lengths)) <= {int} and min(lengths, default=1) >= 1):
        raise RefusedDocument(f"a run of {name} is not a weight and a length >= 1")
    weights = read_decimals(texts, f"a weight of {name}")
    starts = list(accumulate(lengths, initial=0))
    if starts.pop() != labels:
        raise RefusedDocument(f"the runs of {name} do not cover {labels} labels")
    return starts, weights


def tally_columns(
    columns: list[Any], targets: list[int], labels: int
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Sums weights over outputs without expanding runs.

    Sums are accumulated as changes from one label to the next, so the cost of a run does not depend on its length. The
    result has the sums of weight and of weight * target, for each label, and the least and the largest weight, for each
    column. There is an integer target for each column.
    """
    sums, moments, ranges = [0] * labels, [0] * labels, []
    for c, (column, target) in enumerate(zip(columns, targets, strict=True)):
        starts, weights = _read_runs(column, f"column {c}", labels)
        for start, change in zip(starts, map(sub, weights, [0, *weights]), strict=False):
            sums[start] += change
            moments[start] += change * target
        ranges.append((min(weights), max(weights)))
    return list(accumulate(sums)), list(accumulate(moments)), ranges


def largest_ratio(ranges: list[tuple[int, int]]) -> Fraction:
    """Finds the largest ratio of two weights for one output, exactly.

    `ranges` are the least and the largest weight of each output, all > 0.
    """
    best, among = 0, 1
    for least, most in set(ranges):
        if most * among > best * least:
            best, among = most, least
    return Fraction(best, among)


def largest_divergence(columns: list[Any], labels: int, epsilon: Fraction, bits: int) -> Fraction:
    """Computes the least delta, in [0, 1], for which the weights are (epsilon, delta)-DP, epsilon >= 0.

    That is the largest sum over outputs of max(0, P(c | y) - E P(c | y')) over pairs of labels, with E = e^epsilon
    rounded down by less than 2^-300. Rows must sum to 2^bits.

    The sum of y against the least weight of every column is an upper bound on the sum of y against any label y'. Labels
    are visited in descending order of this bound until it no longer exceeds the largest sum found; for each, only
    columns with a positive term in the bound can have one in the sum.

    Raises RefusedDocument if there are more than 2^24 weights, or epsilon is above 64.
    """
    if labels * len(columns) > _MAX_DENSE_CELLS or epsilon > _MAX_DENSE_EPSILON:
        raise RefusedDocument(
            f"an audit of delta takes at most {_MAX_DENSE_CELLS} weights and epsilon at most {_MAX_DENSE_EPSILON}"
        )
    shift = 300
    factor = math.floor(_exp_lower_bound(epsilon) * (1 << shift))
    # Rows sum to 2^bits, so 64 bits hold a weight.
    positive, dense, bounds = [array("L") for _ in range(labels)], [], [0] * labels
    for c, column in enumerate(columns):
        weights = array("Q", (weight for _, weight, length in read_spans(column, labels) for _ in range(length)))
        dense.append(weights)
        floor = factor * min(weights)
        for y, weight in enumerate(weights):
            above = (weight << shift) - floor
            if above > 0:
                bounds[y] += above
                positive[y].append(c)
    best = 0
    for y in sorted(range(labels), key=lambda label: -bounds[label]):
        if bounds[y] <= best:
            break
        sums = [0] * labels
        for c in positive[y]:
            shifted = dense[c][y] << shift
            for other, weight in enumerate(dense[c]):
                above = shifted - factor * weight
                if above > 0:
                    sums[other] += above
        best = max(best, *sums)
    return Fraction(best, 1 << (shift + bits))


def mean_losses(
    columns: list[Any], labels: list[float], outputs: list[float], prior: list[float], bits: int
) -> dict[str, float]:
    """Computes the means of the losses of outputs over a prior, in floating point, without expanding runs.

    They are `squared`, `absolute` and, unless a label is negative, `poisson`: o - y log o, infinite for o < 0, and for
    o = 0 unless y = 0. `prior` is the probability of each label.
    """
    middle = math.fsum(weight * label for weight, label in zip(prior, labels, strict=True))
    moments = [
        list(accumulate((w * (y - middle) ** power for w, y in zip(prior, labels, strict=True)), initial=0.0))
        for power in range(3)
    ]
    likely = list(accumulate((weight > 0 for weight in prior), initial=0))
    squared, absolute, poisson = [], [], []
    for output, column in zip(outputs, columns, strict=True):
        away, above = output - middle, bisect_right(labels, output)
        for start, weight, length in read_spans(column, len(labels)):
            share, stop = weight / (1 << bits), start + length
            mass, first, second = (sums[stop] - sums[start] for sums in moments)
            squared.append(share * (away**2 * mass - 2 * away * first + second))
            split = min(max(above, start), stop)
            least, moment = (2 * sums[split] - sums[start] - sums[stop] for sums in moments[:2])
            absolute.append(share * (away * least - moment))
            if output > 0:
                poisson.append(share * (output * mass - math.log(output) * (first + middle * mass)))
            elif weight and likely[stop] > likely[max(start, int(output == labels[0]))]:
                poisson.append(math.inf)
    means = {"squared": math.fsum(squared), "absolute": math.fsum(absolute)}
    return means | ({"poisson": math.fsum(poisson)} if labels[0] >= 0 else {})


def dense_weights(columns: list[Any], labels: int, bits: int) -> list[list[float]]:
    """Expands weights to floats: for each column the probability of its output given each label."""
    return [
        [weight / (1 << bits) for _, weight, length in read_spans(column, labels) for _ in range(length)]
        for column in columns
    ]


def read_spans(column: Any, labels: int) -> Iterator[tuple[int, int, int]]:
    """Reads the runs of a column, as first label, weight and length of each."""
    starts, weights = _read_runs(column, "a column", labels)
    for (start, stop), weight in zip(pairwise([*starts, labels]), weights, strict=True):
        yield start, weight, stop - start


def ln_bounds(x: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Bounds ln(x) from below and from above by rationals; both are 0 for x = 1.

    Each further term of the series, >= 1, shrinks the distance between the bounds by a factor of at least 9. Raises
    ValueError if x <= 0.
    """
    if x <= 0:
        raise ValueError("ln needs a number > 0")
    if x < 1:
        lower, upper = ln_bounds(1 / x, terms)
        return -upper, -lower
    exponent = math.floor(x).bit_length() - 1
    rest = x / (1 << exponent)  # in [1, 2), so that z below is in [0, 1/3)
    lower, upper = _twice_atanh((rest - 1) / (rest + 1), terms)
    two_lower, two_upper = _twice_atanh(Fraction(1, 3), terms)  # ln 2
    return lower + exponent * two_lower, upper + exponent * two_upper


def _twice_atanh(z: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Bounds 2 atanh(z) = ln((1 + z) / (1 - z)), the sum of 2 z^(2i+1) / (2i+1), for 0 <= z < 1.

    The omitted terms, i >= n, are >= 0 and sum to at most 2 z^(2n+1) / (2n+1) * (1 + z^2 + z^4 + ...).
    """
    power, total = 2 * z, Fraction(0)
    for i in range(terms):
        total += power / (2 * i + 1)
        power *= z * z
    return total, total + power / ((2 * terms + 1) * (1 - z * z))


def ln_at_most(x: Fraction, bound: Fraction) -> bool:
    """Decides ln(x) <= bound exactly, for x > 0.

    Terminates: ln of a rational other than 1 is irrational (Lindemann) and therefore never equals the bound; ln 1 is
    computed exactly.
    """
    terms = 32
    while True:
        lower, upper = ln_bounds(x, terms)
        if upper <= bound or lower > bound:
            return upper <= bound
        terms *= 2


def ln_rounded_up(x: Fraction) -> float:
    """Least float >= ln(x), for x >= 1."""
    value = rounded_up(ln_bounds(x, 32)[1])
    while value > 0 and ln_at_most(x, Fraction(below := math.nextafter(value, 0))):
        value = below
    return value


def rounded_up(x: Fraction) -> float:
    """Least float >= x; infinity above the largest float."""
    try:
        value = float(x)
    except OverflowError:
        return math.inf
    return value if Fraction(value) >= x else math.nextafter(value, math.inf)


def _exp_lower_bound(x: Fraction) -> Fraction:
    """Bounds e^x from below, as a sum of the first terms of its series, each rounded down, for x in [0, 64].

    The relative distance is about 2^-340.
    """
    unit = 1 << 512
    power, total, n = unit, 0, 0
    while power:
        total += power
        n += 1
        power = power * x.numerator // (n * x.denominator)
    return Fraction(total, unit)
