"""Exact noise for counts of classes whose sum is public: integer vectors of sum 0, from a keyed byte stream.

A change of one label moves a number a from one class to another: it adds a (e_c' - e_c) to the vector of a cell. The
sum of the vector stays what it was, which is public. So noise is needed on vectors of sum 0 alone: v in Z^K with

    P(v) proportional to exp(-|v|_1 / (2 t)),  sum of v = 0,  for a scale t > 0.

Privacy. Several such vectors with a public sum each are released, with noise of one scale t = s / epsilon, and a change
adds a_j (e_c' - e_c) to vector j, where the sum of the |a_j| is at most s. It moves every vector within the lattice of
its sum, so both datasets have the same outputs. The L1 distance of vector j is at most 2 |a_j|, so the likelihood ratio
of an output is at most exp(sum of 2 |a_j| / (2 t)) <= exp(s / t) = exp(epsilon): epsilon-label DP (the argument of
Dwork, McSherry, Nissim, Smith 2006, Theorem 1, on a lattice). The noise of a count is that of one class, discrete
Laplace of scale t, for K = 2, and grows to that of scale 2 t for many classes; plain noise has scale 2 t for all K.

Sampling. Let x = exp(-1 / t), and u, w in N^K be such that P(u, w) is proportional to x^m if both have the sum m, and 0
otherwise. Then v = u - w has the distribution above: the pairs of a given v are those of its positive and negative
parts, of sum |v|_1 / 2, with the same c in N^K added to both, and the sum of x^|c|_1 over all c is a constant. There
are C(m + K - 1, m)^2 pairs of sum m, and by Euler's transformation of the hypergeometric function, with n = K - 1,

    sum over m of C(m + n, m)^2 x^m = (1 - x)^-(2 n + 1)  sum over k <= n of C(n, k)^2 x^k.

So m is k plus 2 n + 1 geometric numbers of ratio x, where P(k) is proportional to C(n, k)^2 x^k: k is the number of
successes in n trials of odds exp(-1 / (2 t)), given that n further trials have as many. Given m, u and w are
independent and uniform. All of it is exact, with integers only.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from ..core.reproducible import exp, expm1, log
from .discrete_laplace import ByteStream, bernoulli_exp

_HALF = Fraction(1, 2)


def sum_zero_laplace(stream: ByteStream, scale: Fraction, classes: int, count: int) -> np.ndarray:
    """Draws noise of sum 0, as 64-bit integers: for scales below 2^40; shape (count, classes), int64.

    Raises ValueError unless the scale is positive and there is a class.
    """
    drawn = sum_zero_laplace_integers(stream, scale, classes, count)
    return np.array(drawn, np.int64).reshape(count, classes)


def sum_zero_laplace_integers(stream: ByteStream, scale: Fraction, classes: int, count: int) -> list[tuple[int, ...]]:
    """Draws integer vectors of sum 0 exactly: P(v) is proportional to exp(-|v|_1 / (2 scale)).

    Integers are of any size. Raises ValueError unless the scale is positive and there is a class.
    """
    _check(scale, classes)
    drawn: list[tuple[int, ...]] = []
    for _ in range(count):
        total = _successes(stream, classes - 1, scale)
        total += sum(_geometric(stream, scale) for _ in range(2 * classes - 1))
        first, second = _composition(stream, total, classes), _composition(stream, total, classes)
        drawn.append(tuple(a - b for a, b in zip(first, second, strict=True)))
    return drawn


def _check(scale: Fraction, classes: int) -> None:
    if scale <= 0:
        raise ValueError(f"scale must be positive, not {scale}")
    if classes < 1:
        raise ValueError(f"there must be a class, not {classes}")


def _successes(stream: ByteStream, trials: int, scale: Fraction) -> int:
    """Draws k <= trials with P(k) proportional to C(trials, k)^2 exp(-k / scale)."""
    rate = _HALF / scale
    while True:
        first, second = (sum(_odds_exp(stream, rate) for _ in range(trials)) for _ in range(2))
        if first == second:
            return first


def _odds_exp(stream: ByteStream, rate: Fraction) -> bool:
    """True with odds of exp(-rate) to 1."""
    while stream.below(2):
        if _bernoulli(stream, rate):
            return True
    return False


def _bernoulli(stream: ByteStream, rate: Fraction) -> bool:
    """True with probability exp(-rate), for a rate >= 0."""
    whole, rest = divmod(rate.numerator, rate.denominator)
    return all(bernoulli_exp(stream, 1, 1) for _ in range(whole)) and bernoulli_exp(stream, rest, rate.denominator)


def _geometric(stream: ByteStream, scale: Fraction) -> int:
    """Draws z >= 0 with P(z) proportional to exp(-z / scale) (Canonne, Kamath, Steinke 2020, Algorithm 2)."""
    t = scale.numerator
    remainder = stream.below(t)
    while not bernoulli_exp(stream, remainder, t):
        remainder = stream.below(t)
    quotient = 0
    while bernoulli_exp(stream, 1, 1):
        quotient += 1
    return (remainder + t * quotient) // scale.denominator


def _composition(stream: ByteStream, total: int, parts: int) -> list[int]:
    """Draws whole numbers >= 0 of a given sum uniformly: the gaps between parts - 1 places of total + parts - 1.

    The places are a uniform subset (Bentley and Floyd 1987, "A sample of brilliance").
    """
    places: set[int] = set()
    for last in range(total, total + parts - 1):
        place = stream.below(last + 1)
        places.add(last if place in places else place)
    bounds = [-1, *sorted(places), total + parts - 1]
    return [after - before - 1 for before, after in itertools.pairwise(bounds)]


def sum_zero_variance(scale: Fraction, classes: int) -> float:
    """Variance of the noise of one class.

    Given m, an entry of u has the variance m (m + K) (K - 1) / (K^2 (K + 1)), and that of w is independent. The
    covariance of two classes is this variance divided by -(K - 1). Raises ValueError unless the scale is positive and
    there is a class.
    """
    _check(scale, classes)
    inverse = float(1 / scale)
    x = float(exp(-inverse))
    trials = classes - 1
    k = np.arange(trials + 1.0)
    # Logarithms, relative to the largest weight: binomials overflow.
    steps = 2 * log((trials - k[:-1]) / k[1:])
    logs = np.concatenate([[0.0], np.cumsum(steps)]) - inverse * k
    weights = exp(logs - logs.max())
    weights /= weights.sum()
    # Mean and mean square of k plus 2 K - 1 geometric numbers.
    size, tail = 2 * classes - 1, -float(expm1(-inverse))
    first = float((weights * k).sum())
    spread = float((weights * (k - first) ** 2).sum()) + size * x / (tail * tail)
    mean = first + size * x / tail
    square = spread + mean * mean
    return 2 * (classes - 1) / (classes * classes * (classes + 1)) * (square + classes * mean)
